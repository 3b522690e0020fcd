"""Asks the authorization server about each token (RFC 7662): for tokens that are no JWTs, and for revocation in time.

An answer counts for `introspection_s`, also the one that a token is not active; nothing counts longer, whatever the
token says of its end. Many requests with one token wait for one question. While the authorization server is away,
tokens whose answer has run out are refused with 503.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Collection, Mapping
from math import inf
from typing import Any, Final
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from foretool.fleet.people.credentials import CredentialError, Post, Subjects, post_form
from foretool.fleet.people.issuer import BELIEVED_BY_NOBODY, MOST_SUBJECT, MOST_TOKEN, ConfiguredIssuer
from foretool.fleet.people.key_sets import KeySet
from foretool.server.config.settings import AccessEntry
from foretool.server.signin.tokens import basic
from foretool.server.transports.client.access import Identity
from foretool.server.transports.client.security import RequestRefused

MOST_KEPT: Final = 4096
"""Answers of each kind that are kept."""
MOST_ASKED: Final = 64
"""Questions at the same time: whoever shows made-up tokens cannot have us ask for each of them."""
_WAIT_S: Final = 10.0


class _Answer(Struct, frozen=True):
    """What the authorization server said of one token."""

    until: float
    """Monotonic seconds."""
    identity: Identity | None = None
    reason: str = ""


class OpaqueTokens(ConfiguredIssuer):
    """Identifies people by asking the authorization server about each token."""

    def __init__(
        self, entry: AccessEntry, profiles: Collection[str], subjects: Subjects | None = None, post: Post | None = None
    ) -> None:
        super().__init__(entry, profiles, subjects=subjects)
        self._post = post or post_form
        self._believed: OrderedDict[bytes, _Answer] = OrderedDict()
        self._disbelieved: OrderedDict[bytes, _Answer] = OrderedDict()
        """Apart from the others, so that made-up tokens push out nobody's answer."""
        self._asking: dict[bytes, asyncio.Task[_Answer]] = {}

    def warm(self) -> None:
        """Do nothing: there are no keys to read."""

    async def close(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await super().close()

    async def _believe(self, token: str) -> Identity:
        if not token or len(token) > MOST_TOKEN or not (token.isascii() and token.isprintable()):
            raise self._refused(BELIEVED_BY_NOBODY)
        answer = await self._answer(token)
        if answer.identity is None:
            raise self._refused(answer.reason)
        if self._ends_at(answer.identity.claims) + self.entry.leeway_s < time.time():
            raise self._refused("the token has expired")
        return answer.identity

    async def _answer(self, token: str) -> _Answer:
        digest = hashlib.sha256(token.encode()).digest()
        known = self._believed.get(digest) or self._disbelieved.get(digest)
        if known is not None and time.monotonic() < known.until:
            return known
        task = self._asking.get(digest)
        if task is None:
            if len(self._asking) >= MOST_ASKED:
                raise RequestRefused(503, "too many tokens are being checked at the moment", retry_after="1")
            task = self._asking[digest] = asyncio.create_task(self._ask(digest, token))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        try:
            async with asyncio.timeout(_WAIT_S):
                return await asyncio.shield(task)
        except TimeoutError:
            problem = f"the authorization server did not answer within {_WAIT_S:g} s"
        except CredentialError as error:
            problem = str(error)
        raise RequestRefused(503, f"tokens cannot be checked at the moment: {problem}", retry_after="10")

    async def _ask(self, digest: bytes, token: str) -> _Answer:
        entry, began, now = self.entry, time.monotonic(), time.time()
        headers = {
            "content-type": "application/x-www-form-urlencoded",
            "accept": "application/json",
            "authorization": basic(entry.client_id, entry.client_secret),
        }
        form = urlencode({"token": token, "token_type_hint": "access_token"}).encode()
        try:
            status, said = await self._post(entry.introspection_endpoint, headers, form)
            if status != 200 or not isinstance(said.get("active"), bool):
                raise CredentialError(f"the authorization server answered HTTP {status} to a question about a token")
        finally:
            del self._asking[digest]
        until = began + entry.introspection_s
        self._believed.pop(digest, None)
        self._disbelieved.pop(digest, None)
        if reason := self._disbelief(said):
            return _keep(self._disbelieved, digest, _Answer(until, reason=reason))
        believed = {**said, "iss": entry.issuer}
        found = self._read(believed)
        # What hangs on the token ends when its answer does, unless it is asked for again.
        ends_at = min(found.expires_at, now + entry.introspection_s)
        return _keep(self._believed, digest, _Answer(until, replace(found, expires_at=ends_at)))

    def _disbelief(self, said: Mapping[str, Any]) -> str:
        """Return why a token is not believed, "" if it is."""
        entry, subject, audience = self.entry, said.get("sub"), said.get("aud")
        audiences = audience if isinstance(audience, list) else [audience]
        if said["active"] is not True:
            return "the token is not active: it has expired, was revoked, or is of another issuer"
        if said.get("iss", entry.issuer) != entry.issuer:
            return "the token is of another issuer"
        # Without `aud` nothing says that the token is for us, and one for another service would open this one.
        if not set(entry.audience) & {each for each in audiences if isinstance(each, str)}:
            return "the token is for another audience"
        if not isinstance(subject, str) or not 0 < len(subject) <= MOST_SUBJECT:
            return "the token names nobody: it needs sub"
        if "cnf" in said or str(said.get("token_type", "Bearer")).lower() not in ("bearer", "access_token"):
            return "this is a token for another purpose"
        for claim, is_late in (("exp", True), ("nbf", False)):
            value = said.get(claim)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                return "the token is not well-formed"
            if is_late and value + entry.leeway_s < time.time():
                return "the token has expired"
            if not is_late and value - entry.leeway_s > time.time():
                return "the token is not valid yet"
        return ""

    def _ends_at(self, said: Mapping[str, Any]) -> float:
        return float(said.get("exp") or inf)


def _keep(answers: OrderedDict[bytes, _Answer], digest: bytes, answer: _Answer) -> _Answer:
    answers[digest] = answer
    while len(answers) > MOST_KEPT:
        answers.popitem(last=False)
    return answer


def new_issuer(
    entry: AccessEntry, profiles: Collection[str], keys: KeySet | None, subjects: Subjects | None = None
) -> ConfiguredIssuer:
    """Return what checks the tokens of a config's authorization server: by its keys, or by asking it."""
    if entry.introspection_endpoint:
        return OpaqueTokens(entry, profiles, subjects)
    return ConfiguredIssuer(entry, profiles, keys, subjects)
