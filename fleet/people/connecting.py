"""Answers `connect_server`: a person brings the code of a consent, or disconnects from a server again."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from html import escape
from typing import Any, Final
from urllib.parse import parse_qs

from foretool.fleet.people.credentials import CredentialError
from foretool.fleet.people.grants import LATE_S, Grants
from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import LiveConfig
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.transports.tasks import BackgroundWork
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.storage.records import AuditEntry

_USAGE: Final = 'connect_server takes {"server": NAME, "code": CODE}, or {"server": NAME, "disconnect": true}'
MOST_QUERY: Final = 8 * 1024

log = logging.getLogger("foretool.identity")


class Connecting:
    """Answers `connect_server`, by which people let foretool reach a server for them."""

    def __init__(
        self, config: LiveConfig, upstreams: UpstreamRegistry, grants: Callable[[], Grants],
        forget: Callable[[str, str], None],
    ) -> None:  # fmt: skip
        """`forget`: takes what a server has listed to a person out of their lists."""
        self._config = config
        self._upstreams = upstreams
        self._grants = grants
        self._forget = forget
        self._running: set[asyncio.Task[None]] = set()

    def start(self, exchange: Exchange, raw: Raw) -> None:
        """Answer one call; `raw` is its arguments."""
        given = jsonrpc.plain_object(raw) or {}
        name, code = given.get("server"), given.get("code")
        profile, person = exchange.client.profile, exchange.client.profile.person
        server = self._config.now.servers.get(name) if isinstance(name, str) else None
        is_served = server is not None and self._upstreams.admits(profile, server.name)
        if server is None or not is_served or server.per_user is None or server.per_user.kind != "grant" or not person:
            exchange.tool_error(f"no server of this name wants the consent of this person. {_USAGE}")
        elif given.get("disconnect") is True:
            self._spawn(self._disconnect(exchange, server.name, person))
        elif isinstance(code, str) and code.strip():
            self._confirm(exchange, server.name, person, code)
        else:
            self._ask(exchange, server.name, person)

    def _ask(self, exchange: Exchange, server: str, person: str) -> None:
        try:
            _say(exchange, f"Server {server!r}: {self._grants().ask_for_consent(server, person)}")
        except CredentialError as error:
            exchange.tool_error(f"server {server!r} cannot be connected: {error}")

    def _confirm(self, exchange: Exchange, server: str, person: str, code: str) -> None:
        try:
            self._grants().confirm(server, person, code, _entry(exchange, server, "connected"))
        except CredentialError as error:
            exchange.tool_error(f"the code does not connect server {server!r}: {error}")
            return
        self._upstreams[server].drop_person(person)
        self._upstreams.serving(server, exchange.client.profile).start(exchange.era)
        _say(exchange, f"Server {server!r} is connected. Call its tools now.")

    async def _disconnect(self, exchange: Exchange, server: str, person: str) -> None:
        try:
            entry = _entry(exchange, server, "disconnected")
            was_there, problem = await self._grants().disconnect(server, person, entry)
        except CredentialError as error:
            exchange.tool_error(f"server {server!r} stays connected: {error}")
            return
        self._upstreams[server].drop_person(person)
        self._forget(server, person)
        said = f"Server {server!r} is {'disconnected' if was_there else 'not connected'}."
        if problem:
            said += f" Its authorization server may still hold the access ({problem}): end it there as well."
        _say(exchange, said)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)


class UnconfirmedGrants(BackgroundWork):
    """Ends what people have allowed and nobody has confirmed in time; housekeeping calls `tick` about once a second."""

    def __init__(self, wanted: Callable[[], bool], grants: Callable[[], Grants]) -> None:
        """`wanted`: whether a server wants the consent of people."""
        self._wanted = wanted
        self._grants = grants
        self._due = 0.0

    def tick(self) -> None:
        """Begin to look for them, from time to time; raise what has ended the last look."""
        if (failure := self.take_failure()) is not None:
            raise failure
        if time.monotonic() < self._due or self.is_working or not self._wanted():
            return
        self._due = time.monotonic() + LATE_S
        self.begin(self._end())

    async def _end(self) -> None:
        if ended := await self._grants().end_late():
            which = "1 grant that was" if ended == 1 else f"{ended} grants that were"
            log.info("%s allowed and never confirmed: ended at the authorization server", which)


def _entry(exchange: Exchange, server: str, outcome: str) -> AuditEntry:
    by, record = exchange.client.person, exchange.own_session.record
    return AuditEntry(
        time.time(), by.principal, by.name, record.client, record.profile, "connect", server, outcome,
        session=record.key,
    )  # fmt: skip


def _say(exchange: Exchange, text: str) -> None:
    exchange.own_result({"content": [{"type": "text", "text": text}]})


async def come_back(grants: Grants, query: str) -> tuple[int, bytes]:
    """Answer a browser that an authorization server has sent back; return the status and the page."""
    said = parse_qs(query) if len(query) <= MOST_QUERY else {}
    state, code, error = (said.get(key, [""])[0] for key in ("state", "code", "error"))
    try:
        shown = await grants.come_back(state, code, error)
    except CredentialError as refused:
        return 400, _page("Not connected", f"<p>{escape(str(refused))}.</p>")
    return 200, _page(
        "Almost connected",
        f"<p>To finish, give this code to the program that sent you here, within ten minutes:</p><p><b>{shown}</b></p>"
        "<p>Give it to nobody else. If you did not ask for this yourself just now, close this page: whoever gets the"
        " code gets the access that you have just allowed.</p>",
    )


def _page(title: str, body: str) -> bytes:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"></head>'
        f"<body><main><h1>{title}</h1>{body}</main></body></html>"
    ).encode()
