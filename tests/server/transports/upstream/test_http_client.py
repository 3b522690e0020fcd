"""What the links to remote servers share."""

from __future__ import annotations

import httpx2
import pytest

from foretool.server.transports.upstream import http_client

pytestmark = pytest.mark.anyio


def test_an_address_is_free_of_secrets() -> None:
    assert http_client.origin("https://user:t0p@mcp.example:8443/a/t0p?key=t0p#t0p") == "https://mcp.example:8443"


def test_a_refusal_tells_where_a_redirect_leads_but_not_its_path() -> None:
    assert "to https://x.example, which" in http_client.describe_status(307, "https://x.example/t0p?t0p")
    assert http_client.describe_status(307, "/elsewhere").startswith(
        "answered HTTP 307, a redirect, which is not followed"
    )


async def test_a_client_follows_no_redirect_and_waits_for_streams() -> None:
    async with http_client.new_client("http://127.0.0.1", {"x": "y"}) as client:
        assert not client.follow_redirects
        assert client.timeout == httpx2.Timeout(connect=10.0, read=None, write=60.0, pool=None)
        assert client.headers["x"] == "y"
