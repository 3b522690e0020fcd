"""How two versions of a server's text differ, for a person: words of a text, lines of JSON.

Invisible characters are written out, and no text of a server can break a line or control the terminal.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from rich.text import Text

from foretool.server.protocol import jsonrpc
from foretool.server.system.logs import printable
from foretool.server.trust.text import visible

_CONTEXT: Final = 12
"""Words that are shown before and after a changed one."""
_MOST_WORDS: Final = 3000
"""Texts with more words are compared line by line."""
GONE, NEW, _SAME = "red", "green", "dim"
_TEXT_MEMBERS: Final = ("title", "description")


def diff_definitions(before: bytes | None, now: bytes) -> list[Text]:
    """Return the lines that show how a definition differs, member by member; all of it where there was none."""
    old, new = _members(before), _members(now)
    lines: list[Text] = []
    for key in sorted({*old, *new}, key=lambda key: (key not in _TEXT_MEMBERS, key)):
        if key == "name" or (key in old and key in new and old[key] == new[key]):
            continue
        lines.append(Text(f"{_printable(key)}:", "bold"))
        texts = [each.get(key, "") for each in (old, new)]
        if key in _TEXT_MEMBERS and all(isinstance(each, str) for each in texts):
            lines += diff_texts(*texts)
        else:
            lines += diff_lines(_json_lines(old, key), _json_lines(new, key))
    return lines


def diff_texts(before: str, now: str) -> list[Text]:
    """Return the changed words of a text among their neighbours: `[-gone-]` and `{+new+}`."""
    old, new = (re.findall(r"\S+|\n", visible(text)) for text in (before, now))
    if max(len(old), len(new)) > _MOST_WORDS:
        return diff_lines(visible(before).split("\n"), visible(now).split("\n"))
    shown = Text()
    for kind, a, b, c, d in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            shown.append(_shorten(old[a:b], at_start=a == 0, at_end=b == len(old)), _SAME)
            continue
        if a < b:
            shown.append(f"[-{_joined(old[a:b])}-] ", GONE)
        if c < d:
            shown.append(f"{{+{_joined(new[c:d])}+}} ", NEW)
    return [shown]


def diff_lines(before: list[str], now: list[str]) -> list[Text]:
    """Return the changed lines with one line around them."""
    found: Iterator[str] = difflib.unified_diff(before, now, n=1, lineterm="")
    styles = {"-": GONE, "+": NEW}
    lines = [line for line in list(found)[2:] if not line.startswith("@@")]
    return [Text(f"{line[:1]} {_printable(line[1:])}", styles.get(line[:1], _SAME)) for line in lines]


def _members(definition: bytes | None) -> dict[str, Any]:
    if definition is None:
        return {}
    try:
        value = jsonrpc.decode_value(definition)
    except ValueError:
        value = definition.decode(errors="replace")
    return value if isinstance(value, dict) else {"text": value}


def _json_lines(members: dict[str, Any], key: str) -> list[str]:
    if key not in members:
        return []
    data = msgspec.json.encode(members[key], order="sorted", enc_hook=str)
    return msgspec.json.format(data, indent=2).decode(errors="replace").split("\n")


def _shorten(words: list[str], *, at_start: bool, at_end: bool) -> str:
    """Return unchanged words; of many, only those next to a change."""
    head = [] if at_start else words[:_CONTEXT]
    tail = [] if at_end else words[-_CONTEXT:]
    if len(head) + len(tail) >= len(words):
        return f"{_joined(words)} " if words else ""
    return f"{_joined(head)} [...] {_joined(tail)} ".lstrip()


def _joined(words: list[str]) -> str:
    return _printable(" ".join("\\n" if word == "\n" else word for word in words))


def _printable(text: str) -> str:
    return printable(visible(text))
