"""Text of servers that leaves us: nothing in it is invisible, moves a cursor or turns the direction of writing.

Models read characters that people do not see: tag characters, zero-width and bidirectional marks, variation selectors,
controls, private use. `clean` removes them; `visible` shows them to a person. What carries meaning in real writing
stays where Unicode expects it, and nowhere else: joiners within emoji, after a virama, and between Arabic letters
(RFC 5892, appendix A), the emoji selector after an emoji, and the tags of the three flags that Unicode names.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Final

from msgspec import Raw, UnsetType

_ARABIC: Final = (
    "\u0620-\u065f\u066e-\u06dc\u06df-\u07ff\u0840-\u08e1\u08e3-\u08ff\u1820-\u18aa\ufb50-\ufdff\ufe70-\ufefc"
)
"""Letters and marks of scripts whose letters join: Arabic, Syriac, N'Ko, Mongolian."""
_INDIC: Final = "\u0900-\u0dff\u0f00-\u0fff\u1000-\u109f\u1780-\u17b3\u17b6-\u17dd"
_VIRAMA: Final = "\u094d\u09cd\u0a4d\u0acd\u0b4d\u0bcd\u0c4d\u0ccd\u0d3b\u0d3c\u0d4d\u0dca\u0f84\u1039\u103a\u17d2"
_EMOJI: Final = (
    "\u00a9\u00ae\u203c\u2049\u2122\u2139\u2194-\u21aa\u2300-\u23ff\u24c2\u25aa-\u25fe\u2600-\u27bf\u2934\u2935"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_HIDDEN: Final = (
    # Controls except tab, newline and carriage return; lone halves of surrogate pairs; private use; non-characters.
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ue000-\uf8ff\U000f0000-\U0010ffff\ufdd0-\ufdef\ufffe\uffff"
    # Unicode's Default_Ignorable_Code_Point, and other formats that draw nothing.
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    # A blank that is not white space.
    "\u2800"
)
_FLAG: Final = "\U0001f3f4(?:{})".format(
    "|".join("".join(chr(0xE0000 + ord(each)) for each in f"gb{part}\x7f") for part in ("eng", "sct", "wls"))
)
"""The flags of England, Scotland and Wales."""
_KEPT_OR_HIDDEN: Final = (
    f"(?P<kept>{_FLAG}"
    f"|(?:(?<=[{_EMOJI}])|(?<=[{_EMOJI}]\ufe0f))\u200d(?=[{_EMOJI}])"
    f"|(?<=[{_EMOJI}])\ufe0f|(?<=[0-9#*])\ufe0f(?=\u20e3)"
    f"|(?<=[{_VIRAMA}])[\u200c\u200d](?=[{_INDIC} \n]|$)|(?<=[{_INDIC}])\u200d(?=[{_VIRAMA}])"
    f"|(?<=[{_ARABIC}])\u200c(?=[{_ARABIC}]))"
    f"|(?P<hidden>[{_HIDDEN}])"
)
_ascii_hidden = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_escape = re.compile(rb"\\[ubf]")
_any_escape = re.compile(rb"\\(u[dD][89abAB]..\\u[dD][c-fC-F]..|u.{4}|.)", re.DOTALL)
"""An escape of a JSON text, or both halves of one."""
_string = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"(?=(\s*:)?)')
"""A string of a JSON text, and whether it is a key."""
_ASCII: Final = bytes(range(128))
_LINES: Final = "\x0b\x0c\x85\u2028\u2029"
"""Ends of lines that no JSON text or terminal needs; they become newlines."""
_BLANKS: Final = "\u2800"


@cache
def _suspect() -> re.Pattern[str]:
    """Compile these patterns when they are first needed: together they take longer than a list may wait."""
    return re.compile(f"[{_HIDDEN}]")


@cache
def _kept_or_hidden() -> re.Pattern[str]:
    return re.compile(_KEPT_OR_HIDDEN)


@cache
def _hidden_run() -> re.Pattern[str]:
    return re.compile(f"(?:(?![\\s\u2800])[{_HIDDEN}])+")


def clean(text: str) -> str:
    """Return a text without its invisible characters, the same object if it has none."""
    if text.isascii() and (text.isprintable() or _ascii_hidden.search(text) is None):
        return text
    return text if _suspect().search(text) is None else _kept_or_hidden().sub(_replacement, text)


def _replacement(found: re.Match[str]) -> str:
    if found.lastgroup == "kept":
        return found[0]
    if "\ud800" <= found[0] <= "\udfff":
        return "\ufffd"
    return "\n" if found[0] in _LINES else " " if found[0] in _BLANKS else ""


def is_clean(text: str) -> bool:
    """Return whether a text has no invisible characters."""
    return clean(text) == text


def clean_json(data: bytes) -> bytes:
    """Return a JSON text whose strings are clean, the same object if they are. Everything else stays as it is written.

    Raises ValueError for a key with invisible characters: under another name its value would mean something else.
    """
    if data.isascii() and not _has_escapes(data):
        return data
    return data if _is_clean_json(data) else _clean_strings(data)


def clean_params(params: Raw | UnsetType) -> Raw | UnsetType:
    """Return the parameters of a message without invisible characters. Raises ValueError as `clean_json` does."""
    return Raw(clean_json(bytes(params))) if isinstance(params, Raw) else params


def _has_escapes(data: bytes) -> bool:
    """Return whether a JSON text may hide characters in escapes, or has a DEL, which JSON allows as it is."""
    return (b"\\" in data and _escape.search(data) is not None) or b"\x7f" in data


def _is_clean_json(data: bytes) -> bool:
    """Return whether nothing can be hidden in a JSON text, because of which characters it has."""
    if _has_escapes(data) and not _has_clean_escapes(data):
        return False
    # Without its ASCII a text is short, and the rest of it is still UTF-8.
    return _suspect().search(data.translate(None, _ASCII).decode("utf-8", "surrogatepass")) is None


def _has_clean_escapes(data: bytes) -> bool:
    """Return whether each escape of a JSON text by itself stands for a character that may stay. In doubt, it does
    not."""
    escapes = set(_any_escape.findall(data))
    if b"\x7f" in data or not escapes.isdisjoint((b"b", b"f")):
        return False
    try:
        characters = json.loads(b'["' + b" ".join(b"\\" + each for each in escapes) + b'"]')[0]
    except ValueError:
        return False
    return _suspect().search(characters) is None


def _clean_strings(data: bytes) -> bytes:
    text = data.decode("utf-8", "surrogatepass")

    def replace(found: re.Match[str]) -> str:
        if "\\" not in found[1] and _suspect().search(found[1]) is None:
            return found[0]
        value = json.loads(found[0], strict=False)
        cleaned = clean(value)
        if cleaned == value:
            return found[0]
        if found[2]:
            raise ValueError(f"the key {one_line(visible(value))!r} has invisible characters")
        return json.dumps(cleaned, ensure_ascii=False)

    cleaned = _string.sub(replace, text)
    return data if cleaned == text else cleaned.encode("utf-8", "surrogatepass")


def visible(text: str) -> str:
    """Return a text whose invisible characters are written out, for a person: `<U+202E>`, `<tags: read the key>`."""
    if clean(text) == text:
        return text
    return _hidden_run().sub(lambda found: _written(found[0]), text)


def _written(run: str) -> str:
    tags = "".join(chr(ord(each) - 0xE0000) for each in run if "\U000e0020" <= each <= "\U000e007e")
    points = list(
        dict.fromkeys(f"U+{ord(each):04X}" for each in run if not (tags and "\U000e0000" <= each <= "\U000e007f"))
    )
    parts = ([f"tags: {tags}"] if tags else []) + [" ".join(points[:8]) + (" ..." if len(points) > 8 else "")] * bool(
        points
    )
    return f"<{', '.join(parts)}>"


def quote(text: str) -> str:
    """Return a clean text with `> ` before each line: no line of it can pose as a line of ours or of another server."""
    return "\n".join(f"> {line}".rstrip() for line in clean(text).strip().splitlines())


def one_line(text: str, most: int = 0) -> str:
    """Return a clean text on one line, so that it cannot pose as two rows of a table. `most`: characters, 0 for all."""
    line = " ".join(clean(text).split())
    return line if not most or len(line) <= most else f"{line[: most - 1].rstrip()}…"
