"""Reads demonstrations, episodes that a user has written down, from files with one JSON object per line."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from foretool.storage.records import Episode, ToolId

_FORMAT: Final = (
    'expected an object with "query" (text), "calls" (list of tool names) and, if wanted, "args" (an object of'
    ' arguments for each call) and "edges" (pairs of places in "calls", counted from 0)'
)


class Imported(Struct, frozen=True):
    """The content of one file."""

    episodes: tuple[Episode, ...]
    rows: int
    unknown: tuple[str, ...]
    """Tools that the catalog does not have, each once; the rows that name them were left out."""


class _Row(Struct):
    calls: list[str]
    query: str = ""
    args: list[dict[str, Any]] | None = None
    edges: list[tuple[int, int]] | None = None
    id: Any = None
    needs_tool: Any = True


_row = msgspec.json.Decoder(_Row)


def read_demonstrations(path: Path, names: Mapping[str, ToolId]) -> Imported:
    """Read lines of JSON with `query`, `calls` (tools in order) and optionally `edges`, `id`, `needs_tool`.

    `names` has every name by which a demonstration may call a tool. Raises `ValueError` with the line, and `OSError`.
    """
    found: list[Episode] = []
    unknown: dict[str, None] = {}
    rows = 0
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        rows += 1
        row = _read_row(f"{path}: line {number}", line)
        calls = row.calls if row.needs_tool else []
        if missing := [call for call in calls if call not in names]:
            unknown.update(dict.fromkeys(missing))
            continue
        found.append(
            Episode(
                calls=tuple(names[call] for call in calls),
                tasks=(row.query,) if row.query else (),
                edges=tuple(row.edges) if row.edges is not None else None,
                source="import",
                key=f"{path.name}:{number if row.id is None else row.id}",
                arguments=tuple(msgspec.json.encode(each).decode() for each in row.args or ()) if calls else (),
            )
        )
    return Imported(tuple(found), rows, tuple(unknown))


def _read_row(place: str, line: str) -> _Row:
    try:
        row = _row.decode(line)
    except msgspec.DecodeError as error:
        raise ValueError(f"{place}: {error}; {_FORMAT}") from None
    if row.args is not None and len(row.args) != len(row.calls):
        raise ValueError(f'{place}: "args" has {len(row.args)} objects, "calls" has {len(row.calls)} tools; {_FORMAT}')
    for end in (end for edge in row.edges or () for end in edge):
        if not 0 <= end < len(row.calls):
            raise ValueError(f'{place}: "edges" has the place {end}, "calls" has {len(row.calls)} tools; {_FORMAT}')
    return row
