"""What may reach a terminal, a log line, a CSV file or a JSON file of ours: printable characters, as Unicode has them.

Every other character (controls of 7 and 8 bits, marks of direction, line separators, tags) could steer a terminal or
hide a text. `str.isprintable` is the one list of them.
"""

from __future__ import annotations

import re


def printable(text: str, keep: str = "") -> str:
    """Return a text with a space in place of each character that is not printable. `keep`: those that stay, such as
    line breaks."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in keep else " " for char in text)


def printable_json(data: bytes) -> bytes:
    """Return a JSON text of the same value, with escapes in place of characters that are not printable.

        printable_json(b'{"a": "\\xc2\\x9b31m"}') == b'{"a": "\\\\u009b31m"}'

    Line breaks and blanks between the values stay. A character that needs an escape can only stand within a string.
    """
    if data.isascii() and b"\x7f" not in data:
        return data
    return re.sub(r"[^\x00-\x7e]", lambda match: _escaped(match[0]), data.decode("utf-8", "surrogatepass")).encode()


def _escaped(char: str) -> str:
    if char.isprintable():
        return char
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
