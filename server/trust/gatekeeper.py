"""Decides with the store which texts of a server are served: tools, prompts, resources, templates, `instructions`.

The first sight of a server is approved, unless `trust: review` says otherwise; so is the first sight after the user has
edited its entry. Other changes are held until `foretool review`, unless `trust` is `auto`. Every list is compared with
the approvals as the store has them now, so that all proxies over one store agree. Where the store cannot be read, what
was compared last counts: a known server keeps what is served of it, and a new one is compared as soon as the store can
be read again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.server.config.files import is_users_word
from foretool.server.config.loader import LiveConfig
from foretool.server.config.servers import Server
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.protocol.lists import RESOURCES, ListKind
from foretool.server.trust.approvals import (
    definition_of,
    hash_value,
    judge_definitions,
    launch_of,
    of_launch,
    serve_definition,
    stand_in_tool,
    starts_same,
    text_of,
)
from foretool.server.trust.ledger import ApprovalLedger
from foretool.server.trust.members import MEMBERS, serve_bare, serve_member, stand_in, words_to_approve
from foretool.storage.engine import StorageError
from foretool.storage.records import Approval, Definition, DefinitionKind, Effect, Tool
from foretool.storage.sql.approvals import ApprovalStore
from foretool.storage.steps import Steps, T, finish

_LISTED: Final[tuple[DefinitionKind, ...]] = ("launch", "tool", "instructions")
"""What is known of a server once it has listed its tools."""

_FIRST_S: Final = 86_400.0
"""A list that comes longer than this after it was first asked for is held, and so are texts of prompts that are first
read longer than this after the prompt was approved: a server that has answered with errors until then has had time to
be trusted."""

COSTLY_S: Final = 0.02
"""A comparison that finds changes and takes longer than this is not repeated soon."""
REST_SHARE: Final = 200.0
"""How many times as long as a costly comparison its server then waits for the next one."""

log = logging.getLogger("foretool.trust")


class Listing(Struct, frozen=True):
    """The tools and texts that a server lists at one time, or the approved part of them."""

    tools: Sequence[Tool]
    text: str = ""
    """Its `instructions`."""
    version: str = ""
    lacks: Sequence[DefinitionKind] = ()
    """What says that it has listed, for each list that it does not have."""
    is_whole: bool = True
    """It was told of all that a client can do; some servers list more tools then."""


class Rests:
    """Makes a server's next list wait if comparing its last one took long and found changes."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: dict[tuple[str, DefinitionKind], float] = {}
        """By server and kind."""

    def last(self, server: str, kind: DefinitionKind) -> bool:
        """Return whether the pause of a server's list is not over yet."""
        return self._clock() < self._until.get((server, kind), 0.0)

    def begin(self, server: str, kind: DefinitionKind, took_s: float) -> None:
        """Have the next list of a server wait if comparing this one took long."""
        if took_s > COSTLY_S:
            self._until[server, kind] = self._clock() + REST_SHARE * took_s


