"""The MCP server: one definition for stdio, HTTP and hosting platforms."""

import json
import logging
from collections.abc import Callable
from typing import Any, NoReturn, cast
from uuid import uuid4

from mcp.server import CacheHint, MCPServer, Server
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, TextContent, ToolAnnotations
from mcp_types import Tool as Listed
from starlette.requests import Request

from kura.errors import KuraError, MissingScope
from kura.library.library import Library
from kura.serve.arguments import schema
from kura.serve.calls import Caller, allowed, call, compact, require_fitting
from kura.serve.problems import REQUEST_ID
from kura.serve.sql_tools import tools_of
from kura.serve.tools import Tool
from kura.types import Principal, Rules

logger = logging.getLogger(__name__)

PrincipalOf = Callable[[Request | None], Principal]
"""Who sent a message: asked with the HTTP request that carried it, with None where there is no HTTP."""

REFUSED = "kura.refused"
"""Where an ASGI scope may hold a list: errors that are answered by HTTP itself are put there."""

_INSTRUCTIONS = """\
Kura searches named knowledge bases: collections of documents that people have indexed. It finds passages by words \
(keyword) and by meaning (semantic), in English, Chinese and other languages. It also answers SQL over the tables that \
their owners keep beside the documents.

How to use it: call list_rag first to see which knowledge bases there are, then search_rag with one name as db and \
the question as q. Leave out mode to search both ways; if too little comes back, try other words. Each passage names \
its source: cite it. For tables call schema_inspect, then query; vector_search finds the nearest rows to a vector that \
you already have.

What it is not: it is not a memory, and it keeps nothing of this conversation. It does not search the web. {writing}"""

_READS = "It cannot change anything: no tool writes, and knowledge is indexed by people outside of this server."
_WRITES = (
    "Knowledge cannot be changed: people index it outside of this server. Rows of tables can be changed by query, where"
    " the operator allowed it: {names}."
)


def instructions(rules: Rules) -> str:
    """What the server tells a model about itself."""
    names = ", ".join(sorted(rules.writable))
    return _INSTRUCTIONS.format(writing=_WRITES.format(names=names) if names else _READS)


_READ_ONLY = ToolAnnotations(read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False)
_WRITING = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False, open_world_hint=False)


class KnowledgeServer(MCPServer[Any]):
    """An `MCPServer` that lists and calls Kura's own tools.

    The SDK's registry would check arguments its way: unknown ones ignored, `true` taken for 1, values echoed in errors
    and every error prefixed. So the public methods that use the registry are replaced, and it stays empty. There are
    no prompts either; the SDK takes the question for one as a failure of its own, with a trace in the log.
    """

    def __init__(
        self,
        library: Library,
        principal_of: PrincipalOf,
        version: str,
        *,
        most_bytes: int | None = None,
        log_queries: bool = False,
    ) -> None:
        super().__init__(
            "kura",
            title="Kura",
            description="Search over named knowledge bases, and SQL over tables in them.",
            instructions=instructions(library.rules),
            version=version,
            # A stream of changes would keep a request open for ever, and stateless processes have none to tell.
            subscriptions=False,
            cache_hints={"tools/list": CacheHint(ttl_ms=300_000)},
            log_level="WARNING",
            middleware=[self._only_allowed],
        )
        self._most_bytes, self._log_queries = most_bytes, log_queries
        self._library = library
        self._principal_of = principal_of
        tools = tools_of(library.rules)
        self._tools: dict[str, Tool[Any]] = {tool.name: tool for tool in tools}
        self._listed = [
            Listed(
                name=tool.name,
                title=tool.title,
                description=tool.description,
                input_schema=schema(tool.arguments),
                output_schema=tool.output,
                annotations=_WRITING if tool.writes else _READ_ONLY,
            )
            for tool in tools
        ]

    @property
    def core(self) -> Server[Any]:
        """The low-level server, which transports drive."""
        return self._lowlevel_server

    async def list_tools(self) -> list[Listed]:
        """All tools, as clients see them."""
        return self._listed

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult:
        """Answer one call.

        Returns:
            The answer twice, as structure and as the same JSON in text; of an error, its text alone.

        Raises:
            MCPError: if there is no such tool.
        """
        tool = self._tools.get(name)
        if tool is None:
            raise MCPError(code=INVALID_PARAMS, message=f"unknown tool; known are {', '.join(self._tools)}")
        request = None if context is None else cast("Request | None", context.request_context.request)
        request_id: str = uuid4().hex if request is None else request.scope[REQUEST_ID]
        try:
            caller = Caller(self._principal_of(request), request_id, log_queries=self._log_queries)
            answer = await call(self._library, tool, arguments, caller)
            text = compact(answer)
            # It is sent twice, once of it as text within the JSON.
            require_fitting(text + json.dumps(text, ensure_ascii=False), self._most_bytes)
        except KuraError as error:
            if isinstance(error, MissingScope) and request is not None:
                request.scope[REFUSED].append(error)
            return _failure(str(error))
        except Exception:
            logger.exception("%s failed unexpectedly, request id %s", name, request_id)
            return _failure(f"internal error, request id {request_id}")
        return CallToolResult(content=[TextContent(type="text", text=text)], structured_content=answer)

    async def _only_allowed(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """Leave out of the list of tools those that the caller's credential is not good for."""
        result = await call_next(ctx)
        if ctx.method != "tools/list" or not isinstance(result, dict):
            return result
        # The SDK has made it ready to be sent by now.
        principal = self._principal_of(ctx.request)
        listed = cast("list[dict[str, Any]]", result["tools"])
        return {**result, "tools": [tool for tool in listed if allowed(self._tools[tool["name"]], principal)]}

    async def get_prompt(
        self,
        name: str,  # noqa: ARG002 - the SDK's signature
        arguments: dict[str, Any] | None = None,  # noqa: ARG002
        context: Context[Any, Any] | None = None,  # noqa: ARG002
    ) -> NoReturn:
        """Refuse: there are no prompts.

        Raises:
            MCPError: always.
        """
        raise MCPError(code=INVALID_PARAMS, message="unknown prompt; this server has none")


def build_server(
    library: Library,
    principal_of: PrincipalOf,
    *,
    version: str,
    most_bytes: int | None = None,
    log_queries: bool = False,
) -> KnowledgeServer:
    """The MCP server over a library.

    Args:
        library: The knowledge bases to serve.
        principal_of: Who sent a message.
        version: Kura's version, which clients are told.
        most_bytes: A longer answer is refused; None is no limit.
        log_queries: Whether the words of queries may be logged.
    """
    return KnowledgeServer(library, principal_of, version, most_bytes=most_bytes, log_queries=log_queries)


def _failure(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)
