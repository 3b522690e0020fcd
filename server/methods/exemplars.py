"""What the log says of calls of a tool: which arguments worked, and which failed (ITR, sections 3.2 and 3.6).

ITR shows with a tool one or two past calls. A schema says what a call may hold; past calls say what it holds in
practice, such as the two of twenty optional arguments that this user needs. Only names and types are shown, whatever
`record` says: values may come from the session of somebody else. Names that are not plain are left out, because a
client types them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

import msgspec

from foretool.retrieval.tokens import estimate
from foretool.server.catalog.signatures import plain_arguments, required_arguments, signature
from foretool.storage.records import Event, Tool, ToolId
from foretool.storage.stores import StorageError

CALLS: Final = 500
"""How many of the latest calls are looked at; reading them takes about 2 ms."""
FRESH_S: Final = 60.0
"""How long what was read counts."""
TOKENS: Final = 80
"""Most tokens of the block."""
FAILURES: Final = 2
"""A shape that never worked is told once it has failed so often."""
HEAD: Final = "From earlier calls."

Shape = tuple[tuple[str, str], ...]
"""Names and JSON types of the arguments of a call, in order of the names."""

_VALUE_KINDS: Final = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}


class Exemplars:
    """The shapes of the latest calls, by tool."""

    def __init__(self, read: Callable[[int], Iterable[Event]], now: Callable[[], float]) -> None:
        """`read` returns the latest calls, so many of them. Raises `StorageError`."""
        self._read = read
        self._now = now
        self._read_at = float("-inf")
        self._worked: dict[ToolId, Counter[Shape]] = {}
        self._failed: dict[ToolId, Counter[Shape]] = {}

    def write(self, tools: Sequence[Tool]) -> str:
        """Return a text on these tools, the first ones first; "" where the log adds nothing to their schemas."""
        self._refresh()
        lines: list[str] = []
        for tool in tools:
            line = self._line(tool) if signature(tool) else ""
            if line and estimate("\n".join((HEAD, *lines, line))) <= TOKENS:
                lines.append(line)
        return "\n".join((HEAD, *lines)) if lines else ""

    def _line(self, tool: Tool) -> str:
        worked, failed = self._worked.get(tool.id, Counter()), self._failed.get(tool.id, Counter())
        required = required_arguments(tool)
        said: list[str] = []
        if worked:
            shape, count = worked.most_common(1)[0]
            if {name for name, _ in shape} != required:
                said.append(f"{_write(tool, shape)} worked {count} of {worked.total() + failed.total()} times")
        never = Counter({shape: count for shape, count in failed.items() if shape not in worked and count >= FAILURES})
        if never:
            shape, count = never.most_common(1)[0]
            said.append(f"{_write(tool, shape)} failed {count} times, never worked")
        return "; ".join(said)

    def _refresh(self) -> None:
        if self._now() - self._read_at < FRESH_S:
            return
        self._read_at = self._now()
        try:
            events = list(self._read(CALLS))
        except StorageError:
            return
        self._worked, self._failed = {}, {}
        for event in events:
            shape = _shape(event.arguments)
            if shape is not None:
                counted = self._worked if event.ok else self._failed
                counted.setdefault(ToolId(event.text), Counter())[shape] += 1


def _shape(arguments: str) -> Shape | None:
    """Return the shape of recorded arguments, which are types or values; None where nothing is on record."""
    try:
        found = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return None
    if not isinstance(found, dict):
        return None
    kinds = set(_VALUE_KINDS.values()) | {"null"}
    typed = all(value in kinds for value in found.values() if isinstance(value, str)) and all(
        isinstance(value, str) for value in found.values()
    )
    return tuple(
        (name, value if typed else _VALUE_KINDS.get(type(value), "null"))
        for name, value in sorted(plain_arguments(found).items())
    )


def _write(tool: Tool, shape: Shape) -> str:
    return f"{tool.id}({', '.join(f'{name}: {kind}' for name, kind in shape)})"
