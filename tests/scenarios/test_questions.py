"""Questions of upstreams to the client (sampling, elicitation, roots), between every pair of eras."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from callers import Caller, http_over, on_the_real_clock
from fakes import BOTH, LEGACY, MODERN, Asked, Failed, FakeUpstream, Json, proxy_over, said
from requirements import requirement

from foretool.server.clients.client import SHELL
from foretool.server.protocol import jsonrpc, versions

pytestmark = pytest.mark.anyio

CAN = {"sampling": {}, "elicitation": {}, "roots": {"listChanged": True}}
ANSWERS: dict[str, Json] = {
    "sampling/createMessage": {"role": "assistant", "content": {"type": "text", "text": "blue"}, "model": "m"},
    "elicitation/create": {"action": "accept", "content": {"colour": "blue"}},
    "roots/list": {"roots": [{"uri": "file:///home"}]},
}


class Curious(FakeUpstream):
    """Asks the client in the course of a call, and returns what it was told."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.told: list[Json] = []
        self.tools = ["ask", "plain"]
        self.scripts["ask"] = self._start
        self.tasks: set[asyncio.Task[None]] = set()

    def _start(self, asked: Asked) -> None:
        if versions.META_VERSION in asked.meta:
            self._modern(asked)
        else:
            task = asyncio.get_running_loop().create_task(self._legacy(asked))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)

    async def _legacy(self, asked: Asked) -> None:
        for method in asked.params["arguments"]["methods"]:
            self.told.append(await asked.ask(method, {"message": "?", "n": 1.0} if method != "roots/list" else None))
        asked.reply({"content": [{"type": "text", "text": "thanks"}]})

    def _modern(self, asked: Asked) -> None:
        if "inputResponses" in asked.params:
            self.told += [{"result": each} for each in asked.params["inputResponses"].values()]
            self.told.append({"state": asked.params.get("requestState")})
            asked.reply({"content": [{"type": "text", "text": "thanks"}], "resultType": "complete"})
            return
        requests = {
            f"k{number}": {"method": method, "params": {"message": "?"}}
            for number, method in enumerate(asked.params["arguments"]["methods"])
        }
        asked.reply({"resultType": "input_required", "inputRequests": requests, "requestState": "opaque"})


def call(*methods: str) -> Json:
    return {"name": "calc__ask", "arguments": {"methods": list(methods)}}


@requirement("question:legacy")
@pytest.mark.parametrize("method", list(ANSWERS))
async def test_a_legacy_client_is_asked_and_its_answer_goes_up(method: str) -> None:
    upstream = Curious("calc")
    async with proxy_over(upstream) as stage:
        client = stage.client
        client.answers[method] = ANSWERS[method]
        await client.initialize(capabilities=CAN)
        assert said(await client.ask("tools/call", call(method))) == "thanks"
        (question,) = client.questions
    assert question["method"] == method
    assert upstream.told[0]["result"] == ANSWERS[method]
    assert upstream.told[0]["id"] == "calc-1"


@requirement("question:legacy")
async def test_a_refusal_of_the_client_reaches_the_upstream_as_it_is() -> None:
    upstream = Curious("calc")
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize(capabilities=CAN)
        request = client.post("tools/call", call("sampling/createMessage"))
        question = await client.asked("sampling/createMessage")
        error = {"code": -1, "message": "User rejected sampling request"}
        client.write({"jsonrpc": "2.0", "id": question["id"], "error": error})
        await client.result(request)
    assert upstream.told[0]["error"] == error


@requirement("question:capability")
async def test_what_the_client_cannot_do_is_refused_and_not_declared() -> None:
    upstream = Curious("calc")
    async with proxy_over(upstream) as stage:
        await stage.client.initialize(capabilities={"roots": {}})
        await stage.client.ask("tools/call", call("sampling/createMessage"))
        greeting = await upstream.asked("initialize")
    assert upstream.told[0]["error"]["code"] == jsonrpc.METHOD_NOT_FOUND
    assert greeting.params["capabilities"] == {"roots": {}}
    assert stage.client.questions == []


