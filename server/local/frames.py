"""What is said over a local socket: JSON, one message on each line.

    caller  {"foretool": 1, "wants": "hint", "config": "/home/me/.config/foretool/mcp.json", "profile": ""}
    proxy   {"foretool": 1, "version": "0.1.0", "pid": 4711, "config": "/home/me/...", "storage": "/home/me/...",
             "profile": "", "folder": "/home/me/work"}
    caller  {"id": 1, "ask": {...}}
    proxy   {"id": 1, "answer": {...}}

The first member of both greetings is the version of this form. A proxy that cannot serve the caller answers
`{"foretool": 1, "error": "..."}` and closes. What follows the greetings belongs to the service that the caller wants.
A caller may send its first message with its greeting; it must check the proxy's greeting before it uses the answer.

A prompt hook imports this file, so it imports nothing that takes time.
"""

from __future__ import annotations

import json

from foretool.server.local.places import FORM as FORM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final


MOST_GREETING: Final = 64 * 1024
"""Bytes of a greeting. That of a window names every variable of its environment."""


MOST_BYTES: Final = 256 * 1024
"""Bytes of a message, unless a service says otherwise."""


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as one line. JSON writes line breaks within texts as `\\n`."""
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Read one line. Raises `ValueError` for what is not an object."""
    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("not an object")
    return message


def refuse_greeting(greeting: dict[str, Any]) -> str:
    """Say why a greeting of the other side cannot be answered; "" if it can."""
    if "error" in greeting:
        return str(greeting["error"])[:200]
    if greeting.get("foretool") != FORM:
        return f"expected form {FORM} of the local socket, found {str(greeting.get('foretool'))[:20]!r}; restart it"
    return ""
