"""A changed config: servers are added, removed and restarted, and only those whose entries changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from fakes import LIST_CHANGED, FakeUpstream, Stage, config_of, proxy_over, said
from requirements import requirement

pytestmark = pytest.mark.anyio


async def reload(stage: Stage, *upstreams: FakeUpstream, **settings: object) -> None:
    stage.app.fakes = {upstream.name: upstream for upstream in upstreams}
    await stage.app.reloader.apply(config_of(*upstreams, **settings))


@requirement("reload:servers")
async def test_only_what_changed_is_touched() -> None:
    stays, goes = FakeUpstream("stays", ["a"]), FakeUpstream("goes", ["b"])
    changes, comes = FakeUpstream("changes", ["c"]), FakeUpstream("comes", ["d"])
    stays.hold("a")
    async with proxy_over(stays, goes, changes, policy="full") as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        call = client.post("tools/call", {"name": "stays__a"})
        asked = await stays.called("a")
        changes.entry["args"] = ["--new"]
        await reload(stage, stays, changes, comes, policy="full")
        await client.heard(LIST_CHANGED)
        assert await client.list_tools() == [
            "call_tool",
            "call_tool_write",
            "changes__c",
            "comes__d",
            "discover_tools",
            "stays__a",
        ]
        asked.reply({"content": [], "undisturbed": True})
        assert (await client.result(call))["undisturbed"] is True
        assert said(await client.call_tool("changes__c", {})) == "c"
        assert said(await client.call_tool("comes__d", {})) == "d"
        gone = await client.reply(client.post("tools/call", {"name": "goes__b"}))
    assert "error" in gone
    assert (stays.starts, goes.starts, changes.starts, comes.starts) == (1, 1, 2, 1)
    assert goes.links == []


@requirement("reload:servers")
async def test_a_server_that_was_added_or_edited_is_told_which_log_entries_clients_want() -> None:
    can = {"tools": {}, "logging": {}}
    edited, added = (FakeUpstream(name, ["a"], capabilities=can) for name in ("edited", "added"))
    async with proxy_over(edited) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await stage.client.ask("logging/setLevel", {"level": "debug"})
        edited.entry["args"] = ["--new"]
        await reload(stage, edited, added)
        told = [await edited.asked("logging/setLevel", 2), await added.asked("logging/setLevel")]
    assert [each.params for each in told] == [{"level": "debug"}] * 2


@requirement("reload:filters")
async def test_filters_and_pins_apply_without_a_restart() -> None:
    upstream = FakeUpstream("calc", ["add", "sub"])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["call_tool", "call_tool_write", "discover_tools"]
        upstream.entry |= {"exclude": ["sub"], "pin": ["add"]}
        await reload(stage, upstream)
        await stage.client.heard(LIST_CHANGED)
        assert await stage.client.list_tools() == ["calc__add", "call_tool", "call_tool_write", "discover_tools"]
        gone = await stage.client.reply(stage.client.post("tools/call", {"name": "calc__sub"}))
    assert "error" in gone
    assert upstream.starts == 1


@requirement("reload:settings")
async def test_settings_apply_to_clients_that_are_connected() -> None:
    upstream = FakeUpstream("calc", ["add", "sub"])
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        assert await stage.client.list_tools() == ["call_tool", "call_tool_write", "discover_tools"]
        await reload(stage, upstream, policy="full")
        await stage.client.heard(LIST_CHANGED)
        assert len(await stage.client.list_tools()) == 5


@requirement("reload:back")
async def test_a_server_that_is_removed_and_added_again_works() -> None:
    upstream, other = FakeUpstream("calc", ["add"]), FakeUpstream("other", ["x"])
    async with proxy_over(upstream, other) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await reload(stage, other)
        await reload(stage, other, upstream)
        assert said(await stage.client.call_tool("calc__add", {})) == "add"


async def test_a_call_of_a_server_that_goes_says_so_and_whether_it_was_sent() -> None:
    goes, stays = FakeUpstream("goes", ["a"]), FakeUpstream("stays", ["b"])
    goes.hold("a")
    async with proxy_over(goes, stays) as stage:
        await stage.client.initialize()
        call = stage.client.post("tools/call", {"name": "goes__a"})
        await goes.called("a")
        await reload(stage, stays)
        answer = said(await stage.client.result(call))
    assert answer == (
        "server 'goes' did not answer 'goes__a': it was removed from the config or disabled;"
        " it had been sent, so it may have been carried out"
    )


async def test_a_call_while_its_server_is_being_ended_is_a_miss_of_a_server_that_is_gone() -> None:
    goes, stays = FakeUpstream("goes", ["a"]), FakeUpstream("stays", ["b"])
    async with proxy_over(goes, stays) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        stage.app.live.now = config_of(stays)
        refused = await stage.client.call_tool("call_tool_write", {"name": "goes__a", "arguments": {}})
        assert said(refused) == "goes__a was not run: server 'goes' was removed from the config or disabled"
        assert [(miss.tool, miss.cause) for miss in stage.misses()] == [("goes__a", "gone")]


@requirement("reload:broken")
async def test_a_file_that_is_broken_leaves_the_config_before_it_in_force(tmp_path: Path) -> None:
    upstream = FakeUpstream("calc", ["add"], entry={"cwd": "/"})
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        broken = tmp_path / "mcp.json"
        broken.write_text('{"mcpServers": ')
        import msgspec

        stage.app.live.now = msgspec.structs.replace(stage.app.config, path=broken)
        await stage.app.reloader.look()
        assert said(await stage.client.call_tool("calc__add", {})) == "add"
        broken.write_text('{"mcpServers": {"calc": {"command": "fake", "cwd": "/"}, "bad": {"command": 5}}}')
        await stage.app.reloader.look()
        assert said(await stage.client.call_tool("calc__add", {})) == "add"
    assert upstream.starts == 1


@requirement("trust:http:profiles")
async def test_a_profile_that_is_removed_shows_its_clients_nothing() -> None:
    git, mail = FakeUpstream("git", ["push"]), FakeUpstream("mail", ["send"])
    profiles = {"work": {"servers": ["git"]}}
    async with proxy_over(git, mail, profile="work", policy="full", profiles=profiles) as stage:
        await stage.client.initialize()
        assert "git__push" in await stage.client.list_tools()
        await reload(stage, git, mail, policy="full")
        assert [name for name in await stage.client.list_tools() if "__" in name] == []
        refused = await stage.client.reply(stage.client.post("tools/call", {"name": "mail__send"}))
    assert "error" in refused or refused["result"]["isError"]
    assert mail.calls == []


async def test_a_tool_of_a_server_that_was_added_is_missed_because_the_list_is_older() -> None:
    here, comes = FakeUpstream("here", ["a"]), FakeUpstream("comes", ["forecast"])
    async with proxy_over(here) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        await reload(stage, here, comes)
        await client.until(lambda: len(stage.app.catalog.of("comes")) > 0)
        assert said(await client.call_tool("comes__forecast", {})) == "forecast"
        (miss,) = stage.store.calls.misses()
    assert (miss.tool, miss.cause, miss.change) == (
        "comes__forecast", "offline", "none: the tools of 'comes' were not known yet, and are from now on",
    )  # fmt: skip
