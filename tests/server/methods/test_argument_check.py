"""Arguments against schemas: at once where the work has a bound, by a child that can be ended where it has not.

The whole attack: tests/attacks/test_hanging.py.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from fakes import live_config

from foretool.server.methods import argument_check
from foretool.server.methods.argument_check import ArgumentCheck, Checker
from foretool.server.protocol import jsonrpc
from foretool.storage.records import Tool, ToolId

PATIENCE_S = 30.0


def tool(schema: Any, name: str = "t", upstream: str = "u") -> Tool:
    definition = json.dumps({"name": name, "inputSchema": schema}).encode()
    return Tool(ToolId(f"{upstream}__{name}"), upstream, name, definition, str(hash(definition)))


async def errors_of(check: ArgumentCheck, tool: Tool, arguments: Any) -> list[str]:
    done: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
    check.check(tool, jsonrpc.raw(arguments), done.set_result)
    async with asyncio.timeout(PATIENCE_S):
        return await done


async def refuse() -> Checker:
    raise AssertionError("no child is needed")


def run(work: Callable[[ArgumentCheck], Awaitable[None]], check: ArgumentCheck) -> None:
    async def whole() -> None:
        try:
            await work(check)
        finally:
            await check.stop()

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("schema", "arguments", "errors"),
    [
        ({"type": "object", "required": ["a"]}, {}, 1),
        ({"type": "object", "properties": {"a": {"type": "number"}}}, {"a": "x"}, 1),
        ({"type": "object"}, {"a": 1}, 0),
        ({"type": 5}, {}, 0),
    ],
)
def test_a_bounded_schema_is_checked_at_once_and_a_broken_one_checks_nothing(
    schema: dict[str, Any], arguments: Any, errors: int
) -> None:
    found: list[list[str]] = []
    check = ArgumentCheck(live_config(validate_s=20.0), refuse)
    for _ in range(2):
        check.check(tool(schema), jsonrpc.raw(arguments), found.append)
    assert [len(each) for each in found] == [errors] * 2


PATTERN = {"properties": {"a": {"type": "string", "pattern": "^b+$"}}}
REMOTE = {"properties": {"a": {"$ref": "https://example.org/x"}}}


def test_another_schema_is_checked_by_the_child_and_a_reference_to_elsewhere_is_not_followed() -> None:
    async def work(check: ArgumentCheck) -> None:
        assert await errors_of(check, tool(PATTERN), {"a": "bb"}) == []
        (error,) = await errors_of(check, tool(PATTERN), {"a": "cc"})
        assert error.startswith("a: ")
        assert await errors_of(check, tool(REMOTE), {"a": 1}) == []

    run(work, ArgumentCheck(live_config(validate_s=20.0)))


def bomb(steps: int) -> dict[str, Any]:
    defs: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(steps)}
    return {"$defs": {**defs, f"d{steps}": {"const": 1}}, "properties": {"a": {"$ref": "#/$defs/d0"}}}


def test_a_check_that_takes_too_long_is_ended_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[Checker] = []

    async def start() -> Checker:
        starts.append(await Checker.start())
        return starts[-1]

    async def work(check: ArgumentCheck) -> None:
        for _ in range(3):
            assert await errors_of(check, tool(bomb(40)), {"a": 2}) == []
        assert len(starts) == 1
        for number in range(41, 60):
            await errors_of(check, tool(bomb(number)), {"a": 2})
        assert len(starts) == argument_check.OVERRUNS, "a server that has many such schemas is not checked any more"

    run(work, ArgumentCheck(live_config(validate_s=0.05), start))


def test_what_waits_behind_it_is_still_checked() -> None:
    async def work(check: ArgumentCheck) -> None:
        await errors_of(check, tool(PATTERN), {"a": "bb"})  # the child has started
        answers = await asyncio.gather(
            errors_of(check, tool(bomb(40)), {"a": 2}), errors_of(check, tool(PATTERN, upstream="v"), {"a": "cc"})
        )
        assert [len(each) for each in answers] == [0, 1]

    run(work, ArgumentCheck(live_config(validate_s=2.0)))


class DeadChecker(Checker):
    def __init__(self) -> None:
        pass

    async def check(self, line: bytes) -> list[str]:
        raise OSError("it has ended")

    async def end(self) -> None:
        pass


def test_without_a_child_nothing_is_checked_and_it_is_not_started_at_each_call() -> None:
    starts = 0

    async def fail() -> Checker:
        nonlocal starts
        starts += 1
        raise OSError("no more processes")

    async def work(check: ArgumentCheck) -> None:
        for _ in range(5):
            assert await errors_of(check, tool(PATTERN), {"a": "cc"}) == []
        assert starts == 1

    run(work, ArgumentCheck(live_config(validate_s=20.0), fail))


def test_a_child_that_dies_lets_the_call_go_on() -> None:
    async def dead() -> Checker:
        return DeadChecker()

    async def work(check: ArgumentCheck) -> None:
        assert await errors_of(check, tool(PATTERN), {"a": "cc"}) == []

    run(work, ArgumentCheck(live_config(validate_s=20.0), dead))


def test_what_is_wrong_is_told_in_few_words_however_much_it_quotes() -> None:
    found: list[list[str]] = []
    schema = {"properties": {"a": {"type": "number"}}, "additionalProperties": {"enum": ["y" * 90_000]}}
    check = ArgumentCheck(live_config(validate_s=20.0), refuse)
    check.check(tool(schema), jsonrpc.raw({"a": "x" * 300_000, "k" * 9000: 1}), found.append)
    assert len(found[0]) == 2
    assert all(len(error) < 500 for error in found[0])


@pytest.mark.parametrize("depth", [300, 900])
def test_arguments_of_any_depth_check_nothing_rather_than_fail(depth: int) -> None:
    async def work(check: ArgumentCheck) -> None:
        value: Any = 1
        for _ in range(depth):
            value = [value]
        assert await errors_of(check, tool(PATTERN), {"b": value}) == []
        assert await errors_of(check, tool({"properties": {"a": {"type": "number"}}}), {"b": value}) == []

    run(work, ArgumentCheck(live_config(validate_s=20.0)))
