"""Clients that share one process of a server, which names no request over stdio: what one of them left behind, what it
sent by the way, and what comes late reaches no other."""

from __future__ import annotations

import asyncio
import json
from random import Random

import pytest
from fakes import MODERN, Asked, FakeClient, FakeLink, FakeUpstream, Json, Stage, proxy_over, said, set_settings, text
from requirements import requirement
from waiting import WAIT_S, call_slow

from foretool.server.protocol import jsonrpc, versions

pytestmark = pytest.mark.anyio

CAN: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
MESSAGE = "notifications/message"
ENTRY: Json = {"level": "warning", "data": "of Ann"}
FEATURES: Json = {"tools": {}, "logging": {}, "completions": {}, "prompts": {}, "resources": {"subscribe": True}}


def shared() -> FakeUpstream:
    """A server whose calls wait."""
    upstream = FakeUpstream("calc", ["slow", "other"], capabilities=FEATURES)
    for name in ("slow", "other"):
        upstream.hold(name)
    upstream.scripts["prompts/list"] = lambda asked: asked.reply({"prompts": [{"name": "p"}]})
    upstream.scripts["resources/list"] = lambda asked: asked.reply({"resources": [{"uri": "memo://x", "name": "x"}]})
    upstream.scripts["resources/templates/list"] = lambda asked: asked.reply({"resourceTemplates": []})
    return upstream


async def ann_and_ben(stage: Stage, *, windows: bool = False) -> tuple[FakeClient, FakeClient]:
    """Two people with a token each, or two windows."""
    assert stage.client._front is not None
    stage.client._front.close()
    found = [FakeClient(stage.app, principal="" if windows else name, folder=f"/{name}" if windows else "")
             for name in ("ann", "ben")]  # fmt: skip
    for client in found:
        await client.initialize(capabilities=CAN)
        await client.ask("logging/setLevel", {"level": "debug"})
        await client.ask("prompts/list")
        await client.ask("resources/list")
    return found[0], found[1]


async def call(client: FakeClient, upstream: FakeUpstream, name: str) -> tuple[int, Asked]:
    ident = client.post("tools/call", {"name": f"calc__{name}"})
    return ident, await upstream.called(name)


def leave(client: FakeClient) -> None:
    assert client._front is not None
    client._front.close()


async def asks(link: FakeLink, message: str = "Of Ann?") -> asyncio.Task[Json]:
    return asyncio.create_task(link.ask("elicitation/create", {"message": message}))


async def heard_nothing(client: FakeClient) -> bool:
    """Whether a client was asked nothing and told of nothing, once all that was said has arrived."""
    for _ in range(3):
        await client.ask("ping")
    return not client.questions and client.count(MESSAGE) == 0


@requirement("question:whose", "log:whose", "log:shared")
@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("how", ["in flight", "answered"])
async def test_what_a_server_says_of_somebody_who_has_left_reaches_nobody_who_is_still_there(
    how: str, windows: bool
) -> None:
    upstream = shared()
    async with proxy_over(upstream) as stage:
        ann, ben = await ann_and_ben(stage, windows=windows)
        ident, asked = await call(ann, upstream, "slow")
        if how == "answered":  # the server works on in the background
            asked.reply(text("begun"))
            await ann.result(ident)
        leave(ann)
        if not windows:  # windows have one credential
            upstream.link.say(MESSAGE, ENTRY)
        told = await (await asks(upstream.link))
        assert "cannot be told which client" in told["error"]["message"]
        assert await heard_nothing(ben)


@requirement("question:whose")
async def test_who_has_been_alone_with_a_server_is_asked_also_in_the_course_of_no_call() -> None:
    upstream = shared()
    async with proxy_over(upstream) as stage:
        ann, ben = await ann_and_ben(stage)
        leave(ann)  # without a call
        _, asked = await call(ben, upstream, "slow")
        asked.reply(text("done"))
        question = await asks(upstream.link, "Of Ben?")
        ben.respond(await ben.asked("elicitation/create"), {"action": "decline"})
        assert (await question)["result"] == {"action": "decline"}
        upstream.link.say(MESSAGE, ENTRY)
        await ben.heard(MESSAGE)


