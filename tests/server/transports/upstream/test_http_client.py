"""What the links to remote servers share."""

from __future__ import annotations

import ssl

import httpx2
import pytest

from foretool.server.transports.upstream import http_client

pytestmark = pytest.mark.anyio


def test_an_address_is_free_of_secrets() -> None:
    assert http_client.origin("https://user:t0p@mcp.example:8443/a/t0p?key=t0p#t0p") == "https://mcp.example:8443"


async def test_a_client_follows_no_redirect_and_waits_for_streams() -> None:
    async with http_client.new_client("http://127.0.0.1", {"x": "y"}) as client:
        assert not client.follow_redirects
        assert client.timeout == httpx2.Timeout(connect=10.0, read=None, write=60.0, pool=None)
        assert client.headers["x"] == "y"


async def test_what_tls_says_while_reading_is_an_error_of_http_and_told_in_words() -> None:
    def refuse(request: httpx2.Request) -> httpx2.Response:
        raise ssl.SSLError(1, "[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required (_ssl.c:1)")

    client = http_client.AuthorizedClient("https://mcp.example", {})
    await client.aclose()
    client._http = httpx2.AsyncClient(transport=httpx2.MockTransport(refuse))
    with pytest.raises(httpx2.ReadError) as failed:
        async with client.stream("POST", "https://mcp.example", headers={}):
            pytest.fail("there is no response")
    await client.aclose()
    said = http_client.describe_error(failed.value)
    assert said == "it wants a certificate of its clients, and does not accept what it got"
