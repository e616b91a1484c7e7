"""Publishing a local database, and going back: readers see all of a push or nothing of it.

A small change is one batch in one request. A large one is staged beside the tables that are read, in as many requests
as it needs, and comes into its place by one batch of renames. Either way the batch fails as a whole where another push
was published since we looked.
"""

import json
from collections.abc import Sequence

from kura.errors import Conflict, StoreError
from kura.store.engine import Connection, Statement
from kura.store.migrations import now
from kura.store.publish import delta, staging
from kura.store.publish.plan import Plan
from kura.store.publish.published import Publication, prepare, publication, require_token
from kura.store.publish.staging import Progress


def push(local: Connection, remote: Connection, planned: Plan, token: str, whose: str, told: Progress) -> Publication:
    """Carry a plan out, inside the same read transaction of `local` that it was made in.

    Args:
        local: The database to publish.
        remote: Where to.
        planned: From `plan`; there is something to do.
        token: What this push shall be called. The caller keeps it first: where it cannot be learnt whether the last
            step took place, the next push sees by it that it did.
        whose: From `owner`.
        told: Called after each request how far it is.

    Returns:
        What is published now.

    Raises:
        Conflict: if another push was published meanwhile; what is read stays that one's.
        Busy: if another push is being staged there.
    """
    fresh = Publication(
        token,
        planned.base.token if planned.base else None,
        None if planned.base is None else ("rows" if planned.how == "rows" else "tables"),
        planned.all_vectors,
        dict(local.rows("select name, seq from sqlite_sequence")),
        now(),
    )
    if planned.how == "rows":
        total = sum(len(change.added) for change in planned.changes.values())
        told(0, total)
        _commit(remote, planned, fresh, list(delta.steps(local, remote, planned, fresh)))
        told(total, total)
    else:
        prepare(remote)
        run = staging.stage(local, remote, planned, whose, told)
        _commit(remote, planned, fresh, staging.renames(local, remote, planned, fresh, run), run)
    return fresh


def _commit(
    remote: Connection, planned: Plan, fresh: Publication, steps: Sequence[Statement], run: str | None = None
) -> None:
    try:
        remote.atomically(steps)
    except StoreError as error:
        current = publication(remote)
        if current is not None and current.token == fresh.token:
            return  # it was done, and the answer was lost
        if (current.token if current else None) != (planned.base.token if planned.base else None):
            raise Conflict("another push was published meanwhile; nothing of this one is read; run it again") from error
        if run is not None:
            staging.require_not_taken_over(remote, run, error)
        raise


def rollback(connection: Connection) -> Publication:
    """Return to the push before the one that is read, which is then gone; readers load everything anew.

    Returns:
        What is read now.

    Raises:
        StoreError: if nothing is published there.
        Conflict: if the server keeps no former push, or another push came in between.
    """
    current = publication(connection)
    if current is None:
        raise StoreError("nothing is published there")
    if current.undo is None:
        raise Conflict("the server keeps no push before the one that is read; one step back is all that it keeps")
    steps = [require_token(current.token)]
    steps += staging.steps_back() if current.undo == "tables" else delta.steps_back()
    # What was given once is never given again: somebody may still hold it.
    (former,) = connection.one("select last_ids from former_publication")
    last_ids = dict(current.last_ids)
    for table, last in json.loads(former).items():
        last_ids[table] = max(last, last_ids.get(table, 0))
    steps += [
        ("delete from publication", ()),
        ("insert into publication select * from former_publication", ()),
        ("update publication set undo = null, parent = null, last_ids = ?", (json.dumps(last_ids),)),
        (
            """
            update state set (tokenizer, embedder, dimension, centre, tenant, created_at) =
              (select tokenizer, embedder, dimension, centre, tenant, created_at from former_state),
              version = version + 1, generation = generation + 1
            """,
            (),
        ),
    ]
    # By rows, the former tables hold what was touched; by tables, they have their names back.
    steps += [(f"drop table former_{table}", ()) for table in ("state", "publication")]
    try:
        connection.atomically(steps)
    except StoreError as error:
        found = publication(connection)
        if found is None or found.token != current.token:
            raise Conflict("another push or rollback came in between; look again") from error
        raise
    back = publication(connection)
    if back is None:
        raise StoreError("nothing is published there any more")
    return back
