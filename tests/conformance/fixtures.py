"""The tools, resources and prompts that the conformance suite asks a server for, on a server for tests alone.

What each must do is said by the suite (`conformance list`, and the descriptions of its scenarios). It shares with the
product the way from an HTTP request to the SDK's server and back, which is what the suite is to prove here.
"""

import base64
import json
from typing import Annotated, Any

from mcp.server import MCPServer, Server
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.shared.exceptions import MCPError
from mcp_types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    Completion,
    ContentBlock,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    InputRequest,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    SetLevelRequestParams,
    SubscribeRequestParams,
    TextContent,
    TextResourceContents,
    Tool,
    UnsubscribeRequestParams,
)
from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from kura.access.credentials import open_gate
from kura.serve.app import McpEndpoint
from kura.serve.entrance import Entrance
from kura.serve.hosts import HostCheck
from kura.serve.problems import Masked
from kura.serve.watch import Watched
from kura.types import Principal

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
)
WAV = b"RIFF&\0\0\0WAVEfmt \x10\0\0\0\1\0\1\0@\x1f\0\0\x80>\0\0\2\0\x10\0data\2\0\0\0\0\0"

SCHEMA_2020_12: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}

Ctx = Context[Any, Any]
Answer = str | InputRequiredResult


class _Given(BaseModel):
    response: str = "nothing"


class FixtureServer(MCPServer[Any]):
    """A server whose low-level core can be driven, as the product's can."""

    @property
    def core(self) -> Server[Any]:
        return self._lowlevel_server

    async def list_tools(self) -> list[Tool]:
        """The registered tools, and one that is there to be looked at."""
        return [
            *await super().list_tools(),
            Tool(name="json_schema_2020_12_tool", description="A schema.", input_schema=SCHEMA_2020_12),
        ]


def build_fixture_app() -> Starlette:
    """The fixtures behind the product's own endpoint, host check and outer wall."""
    endpoint = McpEndpoint(build_fixture_server().core, Entrance(open_gate(Principal())))
    return Starlette(
        routes=[Route("/mcp", endpoint)],
        middleware=[
            Middleware(Watched),
            Middleware(HostCheck, hosts=(), origins=(), own_host=None),
            Middleware(Masked),
        ],
    )


def build_fixture_server() -> FixtureServer:
    server = FixtureServer("kura-conformance-fixtures", version="0", subscriptions=False, log_level="WARNING")
    _contents(server)
    _while_running(server)
    _questions(server)
    _capabilities(server)
    _rounds(server)
    _headers(server)
    _resources(server)
    _prompts(server)
    _endpoints(server)
    return server


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)


def _image() -> ImageContent:
    return ImageContent(type="image", data=base64.b64encode(PNG).decode(), mime_type="image/png")


def _embedded(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime_type, text=text))


