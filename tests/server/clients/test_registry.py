"""Which clients there are. Whole conversations: tests/scenarios."""

from __future__ import annotations

import pytest
from fakes import FakeUpstream, proxy_over

pytestmark = pytest.mark.anyio


async def test_the_only_client_is_known_and_two_are_not_one() -> None:
    async with proxy_over(FakeUpstream("calc")) as stage:
        assert stage.app.clients.only_client() is stage.client._front
        other = stage.connect()
        assert stage.app.clients.only_client() is None
        assert other._front is not None
        other._front.close()
        assert stage.app.clients.only_client() is stage.client._front
