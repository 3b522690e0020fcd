"""What the HTTP server goes by, read from the config."""

from __future__ import annotations

import pytest
from fakes import config_of

from foretool.server.config.addresses import parse_address
from foretool.server.transports.client.http_rules import list_problems, read_rules
from foretool.server.transports.client.security import RequestRefused

pytestmark = pytest.mark.anyio
STRONG = "q8Zr_2LxVn0pTfYw7sKd"
LOOPBACK, EVERYWHERE, SOCKET = map(parse_address, ("127.0.0.1:0", "0.0.0.0:0", "unix:/run/me/http.sock"))


def test_who_needs_a_token() -> None:
    bare, insecure = config_of().settings, config_of(insecure_loopback=True).settings
    assert "run `foretool token new`" in list_problems(bare, LOOPBACK)[0]
    assert list_problems(bare, LOOPBACK)[0].endswith(', or bind "unix:/path", or set insecure_loopback to true')
    assert list_problems(insecure, LOOPBACK) == []
    for settings in (bare, insecure):
        assert "so other machines could call your tools at 0.0.0.0:0" in list_problems(settings, EVERYWHERE)[0]
        assert "insecure" not in list_problems(settings, EVERYWHERE)[0]
        assert list_problems(settings, SOCKET) == []


async def test_a_token_that_is_set_is_asked_for_on_every_address() -> None:
    config = config_of(token=STRONG, insecure_loopback=True)
    for address in (LOOPBACK, EVERYWHERE, SOCKET):
        assert list_problems(config.settings, address) == []
        with pytest.raises(RequestRefused):
            await read_rules(config, address).access.identify("")


async def test_a_weak_token_opens_nothing_and_does_not_open_the_rest() -> None:
    config = config_of(token="short", insecure_loopback=True)
    access = read_rules(config, LOOPBACK).access
    for sent in ("", "Bearer short"):
        with pytest.raises(RequestRefused):
            await access.identify(sent)


def test_an_authorization_server_is_a_way_in_and_opens_nothing_by_itself() -> None:
    grants = [{"claim": "sub", "values": ["*"], "profiles": ["*"]}]
    access = {"issuer": "https://login.example.com", "resource": "https://t.example.com/mcp", "grants": grants}
    config = config_of(access=access, insecure_loopback=True)
    for address in (LOOPBACK, EVERYWHERE, SOCKET):
        assert list_problems(config.settings, address) == []
        assert not read_rules(config, address).access.is_open
