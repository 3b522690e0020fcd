"""Which methods each era has."""

from __future__ import annotations

import pytest
from fakes import Failed, FakeUpstream, proxy_over

from foretool.server.protocol import jsonrpc

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("method", ["ping", "logging/setLevel", "resources/subscribe"])
async def test_methods_of_the_old_era_are_unknown_in_the_new_one(method: str) -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        with pytest.raises(Failed) as unknown:
            await stage.client.modern().ask(method, {"level": "info", "uri": "x"})
    assert unknown.value.code == jsonrpc.METHOD_NOT_FOUND


@pytest.mark.parametrize("method", ["subscriptions/listen"])
async def test_methods_of_the_new_era_are_unknown_in_the_old_one(method: str) -> None:
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        await stage.client.initialize()
        with pytest.raises(Failed) as unknown:
            await stage.client.ask(method, {"notifications": {}})
    assert unknown.value.code == jsonrpc.METHOD_NOT_FOUND
