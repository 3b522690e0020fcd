"""What either side ends early: questions and subscriptions; and whose a log entry is, and what is not forwarded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import BOTH, LEGACY, LIST_CHANGED, MODERN, Asked, FakeUpstream, Json, proxy_over, tool
from requirements import requirement

from foretool.server.protocol import jsonrpc, versions

pytestmark = pytest.mark.anyio

CAN: Json = {"elicitation": {"form": {}, "url": {}}, "sampling": {}}
CANCELLED = "notifications/cancelled"


class Asking(FakeUpstream):
    """Its tool `ask` asks the client and waits; `told` is what it heard."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.tools = ["ask", "add"]
        self.params: Json = {"message": "?"}
        self.told: list[Json] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.scripts["ask"] = lambda asked: self.tasks.append(asyncio.create_task(self._ask(asked)))

    async def _ask(self, asked: Asked) -> None:
        self.told.append(await asked.ask("elicitation/create", self.params))
        asked.reply({"content": []})


@requirement("question:withdrawn")
async def test_a_question_that_its_upstream_takes_back_is_taken_back_from_the_client() -> None:
    upstream = Asking("calc")
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize(capabilities=CAN)
        call = client.post("tools/call", {"name": "calc__ask"})
        question = await client.asked("elicitation/create")
        upstream.link.say(CANCELLED, {"requestId": "unknown"})
        upstream.link.say(CANCELLED, {"requestId": "calc-1", "reason": "too late"})
        taken = await client.heard(CANCELLED)
        client.respond(question, {"action": "accept"})
        (await upstream.called("ask")).reply({"content": []})
        assert (await client.result(call)) == {"content": []}
        for task in upstream.tasks:
            task.cancel()
    assert taken == {"requestId": question["id"], "reason": "too late"}
    assert client.count(CANCELLED) == 1
    assert upstream.told == []


@requirement("question:withdrawn")
async def test_an_answer_to_a_parked_question_that_was_taken_back_goes_nowhere() -> None:
    upstream = Asking("calc")
    async with proxy_over(upstream) as stage:
        client = stage.client.modern(capabilities=CAN)
        first = await client.call_tool("calc__ask")
        (key,) = first["inputRequests"]
        upstream.link.say(CANCELLED, {"requestId": "calc-1"})
        await client.call_tool("calc__add")
        answers = {"inputResponses": {key: {"action": "accept"}}, "requestState": first["requestState"]}
        again = client.post("tools/call", {"name": "calc__ask", **answers})
        await client.call_tool("calc__add")
        (await upstream.called("ask")).reply({"content": []})
        await client.result(again)
        for task in upstream.tasks:
            task.cancel()
    assert upstream.told == []


@requirement("question:elsewhere")
async def test_the_end_of_an_elicitation_by_url_is_told_to_the_client_that_was_sent_there() -> None:
    upstream = Asking("calc")
    upstream.params = {"mode": "url", "url": "https://example.org", "elicitationId": "e1", "message": "?"}
    ended = "notifications/elicitation/complete"
    async with proxy_over(upstream) as stage:
        one, other = stage.client, stage.connect()
        for client in (one, other):
            client.answers["elicitation/create"] = {"action": "accept"}
            await client.initialize(capabilities=CAN)
        await one.call_tool("calc__ask")
        upstream.link.say(ended, {"elicitationId": "e1"})
        assert await one.heard(ended) == {"elicitationId": "e1"}
    assert other.count(ended) == 0


@requirement("question:elsewhere")
@pytest.mark.parametrize("name", ["calc__sign", "call_tool_write"])
async def test_the_end_of_what_an_error_sent_clients_to_is_told_to_each_for_its_own_id(name: str) -> None:
    upstream = FakeUpstream("calc", ["sign"])
    ended = "notifications/elicitation/complete"

    def refuse(asked: Asked) -> None:
        asked_for = {"mode": "url", "url": "https://example.org", "message": "?"}
        ids = asked.params["arguments"]["ids"]
        data = {"elicitations": [{**asked_for, "elicitationId": ident} for ident in ids]}
        asked.fail(jsonrpc.URL_ELICITATION_REQUIRED, "sign in", data)

    upstream.scripts["sign"] = refuse
    async with proxy_over(upstream) as stage:
        clients = (stage.client, stage.connect(), stage.connect())
        for client, ids in zip(clients, (["a", "both"], ["b", "both"], ["c"]), strict=True):
            await client.initialize(capabilities={} if ids == ["c"] else CAN)
            arguments: Json = {"ids": ids}
            if name == "call_tool_write":
                arguments = {"name": "calc__sign", "arguments": arguments}
            reply = await client.reply(client.post("tools/call", {"name": name, "arguments": arguments}))
            assert [each["elicitationId"] for each in reply["error"]["data"]["elicitations"]] == ids
        for ident in ("b", "a", "c", "both", "a", "never named"):
            upstream.link.say(ended, {"elicitationId": ident})
        for client in clients:
            await client.call_tool("discover_tools", {"task": "sign"})
    told = [[params["elicitationId"] for method, params in client.notices if method == ended] for client in clients]
    assert told == [["a", "both"], ["b", "both"], []]


