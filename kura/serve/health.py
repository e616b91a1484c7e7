"""What a server says of its own state to those who may know."""

from kura.library.library import Library
from kura.serve.tools import Answer
from kura.types import Session


async def health_of(library: Library, session: Session) -> Answer:
    """Which of the databases that a session sees can be searched, and how far each is; and the embedder.

    Nobody waits for what is still loading.
    """
    loaded = await library.loaded(session)
    databases: list[Answer] = []
    for entry, base in await library.opened(session):
        state: Answer = {"db": entry.name, "state": "not open"}
        if base is not None:
            state |= {"state": "open", "since": base.opened_at}
            if (vectors := base.vectors) is not None:
                state |= {"version": vectors.state.version, "vectors": vectors.counts.vectors}
        databases.append(state)
    return {"loaded": loaded, "databases": databases, "embedder": library.embedder_state()}
