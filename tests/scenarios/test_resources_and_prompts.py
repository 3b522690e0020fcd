"""Resources, templates, prompts and completions of all upstreams, as if they were one server's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fakes import BOTH, LEGACY, MODERN, Asked, Failed, FakeUpstream, Json, proxy_over
from requirements import requirement

from foretool.server.protocol import jsonrpc, skills, versions

pytestmark = pytest.mark.anyio


class Library(FakeUpstream):
    """Has resources named after itself, a template, and a prompt."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.capabilities = {
            "tools": {},
            "resources": {"subscribe": True, "listChanged": True},
            "prompts": {"listChanged": True},
            "completions": {},
            "logging": {},
        }
        self.uris = [f"{self.name}:///one", "shared:///same"]
        self.scripts |= {
            "resources/list": self._resources,
            "resources/templates/list": lambda asked: asked.reply(
                {"resourceTemplates": [{"uriTemplate": self.name + ":///{id}", "name": "t"}]}
            ),
            "resources/read": self._read,
            "prompts/list": lambda asked: asked.reply({"prompts": [{"name": "greet", "title": self.name}]}),
            "prompts/get": lambda asked: asked.reply(
                {"messages": [], "description": f"{self.name} {asked.params['name']}"}
            ),
            "completion/complete": lambda asked: asked.reply(
                {"completion": {"values": [self.name]}, "ref": asked.params["ref"]}
            ),
        }

    def _resources(self, asked: Asked) -> None:
        page = int(asked.params.get("cursor", 0))
        result: Json = {"resources": [{"uri": self.uris[page], "name": self.name, "size": 1.0}]}
        asked.reply(result | ({"nextCursor": str(page + 1)} if page + 1 < len(self.uris) else {}))

    def _read(self, asked: Asked) -> None:
        uri = asked.params["uri"]
        if uri in self.uris or uri.startswith(f"{self.name}:///"):
            asked.reply({"contents": [{"uri": uri, "text": self.name}]})
        else:
            asked.fail(jsonrpc.RESOURCE_NOT_FOUND, "Resource not found", {"uri": uri})


def libraries(*eras: Any) -> tuple[Library, Library]:
    first, second = (*eras, LEGACY, LEGACY)[:2]
    return Library("a", eras=first), Library("b", eras=second)


@requirement("resources:merged")
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("eras", [LEGACY, MODERN, BOTH])
async def test_resources_are_merged_in_config_order_each_uri_once(modern: bool, eras: tuple[Any, ...]) -> None:
    async with proxy_over(*libraries(eras)) as stage:
        client = stage.client.modern() if modern else stage.client
        if not modern:
            await client.initialize()
        await client.list_tools()
        listed = await client.ask("resources/list")
        templates = await client.ask("resources/templates/list")
    found = [(each["uri"], each["name"]) for each in listed["resources"]]
    assert found == [("a:///one", "a"), ("shared:///same", "a"), ("b:///one", "b")]
    assert [each["uriTemplate"] for each in templates["resourceTemplates"]] == ["a:///{id}", "b:///{id}"]
    assert ("ttlMs" in listed) is modern


@requirement("resources:routed")
@pytest.mark.parametrize("listed_before", [True, False])
@pytest.mark.parametrize(("uri", "owner"), [("b:///one", "b"), ("a:///one", "a"), ("b:///other", "b")])
async def test_a_resource_is_read_where_it_is(uri: str, owner: str, listed_before: bool) -> None:
    async with proxy_over(*libraries()) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        if listed_before:
            await stage.client.ask("resources/list")
            await stage.client.ask("resources/templates/list")
        result = await stage.client.ask("resources/read", {"uri": uri})
    assert result["contents"][0]["text"] == owner


@requirement("resources:not-found")
@pytest.mark.parametrize(("modern", "code"), [(False, jsonrpc.RESOURCE_NOT_FOUND), (True, jsonrpc.INVALID_PARAMS)])
async def test_an_unknown_resource_is_an_error_of_the_clients_era(modern: bool, code: int) -> None:
    async with proxy_over(*libraries()) as stage:
        client = stage.client.modern() if modern else stage.client
        await client.list_tools()
        with pytest.raises(Failed) as unknown:
            await client.ask("resources/read", {"uri": "no:///such"})
        with pytest.raises(Failed):
            await client.ask("resources/read", {})
    assert unknown.value.code == code