BY_THE_WAY: dict[str, Json] = {
    "completion/complete": {"ref": {"type": "ref/prompt", "name": "calc__p"}, "argument": {"name": "a", "value": "v"}},
    "resources/subscribe": {"uri": "memo://x"},
    "resources/read": {"uri": "memo://x"},
    "prompts/get": {"name": "calc__p"},
}


@requirement("log:whose", "log:shared")
@pytest.mark.parametrize("method", list(BY_THE_WAY))
@pytest.mark.parametrize("windows", [False, True])
async def test_a_log_entry_may_tell_of_whatever_another_client_has_sent(method: str, windows: bool) -> None:
    upstream = shared()
    upstream.hold(method)
    async with proxy_over(upstream) as stage:
        ann, ben = await ann_and_ben(stage, windows=windows)
        ann.post(method, BY_THE_WAY[method])
        await upstream.asked(method)
        upstream.link.say(MESSAGE, ENTRY)  # hers alone is in flight
        await ann.heard(MESSAGE)
        await call(ben, upstream, "other")
        upstream.link.say(MESSAGE, ENTRY)
        assert await heard_nothing(ben)
    assert ann.count(MESSAGE) == 1


@requirement("log:whose", "question:whose")
async def test_what_comes_on_the_stream_of_a_request_that_is_over_goes_nowhere() -> None:
    upstream = shared()
    async with proxy_over(upstream) as stage:
        ann, ben = await ann_and_ben(stage)
        ident, asked = await call(ann, upstream, "slow")
        asked.reply(text("done"))
        await ann.result(ident)
        leave(ann)
        await call(ben, upstream, "other")
        assert isinstance(asked.message.id, int)
        say_on_stream(upstream.link, asked.message.id, {"method": MESSAGE, "params": ENTRY})
        question = {"id": "q", "method": "elicitation/create", "params": {"message": "Of Ann?"}}
        say_on_stream(upstream.link, asked.message.id, question)
        assert await heard_nothing(ben)


def say_on_stream(link: FakeLink, request: int | None, message: Json) -> None:
    """As a server over HTTP does, on the stream of one request of ours, or on the one that belongs to none."""
    link.receiver.on_message(jsonrpc.decode(json.dumps({"jsonrpc": "2.0", **message}).encode()), request)


@requirement("log:whose", "question:whose", "call:progress")
async def test_a_process_that_has_ended_says_nothing_more_although_the_next_one_counts_from_the_beginning() -> None:
    upstream = shared()
    async with proxy_over(upstream) as stage:
        ann, ben = await ann_and_ben(stage)
        ident, _ = await call(ann, upstream, "slow")
        old = upstream.link
        lost = await asks(old)
        asked_ann = await ann.asked("elicitation/create")
        old.die()
        await ann.reply(ident)
        own, asked = await call(ben, upstream, "other")
        late: list[Json] = [
            {"id": asked.message.id, "result": text("of Ann")},
            {"method": "notifications/progress", "params": {"progressToken": asked.message.id, "progress": 1}},
            {"method": MESSAGE, "params": ENTRY},
            {"id": "calc-1", "method": "elicitation/create", "params": {"message": "Of Ann?"}},
        ]
        for message in late:
            old.receiver.on_message(jsonrpc.decode(json.dumps({"jsonrpc": "2.0", **message}).encode()), None)
        assert await heard_nothing(ben)
        question = await asks(upstream.link, "Of Ben?")  # by the id that the old process had used
        asked_ben = await ben.asked("elicitation/create")
        ann.respond(asked_ann, {"action": "accept", "content": {"of": "Ann"}})
        ben.respond(asked_ben, {"action": "accept", "content": {"of": "Ben"}})
        assert (await question)["result"]["content"] == {"of": "Ben"}
        asked.reply(text("of Ben"))
        assert said(await ben.result(own)) == "of Ben"
        lost.cancel()


