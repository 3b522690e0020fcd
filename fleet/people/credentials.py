"""The tokens with which people reach a server: one for each person and server, made from who has called.

A token that a client shows to foretool is for foretool alone: no server ever gets it (the MCP specification forbids
passing it on). It is traded at the authorization server for one that is for that server and nobody else (RFC 8693).
Many calls of one person wait for one trade; what it brings is kept in memory until shortly before it expires.

`Subjects` has the access tokens of those who call, where they are traded for tokens of servers.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from foretool.server.config.settings import PerUserEntry
from foretool.server.config.variables import Secrets, collect
from foretool.server.signin.fetch import FetchError, fetch
from foretool.server.signin.record import EARLY_S
from foretool.server.signin.tokens import (
    SigningKeyError,
    basic,
    error_code,
    expiry,
    is_sendable,
    read_object,
    read_signing_key,
)

MOST_SUBJECTS: Final = 4096
"""People whose tokens are kept."""


class Subjects:
    """Keeps the latest access token of each person who calls, in memory, to be traded for tokens of servers. Keeps
    nothing until a server needs it (`wanted`)."""

    def __init__(self) -> None:
        self.wanted = False
        self._latest: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def note(self, person: str, token: str, expires_at: float) -> None:
        """Keep a token that was found valid."""
        if self.wanted:
            self._latest.pop(person, None)
            self._latest[person] = (token, expires_at)
            while len(self._latest) > MOST_SUBJECTS:
                self._latest.popitem(last=False)

    def find(self, person: str) -> str:
        """Return the latest token of a person, "" if there is none that is valid."""
        token, expires_at = self._latest.get(person, ("", 0.0))
        return token if time.time() < expires_at else ""

    def __repr__(self) -> str:
        return f"Subjects({len(self._latest)})"


_EXCHANGE: Final = "urn:ietf:params:oauth:grant-type:token-exchange"
_ACCESS_TOKEN: Final = "urn:ietf:params:oauth:token-type:access_token"  # noqa: S105  # a kind of token
_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_ASSERTION_S: Final = 60
"""How long the statement that foretool signs is valid; it is used at once."""
UNSAID_S: Final = 300.0
"""How long a token is used of which the authorization server does not say when it expires."""
_WAIT_S: Final = 30.0
"""Longest wait of a call for a token."""
PAUSE_S: Final = 5.0
"""For so long a refusal is repeated to the same person, instead of asking again with each of their calls."""
MOST_KEPT: Final = 4096
"""People whose tokens for one server are kept in memory."""

Post = Callable[[str, Mapping[str, str], bytes], Awaitable[tuple[int, dict[str, Any]]]]
"""Sends a form to an address with these headers; returns the status and the JSON object. Raises `CredentialError`."""

log = logging.getLogger("foretool.identity")


class CredentialError(Exception):
    """A person gets no token for a server. The message is one line for that person alone, and quotes no other
    server."""


class TokenSource(Protocol):
    """Gets the token of a person for one server, in one of two ways: by trading the caller's token, or from what the
    person has allowed."""

    async def fetch(self, person: str, refused: str) -> Issued:
        """Return a token other than the one that the server has refused. Raises `CredentialError`."""
        ...

    def holds(self, person: str) -> bool:
        """Return whether a token fetched earlier may still be used, apart from its expiry."""
        ...

    def stamp(self, person: str) -> object:
        """Return a value that changes when asking again may succeed, such as the latest token of the caller."""
        ...


class Issued(Struct, frozen=True):
    """A token for one person and one server."""

    token: str
    expires_at: float
    """Seconds of the system clock."""

    def __repr__(self) -> str:
        return f"Issued(expires_at={self.expires_at:.0f})"


class _Failure(Struct, frozen=True):
    reason: str
    stamp: object
    until: float


class _Kept(Struct, eq=False):
    """What is known of one person at one server."""

    issued: Issued | None = None
    issued_at: float = 0.0
    """Monotonic seconds."""
    renew_at: float = 0.0
    refused: str = ""
    """The last token that the server has refused."""
    failure: _Failure | None = None
    trading: asyncio.Task[Issued] | None = None
    hidden: Secrets = msgspec.field(default_factory=Secrets)


class Credentials:
    """Keeps the tokens of all people for one server, and renews them."""

    def __init__(self, server: str, source: TokenSource) -> None:
        self.server = server
        self._source = source
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    async def token(self, person: str) -> str:
        """Return the token of a person. Raises `CredentialError`."""
        kept = self._of(person)
        if kept.issued is not None and time.time() < kept.renew_at and self._source.holds(person):
            return kept.issued.token
        if kept.issued is not None:
            kept.issued = None
        if kept.trading is None:
            stamp, failure = self._source.stamp(person), kept.failure
            if failure is not None and failure.stamp == stamp and time.monotonic() < failure.until:
                raise CredentialError(failure.reason)
            kept.trading = asyncio.create_task(self._trade(person, kept, stamp))
            kept.trading.add_done_callback(lambda task: task.cancelled() or task.exception())  # all may have gone
        try:
            # One call that goes away must not end the trade for the others.
            async with asyncio.timeout(_WAIT_S):
                return (await asyncio.shield(kept.trading)).token
        except TimeoutError:
            raise CredentialError(f"no token for it came within {_WAIT_S:g} s; try again") from None

    def drop(self, person: str, token: str, reason: str) -> bool:
        """Forget a token that the server has refused. Returns whether it is worth asking for another one now."""
        kept = self._kept.get(person)
        if kept is None or kept.issued is None or kept.issued.token != token:
            return True  # another call has replaced it meanwhile
        is_old = time.monotonic() - kept.issued_at > PAUSE_S
        kept.issued, kept.refused = None, token
        if not is_old:
            kept.failure = _Failure(reason, self._source.stamp(person), time.monotonic() + PAUSE_S)
        return is_old

    def forget(self, person: str) -> None:
        """Forget the tokens of a person who has disconnected."""
        self._kept.pop(person, None)

    def redact(self, person: str, text: str) -> str:
        """Return a text without the tokens of a person."""
        kept = self._kept.get(person)
        return text if kept is None else kept.hidden.redact(text)

    async def close(self) -> None:
        """Cancel the requests for tokens that are under way."""
        tasks = [kept.trading for kept in self._kept.values() if kept.trading is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _of(self, person: str) -> _Kept:
        kept = self._kept.pop(person, None) or _Kept()
        self._kept[person] = kept
        if len(self._kept) > MOST_KEPT:
            for other in [each for each, found in self._kept.items() if found.trading is None][:1]:
                del self._kept[other]
        return kept

    async def _trade(self, person: str, kept: _Kept, stamp: object) -> Issued:
        try:
            issued = await self._source.fetch(person, kept.refused)
        except CredentialError as error:
            kept.failure = _Failure(str(error), stamp, time.monotonic() + PAUSE_S)
            raise
        else:
            now = time.time()
            kept.issued, kept.failure, kept.issued_at = issued, None, time.monotonic()
            kept.renew_at = issued.expires_at - min(EARLY_S, max(0.0, issued.expires_at - now) / 4)
            kept.hidden = collect([(issued.token, "token")])
            return issued
        finally:
            kept.trading = None


class TokenExchange:
    """Trades the token of a caller for one for the server (RFC 8693)."""

    def __init__(self, entry: PerUserEntry, url: str, subjects: Subjects, post: Post | None = None) -> None:
        """`url`: of the server, for which tokens are asked where the config names nothing else."""
        self._entry = entry
        self._url = url
        self._subjects = subjects
        self._post = post or post_form

    def stamp(self, person: str) -> object:
        return self._subjects.find(person)

    def holds(self, person: str) -> bool:
        return True

    async def fetch(self, person: str, refused: str) -> Issued:
        entry, subject = self._entry, self._subjects.find(person)
        if not subject:
            raise CredentialError(
                "it is reached with a token of each person, and this client has shown none of the authorization server"
                " that is valid; sign in there, and send its token to foretool"
            )
        wanted = {
            "grant_type": _EXCHANGE,
            "subject_token": subject,
            "subject_token_type": _ACCESS_TOKEN,
            "requested_token_type": _ACCESS_TOKEN,
        }
        if entry.audience:
            wanted["audience"] = entry.audience
        if entry.resource or not entry.audience:
            wanted["resource"] = entry.resource or self._url
        if entry.scopes:
            wanted["scope"] = " ".join(entry.scopes)
        issued = await ask_for_token(entry, wanted, self._post)
        if issued.token == subject:
            # A server that simply returns what it got would have us pass the client's token on.
            raise CredentialError("the authorization server traded nothing: it returned the token of the caller")
        return issued


async def ask_for_token(entry: PerUserEntry, wanted: Mapping[str, str], post: Post) -> Issued:
    """Ask the token endpoint of a server for a token. Raises `CredentialError`."""
    return read_token(*await post_as_client(entry, entry.token_endpoint, wanted, post))


async def post_as_client(
    entry: PerUserEntry, url: str, wanted: Mapping[str, str], post: Post
) -> tuple[int, dict[str, Any]]:
    """Send a form to the token endpoint, with the client's id and secret from the config. Raises `CredentialError`."""
    headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
    form = dict(wanted)
    if entry.private_key:
        form |= {"client_id": entry.client_id, "client_assertion_type": _ASSERTION, "client_assertion": _assert(entry)}
    else:
        headers["authorization"] = basic(entry.client_id, entry.client_secret)
    return await post(url, headers, urlencode(form).encode())


