"""What people have allowed foretool to do at servers for them: consents under way, and the tokens they brought.

A person asks for a link, allows access in a browser, and gives the code that the page shows to the program that is
signed in as that person. Only that code makes the grant theirs: whoever sends the link to somebody else gets nothing,
because the code stands in the browser of whoever has allowed the access.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import inf
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from foretool.fleet.people.credentials import CredentialError, Issued, Post, post_as_client, post_form, read_token
from foretool.fleet.people.seal import SealError, Seals, read_key
from foretool.server.config.servers import Server
from foretool.server.config.settings import PerUserEntry
from foretool.server.signin.record import EARLY_S
from foretool.server.signin.tokens import error_code
from foretool.storage.engine import StorageError
from foretool.storage.records import AuditEntry, SealedGrant
from foretool.storage.store import Store

_CALLBACK: Final = "/connect/callback"
CONSENT_S: Final = 600.0
"""How long a person has to allow access, and again to bring the code."""
HELD_S: Final = 2.0
"""A grant that was ended at another replica is used no longer than this."""
LATE_S: Final = 30.0
"""Pause between two looks for what was allowed and never confirmed."""
_MOST_LATE: Final = 50
"""So many of them are ended at a look."""
TRIES: Final = 6
"""So often that is tried at an authorization server which does not answer, a look's pause longer each time."""
REVOKE_S: Final = 10.0
"""Longest time in which the tokens of one grant are ended at its authorization server."""
ALL_S: Final = 30.0
_AT_ONCE: Final = 8
"""Longest time in which those of many are, and of how many at the same time."""
_MOST_SEEN: Final = 4096
_MOST_CODE: Final = 64
_ALPHABET: Final = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789"
"""Of codes: no letter looks like a digit."""
_OVER: Final = frozenset({"invalid_grant", "invalid_token"})
_ENDED: Final = "what you have allowed has ended; connect again"

log = logging.getLogger("foretool.identity")


class Grant(Struct, frozen=True):
    """What one person has allowed foretool to do at one server."""

    access_token: str
    expires_at: float
    refresh_token: str = ""

    def __repr__(self) -> str:
        return f"Grant(expires_at={self.expires_at:.0f})"


class _Allowed(Struct, frozen=True):
    """What was allowed, and waits for the person who brings its code."""

    server: str
    grant: Grant
    tries: int = 0
    """How often its tokens could not be ended after nobody came."""


class _Consent(Struct, frozen=True):
    """A consent that is under way."""

    server: str
    person: str
    verifier: str

    def __repr__(self) -> str:
        return f"_Consent({self.server!r})"


class Consents:
    """The consents that people are being asked for now. They are in the database, and each is taken once."""

    def __init__(self, store: Callable[[], Store], seals: Callable[[], Seals]) -> None:
        self._store = store
        self._seals = seals

    def begin(self, name: str, value: Any) -> None:
        ident, now = hashlib.sha256(name.encode()).digest(), time.time()
        try:
            self._store().grants.begin(ident, _seal(self._seals(), value, "consent", ident.hex()), now + CONSENT_S)
        except StorageError:
            raise _away() from None

    def take(self, name: str, kind: Any) -> Any:
        ident = hashlib.sha256(name.encode("utf-8", "replace")).digest()
        try:
            sealed = self._store().grants.take(ident, time.time())
        except StorageError:
            raise _away() from None
        if sealed is None:
            raise CredentialError("this is not known: it was used, is older than ten minutes, or is of somebody else")
        try:
            return msgspec.json.decode(self._seals().open(sealed, "consent", ident.hex()), type=kind)
        except (SealError, msgspec.MsgspecError):
            raise CredentialError("this cannot be opened; begin again") from None