@requirement("question:whose", "question:withdrawn")
async def test_an_answer_to_a_question_goes_to_no_other_question_whose_id_its_server_uses_again() -> None:
    upstream = shared()
    async with proxy_over(upstream) as stage:
        ann, ben = await ann_and_ben(stage)
        ident, asked = await call(ann, upstream, "slow")
        lost = await asks(upstream.link)
        of_ann = await ann.asked("elicitation/create")
        asked.reply(text("without waiting for the answer"))
        await ann.result(ident)
        await call(ben, upstream, "other")
        upstream.link._last = 0
        question = await asks(upstream.link, "Of Ben?")
        of_ben = await ben.asked("elicitation/create")
        assert (await ann.heard("notifications/cancelled"))["requestId"] == of_ann["id"]
        ann.respond(of_ann, {"action": "accept", "content": {"of": "Ann"}})
        for wrong in (of_ben["id"], "calc-1", 1, 1.0, True, 10**40, None, []):
            ann.write({"jsonrpc": "2.0", "id": wrong, "result": {"action": "accept", "content": {"of": "Ann"}}})
        await ann.ask("ping")
        assert not question.done()
        for content in ({"of": "Ben"}, {"of": "nobody: an answer counts once"}):
            ben.respond(of_ben, {"action": "accept", "content": content})
        assert (await question)["result"]["content"] == {"of": "Ben"}
        lost.cancel()


@requirement("limits:size")
async def test_an_answer_over_the_size_limit_that_nobody_waits_for_is_not_said_to_be_another_clients() -> None:
    upstream = shared()
    async with proxy_over(upstream) as stage:
        ann, ben = await ann_and_ben(stage)
        given_up, _ = await call(ann, upstream, "slow")
        ann.notify("notifications/cancelled", {"requestId": given_up})
        own, asked = await call(ben, upstream, "other")
        await asyncio.sleep(60)  # whatever foretool itself has asked for is over
        upstream.link.receiver.on_too_large(None, 1 << 20)  # its id comes last
        asked.reply(text("of Ben"))
        assert said(await ben.result(own)) == "of Ben"


@requirement("trust:data:past-values")
async def test_no_answer_shows_a_name_that_another_client_made_up_for_an_argument() -> None:
    schema = {"type": "object", "properties": {"customer": {"type": "string"}}, "additionalProperties": True}
    store = {"name": "store", "description": "Store facts about a customer", "inputSchema": schema}
    async with proxy_over(FakeUpstream("crm", [store])) as stage:
        ann, ben = (FakeClient(stage.app, principal=name) for name in ("ann", "ben"))
        for client in (ann, ben):
            await client.initialize()
        for _ in range(3):
            await ann.call_tool("crm__store", {"customer": "c", "merger_with_acme": True})
        found = said(await ben.call_tool("discover_tools", {"task": "store facts about a customer"}))
    assert "crm__store" in found and "acme" not in found


@requirement("log:whose", "question:whose", "timeout:call")
async def test_what_a_server_says_of_a_call_that_has_timed_out_goes_to_no_other_client() -> None:
    upstream = shared()
    upstream.entry = {"timeout_s": 0.000001}
    async with proxy_over(upstream) as stage:
        ann, ben = await ann_and_ben(stage)
        late, asked = await call(ann, upstream, "slow")
        assert "no answer within" in said(await ann.result(late))
        stage.app.upstreams["calc"].timeout_s = 0
        own, of_ben = await call(ben, upstream, "other")
        upstream.link.say(MESSAGE, ENTRY)
        assert "error" in await (await asks(upstream.link))
        assert await heard_nothing(ben)
        of_ben.reply(text("of Ben"))
        asked.reply(text("of Ann"))
        assert said(await ben.result(own)) == "of Ben"


@requirement("question:whose")
@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("answer", [text("of Ann"), None])
async def test_a_cancelled_call_of_another_keeps_questions_back_until_its_answer_comes_and_they_say_for_how_long(
    answer: Json | None, windows: bool
) -> None:
    upstream = shared()
    async with proxy_over(upstream) as stage:
        ann, ben = await ann_and_ben(stage, windows=windows)
        given_up, of_ann = await call(ann, upstream, "slow")
        ann.notify("notifications/cancelled", {"requestId": given_up})
        own, of_ben = await call(ben, upstream, "other")
        told = (await (await asks(upstream.link)))["error"]["message"]
        assert told == (
            "elicitation/create: it cannot be told which client is meant, because a call that another client has "
            "cancelled, or that timed out, may still run in this server; call again in 30 s"
        )
        assert await heard_nothing(ben)
        of_ann.reply(answer) if answer else of_ann.fail(0, "Request cancelled")
        question = await asks(upstream.link, "Of Ben?")
        ben.respond(await ben.asked("elicitation/create"), {"action": "decline"})
        assert (await question)["result"] == {"action": "decline"}
        of_ben.reply(text("of Ben"))
        assert said(await ben.result(own)) == "of Ben"


