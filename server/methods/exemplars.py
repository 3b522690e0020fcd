"""What the log says of calls of a tool: which arguments worked, and which failed (ITR, sections 3.2 and 3.6).

ITR shows with a tool one or two past calls. A schema says what a call may hold; past calls say what it holds in
practice, such as the two of twenty optional arguments that this user needs. Names and types are shown, and under
`record: full` the plain values of the caller's own calls (`past_values`). Names that are not plain are left out,
because a client types them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec

from foretool.retrieval.tokens import estimate
from foretool.server.catalog.signatures import plain_arguments, required_arguments, signature
from foretool.server.methods.past_values import Owner, PastValues, Shape, are_types, shape_of
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.translate import argument_shape
from foretool.storage.records import Event, Tool, ToolId
from foretool.storage.stores import StorageError

if TYPE_CHECKING:
    from foretool.server.clients.exchange import Caller

CALLS: Final = 500
"""How many of the latest calls are looked at; reading them takes about 2 ms."""
FRESH_S: Final = 60.0
"""How long what was read counts."""
FRESH_VALUES_S: Final = 5.0
"""The same where values are shown, so that one that `foretool forget` has deleted is soon gone here too."""
TOKENS: Final = 80
"""Most tokens of the block."""
LONGEST: Final = 4_096
"""Characters of recorded arguments whose values are read; of longer ones only names and types are, which takes less."""
FAILURES: Final = 2
"""A shape that never worked is told once it has failed so often."""
HEAD: Final = "From earlier calls."


class Exemplars:
    """The shapes of the latest calls, by tool."""

    def __init__(
        self, read: Callable[[int], Iterable[Event]], now: Callable[[], float], values: PastValues | None = None
    ) -> None:
        """`read` returns the latest calls, so many of them. Raises `StorageError`. `values` knows their values."""
        self._read = read
        self._now = now
        self._values = values
        self._read_at = float("-inf")
        self._worked: dict[ToolId, Counter[Shape]] = {}
        self._failed: dict[ToolId, Counter[Shape]] = {}

    def write(self, tools: Sequence[Tool], client: Caller | None = None) -> str:
        """Return a text on these tools, the first ones first; "" where the log adds nothing to their schemas. It has
        values of the client's own calls where these may be shown."""
        self._refresh()
        owner = self._values.owner_of(client) if self._values is not None and client is not None else None
        lines: list[str] = []
        for tool in tools:
            has_calls = tool.id in self._worked or tool.id in self._failed
            for line in self._lines(tool, owner) if has_calls and signature(tool) else ():
                if line and estimate("\n".join((HEAD, *lines, line))) <= TOKENS:
                    lines.append(line)
                    break
        return "\n".join((HEAD, *lines)) if lines else ""

    def _lines(self, tool: Tool, owner: Owner | None) -> Iterator[str]:
        """Yield what is to be said of a tool: with values, and without for a block that is too long with them."""
        worked, failed = self._worked.get(tool.id, Counter()), self._failed.get(tool.id, Counter())
        failure = _write_failure(tool, worked, failed)
        if not worked:
            yield failure
            return
        shape, count = worked.most_common(1)[0]
        of = worked.total() + failed.total()
        if values := self._values_of(owner, tool, shape):
            said = f"{_write(tool, shape, values)} worked; with these arguments {count} of {of} calls did"
            yield "; ".join(filter(None, (said, failure)))
        if {name for name, _ in shape} != required_arguments(tool):
            yield "; ".join(filter(None, (f"{_write(tool, shape)} worked {count} of {of} times", failure)))
        else:
            yield failure

    def _values_of(self, owner: Owner | None, tool: Tool, shape: Shape) -> dict[str, str]:
        """Return the values that this owner may be shown, as JSON by name."""
        if self._values is None or owner is None:
            return {}
        try:
            return self._values.of_tool(owner, tool, shape)
        except StorageError:
            return {}

    def _refresh(self) -> None:
        shows_values = self._values is not None and self._values.are_shown
        if self._now() - self._read_at < (FRESH_VALUES_S if shows_values else FRESH_S):
            return
        self._read_at = self._now()
        try:
            found = [(event, _arguments(event.arguments)) for event in self._read(CALLS)]
            known = [(event, arguments) for event, arguments in found if arguments is not None]
            if self._values is not None:
                self._values.read(known)
        except StorageError:
            return
        self._worked, self._failed = {}, {}
        for event, arguments in known:
            counted = self._worked if event.ok else self._failed
            counted.setdefault(ToolId(event.text), Counter())[_shape(arguments)] += 1


def _write_failure(tool: Tool, worked: Counter[Shape], failed: Counter[Shape]) -> str:
    """Return the commonest shape that never worked, in words; "" without one."""
    never = Counter({shape: count for shape, count in failed.items() if shape not in worked and count >= FAILURES})
    if not never:
        return ""
    shape, count = never.most_common(1)[0]
    return f"{_write(tool, shape)} failed {count} times, never worked"


def _arguments(recorded: str) -> dict[str, Any] | None:
    """Return recorded arguments whose names are plain, types or values; None where nothing is on record."""
    is_long = len(recorded) > LONGEST
    try:
        found = msgspec.json.decode(argument_shape(Raw(recorded.encode())) if is_long else recorded)
    except msgspec.DecodeError:
        return None
    # Long arguments without a name were cut, or are no object.
    return plain_arguments(found) if isinstance(found, dict) and (found or not is_long) else None


def _shape(arguments: dict[str, Any]) -> Shape:
    return tuple(sorted(arguments.items())) if are_types(arguments) else shape_of(arguments)


def _write(tool: Tool, shape: Shape, values: Mapping[str, str] = MappingProxyType({})) -> str:
    return f"{tool.id}({', '.join(f'{name}: {values.get(name, kind)}' for name, kind in shape)})"
