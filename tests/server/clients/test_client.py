"""One client on the wire: eras, sessions, and the methods each era has. Whole conversations: tests/scenarios."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import Failed, FakeUpstream, changed, proxy_over
from requirements import requirement

from foretool.server.protocol import jsonrpc, versions
from foretool.storage.records import ToolId

pytestmark = pytest.mark.anyio


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


class Elsewhere:
    """A channel that keeps what it is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def finish(self, data: bytes, code: int | None) -> None:
        self.sent.append(data)

    def poll(self) -> None:
        pass

    def end(self) -> None:
        pass


@requirement("replicas:session")
async def test_another_replica_goes_on_with_the_session_its_list_and_its_log_level() -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        await stage.client.initialize("editor")
        await stage.client.ask("logging/setLevel", {"level": "error"})
        await stage.client.list_tools()
        (first,) = stage.app.clients
        other = stage.app.router.open("legacy", "http", Elsewhere(), "", "")
        other.share("r2")
        other.resume(first.memo())
        assert (other.session_key, other.version, other.log_level) == (first.session_key, first.version, "error")
        assert other.info == first.info and other.session is not None and first.session is not None
        assert other.session.list.view is first.session.list.view and not other.tools.is_stale()
        assert other.memo() == first.memo()
        # What it asks cannot be taken for a question of another replica.
        assert other.ask("roots/list", jsonrpc.UNSET, lambda reply: None, None) == "foretool-r2-1"
        other.leave()
        assert [each.ended_at for each in stage.store.sessions.recent()] == [None]
        first.close()
        (ended,) = stage.store.sessions.recent()
        assert ended.ended_at is not None


async def test_a_list_that_has_moved_since_counts_as_the_one_that_was_given() -> None:
    async with proxy_over(FakeUpstream("calc", ["add", "sub"]), pin=["calc__add"], list_tokens=0) as stage:
        await stage.client.initialize("editor")
        await stage.client.list_tools()
        (first,) = stage.app.clients
        assert first.session is not None
        exposure = stage.app.recorder.exposed(first.session.list.exposure)
        assert exposure is not None
        moved = changed(exposure, tools=(*exposure.tools, ToolId("calc__sub")), id=0)
        memo = json.loads(first.memo())
        memo["session"]["exposure"] = stage.app.recorder.exposure(moved)
        other = stage.app.router.open("legacy", "http", Elsewhere(), "", "")
        other.resume(json.dumps(memo).encode())
        assert other.session is not None
        assert other.session.list.sees(ToolId("calc__sub")) and not first.session.list.sees(ToolId("calc__sub"))
        assert other.tools.is_stale()
