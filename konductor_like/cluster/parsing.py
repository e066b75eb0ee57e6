"""JSON as the API server sends it: a Node of 20 KB comes every few milliseconds in a large cluster."""

from __future__ import annotations

import json
from typing import Any

from pydantic_core import from_json


def parsed(data: bytes | bytearray) -> Any:
    """What the JSON says. Raises ValueError or RecursionError for anything else.

    The parser that comes with pydantic takes half of the time and, because it makes equal short strings one,
    less memory. What only the standard library's takes (lone surrogates, say) is left to that.
    """
    try:
        return from_json(data)
    except ValueError:
        return json.loads(data)
