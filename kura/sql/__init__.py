"""SQL for agents: what they may ask of the tables in a database, and what of those they may see.

Only `query` and its like are to be imported from outside, and only once they are needed: reading SQL takes a library
whose import lasts a fifth of a second.
"""

MOST_CHARACTERS = 50_000
"""A longer statement is refused."""

MOST_PARAMS = 1000
"""A statement with more values is refused."""
