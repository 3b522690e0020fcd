"""Lists that several upstreams have a part of. Whole conversations: tests/scenarios/test_resources_and_prompts.py."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeUpstream, SwiftLoop, proxy_over

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SwiftLoop}


async def test_a_cancelled_list_is_taken_back_from_every_upstream() -> None:
    upstreams = [FakeUpstream(name, capabilities={"resources": {}}) for name in ("a", "b")]
    for upstream in upstreams:
        upstream.hold("resources/list")
    async with proxy_over(*upstreams) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        request = stage.client.post("resources/list")
        for upstream in upstreams:
            await upstream.asked("resources/list")
        stage.client.notify("notifications/cancelled", {"requestId": request})
        for upstream in upstreams:
            await upstream.asked("notifications/cancelled")
    assert request not in stage.client._raw
