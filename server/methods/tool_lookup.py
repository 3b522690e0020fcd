"""Finds the tool that a call names, or says why there is none."""

from __future__ import annotations

from collections.abc import Callable

from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.namespaces import Gone
from foretool.server.catalog.reading import CatalogReader
from foretool.server.clients.exchange import Exchange
from foretool.server.clients.session import Via
from foretool.server.config.loader import Profile
from foretool.server.methods.discovery_answer import close_names, say_shared, tools_named
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.sign_in_links import SignInLinks
from foretool.server.protocol import jsonrpc
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.gatekeeper import Gatekeeper
from foretool.server.trust.policy import TrustPolicy
from foretool.server.upstreams.connection import Lost
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Call, Tool, ToolId

Go = Callable[[Tool], None]


class ToolLookup:
    """Looks up names in the catalog, waits for upstreams that may have the tool, and records what was missing."""

    def __init__(
        self, catalog: Catalog, upstreams: UpstreamRegistry, forwarder: Forwarder, recorder: Recorder,
        policy: TrustPolicy, gatekeeper: Gatekeeper, links: SignInLinks, reader: CatalogReader,
    ) -> None:  # fmt: skip
        self._catalog = catalog
        self._reader = reader
        self._upstreams = upstreams
        self._forwarder = forwarder
        self._recorder = recorder
        self._policy = policy
        self._gatekeeper = gatekeeper
        self._links = links

    def look_up(self, exchange: Exchange, name: str, via: Via, go: Go) -> None:
        """Call `go` with the tool, or answer the exchange with the reason that there is none."""
        if self._catalog.is_unread and not self._is_at_hand(exchange, ToolId(name)):
            self._reader.when_read(lambda: exchange.attempt(self.look_up, exchange, name, via, go))
            return
        profile = exchange.client.profile
        tool = self._catalog.find(name)
        lane = self._unlisted_lane(exchange, tool) if tool is not None else None
        if tool is not None and lane is None:
            self._catalog.fix_names()
            self._take(exchange, name, via, tool, go)
            return
        if (gone := self._catalog.why_gone(name)) is not None:
            self._refuse_gone(exchange, name, via, gone)
            return

        def look_again() -> None:
            exchange.attempt(self._find_listed, exchange, name, via, go)

        # Its upstream has not listed yet, or one may that has it: the name may be right, so wait rather than refuse.
        if (owner := lane or self._unlisted_owner(exchange, name)) is not None:
            self._upstreams.when_upstream_listed(owner, exchange.era, look_again)
        else:
            self._upstreams.when_listed(look_again, profile)

    def _is_at_hand(self, exchange: Exchange, name: ToolId) -> bool:
        """Tell whether a tool can be called although not all are read: to say what another name means, or why a tool is
        hidden, takes all of them."""
        return exchange.own_session.list.sees(name) and self._catalog.get(name) is not None

    def _find_listed(self, exchange: Exchange, name: str, via: Via, go: Go) -> None:
        self._catalog.fix_names()
        tool = self._catalog.find(name)
        if tool is not None and (lane := self._unlisted_lane(exchange, tool)) is not None:
            self._refuse_unlisted(exchange, name, via, lane)
            return
        if tool is None and (held := self._gatekeeper.find_held(name)) is not None:
            self._take(exchange, name, via, held, go)  # `Admission` refuses it
            return
        if tool is None and (gone := self._catalog.why_gone(name)) is not None:
            self._refuse_gone(exchange, name, via, gone)
            return
        if tool is None and via == "name":
            tool = self._unlisted(name, exchange.client.profile)
        if tool is None:
            self._refuse_unknown(exchange, name, via)
        else:
            self._take(exchange, name, via, tool, go)

    def _take(self, exchange: Exchange, name: str, via: Via, tool: Tool, go: Go) -> None:
        """Call `go` with a tool, unless its server is one that this client must not learn of."""
        if exchange.client.transport == "stdio" or self._upstreams.admits(exchange.client.profile, tool.upstream):
            go(tool)  # whoever starts us chooses the profile, so `Admission` says what it lacks
            return
        call = refused_call(exchange, self._recorder, via, tool.id, tool.upstream)
        change = f"add {tool.upstream!r} to the servers of profile {exchange.client.profile.name!r}"
        self._recorder.call(call, exchange.own_session.denied(tool, via, change, call.at, exchange.chat))
        answer_refusal(exchange, via, self._unknown_text(exchange, name)[0])

    def _unlisted_owner(self, exchange: Exchange, name: str) -> Upstream | None:
        """Return the upstream of the profile whose prefix a name has, if its tools are unknown."""
        found = self._catalog.namespaces.split(name)
        profile = exchange.client.profile
        if found is None or self._upstreams.get(found[0]) is None or not self._upstreams.admits(profile, found[0]):
            return None
        return (
            self._upstreams.serving(found[0], profile) if self._upstreams.has_yet_to_list(found[0], profile) else None
        )

    def _unlisted_lane(self, exchange: Exchange, tool: Tool) -> Upstream | None:
        """Return the connection of this person to the server of a tool, if it has not listed its tools to them."""
        upstream = self._upstreams.get(tool.upstream)
        if upstream is None or not upstream.is_personal:
            return None
        profile = exchange.client.profile
        if not self._upstreams.admits(profile, tool.upstream):
            return None
        if not self._upstreams.has_yet_to_list(tool.upstream, profile):
            return None
        return self._upstreams.serving(tool.upstream, profile)

    def _unlisted(self, name: str, profile: Profile) -> Tool | None:
        """Return a tool that nobody lists, if exactly one upstream exposes its own names: it may have tools that it
        does not list, and knows best what to say of others. It is not asked for what another upstream may be meant by,
        nor for what it may not have."""
        namespaces = self._catalog.namespaces
        bare = namespaces.bare()
        if len(bare) != 1 or namespaces.refusal(bare[0], name) is not None:
            return None
        reach = self._policy.reach(profile)
        if not reach.admits(bare[0]) or reach.denies_some(bare[0]):
            return None  # a server that ignores case or blanks would take another spelling of a denied name
        (upstream,) = bare
        near = (self._catalog.get(each) for each in self._catalog.near(name))
        if not namespaces.may_mean(name, upstream) or any(each.upstream != upstream for each in near if each):
            return None
        if self._catalog.is_known(name, besides=upstream) or namespaces.why_gone(upstream, name) is not None:
            return None
        return Tool(ToolId(name), upstream, name, b"{}", "")

    def _refuse_gone(self, exchange: Exchange, name: str, via: Via, gone: Gone) -> None:
        """Refuse the name of a tool that is excluded or whose server is not in use; no other tool is meant by it."""
        if not self._upstreams.admits(exchange.client.profile, gone.upstream):
            self._refuse_unknown(exchange, name, via)
            return
        call = refused_call(exchange, self._recorder, via, ToolId(name), gone.upstream)
        change = f"{gone.reason}: {gone.way_out}"
        self._recorder.call(call, [exchange.own_session.gone(name, change, via, call.at, exchange.chat)])
        answer_refusal(
            exchange, via, f"tool {name!r} cannot be called: {gone.reason}; discover_tools finds other tools"
        )

    def _refuse_unknown(self, exchange: Exchange, name: str, via: Via) -> None:
        session, at = exchange.own_session, self._recorder.now()
        if (owner := self._unlisted_owner(exchange, name)) is not None:
            self._refuse_unlisted(exchange, name, via, owner)
            return
        text, candidates = self._unknown_text(exchange, name)
        self._recorder.miss(session.unknown(name, candidates, at, exchange.chat))
        answer_refusal(exchange, via, text)

    def _refuse_unlisted(self, exchange: Exchange, name: str, via: Via, owner: Upstream) -> None:
        """Refuse a name whose server could not list its tools, and say why."""
        session, at = exchange.own_session, self._recorder.now()
        self._recorder.miss(session.unreachable(name, owner.name, via, at, exchange.chat))
        lost = Lost(owner.error or "its tools are not known yet", sent=False)
        self._links.answer(exchange, owner, lost, self._forwarder.lost_text(owner, lost, repr(name)))

    def _unknown_text(self, exchange: Exchange, name: str) -> tuple[str, list[ToolId]]:
        """Return what is said of a name that means no tool of the profile, and which of its tools may be meant."""
        reach = self._policy.reach(exchange.client.profile)
        if same := [tool.id for tool in tools_named(name, self._catalog, reach)]:
            return f"Unknown tool: {say_shared(name, same)}; call one of them by its whole name", same
        candidates = close_names(name, self._catalog, reach)
        meant = f"; did you mean {', '.join(candidates)}?" if candidates else ";"
        return f"Unknown tool: {name}{meant} discover_tools finds tools by task", candidates


def refused_call(exchange: Exchange, recorder: Recorder, via: Via, tool: ToolId, upstream: str) -> Call:
    """Return the record of a call that does not run."""
    session, chat = exchange.own_session, exchange.chat
    return Call(
        session=session.record.key,
        at=recorder.now(),
        tool=tool,
        upstream=upstream,
        via=via,
        hidden=not session.list.sees(tool),
        outcome="refused",
        took_ms=0.0,
        sent=False,
        arguments=recorder.describe_arguments(exchange.params.get("arguments")),
        handle=chat.handle if chat else "",
    )


def answer_refusal(exchange: Exchange, via: Via, text: str) -> None:
    """Answer a call by name with a protocol error (specification: tools), a bridged call with text for the model."""
    if via == "name":
        exchange.error(jsonrpc.INVALID_PARAMS, text)
    else:
        exchange.tool_error(text)
