"""One client on the wire: eras, sessions, and the methods each era has. Whole conversations: tests/scenarios."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import Failed, FakeUpstream, SwiftLoop, proxy_over
from requirements import requirement

from foretool.server.protocol import jsonrpc, versions

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SwiftLoop}


@requirement("greeting:modern")
@pytest.mark.parametrize(
    ("meta", "code"),
    [
        ({versions.META_VERSION: "2099-01-01"}, jsonrpc.UNSUPPORTED_VERSION),
        ({versions.META_CAPABILITIES: None}, jsonrpc.INVALID_PARAMS),
        ({versions.META_CAPABILITIES: []}, jsonrpc.INVALID_PARAMS),
    ],
)
async def test_a_bad_envelope_is_refused(meta: dict[str, Any], code: int) -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        with pytest.raises(Failed) as refused:
            await stage.client.modern(**meta).ask("tools/list")
        if code == jsonrpc.UNSUPPORTED_VERSION:
            assert refused.value.data["requested"] == "2099-01-01"
            assert "2026-07-28" in refused.value.data["supported"]
    assert refused.value.code == code


async def test_one_process_may_hold_several_modern_callers_and_each_has_a_session() -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        for name in ("one", "two", "one"):
            await stage.client.modern(name).list_tools()
        sessions = sorted(each.client for each in stage.store.sessions.recent())
    assert sessions == ["one", "two"]


async def test_initialize_begins_exactly_one_session() -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        await stage.client.initialize("editor")
        await stage.client.list_tools()
        assert [each.client for each in stage.store.sessions.recent()] == ["editor"]


async def test_a_mistake_of_ours_in_one_request_is_answered_and_logged_and_the_next_one_works(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        await stage.client.initialize()
        search = stage.app.search.rank

        def broken(*_: Any) -> Any:
            raise RuntimeError("a mistake")

        stage.app.search.rank = broken  # type: ignore[method-assign]
        with pytest.raises(Failed) as failed:
            await stage.client.discover("anything")
        stage.app.search.rank = search  # type: ignore[method-assign]
        await stage.client.discover("anything")
    assert failed.value.code == jsonrpc.INTERNAL_ERROR
    assert "RuntimeError: a mistake" in caplog.text