@requirement("question:whose")
async def test_with_two_clients_each_gets_the_question_of_its_own_call_or_none() -> None:
    upstream = Curious("calc")
    upstream.hold("plain")
    async with proxy_over(upstream) as stage:
        one, other = stage.client, stage.connect()
        for client in (one, other):
            client.answers["elicitation/create"] = ANSWERS["elicitation/create"]
            await client.initialize(capabilities=CAN)
        await one.ask("tools/call", call("elicitation/create"))
        assert (len(one.questions), len(other.questions)) == (1, 0)
        # While a call of another client is in flight, it cannot be told whose question it is.
        other.post("tools/call", {"name": "calc__plain"})
        await upstream.called("plain")
        await one.ask("tools/call", call("elicitation/create"))
    assert (len(one.questions), len(other.questions)) == (1, 0)
    assert upstream.told[1]["error"]["message"] == (
        "elicitation/create: it cannot be told which client is meant, because calls of several run in this server; call"
        " again when the others have ended"
    )


@requirement("question:parked")
async def test_a_modern_client_answers_a_legacy_upstream_with_its_retry() -> None:
    upstream = Curious("calc")
    async with proxy_over(upstream) as stage:
        client = stage.client.modern(capabilities=CAN)
        first = await client.ask("tools/call", call("elicitation/create"))
        assert first["resultType"] == "input_required"
        ((key, request),) = first["inputRequests"].items()
        assert request == {"method": "elicitation/create", "params": {"message": "Server 'calc' asks: ?", "n": 1.0}}
        again = {
            **call("elicitation/create"),
            "inputResponses": {key: ANSWERS["elicitation/create"]},
            "requestState": first["requestState"],
        }
        result = await client.ask("tools/call", again)
        assert said(result) == "thanks"
        assert result["resultType"] == "complete"
        outcomes = [each.outcome for each in stage.calls()]
    assert upstream.told[0]["result"] == ANSWERS["elicitation/create"]
    assert len(upstream.calls) == 1
    assert outcomes == ["ok"]


@requirement("question:parked")
async def test_several_rounds_and_several_calls_at_once_find_their_own_answers() -> None:
    upstreams = [Curious("calc"), Curious("other")]
    async with proxy_over(*upstreams) as stage:
        client = stage.client.modern(capabilities=CAN)

        async def converse(server: str, answer: str) -> None:
            params = {"name": f"{server}__ask", "arguments": {"methods": ["elicitation/create"] * 3}}
            result = await client.ask("tools/call", params)
            rounds = 0
            while result["resultType"] == "input_required":
                rounds += 1
                responses = {key: {"action": "accept", "content": {"a": answer}} for key in result["inputRequests"]}
                state = {"inputResponses": responses, "requestState": result["requestState"]}
                result = await client.ask("tools/call", {**params, **state})
            assert rounds == 3

        await asyncio.gather(converse("calc", "one"), converse("other", "two"))
    assert [each["result"]["content"]["a"] for each in upstreams[0].told] == ["one"] * 3
    assert [each["result"]["content"]["a"] for each in upstreams[1].told] == ["two"] * 3


@requirement("question:parked-lost")
async def test_an_upstream_that_died_while_the_client_was_asked_is_not_called_twice() -> None:
    upstream = Curious("calc")
    async with proxy_over(upstream) as stage:
        client = stage.client.modern(capabilities=CAN)
        first = await client.ask("tools/call", call("elicitation/create"))
        upstream.die("was ended by SIGKILL")
        (key,) = first["inputRequests"]
        again = {**call("elicitation/create"), "inputResponses": {key: {}}, "requestState": first["requestState"]}
        result = await client.ask("tools/call", again)
        assert result["isError"] is True
        assert "was ended by SIGKILL" in said(result)
        # The state is used up: the same retry is no new call.
        with pytest.raises(Failed) as expired:
            await client.ask("tools/call", again)
        outcomes = [each.outcome for each in stage.calls()]
    assert expired.value.code == jsonrpc.INVALID_PARAMS
    assert len(upstream.calls) == 1
    assert outcomes == ["lost"]


