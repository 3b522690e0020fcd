"""An MCP server that wants a sign-in, and the SDK's authorization server beside it, in one process on loopback.

    python oauth_server.py [--lifetime S] [--no-registration]

The first line it prints is the URL of the MCP server. Its tools: `read` (scope read), `write` (scope write), `whoami`.
Nobody has to click: the authorization server agrees to everything that a link asks for. `POST /admin` changes what it
does and says what it did:

    {"forget": "access"}      access tokens are no longer valid
    {"forget": "all"}         refresh tokens neither
    {"hang": true}            the token endpoint never answers
    {}                        counts of requests: {"token": 1, "refresh": 0, "revoke": 0, ...}
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import socket
import time
from typing import Any

import uvicorn
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes, create_protected_resource_routes
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

Json = dict[str, Any]
SCOPES = ["read", "write"]
NEEDED = {"write": "write"}
"""The scope that a tool needs besides `read`."""


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Keeps everything in memory, agrees to everything, and rotates refresh tokens: the second use of one ends all."""

    def __init__(self, lifetime_s: int) -> None:
        self.lifetime_s = lifetime_s
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.used: set[str] = set()
        self.counts: dict[str, int] = {"authorize": 0, "code": 0, "refresh": 0, "reuse": 0, "revoke": 0, "register": 0}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.counts["register"] += 1
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        self.counts["authorize"] += 1
        code = secrets.token_urlsafe(24)
        self.codes[code] = AuthorizationCode(
            code=code, client_id=client.client_id, scopes=params.scopes or ["read"], expires_at=time.time() + 60,
            code_challenge=params.code_challenge, redirect_uri=params.redirect_uri, resource=params.resource,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
        )  # fmt: skip
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(self, client: Any, authorization_code: str) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(self, client: Any, authorization_code: AuthorizationCode) -> OAuthToken:
        self.counts["code"] += 1
        del self.codes[authorization_code.code]
        return self._tokens(client.client_id, authorization_code.scopes, authorization_code.resource)

    async def load_refresh_token(self, client: Any, refresh_token: str) -> RefreshToken | None:
        if refresh_token in self.used:
            self.counts["reuse"] += 1
            self.refresh.clear()
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(self, client: Any, refresh_token: RefreshToken, scopes: list[str]) -> OAuthToken:
        self.counts["refresh"] += 1
        if self.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self.used.add(refresh_token.token)
        return self._tokens(client.client_id, scopes, refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        found = self.access.get(token)
        return found if found is not None and (found.expires_at or 0) > time.time() else None

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.counts["revoke"] += 1
        self.access.pop(token.token, None)
        self.refresh.pop(token.token, None)

    def _tokens(self, client: str, scopes: list[str], resource: str | None) -> OAuthToken:
        access, refresh = (f"{kind}-{secrets.token_urlsafe(24)}" for kind in ("acc", "ref"))
        self.access[access] = AccessToken(
            token=access,
            client_id=client,
            scopes=scopes,
            expires_at=int(time.time()) + self.lifetime_s,
            resource=resource,
        )
        self.refresh[refresh] = RefreshToken(token=refresh, client_id=client, scopes=scopes, resource=resource)
        return OAuthToken(
            access_token=access, expires_in=self.lifetime_s, scope=" ".join(scopes), refresh_token=refresh
        )


class Resource:
    """The MCP server: a legacy one that answers with JSON."""

    def __init__(self, base: str, provider: Provider) -> None:
        self.url = f"{base}/mcp"
        self._metadata = f"{base}/.well-known/oauth-protected-resource/mcp"
        self._provider = provider
        self.refused = 0

    def _challenge(self, status: int, **more: str) -> Response:
        self.refused += 1
        parts = ", ".join(f'{key}="{value}"' for key, value in {**more, "resource_metadata": self._metadata}.items())
        return JSONResponse({"error": "no"}, status, {"www-authenticate": f"Bearer {parts}"})

    async def answer(self, request: Request) -> Response:
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        token = await self._provider.load_access_token(shown)
        if token is None or token.resource != self.url:
            return self._challenge(401, scope="read")
        if request.method != "POST":
            return Response(status_code=405)
        message = await request.json()
        method, params = message.get("method"), message.get("params") or {}
        if "id" not in message:
            return Response(status_code=202)
        name = params.get("name", "")
        if method == "tools/call" and (needed := NEEDED.get(name)) and needed not in token.scopes:
            return self._challenge(403, error="insufficient_scope", scope=needed)
        results: dict[str, Json] = {
            "initialize": {
                "protocolVersion": "2025-11-25",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "guarded", "version": "1"},
            },
            "tools/list": {"tools": [{"name": each, "inputSchema": {"type": "object"}} for each in TOOLS]},
            "tools/call": {"content": [{"type": "text", "text": f"{name}: {' '.join(token.scopes)}"}]},
        }
        if method not in results:
            error = {"code": -32601, "message": "no such method"}
            return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": error})
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": results[method]})


TOOLS = ("read", "write", "whoami")


def build(base: str, lifetime_s: int = 3600, *, registration: bool = True) -> Starlette:
    """The app: the authorization server and the MCP server, both at `base`."""
    provider = Provider(lifetime_s)
    resource = Resource(base, provider)
    hanging = {"on": False}

    async def admin(request: Request) -> Response:
        wanted = await request.json()
        if wanted.get("forget"):
            provider.access.clear()
        if wanted.get("forget") == "all":
            provider.refresh.clear()
        hanging["on"] = wanted.get("hang", hanging["on"])
        provider.lifetime_s = wanted.get("lifetime", provider.lifetime_s)
        if (static := wanted.get("client")) is not None:
            provider.clients[static["client_id"]] = OAuthClientInformationFull.model_validate(static)
        return JSONResponse({**provider.counts, "refused": resource.refused})

    options = ClientRegistrationOptions(enabled=registration, valid_scopes=SCOPES, default_scopes=SCOPES)
    routes = [
        *create_auth_routes(provider, AnyHttpUrl(base), None, options, RevocationOptions(enabled=True)),
        *create_protected_resource_routes(AnyHttpUrl(resource.url), [AnyHttpUrl(base)], SCOPES),
        Route("/mcp", resource.answer, methods=["GET", "POST", "DELETE"]),
        Route("/admin", admin, methods=["POST"]),
    ]
    app = Starlette(routes=routes)

    async def maybe_hang(scope: Any, receive: Any, send: Any) -> None:
        if hanging["on"] and scope.get("path") == "/token":
            await asyncio.Event().wait()
        await app(scope, receive, send)

    app_with_hang: Any = maybe_hang
    return app_with_hang  # type: ignore[no-any-return]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lifetime", type=int, default=3600)
    parser.add_argument("--no-registration", action="store_true")
    chosen = parser.parse_args()
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    print(f"{base}/mcp", flush=True)
    app = build(base, chosen.lifetime, registration=not chosen.no_registration)
    asyncio.run(uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none")).serve([listener]))


if __name__ == "__main__":
    main()
