"""After a call the likely next tool is in the list, or named; listed tools answer verbatim but for `_meta`."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from fakes import LIST_CHANGED, Asked, FakeUpstream, Stage, proxy_over, text, tool
from requirements import requirement

from foretool.server.calls import runner
from foretool.server.clients.conversation import Conversation
from foretool.server.hints.prediction import with_text
from foretool.server.hints.texts import Hint
from foretool.server.lists.growth import ToolList
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.episodes import GAP_S
from foretool.storage.records import ToolId

np = pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

# ruff: noqa: E402

from learned_fakes import START, Counted

from foretool.retrieval.rankers.learned import LearnedModels

pytestmark = pytest.mark.anyio

OPEN, READ, SHUT = "files__open", "files__read", "files__shut"
COUNTS = {START: {OPEN: 1}, OPEN: {READ: 8, SHUT: 2}, READ: {"END": 9, SHUT: 1}}


def files() -> FakeUpstream:
    need = {"path": {"type": "string"}}
    tools = [tool(name, f"To {name} a file.", need) for name in ("open", "read", "shut")]
    tools[1]["inputSchema"]["required"] = ["path"]
    return FakeUpstream("files", tools=tools)


def answer_late(asked: Asked) -> None:
    """Answer once a prediction could be made."""
    done = {"content": [{"type": "text", "text": "done"}]}
    asyncio.get_running_loop().call_later(0.1, asked.reply, done)


async def learned(stage: Stage) -> None:
    stage.app.search.install_models(LearnedModels({"dtdr": Counted(COUNTS)}))
    await stage.client.initialize()
    await stage.client.list_tools()


@requirement("learn:growth")
async def test_the_list_grows_for_what_is_likely_next_and_the_result_waits_for_the_new_list() -> None:
    async with proxy_over(files(), policy="growing", pin=[OPEN], hold_ms=60_000) as stage:
        await learned(stage)
        client = stage.client
        call = client.post("tools/call", {"name": OPEN, "arguments": {}})
        await client.heard(LIST_CHANGED)
        listing = client.post("tools/list")
        listed = await client.result(listing)
        assert [each["name"] for each in listed["tools"]] == [
            "call_tool",
            "call_tool_write",
            "discover_tools",
            OPEN,
            READ,
            SHUT,
        ]
        await client.reply(call)
        order = [message["id"] for message in client.messages if message.get("id") in (call, listing)]
        assert order == [listing, call]
        await client.call_tool(READ, {"path": "x"})
        assert stage.misses() == []
        assert [each.hidden for each in stage.calls()] == [False, False]
    assert client.count(LIST_CHANGED) == 1


@requirement("learn:growth")
async def test_a_list_does_not_grow_for_a_prediction_under_frozen_or_beyond_the_budget() -> None:
    for settings in ({"policy": "frozen"}, {"policy": "growing", "list_tokens": 1}):
        async with proxy_over(files(), pin=[OPEN], **settings) as stage:
            await learned(stage)
            await stage.client.call_tool(OPEN, {})
            assert stage.client.count(LIST_CHANGED) == 0


@requirement("learn:growth")
async def test_what_is_asked_for_by_name_is_listed() -> None:
    async with proxy_over(files(), policy="growing", hold_ms=60_000) as stage:
        await learned(stage)
        asked = {"name": "discover_tools", "arguments": {"names": [SHUT]}}
        call = stage.client.post("tools/call", asked)
        await stage.client.heard(LIST_CHANGED)
        assert SHUT in await stage.client.list_tools()
        await stage.client.reply(call)


@requirement("learn:hint")
async def test_the_bridge_names_the_likely_hidden_tool_in_a_last_block() -> None:
    upstream = files()
    async with proxy_over(upstream, policy="frozen") as stage:
        await learned(stage)
        answer = await stage.client.call_tool("call_tool_write", {"name": OPEN, "arguments": {}})
        assert [each["text"] for each in answer["content"]][1:] == [
            f"Likely next; needs no search. call_tool_write: {READ}(path: string) 80%, {SHUT}(path?: string) 20%"
        ]
        await stage.client.call_tool("call_tool_write", {"name": READ, "arguments": {"path": "x"}})
        (opened,) = stage.misses()
        shown = [each for each in stage.store.sessions.exposures(opened.session) if each.reason == "hint"]
        assert [each.hidden for each in stage.calls()] == [True, True]
    # What a hint named is on record as an exposure, so the call that followed it is not a miss.
    assert (opened.tool, opened.recovered) == (OPEN, "called")
    assert [(each.tools, each.policy, each.epoch) for each in shown] == [((READ, SHUT), "frozen", 1)]
    assert shown[0].tokens > 0


@requirement("learn:hint")
async def test_a_task_is_told_once_of_a_tool_and_a_hint_after_a_discovery_changes_no_miss() -> None:
    async with proxy_over(files(), policy="frozen") as stage:
        await learned(stage)
        found = await stage.client.discover(names=[OPEN, READ, SHUT])
        assert {each["name"] for each in found["matches"]} == {OPEN, READ, SHUT}
        answer = await stage.client.call_tool("call_tool_write", {"name": OPEN, "arguments": {}})
        assert len(answer["content"]) == 1
        await stage.client.call_tool("call_tool_write", {"name": READ, "arguments": {"path": "x"}})
        assert [(each.tool, each.recovered) for each in stage.misses()] == [(OPEN, "discovered"), (READ, "discovered")]


@requirement("learn:hint")
async def test_a_hint_has_the_arguments_of_a_tool_that_an_answer_named_without_them() -> None:
    need = {"path": {"type": "string"}}
    charts = [tool(f"plot_{letter}", f"Plots {letter} as a chart of bars.", need) for letter in "abcdefghijklmnop"]
    for each in charts:
        each["inputSchema"]["required"] = ["path"]
    async with proxy_over(FakeUpstream("charts", tools=charts), policy="frozen") as stage:
        await stage.client.initialize()
        asked = {"name": "discover_tools", "arguments": {"task": "plot a chart of bars"}}
        found = (await stage.client.ask("tools/call", asked))["content"][0]["text"]
        (further,) = [line for line in found.splitlines() if line.startswith("further matches")]
        names = [f"charts__{each['name']}" for each in charts]
        bare = next(name for name in names if name in further)
        first, second = [name for name in names if name not in further and name in found][:2]
        counts = {START: {first: 1}, first: {bare: 5, second: 4, "END": 1}}
        stage.app.search.install_models(LearnedModels({"dtdr": Counted(counts)}))
        called = {"name": first, "arguments": {"path": "x"}}
        hint = (await stage.client.call_tool("call_tool_write", called))["content"][-1]["text"]
        assert hint == f"Likely next; needs no search. call_tool_write: {bare}(path: string) 50%", found


@requirement("learn:hint")
async def test_a_listed_tool_answers_verbatim() -> None:
    upstream = files()
    upstream.scripts["open"] = answer_late
    async with proxy_over(upstream, policy="frozen", pin=[OPEN]) as stage:
        await learned(stage)
        answer = await stage.client.call_tool(OPEN, {})
        stage.app.search.install_models(None)
        assert await stage.client.call_tool(OPEN, {}) == answer


@requirement("learn:hint")
async def test_the_result_of_a_listed_tool_does_not_wait_for_a_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    async with proxy_over(files(), policy="frozen", pin=[OPEN]) as stage:
        await learned(stage)
        made: list[object] = []
        monkeypatch.setattr(stage.app.answering.predictor, "predict", made.append)
        assert "_meta" not in await stage.client.call_tool(OPEN, {})
        await asyncio.sleep(0.1)
        assert made == []


def watch(monkeypatch: pytest.MonkeyPatch, stage: Stage) -> list[str]:
    """Return what happens from now on, in order: requests that go to the upstream, and the steps of predictions."""
    done: list[str] = []

    def note(owner: type, name: str) -> None:
        real = getattr(owner, name)

        def noted(*values: Any, **named: Any) -> Any:
            result = real(*values, **named)
            done.append(name)
            return result

        monkeypatch.setattr(owner, name, noted)

    note(type(stage.app.upstreams["files"]), "request")
    note(ToolList, "grow_for_next")
    for name in ("predict", "hint"):
        note(type(stage.app.answering.predictor), name)
    return done


AHEAD = {"name": ["predict", "grow_for_next"], "bridge": ["predict", "grow_for_next", "hint"]}


@requirement("learn:hint")
@pytest.mark.parametrize("policy", ["frozen", "growing"])
@pytest.mark.parametrize("asked", ["name", "bridge"])
async def test_nothing_is_predicted_between_a_request_and_its_forwarding(
    policy: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy_over(files(), policy=policy, pin=[OPEN], list_tokens=1) as stage:
        await learned(stage)
        stage.app.search.predict([OPEN], ())
        done = watch(monkeypatch, stage)
        for _ in range(5):
            await call_open(stage, asked)
        ahead = AHEAD[asked] if (policy, asked) != ("frozen", "name") else []
        assert done == ["request", *ahead] * 5


@requirement("learn:hint")
@pytest.mark.parametrize("policy", ["frozen", "growing"])
@pytest.mark.parametrize("asked", ["name", "bridge"])
async def test_a_call_that_follows_the_last_answer_at_once_waits_for_no_prediction(
    policy: str, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with proxy_over(files(), policy=policy, pin=[OPEN], list_tokens=1) as stage:
        await learned(stage)
        await call_open(stage, asked)
        monkeypatch.setattr(runner, "READING_S", 60.0)
        done = watch(monkeypatch, stage)
        for _ in range(5):
            await call_open(stage, asked)
        assert done == ["request"] * 5


@requirement("learn:hint")
async def test_calls_that_a_model_makes_at_once_are_all_predicted_from(monkeypatch: pytest.MonkeyPatch) -> None:
    upstream = files()
    upstream.scripts["open"] = answer_late
    async with proxy_over(upstream, policy="frozen") as stage:
        await learned(stage)
        done = watch(monkeypatch, stage)
        asked = [{"name": "call_tool_write", "arguments": {"name": OPEN, "arguments": {}}} for _ in range(3)]
        for call in [stage.client.post("tools/call", each) for each in asked]:
            await stage.client.reply(call)
        assert done.count("request") == 3
        assert done.count("predict") == 3


@requirement("learn:hint")
async def test_the_last_call_of_a_turn_is_predicted_from_where_a_client_makes_them_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runner, "READING_S", 0.02)
    upstream = files()
    async with proxy_over(upstream, policy="frozen", list_tokens=1) as stage:
        await learned(stage)
        call = {"name": "call_tool_write", "arguments": {"name": SHUT, "arguments": {}}}
        await stage.client.call_tool(call["name"], call["arguments"])
        upstream.scripts["open"] = answer_late
        answer = await call_open(stage, "bridge")
    assert READ in answer["content"][-1]["text"]


async def call_open(stage: Stage, asked: str) -> Any:
    if asked == "bridge":
        return await stage.client.call_tool("call_tool_write", {"name": OPEN, "arguments": {}})
    return await stage.client.call_tool(OPEN, {})


@requirement("learn:hint")
async def test_discover_tools_ends_with_the_hint() -> None:
    async with proxy_over(files(), policy="frozen") as stage:
        await learned(stage)
        asked = {"name": "discover_tools", "arguments": {"names": [SHUT]}}
        answer = await stage.client.ask("tools/call", asked)
        assert answer["content"][-1]["text"].startswith(
            f"Likely next; needs no search. call_tool_write: {OPEN}(path?: string) 99%"
        )


@requirement("learn:hint")
@pytest.mark.parametrize("settings", [{"hint_threshold": 1}, {"hint_threshold": 0.9}, {"pin": [READ, SHUT]}])
async def test_no_hint_where_it_is_not_wanted_not_likely_enough_or_listed(settings: dict[str, Any]) -> None:
    async with proxy_over(files(), policy="frozen", **settings) as stage:
        await learned(stage)
        answer = await stage.client.call_tool("call_tool_write", {"name": OPEN, "arguments": {}})
        assert len(answer["content"]) == 1


async def test_no_hint_where_the_task_is_likely_done_or_the_call_failed() -> None:
    upstream = files()
    upstream.results["open"] = text("no", isError=True)
    async with proxy_over(upstream, policy="frozen", hint_threshold=0) as stage:
        await learned(stage)
        failed = await stage.client.call_tool("call_tool_write", {"name": OPEN, "arguments": {}})
        done = await stage.client.call_tool("call_tool_write", {"name": READ, "arguments": {"path": "x"}})
    assert len(failed["content"]) == len(done["content"]) == 1


def test_a_prediction_is_from_the_calls_of_the_present_task() -> None:
    chat = Conversation()
    chat.note_task(("read a file",), 1.0)
    for at, name in enumerate((OPEN, READ, READ)):
        chat.note_call(name, "files", 2.0 + at)
    assert (chat.steps, chat.lines) == ([OPEN, READ], ("read a file",))
    chat.note_task(("read the other file",), 6.0)
    assert chat.steps == [OPEN, READ]
    chat.note_task(("send mail",), 7.0)
    assert (chat.steps, list(chat.history)) == ([], [OPEN, READ, READ])
    chat.note_call(SHUT, "files", 8.0)
    chat.note_call(OPEN, "files", 9.0 + GAP_S)
    assert (chat.steps, chat.lines) == ([OPEN], ())


HINT = Hint("Likely next: s__x", (ToolId("s__x"),), 5)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'[{"type":"text","text":"1.0"}]', [{"type": "text", "text": "1.0"}, {"type": "text", "text": HINT.text}]),
        (b"[ ]", [{"type": "text", "text": HINT.text}]),
    ],
)
def test_a_block_is_appended(content: bytes, expected: Any) -> None:
    told = with_text(Raw(b'{"content":' + content + b',"n":1.50}'), HINT.text)
    assert json.loads(bytes(told)) == {"content": expected, "n": 1.5}
    assert b"1.50" in bytes(told)


def test_what_has_no_content_stays_as_it_is() -> None:
    for odd in (b"[1]", b'{"content":"text"}', b"{}"):
        assert bytes(with_text(Raw(odd), HINT.text)) == odd