@requirement("question:parked")
async def test_of_two_retries_of_a_parked_call_the_later_one_goes_on_and_the_other_is_told() -> None:
    upstream = Curious("calc")
    async with proxy_over(upstream) as stage:
        client = stage.client.modern(capabilities=CAN)
        upstream.hold("ask")
        first = client.post("tools/call", call())
        asked = await upstream.called("ask")
        question = asyncio.create_task(asked.ask("elicitation/create", {"message": "?"}))
        parked = await client.result(first)
        (key,) = parked["inputRequests"]
        answers = {"inputResponses": {key: {"action": "accept"}}, "requestState": parked["requestState"]}
        earlier, later = (client.post("tools/call", {**call(), **answers}) for _ in range(2))
        assert "a later retry" in (await client.reply(earlier))["error"]["message"]
        await question
        asked.reply({"content": [{"type": "text", "text": "thanks"}]})
        assert said(await client.result(later)) == "thanks"
    assert upstream.count("tools/call") == 1


@requirement("question:parked-cancelled")
async def test_a_cancelled_retry_cancels_the_parked_call() -> None:
    upstream = Curious("calc")
    async with proxy_over(upstream) as stage:
        client = stage.client.modern(capabilities=CAN)
        first = await client.ask("tools/call", call("elicitation/create", "elicitation/create"))
        again = {**call("elicitation/create"), "inputResponses": {}, "requestState": "not ours"}
        with pytest.raises(Failed):
            await client.ask("tools/call", again)
        other = stage.connect().modern(capabilities=CAN)
        foreign = {**call("elicitation/create"), "inputResponses": {}, "requestState": first["requestState"]}
        with pytest.raises(Failed) as not_theirs:
            await other.ask("tools/call", foreign)
    assert not_theirs.value.code == jsonrpc.INVALID_PARAMS
    assert len(upstream.calls) == 1


@requirement("question:mirror")
@pytest.mark.parametrize("eras", [MODERN])
async def test_a_legacy_client_answers_a_modern_upstream(eras: tuple[Any, ...]) -> None:
    upstream = Curious("calc", eras=eras)
    async with proxy_over(upstream) as stage:
        client = stage.client
        client.answers.update(ANSWERS)
        await client.initialize(capabilities=CAN)
        result = await client.ask("tools/call", call("elicitation/create", "roots/list"))
        methods = [question["method"] for question in client.questions]
        outcomes = [each.outcome for each in stage.calls()]
    assert said(result) == "thanks"
    assert "resultType" not in result
    assert methods == ["elicitation/create", "roots/list"]
    told = [ANSWERS["elicitation/create"], ANSWERS["roots/list"]]
    assert upstream.told == [*({"result": each} for each in told), {"state": "opaque"}]
    assert outcomes == ["ok"]


@requirement("question:mirror")
async def test_what_a_legacy_client_cannot_answer_ends_the_call_with_an_error() -> None:
    upstream = Curious("calc", eras=MODERN)
    async with proxy_over(upstream) as stage:
        await stage.client.initialize(capabilities={})
        reply = await stage.client.reply(stage.client.post("tools/call", call("sampling/createMessage")))
    assert "sampling" in reply["error"]["message"]


@requirement("question:mirror")
async def test_an_upstream_that_never_stops_asking_is_given_up() -> None:
    upstream = Curious("calc", eras=MODERN)
    upstream.scripts["ask"] = upstream._modern
    endless = {"resultType": "input_required", "inputRequests": {"k": {"method": "roots/list"}}, "requestState": "s"}
    upstream.scripts["ask"] = lambda asked: asked.reply(endless)
    async with proxy_over(upstream) as stage:
        stage.client.answers.update(ANSWERS)
        await stage.client.initialize(capabilities=CAN)
        reply = await stage.client.reply(stage.client.post("tools/call", call("roots/list")))
    assert "asked for input" in reply["error"]["message"]
    assert len(upstream.calls) < 20


