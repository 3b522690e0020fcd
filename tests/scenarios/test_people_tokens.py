"""Tokens of people at an authorization server that is not ours, npm's oidc-provider: asked about, traded and granted.

Trading (RFC 8693) is not a part of it and was added in `support/oidc_server.mjs`, by its own rules for other grants;
client authentication, introspection (RFC 7662), revocation (RFC 7009), consent and rotation are its own. Where npm is
away, nothing is run.
"""

from __future__ import annotations

import asyncio
import base64
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

import httpx2
import pytest
from callers import on_the_real_clock
from http_fakes import unused_port
from listening import printing
from mcp.client.session import ClientSession
from node import environment, installed
from requirements import requirement
from served import write_config
from signed_in import PATIENCE_S, Kept, browse, signed_in

from foretool.fleet.people.credentials import PAUSE_S

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.timeout(300), pytest.mark.anyio, on_the_real_clock]

SUPPORT = Path(__file__).parents[1] / "support"
VERSION = "9.13.3"
SECRET = "s3cret/of:the trader"
ASKED_S = 1.0
"""How long an answer about a token counts in these tests."""


class Stage(NamedTuple):
    issuer: str
    signed: str
    """The address of a foretool whose people show JWTs."""
    asked: str
    """That of one which asks about each token."""
    config: Path


def serve(stack: ExitStack, folder: Path, address: str, servers: dict[str, Any], **settings: Any) -> Path:
    path = write_config(folder, servers, policy="full", **settings)
    command = [sys.executable, "-P", "-m", "foretool", "serve", "--config", str(path), "--http", address]
    assert stack.enter_context(printing(command)) == f"http://{address}/mcp"
    return path


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    try:
        folder = installed("oidc-provider", VERSION)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"npm gives no oidc-provider: {error}")
    node = next(Path(each, "node") for each in environment()["PATH"].split(":") if Path(each, "node").exists())
    signed, asked = (f"127.0.0.1:{unused_port()}" for _ in range(2))
    resources = [f"http://{each}/mcp" for each in (signed, asked)]
    with ExitStack() as stack:
        guarded = stack.enter_context(
            printing([str(node), str(SUPPORT / "oidc_server.mjs"), str(folder), "", *resources])
        )
        issuer = guarded.removesuffix("/mcp")
        client = {"client_id": "foretool", "client_secret": SECRET}
        grants = [{"claim": "groups", "values": ["developers"], "profiles": ["*"]}]
        access = {"issuer": issuer, "scopes": ["mcp"], "grants": grants}
        trade = {"token_endpoint": f"{issuer}/token", "scopes": ["read"], **client}
        grant = {**trade, "authorization_endpoint": f"{issuer}/auth",
                 "revocation_endpoint": f"{issuer}/token/revocation"}  # fmt: skip
        servers = {
            "traded": {"url": guarded, "per_user": trade, "trust": "auto"},
            "granted": {"url": guarded, "per_user": grant, "trust": "auto"},
        }
        path = serve(
            stack, tmp_path_factory.mktemp("signed"), signed, servers, access={**access, "resource": resources[0]},
            seal_keys=[base64.b64encode(bytes(32)).decode()], cold_list_s=20,
        )  # fmt: skip
        question = {"introspection_endpoint": f"{issuer}/token/introspection", "introspection_s": ASKED_S, **client}
        echo = {"command": sys.executable, "args": [str(SUPPORT / "echo_upstream.py")]}
        serve(
            stack, tmp_path_factory.mktemp("asked"), asked, {"echo": echo},
            access={**access, "resource": resources[1], **question},
        )  # fmt: skip
        yield Stage(issuer, *resources, path)


async def tell(issuer: str, **wanted: Any) -> dict[str, int]:
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        counts: dict[str, int] = (await http.post(f"{issuer}/admin", json=wanted)).json()
    return counts


async def forget_tokens(issuer: str) -> dict[str, int]:
    """Have the authorization server forget its access tokens, once they are old enough to be replaced at once."""
    await asyncio.sleep(PAUSE_S + 0.2)
    return await tell(issuer, forget="access")


async def call(session: ClientSession, tool: str, **arguments: Any) -> str:
    return json.dumps((await session.call_tool(tool, arguments)).model_dump(mode="json"))


async def names(session: ClientSession) -> set[str]:
    return {tool.name for tool in (await session.list_tools()).tools}


