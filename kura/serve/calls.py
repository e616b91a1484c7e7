"""One call of a tool, whoever carries it: checked, allowed, answered, and reported."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kura.access.principal import open_session
from kura.errors import AnswerTooLong, KuraError, MissingScope
from kura.events import tell
from kura.library.library import Library
from kura.serve.arguments import read
from kura.serve.tools import Answer, Tool
from kura.types import Principal

ENVELOPE_BYTES = 4096
"""What stands around an answer: JSON-RPC, headers, the platform's own words."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, as an edge knows it.

    Attributes:
        principal: Whom the transport says it is.
        request_id: What ties the lines of the log to the answer; None where there is no request.
        log_queries: Whether the words of queries may be logged.
    """

    principal: Principal
    request_id: str | None = None
    log_queries: bool = False


async def call(library: Library, tool: Tool[Any], given: Mapping[str, object], caller: Caller) -> Answer:
    """Answer a call.

    Raises:
        MissingScope: if the caller's credential is not good for the tool.
        KuraError: whatever else is wrong, or fails.
    """
    began = time.perf_counter()
    outcome, code, hits = "failed", "internal", None
    database, text = None, None
    try:
        if not allowed(tool, caller.principal):
            raise MissingScope(tool.scopes[0])
        checked = read(tool.arguments, given)
        session = open_session(caller.principal, checked.tenant_id, checked.user_id)
        text = tool.text(checked) if caller.log_queries else None
        answer = await tool.run(library, session, checked)
        # Only now is a name known to be one of ours, and not anything that somebody sent.
        outcome, code, hits, database = "ok", None, tool.hits(answer), getattr(checked, "db", None)
    except KuraError as error:
        outcome, code = "refused" if error.status < 500 else "failed", error.code
        raise
    else:
        return answer
    finally:
        tell(
            "call",
            tool=tool.name,
            outcome=outcome,
            code=code,
            database=database,
            hits=hits,
            seconds=time.perf_counter() - began,
            caller=caller.principal.name,
            request_id=caller.request_id,
            query=text,
        )


def allowed(tool: Tool[Any], principal: Principal) -> bool:
    """Whether a credential is good for a tool: one of the tool's scopes is enough."""
    return any(scope in principal.scopes for scope in tool.scopes)


def compact(answer: Answer) -> str:
    """An answer as JSON without blanks."""
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":"))


def require_fitting(body: str, most: int | None) -> None:
    """Check that a body can be sent.

    Platforms carry it as a string in JSON of their own, so what counts is how long it is when it is quoted.

    Args:
        body: The answer's body.
        most: At most so many bytes; None is no limit.

    Raises:
        AnswerTooLong: if it is longer.
    """
    # No character takes more than six bytes when it is quoted: most answers need not be looked at.
    if most is None or len(body) * 6 + ENVELOPE_BYTES <= most:
        return
    length = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")) + ENVELOPE_BYTES
    if length > most:
        raise AnswerTooLong(length, most)