@requirement("question:modern-verbatim")
async def test_between_modern_client_and_modern_upstream_nothing_of_it_is_ours() -> None:
    upstream = Curious("calc", eras=BOTH)
    async with proxy_over(upstream) as stage:
        client = stage.client.modern(capabilities=CAN)
        first = await client.ask("tools/call", call("elicitation/create"))
        assert first["requestState"] == "opaque"
        assert list(first["inputRequests"]) == ["k0"]
        state = {"inputResponses": {"k0": {"action": "decline"}}, "requestState": "opaque"}
        assert said(await client.ask("tools/call", {**call("elicitation/create"), **state})) == "thanks"
    assert upstream.told == [{"result": {"action": "decline"}}, {"state": "opaque"}]


@requirement("question:roots-changed")
async def test_a_change_of_roots_is_told_to_the_upstreams() -> None:
    upstream = Curious("calc", eras=LEGACY)
    async with proxy_over(upstream) as stage:
        await stage.client.initialize(capabilities=CAN)
        await stage.client.call_tool("calc__plain", {})
        stage.client.notify("notifications/roots/list_changed")
        await upstream.asked("notifications/roots/list_changed")


@requirement("question:ping")
async def test_a_ping_of_an_upstream_is_answered_here() -> None:
    upstream = FakeUpstream("calc", ["add"])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        assert (await upstream.link.ask("ping"))["result"] == {}
    assert stage.client.questions == []


# What a client can, and what it reports while it is asked


@requirement("question:capability-each")
@pytest.mark.parametrize(
    ("declared", "method", "params", "code", "lacks"),
    [
        ({}, "roots/list", None, jsonrpc.METHOD_NOT_FOUND, "roots"),
        ({"roots": {}}, "sampling/createMessage", {}, jsonrpc.METHOD_NOT_FOUND, "sampling"),
        ({"sampling": {}}, "sampling/createMessage", {"tools": []}, jsonrpc.INVALID_PARAMS, "sampling.tools"),
        ({"elicitation": {}}, "elicitation/create", {"mode": "url"}, jsonrpc.INVALID_PARAMS, "elicitation.url"),
        ({"elicitation": {"url": {}}}, "elicitation/create", {}, jsonrpc.INVALID_PARAMS, "elicitation.form"),
        ({"elicitation": {}}, "unheard/of", {}, jsonrpc.METHOD_NOT_FOUND, "not supported"),
    ],
)
@pytest.mark.parametrize("modern", [False, True])
async def test_what_a_client_did_not_declare_is_refused_in_the_words_of_the_specification(
    declared: Json, method: str, params: Json | None, code: int, lacks: str, modern: bool
) -> None:
    upstream = FakeUpstream("calc", ["ask"])
    told: list[Json] = []

    async def ask(asked: Asked) -> None:
        told.append(await asked.ask(method, params))
        asked.reply({"content": []})

    tasks: list[asyncio.Task[None]] = []
    upstream.scripts["ask"] = lambda asked: tasks.append(asyncio.create_task(ask(asked)))
    async with proxy_over(upstream) as stage:
        client = stage.client.modern(capabilities=declared) if modern else stage.client
        if not modern:
            await client.initialize(capabilities=declared)
        result = await client.call_tool("calc__ask", {})
    assert result["content"] == []
    assert client.questions == []
    assert told[0]["error"]["code"] == code
    assert lacks in told[0]["error"]["message"]


@requirement("question:capability-each")
@on_the_real_clock
async def test_over_http_every_client_is_asked_what_it_can_answer_and_refused_what_it_cannot() -> None:
    upstream = Curious("calc")
    able = {"sampling": {"tools": {}}, "elicitation": {}}
    async with http_over(upstream) as (_, http):
        one = await Caller(http, capabilities=able).greet("able")
        other = await Caller(http, capabilities={"roots": {}}).greet("unable")
        for caller in (one, other):
            caller.answers |= ANSWERS
        for caller in (one, other, one):
            await caller.ask("tools/call", call("elicitation/create", "sampling/createMessage", "roots/list"))
        declared = (await upstream.asked("initialize")).params["capabilities"]
    elicited, sampled, refused, *second = upstream.told
    assert (elicited["result"], sampled["result"]) == (
        ANSWERS["elicitation/create"],
        ANSWERS["sampling/createMessage"],
    )
    assert "roots" in refused["error"]["message"]
    assert [("error" in each, each.get("result")) for each in second[:3]] == [
        (True, None), (True, None), (False, ANSWERS["roots/list"])
    ]  # fmt: skip
    assert ["error" in each for each in second[3:]] == [False, False, True]
    assert [question["method"] for question in one.questions] == ["elicitation/create", "sampling/createMessage"] * 2
    assert [question["method"] for question in other.questions] == ["roots/list"]
    # One connection serves whoever is still to come, so it is told what any of them may have.
    assert declared == {
        "sampling": {"tools": {}, "context": {}},
        "elicitation": {"form": {}, "url": {}},
        "roots": {"listChanged": True},
    }


