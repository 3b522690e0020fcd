"""The token of one server: which one a request gets, when it is renewed, and whether a person has to sign in.

Every link to the server asks here before each request. A token is renewed before it expires, or when the server refuses
it, by one request to the authorization server however many calls wait, also over several processes. A sign-in that
somebody made meanwhile (`foretool login`) is noticed by its file, so no proxy has to be started again.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import time
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec.structs import replace

from foretool.server.config.servers import Server
from foretool.server.config.variables import Secrets, collect
from foretool.server.signin.record import Challenge, SignIn, fits_server, read_challenge
from foretool.server.signin.tokens import TokenError, renew
from foretool.server.signin.vault import Stamp, Vault, VaultError
from foretool.server.transports.upstream.base import Verdict

_WAIT_S: Final = 45.0
"""Longest wait of a request for a new token; the authorization server, the keyring and other processes take part."""
_PAUSE_S: Final = 5.0
"""Pause after a renewal that failed, so that many calls do not ask a broken authorization server again and again."""
_ENDED: Final = "its sign-in has ended"
_KEPT_SECRETS: Final = 8
"""How many earlier secrets are still taken out of texts: a server may repeat a token that was replaced."""

log = logging.getLogger("foretool.signin")


class Bearer:
    """Provides the token for requests to one remote server, and renews it: the `Authorizer` of its links."""

    def __init__(
        self, server: Server, vault: Vault, sign_in_machine: Callable[[], Awaitable[bool]] | None = None
    ) -> None:
        """`sign_in_machine` signs in with the credentials of the config, if they are those of a machine."""
        self._server = server
        self._vault = vault
        self._sign_in_machine = sign_in_machine
        self._record: SignIn | None = None
        self._stamp: Stamp | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._secrets: list[str] = []
        self._hidden = Secrets()
        self._not_before = 0.0
        """No renewal is tried before this time, in monotonic seconds."""
        self.problem = ""
        """Why the server refuses us, without words of the server; "" while nothing is wrong."""
        self.needs_sign_in = False
        """The server has refused what we have, and only a person can help."""
        self.wanted = Challenge()
        """What the server has asked for last."""
        self.on_problem: Callable[[], None] = lambda: None
        """Called when `problem` changes."""

    # -- what others see

    @property
    def notice(self) -> str:
        if not self.problem or not self.needs_sign_in:
            return self.problem
        return f"{self.problem}: run `foretool login {shlex.quote(self._server.name)}` in a terminal"

    def asks_for_sign_in(self, reason: str) -> bool:
        """Return whether this reason for a failure is one that only a person's sign-in can mend."""
        return self.needs_sign_in and reason.endswith(self.notice)

    def redact(self, text: str) -> str:
        """Return a text without this server's tokens, present and earlier ones."""
        return self._hidden.redact(text)

    def has_news(self) -> bool:
        """Return whether somebody has signed in or out since the last request. Looks at one file."""
        return self._vault.stamp(self._server) != self._stamp

    # -- for requests

    async def authorization(self) -> str:
        await self._follow()
        record = self._record
        if record is not None and record.renew_at and time.time() >= record.renew_at:
            await self._renew_once(record.access_token)
            record = self._record
        return f"Bearer {record.access_token}" if record is not None and record.access_token else ""

    async def on_refused(self, status: int, header: str | None, sent: str) -> Verdict:
        challenge = read_challenge(header)
        if status == 403 and challenge.error != "insufficient_scope":
            return "other"
        self.wanted = challenge
        if self.has_news():
            await self._follow()
            if (now := await self.authorization()) and now != sent:
                return "repeat"
        if status == 403:
            # What it names as scopes are its own words, which are for `foretool login` alone.
            self._complain("needs you to allow more")
            try:
                await asyncio.to_thread(self._vault.note_wanted, self._server, challenge)
            except VaultError as error:
                log.warning("server %r: %s", self._server.name, error)
            return "refused"
        return "repeat" if await self._replace(sent) else "refused"

    def on_accepted(self, sent: str) -> None:
        if self.problem and sent and self.wanted.error != "insufficient_scope":
            self._complain("")

    async def _replace(self, sent: str) -> bool:
        """Get another token in place of one that was refused. Returns whether there is one."""
        record = self._record
        if record is not None and record.access_token and sent != f"Bearer {record.access_token}":
            return True  # another call has replaced it meanwhile
        if record is not None and record.is_renewable:
            await self._renew_once(record.access_token)
        elif self._sign_in_machine is not None:
            await self._renew_once("")
        now = self._record
        if now is not None and now.access_token and sent != f"Bearer {now.access_token}":
            return True
        if now is not None and now.is_renewable:
            self._complain("its token cannot be renewed at the moment", is_lasting=False)
        else:
            self._complain(_ENDED if record is not None else "needs a sign-in")
        return False

    # -- renewal

    async def _follow(self) -> None:
        """Take up what the vault has, if it has changed."""
        stamp = self._vault.stamp(self._server)
        if stamp == self._stamp:
            return
        try:
            async with asyncio.timeout(_WAIT_S):
                record = await asyncio.to_thread(self._vault.load, self._server) if stamp else None
        except (VaultError, TimeoutError) as error:
            log.warning("server %r: %s", self._server.name, str(error) or "the keyring does not answer")
            return
        self._stamp = stamp
        self._take(record if record is not None and fits_server(record, self._server) else None)

    def _take(self, record: SignIn | None) -> None:
        self._record = record
        if record is not None:
            self._secrets = [*dict.fromkeys([*self._secrets, *record.secrets])][-_KEPT_SECRETS:]
            self._hidden = collect((secret, "token") for secret in self._secrets)
            self._not_before = 0.0
            self._complain("")

    async def _renew_once(self, old: str) -> None:
        """Replace the token `old`; whoever comes while that lasts waits for the same answer."""
        if self._renewing is None or self._renewing.done():
            if time.monotonic() < self._not_before:
                return
            self._renewing = asyncio.create_task(self._renew(old))
        try:
            async with asyncio.timeout(_WAIT_S):
                await asyncio.shield(self._renewing)
        except TimeoutError:
            log.warning("server %r: no new token within %g s", self._server.name, _WAIT_S)

    async def _renew(self, old: str) -> None:
        try:
            await self._replace_token(old)
        except TokenError as error:
            self._not_before = time.monotonic() + _PAUSE_S
            log.warning("server %r: its token could not be renewed: %s", self._server.name, error)
            if error.is_over and self._record is not None and self._sign_in_machine is None:
                self._record = replace(self._record, access_token="", refresh_token="")
                self._complain(_ENDED)
        except (VaultError, OSError) as error:
            self._not_before = time.monotonic() + _PAUSE_S
            log.warning("server %r: its token could not be renewed: %s", self._server.name, error)

    async def _replace_token(self, old: str) -> None:
        record = self._record
        if record is None or not record.is_renewable:
            if self._sign_in_machine is not None and not await self._sign_in_machine():
                raise TokenError("the sign-in with the credentials of the config failed")
            await self._follow()
            return
        lock = self._vault.locked(self._server)
        await asyncio.to_thread(lock.__enter__)
        try:
            # Another process may have renewed it, or signed out, while we waited.
            await self._follow()
            record = self._record
            if record is None or record.access_token != old:
                return
            renewed = await renew(record)
            self._take(renewed)
            await asyncio.to_thread(self._vault.save, self._server, renewed)
            self._stamp = self._vault.stamp(self._server)
        finally:
            lock.__exit__(None, None, None)

    def _complain(self, problem: str, *, is_lasting: bool = True) -> None:
        is_lasting = bool(problem) and is_lasting
        if (problem, is_lasting) != (self.problem, self.needs_sign_in):
            self.problem, self.needs_sign_in = problem, is_lasting
            self.on_problem()
