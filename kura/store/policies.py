"""Row-level policies as a database keeps them."""

from kura.store.engine import Asked
from kura.types import Policy


def policies(connection: Asked) -> list[Policy]:
    """All policies of a database that has a table of them, by table and name."""
    rows = connection.rows(
        "select name, table_name, command, using_expression, check_expression from policies order by table_name, name"
    )
    return [Policy(*row) for row in rows]