async def connect(session: ClientSession, stage: Stage) -> None:
    """Allow access to the server `granted` in a browser, and bring its code."""
    said = await call(session, "connect_server", server="granted")
    found = re.search(rf"{re.escape(stage.issuer)}/auth\?\S+", said)
    assert found is not None, said
    callback = await browse(found[0], urljoin(stage.signed, "/connect/callback"))
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as browser:
        page = (await browser.get(callback)).text
    code = re.search(r"<b>([A-Z2-9-]+)</b>", page)
    assert code is not None, page
    assert "is connected" in await call(session, "connect_server", server="granted", code=code[1])


@requirement("trust:per-user")
async def test_a_callers_token_is_traded_for_one_of_the_server(stage: Stage) -> None:
    kept = Kept()
    before = await tell(stage.issuer)
    async with signed_in(stage.signed, kept) as session:
        assert {"traded__read", "traded__who"} <= await names(session)
        assert "who: ann by foretool" in await call(session, "traded__who")
        assert "read: read" in await call(session, "traded__read")
        assert (await tell(stage.issuer))["exchange"] == before["exchange"] + 1, "one token for all calls"
        await forget_tokens(stage.issuer)  # what was traded is over; the caller's JWT is still good
        assert "who: ann by foretool" in await call(session, "traded__who")
        assert (await tell(stage.issuer))["exchange"] == before["exchange"] + 2
    assert kept.tokens is not None
    stored = b"".join(each.read_bytes() for each in stage.config.parent.glob("*") if each.is_file())
    assert kept.tokens.access_token.encode() not in stored and SECRET.encode() not in stored.replace(
        stage.config.read_bytes(), b"")  # fmt: skip


@requirement("trust:per-user")
async def test_a_person_allows_access_which_is_renewed_and_ended(stage: Stage) -> None:
    async with signed_in(stage.signed, Kept()) as session:
        await connect(session, stage)
        assert "who: ann by foretool" in await call(session, "granted__who")
        before = await tell(stage.issuer)
        # The server takes each refresh token once, so the second renewal shows that the newest one was kept.
        for count in (1, 2):
            await forget_tokens(stage.issuer)
            assert "who: ann by foretool" in await call(session, "granted__who")
            assert (await tell(stage.issuer))["refresh"] == before["refresh"] + count
        revoked = (await tell(stage.issuer))["revoke"]
        said = await call(session, "connect_server", server="granted", disconnect=True)
        assert "is disconnected." in said and "may still hold" not in said
        assert (await tell(stage.issuer))["revoke"] > revoked
        assert "needs the consent of its user" in await call(session, "granted__who")


@requirement("trust:per-user")
async def test_forgetting_ends_a_grant_at_the_server(stage: Stage) -> None:
    async with signed_in(stage.signed, Kept()) as session:
        await connect(session, stage)
        revoked = (await tell(stage.issuer))["revoke"]
        command = [sys.executable, "-P", "-m", "foretool", "forget", "--server", "granted", "--yes", "--json"]
        done = await asyncio.to_thread(
            subprocess.run, [*command, "--config", str(stage.config)], capture_output=True, text=True, check=True
        )
        outcome = json.loads(done.stdout)
        assert outcome["counts"]["grants"] == 1 and not any("may still hold" in each for each in outcome["remains"])
        assert (await tell(stage.issuer))["revoke"] > revoked


@requirement("trust:http:issuer")
async def test_a_token_that_is_no_jwt_is_asked_about_and_ends_when_it_is_revoked(stage: Stage) -> None:
    kept = Kept()
    before = await tell(stage.issuer)
    async with signed_in(stage.asked, kept) as session:
        assert any(name.startswith("echo__") for name in await names(session))
    assert kept.tokens is not None and "." not in kept.tokens.access_token
    assert (await tell(stage.issuer))["introspect"] > before["introspect"]
    headers = {"authorization": f"Bearer {kept.tokens.access_token}", "accept": "application/json, text/event-stream"}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}}  # fmt: skip
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        assert (await http.post(stage.asked, json=asked, headers=headers)).status_code == 200
        made_up = {**headers, "authorization": "Bearer " + "x" * 43}
        assert (await http.post(stage.asked, json=asked, headers=made_up)).status_code == 401
        await tell(stage.issuer, forget="access")
        await asyncio.sleep(ASKED_S + 0.1)
        assert (await http.post(stage.asked, json=asked, headers=headers)).status_code == 401
    assert urlsplit(kept.links[0]).netloc == urlsplit(stage.issuer).netloc