@requirement("call:long:whose", "question:whose", "log:whose")
async def test_a_call_that_goes_on_without_its_client_says_nothing_to_another() -> None:
    upstream = shared()
    async with proxy_over(upstream, call_wait_s=WAIT_S) as stage:
        ann, ben = await ann_and_ben(stage)
        _, ident = await call_slow(stage, ann)
        set_settings(stage, call_wait_s=60)
        leave(ann)
        question = await asks(upstream.link)
        upstream.link.say(MESSAGE, ENTRY)
        own, of_ben = await call(ben, upstream, "other")
        upstream.link.say(MESSAGE, ENTRY)
        (await upstream.called("slow")).reply(text("of Ann"))
        assert await heard_nothing(ben)
        for more in ({}, {"cancel": True}):
            refused = {"name": "call_result", "arguments": {"id": ident, **more}}
            assert "of Ann" not in said(await ben.call_tool("call_tool", refused))
        of_ben.reply(text("of Ben"))
        assert said(await ben.result(own)) == "of Ben"
        question.cancel()


@requirement("call:cancel-one")
@pytest.mark.parametrize("spelling", ["{}", '"{}"', "{}.0", "{}e0", '"0{}"', "null", "true"])
async def test_a_late_answer_is_not_taken_for_that_of_another_call_however_its_id_is_spelt(spelling: str) -> None:
    upstream = shared()
    async with proxy_over(upstream) as stage:
        ann, ben = await ann_and_ben(stage)
        given_up, asked = await call(ann, upstream, "slow")
        ann.notify("notifications/cancelled", {"requestId": given_up})
        own, of_ben = await call(ben, upstream, "other")
        ident = spelling.format(asked.message.id)
        upstream.link.deliver(b'{"jsonrpc":"2.0","id":%s,"result":{"content":[]}}' % ident.encode())
        await ben.ask("ping")
        of_ben.reply(text("of Ben"))
        assert said(await ben.result(own)) == "of Ben"


@requirement("log:whose")
@pytest.mark.parametrize("speaks_tasks", [False, True])
async def test_what_a_server_says_of_a_task_that_goes_on_goes_to_no_other_client(speaks_tasks: bool) -> None:
    declared: Json = {"extensions": {versions.TASKS: {}}}
    upstream = FakeUpstream("calc", ["slow", "other"], MODERN, capabilities={"tools": {}, "logging": {}, **declared})
    made = {"taskId": "t", "status": "working", "ttlMs": 60_000, "pollIntervalMs": 500}
    upstream.scripts["slow"] = lambda asked: asked.reply({"resultType": "task", **made})
    upstream.scripts["tasks/get"] = lambda asked: asked.reply({"resultType": "complete", **made})
    upstream.hold("other")
    level = {versions.META_LOG_LEVEL: "debug"}
    async with proxy_over(upstream) as stage:
        ann = FakeClient(stage.app, principal="ann").modern("a", capabilities=declared if speaks_tasks else {}, **level)
        ben = FakeClient(stage.app, principal="ben").modern("b", **level)
        begun, _ = await call(ann, upstream, "slow")
        if speaks_tasks:
            await ann.ask("tasks/get", {"taskId": (await ann.result(begun))["taskId"]})
        own, asked = await call(ben, upstream, "other")
        upstream.link.say(MESSAGE, ENTRY)
        asked.reply(text("of Ben"))
        await ben.result(own)
    assert ben.count(MESSAGE) == 0