@requirement("prompts:routed")
async def test_prompts_get_the_prefix_of_their_server_and_find_their_way_back() -> None:
    async with proxy_over(*libraries()) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        before = await client.ask("prompts/get", {"name": "b__greet"})
        listed = await client.ask("prompts/list")
        after = await client.ask("prompts/get", {"name": "a__greet"})
        with pytest.raises(Failed):
            await client.ask("prompts/get", {"name": "nobody__greet"})
    assert listed["prompts"][:-1] == [{"name": "a__greet", "title": "a"}, {"name": "b__greet", "title": "b"}]
    assert (before["description"], after["description"]) == ("b greet", "a greet")


@requirement("completions:routed")
async def test_completions_go_to_the_upstream_of_their_prompt_or_template() -> None:
    async with proxy_over(*libraries()) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        await client.ask("resources/templates/list")
        argument = {"argument": {"name": "x", "value": ""}}
        prompt = await client.ask(
            "completion/complete", {"ref": {"type": "ref/prompt", "name": "b__greet"}, **argument}
        )
        template = await client.ask(
            "completion/complete", {"ref": {"type": "ref/resource", "uri": "b:///{id}"}, **argument}
        )
    assert prompt["completion"]["values"] == ["b"]
    assert prompt["ref"] == {"type": "ref/prompt", "name": "greet"}
    assert template["completion"]["values"] == ["b"]


@requirement("resources:partial")
async def test_an_upstream_that_fails_leaves_the_lists_of_the_others() -> None:
    a, b = libraries()
    a.scripts["resources/list"] = lambda asked: asked.fail(-1, "broken")
    b.scripts["prompts/list"] = lambda asked: asked.link.die()
    async with proxy_over(a, b) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        resources = await stage.client.ask("resources/list")
        prompts = await stage.client.ask("prompts/list")
    assert {each["name"] for each in resources["resources"]} == {"b"}
    assert [each["name"] for each in prompts["prompts"]] == ["a__greet", "assemble_step"]


@requirement("resources:late")
async def test_a_list_that_went_without_a_silent_upstream_is_said_to_have_changed_when_it_comes() -> None:
    a, b = libraries()
    b.gate = asyncio.Event()
    async with proxy_over(a, b, cold_list_s=1) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        assert len((await client.ask("resources/list"))["resources"]) == 2
        b.gate.set()
        await client.heard("notifications/resources/list_changed")
        assert len((await client.ask("resources/list"))["resources"]) == 3


@requirement("resources:profile")
async def test_a_profile_reads_nothing_of_the_servers_it_leaves_out() -> None:
    a, b = libraries()
    async with proxy_over(a, b, profile="p", profiles={"p": {"servers": ["a"]}}) as stage:
        everything = stage.connect()
        await everything.ask("resources/list")
        await everything.ask("prompts/list")
        await everything.ask("resources/templates/list")
        client = stage.client
        await client.initialize()
        await client.list_tools()
        assert {each["name"] for each in (await client.ask("resources/list"))["resources"]} == {"a"}
        for method, params in (
            ("resources/read", {"uri": "b:///one"}),
            ("prompts/get", {"name": "b__greet"}),
            ("resources/subscribe", {"uri": "b:///one"}),
            ("completion/complete", {"ref": {"type": "ref/prompt", "name": "b__greet"}, "argument": {}}),
        ):
            with pytest.raises(Failed):
                await client.ask(method, params)
        greeting = await client.initialize()
    assert "## b" not in greeting["instructions"]
    assert [each.method for each in b.requests if each.method in ("resources/read", "prompts/get")] == []


