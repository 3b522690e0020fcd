"""Which upstreams there are. Whole conversations: tests/scenarios/test_cold_start.py."""

from __future__ import annotations

from typing import Any

import pytest
from fakes import FakeUpstream, SwiftLoop, proxy_over

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": SwiftLoop}


async def test_a_tools_name_points_to_the_upstream_that_has_not_listed_yet() -> None:
    upstreams = [
        FakeUpstream("calc"),
        FakeUpstream("mail", entry={"prefix": "m"}),
        FakeUpstream("bare", entry={"prefix": ""}),
    ]
    async with proxy_over(*upstreams) as stage:
        found = [stage.app.upstreams.unlisted_owner(name) for name in ("calc__x", "m__x", "mail__x", "bare__x", "x")]
    assert [each.name if each else None for each in found] == ["calc", "mail", "mail", "bare", None]
