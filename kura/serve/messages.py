"""JSON-RPC messages as they come off a wire: read strictly, and refused without a word of what was in them."""

from mcp_types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError
from pydantic_core import from_json


def read_message(text: bytes | str, carrier: str) -> JSONRPCMessage | ErrorData:
    """The one message that a text holds, or what to answer instead.

    Stricter than the models: they overlook a key that they do not know, so a request whose `id` cannot be one would
    pass for a notification, and its sender would wait for ever (JSON-RPC 2.0, section 4.1: a notification is a request
    without an `id` member). And unlike Python's own parser this one refuses a lone surrogate.

    Args:
        text: What was received.
        carrier: What held it, for the error's text: `line` or `body`.
    """
    try:
        decoded = from_json(text)
    except ValueError:
        return ErrorData(code=PARSE_ERROR, message=f"Parse error: the {carrier} is not valid JSON")
    refusal = ErrorData(code=INVALID_REQUEST, message=f"Invalid request: the {carrier} is not one JSON-RPC message")
    try:
        message = jsonrpc_message_adapter.validate_python(decoded, by_name=False)
    except ValidationError:
        return refusal
    match message:
        case JSONRPCRequest():
            return message
        case JSONRPCNotification():
            return refusal if "id" in decoded else message
        case _:
            return refusal if "method" in decoded else message
