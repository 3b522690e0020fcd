"""The face of this room: what a proxy asks where people come with tokens of their own (`server.methods.people`)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from foretool.fleet.people.connecting import Connecting, UnconfirmedGrants, come_back
from foretool.fleet.people.credentials import Credentials, Subjects, TokenExchange, TokenSource
from foretool.fleet.people.grants import Grants, GrantSource
from foretool.fleet.people.introspection import new_issuer
from foretool.fleet.people.issuer import ConfiguredIssuer
from foretool.fleet.people.lanes import Lane, PersonalHost, PersonalUpstream, PersonAuthorizer
from foretool.fleet.people.listed_tools import PersonalTools
from foretool.server.clients import exchange as exchanges
from foretool.server.config.loader import Config
from foretool.server.config.servers import Server
from foretool.server.methods.people import Surroundings
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Tool


class People:
    """Serves people who come with tokens of their own, as `server.methods.people.People` says."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.subjects = Subjects()
        self._listed = PersonalTools(around.catalog)
        self._unconfirmed = UnconfirmedGrants(self._wants_consent, lambda: self._grants)
        self._connecting = Connecting(around.config, around.upstreams, lambda: self._grants, self._forget_listed)
        self._issuer: ConfiguredIssuer | None = None
        self._closing: list[ConfiguredIssuer] = []

    @cached_property
    def _grants(self) -> Grants:
        """What people have allowed foretool to do at servers; made where a server wants that."""
        live = self._around.config
        access = live.settings.access
        resource = access.resource if access is not None else ""
        return Grants(self._around.store, lambda: live.settings.seal_keys, resource, lambda: live.now.servers)

    def _wants_consent(self) -> bool:
        servers = self._around.config.now.servers.values()
        return any(each.per_user is not None and each.per_user.kind == "grant" for each in servers)

    # -- people of an authorization server

    def issuer(self, config: Config) -> ConfiguredIssuer | None:
        entry, before = config.settings.access, self._issuer
        if entry is None:
            self._issuer = None
        else:
            same = before is not None and (before.entry.issuer, before.entry.jwks_url) == (entry.issuer, entry.jwks_url)
            keys = before.keys if before is not None and same else None
            self._issuer = new_issuer(entry, config.profiles, keys, self.subjects)
            self._issuer.warm()
        if before is not None and (self._issuer is None or self._issuer.keys is not before.keys):
            self._closing.append(before)
        return self._issuer

    # -- servers that each person reaches with a token of their own

    def make_upstream(self, server: Server) -> Upstream:
        assert server.per_user is not None
        self._listed.forget(server.name)
        source: TokenSource
        if server.per_user.kind == "grant":
            source = GrantSource(self._grants, server.name)
        else:
            self.subjects.wanted = True
            source = TokenExchange(server.per_user, server.url, self.subjects)
        credentials = Credentials(server.name, source)
        host = PersonalHost(self._around.events, self._take_in, self._around.upstreams.wake)

        def make_lane(person: str) -> Lane:
            def redact(text: str) -> str:
                return credentials.redact(person, server.secrets.redact(text))

            opener = self._around.open_with(server, PersonAuthorizer(credentials, person))
            return Lane(
                person, server.name, host, opener, server.entry.timeout_s, redact, **self._around.options
            )  # fmt: skip

        return PersonalUpstream(server.name, self._around.events, make_lane, credentials, server.entry.timeout_s)

    def sees(self, person: str, tool: Tool) -> bool:
        return self._listed.sees(person, tool)

    def _take_in(self, lane: Lane, tools: Sequence[Raw]) -> None:
        """Record what a server has listed to one person."""
        owner = self._around.upstreams.get(lane.name)
        if owner is None or owner.of(lane.person) is not lane:  # a reload has replaced it
            return
        merged = self._listed.take_in(lane.name, lane.person, tools)
        if {bytes(each) for each in merged} != {tool.definition for tool in self._around.catalog.listed(lane.name)}:
            self._around.events.take_in(owner, merged)
        lane.has_listed = True
        self._around.relist(lane.person)
        self._around.upstreams.wake(lane)

    def _forget_listed(self, server: str, person: str) -> None:
        """Take what a server has listed to a person out of their lists."""
        self._listed.forget(server, person)
        self._around.relist(person)

    # -- consents

    def connect(self, exchange: exchanges.Exchange, raw: Raw) -> None:
        self._connecting.start(exchange, raw)

    async def come_back(self, query: str) -> tuple[int, bytes] | None:
        return await come_back(self._grants, query) if self._wants_consent() else None

    def tick(self) -> None:
        """End consents that were given and not confirmed in time."""
        self._unconfirmed.tick()

    async def stop(self) -> None:
        """End what runs, and stop reading keys."""
        await self._unconfirmed.stop()
        for issuer in [*self._closing, *([self._issuer] if self._issuer is not None else [])]:
            await issuer.close()
