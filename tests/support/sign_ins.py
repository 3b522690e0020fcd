"""What the tests of signing in share: a server in the config, a vault in a folder, and a browser that agrees."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2
import oauth_server
from http_fakes import serving, unused_port

from foretool.server.config.loader import parse
from foretool.server.config.servers import Server
from foretool.server.signin.record import SignIn
from foretool.server.signin.redirect import RedirectReceiver
from foretool.server.signin.vault import Vault


def a_server(url: str = "https://mcp.example/mcp", **entry: Any) -> Server:
    """The server `guarded` as the config describes it."""
    document = {"mcpServers": {"guarded": {"url": url, **entry}}}
    return parse(json.dumps(document).encode(), Path("/nowhere/mcp.json"), {"HOME": "/nowhere"}).servers["guarded"]


def a_vault(folder: Path) -> Vault:
    """A vault without a keyring."""
    return Vault(folder / "sign-ins", keyring=False)


def a_record(url: str = "https://mcp.example/mcp", **fields: Any) -> SignIn:
    """A sign-in that is valid for an hour, and can be renewed."""
    known: dict[str, Any] = {
        "server": "guarded", "url": url, "issuer": "https://auth.example", "client_id": "us",
        "token_endpoint": "https://auth.example/token", "access_token": "acc-0123456789",
        "refresh_token": "ref-0123456789", "scope": "read", "received_at": 0.0,
    }  # fmt: skip
    return SignIn(**{**known, **fields})


@asynccontextmanager
async def guarded(**options: Any) -> AsyncIterator[str]:
    """The URL of an MCP server that wants a sign-in, with the SDK's authorization server beside it."""
    port = unused_port()
    async with serving(oauth_server.build(f"http://127.0.0.1:{port}", **options), port) as base:
        yield f"{base}/mcp"


async def admin(url: str, **wanted: Any) -> dict[str, Any]:
    """Change what the authorization server does; what it did."""
    async with httpx2.AsyncClient(verify=False) as http:
        return dict((await http.post(urljoin(url, "/admin"), json=wanted)).json())


async def agree(link: str, receiver: RedirectReceiver) -> None:
    """Open the link as a browser does, and follow it back to us."""
    async with httpx2.AsyncClient(verify=False) as http:
        response = await http.get(link, follow_redirects=True)
        assert response.status_code == 200, response.text


async def paste(link: str, receiver: RedirectReceiver) -> None:
    """Open the link on another machine, and paste the address that the browser ends at."""
    async with httpx2.AsyncClient(verify=False) as http:
        response = await http.get(link, follow_redirects=False)
        receiver.give(response.headers["location"])
