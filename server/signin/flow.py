"""Signs in to one server: finds its authorization server, asks the user there, and gets the first token.

The MCP SDK decides each step (`mcp.client.auth`): it follows the specification, whose rules on sign-in change with
every revision. It is driven by hand here, so that each of its requests goes through `fetch`, with its limits. The SDK
takes a second and 60 MB to import, so only `foretool login` and the short process that a proxy starts for it load it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, urljoin, urlsplit

from foretool._version import __version__
from foretool.server.config.servers import Server
from foretool.server.protocol.versions import LATEST_LEGACY
from foretool.server.signin.fetch import FetchError, fetch, refuse_private_address
from foretool.server.signin.record import Challenge, SignIn, fits_server, join_scopes, read_challenge, write_challenge
from foretool.server.signin.redirect import RedirectError, RedirectReceiver, receiving
from foretool.server.signin.tokens import SigningKeyError, expiry, read_signing_key
from foretool.server.signin.vault import Vault
from foretool.server.trust.text import one_line, visible

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import OAuthClientProvider
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

_NAME: Final = "foretool"
"""What the authorization server shows its user as the name of the client."""
_MOST_WORDS: Final = 300
"""Characters of an authorization server's own words that are shown."""
_MOST_STEPS: Final = 20
_ASSERTION_S: Final = 120
"""How long the statement that a machine signs is valid; it is used at once."""

ShowLink = Callable[[str, RedirectReceiver], Awaitable[None]]
"""Brings a link before the user. The receiver also takes the address that the user pastes."""


class SignInError(Exception):
    """The sign-in did not succeed; the message says why, and holds no secret."""


async def sign_in(server: Server, vault: Vault, show_link: ShowLink) -> SignIn:
    """Sign in to a server and return what there is to keep. Raises `SignInError`."""
    before = vault.load(server)
    before = before if before is not None and fits_server(before, server) else None
    wanted = vault.wanted(server)
    challenge = await _challenge(server)
    scope = join_scopes(
        before.scope if before and wanted.scope else "", challenge.scope, wanted.scope, " ".join(server.oauth.scopes)
    )
    challenge = Challenge("", scope, _own_origin(challenge.resource_metadata or wanted.resource_metadata, server))
    try:
        if server.oauth.grant == "client_credentials":
            return await _drive(_machine(server, scope), server, challenge, "")
        redirect = urlsplit(before.redirect_uri) if before else None
        async with receiving(server.oauth.redirect_port, (redirect and redirect.port) or 0) as receiver:
            if before is not None and not set(scope.split()) <= set(before.scope.split()):
                before = None  # a client may be registered for its first scopes alone
            provider = _person(server, before, receiver, show_link)
            return await _drive(provider, server, challenge, receiver.uri)
    except (FetchError, RedirectError) as error:
        raise SignInError(str(error)) from None


async def _challenge(server: Server) -> Challenge:
    """Ask the server for what it wants, without a token."""
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    headers = {**server.headers, "content-type": "application/json", "accept": "application/json, text/event-stream"}
    headers |= {"mcp-protocol-version": LATEST_LEGACY}
    method = "GET" if server.type == "sse" else "POST"
    cert = (server.client_cert, server.client_key) if server.client_cert else None
    try:
        response = await fetch(method, server.url, server.url, headers=headers, content=body, is_server=True, cert=cert)
    except FetchError as error:
        raise SignInError(f"the server at {error}") from None
    if response.status_code not in (401, 403) and server.oauth.grant == "authorization_code":
        return Challenge()  # some servers answer a ping, and refuse what comes later
    return read_challenge(response.headers.get("www-authenticate"))


def _own_origin(address: str, server: Server) -> str:
    """Return the address if it is the server's own; metadata elsewhere could be that of another server."""
    return address if urlsplit(address)[:2] == urlsplit(server.url)[:2] else ""


