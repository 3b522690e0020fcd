"""The SQL of `storage.sql` as PostgreSQL reads it, and text that PostgreSQL cannot hold as it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from foretool.storage.sql.database import Values, is_writable, replace_surrogates

_TOKEN: Final = re.compile(
    r"""'(?:[^']|'')*' | "[^"]*" | --[^\n]* | \bLIMIT\s+(?P<limit>\?|:\w+|-1) | \? | (?<!:):(?=[a-z])\w+ | %""",
    re.VERBOSE,
)


_MARK: Final = "\uffff"
"""A character that no text has: PostgreSQL keeps no NUL, so it is written as this one and "0"."""


@lru_cache(2048)
def translate(sql: str) -> str:
    """Return a statement with the places of psycopg for its values, and without a limit where it is negative."""
    return _TOKEN.sub(_translate_token, sql)


def _translate_token(match: re.Match[str]) -> str:
    found = match[0]
    if (limit := match["limit"]) is not None:
        return "LIMIT ALL" if limit == "-1" else f"LIMIT nullif(greatest({_place(limit)}, -1), -1)"
    if found[0] in "?:":
        return _place(found)
    return found.replace("%", "%%")


def _place(written: str) -> str:
    return "%s" if written == "?" else f"%({written[1:]})s"


def write_values(values: Values) -> Any:
    """Return the values as they can be written."""
    if isinstance(values, Mapping):
        return {key: _write_value(value) for key, value in values.items()}
    return [_write_value(value) for value in values]


def _write_value(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        return value
    if not is_writable(value):
        (value,) = replace_surrogates((value,))
    if _MARK in value or "\0" in value:
        value = value.replace(_MARK, f"{_MARK}1").replace("\0", f"{_MARK}0")
    return str(value)


def read_text(text: str) -> str:
    """Return a text as it was before it was written."""
    return text.replace(f"{_MARK}0", "\0").replace(f"{_MARK}1", _MARK) if _MARK in text else text


def regular_expression(pattern: str) -> str:
    """Return the regular expression of PostgreSQL for a pattern with `*`, `?` and `[...]`, of the whole text."""
    parts = []
    place = 0
    while place < len(pattern):
        mark = pattern[place]
        end = pattern.find("]", place + 2 + (pattern[place + 1 : place + 2] == "^")) if mark == "[" else -1
        if end > 0:
            inner = pattern[place + 1 : end]
            head, inner = ("^", inner[1:]) if inner.startswith("^") else ("", inner)
            inner = inner.replace("\\", "\\\\").replace("[", "\\[").replace("]", "\\]").replace("^", "\\^")
            parts.append(f"[{head}{inner}]")
            place = end
        else:
            parts.append({"*": ".*", "?": "."}.get(mark) or (mark if mark.isalnum() else re.escape(mark)))
        place += 1
    return f"^(?:{''.join(parts)})$"
