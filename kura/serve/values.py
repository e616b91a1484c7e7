"""SQL's values in JSON, both ways.

JSON has no blobs: they are base64, as an object on the way in so that they are told from text. JavaScript's numbers end
at 2^53: larger integers are decimal strings on the way out. What is not a number is the text of it.
"""

import base64
import binascii
import math
from typing import Any, cast

Value = None | bool | int | float | str | bytes

_LARGEST = 2**53
_INT64 = 2**63


def to_value(given: object) -> Value:
    """One parameter as it is bound.

    Raises:
        ValueError: if it is none.
    """
    if given is None or isinstance(given, str | bool):
        return given
    if isinstance(given, int):
        if not -_INT64 <= given < _INT64:
            raise ValueError("an integer must fit into 64 bits")
        return given
    if isinstance(given, float):
        if not math.isfinite(given):
            raise ValueError("a number must be finite")
        return given
    if isinstance(given, dict):
        fields = cast("dict[str, Any]", given)
        if set(fields) == {"base64"} and isinstance(fields["base64"], str):
            try:
                return base64.b64decode(fields["base64"], validate=True)
            except binascii.Error:
                raise ValueError("the base64 of a blob is wrong") from None
    raise ValueError("it is not a value")


def to_json(value: object) -> object:
    """One value of an answer as JSON has it."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, int) and not isinstance(value, bool) and not -_LARGEST <= value <= _LARGEST:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "Infinity" if value > 0 else "-Infinity"  # SQLite keeps what is no number as null
    return value
