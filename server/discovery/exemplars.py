"""What the log says of calls of a tool: which arguments worked, and which failed (ITR, sections 3.2 and 3.6).

ITR shows with a tool one or two past calls. A schema says what a call may hold; past calls say what it holds in
practice, such as the two of twenty optional arguments that this user needs. Names and types are shown, values are
not: a value on record may be another person's, a secret, or words that somebody planted for a model to read again.
So may a name that the schema lacks, because a client types it: a call with one is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from foretool.retrieval.tokens import estimate
from foretool.server.catalog.signatures import all_arguments, plain_arguments, required_arguments, signature
from foretool.server.protocol.jsonrpc import Raw, decode_value
from foretool.server.protocol.translate import argument_shape
from foretool.storage.engine import StorageError
from foretool.storage.records import Event, Tool, ToolId

CALLS: Final = 500
"""How many of the latest calls are looked at; reading them takes about 2 ms."""
_FRESH_S: Final = 60.0
"""How long what was read counts."""
_TOKENS: Final = 80
"""Most tokens of the block."""
_LONGEST: Final = 4_096
"""Characters of recorded arguments whose values are read; of longer ones only names and types are, which takes less."""
_FAILURES: Final = 2
"""A shape that never worked is told once it has failed so often."""
HEAD: Final = "From earlier calls."
_KINDS: Final = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
"""The type in JSON of a value; of all others it is "null"."""
_TYPES: Final = frozenset({*_KINDS.values(), "null"})

Shape = tuple[tuple[str, str], ...]
"""Names and JSON types of the arguments of a call, in order of the names."""


class Exemplars:
    """How each tool was called lately: names and types of the arguments, never values."""

    def __init__(self, read: Callable[[int], Iterable[Event]], now: Callable[[], float]) -> None:
        """`read` returns the latest calls, so many of them. Raises `StorageError`."""
        self._read = read
        self._now = now
        self._read_at = float("-inf")
        self._worked: dict[ToolId, Counter[Shape]] = {}
        self._failed: dict[ToolId, Counter[Shape]] = {}

    def write(self, tools: Sequence[Tool]) -> str:
        """Return a text about how these tools were called, the first first; "" if it adds nothing to their schemas."""
        self._refresh()
        lines: list[str] = []
        for tool in tools:
            has_calls = tool.id in self._worked or tool.id in self._failed
            line = self._line(tool) if has_calls and signature(tool) else ""
            if line and estimate("\n".join((HEAD, *lines, line))) <= _TOKENS:
                lines.append(line)
        return "\n".join((HEAD, *lines)) if lines else ""

    def _line(self, tool: Tool) -> str:
        known = all_arguments(tool)
        worked, failed = (_of_schema(shapes.get(tool.id, Counter()), known) for shapes in (self._worked, self._failed))
        failure = _write_failure(tool, worked, failed)
        if not worked:
            return failure
        shape, count = worked.most_common(1)[0]
        if {name for name, _ in shape} == required_arguments(tool):
            return failure
        # Only calls of this shape count: others that worked too would make it read as one that often fails.
        of = count + failed[shape]
        return "; ".join(filter(None, (f"{_write(tool, shape)} worked {count} of {of} times", failure)))

    def _refresh(self) -> None:
        if self._now() - self._read_at < _FRESH_S:
            return
        self._read_at = self._now()
        try:
            events = [(event, _arguments(event.arguments)) for event in self._read(CALLS)]
        except StorageError:
            return
        self._worked, self._failed = {}, {}
        for event, arguments in events:
            if arguments is not None:
                shapes = self._worked if event.ok else self._failed
                shapes.setdefault(ToolId(event.text), Counter())[_shape(arguments)] += 1


def _of_schema(shapes: Counter[Shape], known: set[str]) -> Counter[Shape]:
    """Return the shapes whose names a schema knows."""
    return Counter({shape: count for shape, count in shapes.items() if known.issuperset(name for name, _ in shape)})


def _write_failure(tool: Tool, worked: Counter[Shape], failed: Counter[Shape]) -> str:
    """Return the commonest shape that never worked, in words; "" without one."""
    never = Counter({shape: count for shape, count in failed.items() if shape not in worked and count >= _FAILURES})
    if not never:
        return ""
    shape, count = never.most_common(1)[0]
    return f"{_write(tool, shape)} failed {count} times, never worked"


def _arguments(recorded: str) -> dict[str, Any] | None:
    """Return recorded arguments whose names are plain, types or values; None where nothing is on record."""
    is_long = len(recorded) > _LONGEST
    try:
        found = decode_value(argument_shape(Raw(recorded.encode())).encode() if is_long else recorded.encode())
    except ValueError:
        return None
    # Long arguments without a name were cut, or are no object.
    return plain_arguments(found) if isinstance(found, dict) and (found or not is_long) else None


def _shape(arguments: Mapping[str, Any]) -> Shape:
    """Return the names and types of recorded arguments; under `record: shape` the record holds types in place of
    values."""
    are_types = all(isinstance(value, str) and value in _TYPES for value in arguments.values())
    kinds = arguments if are_types else {name: _KINDS.get(type(value), "null") for name, value in arguments.items()}
    return tuple(sorted(kinds.items()))


def _write(tool: Tool, shape: Shape) -> str:
    return f"{tool.id}({', '.join(f'{name}: {kind}' for name, kind in shape)})"
