"""Answers `call_tools`: several calls in one turn, one after the other, where later ones use results of earlier ones.

Every call goes the way of a call through `call_tool`: the same rules, approvals, schema, record and limits. So it runs
what only reads or is allowed, and the whole of it is as safe to allow as `call_tool` is. All names are looked up and
decided on before the first call runs, and the user is asked about all calls at once. There is no code and no loop but
`for_each` over one list; a call of ours within is refused. The first call that fails ends it.

Results stay here, and only what was asked for goes to the client.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace

from foretool.server.calls.admission import Admission, Confirmation
from foretool.server.calls.bridged_calls import BridgedCall, open_object, read_call
from foretool.server.calls.json_paths import ITEM, Path, PathError, fill_in, read_path
from foretool.server.calls.lookup import ToolLookup
from foretool.server.calls.tool_call import Refusal, RunningCall, ToolCall, Wait
from foretool.server.catalog.names import CALL_TOOLS, OWN
from foretool.server.clients.exchange import Exchange
from foretool.server.discovery.arguments import MOST_NAME
from foretool.server.methods.long_results import LongResults
from foretool.server.methods.schema_fit import read_json
from foretool.server.protocol import jsonrpc, translate, versions
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw
from foretool.server.trust.policy import Confirm
from foretool.storage.records import Tool

_MOST_LISTED: Final = 20
"""Calls of one list."""
_MOST_RUNS: Final = 50
"""Calls that one list may come to by `for_each`."""
_MOST_RESULT: Final = 1024 * 1024
"""Bytes of a result that paths may lead into: each path reads it again."""
_MOST_FILLED: Final = 1024 * 1024
"""Bytes of the arguments of one call once values are filled in."""
_MOST_PATHS: Final = 200
"""Paths that one list may read, each in some milliseconds at most."""
_SAID: Final = 2_000
"""Characters of a reason that an answer quotes."""
_FOR_EACH: Final = "for_each"
_RUNNING: Final = RunningCall(Tool(CALL_TOOLS, "", CALL_TOOLS, b"{}", ""), None)
"""What a list of calls is to whoever answers its client before it is over. Each call of it has a record of its own."""


class _Step(Struct):
    """One call of the list."""

    number: int
    written: BridgedCall
    for_each: str
    probe: ToolCall
    """Is looked up and decided on before anything runs."""
    tool: Tool | None = None
    waiting: deque[Raw] | None = None
    """The values that it is still to be called for; None before its turn."""
    values: list[Raw] = field(default_factory=list)
    whole: Raw = jsonrpc.EMPTY
    """The result that `values` ends with, as the server gave it."""

    @property
    def value(self) -> Raw:
        return Raw(b"[%b]" % b",".join(map(bytes, self.values))) if self.for_each else self.values[0]


class _Series(Struct, eq=False):
    """One list of calls on its way."""

    exchange: Exchange
    steps: list[_Step]
    wanted: list[str]
    """Paths of what goes to the client; without any, the last result."""
    questions: list[tuple[_Step, Confirm]] = field(default_factory=list)
    runs: int = 0
    paths: int = 0
    at: int = 0
    """How many steps are over."""
    running: Exchange | None = None

    def move(self, exchange: Exchange) -> None:
        """Answer another exchange: the client does not wait any more."""
        self.exchange = exchange


class _Inbox:
    """The channel of one call of a list."""

    def __init__(self, series: _Series, answered: Callable[[_Series, Message], None]) -> None:
        self._series = series
        self._answered = answered

    def send(self, data: bytes) -> None:
        self._series.exchange.send(data)  # a question of the server to the user, or what it logs

    def finish(self, data: bytes, code: int | None) -> None:
        # The outbox calls this, and nothing may disturb the answers behind this one.
        self._series.exchange.attempt(self._answered, self._series, jsonrpc.decode(data))

    def poll(self) -> None:
        """Nobody polls here."""

    def end(self) -> None:
        """The client has cancelled the whole list."""


class CallSeries:
    """Runs several calls that a model asks for in one call of `call_tools`; a later call may use earlier results."""

    def __init__(
        self, lookup: ToolLookup, admission: Admission, confirmation: Confirmation, results: LongResults,
        find: Callable[[ToolCall], None], refuse: Callable[[ToolCall, Refusal], None],
    ) -> None:  # fmt: skip
        """`find` takes a call from the lookup of its tool on; `refuse` records and answers one that does not run."""
        self._lookup = lookup
        self._admission = admission
        self._confirmation = confirmation
        self._results = results
        self._find = find
        self._refuse = refuse

    def start(self, exchange: Exchange, raw: Raw) -> None:
        """Answer one call of `call_tools`."""
        try:
            series = self._read(exchange, raw)
        except ValueError as error:
            exchange.tool_error(f"{CALL_TOOLS}: {error}; nothing was run")
            return
        self._check(series)

    # -- before anything runs

    def _read(self, exchange: Exchange, raw: Raw) -> _Series:
        """Read a list. Raises ValueError."""
        members = jsonrpc.fields(open_object(raw))
        listed, wanted = _as_list(members.get("calls")), _as_list(members.get("return"))
        if not 1 <= len(listed) <= _MOST_LISTED:
            raise ValueError(f'"calls": expected a list of 1 to {_MOST_LISTED} calls, found {len(listed)}')
        series = _Series(exchange, [], [jsonrpc.text(each) or "" for each in wanted])
        for number, each in enumerate(listed, 1):
            series.steps.append(self._read_step(series, number, each))
        for text in series.wanted:
            _check_root(read_path(text), len(listed) + 1, has_item=False)
        if len(series.wanted) > _MOST_LISTED:
            raise ValueError(f'"return": expected at most {_MOST_LISTED} paths, found {len(series.wanted)}')
        return series

    def _read_step(self, series: _Series, number: int, raw: Raw) -> _Step:
        members = jsonrpc.fields(open_object(raw))
        for_each = jsonrpc.text(members.pop(_FOR_EACH, None)) or ""
        written = read_call(jsonrpc.raw(members))
        if not written.name or len(written.name) > MOST_NAME:
            raise ValueError(f'call {number}: expected "name", that of a tool')
        if written.name in OWN:
            raise ValueError(f"call {number}: {written.name} is called by itself; {CALL_TOOLS} calls tools of servers")
        if for_each:
            _check_root(read_path(for_each), number, has_item=False)
        given = written.given or jsonrpc.EMPTY
        fill_in(given, partial(_check_path, number=number, has_item=bool(for_each)))
        exchange = self._make_exchange(series, given, series.exchange.meta)
        return _Step(number, written, for_each, ToolCall(exchange, written.name, "call_tool", written))

    def _make_exchange(self, series: _Series, arguments: Raw, meta: dict[str, Raw]) -> Exchange:
        return series.exchange.stand_in(_Inbox(series, self._on_answer), {"arguments": arguments}, meta)

    def _check(self, series: _Series) -> None:
        """Look up and decide on each call, and ask the user about those that need it."""
        for step in series.steps:
            if step.tool is not None:
                continue
            tool = self._lookup.find(step.probe)
            if isinstance(tool, Wait):
                tool.until(partial(series.exchange.attempt, self._check, series))
                return
            decision = tool if isinstance(tool, Refusal) else self._admission.decide(step.probe, tool)
            if isinstance(decision, Refusal):
                series.at = step.number - 1
                self._refuse(step.probe, decision)
                return
            assert isinstance(tool, Tool)
            step.tool = tool
            if decision is not None:
                series.questions.append((step, decision))
        if series.questions:
            self._ask(series)
        else:
            self._run_next(series)

    def _ask(self, series: _Series) -> None:
        def go_on(exchange: Exchange, agreed: bool) -> None:
            series.exchange = exchange
            for step, _ in series.questions:
                assert step.tool is not None
                refusal = self._admission.take_answer(step.probe, step.tool, agreed=agreed)
                if refusal is not None:
                    series.at = step.number - 1
                    self._refuse(step.probe, refusal)
                    return
            self._run_next(series)

        asked = [
            (step.tool, question.verdict, step.probe.exchange.params["arguments"])
            for step, question in series.questions
            if step.tool is not None
        ]
        self._confirmation.ask_about_all(series.exchange, asked, go_on)

    # -- one call after the other

    def _run_next(self, series: _Series) -> None:
        if not series.exchange.is_kept:  # else whoever keeps its answer watches over it
            series.exchange.on_drop = partial(self._cancel, series)
            series.exchange.on_pass, series.exchange.running = series.move, _RUNNING
        if series.at == len(series.steps):
            self._answer(series)
            return
        step = series.steps[series.at]
        try:
            if step.waiting is None:
                step.waiting = deque(self._values_for(series, step))
            if not step.waiting:
                series.at += 1
                series.exchange.attempt(self._run_next, series)
                return
            given = self._fill(series, step, step.waiting.popleft())
        except ValueError as error:
            self._fail(series, f"did not run: {error}")
            return
        series.runs += 1
        meta = {key: value for key, value in series.exchange.meta.items() if key != translate.PROGRESS}
        if series.exchange.era == "modern":
            meta[versions.META_CAPABILITIES] = jsonrpc.EMPTY  # the client could not tell whose question to answer
        series.running = exchange = self._make_exchange(series, given, meta)
        call = ToolCall(exchange, step.written.name, "call_tool", replace(step.written, given=given))
        exchange.attempt(self._find, call)

    def _values_for(self, series: _Series, step: _Step) -> Sequence[Raw]:
        """Return the values that a step is called for. Raises ValueError."""
        if not step.for_each:
            return (jsonrpc.EMPTY,)
        found = self._look_up(series, jsonrpc.EMPTY, read_path(step.for_each))
        if jsonrpc.json_type(found) != "array":
            raise PathError(f"{_FOR_EACH}: expected a list, found a {jsonrpc.json_type(found)}")
        values, room = jsonrpc.items(found), _MOST_RUNS - series.runs - (len(series.steps) - step.number)
        if len(values) > room:
            raise PathError(
                f"{_FOR_EACH}: the list has {len(values):,} values, at most {room} fit; take some, as in [:{room}]"
            )
        return values

    def _fill(self, series: _Series, step: _Step, item: Raw) -> Raw:
        """Return the arguments of a step with the values that their paths lead to. Raises ValueError."""
        left = _MOST_FILLED

        def look_up(path: Path) -> Raw:
            nonlocal left
            found = self._look_up(series, item, path)
            left -= memoryview(found).nbytes
            if left < 0:
                raise PathError(f"{path.text}: the arguments would have more than {_MOST_FILLED:,} bytes")
            return found

        return fill_in(step.written.given or jsonrpc.EMPTY, look_up)

    def _look_up(self, series: _Series, item: Raw, path: Path) -> Raw:
        """Return what a path leads to. Raises `PathError`."""
        series.paths += 1
        if series.paths > _MOST_PATHS:
            raise PathError(f"{path.text}: a list may read {_MOST_PATHS} paths at most")
        if path.root == ITEM:
            return path.read(item)
        source = series.steps[path.root - 1]
        try:
            return path.read(source.value)
        except PathError as error:
            # Some write the path into the result as the protocol has it.
            for root in () if source.for_each else (structure_of(source.whole), source.whole):
                try:
                    return path.read(root)
                except PathError:
                    continue
            raise PathError(f"{path.text}: {error}") from None

    def _on_answer(self, series: _Series, message: Message) -> None:
        """Take what came of one call."""
        series.running = None
        step = series.steps[series.at]
        if message.error is not UNSET:
            code_and_text = jsonrpc.error_of(message.error) if isinstance(message.error, Raw) else (0, "")
            self._fail(series, f"failed: {code_and_text[1]}")
            return
        assert isinstance(message.result, Raw)
        if translate.is_tool_error(message.result) or translate.input_required(message.result):
            said = texts_of(message.result) or "it asks something; call it by itself"
            self._fail(series, f"failed: {said}")
            return
        if (size := memoryview(message.result).nbytes) > _MOST_RESULT:
            self._fail(series, f"has run, but its result of {size:,} bytes is too large here; call it by itself")
            return
        step.whole = message.result
        step.values.append(value_of(message.result))
        if not step.waiting:
            series.at += 1
        if (token := series.exchange.progress_token) is not None:
            params = jsonrpc.raw({translate.PROGRESS: token, "progress": series.runs})
            series.exchange.send(jsonrpc.notification("notifications/progress", params))
        self._run_next(series)

    def _cancel(self, series: _Series) -> None:
        """The client has given the list up: nothing more of it runs."""
        if series.running is not None:
            series.running.drop("the list of calls was cancelled")

    # -- the answer

    def _answer(self, series: _Series) -> None:
        last = series.steps[-1]
        said = self._wanted(series) if series.wanted else [last.value]
        text = as_text(said[0]) if len(said) == 1 else bytes(Raw(b"[%b]" % b",".join(map(bytes, said)))).decode()
        assert last.tool is not None
        cut = self._results.fit(series.exchange, last.tool, jsonrpc.raw(translate.text_result(text)))
        series.exchange.result(translate.translate_result(cut, series.exchange.method, series.exchange.era, "legacy"))

    def _fail(self, series: _Series, why: str) -> None:
        """End a list at the call that did not succeed, and say what was carried out."""
        step = series.steps[series.at]
        done = "no other call has run" if series.runs else "nothing has run"
        if series.runs and series.at:
            done = "call 1 has run" if series.at == 1 else f"calls 1 to {series.at} have run"
        rest = len(series.steps) - step.number
        place = f" for value {len(step.values) + 1}" if step.for_each and step.waiting is not None else ""
        text = f"{CALL_TOOLS}: call {step.number} ({step.written.name}){place} {why[:_SAID]}\n{done}"
        blocks = [f"{text}; {rest} more have not." if rest else f"{text}."]
        if series.runs and (known := [path for path in series.wanted if read_path(path).root <= series.at]):
            series.wanted = known
            blocks.append(
                " ".join(f"{path}: {as_text(value)}" for path, value in zip(known, self._wanted(series), strict=True))
            )
        series.exchange.own_result(translate.text_result(*blocks, is_error=True))

    def _wanted(self, series: _Series) -> list[Raw]:
        """Return what the paths that were asked for lead to; one that leads nowhere says so."""
        found = list[Raw]()
        for path in series.wanted:
            try:
                found.append(self._look_up(series, jsonrpc.EMPTY, read_path(path)))
            except PathError as error:
                found.append(jsonrpc.raw({"error": str(error)}))
        return found


def _as_list(raw: Raw | None) -> list[Raw]:
    """Return the members of a list, which a model may have written as a JSON text, or without brackets around one."""
    if raw is not None and jsonrpc.json_type(raw) == "string":
        raw = read_json(jsonrpc.text(raw) or "") or raw
    if raw is None or bytes(memoryview(raw)[:4]) == b"null":
        return []
    return jsonrpc.items(raw) if jsonrpc.json_type(raw) == "array" else [raw]


def _check_root(path: Path, number: int, *, has_item: bool) -> None:
    """Raise `PathError` for a path of call `number` that leads to no earlier call."""
    if path.root == ITEM and not has_item:
        raise PathError(f"{path.text}: $.item needs {_FOR_EACH}")
    if path.root >= number or (path.root < 1 and path.root != ITEM) or path.text.startswith("$.0"):
        raise PathError(f"{path.text}: there is no earlier call of this number")


def _check_path(path: Path, *, number: int, has_item: bool) -> Raw:
    _check_root(path, number, has_item=has_item)
    return Raw(b'""')


# The value of a result


def value_of(result: Raw) -> Raw:
    """Return the part of a result that paths lead into: structured content, else JSON in its text, else the text."""
    structure = structure_of(result)
    if structure is not jsonrpc.EMPTY:
        members = jsonrpc.fields(structure) if jsonrpc.json_type(structure) == "object" else {}
        if list(members) == ["result"]:  # the SDK for Python wraps what is no object so
            return members["result"]
        if len(members) != 1 or jsonrpc.text(next(iter(members.values()))) != texts_of(result):
            return structure  # else it repeats the text, which may hold JSON
    values = [_block_value(each) for each in _blocks(result)]
    return values[0] if len(values) == 1 else Raw(b"[%b]" % b",".join(map(bytes, values)))


def structure_of(result: Raw) -> Raw:
    found = jsonrpc.fields(result).get("structuredContent")
    return found if found is not None and bytes(memoryview(found)[:4]) != b"null" else jsonrpc.EMPTY


def _blocks(result: Raw) -> list[Raw]:
    content = jsonrpc.fields(result).get("content")
    return jsonrpc.items(content) if content is not None and jsonrpc.json_type(content) == "array" else []


def _block_value(raw: Raw) -> Raw:
    """Return the value of one block of a result; of a picture or a sound only what it is."""
    members: dict[str, Any] = jsonrpc.plain_object(raw) or {}
    if members.get("type") == "text" and isinstance(members.get("text"), str):
        written = read_json(members["text"])
        is_container = written is not None and jsonrpc.json_type(written) in ("object", "array")
        return written if written is not None and is_container else jsonrpc.raw(members["text"])
    return jsonrpc.raw({key: value for key, value in members.items() if key != "data"})


def texts_of(result: Raw) -> str:
    blocks = [jsonrpc.plain_object(each) or {} for each in _blocks(result)]
    return "\n".join(str(each["text"]) for each in blocks if isinstance(each.get("text"), str))


def as_text(value: Raw) -> str:
    """Return a value as JSON, or without quotes if it is a text."""
    return (jsonrpc.text(value) or "") if jsonrpc.json_type(value) == "string" else bytes(value).decode()