class Liar:
    """A server with two people's calls that says, of whose call anything is, and sends it by every way there is."""

    def __init__(self, link: FakeLink, choose: Random) -> None:
        self.link, self.choose = link, choose
        self.open: list[tuple[str, Asked]] = []
        """The calls in flight, and whose they are."""
        self.answers: list[tuple[str, asyncio.Future[Json]]] = []

    def lie(self) -> None:
        """Say something about one call, on its own stream, on that of another, or on none."""
        whose, asked = self.choose.choice(self.open)
        _, other = self.choose.choice(self.open)
        mine, theirs = asked.message.id, other.message.id
        about: Json = {"text": f"of {whose}", "data": f"of {whose}", "message": f"of {whose}", "level": "error"}
        claims = {"relatedRequestId": theirs, "io.modelcontextprotocol/related-task": {"taskId": str(theirs)}}
        if self.choose.random() < 0.5:
            about["_meta"] = {**claims, "progressToken": theirs, "foretool/server": "git"}
        what = self.choose.choice([
            {"method": MESSAGE, "params": about},
            {"method": "notifications/progress", "params": {**about, "progressToken": mine, "progress": 1}},
            {"method": "notifications/resources/updated", "params": {**about, "uri": f"memo://{whose}"}},
            {"method": "notifications/elicitation/complete", "params": {**about, "elicitationId": f"e-{whose}"}},
            {"method": "notifications/cancelled", "params": {"requestId": f"calc-{self.choose.randrange(9)}"}},
            {"method": "notifications/tasks/status", "params": {**about, "taskId": str(theirs)}},
            {"method": "notifications/made/up", "params": about},
            {"id": self.choose.choice([theirs, str(mine), f"calc-{self.choose.randrange(9)}"]), "method": "ping"},
        ])  # fmt: skip
        stream = self.choose.choice([mine, None]) if what["method"] != "notifications/progress" else theirs
        say_on_stream(self.link, stream if isinstance(stream, int) else None, what)

    def ask(self) -> None:
        """Ask about one call, on its own stream or on none."""
        whose, asked = self.choose.choice(self.open)
        said_of = f"of {whose}"
        form: Json = {"message": said_of, "requestedSchema": {"type": "object", "properties": {}}}
        place: Json = {"message": said_of, "mode": "url", "url": "https://x.example", "elicitationId": f"e-{whose}"}
        sampled: Json = {"messages": [{"role": "user", "content": {"type": "text", "text": said_of}}], "maxTokens": 1}
        more = self.choose.choice([form, place, sampled])
        method = "sampling/createMessage" if more is sampled else "elicitation/create"
        ident = f"q-{whose}-{self.choose.randrange(3)}"
        reply = self.link._replies[ident] = asyncio.get_running_loop().create_future()
        self.answers.append((whose, reply))
        stream = self.choose.choice([asked.message.id, None])
        say_on_stream(self.link, stream if isinstance(stream, int) else None,
                              {"id": ident, "method": method, "params": more})  # fmt: skip


@requirement("question:whose", "log:whose", "call:progress")
@pytest.mark.parametrize("windows", [False, True])
@pytest.mark.parametrize("seed", range(6))
async def test_whatever_a_server_says_while_calls_of_two_overlap_nobody_sees_what_is_of_the_other(
    windows: bool, seed: int
) -> None:
    choose, upstream = Random(seed), shared()
    async with proxy_over(upstream) as stage:
        people = dict(zip(("ann", "ben"), await ann_and_ben(stage, windows=windows), strict=True))
        for name, client in people.items():
            for method in ("elicitation/create", "sampling/createMessage"):
                client.answers[method] = {"action": "accept", "content": {"of": name}}
            await client.ask("resources/subscribe", {"uri": "memo://x"})
        liar, waiting, count = Liar(upstream.link, choose), [], {"slow": 0, "other": 0}
        for _ in range(120):
            name = choose.choice(["ann", "ben"])
            if len(liar.open) < 2 or choose.random() < 0.1:
                tool = choose.choice(["slow", "other"])
                count[tool] += 1
                params = {"name": f"calc__{tool}", "_meta": {"progressToken": 1}}
                waiting.append((name, people[name].post("tools/call", params)))
                liar.open.append((name, await upstream.called(tool, count[tool])))
            elif choose.random() < 0.15:
                whose, asked = liar.open.pop(choose.randrange(len(liar.open)))
                asked.reply(text(f"of {whose}", _meta={"progressToken": 1, "related": f"of {whose}"}))
            elif {whose for whose, _ in liar.open} == {"ann", "ben"}:
                choose.choice([liar.lie, liar.lie, liar.ask])()
            await people[name].ask("ping")
        for whose, asked in liar.open:
            asked.reply(text(f"of {whose}"))
        for name, ident in waiting:
            assert said(await people[name].result(ident)).startswith(f"of {name}")
    for name, other in (("ann", "ben"), ("ben", "ann")):
        assert f"of {other}" not in str(people[name].messages)
    answered = [(whose, reply.result()) for whose, reply in liar.answers if reply.done()]
    assert all(reply["result"]["content"]["of"] == whose for whose, reply in answered if "result" in reply)
    assert any("result" in reply for _, reply in answered)