class Grants:
    """The grants of all people at all servers, in the database, so that each replica has them."""

    def __init__(
        self, store: Callable[[], Store], keys: Callable[[], Sequence[str]], resource: str,
        servers: Callable[[], dict[str, Server]], post: Post | None = None,
    ) -> None:  # fmt: skip
        """`keys`: as the config has them now. `resource`: the address of `/mcp` as people reach it, where a browser
        comes back to as well."""
        self._store = store
        self._keys = keys
        self._read: tuple[Sequence[str], Seals] = ((), Seals([]))
        parts = urlsplit(resource)
        self.redirect_uri = f"{parts.scheme}://{parts.netloc}{_CALLBACK}"
        self._consents = Consents(store, lambda: self._seals)
        self._servers = servers
        self._post = post or post_form
        self._unsaved: dict[tuple[str, str], tuple[bytes, Grant]] = {}
        """What was renewed while the database was away, and what it has there instead: many authorization servers take
        each refresh token once, so the one in the database is worth nothing any more."""

    @property
    def _seals(self) -> Seals:
        if self._read[0] != (keys := self._keys()):
            self._read = (keys, Seals([read_key(key) for key in keys]))
        return self._read[1]

    # -- consent

    def link(self, server: str, person: str) -> str:
        """Return where a browser asks the person. Raises `CredentialError`."""
        entry, url = self._entry(server)
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
        self._consents.begin(state, _Consent(server, person, verifier))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": entry.client_id,
            "redirect_uri": self.redirect_uri,
            "state": state,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
            "resource": entry.resource or url,
        }
        if entry.scopes:
            asked["scope"] = " ".join(entry.scopes)
        return f"{entry.authorization_endpoint}?{urlencode(asked)}"

    def ask_for_consent(self, server: str, person: str) -> str:
        """Return what a program is told whose user has to allow access. Raises `CredentialError`."""
        return (
            f"it needs the consent of its user. Ask the user to open {self.link(server, person)} and to tell you the"
            " code that the page shows at the end; then call connect_server (through call_tool, if it is not listed)"
            f' with {{"server": "{server}", "code": CODE}}'
        )

    async def come_back(self, state: str, code: str, error: str = "") -> str:
        """Note that a browser comes back; return the code that the person has to bring. Raises `CredentialError`."""
        consent = self._consents.take(state, _Consent)
        if error or not code:
            raise CredentialError("access was not allowed")
        entry, url = self._entry(consent.server)
        wanted = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self.redirect_uri,
            "code_verifier": consent.verifier,
            "resource": entry.resource or url,
        }
        grant = await self._ask(entry, wanted)
        shown = "-".join("".join(secrets.choice(_ALPHABET) for _ in range(4)) for _ in range(3))
        place = _place(consent.server, consent.person, shown)
        try:
            self._consents.begin(place, _Allowed(consent.server, grant))
        except CredentialError:
            await self._revoke(consent.server, grant)  # nobody could ever confirm it
            raise
        return shown

    def confirm(self, server: str, person: str, code: str, entry: AuditEntry) -> None:
        """Make a grant that of the person who brings its code. Raises `CredentialError`. `entry` goes into the audit
        log with it."""
        written = code.strip().upper()[:_MOST_CODE]
        grant = self._consents.take(_place(server, person, written), _Allowed).grant
        sealed, store = _seal(self._seals, grant, "grant", server, person), self._store
        try:
            with store().atomic():
                store().grants.save(server, person, sealed, time.time())
                store().audit.add([entry])
        except StorageError:
            raise _away() from None

    async def disconnect(self, server: str, person: str, entry: AuditEntry) -> tuple[bool, str]:
        """Delete a grant, and end its tokens at the authorization server. Returns whether there was one, and why its
        tokens may go on, "" if they have ended. Raises `CredentialError`. `entry` goes into the audit log with it."""
        try:
            grant = self.load(server, person)
        except CredentialError:
            grant = None  # what does not open is deleted all the same
        store = self._store
        try:
            with store().atomic():
                if was_there := store().grants.remove(server, person):
                    store().audit.add([entry])
        except StorageError:
            raise _away() from None
        _, unsaved = self._unsaved.pop((server, person), (b"", None))
        problem = "" if grant or not was_there else "its tokens do not open"
        for each in (grant, unsaved):
            if each is not None:
                problem = await self._revoke(server, each) or problem
        return was_there, problem

    async def end_late(self) -> int:
        """End what was allowed and never confirmed in time, at its authorization server; return of how many. Each is
        ended by one replica, and tried again later where that fails. Never raises."""
        ended, now = 0, time.time()
        try:
            found = self._store().grants.take_late(now, _MOST_LATE)
        except StorageError:
            return 0  # another time
        for ident, sealed in found:
            if (waiting := self._open_allowed(ident, sealed)) is None:
                continue
            if await self._revoke(waiting.server, waiting.grant) and waiting.tries + 1 < TRIES:
                again = replace(waiting, tries=waiting.tries + 1)
                with suppress(StorageError, CredentialError):
                    until = now + LATE_S * again.tries
                    self._store().grants.begin(ident, _seal(self._seals, again, "consent", ident.hex()), until)
            else:
                ended += 1
        return ended

    async def end_unconfirmed(self) -> Counter[tuple[str, str]]:
        """End all that was allowed and not confirmed, late or not, and delete it. Returns how many may go on, by server
        and reason. Raises `StorageError`."""
        problems: Counter[tuple[str, str]] = Counter()
        while found := self._store().grants.take_late(inf, _MOST_LATE):
            for waiting in (self._open_allowed(*each) for each in found):
                if waiting is not None and (problem := await self._revoke(waiting.server, waiting.grant)):
                    problems[waiting.server, problem] += 1
        return problems

    def _open_allowed(self, ident: bytes, sealed: bytes) -> _Allowed | None:
        """Return what was allowed; None if nobody came back from the authorization server, so that there are no
        tokens."""
        try:
            return msgspec.json.decode(self._seals.open(sealed, "consent", ident.hex()), type=_Allowed)
        except (SealError, msgspec.MsgspecError):
            return None

    async def end_all(self, found: Sequence[SealedGrant]) -> Counter[tuple[str, str]]:
        """End the tokens of deleted grants at their authorization servers, for at most `ALL_S` seconds. Returns how
        many may still be valid, by server and reason."""
        gate = asyncio.Semaphore(_AT_ONCE)

        async def end(each: SealedGrant) -> str:
            async with gate:
                try:
                    grant = msgspec.json.decode(
                        self._seals.open(each.sealed, "grant", each.server, each.person), type=Grant
                    )
                except (SealError, msgspec.MsgspecError) as error:
                    return str(error)
                return await self._revoke(each.server, grant)

        tasks = [asyncio.create_task(end(each)) for each in found]
        late = (await asyncio.wait(tasks, timeout=ALL_S))[1] if tasks else set()
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        reasons = [f"it took longer than {ALL_S:g} s" if task in late else task.result() for task in tasks]
        return Counter((each.server, reason) for each, reason in zip(found, reasons, strict=True) if reason)

    async def _revoke(self, server: str, grant: Grant) -> str:
        """End the tokens of a grant at the authorization server (RFC 7009); return why that was not possible, or ""."""
        problem = ""
        try:
            entry, _ = self._entry(server)
            if not entry.revocation_endpoint:
                return "the config names no revocation_endpoint for it"
            async with asyncio.timeout(REVOKE_S):
                for hint in ("refresh_token", "access_token"):
                    if token := getattr(grant, hint):
                        form = {"token": token, "token_type_hint": hint}
                        status, answer = await post_as_client(entry, entry.revocation_endpoint, form, self._post)
                        # Access tokens that are JWTs mostly cannot be ended; they are short.
                        if status != 200 and error_code(answer) != "unsupported_token_type":
                            problem = f"the authorization server answered HTTP {status} ({error_code(answer)})"
        except TimeoutError:
            problem = f"the authorization server did not answer within {REVOKE_S:g} s"
        except CredentialError as error:
            problem = str(error)
        if problem:
            log.warning("server %r: the tokens of a person could not be ended: %s", server, problem)
        return problem

    # -- tokens

    def load(self, server: str, person: str) -> Grant | None:
        """Return the grant of a person, None if there is none. Raises `CredentialError`."""
        found = self.open(server, person)
        return None if found is None else found[1]

    def open(self, server: str, person: str) -> tuple[bytes, Grant] | None:
        """Return the grant of a person as the database has it now, and opened. Raises `CredentialError`."""
        sealed = self.sealed(server, person)
        if sealed is None:
            return None
        try:
            grant = msgspec.json.decode(self._seals.open(sealed, "grant", server, person), type=Grant)
        except (SealError, msgspec.MsgspecError) as error:
            log.error("the grant of a person for server %r does not open: %s", server, error)
            raise CredentialError("what you have allowed cannot be opened; connect again") from None
        if self._seals.is_current(sealed):
            return sealed, grant
        # Another replica may have done it meanwhile, or the person has disconnected.
        newer = self._replace(server, person, sealed, grant)
        return self.open(server, person) if newer is None else (newer, grant)

    def sealed(self, server: str, person: str) -> bytes | None:
        """Return what the database has of a person. Raises `CredentialError` while it is away."""
        try:
            return self._store().grants.load(server, person)
        except StorageError:
            raise _away() from None

    async def renew(self, server: str, person: str, sealed: bytes, grant: Grant) -> tuple[bytes, Grant]:
        """Return the grant with a new token, as `open` does. Raises `CredentialError`, and deletes a grant that has
        ended."""
        before, renewed = self._unsaved.pop((server, person), (b"", grant))
        if before != sealed:
            try:
                renewed = await self._ask_again(server, grant)
            except _Over:
                # Another replica may have renewed it: some servers take each of these tokens once.
                if self._remove(server, person, sealed) or (newer := self.open(server, person)) is None:
                    raise
                return newer
        try:
            saved = self._replace(server, person, sealed, renewed)
        except CredentialError:
            self._unsaved[server, person] = sealed, renewed
            raise
        if saved is None and (saved := self.sealed(server, person)) is None:
            # The person has disconnected while the new token was on its way.
            await self._revoke(server, renewed)
            raise _Over(_ENDED)
        return saved, renewed

    async def _ask_again(self, server: str, grant: Grant) -> Grant:
        entry, url = self._entry(server)
        wanted = {"grant_type": "refresh_token", "refresh_token": grant.refresh_token}
        return await self._ask(entry, {**wanted, "resource": entry.resource or url}, grant.refresh_token)

    def _replace(self, server: str, person: str, old: bytes, grant: Grant) -> bytes | None:
        """Save a grant in place of the old one; return it sealed, None if the old one is not there any more: a grant
        that was deleted meanwhile must not come back."""
        sealed = _seal(self._seals, grant, "grant", server, person)
        try:
            return sealed if self._store().grants.replace(server, person, old, sealed, time.time()) else None
        except StorageError:
            raise _away() from None

    def _remove(self, server: str, person: str, sealed: bytes) -> bool:
        """Delete a grant that has ended, unless it is another one by now."""
        try:
            return self._store().grants.remove(server, person, sealed)
        except StorageError:
            raise _away() from None

    def _entry(self, server: str) -> tuple[PerUserEntry, str]:
        found = self._servers().get(server)
        if found is None or found.per_user is None or found.per_user.kind != "grant":
            raise CredentialError("there is nothing to allow for this server")
        return found.per_user, found.url

    async def _ask(self, entry: PerUserEntry, wanted: dict[str, str], refresh_token: str = "") -> Grant:
        status, answer = await post_as_client(entry, entry.token_endpoint, wanted, self._post)
        if status != 200 and error_code(answer) in _OVER:
            raise _Over(_ENDED)
        issued = read_token(status, answer)
        refreshed = answer.get("refresh_token")
        return Grant(issued.token, issued.expires_at, refreshed if isinstance(refreshed, str) else refresh_token)