@requirement("question:capability-each")
async def test_what_no_window_can_is_not_promised_to_a_server() -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        for client in (stage.client, stage.connect()):
            await client.initialize(capabilities={})
        assert stage.app.clients.capabilities("legacy") == {}


@requirement("question:capability-each")
@pytest.mark.parametrize("left", ["nobody", "a shell"])
async def test_no_server_is_started_again_because_the_last_window_has_gone(left: str) -> None:
    """What any client may do is declared to servers that start then. Nobody has come who can do it."""
    upstream = FakeUpstream("calc", ["add"])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize(capabilities={})
        await upstream.asked("tools/list")
        await asyncio.sleep(5)
        starts = upstream.starts
        if left == "a shell":
            await stage.connect().initialize(capabilities={"experimental": {SHELL: {}}})
        stage.app.clients.remove(next(iter(stage.app.clients)))
        await asyncio.sleep(5)
        assert upstream.starts == starts
        await stage.connect().initialize(capabilities={"elicitation": {}})
        await asyncio.sleep(5)
        assert upstream.starts == starts + 1, "now somebody has come"


@requirement("question:whose")
@on_the_real_clock
async def test_where_several_people_may_come_no_server_is_told_the_folders_of_one() -> None:
    """It would keep them, and show them to the next or work in them for the next."""
    upstream = Curious("calc")
    tokens = [{"name": name, "token": f"{name} holds this token of 32 letters", "profiles": ["*"]} for name in "ab"]
    async with http_over(upstream, insecure_loopback=True, tokens=tokens) as (stage, http):
        caller = await Caller(http, capabilities={"roots": {}}).greet("ann")
        caller.answers |= ANSWERS
        await caller.ask("tools/call", call("roots/list"))
        declared = (await upstream.asked("initialize")).params["capabilities"]
        for client in stage.app.clients:
            stage.app.clients.remove(client)
        assert "roots" not in stage.app.clients.capabilities("legacy"), "nobody is there, and several may come"
    assert "roots" not in declared and caller.questions == []
    assert "several people" in upstream.told[0]["error"]["message"]


@requirement("question:capability-each", "question:whose")
@on_the_real_clock
async def test_over_http_clients_that_are_asked_at_once_answer_for_their_own_calls_alone() -> None:
    upstreams = [Curious(f"u{number}") for number in range(8)]
    async with http_over(*upstreams) as (_, http):
        callers = []
        for number in range(8):
            able = number % 2 == 0
            caller = await Caller(http, capabilities={"elicitation": {}} if able else {}).greet(f"c{number}")
            caller.answers["elicitation/create"] = {"action": "accept", "content": {"who": str(number)}}
            callers.append(caller)
        asks = [
            caller.ask("tools/call", {"name": f"u{number}__ask", "arguments": {"methods": ["elicitation/create"] * 3}})
            for number, caller in enumerate(callers)
        ]
        await asyncio.gather(*asks)
    for number, (caller, upstream) in enumerate(zip(callers, upstreams, strict=True)):
        if number % 2:
            assert [each["error"]["code"] for each in upstream.told] == [jsonrpc.METHOD_NOT_FOUND] * 3
            assert caller.questions == []
        else:
            assert [each["result"]["content"]["who"] for each in upstream.told] == [str(number)] * 3
            assert len(caller.questions) == 3