async def _drive(provider: OAuthClientProvider, server: Server, challenge: Challenge, redirect_uri: str) -> SignIn:
    """Carry out what the SDK wants done until there is a token."""
    import httpx2
    from mcp.client.auth import OAuthFlowError
    from pydantic import ValidationError

    request = httpx2.Request("POST", server.url, headers={"mcp-protocol-version": LATEST_LEGACY})
    flow = provider.async_auth_flow(request)
    try:
        await anext(flow)
        response = httpx2.Response(401, headers={"www-authenticate": write_challenge(challenge)}, request=request)
        for _ in range(_MOST_STEPS):
            wanted = await flow.asend(response)
            if wanted is request:
                return _record(provider, server, redirect_uri)
            response = await _carry_out(wanted, server)
        raise SignInError("the authorization server sends foretool from one address to the next")
    except (OAuthFlowError, ValidationError, StopAsyncIteration) as error:
        if provider.context.oauth_metadata is None:
            what = 'no authorization server was found, so it may need no sign-in, or a token in "headers"'
            raise SignInError(f"{what} ({_explain(error)})") from None
        raise SignInError(_explain(error)) from None
    finally:
        await flow.aclose()


async def _carry_out(wanted: httpx2.Request, server: Server) -> httpx2.Response:
    headers = {name: value for name, value in wanted.headers.items() if name not in ("host", "content-length")}
    response = await fetch(wanted.method, str(wanted.url), server.url, headers=headers, content=wanted.read())
    response.request = wanted
    return response


def _record(provider: OAuthClientProvider, server: Server, redirect_uri: str) -> SignIn:
    context = provider.context
    token, client, metadata = context.current_tokens, context.client_info, context.oauth_metadata
    if token is None or client is None or not re.fullmatch(r"[\x21-\x7e]+", token.access_token):
        raise SignInError("the authorization server gave no token that can be sent")
    now = time.time()
    revocation = metadata.revocation_endpoint if metadata else None
    return SignIn(
        server=server.name,
        url=server.url,
        issuer=str(metadata.issuer) if metadata else context.get_authorization_base_url(server.url),
        token_endpoint=str(metadata.token_endpoint) if metadata else urljoin(server.url, "/token"),
        revocation_endpoint=str(revocation or ""),
        resource=context.get_resource_url() if context.should_include_resource_param(context.protocol_version) else "",
        client_id=client.client_id,
        client_secret=client.client_secret or "",
        auth_method=client.token_endpoint_auth_method or "none",
        grant=server.oauth.grant,
        redirect_uri=redirect_uri,
        scope=token.scope or "",
        access_token=token.access_token,
        refresh_token=token.refresh_token or "",
        received_at=now,
        expires_at=expiry(token.expires_in, now),
        signed_in_at=now,
    )


def _explain(error: BaseException) -> str:
    """Return why the SDK gave up, as one line that steers no terminal. It quotes the authorization server."""
    words = str(error).partition("\n")[0] or type(error).__name__
    # What the browser brought back may stand in it.
    words = re.sub(r"(?i)(state parameter mismatch).*", r"\1", words)
    return f"the sign-in failed: {quoted(words)}"


def quoted(words: str) -> str:
    """Return words of an authorization server as they may be shown to a person."""
    return one_line(visible(words), _MOST_WORDS)


# -- the SDK's providers


class _Storage:
    """Gives the SDK the client to use; what it gets is read from its context at the end."""

    def __init__(self, client: OAuthClientInformationFull | None = None) -> None:
        self._client = client

    async def get_tokens(self) -> OAuthToken | None:
        return None

    async def set_tokens(self, tokens: OAuthToken) -> None: ...

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self._client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None: ...


def _quiet() -> None:
    """Keep the SDK from logging: it logs what authorization servers write, and tracebacks of refusals."""
    logging.getLogger("mcp").setLevel(logging.CRITICAL + 1)


