"""Lists and gets the prompts of all upstreams and our own prompt `assemble_step`; answers `completion/complete`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.names import Key, Resolver, plain_name
from foretool.server.catalog.namespaces import Namespaces
from foretool.server.clients.exchange import Exchange
from foretool.server.config.loader import Profile
from foretool.server.methods.forwarder import Forwarder
from foretool.server.methods.merged_lists import MergedLists
from foretool.server.methods.resources import Resources
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, Message, Raw, RpcError
from foretool.server.protocol.lists import PROMPTS
from foretool.server.trust.approvals import why_held
from foretool.server.trust.gatekeeper import Gatekeeper
from foretool.server.upstreams.connection import Reply
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import Upstream
from foretool.storage.records import Era, ToolId
from foretool.storage.steps import Steps, finish

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


_NOTHING_COMPLETES: Final[dict[str, Any]] = {"completion": {"values": []}}


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
        self._index: tuple[int, Namespaces, _Index] | None = None
        """The version of the lists and the prefixes that it was made of, and the names of all prompts."""

    def handlers(self, era: Era) -> dict[str, Any]:
        return {"prompts/list": self.list_all, "prompts/get": self.get, "completion/complete": self.complete}

    def list_all(self, exchange: Exchange) -> None:
        self._lists.answer(exchange, PROMPTS, self._merge)

    def _merge(self, exchange: Exchange, upstreams: Sequence[Upstream]) -> Steps[list[Raw]]:
        index = yield from self._index_in_steps()
        merged: list[Raw] = []
        taken = {STEP} if offers_steps(exchange.client.profile) else set()
        for upstream in upstreams:
            for own, prompt in (upstream.lists[PROMPTS].served or {}).items():
                yield
                exposed = index.names.get((upstream.name, own))
                if exposed is not None and exposed not in taken:
                    merged.append(jsonrpc.merge_members(prompt, {"name": exposed}))
        return [*merged, jsonrpc.raw(_STEP_PROMPT)] if taken else merged

    def _index_in_steps(self) -> Steps[_Index]:
        """Return the names of all prompts, as tools get theirs: under the prefix of their server, each its own."""
        while True:
            version, namespaces = self._lists.version, self._catalog.namespaces
            if self._index is not None and self._index[:2] == (version, namespaces):
                return self._index[2]
            index = yield from _read_names(self._upstreams, namespaces)
            if (version, namespaces) == (self._lists.version, self._catalog.namespaces):
                self._index = version, namespaces, index

    def get(self, exchange: Exchange) -> None:
        name = jsonrpc.text(exchange.params.get("name"))
        if name is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, "prompts/get: name is missing")
        if self._is_own(name, exchange.client.profile):
            # Before the first upstreams have listed their tools, nothing would be found.
            profile = exchange.client.profile
            self._upstreams.when_listed(lambda: exchange.attempt(self._answer_step, exchange), profile)
            return

        def go(upstream: Upstream, own: str) -> None:
            self._forwarder.pass_on(exchange, upstream, {**exchange.params, "name": jsonrpc.raw(own)})

        self._find(exchange, name, go)

    def complete(self, exchange: Exchange) -> None:
        """Send a completion request to the upstream of the prompt or resource template that it is about."""
        profile = exchange.client.profile
        reference = jsonrpc.fields(exchange.params.get("ref", UNSET))
        if jsonrpc.text(reference.get("type")) == "ref/prompt":
            name = jsonrpc.text(reference.get("name")) or ""
            if self._is_own(name, profile):
                exchange.own_result(_NOTHING_COMPLETES)
                return

            def go(upstream: Upstream, own: str) -> None:
                ref = jsonrpc.raw({**reference, "name": jsonrpc.raw(own)})
                self._complete_at(exchange, upstream, {**exchange.params, "ref": ref})

            self._find(exchange, name, go)
        else:
            uri = jsonrpc.text(reference.get("uri")) or ""
            self._resources.find_owner(exchange, uri, partial(self._complete_uri, exchange, uri))

    def _complete_uri(self, exchange: Exchange, uri: str, upstream: Upstream | None) -> None:
        """Send a request on a template or URI to its upstream. One that fits none may be of the only server that
        completes anything, unless another one has resources."""
        profile = exchange.client.profile
        able = self._upstreams.with_capability("completions", profile)
        others = [each for each in self._upstreams.with_capability("resources", profile) if each not in able]
        upstream = upstream or (able[0] if len(able) == 1 and not others else None)
        if upstream is None:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"completion/complete: nothing is known of {uri!r}")
        self._complete_at(exchange, upstream, exchange.params)

    def _complete_at(self, exchange: Exchange, upstream: Upstream, params: dict[str, Raw]) -> None:
        """Pass a request on. We declare completions for all servers, so one that has none completes nothing."""

        def on_reply(at: Exchange, reply: Reply) -> None:
            error = reply.error if isinstance(reply, Message) else UNSET
            if isinstance(error, Raw) and jsonrpc.error_of(error)[0] == jsonrpc.METHOD_NOT_FOUND:
                at.own_result(_NOTHING_COMPLETES)
            else:
                self._forwarder.answer(at, upstream, reply)

        self._forwarder.forward(exchange, upstream, params, on_reply)

    def _is_own(self, name: str, profile: Profile) -> bool:
        return name == STEP and offers_steps(profile)

    def _find(self, exchange: Exchange, name: str, go: Callable[[Upstream, str], None]) -> None:
        """Call `go` with the upstream of a prompt and the prompt's name there, or answer that it is unknown or held.
        A name without a prefix is looked for once all lists are known: it may be that of a server which has yet to
        list."""
        profile = exchange.client.profile

        def look() -> None:
            upstream, own = self._locate(name, profile)
            if self._gatekeeper.is_prompt_held(upstream.name, own):
                raise RpcError(jsonrpc.INVALID_PARAMS, f"prompt {name!r} is not available: {why_held(upstream.name)}")
            go(upstream, own)

        resolver = finish(self._index_in_steps()).resolver
        if resolver.resolve(name) is not None or self._catalog.namespaces.split(name) is not None:
            look()
        else:
            upstreams = self._upstreams.with_capability(PROMPTS.capability, profile)
            self._lists.when_known(exchange, upstreams, (PROMPTS,), look)

    def _locate(self, name: str, profile: Profile) -> tuple[Upstream, str]:
        """Return the upstream of a prompt and the prompt's name there, by the rules of tools' names. A prompt that
        nobody lists may be one of the server whose prefix the name has, or of the only one without a prefix. Raises
        `RpcError` for an unknown prompt."""
        index, namespaces = finish(self._index_in_steps()), self._catalog.namespaces
        exposed = index.resolver.resolve(name)
        found = index.keys.get(exposed) if exposed is not None else namespaces.split(name)
        if found is None and self._may_be_unlisted(name, index):
            found = namespaces.bare()[0], name
        upstream = self._upstreams.get(found[0]) if found is not None else None
        if found is None or upstream is None or upstream.is_personal or not self._upstreams.admits(profile, found[0]):
            raise RpcError(jsonrpc.INVALID_PARAMS, f"Unknown prompt: {name}")
        return upstream, found[1]

    def _may_be_unlisted(self, name: str, index: _Index) -> bool:
        """Return whether the only server without a prefix may be asked for a prompt that nobody lists."""
        namespaces = self._catalog.namespaces
        bare = namespaces.bare()
        if len(bare) != 1 or namespaces.refusal(bare[0], name) is not None or not namespaces.may_mean(name, bare[0]):
            return False
        near = (index.keys[each][0] for each in index.resolver.near(name))
        return all(owner == bare[0] for owner in near) and not any(
            own == name and owner != bare[0] for owner, own in index.names
        )


class _Index(NamedTuple):
    """The names of all prompts."""

    names: Mapping[Key, ToolId]
    """The exposed name of each prompt, by server and own name."""
    keys: Mapping[ToolId, Key]
    resolver: Resolver
    """Finds the prompt that a name means."""


def _read_names(upstreams: Iterable[Upstream], namespaces: Namespaces) -> Steps[_Index]:
    names: dict[Key, ToolId] = {}
    keys: dict[ToolId, Key] = {}
    for upstream in upstreams:
        prefix = namespaces.prefix(upstream.name)
        listed = upstream.lists[PROMPTS].served if PROMPTS in upstream.lists else None
        for own in listed or ():
            yield
            if namespaces.refusal(upstream.name, own) is not None:
                continue
            exposed = (ToolId(plain_name(head, own)) for head in (prefix, upstream.name))
            if (name := next((each for each in exposed if each not in keys), None)) is not None:
                names[upstream.name, own] = name
                keys[name] = upstream.name, own
    yield
    return _Index(names, keys, Resolver(names, may_mean=namespaces.may_mean, split_loosely=namespaces.split_loosely))


def offers_steps(profile: Profile) -> bool:
    """Return whether a profile's clients get our own prompt; `full` shows everything as it is and nothing more."""
    return profile.policy != "full"