@requirement("question:capability-each")
async def test_what_belongs_to_no_request_is_not_asked_of_a_modern_client() -> None:
    upstream = FakeUpstream("calc", ["add"])
    async with proxy_over(upstream) as stage:
        client = stage.client.modern(capabilities=CAN)
        await client.call_tool("calc__add", {})
        reply = await upstream.link.ask("roots/list")
    assert reply["error"]["code"] == jsonrpc.METHOD_NOT_FOUND
    assert client.questions == []


@requirement("question:progress")
async def test_what_a_client_reports_while_it_is_asked_reaches_the_upstream_under_its_own_token() -> None:
    upstreams = [FakeUpstream("one", ["ask"]), FakeUpstream("other", ["ask"])]
    params = {"messages": [], "maxTokens": 5, "_meta": {"progressToken": 7, "vendor": 1.0}}
    tasks = []

    async def ask(asked: Asked) -> None:
        await asked.ask("sampling/createMessage", params)
        asked.reply({"content": []})

    for upstream in upstreams:
        upstream.scripts["ask"] = lambda asked: tasks.append(asyncio.create_task(ask(asked)))
    async with proxy_over(*upstreams) as stage:
        client = stage.client
        await client.initialize(capabilities=CAN)
        calls = [client.post("tools/call", {"name": f"{upstream.name}__ask"}) for upstream in upstreams]
        questions = [await client.asked("sampling/createMessage", count) for count in (1, 2)]
        tokens = [question["params"]["_meta"]["progressToken"] for question in questions]
        # Upstreams choose their tokens alike; what the client is given tells them apart.
        assert tokens[0] != tokens[1]
        kept = {key: value for key, value in questions[0]["params"].items() if key != "systemPrompt"}
        meta = {"progressToken": tokens[0], "vendor": 1.0, "foretool/server": "one"}
        assert kept == {**params, "_meta": meta}
        client.notify("notifications/progress", {"progressToken": tokens[1], "progress": 0.5, "message": "thinking"})
        client.notify("notifications/progress", {"progressToken": "unheard of", "progress": 1})
        reported = await upstreams[1].asked("notifications/progress")
        for question, request in zip(questions, calls, strict=True):
            client.respond(question, ANSWERS["sampling/createMessage"])
            await client.result(request)
        # Over with the question.
        client.notify("notifications/progress", {"progressToken": tokens[1], "progress": 0.9})
        await client.ask("ping")
    assert reported.params == {"progressToken": 7, "progress": 0.5, "message": "thinking"}
    assert [upstream.count("notifications/progress") for upstream in upstreams] == [0, 1]


@requirement("question:progress")
@pytest.mark.parametrize("eras", [LEGACY, MODERN])
async def test_where_an_era_has_no_such_progress_the_client_is_given_no_token(eras: tuple[Any, ...]) -> None:
    upstream = FakeUpstream("calc", ["ask"], eras)
    params = {"message": "?", "_meta": {"progressToken": 7, "vendor": 1.0}}
    tasks = []
    request = {"method": "elicitation/create", "params": params}

    async def ask(asked: Asked) -> None:
        await asked.ask("elicitation/create", params)
        asked.reply({"content": []})

    def script(asked: Asked) -> None:
        if "inputResponses" in asked.params:
            asked.reply({"content": [], "resultType": "complete"})
        elif eras == MODERN:
            asked.reply({"resultType": "input_required", "inputRequests": {"k": request}, "requestState": "s"})
        else:
            tasks.append(asyncio.create_task(ask(asked)))

    upstream.scripts["ask"] = script
    async with proxy_over(upstream) as stage:
        client = stage.client
        if eras == MODERN:
            client.answers |= ANSWERS
            await client.initialize(capabilities=CAN)
            await client.call_tool("calc__ask", {})
            (question,) = client.questions
        else:
            first = await client.modern(capabilities=CAN).call_tool("calc__ask", {})
            ((key, question),) = first["inputRequests"].items()
            again = {"inputResponses": {key: ANSWERS["elicitation/create"]}, "requestState": first["requestState"]}
            await client.ask("tools/call", {"name": "calc__ask", "arguments": {}, **again})
    assert question["params"] == {"message": "Server 'calc' asks: ?", "_meta": {"vendor": 1.0}}


