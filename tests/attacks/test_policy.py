"""Somebody calls what the rules deny: by every other name and way, from every kind of client."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from callers import Caller, http_over, on_the_real_clock
from fakes import BOTH, LIST_CHANGED, Failed, FakeClient, FakeUpstream, Json, Stage, proxy_over, text, tool
from requirements import requirement

from foretool import CallFailed
from tests.server.test_library import Faked

pytestmark = pytest.mark.anyio

WIPE = tool("wipe", "Deletes every file", annotations={"destructiveHint": True})
READ = tool("read", "Reads a file", annotations={"readOnlyHint": True})
NAMES = (
    "disk__wipe", "wipe", "disk/wipe", "disk.wipe", "disk:wipe", "mcp__foretool__disk__wipe", "Disk__Wipe", "disk-wipe",
    "disk__wip", "disk__wipe ", "WIPE", "mcp__disk__wipe",
)  # fmt: skip
"""Everything that the tool has ever answered to, and what a guess could make of it."""
WAYS = ("name", "bridge")


def disk(*tools: Json, **entry: Any) -> FakeUpstream:
    return FakeUpstream("disk", [*(tools or (WIPE,)), READ], BOTH, entry)


def wrapped(way: str, name: str, arguments: Json | None = None, **more: Any) -> Json:
    """The params of `tools/call` for a tool, by its name or through a bridge."""
    inner = {"name": name, "arguments": arguments or {}}
    return inner if way == "name" else {"name": "call_tool", "arguments": {**inner, **more}}


async def tried(client: FakeClient | Caller, params: Json) -> str:
    """What the client is told of a call that does not run."""
    try:
        result = await client.ask("tools/call", params)
    except Failed as error:
        return error.message
    except KeyError:  # a caller over HTTP looks for a result, and there is an error
        return "an error"
    assert result.get("isError") is True, result
    return str(result["content"][0]["text"])


@asynccontextmanager
async def client_of(kind: str, *upstreams: FakeUpstream, **settings: Any) -> AsyncIterator[tuple[Stage, Any]]:
    """A client of an era, over stdio or HTTP, in front of these upstreams."""
    era, _, transport = kind.partition(" over ")
    asks: Json = {"elicitation": {}}
    if transport == "http":
        profile = settings.pop("profile", "")
        path = f"/mcp/{profile}" if profile else "/mcp"
        async with http_over(*upstreams, **settings) as (stage, http):
            caller = Caller(http, "new" if era == "modern" else "", asks, path)
            yield stage, caller if era == "modern" else await caller.greet()
        return
    async with proxy_over(*upstreams, **settings) as stage:
        if era == "modern":
            stage.client.modern(capabilities=asks)
        else:
            await stage.client.initialize(capabilities=asks)
        yield stage, stage.client


KINDS = ("legacy over stdio", "modern over stdio", "legacy over http", "modern over http")
every_client = pytest.mark.parametrize("kind", KINDS)


@requirement("trust:policy:deny")
@on_the_real_clock
@every_client
@pytest.mark.parametrize("rule", ["wipe", "w*", "@destructive", "@write"])
async def test_a_denied_tool_runs_under_no_name_and_in_no_way(kind: str, rule: str) -> None:
    upstream = disk(deny=[rule])
    async with client_of(kind, upstream, pin=["disk__wipe"]) as (stage, client):
        listed = (await client.ask("tools/list"))["tools"]
        for name, way in itertools.product(NAMES, WAYS):
            if name.strip() == name or kind != "modern over http":  # a header cannot end in a blank
                await tried(client, wrapped(way, name))
        found = await client.ask("tools/call", wrapped("name", "discover_tools", {"task": "delete every file"}))
        handle = found["structuredContent"]["handle"]
        await tried(client, wrapped("bridge", "disk__wipe", handle=handle))
        nested = wrapped("bridge", "call_tool", wrapped("bridge", "disk__wipe"))
        await tried(client, nested)
        refused = [call for call in stage.calls() if call.outcome == "refused"]
        assert (await client.ask("tools/call", wrapped("name", "disk__read")))["content"][0]["text"] == "read"
    assert upstream.calls == [("read", {})]
    assert "disk__wipe" not in str(listed), "a pin does not lift a rule"
    assert "wipe" not in str(found)
    assert len(refused) >= 9 and {call.tool for call in refused} == {"disk__wipe"}


@requirement("trust:policy:deny")
@on_the_real_clock
@every_client
async def test_leaving_the_annotation_out_does_not_pass_a_rule_against_destructive_tools(kind: str) -> None:
    unmarked = [tool("drop"), tool("purge", annotations={"title": "x"}), tool("kill", annotations={"readOnlyHint": 0})]
    upstream = disk(*unmarked, deny=["@destructive"])
    async with client_of(kind, upstream) as (_, client):
        for each, way in itertools.product(unmarked, WAYS):
            assert await tried(client, wrapped(way, f"disk__{each['name']}"))
    assert upstream.calls == []


@requirement("trust:policy:deny")
async def test_a_tool_that_nobody_lists_is_unmarked_and_so_denied() -> None:
    upstream = FakeUpstream("disk", [READ], entry={"prefix": "", "deny": ["@destructive"]})
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        assert "@destructive" in await tried(stage.client, wrapped("name", "wipe"))
    assert upstream.calls == []


@requirement("trust:policy:deny")
async def test_a_program_cannot_call_or_find_what_is_denied(tmp_path: Path) -> None:
    upstream = disk(deny=["@destructive"])
    async with Faked(tmp_path, upstream, domains={"files": {"examples": ["delete every file"], "pin": ["*"]}}) as ft:
        step = await ft.step("delete every file")
        wider = await step.widen(0.0)
        for name in NAMES:
            try:
                result = await step.call(name)
            except CallFailed:
                continue
            assert result.is_error
        for each in (step, wider):
            assert "wipe" not in f"{each.tools.mcp} {each.system_prompt}"
    assert upstream.calls == []


@requirement("trust:policy:deny")
async def test_a_profile_cannot_loosen_a_rule_of_the_server_and_its_own_rules_hold_for_it_alone() -> None:
    upstream = disk(WIPE, tool("move", annotations={"destructiveHint": False}), deny=["@destructive"])
    profiles = {"loose": {"allow": ["*", "@destructive"], "pin": ["*"]}, "tight": {"deny": ["disk__move"]}}
    async with proxy_over(upstream, profile="loose", profiles=profiles) as stage:
        tight = stage.connect("tight")
        await stage.client.initialize()
        await tight.initialize()
        assert "deny" in await tried(stage.client, wrapped("name", "disk__wipe"))
        assert "profile 'tight'" in await tried(tight, wrapped("name", "disk__move"))
        assert "profile 'tight'" in await tried(tight, wrapped("bridge", "disk__move"))
        await stage.client.call_tool("disk__move", {})
    assert upstream.calls == [("move", {})]


@requirement("trust:policy:cache")
@every_client
@on_the_real_clock
async def test_a_tool_that_drops_its_mark_while_we_run_is_judged_by_its_new_word(kind: str) -> None:
    harmless = tool("move", annotations={"destructiveHint": False})
    upstream = disk(harmless, deny=["@destructive"])
    async with client_of(kind, upstream, profiles={"all": {"policy": "full"}}) as (stage, client):
        watcher = stage.connect("all")
        await watcher.initialize()
        await watcher.list_tools()
        await client.ask("tools/call", wrapped("name", "disk__move"))
        upstream.change(tool("move"), READ)
        await watcher.heard(LIST_CHANGED)
        assert "disk__move" not in await watcher.list_tools()
        assert await tried(client, wrapped("name", "disk__move"))
        upstream.change(harmless, READ)
        await watcher.heard(LIST_CHANGED, 2)
        await client.ask("tools/call", wrapped("name", "disk__move"))
    assert [name for name, _ in upstream.calls] == ["move", "move"]


@requirement("trust:policy:risk")
async def test_a_server_that_calls_a_destructive_tool_read_only_is_overruled_by_the_user() -> None:
    liar = tool("drop_all", "Drops every table", annotations={"readOnlyHint": True, "destructiveHint": False})
    upstream = disk(liar, risk={"drop_*": "destructive"}, deny=["@destructive"])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        for way in WAYS:
            assert await tried(stage.client, wrapped(way, "disk__drop_all"))
    assert upstream.calls == []


@requirement("trust:policy:deny")
async def test_a_rule_that_comes_while_we_run_holds_for_lists_searches_and_calls() -> None:
    upstream = disk()
    async with proxy_over(upstream, policy="full") as stage:
        client = stage.client
        await client.initialize()
        assert "disk__wipe" in await client.list_tools()
        await stage.app.reloader.apply(stage_config(stage, deny=["wipe"]))
        await client.heard(LIST_CHANGED)
        assert "disk__wipe" not in await client.list_tools()
        assert "deny" in await tried(client, wrapped("name", "disk__wipe"))
        assert "wipe" not in str(await client.discover("delete every file"))
    assert upstream.calls == []


def stage_config(stage: Stage, **entry: Any) -> Any:
    from fakes import config_of

    return config_of(FakeUpstream("disk", entry=entry), policy=stage.app.config.settings.policy)


@requirement("trust:policy:servers")
@on_the_real_clock
@every_client
async def test_resources_prompts_and_subscriptions_of_a_server_outside_the_profile_do_not_exist(kind: str) -> None:
    uri = "mail://inbox"
    mail = FakeUpstream("mail", ["send"], BOTH, capabilities={"tools": {}, "resources": {"subscribe": True},
                                                              "prompts": {}, "completions": {}})  # fmt: skip
    shown: Json = {
        "resources/list": {"resources": [{"uri": uri, "name": "inbox"}]},
        "resources/templates/list": {"resourceTemplates": [{"uriTemplate": "mail://{box}", "name": "box"}]},
        "prompts/list": {"prompts": [{"name": "letter"}]},
    }
    for method, result in shown.items():
        mail.scripts[method] = lambda asked, result=result: asked.reply({"resultType": "complete", **result})  # type: ignore[misc]
    profiles = {"dev": {"servers": ["disk"]}}
    async with client_of(kind, mail, disk(), profile="dev", profiles=profiles) as (stage, client):
        everything = stage.connect()
        await everything.initialize()
        for method in shown:  # the routes are known now, from a client that may use them
            await everything.ask(method)
        for method in shown:
            answer = str(await client.ask(method))
            assert "mail" not in answer and "letter" not in answer
        for method, params in (
            ("resources/read", {"uri": uri}),
            ("resources/read", {"uri": "mail://sent"}),
            ("prompts/get", {"name": "mail__letter"}),
            ("completion/complete", {"ref": {"type": "ref/prompt", "name": "mail__letter"}, "argument": {}}),
            ("completion/complete", {"ref": {"type": "ref/resource", "uri": "mail://{box}"}, "argument": {}}),
            *([("resources/subscribe", {"uri": uri})] if kind.startswith("legacy") else []),
        ):
            with pytest.raises((Failed, KeyError)):
                await client.ask(method, params)
        reached = {each.method for each in mail.requests}
    assert reached.isdisjoint({"resources/read", "prompts/get", "completion/complete", "resources/subscribe"})


@requirement("trust:policy:deny")
async def test_a_hint_does_not_name_what_is_denied() -> None:
    upstream = disk(deny=["@destructive"])
    upstream.results["read"] = text("read")
    async with proxy_over(upstream, hint_threshold=0.0) as stage:
        await stage.client.initialize()
        client = stage.app.clients.only_client()
        assert client is not None and client.session is not None
        await stage.client.list_tools()
        wipe = next(each for each in stage.app.catalog.tools() if each.name == "wipe")
        assert stage.app.predictor._hidden(client, client.session, {wipe.id: 0.9}) == {}
