"""Finds the tool that a call names, or says why there is none."""

from __future__ import annotations

from functools import partial
from typing import Final

from msgspec.structs import replace

from foretool.server.calls.bridged_calls import BridgedCall
from foretool.server.calls.tool_call import Refusal, ToolCall, Wait, describe_refused, finder_of, refuse
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.namespaces import Gone
from foretool.server.catalog.signatures import all_arguments, bridged, required_arguments, signature
from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import Profile
from foretool.server.discovery.answer_shape import close_names, tools_named
from foretool.server.discovery.answer_text import say_shared
from foretool.server.methods.forwarder import Forwarder
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.approvals import review_command
from foretool.server.trust.gatekeeper import Gatekeeper
from foretool.server.trust.policy import Reach, TrustPolicy
from foretool.server.upstreams.connection import Lost
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Miss, Tool, ToolId

_MOST_FITTING: Final = 3
"""Tools that are named to who wrote arguments without a tool."""
_MOST_REPEATED: Final = 2_000
"""Bytes of such arguments that are said again."""


class ToolLookup:
    """Looks up names in the catalog, and waits for upstreams that may have the tool."""

    def __init__(
        self, catalog: Catalog, upstreams: UpstreamRegistry, forwarder: Forwarder, recorder: Recorder,
        policy: TrustPolicy, gatekeeper: Gatekeeper,
    ) -> None:  # fmt: skip
        self._catalog = catalog
        self._upstreams = upstreams
        self._forwarder = forwarder
        self._recorder = recorder
        self._policy = policy
        self._gatekeeper = gatekeeper

    def find(self, call: ToolCall) -> Tool | Refusal | Wait:
        """Return the tool of a call, why there is none, or what has to be known before that can be said."""
        exchange, name = call.exchange, call.name
        if call.has_waited:
            self._catalog.fix_names()
        tool = self._catalog.find(name)
        lane = self._unlisted_lane(exchange, tool) if tool is not None else None
        if tool is not None and lane is None:
            if not call.has_waited and not self._may_learn_of(exchange, tool):
                return self._wait(call, None)  # as for a name that no server has
            self._catalog.fix_names()
            return self._admit(call, tool)
        gone = self._catalog.meanings.why_gone(name)
        if not call.has_waited:
            return self._wait(call, lane) if gone is None else self._refuse_gone(call, gone)
        if lane is not None:
            return self._refuse_unlisted(call, lane)
        if (held := self._gatekeeper.find_held(name, self._catalog.meanings.split(name))) is not None:
            return self._admit(call, held)  # `Admission` refuses it
        if gone is not None:
            return self._refuse_gone(call, gone)
        if call.via == "name" and (unlisted := self._find_unlisted(name, exchange.client.profile)) is not None:
            return self._admit(call, unlisted)
        return self._refuse_unknown(call)

    def fitting(self, exchange: Exchange, written: BridgedCall) -> list[str]:
        """Return a call without a tool's name as it may be meant, ready to be sent: one for each tool that takes such
        arguments and that the model was told of in this task, or else that a list shows; where none takes exactly
        these, one for each that it was told of and that takes most of them. What it was told of first stands first.
        None where those are too many to tell."""
        reach, shown = self._policy.reach(exchange.client.profile), exchange.own_session.list
        chat = exchange.own_session.conversations.whole
        told = {tool: place for place, tool in enumerate(dict.fromkeys((*chat.told, *chat.found)))}
        given = written.argument_names
        unknown = {
            tool: len(given - all_arguments(tool)) for tool in self._catalog.tools()
            # What nobody was shown is not read: a catalog may have tens of thousands.
            if (tool.id in told or shown.sees(tool.id) or shown.names(tool.id)) and reach.finds(tool)
            and (needed := required_arguments(tool)) and needed <= given
        }  # fmt: skip
        meant = [tool for tool, count in unknown.items() if not count]
        if len(meant) > _MOST_FITTING:
            meant = [tool for tool in meant if tool.id in told]
        if not meant:
            near = {tool: count for tool, count in unknown.items() if tool.id in told}
            meant = [tool for tool, count in near.items() if count == min(near.values())]
        if len(meant) > _MOST_FITTING:
            return []
        meant.sort(key=lambda tool: told.get(tool.id, len(told)))
        arguments = written.arguments({})
        is_long = len(bytes(arguments)) > _MOST_REPEATED
        return [
            _write_call(tool, reach.verdict(tool).bridge, arguments, is_long=is_long)
            for tool in meant if signature(tool) or not is_long
        ]  # fmt: skip

    def _wait(self, call: ToolCall, lane: Upstream | None) -> Wait:
        """Wait for the upstream of a name, or for all: one that has not listed yet may have it, so the name may be
        right."""
        call.has_waited = True
        exchange = call.exchange
        if (owner := lane or self._unlisted_owner(exchange, call.name)) is not None:
            return Wait(partial(self._upstreams.when_upstream_listed, owner, exchange.era))
        return Wait(lambda go_on: self._upstreams.when_listed(go_on, exchange.client.profile))

    def _admit(self, call: ToolCall, tool: Tool) -> Tool | Refusal:
        """Return a tool, unless its server is one that this client must not learn of."""
        exchange = call.exchange
        if self._may_learn_of(exchange, tool):
            return tool
        refusal = self._refuse_unknown(call)
        if not isinstance(refusal.missed, Miss):
            return refusal  # by its name it may be of a server of this profile that has yet to list its tools
        # The miss is the same as that of a name which no server has, but for what the user reads of it.
        suggested = f"; {refusal.missed.change}" if refusal.missed.recovered == "suggested" else ""
        change = f"add {tool.upstream!r} to the servers of profile {exchange.client.profile.name!r}{suggested}"
        missed = replace(refusal.missed, cause="denied", change=change)
        audited = describe_refused(call, tool.id, tool.upstream, missed.at, self._recorder)
        return replace(refusal, missed=missed, audited=audited)

    def _may_learn_of(self, exchange: Exchange, tool: Tool) -> bool:
        """Return whether a client may know that there is a tool. Whoever starts us chooses the profile, so `Admission`
        says what it lacks."""
        return exchange.client.transport == "stdio" or self._upstreams.admits(exchange.client.profile, tool.upstream)

    def _unlisted_owner(self, exchange: Exchange, name: str) -> Upstream | None:
        """Return the upstream of the profile whose prefix a name has, if its tools are unknown."""
        found = self._catalog.meanings.split(name)
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

    def _find_unlisted(self, name: str, profile: Profile) -> Tool | None:
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
        near = (self._catalog.get(each) for each in self._catalog.meanings.near(name))
        if not namespaces.may_mean(name, upstream) or any(each.upstream != upstream for each in near if each):
            return None
        if self._catalog.meanings.is_known(name, besides=upstream) or namespaces.why_gone(upstream, name) is not None:
            return None
        return Tool(ToolId(name), upstream, name, b"{}", "")

    def _refuse_gone(self, call: ToolCall, gone: Gone) -> Refusal:
        """Refuse the name of a tool that is excluded or whose server is not in use; no other tool is meant by it."""
        exchange, name = call.exchange, call.name
        if not self._upstreams.admits(exchange.client.profile, gone.upstream):
            return self._refuse_unknown(call)
        text = f"tool {name!r} cannot be called: {gone.for_model}; {finder_of(exchange)} finds other tools"
        return refuse(
            call, ToolId(name), gone.upstream, gone.cause, gone.change, text, self._recorder, is_unknown=True
        )  # fmt: skip

    def _refuse_unknown(self, call: ToolCall) -> Refusal:
        exchange, name = call.exchange, call.name
        if (owner := self._unlisted_owner(exchange, name)) is not None:
            return self._refuse_unlisted(call, owner)
        text, candidates = self._unknown_text(exchange, name)
        miss = exchange.own_session.unknown(name, candidates, self._recorder.now(), exchange.chat)
        is_made_up = not tools_named(name, self._catalog, self._policy.reach(exchange.client.profile))
        return Refusal(text, miss, is_unknown=True, is_made_up=is_made_up)

    def _refuse_unlisted(self, call: ToolCall, owner: Upstream) -> Refusal:
        """Refuse a name whose server could not list its tools, and say why."""
        lost = Lost(owner.error or "its tools are not known yet", sent=False)
        text = self._forwarder.lost_text(owner, lost, repr(call.name))
        change = f"see why {owner.name!r} does not start: foretool doctor"
        refusal = refuse(call, ToolId(call.name), owner.name, "offline", change, text, self._recorder)
        return replace(refusal, unreachable=(owner, lost))

    def _unknown_text(self, exchange: Exchange, name: str) -> tuple[str, list[ToolId]]:
        """Return what is said of a name that means no tool of the profile, and which of its tools may be meant."""
        reach = self._policy.reach(exchange.client.profile)
        if same := [tool.id for tool in tools_named(name, self._catalog, reach)]:
            return f"Unknown tool: {say_shared(name, same)}; call one of them by its whole name", same
        candidates = close_names(name, self._catalog, reach)
        meant = f"; did you mean {', '.join(candidates)}?" if candidates else ";"
        text = f"Unknown tool: {name}{meant} {finder_of(exchange)} finds tools by task"
        return text + self._say_waiting(name, reach), candidates

    def _say_waiting(self, name: str, reach: Reach) -> str:
        """Say that tools of the server of an unknown name wait for the user: it may have renamed this one."""
        owner, _ = self._catalog.meanings.split(name) or ("", "")
        if not reach.admits(owner) or self._gatekeeper.is_per_user(owner) or owner not in self._gatekeeper.lacking():
            return ""
        return f"; new tools of server {owner!r} wait for the user's approval: {review_command(owner)}"


def _write_call(tool: Tool, bridge: str, arguments: Raw, *, is_long: bool) -> str:
    """Write a call with those of some arguments that the tool takes, or with its own where they are too long."""
    if is_long:
        return bridged(signature(tool), bridge)
    known = {name: value for name, value in jsonrpc.fields(arguments).items() if name in all_arguments(tool)}
    return f"{bridge} with {jsonrpc.encode({'name': tool.id, 'arguments': known}).decode()}"
