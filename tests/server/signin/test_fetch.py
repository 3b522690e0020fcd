"""The way to authorization servers, and where it does not lead."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from http_fakes import Asked, serving, upstream
from requirements import requirement

from foretool.server.signin import fetch as fetching
from foretool.server.signin.fetch import FetchError, fetch, is_public, refuse_private_address

pytestmark = pytest.mark.anyio
PUBLIC = "https://mcp.example/mcp"


def resolving(monkeypatch: pytest.MonkeyPatch, **hosts: str) -> None:
    """Let names lead to addresses, without a network."""
    known = {name.replace("_", "."): address for name, address in hosts.items()}

    async def resolve(host: str) -> list[str]:
        is_name = host[0].isalpha()
        return [known.get(host, "93.184.215.14" if is_name else host)]

    monkeypatch.setattr(fetching, "_resolve", resolve)


@requirement("trust:sign-in:discovery")
@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "gopher://auth.example/",
        "http://auth.example/.well-known/oauth-authorization-server",
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1:8399/mcp",
        "http://[::1]/",
        "https://169.254.169.254/",
        "https://10.0.0.1/",
        "https://192.168.1.1/admin",
        "https://127.0.0.1:8399/",
        "https://[::ffff:10.0.0.1]/",
        "https://router.example/",
        "https://user:word@auth.example/",
        "https://",
        "//auth.example",
    ],
)
async def test_a_server_of_the_internet_leads_to_no_other_place(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, router_example="192.168.1.1")
    with pytest.raises(FetchError):
        await refuse_private_address(url, PUBLIC)


@requirement("trust:sign-in:discovery")
async def test_a_server_of_the_local_network_leads_there_and_not_to_this_machine(monkeypatch: Any) -> None:
    resolving(monkeypatch, mcp_corp="10.0.0.5", auth_corp="10.0.0.6", own_corp="127.0.0.1")
    await refuse_private_address("https://auth.corp/token", "https://mcp.corp/mcp")
    await refuse_private_address("https://auth.example/token", "https://mcp.corp/mcp")
    with pytest.raises(FetchError, match="is an address of this machine"):
        await refuse_private_address("https://own.corp/token", "https://mcp.corp/mcp")


async def test_a_public_authorization_server_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    resolving(monkeypatch, localhost="127.0.0.1")
    await refuse_private_address("https://auth.example/token", PUBLIC)
    await refuse_private_address("http://127.0.0.1:9/token", "http://localhost:8/mcp")


@pytest.mark.parametrize(
    ("address", "expected"),
    [("93.184.215.14", True), ("127.0.0.1", False), ("fe80::1%eth0", False), ("::ffff:127.0.0.1", False),
     ("2002:7f00:1::", False), ("fd00::1", False), ("0.0.0.0", False), ("100.64.0.1", False), ("224.0.0.1", False)],
)  # fmt: skip
def test_which_addresses_belong_to_the_internet(address: str, expected: bool) -> None:
    assert is_public(address) is expected


@requirement("trust:sign-in:token")
async def test_a_redirect_is_an_answer_and_carries_nothing_on() -> None:
    seen: list[str] = []

    async def answer(asked: Asked) -> None:
        seen.append(asked.path)
        await asked.answer({}, 307, location="/elsewhere")

    async with serving(upstream(answer)) as base:
        response = await fetch("POST", f"{base}/token", f"{base}/mcp", headers={"authorization": "Basic c2VjcmV0"})
    assert (response.status_code, seen) == (307, ["/token"])


@requirement("trust:sign-in:bounded")
async def test_a_huge_document_is_cut_off() -> None:
    async def answer(asked: Asked) -> None:
        await asked.start(content_type="application/json")
        while not asked.gone.is_set():
            await asked.write(b" " * 65_536)

    async with serving(upstream(answer)) as base:
        with pytest.raises(FetchError, match="more than 256 KiB"):
            await fetch("GET", base, base)


@requirement("trust:sign-in:bounded")
async def test_who_never_answers_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetching, "PATIENCE_S", 0.05)

    async def answer(asked: Asked) -> None:
        await asked.gone.wait()

    async with serving(upstream(answer)) as base:
        with pytest.raises(FetchError, match=r"did not answer within 0\.05 s"):
            await asyncio.wait_for(fetch("GET", base, base), 5)


async def test_a_place_where_nobody_listens_is_named_without_its_path() -> None:
    with pytest.raises(FetchError, match=r"^http://127\.0\.0\.1:9 cannot be asked") as raised:
        await fetch("GET", "http://127.0.0.1:9/secret-path?token=t0p", "http://127.0.0.1:9/")
    assert "secret" not in str(raised.value) and "t0p" not in str(raised.value)