def _person(
    server: Server, before: SignIn | None, receiver: RedirectReceiver, show_link: ShowLink
) -> OAuthClientProvider:
    """Return the provider of a sign-in in the browser."""
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.auth.utils import validate_authorization_response_iss
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata

    _quiet()
    own, uri = server.oauth, receiver.uri
    redirects: Any = [uri]
    client: OAuthClientInformationFull | None = None
    if own.client_id:
        issuer = own.issuer or (before.issuer if before else None)
        client = OAuthClientInformationFull(
            client_id=own.client_id, client_secret=own.client_secret or None, redirect_uris=redirects, issuer=issuer
        )
    elif before is not None and before.redirect_uri == uri and before.client_id != own.client_metadata_url:
        client = OAuthClientInformationFull(
            client_id=before.client_id, client_secret=before.client_secret or None, redirect_uris=redirects,
            token_endpoint_auth_method=before.auth_method, issuer=before.issuer,
        )  # fmt: skip

    async def on_link(link: str) -> None:
        context = provider.context
        if own.client_id and (context.client_info is None or context.client_info.client_id != own.client_id):
            raise SignInError(
                "the server now names another authorization server than the one that knows client_id; check oauth in"
                " the config, and that the server's address is right"
            )
        metadata = context.oauth_metadata
        if metadata is not None and "S256" not in (metadata.code_challenge_methods_supported or ()):
            raise SignInError("the authorization server does not say that it supports PKCE (S256), which is required")
        _choose_auth_method(context)
        await refuse_private_address(link, server.url)
        receiver.expect(parse_qs(urlsplit(link).query)["state"][0])
        await show_link(link, receiver)

    async def on_return() -> AuthorizationCodeResult:
        returned = await receiver.wait()
        # Before its error is shown: it may come from another authorization server (RFC 9207).
        validate_authorization_response_iss(returned.iss, provider.context.oauth_metadata)
        if returned.error:
            words = f" ({quoted(returned.description)})" if returned.description else ""
            raise SignInError(f"the authorization server refused: {quoted(returned.error)}{words}")
        return AuthorizationCodeResult(code=returned.code, state=returned.state, iss=returned.iss)

    metadata = OAuthClientMetadata(
        client_name=_NAME, redirect_uris=redirects, software_id="foretool", software_version=__version__
    )
    provider = OAuthClientProvider(
        server.url, metadata, _Storage(client), on_link, on_return, own.client_metadata_url or None
    )
    return provider


def _machine(server: Server, scope: str) -> OAuthClientProvider:
    """Return the provider of a sign-in with the credentials of a machine."""
    from mcp.client.auth.extensions.client_credentials import (
        ClientCredentialsOAuthProvider,
        PrivateKeyJWTOAuthProvider,
        SignedJWTParameters,
    )

    _quiet()
    own = server.oauth
    if own.private_key:
        try:
            key = read_signing_key(own.private_key)
        except SigningKeyError as error:
            raise SignInError(str(error)) from None
        signed = SignedJWTParameters(
            issuer=own.client_id, subject=own.client_id, signing_key=key.pem, signing_algorithm=key.algorithm,
            lifetime_seconds=_ASSERTION_S,
        )  # fmt: skip
        sign = signed.create_assertion_provider()
        return PrivateKeyJWTOAuthProvider(server.url, _Storage(), own.client_id, sign, scope or None, own.issuer)

    class Provider(ClientCredentialsOAuthProvider):
        async def _perform_authorization(self) -> httpx2.Request:
            _choose_auth_method(self.context, is_default=True)
            return await super()._perform_authorization()

    return Provider(
        server.url, _Storage(), own.client_id, own.client_secret, scope=scope or None, issuer=own.issuer or None
    )


def _choose_auth_method(context: Any, *, is_default: bool = False) -> None:
    """Choose how a client with a secret shows it, where nobody has said: as the authorization server supports it."""
    client, metadata = context.client_info, context.oauth_metadata
    if client is None or not client.client_secret or (client.token_endpoint_auth_method and not is_default):
        return
    supported = (metadata.token_endpoint_auth_methods_supported if metadata else None) or ["client_secret_basic"]
    known = ("client_secret_basic", "client_secret_post", "none")
    client.token_endpoint_auth_method = next((each for each in known if each in supported), "client_secret_post")
