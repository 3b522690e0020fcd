"""Decides with the store which texts of a server are served: tools, prompts, and `instructions`.

The first sight of a server is approved, unless `approve_new` says otherwise; so is the first sight after the user has
edited its entry. Other changes are held until `foretool review`, unless `trust` is `auto`. Every list is compared with
the approvals as the store has them now, so that all proxies over one store agree. Where the store cannot be read, what
was compared last counts: a known server keeps what is served of it, and a new one is compared as soon as the store can
be read again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.server.config.loader import LiveConfig
from foretool.server.config.permissions import is_users_word
from foretool.server.config.servers import Server
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.trust import approvals
from foretool.server.trust.approvals import definition_of, hash_value, is_same, prompt_fits, text_of
from foretool.server.trust.launch import launch_of, of_launch, starts_same
from foretool.server.trust.ledger import Ledger
from foretool.storage.records import Approval, Definition, DefinitionKind, Tool, ToolId
from foretool.storage.steps import Steps, T, finish
from foretool.storage.stores import ApprovalStore, StorageError

LISTED: Final[tuple[DefinitionKind, ...]] = ("launch", "tool", "instructions")
"""What is known of a server once it has listed its tools."""

FIRST_S: Final = 86_400.0
"""Prompts that are first listed longer than this after their server was approved are held, and so are texts of prompts
that are first read longer than this after the prompt was."""

COSTLY_S: Final = 0.02
"""A comparison that finds changes and takes longer than this is not repeated soon."""
REST_SHARE: Final = 200.0
"""How many times as long as a costly comparison its server then waits for the next one."""

HELD: Final = "held"
"""Stands for the hash of a tool that is held, where a call names it."""

log = logging.getLogger("foretool.trust")


class Listing(Struct, frozen=True):
    """What a server lists and says at one time, or what may be served of it."""

    tools: Sequence[Tool]
    text: str = ""
    """Its `instructions`."""
    version: str = ""
    has_prompts: bool = True
    """It may have prompts."""


class Gatekeeper:
    """Lets through what was approved."""

    def __init__(
        self, store: Callable[[], ApprovalStore], config: LiveConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`store` returns the store in use; a proxy may change to another one while it runs."""
        self._config = config
        self._clock = clock
        self._rests: dict[str, float] = {}
        """By server: until when its lists wait, because comparing the last one took long."""
        self._edited: set[str] = set()
        """Servers whose entry the user has edited, and whose prompts have not been listed since."""
        self._ledger = ledger = Ledger(store, lambda: config.now.servers, clock)
        self.look, self.due, self.waiting = ledger.look, ledger.due, ledger.waiting
        self.decisions = ledger.decisions

    def is_per_user(self, name: str) -> bool:
        """Tell whether people reach a server with tokens of their own, so that each may get another list of it."""
        server = self._config.now.servers.get(name)
        return server is not None and server.per_user is not None

    # -- tools and instructions

    def admit(self, name: str, listing: Listing, before: Listing) -> Listing:
        """Return what may be served of a server's listing. `before`: what is served of it now."""
        return finish(self.admit_in_steps(name, listing, before))

    def admit_in_steps(self, name: str, listing: Listing, before: Listing) -> Steps[Listing]:
        """Do the same in steps. It begins again where somebody has decided about a definition meanwhile."""
        server = self._config.now.servers.get(name)
        if server is None:
            return listing
        if self._clock() < self._rests.get(name, 0.0):
            self._ledger.unjudged.add(name)
            return before
        try:
            while True:
                decisions = self.decisions()
                admitted = yield from self._admit(server, listing, before)
                if self.decisions() == decisions:
                    return admitted
        except StorageError as error:
            self._ledger.unjudged.add(name)
            if server.entry.trust != "auto" and (before.tools or before.text or server.entry.approve_new):
                log.warning("%s; nothing new of server %r is served until that works", error, name)
                return before
            return listing

    def _admit(self, server: Server, listing: Listing, before: Listing) -> Steps[Listing]:
        launch = replace(launch_of(server), version=listing.version)
        if not (yield from self._see_first(server, launch, listing, before)):
            return before
        held: list[Definition] = []
        said = text_of(server.name, "instructions", "", listing.text)
        is_strict = yield from self._follow_launch(server, launch, listing, said, held)
        if server.entry.trust == "auto":
            return (yield from self._admit_all(server.name, listing, said, launch))
        approved, blocked = yield from self._ledger.known_in_steps(server.name, "tool")
        judging = approvals.judge_tools(
            listing.tools, {} if is_strict else approved, blocked,
            lambda name: self._ledger.approved(server.name, "tool", name),
        )  # fmt: skip
        judged, took_s = yield from _timed(judging)
        text = self._judge_text(said, listing.text, held, is_strict=is_strict)
        held += judged.held
        waiting: list[Definition] = []
        for each in held:
            yield
            waiting.append(of_launch(each, launch))
        yield
        yield from self._ledger.hold_in_steps(server.name, LISTED, waiting)
        if not held:
            self._ledger.keep_version(launch)
        if held and took_s > COSTLY_S:
            self._rests[server.name] = self._clock() + REST_SHARE * took_s
        return Listing(judged.served, text, listing.version)

    def _admit_all(self, server: str, listing: Listing, said: Definition, launch: Definition) -> Steps[Listing]:
        """Approve everything that was not blocked."""
        definitions: list[Definition] = []
        for tool in listing.tools:
            yield
            definitions.append(definition_of(tool))
        yield from self._ledger.approve_all(server, [*definitions, said, launch], launch)
        yield from self._ledger.hold_in_steps(server, LISTED, ())
        blocked = (yield from self._ledger.known_in_steps(server, "tool"))[1]
        tools = [tool for tool in listing.tools if tool.schema_hash not in blocked.get(tool.name, ())]
        is_blocked = said.hash in self._ledger.known(server, "instructions")[1].get("", ())
        return Listing(tools, "" if is_blocked else listing.text, listing.version)

    def _see_first(self, server: Server, launch: Definition, listing: Listing, before: Listing) -> Steps[bool]:
        """Keep the first sight of a server. What an earlier foretool already served counts as seen first. Return
        whether it is known what was seen first."""
        if self._ledger.is_seen(server.name, "launch"):
            return True
        state: Approval = "held" if server.entry.approve_new else "approved"
        seen = before if before.tools or before.text else listing
        hidden = (tool for tool in listing.tools if seen is before and not server.offers(tool.name))
        kept = {"state": state, "seen_at": time.time()}
        first = [replace(of_launch(launch, launch), **kept)]
        for tool in (*seen.tools, *hidden):
            yield
            first.append(replace(of_launch(definition_of(tool), launch), **kept))
        first.append(replace(of_launch(text_of(server.name, "instructions", "", seen.text), launch), **kept))
        if not listing.has_prompts:
            first.append(replace(of_launch(text_of(server.name, "prompt_list", "", ""), launch), **kept))
        return (yield from self._ledger.add_first_in_steps(first))

    def _follow_launch(
        self, server: Server, launch: Definition, listing: Listing, said: Definition, held: list[Definition]
    ) -> Steps[bool]:
        """Take in how the server is reached, and approve what it lists if the user has edited that. Returns whether
        nothing of the server counts as approved until its command is, under `approve_new`."""
        approved, blocked = self._ledger.known(server.name, "launch")
        if launch.hash in approved.get("", ()):
            return False
        if server.entry.approve_new:
            held.append(replace(launch, effect="withheld" if approved else "new"))
            return bool(approved)
        if launch.hash in blocked.get("", ()):
            return False
        listed: list[Definition] = []
        if self._is_edit(launch):
            self._edited.add(server.name)
            waiting = self._ledger.held(server.name, LISTED)
            for each in (said, *map(definition_of, listing.tools)):
                yield
                if (each.kind, each.name, each.hash) not in waiting:
                    listed.append(each)
        # The launch comes last: without it the next list is again the first one of this command.
        yield from self._ledger.approve_all(server.name, [*listed, launch], launch)
        return False

    def _is_edit(self, launch: Definition) -> bool:
        """Tell whether a new command is the user's own word. Another version of the same program is not: what that
        lists otherwise does not come from the edit."""
        config = self._config.now
        if config.named_by == "project_config" or not is_users_word(config.path):
            return False
        known = [each for each in self._ledger.approved(launch.server, "launch", "") if starts_same(each, launch)]
        versions = {each.version for each in known} - {""}
        return not launch.version or not versions or launch.version in versions

    def _judge_text(self, said: Definition, text: str, held: list[Definition], *, is_strict: bool = False) -> str:
        """Return the text that may be served, and hold what nobody has decided about."""
        approved, blocked = self._ledger.known(said.server, said.kind)
        hashes = approved.get(said.name, ()) if not is_strict else ()
        if not said.value or said.hash in hashes:
            return text
        if said.hash not in blocked.get(said.name, ()):
            held.append(replace(said, effect="kept" if hashes else "new"))
        versions = self._ledger.approved(said.server, said.kind, said.name) if hashes else ()
        return versions[0].value.decode() if versions else ""

    # -- prompts

    def admit_prompts(self, name: str, prompts: Sequence[Raw], *, is_whole: bool = True) -> list[Raw]:
        """Return the prompts of a server that may be served, as they may be served.

        A part of the list that is not the whole of it decides nothing about what was seen first.
        """
        server = self._config.now.servers.get(name)
        if server is None:
            return list(prompts)
        listed: dict[str, Definition] = {}
        for prompt in map(partial(_prompt_of, name), map(self._hide_credentials, prompts)):
            if prompt is not None:
                listed.setdefault(prompt.name, prompt)
        try:
            return self._admit_prompts(server, listed, is_whole)
        except StorageError as error:
            log.warning("%s; the prompts of server %r are not served until that works", error, name)
            return []

    def _hide_credentials(self, prompt: Raw) -> Raw:
        return Raw(self._config.now.secrets.hide_credentials(bytes(prompt)))

    def _admit_prompts(self, server: Server, listed: dict[str, Definition], is_whole: bool) -> list[Raw]:
        launch = launch_of(server)
        marker = text_of(server.name, "prompt_list", "", "")
        if is_whole and not self._ledger.is_seen(server.name, "prompt_list"):
            first = () if server.entry.approve_new or self._is_late(server.name, "launch", "") else listed.values()
            seen = {"state": "approved", "seen_at": time.time()}
            if not self._ledger.add_first([replace(of_launch(each, launch), **seen) for each in (marker, *first)]):
                return []
        if server.entry.trust == "auto" or (is_whole and server.name in self._edited):
            waiting = self._ledger.held(server.name, ("prompt",)) if server.entry.trust != "auto" else ()
            new = [each for each in listed.values() if (each.kind, each.name, each.hash) not in waiting]
            finish(self._ledger.approve_all(server.name, new, launch))
            self._edited.discard(server.name)
        approved, blocked = self._ledger.known(server.name, "prompt")
        served: list[Raw] = []
        held: list[Definition] = []
        for prompt in listed.values():
            known = self._ledger.approved(server.name, "prompt", prompt.name) if prompt.name in approved else ()
            is_blocked = prompt.hash in blocked.get(prompt.name, ())
            if not is_blocked and any(is_same(each.value, prompt.value) for each in known):
                served.append(Raw(prompt.value))
                continue
            fits = bool(known) and prompt_fits(jsonrpc.plain(prompt.value), jsonrpc.plain(known[0].value))
            served += [Raw(known[0].value)] if fits else []
            if not is_blocked:
                held.append(
                    replace(of_launch(prompt, launch), effect="kept" if fits else "withheld" if known else "new")
                )
        if is_whole:
            self._ledger.hold(server.name, ("prompt",), held)
        return served

    def admit_prompt_text(self, name: str, prompt: str, text: str) -> str:
        """Return what may be quoted of a prompt's text: the first one that was seen, until another one is approved."""
        server = self._config.now.servers.get(name)
        if server is None:
            return text
        said, launch = text_of(name, "prompt_text", prompt, self._config.redact(text)), launch_of(server)
        held: list[Definition] = []
        try:
            approved, blocked = self._ledger.known(name, "prompt_text")
            known = {*approved.get(prompt, ()), *blocked.get(prompt, ())}
            is_first = not (known or server.entry.approve_new or self._is_late(name, "prompt", prompt))
            if server.entry.trust == "auto" or is_first:
                finish(self._ledger.approve_all(name, [said], launch))
            found = self._judge_text(said, text, held)
            others = [
                each
                for each in self._ledger.store.undecided(name)
                if each.kind == "prompt_text" and each.name != prompt
            ]
            waiting = [each for each in others if each.state == "held"]
            self._ledger.hold(name, ("prompt_text",), [*waiting, *(of_launch(each, launch) for each in held)], prompt)
        except StorageError:
            return ""
        return found

    def _is_late(self, server: str, kind: DefinitionKind, name: str) -> bool:
        """Tell whether a definition was approved too long ago for what belongs to it to be a first sight: a server that
        has answered with errors until now has had time to be trusted."""
        approved = self._ledger.approved(server, kind, name)
        return bool(approved) and time.time() - max(each.seen_at for each in approved) > FIRST_S

    # -- what is refused

    def find_held(self, name: str) -> Tool | None:
        """Return the tool of this exposed name if it is held and nothing is served in its place. Its hash is `HELD`."""
        for server, exposed, own in self._ledger.refused("tool"):
            if exposed == name:
                return Tool(ToolId(name), server, own, b"{}", HELD)
        return None

    def is_prompt_held(self, server: str, prompt: str) -> bool:
        """Tell whether a server's prompt is held and nothing is served in its place."""
        return any((owner, own) == (server, prompt) for owner, _, own in self._ledger.refused("prompt"))


def _timed(steps: Steps[T]) -> Steps[tuple[T, float]]:
    """Return the value of some steps, and the seconds that they took without what came between."""
    took_s = 0.0
    while True:
        started = time.perf_counter()
        try:
            next(steps)
        except StopIteration as end:
            found: T = end.value
            return found, took_s + time.perf_counter() - started
        took_s += time.perf_counter() - started
        yield


def _prompt_of(server: str, listed: Raw) -> Definition | None:
    """Return a prompt as a definition; None if it has no name."""
    name = jsonrpc.member(listed, "name")
    return None if name is None else Definition(server, "prompt", name, hash_value(bytes(listed)), bytes(listed))
