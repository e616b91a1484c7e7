"""Which tables of a database are Kura's or the engine's, by name. All others are the user's."""

import re

from kura.store.engine import folded

_FTS = "chunks_fts(_(config|content|data|docsize|idx))?"
_KNOWLEDGE = f"roots|sources|chunk_vectors|chunks|{_FTS}|segments|removed_vectors|state|publication"
_OWN = re.compile(
    rf"(next_|former_)?({_KNOWLEDGE})|former_touched|next_table_.*|sqlite_.*|libsql_.*|_litestream_.*"
    r"|kura_migrations|publications|publisher|policies|staging|published_tables",
    re.DOTALL,
)


def is_own(name: str) -> bool:
    """Whether a table of that name is not the user's."""
    return _OWN.fullmatch(folded(name)) is not None
