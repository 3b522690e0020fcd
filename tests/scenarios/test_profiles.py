"""Profiles: lists of their own, and what a profile leaves out does not exist for its clients."""

from __future__ import annotations

import pytest
from fakes import Failed, FakeUpstream, proxy_over
from requirements import requirement

pytestmark = pytest.mark.anyio

PROFILES = {"dev": {"servers": ["git"], "pin": ["git__*"]}, "all": {"policy": "full"}}


def servers() -> tuple[FakeUpstream, FakeUpstream]:
    return FakeUpstream("git", ["commit", "push"]), FakeUpstream("mail", ["send", "search_mail"])


@requirement("profile:own-list")
async def test_each_profile_has_its_own_list() -> None:
    async with proxy_over(*servers(), profile="dev", profiles=PROFILES) as stage:
        everything, plain = stage.connect("all"), stage.connect()
        assert await stage.client.list_tools() == [
            "call_tool",
            "call_tool_write",
            "discover_tools",
            "git__commit",
            "git__push",
        ]
        assert len(await everything.list_tools()) == 7
        assert await plain.list_tools() == ["call_tool", "call_tool_write", "discover_tools"]


@requirement("profile:denied")
async def test_a_tool_outside_the_profile_is_refused_and_the_denial_is_a_miss() -> None:
    git, mail = servers()
    async with proxy_over(git, mail, profile="dev", profiles=PROFILES) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        with pytest.raises(Failed) as refused:
            await stage.client.call_tool("mail__send", {})
        through_the_bridge = await stage.client.call_tool("call_tool_write", {"name": "mail__send", "arguments": {}})
        misses = [(miss.tool, miss.noticed, miss.cause, miss.recovered) for miss in stage.misses()]
        outcomes = [(call.tool, call.via, call.outcome, call.sent) for call in stage.calls()]
    assert outcomes == [("mail__send", via, "refused", False) for via in ("name", "bridge")]
    assert mail.calls == []
    assert "profile 'dev'" in refused.value.message
    assert through_the_bridge["isError"] is True
    assert misses == [("mail__send", "call", "denied", "no")], "once for the list that the client has"


@requirement("profile:discovery")
async def test_a_discovery_does_not_show_what_the_profile_leaves_out() -> None:
    async with proxy_over(*servers(), profile="dev", profiles=PROFILES) as stage:
        client = stage.client
        await client.initialize()
        await client.list_tools()
        by_task = await client.discover("search or send mail")
        by_name = await client.discover(names=["mail__send"])
        near_name = await client.discover(names=["mail__snd"])
        nothing = await client.discover("zzz qqq")
        with pytest.raises(Failed) as unknown:
            await client.call_tool("mail__sent", {})
    assert "mail" not in str([by_task["matches"], by_name["matches"], near_name["matches"], nothing])
    assert "mail__send" not in unknown.value.message


@requirement("profile:summary")
async def test_the_summary_of_what_is_behind_counts_the_profile_alone() -> None:
    async with proxy_over(*servers(), profile="dev", profiles=PROFILES) as stage:
        listed = (await stage.client.ask("tools/list"))["tools"]
    own = next(each for each in listed if each["name"] == "discover_tools")
    assert "2 tools on 1 server;" in own["description"]
    assert "mail" not in own["description"]
