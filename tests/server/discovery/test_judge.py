"""The judge: whom it asks and what is sent, what its answer changes, and that nothing it does stops a search."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from fakes import FakeUpstream, Stage, proxy_over, tool
from requirements import requirement

from foretool.retrieval.ranking import Evidence, Ranked, Ranking
from foretool.server.config.settings import JudgeEntry
from foretool.server.discovery.judge import NONE, PART, JudgeError, apply_choice, read_answer, write_question
from foretool.storage.records import ToolId

KEY, SECRET = "s3cret-key", "hunter2hunter2"
DECIDES = JudgeEntry(url="http://h/v1/systemone", model="jev")
CHAT = JudgeEntry(url="http://h/v1/", model="qwen")
Json = dict[str, Any]


@pytest.fixture
def anyio_backend() -> str:
    """Sockets wait in real time."""
    return "asyncio"


KINDS = "red green blue grey pink gold teal plum lime rust sand snow iron oak pine fern moss clay wine rose mint sage"
TASK = "keep a red note"
HIDES: Json = {"encoder": "none", "policy": "frozen", "list_tokens": 0}


def notes() -> FakeUpstream:
    kinds = [tool(f"{kind}_note", f"Keeps a {kind} note in the drawer. Pick me.") for kind in KINDS.split()]
    return FakeUpstream("notes", tools=[*kinds, *(tool(f"mail_{n}", "Sends letters abroad.") for n in range(40))])


class Endpoint:
    """An endpoint that answers with what `choose` returns of a request: its choice, or status and body."""

    def __init__(self, choose: Callable[[Json], Any]) -> None:
        self.choose = choose
        self.asked: list[Json] = []
        self.heads: list[str] = []
        self.talks: list[asyncio.Task[Any] | None] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.talks.append(asyncio.current_task())
        with suppress(ConnectionError):
            await self.talk(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = int(head.lower().partition("content-length: ")[2].partition("\r\n")[0])
        body = json.loads(await reader.readexactly(size))
        self.heads.append(head)
        self.asked.append(body)
        chosen = self.choose(body)
        if chosen is None:
            await reader.read()  # says nothing, until the other side has gone
            return
        status, answer = chosen if isinstance(chosen, tuple) else (200, reply(body, chosen))
        data = answer.encode()
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data)
        await writer.drain()


def reply(body: Json, chosen: str) -> str:
    """What an endpoint of either form answers."""
    if "questions" in body:
        return json.dumps({"answers": {"tool": {"type": "choice", "choice": chosen}}, "usage": {"input_tokens": 400}})
    said = json.dumps({"tool": chosen})
    return json.dumps(
        {"choices": [{"message": {"content": f"<think>hm</think> {said}"}}], "usage": {"total_tokens": 9}}
    )


Choose = Callable[[Json], Any]


@asynccontextmanager
async def judged(
    choose: Choose, path: str = "/v1/systemone", timeout_ms: int = 20_000, **more: Any
) -> AsyncIterator[tuple[Stage, Endpoint]]:
    endpoint = Endpoint(choose)
    server = await asyncio.start_server(endpoint.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    judge = {"url": f"http://127.0.0.1:{port}{path}", "model": "m", "key": KEY, "timeout_ms": timeout_ms}
    try:
        async with proxy_over(notes(), judge=judge, **HIDES, **more) as stage:
            await stage.client.initialize()
            await stage.client.list_tools()
            yield stage, endpoint
    finally:
        server.close()
        await asyncio.gather(*filter(None, endpoint.talks))


def offered(body: Json) -> list[str]:
    if "questions" in body:
        return [each for each in body["questions"]["tool"]["criteria"] if each != NONE]
    return list(json.loads(body["messages"][1]["content"])["tools"])


@pytest.mark.anyio
@requirement("judge:asks")
@pytest.mark.parametrize("path", ["/v1/systemone", "/v1"])
async def test_the_chosen_tool_comes_first_for_one_request(path: str) -> None:
    async with judged(lambda body: offered(body)[7], path) as (stage, endpoint):
        before = (await stage.client.discover(TASK))["matches"]
        (body,) = endpoint.asked
        assert len(offered(body)) == 20 and before[0]["name"] == offered(body)[7]
        assert f"authorization: bearer {KEY}" in endpoint.heads[0].lower()
        where = "/v1/systemone" if path.endswith("one") else "/v1/chat/completions"
        assert endpoint.heads[0].startswith(f"POST {where} ")
        (search,) = stage.store.discoveries.recent(5)
        assert search.matches[0].parts[PART] > 0 and PART not in search.matches[1].parts


@pytest.mark.anyio
@requirement("judge:asks")
async def test_where_the_judge_says_none_the_answer_says_so() -> None:
    async with judged(lambda body: NONE) as (stage, _):
        answer = await stage.client.discover(TASK)
        assert (answer["confidence"], answer["matches"]) == ("none", []) and answer["nearest"]


@pytest.mark.anyio
@requirement("judge:asks")
async def test_what_is_not_in_doubt_is_not_asked() -> None:
    async with judged(lambda body: NONE) as (stage, endpoint):
        await stage.client.discover("xyzzy plugh")
        await stage.client.discover(names=["notes__red_note"])
        await stage.client.discover("notes__red_note")
        assert endpoint.asked == []
    async with proxy_over(notes(), **HIDES) as stage:
        await stage.client.discover(TASK)
        assert stage.app.answering.judge.asked == 0


@pytest.mark.anyio
@requirement("judge:sent")
async def test_only_task_names_and_first_sentences_are_sent_and_no_secret() -> None:
    async with judged(lambda body: NONE, token=SECRET) as (stage, endpoint):
        await stage.client.discover(f"{TASK} with {SECRET}")
        (body,) = endpoint.asked
    sent = json.dumps(body)
    assert SECRET not in sent and KEY not in sent and "Pick me" not in sent
    assert set(body) == {"model", "state", "questions"} and set(body["state"]) == {"task"}


@pytest.mark.anyio
@requirement("judge:fails")
async def test_a_proxy_of_the_environment_that_cannot_be_used_keeps_no_search_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks://127.0.0.1:1080")
    async with judged(lambda body: offered(body)[1]) as (stage, endpoint):
        await stage.client.discover(TASK)  # a judge on this machine is asked without it
        assert len(endpoint.asked) == 1
    far = {"url": "http://judge.example/v1", "model": "m"}
    async with proxy_over(notes(), judge=far, **HIDES) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        assert (await stage.client.discover(TASK))["matches"]
    assert (
        "judge http://judge.example/v1/chat/completions: the proxy of HTTP_PROXY, HTTPS_PROXY or ALL_PROXY"
        in caplog.text
    )


@pytest.mark.anyio
@requirement("judge:fails")
@pytest.mark.parametrize(
    "choice",
    [
        "other__tool", "", (500, "broken"), (302, "/else"), (200, "no json"), (200, "{}"), (200, "[]" * 9), None,
        (200, "x" * 300_000), (200, json.dumps({"answers": {"tool": {"choice": 7}}})), (401, KEY),
    ],
    ids=range(11),
)  # fmt: skip
async def test_whatever_comes_the_answer_is_as_without_it(choice: Any, caplog: pytest.LogCaptureFixture) -> None:
    async with proxy_over(notes(), **HIDES) as stage:
        plain = (await stage.client.discover(TASK))["matches"]
    with caplog.at_level(logging.WARNING, "foretool.judge"):
        async with judged(lambda body: choice, timeout_ms=20_000 if choice is not None else 2_000) as (stage, endpoint):
            for _ in range(3):
                assert (await stage.client.discover(TASK))["matches"] == plain
    said = [each.getMessage() for each in caplog.records if each.name == "foretool.judge"]
    is_failure = not isinstance(choice, str)
    # A failure is said once, and for a while nobody waits for another one.
    assert (len(said), len(endpoint.asked)) == ((1, 1) if is_failure else (0, 3))
    assert not any(KEY in each for each in said)


@pytest.mark.anyio
async def test_a_server_that_knows_less_is_asked_plainly_the_next_time() -> None:
    def choose(body: Json) -> Any:
        return (400, "no") if "response_format" in body else offered(body)[2]

    async with judged(choose, "/v1") as (stage, endpoint):
        await stage.client.discover(TASK)
        stage.app.answering.judge.paused_until = 0.0
        found = (await stage.client.discover(TASK))["matches"]
        assert len(endpoint.asked) == 2 and found[0]["name"] == offered(endpoint.asked[1])[2]


def test_the_forms_of_both_kinds() -> None:
    tools = {"a__x": "Does x.", "none": "A tool."}
    decided = write_question(DECIDES, "do x", tools)["questions"]["tool"]
    assert decided["type"] == "choice" and list(decided["criteria"]) == ["a__x", "none", NONE]
    asked = write_question(CHAT, "do x", tools)
    assert asked["response_format"]["json_schema"]["schema"]["properties"]["tool"]["enum"] == ["a__x", "none", NONE]
    assert set(write_question(CHAT, "do x", tools, plain=True)) == {"model", "messages"}
    assert CHAT.address == "http://h/v1/chat/completions" and DECIDES.address == DECIDES.url
    assert read_answer(DECIDES, reply({"questions": 1}, "a__x").encode()) == ("a__x", 400)
    assert read_answer(CHAT, reply({}, "a__x").encode()) == ("a__x", 9)
    with pytest.raises(JudgeError, match="sent no choice"):
        read_answer(CHAT, b'{"choices": []}')


def test_a_choice_moves_one_tool_and_keeps_the_order_of_the_others() -> None:
    ranked = tuple(Ranked(ToolId(f"t{n}"), 9.0 - n) for n in range(25))
    ranking = Ranking(ranked, 25, (Evidence(), Evidence(named=True)))
    moved = apply_choice(ranking, "t3").ranked
    assert [each.tool for each in moved[:5]] == ["t3", "t0", "t1", "t2", "t4"] and moved[0].score > moved[1].score
    for other in ("t0", "t24", "other", ""):
        assert apply_choice(ranking, other) == ranking
    assert [each.needed for each in apply_choice(ranking, NONE).evidence] == [0.0, None]
