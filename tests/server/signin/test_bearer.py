"""Which token a request gets, and when it is renewed."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx2
import pytest
from requirements import requirement
from sign_ins import a_record, a_server, a_vault, admin, agree, guarded

from foretool.server.config.servers import Server
from foretool.server.signin import bearer as bearers
from foretool.server.signin.bearer import Bearer
from foretool.server.signin.flow import sign_in
from foretool.server.signin.record import SignIn
from foretool.server.signin.tokens import TokenError
from foretool.server.signin.vault import Vault
from foretool.server.transports.upstream.http_client import AuthorizedClient, SendRefused

pytestmark = pytest.mark.anyio
PING = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
STEP_UP = 'Bearer error="insufficient_scope", scope="write"'


def renewing(monkeypatch: pytest.MonkeyPatch, *answers: SignIn | TokenError) -> list[SignIn]:
    """Let the authorization server answer with these, one after the other; the sign-ins that it was asked with."""
    left, asked = list(answers), []

    async def renew(record: SignIn) -> SignIn:
        asked.append(record)
        await asyncio.sleep(0)
        answer = left.pop(0)
        if isinstance(answer, TokenError):
            raise answer
        return answer

    monkeypatch.setattr(bearers, "renew", renew)
    return asked


async def signed_in(url: str, vault: Vault) -> Server:
    server = a_server(url)
    vault.save(server, await sign_in(server, vault, agree))
    return server


async def status_of(client: AuthorizedClient, url: str) -> int:
    async with client.stream("POST", url, headers={"content-type": "application/json"}, content=PING) as response:
        return response.status_code


async def test_a_sign_in_that_comes_meanwhile_is_used_at_once(tmp_path: Path) -> None:
    vault, server = a_vault(tmp_path), a_server()
    bearer = Bearer(server, vault)
    await bearer.on_refused(401, None, await bearer.authorization())
    assert not bearer.has_news()
    vault.save(server, a_record())
    assert bearer.has_news()
    assert await bearer.authorization() == "Bearer acc-0123456789"
    assert (bearer.notice, bearer.needs_sign_in) == ("", False)
    vault.remove(server)
    assert await bearer.authorization() == ""


async def test_a_refusal_is_repeated_with_the_token_that_came_meanwhile(tmp_path: Path) -> None:
    vault, server = a_vault(tmp_path), a_server()
    bearer = Bearer(server, vault)
    sent = await bearer.authorization()
    vault.save(server, a_record())
    assert await bearer.on_refused(401, None, sent) == "repeat"


async def test_a_token_is_renewed_before_it_expires(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault, server, now = a_vault(tmp_path), a_server(), time.time()
    old, new = a_record(received_at=now - 3600, expires_at=now + 30), a_record(access_token="new-0123456789")
    asked = renewing(monkeypatch, new)
    vault.save(server, old)
    bearer = Bearer(server, vault)
    assert [await bearer.authorization() for _ in range(3)] == ["Bearer new-0123456789"] * 3
    assert asked == [old] and vault.load(server) == new


@requirement("trust:sign-in:once")
async def test_fifty_calls_of_two_proxies_renew_once(tmp_path: Path) -> None:
    vault = a_vault(tmp_path)
    async with guarded() as url:
        server = await signed_in(url, vault)
        clients = [AuthorizedClient(url, {}, Bearer(server, vault)) for _ in range(2)]
        await admin(url, forget="access")
        statuses = await asyncio.gather(*(status_of(clients[each % 2], url) for each in range(50)))
        counts = await admin(url)
        for client in clients:
            await client.aclose()
    assert statuses == [200] * 50
    assert (counts["refresh"], counts["reuse"], counts["code"]) == (1, 0, 1)


@requirement("trust:sign-in:once")
async def test_an_authorization_server_in_trouble_is_not_asked_by_every_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault, server = a_vault(tmp_path), a_server()
    vault.save(server, a_record())
    bearer = Bearer(server, vault)
    asked = renewing(monkeypatch, TokenError("HTTP 503"), a_record(access_token="new-0123456789"))
    sent = await bearer.authorization()
    for _ in range(5):
        assert await bearer.on_refused(401, None, sent) == "refused"
    assert len(asked) == 1
    assert (bearer.notice, bearer.needs_sign_in) == ("its token cannot be renewed at the moment", False)
    monkeypatch.setattr(bearers.time, "monotonic", lambda: 1e12)
    assert await bearer.on_refused(401, None, sent) == "repeat"
    bearer.on_accepted("Bearer new-0123456789")
    assert bearer.notice == ""


async def test_a_sign_in_that_has_ended_needs_a_person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vault, server = a_vault(tmp_path), a_server()
    vault.save(server, a_record())
    bearer = Bearer(server, vault)
    asked = renewing(monkeypatch, TokenError("HTTP 400 (invalid_grant)", is_over=True))
    sent = await bearer.authorization()
    assert await bearer.on_refused(401, None, sent) == "refused"
    assert bearer.notice == "its sign-in has ended: run `foretool login guarded` in a terminal"
    assert await bearer.authorization() == ""
    assert await bearer.on_refused(401, None, "") == "refused"
    assert len(asked) == 1


async def test_a_server_that_wants_more_rights_says_so_and_login_will_ask_for_them(tmp_path: Path) -> None:
    vault, server = a_vault(tmp_path), a_server()
    vault.save(server, a_record())
    bearer = Bearer(server, vault)
    assert await bearer.on_refused(403, STEP_UP, await bearer.authorization()) == "refused"
    assert bearer.notice == "needs you to allow more: run `foretool login guarded` in a terminal"
    assert vault.wanted(server).scope == "write"
    bearer.on_accepted("Bearer acc-0123456789")  # other calls need no more
    assert bearer.needs_sign_in
    assert await bearer.on_refused(403, "Bearer", "Bearer x") == "other"


async def test_a_machine_signs_in_by_itself(tmp_path: Path) -> None:
    vault, times = a_vault(tmp_path), []
    machine = {"grant": "client_credentials", "client_id": "us", "client_secret": "s3", "issuer": "https://a.example"}
    server = a_server(oauth=machine)

    async def sign_in_machine() -> bool:
        times.append(1)
        vault.save(server, a_record(grant="client_credentials", refresh_token=""))
        return True

    bearer = Bearer(server, vault, sign_in_machine)
    sent = await bearer.authorization()
    verdicts = await asyncio.gather(*(bearer.on_refused(401, None, sent) for _ in range(20)))
    assert verdicts == ["repeat"] * 20 and times == [1]
    assert await bearer.authorization() == "Bearer acc-0123456789"


@requirement("trust:sign-in:silent")
async def test_tokens_are_taken_out_of_texts_also_those_of_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault, server = a_vault(tmp_path), a_server()
    vault.save(server, a_record())
    bearer = Bearer(server, vault)
    renewing(monkeypatch, a_record(access_token="new-0123456789"))
    await bearer.on_refused(401, None, await bearer.authorization())
    text = bearer.redact("you sent acc-0123456789, then new-0123456789, and ref-0123456789")
    assert "0123456789" not in text


async def test_a_lasting_refusal_reaches_the_caller_once(tmp_path: Path) -> None:
    async with guarded() as url:
        client = AuthorizedClient(url, {}, Bearer(a_server(url), a_vault(tmp_path)))
        with pytest.raises(SendRefused, match="foretool login guarded"):
            await status_of(client, url)
        counts: dict[str, Any] = await admin(url)
        await client.aclose()
    assert counts["refused"] == 1
    assert isinstance(client, AuthorizedClient) and not isinstance(client, httpx2.AsyncClient)