@requirement("subscriptions:legacy")
async def test_a_legacy_client_hears_of_the_resource_it_subscribed_to_and_no_other_does() -> None:
    a, b = libraries()
    async with proxy_over(a, b) as stage:
        one, other = stage.client, stage.connect()
        for client in (one, other):
            await client.initialize()
            await client.ask("resources/list")
        await one.ask("resources/subscribe", {"uri": "b:///one"})
        assert (await b.asked("resources/subscribe")).params == {"uri": "b:///one"}
        b.link.say("notifications/resources/updated", {"uri": "b:///one", "title": "new"})
        assert await one.heard("notifications/resources/updated") == {"uri": "b:///one", "title": "new"}
        await one.ask("resources/unsubscribe", {"uri": "b:///one"})
        await b.asked("resources/unsubscribe")
        b.link.say("notifications/resources/updated", {"uri": "b:///one"})
        await one.ask("ping")
        await other.ask("ping")
    assert (one.count("notifications/resources/updated"), other.count("notifications/resources/updated")) == (1, 0)


@requirement("subscriptions:modern")
@pytest.mark.parametrize("eras", [LEGACY, BOTH])
async def test_a_modern_client_listens_for_what_it_named(eras: tuple[Any, ...]) -> None:
    a, b = libraries(eras, eras)
    b.entry = {"trust": "auto"}
    async with proxy_over(a, b) as stage:
        client = stage.client.modern()
        await client.list_tools()
        await client.ask("resources/list")
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["b:///one"], "unheardOf": True}
        listening = client.post("subscriptions/listen", {"notifications": wanted}, id="L")
        acknowledged = await client.heard("notifications/subscriptions/acknowledged")
        assert acknowledged["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["b:///one"]}
        assert acknowledged["_meta"] == {versions.META_SUBSCRIPTION: "L"}
        for link in b.links:
            link.say("notifications/resources/updated", {"uri": "b:///other"})
            link.say("notifications/prompts/list_changed")
        b.link.say("notifications/resources/updated", {"uri": "b:///one"})
        heard = await client.heard("notifications/resources/updated")
        assert heard == {"uri": "b:///one", "_meta": {versions.META_SUBSCRIPTION: "L"}}
        b.change("new")
        assert (await client.heard("notifications/tools/list_changed"))["_meta"] == {versions.META_SUBSCRIPTION: "L"}
        client.notify("notifications/cancelled", {"requestId": listening})
        b.change("newer")
        await asyncio.sleep(2)
    assert {name for name, _ in client.notices} == {
        "notifications/subscriptions/acknowledged",
        "notifications/resources/updated",
        "notifications/tools/list_changed",
    }
    assert client.count("notifications/tools/list_changed") == 1


@requirement("subscriptions:modern")
async def test_a_modern_client_that_does_not_listen_hears_nothing() -> None:
    upstream = FakeUpstream("calc", ["add"], BOTH, entry={"pin": ["*"], "trust": "auto"})
    async with proxy_over(upstream) as stage:
        client = stage.client.modern()
        await client.list_tools()
        upstream.change("sub")
        await asyncio.sleep(2)
        assert "calc__sub" in await client.list_tools()
    assert client.notices == []


@requirement("logging")
async def test_logs_reach_legacy_clients_at_the_level_they_set() -> None:
    a, b = libraries()
    async with proxy_over(a, b) as stage:
        one, other = stage.client, stage.connect()
        for client in (one, other):
            await client.initialize()
            await client.list_tools()
        await one.ask("logging/setLevel", {"level": "error"})
        await other.ask("logging/setLevel", {"level": "info"})
        levels = [each.params["level"] for each in a.requests if each.method == "logging/setLevel"]
        for level in ("debug", "info", "error"):
            a.link.say("notifications/message", {"level": level, "data": {"x": 1.0}})
        await other.heard("notifications/message", 2)
        await one.heard("notifications/message")
        with pytest.raises(Failed):
            await one.ask("logging/setLevel", {"level": "loud"})
        await a.asked("logging/setLevel", 2)
    assert levels[:1] == ["error"]
    assert [params["level"] for _, params in one.notices] == ["error"]
    assert [params["level"] for _, params in other.notices] == ["info", "error"]


@requirement("capabilities:union")
async def test_what_we_declare_is_what_the_upstreams_can() -> None:
    plain, library = FakeUpstream("plain", ["add"]), Library("a")
    library.capabilities["extensions"] = {versions.UI: {}}
    async with proxy_over(plain) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        small = (await stage.connect().initialize())["capabilities"]
    async with proxy_over(plain, library) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        large = (await stage.connect().initialize())["capabilities"]
    assert small == {"tools": {"listChanged": True}, "prompts": {"listChanged": True}, "logging": {}}
    assert set(large) == {"tools", "resources", "prompts", "completions", "logging", "extensions"}


@requirement("capabilities:union")
async def test_a_client_is_not_told_what_a_server_outside_its_profile_can() -> None:
    library = Library("a")
    library.capabilities["extensions"] = {versions.UI: {}}
    async with proxy_over(FakeUpstream("plain", ["add"]), library, profiles={"small": {"servers": ["plain"]}}) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        small = (await stage.connect("small").initialize())["capabilities"]
    assert set(small) == {"tools", "prompts", "logging"}


Capabilities = dict[str, Any]
EVERYTHING: Capabilities = {
    "tools": {"listChanged": True}, "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True}, "completions": {}, "logging": {}, "tasks": {"list": {}, "requests": {}},
    "experimental": {"vendor/x": {}}, "more": {},
    "extensions": {
        versions.UI: {}, "io.modelcontextprotocol/skills": {}, "io.modelcontextprotocol/tasks": {}, "vendor/y": {}
    },
}  # fmt: skip
"""What some server may declare."""


def ways(declared: Capabilities, server: str, *, modern: bool) -> list[tuple[str, Json]]:
    """Return the requests that a client may send because of what we declare."""
    uri, reference = {"uri": f"{server}:///one"}, {"type": "ref/prompt", "name": f"{server}__greet"}
    asked: dict[str, list[tuple[str, Json]]] = {
        "tools": [("tools/list", {}), ("tools/call", {"name": "a__add", "arguments": {}})],
        "resources": [("resources/list", {}), ("resources/templates/list", {}), ("resources/read", uri)],
        "resources.subscribe": [("resources/subscribe", uri), ("resources/unsubscribe", uri)],
        "prompts": [("prompts/list", {}), ("prompts/get", {"name": f"{server}__greet"})],
        "completions": [("completion/complete", {"ref": reference, "argument": {"name": "x", "value": ""}})],
        "logging": [("logging/setLevel", {"level": "error"})],
        versions.UI: [("resources/read", uri)],
        skills.EXTENSION: [("skills/list", {}), ("skills/get", {"uri": "skill://a/none/SKILL.md"})],
        versions.TASKS: [("tasks/get", {"taskId": "none"}), ("tasks/cancel", {"taskId": "none"})],
    }
    if modern:  # levels stand in each request, and `subscriptions/listen` is answered by what it brings
        asked |= {"resources.subscribe": [], "logging": []}
    subscribe = ["resources.subscribe"] if declared.get("resources", {}).get("subscribe") else []
    keys = [*(declared.keys() - {"extensions"}), *declared.get("extensions", {}), *subscribe]
    return [way for key in keys for way in asked[key]]


@requirement("capabilities:answered")
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize("eras", [LEGACY, MODERN])
async def test_everything_that_we_declare_is_answered(modern: bool, eras: tuple[Any, ...]) -> None:
    able, plain = Library("a", ["add"], eras), Library("b", eras=eras)
    able.capabilities, plain.capabilities = EVERYTHING, {"tools": {}, "resources": {}, "prompts": {}}
    for method in ("resources/subscribe", "resources/unsubscribe"):
        able.scripts[method] = lambda asked: asked.reply({})
        plain.scripts[method] = lambda asked: asked.fail(jsonrpc.METHOD_NOT_FOUND, "Method not found")
    plain.scripts["completion/complete"] = plain.scripts["resources/subscribe"]
    refused: list[tuple[str, Json]] = []
    async with proxy_over(able, plain) as stage:
        await stage.connect().list_tools()
        client = stage.connect()
        greeting = await (client.modern().ask("server/discover") if modern else client.initialize())
        for server in ("a", "b"):
            for method, params in ways(greeting["capabilities"], server, modern=modern):
                reply = await client.reply(client.post(method, params))
                if "error" in reply and reply["error"]["code"] == jsonrpc.METHOD_NOT_FOUND:
                    refused.append((method, params))
    assert refused == []
    tasks = {versions.TASKS} if modern else set()
    assert set(greeting["capabilities"]["extensions"]) == {versions.UI, skills.EXTENSION, *tasks}
