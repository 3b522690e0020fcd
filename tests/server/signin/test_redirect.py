"""The browser's way back."""

from __future__ import annotations

import asyncio
import socket

import httpx2
import pytest
from requirements import requirement

from foretool.server.signin.redirect import RedirectError, Returned, read_redirect, receiving

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("address", "wanted"),
    [
        ("http://127.0.0.1:1/callback?code=c&state=s", Returned("c", "s")),
        ("  /callback?code=c&state=s&iss=https%3A%2F%2Fa.example \n", Returned("c", "s", "https://a.example")),
        ("?error=access_denied&error_description=no&state=s", Returned("", "s", None, "access_denied", "no")),
    ],
)
def test_an_address_is_read(address: str, wanted: Returned) -> None:
    assert read_redirect(address, "s") == wanted


@requirement("trust:sign-in:redirect")
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://127.0.0.1:1/callback?code=c&state=other", "another sign-in"),
        ("http://127.0.0.1:1/callback?code=c", "the whole address"),
        ("http://127.0.0.1:1/callback?state=s", "the whole address"),
        ("code", "the whole address"),
        ("/callback?code=c&code=d&state=s", "twice"),
        ("/callback?code=c&state=s&state=t", "twice"),
    ],
)
def test_an_address_of_another_sign_in_is_refused(address: str, said: str) -> None:
    with pytest.raises(RedirectError, match=said):
        read_redirect(address, "s")


@requirement("trust:sign-in:redirect")
async def test_answers_of_others_are_refused_and_the_right_one_is_waited_for() -> None:
    async with receiving(0) as receiver, httpx2.AsyncClient(verify=False) as http:
        early = await http.get(f"{receiver.uri}?code=c&state=")
        receiver.expect("s3cret")
        for wrong in ("?code=evil&state=guess", "?code=evil", "", "?state=s3cret"):
            assert (await http.get(f"{receiver.uri}{wrong}")).status_code == 400
        assert (await http.post(f"{receiver.uri}?code=evil&state=s3cret")).status_code == 404
        assert (await http.get(f"http://127.0.0.1:{receiver.port}/?code=evil&state=s3cret")).status_code == 404
        right = await http.get(f"{receiver.uri}?code=good&state=s3cret")
        late = await http.get(f"{receiver.uri}?code=evil&state=s3cret")
        returned = await receiver.wait()
    assert early.status_code == 404 and right.status_code == late.status_code == 200
    assert returned.code == "good"
    assert (
        right.headers["cache-control"] == "no-store"
        and "default-src 'none'" in right.headers["content-security-policy"]
    )
    assert "s3cret" not in right.text and "good" not in right.text


@requirement("trust:sign-in:redirect")
async def test_a_port_that_another_program_has_is_not_used() -> None:
    with socket.create_server(("127.0.0.1", 0)) as squatter:
        port = squatter.getsockname()[1]
        with pytest.raises(RedirectError, match="another program has it"):
            async with receiving(port):
                pytest.fail("it listens beside another program")
        async with receiving(0, preferred=port) as receiver:
            assert receiver.port != port


async def test_the_port_of_the_last_sign_in_is_taken_again_where_it_is_free() -> None:
    async with receiving(0) as first:
        port = first.port
    async with receiving(0, preferred=port) as second:
        assert second.port == port


@requirement("trust:sign-in:bounded")
async def test_what_is_no_request_harms_nobody() -> None:
    async with receiving(0) as receiver:
        receiver.expect("s")
        writers = []
        for data in (b"\x00" * 64 + b"\r\n\r\n", b"GET / HTTP/1.1\r\n", b"x" * 100_000):
            _, writer = await asyncio.open_connection("127.0.0.1", receiver.port)
            writer.write(data)
            writers.append(writer)
        async with httpx2.AsyncClient(verify=False) as http:
            assert (await http.get(f"{receiver.uri}?code=c&state=s")).status_code == 200
        for writer in writers:
            writer.close()
