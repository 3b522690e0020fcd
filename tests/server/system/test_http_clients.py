"""Every part that asks something over HTTP reaches this machine without the proxy of the environment, and says in one
line where that proxy cannot be used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from requirements import requirement

from foretool.learning.language_models import open_endpoint
from foretool.retrieval.encoders import Endpoint, Weights
from foretool.server.catalog.encoders import EndpointEncoder
from foretool.server.catalog.model_endpoint import EndpointClient
from foretool.server.setup import mcp_registry
from foretool.server.transports.upstream.http_client import new_client


async def ask_judge(url: str) -> None:
    client = EndpointClient(most_bytes=1_000, timeout_s=5)
    try:
        await client.post(url, "", {})
    finally:
        await client.close()


async def ask_server(url: str) -> None:
    async with new_client(url, {}) as client:
        await client.get(url, timeout=5)


def embed(url: str) -> None:
    EndpointEncoder(Weights("tiny", "there", "none", kind="endpoint"), Endpoint(url)).queries(["a"])


PARTS: dict[str, Callable[[str], Any]] = {
    "judge": lambda url: asyncio.run(ask_judge(url)),
    "server": lambda url: asyncio.run(ask_server(url)),
    "encoder": embed,
    "language model": lambda url: open_endpoint(url, "")({}),
    "registry": mcp_registry.fetch_url,
}


@requirement("upstream:forward-proxy")
@pytest.mark.parametrize("part", PARTS)
def test_a_proxy_that_cannot_be_used_is_said_in_one_line_without_its_password(
    part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks://user:t0p@127.0.0.1:1080")
    with pytest.raises(Exception, match=r"HTTPS_PROXY or ALL_PROXY cannot be used: expected http://host") as failed:
        PARTS[part]("https://far.example/v1")
    assert type(failed.value).__module__.startswith("foretool.") and "t0p" not in str(failed.value)


@requirement("upstream:forward-proxy")
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_this_machine_is_reached_without_the_proxy_of_the_environment(
    part: str, scheme: str, host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "socks://127.0.0.1:1080")
    with pytest.raises(Exception, match=r"ConnectError|connection attempts failed"):
        PARTS[part](f"{scheme}://{host}:1/v1")
