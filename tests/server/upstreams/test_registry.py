"""Which upstreams there are. Whole conversations: tests/scenarios/test_cold_start.py."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeUpstream, SwiftLoop, proxy_over

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SwiftLoop}


async def test_upstreams_whose_tools_are_unknown_are_named_until_they_have_listed_them() -> None:
    upstreams = [FakeUpstream("calc", ["add"]), FakeUpstream("mail", missing="not installed")]
    async with proxy_over(*upstreams) as stage:
        assert stage.app.upstreams.unlisted() == {"calc", "mail"}
        await stage.client.initialize()
        await stage.client.list_tools()
        assert stage.app.upstreams.unlisted() == {"mail"}