def _seal(seals: Seals, value: Any, *belongs: str) -> bytes:
    try:
        return seals.seal(msgspec.json.encode(value), *belongs)
    except SealError as error:
        raise CredentialError(str(error)) from None


class _Over(CredentialError):
    """A grant has ended, so only a person can help."""


def _place(server: str, person: str, code: str) -> str:
    """Return where the grant waits that a code makes somebody's. The lengths keep names with the same letters apart."""
    return f"{len(server)}:{server}{len(person)}:{person}{code}"


def _away() -> CredentialError:
    return CredentialError("the database where grants are kept cannot be reached at the moment; try again")


class GrantSource:
    """Gives the tokens that people have allowed for one server."""

    def __init__(self, grants: Grants, server: str) -> None:
        self._grants = grants
        self._server = server
        self._seen: OrderedDict[str, tuple[bytes | None, float]] = OrderedDict()

    def stamp(self, person: str) -> object:
        return self._look(person)

    def holds(self, person: str) -> bool:
        """Return whether the grant is still the one that the last token came from. Asks the database again after
        `HELD_S`; one that is away ends nothing."""
        before, at = self._seen.get(person, (None, 0.0))
        if before is None or time.monotonic() - at < HELD_S:
            return before is not None
        try:
            return self._look(person) == before
        except CredentialError:
            return True  # a database that is away ends nobody's work

    async def fetch(self, person: str, refused: str) -> Issued:
        found = self._grants.open(self._server, person)
        self._note(person, None if found is None else found[0])
        if found is None:
            raise CredentialError(self._ask_for_consent(person))
        sealed, grant = found
        is_fresh = grant.access_token != refused and time.time() < grant.expires_at - EARLY_S
        if not is_fresh and grant.refresh_token:
            try:
                sealed, grant = await self._grants.renew(self._server, person, sealed, grant)
            except _Over:
                raise CredentialError(self._ask_for_consent(person)) from None
            self._note(person, sealed)
        elif not is_fresh and (grant.access_token == refused or time.time() >= grant.expires_at):
            raise CredentialError(self._ask_for_consent(person))
        return Issued(grant.access_token, grant.expires_at)

    def forget(self, person: str) -> None:
        self._seen.pop(person, None)

    def _look(self, person: str) -> bytes | None:
        sealed = self._grants.sealed(self._server, person)
        self._note(person, sealed)
        return sealed

    def _note(self, person: str, sealed: bytes | None) -> None:
        self._seen.pop(person, None)
        self._seen[person] = (sealed, time.monotonic())
        while len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)

    def _ask_for_consent(self, person: str) -> str:
        return self._grants.ask_for_consent(self._server, person)