def read_token(status: int, answer: Mapping[str, Any]) -> Issued:
    """Return the token in an answer. Raises `CredentialError`, without words of the authorization server."""
    token = answer.get("access_token")
    if status != 200 or not isinstance(token, str) or not is_sendable(token):
        code = error_code(dict(answer))
        raise CredentialError(f"the authorization server gave no token for it: HTTP {status} ({code})")
    kind = str(answer.get("issued_token_type", _ACCESS_TOKEN))
    if str(answer.get("token_type", "Bearer")).lower() != "bearer" or kind not in (_ACCESS_TOKEN, _JWT):
        raise CredentialError("the authorization server gave a token of a kind that foretool cannot use")
    now = time.time()
    return Issued(token, expiry(answer.get("expires_in"), now) or now + UNSAID_S)


_JWT: Final = "urn:ietf:params:oauth:token-type:jwt"


def _assert(entry: PerUserEntry) -> str:
    """Sign that we are the client (RFC 7523). Raises `CredentialError`."""
    import jwt

    now = int(time.time())
    said: dict[str, Any] = {"iss": entry.client_id, "sub": entry.client_id, "aud": entry.token_endpoint}
    said |= {"iat": now, "exp": now + _ASSERTION_S, "jti": secrets.token_urlsafe(16)}
    try:
        key = read_signing_key(entry.private_key)
        return jwt.encode(said, key.pem, key.algorithm)
    except (SigningKeyError, ValueError, TypeError, jwt.PyJWTError) as error:
        # Of other errors the kind alone: they may quote the key.
        reason = str(error) if isinstance(error, SigningKeyError) else f"private_key: {type(error).__name__}"
        log.error("per_user: %s", reason)
        raise CredentialError(
            "foretool cannot use its own key for the authorization server; its log says why"
        ) from None


async def post_form(url: str, headers: Mapping[str, str], content: bytes) -> tuple[int, dict[str, Any]]:
    """Send a form to an address that the config names; a redirect is not followed. Raises `CredentialError`."""
    try:
        response = await fetch("POST", url, url, headers=headers, content=content)
    except FetchError as error:
        raise CredentialError(f"the authorization server at {error}") from None
    return response.status_code, read_object(response.content)
