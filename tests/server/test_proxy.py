"""What is common to all clients and upstreams. Whole conversations: tests/scenarios."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeUpstream, SwiftLoop, proxy_over
from requirements import requirement

from foretool.server.protocol.jsonrpc import raw

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SwiftLoop}


async def test_the_only_client_is_known_and_two_are_not_one() -> None:
    async with proxy_over(FakeUpstream("calc")) as stage:
        assert stage.app.proxy.only_client() is stage.client._front
        other = stage.connect()
        assert stage.app.proxy.only_client() is None
        assert other._front is not None
        other._front.close()
        assert stage.app.proxy.only_client() is stage.client._front


async def test_a_tools_name_points_to_the_upstream_that_has_not_listed_yet() -> None:
    upstreams = [
        FakeUpstream("calc"),
        FakeUpstream("mail", entry={"prefix": "m"}),
        FakeUpstream("bare", entry={"prefix": ""}),
    ]
    async with proxy_over(*upstreams) as stage:
        found = [stage.app.proxy.unlisted_upstream(name) for name in ("calc__x", "m__x", "mail__x", "bare__x", "x")]
    assert [each.name if each else None for each in found] == ["calc", "mail", "mail", "bare", None]


async def test_before_anything_is_known_everything_is_offered() -> None:
    async with proxy_over(FakeUpstream("calc")) as stage:
        profile = stage.app.config.profiles[""]
        offered = stage.app.proxy.server_capabilities("legacy", profile)
    assert set(offered) == {"tools", "resources", "prompts", "completions", "logging"}


@requirement("record:levels")
@pytest.mark.parametrize(("record", "kept"), [("off", ""), ("shape", '{"a":"string"}'), ("full", '{"a":"[KEY]"}')])
async def test_what_is_kept_of_arguments_follows_the_setting(record: str, kept: str) -> None:
    upstream = FakeUpstream("calc", entry={"env": {"KEY": "s3cr3t-value"}})
    async with proxy_over(upstream, record=record) as stage:
        assert stage.app.proxy.argument_record(raw({"a": "s3cr3t-value"})) == kept


async def test_only_what_we_serve_of_a_listen_filter_is_honoured() -> None:
    async with proxy_over(FakeUpstream("calc")) as stage:
        wanted = {"toolsListChanged": True, "promptsListChanged": "yes", "resourceSubscriptions": ["a", 5], "x": True}
        assert stage.app.proxy.honoured(wanted) == {"toolsListChanged": True, "resourceSubscriptions": ["a"]}
        assert stage.app.proxy.honoured({"resourceSubscriptions": "a"}) == {}
