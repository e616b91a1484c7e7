"""SQL for agents: what they may ask of the tables in a database, and what of those they may see."""