def _contents(server: FixtureServer) -> None:
    @server.tool()
    def test_simple_text() -> list[ContentBlock]:
        """Simple text."""
        return [_text("This is a simple text response for testing.")]

    @server.tool()
    def test_image_content() -> list[ContentBlock]:
        """Image content."""
        return [_image()]

    @server.tool()
    def test_audio_content() -> list[ContentBlock]:
        """Audio content."""
        return [AudioContent(type="audio", data=base64.b64encode(WAV).decode(), mime_type="audio/wav")]

    @server.tool()
    def test_embedded_resource() -> list[ContentBlock]:
        """Embedded resource."""
        return [_embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")]

    @server.tool()
    def test_multiple_content_types() -> list[ContentBlock]:
        """Multiple content types."""
        mixed = _embedded("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
        return [_text("Multiple content types test:"), _image(), mixed]

    @server.tool()
    def test_error_handling() -> list[ContentBlock]:
        """Error handling."""
        raise ValueError("This tool intentionally returns an error for testing")


def _while_running(server: FixtureServer) -> None:
    @server.tool()
    async def test_tool_with_logging(ctx: Ctx) -> str:
        """Tool with logging."""
        for step in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.info(step)  # pyright: ignore[reportDeprecated]
        return "logged"

    @server.tool()
    async def test_logging_tool(ctx: Ctx) -> str:
        """Logging tool."""
        await ctx.info("only for those who asked for it")  # pyright: ignore[reportDeprecated]
        return "logged"

    @server.tool()
    async def test_tool_with_progress(ctx: Ctx) -> str:
        """Tool with progress."""
        for done in (0, 50, 100):
            await ctx.report_progress(done, 100)
        return "done"

    @server.tool()
    async def test_sampling(prompt: str, ctx: Ctx) -> str:
        """Sampling."""
        message = SamplingMessage(role="user", content=_text(prompt))
        result = await ctx.session.create_message(messages=[message], max_tokens=100)  # pyright: ignore[reportDeprecated]
        return f"LLM response: {_said(result)}"

    for name in ("test_elicitation", "test_elicitation_sep1034_defaults", "test_elicitation_sep1330_enums"):

        @server.tool(name)
        async def elicit(ctx: Ctx, message: str = "Please answer") -> str:
            """Elicitation."""
            return f"User response: {await ctx.elicit(message, _Given)}"


def _questions(server: FixtureServer) -> None:
    @server.tool()
    def test_input_required_result_elicitation(ctx: Ctx) -> Answer:
        """Input required result elicitation."""
        name = _accepted(ctx, "user_name", "name")
        return _ask(user_name=_elicit("What is your name?", "name")) if name is None else f"Hello, {name}!"

    @server.tool()
    def test_streaming_elicitation(ctx: Ctx) -> Answer:
        """Streaming elicitation."""
        name = _accepted(ctx, "user_name", "name")
        return _ask(user_name=_elicit("What is your name?", "name")) if name is None else f"Hello, {name}!"

    @server.tool()
    def test_input_required_result_sampling(ctx: Ctx) -> Answer:
        """Input required result sampling."""
        given = (ctx.input_responses or {}).get("capital_question")
        if not isinstance(given, CreateMessageResult):
            return _ask(capital_question=_sample("What is the capital of France?", 100))
        return _said(given)

    @server.tool()
    def test_input_required_result_list_roots(ctx: Ctx) -> Answer:
        """Input required result list roots."""
        given = (ctx.input_responses or {}).get("client_roots")
        if not isinstance(given, ListRootsResult):
            return _ask(client_roots=ListRootsRequest())
        return ", ".join(str(root.uri) for root in given.roots)


def _capabilities(server: FixtureServer) -> None:
    @server.tool()
    def test_input_required_result_capabilities(ctx: Ctx) -> Answer:
        """Input required result capabilities."""
        declared = ctx.client_capabilities
        asked: dict[str, InputRequest] = {}
        if declared is not None and declared.elicitation is not None:
            asked["user_name"] = _elicit("What is your name?", "name")
        if declared is not None and declared.sampling is not None:
            asked["greeting"] = _sample("Generate a greeting", 50)
        return _ask(**asked) if asked and not ctx.input_responses else "nothing to ask"

    @server.tool()
    def test_missing_capability(ctx: Ctx) -> str:
        """Missing capability."""
        declared = ctx.client_capabilities
        if declared is None or declared.sampling is None:
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                "this tool needs a client that samples",
                {"requiredCapabilities": {"sampling": {}}},
            )
        return "the client samples"


def _rounds(server: FixtureServer) -> None:
    @server.tool()
    def test_input_required_result_request_state(ctx: Ctx) -> Answer:
        """Input required result request state."""
        if _accepted(ctx, "confirm", "ok") is None or ctx.request_state != "asked":
            return _ask("asked", confirm=_elicit("Please confirm", "ok", "boolean"))
        return "state-ok"

    @server.tool()
    def test_input_required_result_tampered_state(ctx: Ctx) -> Answer:
        """Input required result tampered state."""
        if ctx.request_state != "asked":
            return _ask("asked", confirm=_elicit("Please confirm", "ok", "boolean"))
        return "the state is the one that was given out"

    @server.tool()
    def test_input_required_result_multiple_inputs(ctx: Ctx) -> Answer:
        """Input required result multiple inputs."""
        if not {"user_name", "greeting", "client_roots"} <= set(ctx.input_responses or {}):
            return _ask(
                "asked",
                user_name=_elicit("What is your name?", "name"),
                greeting=_sample("Generate a greeting", 50),
                client_roots=ListRootsRequest(),
            )
        return "all answered"

    @server.tool()
    def test_input_required_result_multi_round(ctx: Ctx) -> Answer:
        """Input required result multi round."""
        if ctx.request_state == "second":
            return f"done: {_accepted(ctx, 'step2', 'color')}"
        if ctx.request_state == "first":
            return _ask("second", step2=_elicit("Step 2: What is your favorite color?", "color"))
        return _ask("first", step1=_elicit("Step 1: What is your name?", "name"))


def _ask(state: str | None = None, /, **requests: InputRequest) -> InputRequiredResult:
    return InputRequiredResult(input_requests=requests, request_state=state)


def _elicit(message: str, name: str, kind: str = "string") -> ElicitRequest:
    schema: dict[str, Any] = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def _sample(text: str, max_tokens: int) -> CreateMessageRequest:
    messages = [SamplingMessage(role="user", content=_text(text))]
    return CreateMessageRequest(params=CreateMessageRequestParams(messages=messages, max_tokens=max_tokens))


def _accepted(ctx: Ctx, key: str, field: str) -> object:
    given = (ctx.input_responses or {}).get(key)
    if not isinstance(given, ElicitResult) or given.action != "accept" or given.content is None:
        return None
    return given.content.get(field)


def _said(result: CreateMessageResult) -> str:
    return result.content.text if isinstance(result.content, TextContent) else ""


def _headers(server: FixtureServer) -> None:
    @server.tool()
    def test_custom_headers(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        """Custom headers."""
        return region


def _resources(server: FixtureServer) -> None:
    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return PNG

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:  # noqa: A002 - the suite's name for it
        """Template."""
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    @server.resource("test://watched-resource", mime_type="text/plain")
    def watched() -> str:
        return "Nobody is told when this changes."


def _prompts(server: FixtureServer) -> None:
    @server.prompt()
    def test_simple_prompt() -> list[UserMessage]:
        """Simple prompt."""
        return [UserMessage(_text("This is a simple prompt for testing."))]

    @server.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> list[UserMessage]:
        """Prompt with arguments."""
        return [UserMessage(_text(f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))]

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803 - as above
        """Prompt with embedded resource."""
        embedded = _embedded(resourceUri, "text/plain", "Embedded resource content for testing.")
        return [UserMessage(embedded), UserMessage(_text("Please process the embedded resource above."))]

    @server.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        """Prompt with image."""
        return [UserMessage(_image()), UserMessage(_text("Please analyze the image above."))]

    @server.prompt()
    def test_input_required_result_prompt(ctx: Ctx) -> list[UserMessage] | InputRequiredResult:
        """Input required result prompt."""
        context = _accepted(ctx, "user_context", "context")
        if context is None:
            return _ask(user_context=_elicit("What context should the prompt use?", "context"))
        return [UserMessage(_text(f"In the context of {context}"))]


def _endpoints(server: FixtureServer) -> None:
    @server.completion()
    async def complete(*_given: object) -> Completion:
        return Completion(values=["paris", "park", "party"], total=3, has_more=False)

    async def accept(_ctx: ServerRequestContext[Any, Any], _params: object) -> EmptyResult:
        return EmptyResult()

    server.core.add_request_handler("logging/setLevel", SetLevelRequestParams, accept)
    server.core.add_request_handler("resources/subscribe", SubscribeRequestParams, accept)
    server.core.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, accept)
