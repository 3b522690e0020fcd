"""`call_tools`: several calls in one turn, under the rules of `call_tool`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import FakeUpstream, Json, Stage, proxy_over, said, text, tool
from requirements import requirement

pytestmark = pytest.mark.anyio

READS = {"annotations": {"readOnlyHint": True}}
ITEMS = {"items": [{"id": number, "title": f"t{number}", "body": "x" * 50} for number in range(4)]}


def desk() -> FakeUpstream:
    tools = [
        tool("list", **READS), tool("read", "Reads one", {"id": {"type": "integer"}}, **READS), tool("lines", **READS),
        tool("wipe", annotations={"destructiveHint": True}), tool("hang", **READS), tool("fail", **READS),
    ]  # fmt: skip
    tools[1]["inputSchema"]["required"] = ["id"]
    results = {
        "list": text("see the structure", structuredContent=ITEMS), "read": text(json.dumps({"ok": True})),
        "lines": text("one", "two"), "fail": text("no disk", isError=True),
    }  # fmt: skip
    return FakeUpstream("desk", tools, results=results)


def call(name: str, arguments: Any = None, **more: Any) -> Json:
    return {"name": f"desk__{name}", **({"arguments": arguments} if arguments is not None else {}), **more}


async def run(stage: Stage, *calls: Json, **more: Any) -> Json:
    return await stage.client.call_tool("call_tools", {"calls": list(calls), **more})


@requirement("series:values")
async def test_later_calls_use_earlier_results_and_only_what_was_asked_for_comes_back() -> None:
    upstream = desk()
    async with proxy_over(upstream, call_tools=True) as stage:
        await stage.client.initialize()
        every = call("read", {"id": "$.item.id"}, for_each="$.1.items[1:3]")
        result = await run(
            stage, call("list"), every, **{"return": ["$.1.items.length()", "$.2", "$.1.items[*]['id']"]}
        )
        whole = await run(stage, call("lines"))
        on_record = [(each.tool, each.via, each.outcome) for each in stage.calls()]
    assert json.loads(said(result)) == [4, [{"ok": True}, {"ok": True}], [0, 1, 2, 3]]
    assert json.loads(said(whole)) == ["one", "two"]
    assert on_record[:2] == [("desk__list", "bridge", "ok"), ("desk__read", "bridge", "ok")]
    assert upstream.calls[:3] == [("list", {}), ("read", {"id": 1}), ("read", {"id": 2})]


@requirement("series:off")
async def test_nobody_has_it_unless_the_setting_says_so() -> None:
    upstream = desk()
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        assert "call_tools" not in await stage.client.list_tools()
        result = await stage.client.call_tool(
            "call_tool", {"name": "call_tools", "arguments": {"calls": [call("list")]}}
        )
    assert result["isError"] and upstream.calls == []


@requirement("trust:policy:series")
@pytest.mark.parametrize("bridges", ["by_risk", "one"])
async def test_it_is_annotated_as_what_it_runs(bridges: str) -> None:
    async with proxy_over(desk(), call_tools=True, bridges=bridges) as stage:
        await stage.client.initialize()
        listed = {each["name"]: each for each in (await stage.client.ask("tools/list"))["tools"]}
    assert listed["call_tools"]["annotations"] == listed["call_tool"]["annotations"]
    assert len(json.dumps(listed["call_tools"])) < 1400


@requirement("trust:policy:series")
@pytest.mark.parametrize(
    "smuggled",
    [
        call("wipe"), call("none"), {"name": "call_tools", "arguments": {"calls": [call("wipe")]}},
        {"name": "call_tool_write", "arguments": call("wipe")}, {"name": "discover_tools", "arguments": {"task": "x"}},
        {"name": "desk__wipe", "for_each": "$.1.items"}, call("read", {"id": "$.2.x"}), call("read", {"id": "$.0"}),
        call("read", {"id": "$.item"}), call("read", {"id": "$.1"}, for_each="$.7"), {"arguments": {}}, 7,
    ],
)  # fmt: skip
async def test_what_may_not_run_is_refused_before_anything_runs(smuggled: Any) -> None:
    upstream = desk()
    async with proxy_over(upstream, call_tools=True) as stage:
        await stage.client.initialize()
        result = await run(stage, call("list"), smuggled)
    assert result["isError"] and upstream.calls == []
    assert "nothing" in said(result)


@requirement("trust:policy:series")
async def test_a_tool_that_drops_its_mark_while_a_call_before_it_runs_is_not_run() -> None:
    upstream = FakeUpstream("desk", [tool("list", **READS), tool("wipe", **READS)], entry={"trust": "auto"})
    upstream.hold("list")
    async with proxy_over(upstream, call_tools=True, profiles={"all": {"policy": "full"}}) as stage:
        watcher = stage.connect("all")
        await watcher.initialize()
        await watcher.list_tools()
        await stage.client.initialize()
        asked = stage.client.post(
            "tools/call", {"name": "call_tools", "arguments": {"calls": [call("list"), call("wipe")]}}
        )
        held = await upstream.called("list")
        upstream.change(tool("list", **READS), tool("wipe", annotations={"destructiveHint": True}))
        await watcher.heard("notifications/tools/list_changed")
        held.reply(text("done"))
        result = await stage.client.result(asked)
    assert result["isError"] and "call 2 (desk__wipe) failed" in said(result)
    assert [name for name, _ in upstream.calls] == ["list"]


@requirement("trust:policy:series")
async def test_a_denied_tool_is_on_record_as_refused() -> None:
    upstream = desk()
    upstream.entry = {"deny": ["read"]}
    async with proxy_over(upstream, call_tools=True) as stage:
        await stage.client.initialize()
        assert (await run(stage, call("list"), call("read", {"id": 1})))["isError"]
        assert [(each.tool, each.outcome) for each in stage.calls()] == [("desk__read", "refused")]
        assert [(each.tool, each.cause) for each in stage.misses()] == [("desk__read", "denied")]
    assert upstream.calls == []


@requirement("trust:policy:series")
@pytest.mark.parametrize("agrees", [True, False])
@pytest.mark.parametrize("is_modern", [True, False])
async def test_the_user_is_asked_once_about_all(agrees: bool, is_modern: bool) -> None:
    upstream = desk()
    async with proxy_over(upstream, call_tools=True, confirm="all") as stage:
        client, can = stage.client, {"elicitation": {"form": {}}}
        given = {"calls": [call("list"), call("read", {"id": "$.1.items[0].id"})]}
        answer = {"action": "accept" if agrees else "decline", "content": {}}
        if is_modern:
            client.modern(capabilities=can)
            wanted = await client.call_tool("call_tools", given)
            question = wanted["inputRequests"]["answer"]["params"]["message"]
            more = {"requestState": wanted["requestState"], "inputResponses": {"answer": answer}}
            result = await client.ask("tools/call", {"name": "call_tools", "arguments": given, **more})
        else:
            client.answers["elicitation/create"] = answer
            await client.initialize(capabilities=can)
            result = await client.call_tool("call_tools", given)
            question = client.questions[0]["params"]["message"]
            assert len(client.questions) == 1
    assert all(part in question for part in ("2 calls", "desk__list", "desk__read", "$.1.items[0].id"))
    assert upstream.calls == ([("list", {}), ("read", {"id": 0})] if agrees else [])
    assert result.get("isError", False) is not agrees


@requirement("trust:policy:series")
async def test_without_a_person_to_ask_nothing_runs() -> None:
    upstream = desk()
    async with proxy_over(upstream, call_tools=True, confirm="all") as stage:
        await stage.client.initialize()
        assert (await run(stage, call("list")))["isError"]
    assert upstream.calls == []


@requirement("series:ends")
async def test_a_call_that_fails_ends_it_and_says_what_has_run() -> None:
    upstream = desk()
    async with proxy_over(upstream, call_tools=True) as stage:
        await stage.client.initialize()
        broken = await run(
            stage, call("list"), call("fail"), call("read", {"id": 1}), **{"return": ["$.1.items[0].id"]}
        )
        lost = await run(stage, call("list"), call("read", {"id": "$.1.nothing"}))
        wrong = await run(stage, call("list"), call("read", {"other": "$.1.items[0].title"}))
    assert [name for name, _ in upstream.calls] == ["list", "fail", "list", "list"]
    assert "call 2 (desk__fail) failed: no disk\ncall 1 has run; 1 more have not." in said(broken)
    assert "$.1.items[0].id: 0" in said(broken)
    assert "found an object with 'items'" in said(lost) and "inputSchema" in said(wrong)
    assert broken["isError"] and lost["isError"] and wrong["isError"]


@requirement("series:ends")
async def test_a_fan_out_has_a_limit() -> None:
    upstream = desk()
    upstream.results["list"] = text("", structuredContent={"items": list(range(10_000))})
    upstream.results["lines"] = text("x" * 2_000_000)
    async with proxy_over(upstream, call_tools=True) as stage:
        await stage.client.initialize()
        wide = await run(stage, call("list"), call("read", {"id": "$.item"}, for_each="$.1.items"))
        many = await run(stage, *[call("list")] * 21)
        large = await run(stage, call("lines"), call("read", {"id": 1}))
        paths = await run(stage, call("list"), call("read", {"id": 1, "x": ["$.1.items[0]"] * 300}))
    assert "at most 49 fit" in said(wide) and "expected a list of 1 to 20" in said(many)
    assert "too large" in said(large) and "200 paths" in said(paths)
    assert [name for name, _ in upstream.calls] == ["list", "lines", "list"]


@requirement("series:ends")
async def test_a_cancelled_one_cancels_its_call_and_runs_no_other() -> None:
    upstream = desk()
    upstream.hold("hang")
    async with proxy_over(upstream, call_tools=True) as stage:
        await stage.client.initialize()
        calls = [call("list"), call("hang"), call("read", {"id": 1})]
        asked = stage.client.post("tools/call", {"name": "call_tools", "arguments": {"calls": calls}})
        await upstream.called("hang")
        stage.client.notify("notifications/cancelled", {"requestId": asked})
        await upstream.asked("notifications/cancelled")
        assert said(await stage.client.call_tool("call_tool", call("lines"))) == "one\ntwo"
        assert [(each.tool, each.outcome) for each in stage.calls()][1] == ("desk__hang", "cancelled")
    assert "read" not in [name for name, _ in upstream.calls]
