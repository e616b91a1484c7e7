"""What a call may say: one model per tool, for MCP and REST alike.

The JSON schema that clients are shown and the check that every call passes come from the same model. The check is
stricter than pydantic's habits in some ways and kinder in others, because of what clients really send: numbers as
text are numbers, booleans are not; where an optional argument is left open some clients send `""`, `"null"` or `{}`.
"""

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kura.errors import ArgumentError


class Arguments(BaseModel):
    """What every tool takes. A tool adds its own fields."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    tenant_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="Tenant to act for. Leave it out unless you were told to set it.",
    )
    user_id: str | None = Field(
        default=None,
        min_length=1,
        max_length=200,
        description="User to act for. Leave it out unless you were told to set it.",
    )


A = TypeVar("A", bound=Arguments)

_WHOLE = re.compile(r"\s*([+-]?[0-9]{1,18})(?:\.0*)?\s*", re.ASCII)
_ABSENT: tuple[object, ...] = ("", "null", {})


def whole(value: object) -> object:
    """A whole number out of what a client sent for one: 10, 10.0, "10", "10.0". Anything else is left for the check."""
    if isinstance(value, str) and (found := _WHOLE.fullmatch(value)):
        return int(found[1])
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def opened(value: object) -> object:
    """A list out of what a client sent for one: the list itself, or its JSON in a text."""
    if isinstance(value, str):
        try:
            found: object = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return cast("object", found) if isinstance(found, list) else value
    return value


def read(model: type[A], given: Mapping[str, object]) -> A:
    """Check what a call sent.

    Raises:
        ArgumentError: naming each argument that is wrong and what would be right, never the value that was sent.
    """
    fields = model.model_fields
    optional = {name for name, field in fields.items() if not field.is_required()}
    present = {
        name: value
        for name, value in given.items()
        if not (name in fields and value is None) and not (name in optional and value in _ABSENT)
    }
    try:
        return model.model_validate(present)
    except ValidationError as error:
        # Without its cause: pydantic's error holds the values, and this one may be logged.
        raise ArgumentError(_explain(model, error)) from None


@cache  # every refused call needs it
def schema(model: type[Arguments]) -> dict[str, Any]:
    """The JSON schema of a tool's arguments as models understand it best: flat, without titles and null branches."""
    full = model.model_json_schema()
    properties = {name: _plain(field) for name, field in full["properties"].items()}
    shared = Arguments.model_fields
    ordered = sorted(properties, key=lambda name: name in shared)
    plain: dict[str, Any] = {"type": "object", "properties": {name: properties[name] for name in ordered}}
    if "required" in full:
        plain["required"] = full["required"]
    return {**plain, "additionalProperties": False}


def _plain(field: dict[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in field.items() if key not in {"title", "anyOf"}}
    if "anyOf" in field:
        [real] = [branch for branch in field["anyOf"] if branch != {"type": "null"}]
        plain |= real
    if plain.get("default", ...) is None:
        del plain["default"]
    return plain


def _explain(model: type[Arguments], error: ValidationError) -> str:
    properties: dict[str, dict[str, Any]] = schema(model)["properties"]
    texts: list[str] = []
    for problem in error.errors(include_url=False, include_context=False, include_input=False):
        name = str(problem["loc"][0])
        if problem["type"] == "extra_forbidden":
            # A name is the caller's text too: it is repeated only where it can be a name.
            shown = f' "{name}"' if len(name) <= 40 and name.isprintable() else ""
            text = f"unknown argument{shown}; known are {', '.join(properties)}"
        elif problem["type"] == "missing":
            text = f'missing argument: "{name}" must be {_rule(properties[name])}'
        else:
            text = f'invalid argument: "{name}" must be {_rule(properties[name])}'
        if text not in texts:
            texts.append(text)
    return "; ".join(texts[:5])


def _rule(field: dict[str, Any]) -> str:
    if "enum" in field:
        return "left out or one of " + ", ".join(field["enum"])
    if field["type"] == "array":
        most, items = field["maxItems"], field["items"]
        what = (
            "numbers" if items.get("type") == "number" else 'values: null, true, false, numbers, texts or {"base64": …}'
        )
        return f"a list of {field.get('minItems', 0)} to {most:,} {what}"
    if isinstance(field["type"], list):
        return "a text, a number, true or false"
    if field["type"] == "integer":
        return f"a whole number from {field['minimum']} to {field['maximum']}"
    return f"text of {field['minLength']} to {field['maxLength']:,} characters"