class Gatekeeper:
    """Lets through those parts of servers' lists that are approved, and holds the others."""

    def __init__(
        self, store: Callable[[], ApprovalStore], config: LiveConfig, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`store` returns the store in use; a proxy may change to another one while it runs."""
        self._config = config
        self._clock = clock
        self._rests = Rests(clock)
        self._edited: set[tuple[str, ListKind]] = set()
        """Servers whose entry the user has edited, and their lists besides tools that have not come since."""
        self._ledger = ledger = ApprovalLedger(store, lambda: config.now.servers, clock)
        self.look, self.due, self.waiting = ledger.look, ledger.due, ledger.waiting
        self.decisions = ledger.decisions
        self.find_held, self.lacking, self.is_prompt_held = ledger.find_held, ledger.lacking, ledger.is_prompt_held

    def is_per_user(self, name: str) -> bool:
        """Return whether people reach a server with tokens of their own, so that each may get another list of it."""
        server = self._config.now.servers.get(name)
        return server is not None and server.per_user is not None

    # -- tools and instructions

    def admit(self, name: str, listing: Listing, before: Listing) -> Steps[Listing]:
        """Return what may be served of a server's listing. `before`: what is served of it now. It begins again where
        somebody has decided about a definition meanwhile."""
        server = self._config.now.servers.get(name)
        if server is None:
            return listing
        if self._has_to_wait(name, "tool"):
            return before
        try:
            return (yield from self._decide(lambda: self._admit(server, listing, before)))
        except StorageError as error:
            self._ledger.unjudged.add(name)
            if server.entry.trust != "auto" and (before.tools or before.text or server.entry.approve_new):
                log.warning("%s; nothing new of server %r is served until that works", error, name)
                return before
            return listing

    def _decide(self, admit: Callable[[], Steps[T]]) -> Steps[T]:
        """Do what admits a list, and begin again where somebody has decided about a definition meanwhile."""
        while True:
            decisions = self.decisions()
            admitted = yield from admit()
            if self.decisions() == decisions:
                return admitted

    def _has_to_wait(self, server: str, kind: DefinitionKind) -> bool:
        """Return whether a list has to wait, because comparing the last one took long; the server lists again then."""
        if rests := self._rests.last(server, kind):
            self._ledger.unjudged.add(server)
        return rests

    def _admit(self, server: Server, listing: Listing, before: Listing) -> Steps[Listing]:
        launch = replace(launch_of(server), version=listing.version)
        if not (yield from self._see_first(server, launch, listing, before)):
            return before
        held: list[Definition] = []
        said = text_of(server.name, "instructions", "", listing.text)
        is_strict = yield from self._follow_launch(server, launch, listing, said, held)
        if server.entry.trust == "auto":
            return (yield from self._admit_all(server.name, listing, said, launch))
        approved, blocked = yield from self._ledger.known(server.name, "tool")
        judging = judge_definitions(
            map(definition_of, listing.tools), {} if is_strict else approved, blocked,
            lambda name: self._ledger.approved(server.name, "tool", name), stand_in_tool,
        )  # fmt: skip
        judged, took_s = yield from _timed(judging)
        text = self._judge_text(said, listing.text, held, is_strict=is_strict)
        held += judged.held
        if not listing.is_whole:
            held += self._ledger.seen_elsewhere(server.name, {tool.name for tool in listing.tools}, judged.held)
        yield from self._ledger.hold_list(launch, _LISTED, held)
        if not held:
            self._ledger.keep_version(launch)
        self._rests.begin(server.name, "tool", took_s if held else 0.0)
        tools = {tool.name: tool for tool in listing.tools}
        served = tuple(serve_definition(tools[each.name], each) for each in judged.served)
        return Listing(served, text, listing.version)

    def _admit_all(self, server: str, listing: Listing, said: Definition, launch: Definition) -> Steps[Listing]:
        """Approve everything that was not blocked."""
        definitions: list[Definition] = []
        for tool in listing.tools:
            yield
            definitions.append(definition_of(tool))
        yield from self._ledger.approve_all(server, [*definitions, said, launch], launch)
        yield from self._ledger.hold(server, _LISTED, ())
        blocked = (yield from self._ledger.known(server, "tool"))[1]
        tools = [tool for tool in listing.tools if tool.schema_hash not in blocked.get(tool.name, ())]
        is_blocked = said.hash in finish(self._ledger.known(server, "instructions"))[1].get("", ())
        return Listing(tools, "" if is_blocked else listing.text, listing.version)

    def _see_first(self, server: Server, launch: Definition, listing: Listing, before: Listing) -> Steps[bool]:
        """Keep the first sight of a server. What an earlier foretool already served counts as seen first. Return
        whether it is known what was seen first."""
        if self._ledger.is_seen(server.name, "launch"):
            return True
        exposed = {tool.name: tool.id for tool in listing.tools}
        if not before.tools and self._ledger.take_over(launch, exposed, self._config.now.prefixes):
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
        lacks = {**kept, "state": "approved"}  # nothing to decide about
        first += (replace(of_launch(text_of(server.name, kind, "", ""), launch), **lacks) for kind in listing.lacks)
        return (yield from self._ledger.add_first(first))

    def _follow_launch(
        self, server: Server, launch: Definition, listing: Listing, said: Definition, held: list[Definition]
    ) -> Steps[bool]:
        """Record how the server is reached, and approve what it lists if the user has edited that. Returns whether
        nothing of the server counts as approved until its command is, under `trust: review`."""
        approved, blocked = finish(self._ledger.known(server.name, "launch"))
        if launch.hash in approved.get("", ()):
            return False
        if server.entry.approve_new:
            held.append(replace(launch, effect="withheld" if approved else "new"))
            return bool(approved)
        if launch.hash in blocked.get("", ()):
            return False
        listed: list[Definition] = []
        if self._is_edit(launch):
            self._edited.update((server.name, kind) for kind in MEMBERS)
            waiting = self._ledger.held(server.name, _LISTED)
            for each in (said, *map(definition_of, listing.tools)):
                yield
                if (each.kind, each.name, each.hash) not in waiting:
                    listed.append(each)
        # The launch comes last: without it the next list is again the first one of this command.
        yield from self._ledger.approve_all(server.name, [*listed, launch], launch)
        return False

    def _is_edit(self, launch: Definition) -> bool:
        """Return whether a new command is the user's own word. Another version of the same program is not: what that
        lists otherwise does not come from the edit."""
        config = self._config.now
        if config.named_by == "project_config" or not is_users_word(config.path):
            return False
        known = [each for each in self._ledger.approved(launch.server, "launch", "") if starts_same(each, launch)]
        versions = {each.version for each in known} - {""}
        return not launch.version or not versions or launch.version in versions

    def _judge_text(self, said: Definition, text: str, held: list[Definition], *, is_strict: bool = False) -> str:
        """Return the text that may be served, and hold what nobody has decided about."""
        approved, blocked = finish(self._ledger.known(said.server, said.kind))
        hashes = approved.get(said.name, ()) if not is_strict else ()
        if not said.value or said.hash in hashes:
            return text
        if said.hash not in blocked.get(said.name, ()):
            held.append(replace(said, effect="kept" if hashes else "new"))
        versions = self._ledger.approved(said.server, said.kind, said.name) if hashes else ()
        return versions[0].value.decode() if versions else ""

    # -- prompts, resources and templates

    def admit_members(
        self, name: str, kind: ListKind, members: Mapping[str, Raw], before: Mapping[str, Raw]
    ) -> Steps[dict[str, Raw]]:
        """Return in steps what may be served of a list that holds no tools, by what its members are asked for by.
        `before`: what is served of it now."""
        server = self._config.now.servers.get(name)
        if server is None:
            return dict(members)
        if self._has_to_wait(name, MEMBERS[kind].definition):
            return dict(before)
        try:
            deciding = self._decide(lambda: self._admit_members(server, kind, members, before))
            (admitted, has_changes), took_s = yield from _timed(deciding)
            self._rests.begin(name, MEMBERS[kind].definition, took_s if has_changes else 0.0)
            return admitted
        except StorageError as error:
            self._ledger.unjudged.add(name)
            log.warning("%s; nothing new of the %s of server %r is served until that works", error, kind.noun, name)
            return dict(before)

    def _admit_members(
        self, server: Server, kind: ListKind, members: Mapping[str, Raw], before: Mapping[str, Raw]
    ) -> Steps[tuple[dict[str, Raw], bool]]:
        """Return what may be served, and whether something is held."""
        launch, member = launch_of(server), MEMBERS[kind]
        listed: dict[str, Definition] = {}
        for name, item in members.items():
            yield
            if (words := words_to_approve(kind, item, is_strict=server.entry.approve_new)) is not None:
                value = bytes(words)
                listed[name] = Definition(server.name, member.definition, name, hash_value(value), value)
        if not self._ledger.is_seen(server.name, member.first):
            is_first = not (server.entry.approve_new or self._is_late(server.name, "asked", member.definition))
            marker = text_of(server.name, member.first, "", "")
            seen = {"state": "approved", "seen_at": time.time()}
            first = [replace(of_launch(marker, launch), **seen)]
            for each in listed.values() if is_first else ():
                yield
                first.append(replace(of_launch(each, launch), **seen))
            if not (yield from self._ledger.add_first(first)):
                return dict(before), False
        if server.entry.trust == "auto" or (server.name, kind) in self._edited:
            waiting = self._ledger.held(server.name, (member.definition,)) if server.entry.trust != "auto" else ()
            new = [each for each in listed.values() if (each.kind, each.name, each.hash) not in waiting]
            yield from self._ledger.approve_all(server.name, new, launch)
            self._edited.discard((server.name, kind))
        approved, blocked = yield from self._ledger.known(server.name, member.definition)
        judged = yield from judge_definitions(
            listed.values(), approved, blocked,
            lambda name: self._ledger.approved(server.name, member.definition, name), stand_in,
        )  # fmt: skip
        yield from self._ledger.hold_list(launch, (member.definition,), judged.held)
        served = {each.name: each for each in judged.served}
        may_be_bare = kind is RESOURCES and not server.entry.approve_new
        bare = {each.name for each in judged.held if each.effect == "new"} if may_be_bare else ()
        admitted: dict[str, Raw] = {}
        for name, item in members.items():
            yield
            if name not in listed:
                admitted[name] = item
            elif name in served:
                admitted[name] = serve_member(kind, item, listed[name], served[name])
            elif name in bare:
                admitted[name] = serve_bare(item)
        return admitted, bool(judged.held)

    def unseen(self, name: str) -> list[ListKind]:
        """Return the lists to ask a server for soon, so that what it lists is approved as first seen: lists of a new
        server that were never asked for, and all lists of one whose entry the user has edited."""
        try:
            new = [kind for kind, member in MEMBERS.items() if not self._ledger.is_seen(name, member.first)]
            asked = {kind for kind in new if self._ledger.approved(name, "asked", MEMBERS[kind].definition)}
        except StorageError:
            return []
        return [kind for kind in MEMBERS if (kind in new and kind not in asked) or (name, kind) in self._edited]

    def note_asked(self, name: str, kind: ListKind) -> None:
        server, member = self._config.now.servers.get(name), MEMBERS[kind]
        try:
            if server is None or self._ledger.is_seen(name, member.first):
                return
            if not self._ledger.approved(name, "asked", member.definition):
                asked = text_of(name, "asked", member.definition, "")
                finish(self._ledger.approve_all(name, [asked], launch_of(server)))
        except StorageError as error:
            log.debug("%s; the next failure is noted", error)

    def admit_prompt_text(self, name: str, prompt: str, text: str) -> str:
        """Return what may be quoted of a prompt's text: the first one that was seen, until another one is approved."""
        server = self._config.now.servers.get(name)
        if server is None:
            return text
        said, launch = text_of(name, "prompt_text", prompt, self._config.redact(text)), launch_of(server)
        held: list[Definition] = []
        try:
            approved, blocked = finish(self._ledger.known(name, "prompt_text"))
            known = {*approved.get(prompt, ()), *blocked.get(prompt, ())}
            is_first = not (known or server.entry.approve_new or self._is_late(name, "prompt", prompt))
            if server.entry.trust == "auto" or is_first:
                finish(self._ledger.approve_all(name, [said], launch))
            found = self._judge_text(said, text, held)
            finish(self._ledger.hold(name, ("prompt_text",), [of_launch(each, launch) for each in held], prompt))
        except StorageError:
            return ""
        return found

    def admit_unlisted(self, name: str, kind: ListKind, member: str, entry: Raw) -> bool:
        """Return whether a member that no list has may be served: it is what was approved of it, or the first that is
        seen of it, as long as the server is new. Anything else is held."""
        server = self._config.now.servers.get(name)
        if server is None:
            return True
        defined, launch, value = MEMBERS[kind].definition, launch_of(server), bytes(entry)
        said = Definition(name, defined, member, hash_value(value), value)
        try:
            approved, blocked = finish(self._ledger.known(name, defined))
            known = {*approved.get(member, ()), *blocked.get(member, ())}
            is_first = not (known or server.entry.approve_new or self._is_late(name, MEMBERS[kind].first, ""))
            if server.entry.trust == "auto" or is_first:
                finish(self._ledger.approve_all(name, [said], launch))
            elif said.hash not in known:
                effect: Effect = "withheld" if approved.get(member) else "new"
                held = replace(of_launch(said, launch), effect=effect)
                finish(self._ledger.hold(name, (defined,), [held], member))
            return said.hash not in blocked.get(member, ()) and said.hash in {
                each.hash for each in self._ledger.approved(name, defined, member)
            }
        except StorageError:
            return False

    def _is_late(self, server: str, kind: DefinitionKind, name: str) -> bool:
        """Return whether a definition was approved too long ago for what belongs to it to be a first sight."""
        approved = self._ledger.approved(server, kind, name)
        return bool(approved) and time.time() - max(each.seen_at for each in approved) > _FIRST_S

    # -- what is refused


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