@requirement("question:patience")
async def test_a_call_does_not_time_out_while_its_client_is_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    upstream = Curious("calc", entry={"timeout_s": 5})
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize(capabilities=CAN)
        request = client.post("tools/call", call("elicitation/create"))
        question = await client.asked("elicitation/create")
        now += 300.0
        stage.app.tick()
        client.respond(question, ANSWERS["elicitation/create"])
        assert said(await client.result(request)) == "thanks"
        # Somebody who never answers does not keep the call for ever.
        request = client.post("tools/call", call("elicitation/create"))
        await client.asked("elicitation/create", 2)
        now += 700.0
        stage.app.tick()
        assert (await client.result(request))["isError"] is True


@requirement("question:patience")
async def test_a_call_does_not_time_out_while_its_user_is_at_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    upstream = FakeUpstream("calc", ["sign"], entry={"timeout_s": 5})
    params = {"mode": "url", "url": "https://example.org", "elicitationId": "e1", "message": "Sign in"}
    answered: list[asyncio.Task[Json]] = []
    upstream.scripts["sign"] = lambda asked: answered.append(
        asyncio.ensure_future(asked.ask("elicitation/create", params))
    )
    async with proxy_over(upstream) as stage:
        client = stage.client
        client.answers["elicitation/create"] = {"action": "accept"}
        await client.initialize(capabilities={"elicitation": {"url": {}}})
        request = client.post("tools/call", {"name": "calc__sign"})
        asked = await upstream.called("sign")
        await answered[0]
        now += 300.0
        stage.app.tick()
        upstream.link.say("notifications/elicitation/complete", {"elicitationId": "e1"})
        await client.heard("notifications/elicitation/complete")
        now += 4.0
        stage.app.tick()
        asked.reply({"content": [{"type": "text", "text": "signed in"}]})
        assert said(await client.result(request)) == "signed in"
        # Whoever never comes back from there does not keep the call for ever.
        request = client.post("tools/call", {"name": "calc__sign"})
        await upstream.called("sign", 2)
        await answered[1]
        now += 606.0
        stage.app.tick()
        result = await client.result(request)
    assert "its user did not do what it asked for within 600 s" in said(result)


@requirement("question:patience")
async def test_of_several_calls_none_times_out_while_it_cannot_be_told_which_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    upstream = Curious("calc", entry={"timeout_s": 5})
    upstream.hold("plain")
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize(capabilities=CAN)
        asking = client.post("tools/call", call("elicitation/create"))
        question = await client.asked("elicitation/create")
        plain = client.post("tools/call", {"name": "calc__plain"})
        held = await upstream.called("plain")
        second = client.post("tools/call", call("sampling/createMessage"))
        other = await client.asked("sampling/createMessage")
        now += 300.0
        stage.app.tick()
        client.respond(other, ANSWERS["sampling/createMessage"])
        assert said(await client.result(second)) == "thanks"
        now += 4.0
        stage.app.tick()
        client.respond(question, ANSWERS["elicitation/create"])
        assert said(await client.result(asking)) == "thanks"
        held.reply({"content": [{"type": "text", "text": "done"}]})
        assert said(await client.result(plain)) == "done"


@requirement("question:patience")
@pytest.mark.parametrize("eras", [LEGACY, MODERN])
async def test_a_question_that_nobody_answers_is_taken_back_and_the_call_told(
    eras: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    upstream = Curious("calc", eras=eras, entry={"timeout_s": 5})
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize(capabilities=CAN)
        request = client.post("tools/call", call("elicitation/create"))
        question = await client.asked("elicitation/create")
        now += 601.0
        stage.app.tick()
        reply = await client.reply(request)
        taken = await client.heard("notifications/cancelled")
    assert taken == {"requestId": question["id"], "reason": "nobody answered within 600 s"}
    if eras == MODERN:
        assert reply["error"]["message"] == "the client did not answer: nobody answered within 600 s"
    else:
        assert said(reply["result"]) == "thanks"
        assert upstream.told[0]["error"]["message"] == "nobody answered within 600 s"
