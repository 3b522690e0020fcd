"""A program of the MCP SDK that signs its person in by itself, at an authorization server that agrees to everything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urljoin, urlsplit

import httpx2
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider, TokenStorage
from mcp.client.session import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

CALLBACK = "http://127.0.0.1:1/callback"
PATIENCE_S = 60.0


class Kept(TokenStorage):
    """What a program keeps of one person, and the links that it has opened."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None
        self.links: list[str] = []

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def browse(link: str, until: str) -> str:
    """Follow redirects as a browser does; return the first address that begins so."""
    at = link
    async with httpx2.AsyncClient(timeout=PATIENCE_S) as browser:
        while not at.startswith(until):
            at = urljoin(at, (await browser.get(at)).headers["location"])
    return at


@asynccontextmanager
async def signed_in(url: str, kept: Kept) -> AsyncIterator[ClientSession]:
    """A session with the server at an address."""
    came: dict[str, str] = {}

    async def open_browser(link: str) -> None:
        kept.links.append(link)
        came.update(
            {name: values[0] for name, values in parse_qs(urlsplit(await browse(link, CALLBACK)).query).items()}
        )

    async def wait_for_callback() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(**came)

    metadata = OAuthClientMetadata(redirect_uris=[CALLBACK], client_name="a test", token_endpoint_auth_method="none")  # type: ignore[list-item]
    provider = OAuthClientProvider(url, metadata, kept, open_browser, wait_for_callback)
    async with (
        httpx2.AsyncClient(auth=provider, timeout=PATIENCE_S) as http,
        streamable_http_client(url, http_client=http) as streams,
        ClientSession(*streams[:2]) as session,
    ):
        await session.initialize()
        yield session
