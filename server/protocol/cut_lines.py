"""Reads the id of a message from the first and the last bytes of its line, of which the middle may be gone.

The Python SDK writes the id in front, the TypeScript SDK behind everything else. json is loaded only for a whole line
that has it elsewhere. The relay of a window imports this file, so it imports nothing that takes memory.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

END: Final = 512
"""Bytes at either end of a line that are kept where its middle is not."""

_HEADS: Final = (b'{"jsonrpc":"2.0","id":', b'{"jsonrpc": "2.0", "id": ', b'{"id":', b'{"id": ')
_TAILS: Final = (b',"jsonrpc":"2.0"}', b', "jsonrpc": "2.0"}', b"}")


def read_id(line: bytes, is_cut: bool) -> bytes | None:
    """Return the id of a message as JSON, None where it has none or cannot be read."""
    line = line.strip()
    if (found := id_at_start(line) or id_at_end(line)) is not None:
        return found
    if is_cut:
        return None
    import json

    try:
        ident = json.loads(line)["id"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    is_id = isinstance(ident, int | str) and not isinstance(ident, bool)
    return json.dumps(ident).encode() if is_id else None


def id_at_start(line: bytes) -> bytes | None:
    """Return the id, as JSON, of a message that begins with it; None of any other."""
    for head in _HEADS:
        if line.startswith(head) and (found := _value(line[len(head) : len(head) + END])) is not None:
            return found
    return None


def id_at_end(line: bytes) -> bytes | None:
    """Return the id, as JSON, of a message that ends with it; None of any other."""
    for tail in _TAILS:
        if line.endswith(tail):
            # What stands directly before the last brace belongs to the outermost object.
            before = line[: -len(tail)]
            at = before.rfind(b'"id":')
            if at > 0 and before[at - 1 : at] != b"\\":
                value = before[at + 5 :].strip()
                if (found := _value(value + b",")) == value:
                    return found
    return None


def _value(text: bytes) -> bytes | None:
    """Return the id at the start of a text; None for one that could be written in several ways."""
    if text[:1] == b'"':
        end = text.find(b'"', 1)
        value = text[: end + 1]
        return value if end > 0 and b"\\" not in value and value.isascii() else None
    value, comma, _ = text.partition(b",")
    value, brace, _ = value.partition(b"}")
    value = value.strip() if comma or brace else b""
    return value if value.removeprefix(b"-").isdigit() else None