@requirement("listen:graceful")
async def test_a_subscription_that_we_end_is_answered() -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        client = stage.client.modern()
        listening = client.post("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await client.heard("notifications/subscriptions/acknowledged")
        assert client._front is not None
        client._front.close()
        result = await client.result(listening)
    assert result["resultType"] == "complete"
    assert result["_meta"][versions.META_SUBSCRIPTION] == listening
    assert client.count(CANCELLED) == 1


@requirement("listen:again")
@pytest.mark.parametrize("how", ["result", "cancelled"])
async def test_an_upstream_that_ends_our_subscription_is_subscribed_to_again_and_listed(how: str) -> None:
    upstream = FakeUpstream("calc", ["add"], MODERN, entry={"trust": "auto"})
    async with proxy_over(upstream, policy="full") as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        listen = await upstream.asked("subscriptions/listen")
        upstream.tools = ["add", "multiply"]
        if how == "result":
            listen.reply({"resultType": "complete"})
        else:
            upstream.link.say(CANCELLED, {"requestId": listen.message.id})
        await upstream.asked("subscriptions/listen", 2)
        await client.heard(LIST_CHANGED)
        assert "calc__multiply" in await client.list_tools()


@requirement("listen:again")
async def test_an_upstream_that_refuses_subscriptions_is_not_asked_again() -> None:
    upstream = FakeUpstream("calc", ["add"], MODERN)
    upstream.scripts["subscriptions/listen"] = lambda asked: asked.fail(-32601, "Method not found")
    async with proxy_over(upstream) as stage:
        await stage.client.modern().call_tool("calc__add")
        await asyncio.sleep(60)
    assert upstream.count("subscriptions/listen") == 1


@requirement("log:whose")
async def test_a_log_entry_goes_to_the_client_whose_call_alone_is_in_flight() -> None:
    upstream = FakeUpstream("calc", ["slow"])
    upstream.hold("slow")
    entry = {"level": "info", "data": "secret"}
    async with proxy_over(upstream) as stage:
        one, other = stage.client, stage.connect()
        for client in (one, other):
            await client.initialize()
        call = one.post("tools/call", {"name": "calc__slow"})
        asked = await upstream.called("slow")
        upstream.link.say("notifications/message", entry)
        assert await one.heard("notifications/message") == {**entry, "logger": "calc"}
        both = other.post("tools/call", {"name": "calc__slow"})
        second = await upstream.called("slow", 2)
        upstream.link.say("notifications/message", entry)  # of either: nobody gets it
        for each in (asked, second):
            each.reply({"content": []})
        await one.result(call)
        await other.result(both)
    assert (one.count("notifications/message"), other.count("notifications/message")) == (1, 0)


@requirement("log:whose")
@pytest.mark.parametrize("answered", [False, True])
async def test_what_a_server_says_of_a_call_that_was_given_up_goes_to_no_other_client(answered: bool) -> None:
    upstream = FakeUpstream("calc", ["slow"])
    upstream.hold("slow")
    entry = {"level": "info", "data": "secret"}
    async with proxy_over(upstream) as stage:
        one, other = stage.client, stage.connect()
        for client in (one, other):
            await client.initialize(capabilities=CAN)
        given_up = one.post("tools/call", {"name": "calc__slow"})
        asked = await upstream.called("slow")
        one.notify(CANCELLED, {"requestId": given_up})
        call = other.post("tools/call", {"name": "calc__slow"})
        second = await upstream.called("slow", 2)
        if answered:  # the server is done with it, so what it says from now on is the other one's
            asked.reply({"content": []})
        upstream.link.say("notifications/message", entry)
        question = asyncio.create_task(second.ask("elicitation/create", {"message": "Whose?"}))
        if answered:
            other.respond(await other.asked("elicitation/create"), {"action": "accept"})
        told = await question
        second.reply({"content": []})
        await other.result(call)
    assert (one.count("notifications/message"), other.count("notifications/message")) == (0, int(answered))
    assert ("error" in told) is not answered


@requirement("log:level")
@pytest.mark.parametrize("eras", [LEGACY, MODERN, BOTH])
@pytest.mark.parametrize("modern", [False, True])
async def test_a_log_entry_below_the_level_that_was_asked_for_is_not_sent(modern: bool, eras: tuple[Any, ...]) -> None:
    upstream = FakeUpstream("calc", ["slow"], eras, capabilities={"tools": {}, "logging": {}})
    upstream.hold("slow")
    async with proxy_over(upstream) as stage:
        client = stage.client
        if modern:
            client.modern(**{versions.META_LOG_LEVEL: "warning"})
        else:
            await client.initialize()
            await client.ask("logging/setLevel", {"level": "warning"})
        call = client.post("tools/call", {"name": "calc__slow"})
        asked = await upstream.called("slow")
        for level in ("debug", "error"):
            upstream.link.say("notifications/message", {"level": level, "data": 1})
        asked.reply({"content": []})
        await client.result(call)
    assert [params["level"] for name, params in client.notices if name == "notifications/message"] == ["error"]
    if eras == MODERN:
        assert asked.meta[versions.META_LOG_LEVEL] == "warning"


@requirement("tasks:declined")
@pytest.mark.parametrize("modern", [False, True])
async def test_tasks_are_for_modern_clients_whose_servers_have_them_alone(modern: bool) -> None:
    apps, tasks = "io.modelcontextprotocol/ui", "io.modelcontextprotocol/tasks"
    both = {apps: {"mimeTypes": ["text/html"]}, tasks: {}}
    eras = MODERN if modern else LEGACY
    upstream = FakeUpstream("calc", ["add"], eras, capabilities={"tools": {}, "tasks": {}, "extensions": both})
    capabilities = {"extensions": both, "tasks": {"list": {}}}
    async with proxy_over(upstream) as stage:
        client = stage.client
        if modern:
            await client.modern(capabilities=capabilities).call_tool("calc__add")
            greeting = await client.ask("server/discover")
            declared = (await upstream.called("add")).meta[versions.META_CAPABILITIES]
        else:
            await client.initialize(capabilities=capabilities)
            plain = await client.ask("tools/call", {"name": "calc__add", "arguments": {}, "task": {"ttl": 1000}})
            assert "content" in plain and "task" not in (await upstream.called("add")).params
            listing = await client.reply(client.post("tasks/list", {}))
            assert listing["error"]["code"] == -32601
            declared = (await upstream.asked("initialize")).params["capabilities"]
            greeting = await stage.connect().initialize(capabilities=capabilities)
        refused = await client.reply(client.post("tasks/get", {"taskId": "t"}))
    # A server that makes tasks may make one of a call: we wait for it.
    assert declared == {"extensions": both if modern else {apps: both[apps]}}
    assert greeting["capabilities"]["extensions"] == (both if modern else {apps: both[apps]})
    assert "tasks" not in greeting["capabilities"]
    assert refused["error"]["code"] == (-32602 if modern else -32601)


@requirement("meta:trace")
@pytest.mark.parametrize("eras", [LEGACY, MODERN])
@pytest.mark.parametrize("modern", [False, True])
async def test_trace_context_goes_up_and_results_keep_their_meta(modern: bool, eras: tuple[Any, ...]) -> None:
    upstream = FakeUpstream("calc", ["add"], eras)
    upstream.results["add"] = {"content": [], "_meta": {"vendor": {"n": 1.0}}}
    trace = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}
    async with proxy_over(upstream) as stage:
        client = stage.client.modern() if modern else stage.client
        if not modern:
            await client.initialize()
        result = await client.call_tool("calc__add", {}, meta=trace)
        asked = await upstream.called("add")
    assert {key: asked.meta[key] for key in trace} == trace
    assert result["_meta"]["vendor"] == {"n": 1.0}


@requirement("apps:resources")
@pytest.mark.parametrize("modern", [False, True])
async def test_an_apps_resource_is_reached_by_the_uri_its_tool_names(modern: bool) -> None:
    uri = "ui://calc/plot"
    plot = tool("plot", _meta={"ui": {"resourceUri": uri}})
    upstream = FakeUpstream("calc", [plot], BOTH, capabilities={"tools": {}, "resources": {}})
    page = {"contents": [{"uri": uri, "mimeType": "text/html;profile=mcp-app", "text": "<p>", "_meta": {"ui": {}}}]}
    upstream.scripts["resources/read"] = lambda asked: asked.reply(page)
    async with proxy_over(upstream, policy="full") as stage:
        client = stage.client.modern() if modern else stage.client
        if not modern:
            await client.initialize()
        listed = {each["name"]: each for each in (await client.ask("tools/list"))["tools"]}
        named = listed["calc__plot"]["_meta"]["ui"]["resourceUri"]
        read = await client.ask("resources/read", {"uri": named})
    assert read["contents"] == page["contents"]
