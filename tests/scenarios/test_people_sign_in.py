"""People of an authorization server that is not ours, npm's oidc-provider, before a running `foretool serve --http`.

The client is that of the MCP SDK: it finds the authorization server by itself, registers, signs its user in, and calls
a tool. Where npm is away, nothing is run.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
import pytest
from callers import on_the_real_clock
from http_fakes import unused_port
from listening import printing
from node import environment, installed
from requirements import requirement
from served import write_config
from signed_in import PATIENCE_S, Kept, signed_in

pytestmark = [pytest.mark.slow, pytest.mark.real, pytest.mark.timeout(300), pytest.mark.anyio, on_the_real_clock]

SUPPORT = Path(__file__).parents[1] / "support"
VERSION = "9.13.3"
SECRET = "s3cret-word-of-the-machine"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """The issuer, the address of foretool, and its config."""
    try:
        folder = installed("oidc-provider", VERSION)
    except (subprocess.SubprocessError, OSError) as error:
        pytest.skip(f"npm gives no oidc-provider: {error}")
    node = next(Path(each, "node") for each in environment()["PATH"].split(":") if Path(each, "node").exists())
    address = f"127.0.0.1:{unused_port()}"
    resource = f"http://{address}/mcp"
    with printing([str(node), str(SUPPORT / "oidc_server.mjs"), str(folder), "", resource]) as found:
        issuer = found.removesuffix("/mcp")
        access = {
            "issuer": issuer,
            "resource": resource,
            "scopes": ["mcp"],
            "grants": [
                {"claim": "groups", "values": ["developers"], "profiles": ["default"]},
                {"claim": "client_id", "values": ["machine"], "profiles": ["robots"]},
            ],
        }
        upstream = {"command": sys.executable, "args": [str(SUPPORT / "echo_upstream.py")]}
        path = write_config(
            tmp_path_factory.mktemp("people"), {"echo": upstream}, policy="full", audit=True, access=access,
            profiles={"robots": {}},
        )  # fmt: skip
        command = [sys.executable, "-P", "-m", "foretool", "serve", "--config", str(path), "--http", address]
        with printing(command) as url:
            assert url == resource
            yield issuer, url, path


async def machine_token(issuer: str, resource: str) -> str:
    form = {"grant_type": "client_credentials", "scope": "mcp", "resource": resource}
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as http:
        answer = await http.post(urljoin(issuer, "/token"), data=form, auth=("machine", SECRET))
    return str(answer.json()["access_token"])


@requirement("trust:http:issuer")
async def test_the_client_of_the_sdk_signs_a_person_in_by_itself_and_calls_a_tool(stage: tuple[str, str, Path]) -> None:
    _, url, path = stage
    kept = Kept()
    async with signed_in(url, kept) as session:
        names = [tool.name for tool in (await session.list_tools()).tools]
        (called,) = [name for name in names if name.startswith("echo__")][:1]
        await session.call_tool(called, {})
    asked = parse_qs(urlsplit(kept.links[0]).query)
    assert asked["resource"] == [url] and asked["scope"] == ["mcp"] and asked["code_challenge_method"] == ["S256"]
    assert kept.tokens is not None and kept.tokens.access_token.count(".") == 2
    command = [sys.executable, "-P", "-m", "foretool", "export", "audit", "--config", str(path)]
    shown = await asyncio.to_thread(subprocess.run, command, capture_output=True, check=True)
    entry = json.loads(shown.stdout.splitlines()[-1])
    assert (entry["action"], entry["target"], entry["outcome"]) == ("call", called, "ok")
    assert entry["principal"].startswith("oauth:") and entry["name"] == "ann"
    stored = await asyncio.to_thread(path.parent.joinpath("store.sqlite3").read_bytes)
    assert kept.tokens.access_token.encode() not in stored


@requirement("trust:http:issuer")
async def test_a_machine_opens_its_profile_alone_and_tokens_for_others_open_nothing(
    stage: tuple[str, str, Path],
) -> None:
    issuer, url, _ = stage
    own, others = await machine_token(issuer, url), await machine_token(issuer, urljoin(issuer, "/mcp"))
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}}  # fmt: skip
    accept = {"accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(headers=accept, timeout=PATIENCE_S) as http:
        found = {}
        for name, path, token in (
            ("own", "/mcp/robots", own),
            ("all", "/mcp", own),
            ("foreign", "/mcp/robots", others),
        ):
            answer = await http.post(urljoin(url, path), json=initialize, headers={"authorization": f"Bearer {token}"})
            found[name] = answer.status_code
    assert found == {"own": 200, "all": 404, "foreign": 401}
