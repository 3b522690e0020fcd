"""Lists and gets the prompts of all upstreams and our own prompt `assemble_step`; answers `completion/complete`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from foretool.server.catalog import names
from foretool.server.catalog.catalog import Catalog
from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import Profile
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.lists import MergedLists
from foretool.server.methods.resources import Resources
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw, RpcError
from foretool.server.trust.gatekeeper import Gatekeeper
from foretool.server.trust.held_words import why_held
from foretool.server.upstreams.connection import Reply
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era

STEP: Final = "assemble_step"
_STEP_PROMPT: Final = {
    "name": STEP,
    "title": "Assemble a step",
    "description": "The tools and instructions that a task needs, within a token budget, as one text.",
    "arguments": [
        {"name": "task", "description": "what to do; one need per line", "required": True},
        {"name": "budget", "description": "tokens; 2000 if left out"},
    ],
}


NOTHING_COMPLETES: Final[dict[str, Any]] = {"completion": {"values": []}}


class Prompts:
    """Finds the upstream of each prompt; prompts are exposed under the prefix of their server."""

    def __init__(
        self, upstreams: UpstreamRegistry, lists: MergedLists, forwarder: Forwarder, catalog: Catalog,
        resources: Resources, gatekeeper: Gatekeeper, answer_step: Callable[[Exchange], None],
    ) -> None:  # fmt: skip
        """`resources` finds the upstream of a template to complete; `answer_step` answers a request for our prompt."""
        self._upstreams = upstreams
        self._lists = lists
        self._forwarder = forwarder
        self._catalog = catalog
        self._resources = resources
        self._gatekeeper = gatekeeper
        self._answer_step = answer_step
        self._known: dict[str, dict[str, str]] = {}
        """By upstream: the exposed names of its prompts, each with the prompt's own name."""

    def handlers(self, era: Era) -> dict[str, Any]:
        return {"prompts/list": self.list_all, "prompts/get": self.get, "completion/complete": self.complete}

    def list_all(self, exchange: Exchange) -> None:
        self._lists.answer(exchange, "prompts", "prompts", partial(self._merge, exchange.client.profile))

    def _merge(self, profile: Profile, parts: dict[str, list[Raw]]) -> list[Raw]:
        found: dict[str, Raw] = {STEP: jsonrpc.raw(_STEP_PROMPT)} if offers_steps(profile) else {}
        for upstream, items in parts.items():
            known = self._known[upstream] = dict[str, str]()
            for item in self._gatekeeper.admit_prompts(upstream, items):
                name = jsonrpc.member(item, "name")
                if name is None or self._catalog.namespaces.refusal(upstream, name) is not None:
                    continue
                exposed = names.plain_name(self._catalog.namespaces.prefix(upstream), name)
                known.setdefault(exposed, name)
                found.setdefault(exposed, jsonrpc.merge(item, {"name": exposed}))
        return [found[name] for name in sorted(found, key=lambda name: name == STEP)]

    def get(self, exchange: Exchange) -> None:
        name = jsonrpc.text(exchange.params.get("name"))
        if name is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "prompts/get: name is missing")
        if self._is_own(name, exchange.client.profile):
            # Before the first upstreams have listed their tools, nothing would be found.
            profile = exchange.client.profile
            self._upstreams.when_listed(lambda: exchange.attempt(self._answer_step, exchange), profile)
            return
        upstream, own = self._find(name, exchange.client.profile)
        self._forwarder.pass_on(exchange, upstream, {**exchange.params, "name": jsonrpc.raw(own)})

    def complete(self, exchange: Exchange) -> None:
        """Send a completion request to the upstream of the prompt or resource template that it is about."""
        profile = exchange.client.profile
        reference = jsonrpc.fields(exchange.params.get("ref", UNSET))
        if jsonrpc.text(reference.get("type")) == "ref/prompt":
            name = jsonrpc.text(reference.get("name")) or ""
            if self._is_own(name, profile):
                exchange.own_result(NOTHING_COMPLETES)
                return
            upstream, own = self._find(name, profile)
            reference["name"] = jsonrpc.raw(own)
        else:
            uri = jsonrpc.text(reference.get("uri")) or ""
            self._resources.find_owner(exchange, uri, partial(self._complete_uri, exchange, uri))
            return
        self._complete_at(exchange, upstream, {**exchange.params, "ref": jsonrpc.raw(reference)})

    def _complete_uri(self, exchange: Exchange, uri: str, upstream: Upstream | None) -> None:
        """Send a request on a template or URI to its upstream, else to the only one that completes anything."""
        able = self._upstreams.with_capability("completions", exchange.client.profile)
        upstream = upstream or (able[0] if len(able) == 1 else None)
        if upstream is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"completion/complete: nothing is known of {uri!r}")
        self._complete_at(exchange, upstream, exchange.params)

    def _complete_at(self, exchange: Exchange, upstream: Upstream, params: dict[str, Raw]) -> None:
        """Pass a request on. We declare completions for all servers, so one that has none completes nothing."""

        def on_reply(at: Exchange, reply: Reply) -> None:
            error = reply.error if isinstance(reply, Message) else UNSET
            if isinstance(error, Raw) and jsonrpc.error_of(error)[0] == jsonrpc.METHOD_NOT_FOUND:
                at.own_result(NOTHING_COMPLETES)
            else:
                self._forwarder.answer(at, upstream, reply)

        self._forwarder.forward(exchange, upstream, params, on_reply)

    def _is_own(self, name: str, profile: Profile) -> bool:
        return name == STEP and offers_steps(profile)

    def _find(self, name: str, profile: Profile) -> tuple[Upstream, str]:
        """Return the upstream of a prompt and the prompt's name there. Raises `RpcError` for one that is unknown or
        held."""
        upstream, own = self._locate(name, profile)
        if self._gatekeeper.is_prompt_held(upstream.name, own):
            raise RpcError(jsonrpc.INVALID_PARAMS, f"prompt {name!r} is not available: {why_held(upstream.name)}")
        return upstream, own

    def _locate(self, name: str, profile: Profile) -> tuple[Upstream, str]:
        """Return the upstream whose prefix the name has, else the first without a prefix that lists it, else the only
        one. Raises `RpcError` for an unknown prompt."""
        admitted = self._upstreams.admitted(profile)
        upstreams = {upstream.name: upstream for upstream in admitted if not upstream.is_personal}
        namespaces = self._catalog.namespaces
        bare = [upstream for upstream in namespaces.bare() if upstream in upstreams]
        found = namespaces.split(name) if names.SEPARATOR in name else None
        if found is not None and found[0] not in bare:
            bare = [found[0]] if found[0] in upstreams else []
        elif names.SEPARATOR in name:
            bare = []
        listing = [upstream for upstream in bare if name in self._known.get(upstream, {})]
        if not listing and len(bare) != 1:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"Unknown prompt: {name}")
        owner = (listing or bare)[0]
        unlisted = found[1] if found is not None else name
        return upstreams[owner], self._known.get(owner, {}).get(name, unlisted)


def offers_steps(profile: Profile) -> bool:
    """Tell whether a profile's clients get our own prompt; `full` shows everything as it is and nothing more."""
    return profile.policy != "full"
