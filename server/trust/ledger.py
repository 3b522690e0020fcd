"""The ledger of approvals: what a store says of servers' definitions, and what waits to be written into it.

Where the store cannot be read, what was read last counts. What cannot be written is kept in memory or comes again with
the next list of its server; `due` says which servers have to list for that.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Final

from msgspec.structs import replace

from foretool.server.trust.approvals import describe_held, of_launch, review_command, say_waiting
from foretool.storage.engine import StorageError
from foretool.storage.records import Definition, DefinitionHead, DefinitionKind, Tool, ToolId
from foretool.storage.sql.approvals import ApprovalStore
from foretool.storage.steps import Steps, finish

RETRY_S: Final = 1.0
"""The shortest pause between two writes of what is held of a server."""
AGAIN_S: Final = (5.0, 300.0)
"""The first and the longest pause before servers list again that could not be compared with the store."""
_APPROVED_AT_ONCE: Final = 50
"""Definitions that one transaction approves."""
_AT_ONCE: Final = 500
"""Definitions that one step reads or compares."""
_MOST_ELSEWHERE: Final = 100
"""Tools that wait although the last list has none of them; a server may list others in each run."""
_SAY_S: Final = 30.0
"""A server whose held texts change all the time is logged at most this often."""

Hashes = dict[str, list[str]]
"""Hashes by name."""

log = logging.getLogger("foretool.trust")

HELD: Final = "held"
"""Stands for the hash of a tool that is held, where a call names it."""


class ApprovalLedger:
    """Reads and writes approvals for one proxy."""

    def __init__(
        self, store: Callable[[], ApprovalStore], servers: Callable[[], Collection[str]], clock: Callable[[], float]
    ) -> None:
        """`store` returns the store in use; a proxy may change to another one while it runs.
        `servers` returns the names of the servers of the config."""
        self._clock = clock
        self._open_store = store
        self._servers = servers
        self._heads: dict[tuple[str, DefinitionKind], list[DefinitionHead]] = {}
        """By server and kind, as the store had them last."""
        self._unsaved: dict[tuple[str, DefinitionKind], Sequence[Definition]] = {}
        """By server and the kind of the first one: what was seen first while the store could not be written."""
        self.unjudged: set[str] = set()
        """Servers that have to be compared again."""
        self._pause_s, self._retry_at = AGAIN_S[0], 0.0
        self._version: int | None = None
        """The decisions of the store that were taken up; None before the first look."""
        self._held_at: dict[tuple[str, DefinitionKind, str], float] = {}
        """By server, first kind and name: when what is held was written last, in monotonic seconds."""
        self._waiting: dict[str, tuple[frozenset[str], str]] | None = None
        """What waits by server, None where all of it has to be read again."""
        self._changed: set[str] = set()
        """The servers of which it has to be read again."""
        self._held_here: dict[str, set[str]] = {}
        """By server: the hashes of the tools that are held of the last list that we saw."""
        self._said: dict[str, tuple[frozenset[str], float]] = {}
        """By server: the held texts that were logged last, and when."""

    @property
    def store(self) -> ApprovalStore:
        return self._open_store()

    # -- the store

    def decisions(self) -> int | None:
        """Return a number that rises with every decision; None where the store cannot be read."""
        try:
            return self.store.version
        except StorageError:
            return None

    def read(self, server: str, kind: DefinitionKind) -> Steps[list[DefinitionHead]]:
        found: list[DefinitionHead] = []
        try:
            while page := self.store.heads(server, kind, (found[-1].name, found[-1].hash) if found else None, _AT_ONCE):
                found += page
                if len(page) < _AT_ONCE:
                    break
                yield
        except StorageError:
            if (known := self._heads.get((server, kind))) is None:
                raise
            return known
        self._heads[server, kind] = found
        return found or [DefinitionHead(each.name, each.hash, each.state) for each in self.kept(server, kind)]

    def kept(self, server: str, kind: DefinitionKind) -> list[Definition]:
        """Return what was seen first of a server and is only in memory, because it could not be written."""
        found = (each for (owner, _), kept in self._unsaved.items() if owner == server for each in kept)
        return [each for each in found if each.kind == kind]

    def is_seen(self, server: str, kind: DefinitionKind) -> bool:
        """Return whether the store has the first seen definitions of this kind of a server. Raises `StorageError`."""
        return bool(finish(self.read(server, kind))) and (server, kind) not in self._unsaved

    def known(self, server: str, kind: DefinitionKind) -> Steps[tuple[Hashes, Hashes]]:
        approved: Hashes = {}
        blocked: Hashes = {}
        heads = yield from self.read(server, kind)
        for place, head in enumerate(heads, 1):
            if head.state != "held":
                (approved if head.state == "approved" else blocked).setdefault(head.name, []).append(head.hash)
            if not place % _AT_ONCE:
                yield
        return approved, blocked

    def held(self, server: str, kinds: Sequence[DefinitionKind]) -> set[tuple[DefinitionKind, str, str]]:
        """Return kind, name and hash of each definition of these kinds that waits for a decision."""
        heads = ((kind, head) for kind in kinds for head in finish(self.read(server, kind)))
        return {(kind, head.name, head.hash) for kind, head in heads if head.state == "held"}

    def approved(self, server: str, kind: DefinitionKind, name: str) -> Sequence[Definition]:
        kept = (each for each in self.kept(server, kind) if each.name == name and each.state == "approved")
        return self.store.approved(server, kind, name) or list(kept)

    def add_first(self, first: Sequence[Definition]) -> Steps[bool]:
        """Keep what was seen first; in memory, where the store cannot be written. Return whether it is known now: while
        another proxy is writing another list, it is not, and the server has to list again."""
        key = (first[0].server, first[0].kind)
        first = self._unsaved.pop(key, first)
        try:
            if (yield from self.store.add_first(first)) != "lost":
                return True
            log.warning("server %r lists otherwise to another proxy, which saw it first; it is asked again", key[0])
        except StorageError as error:
            log.warning("%s; the first sight of server %r is kept in memory until that works", error, key[0])
            self._unsaved[key] = first
            self.unjudged.add(key[0])
            return True
        self.unjudged.add(key[0])
        return False

    def take_over(self, launch: Definition, exposed: Mapping[str, str], configured: Collection[str]) -> bool:
        """Give a server that was never seen what was decided about one that the user has renamed: it was reached in the
        very same way and had a tool of the same name, and no server that is `configured` is reached so. Return whether
        there was one. Raises `StorageError`."""
        earlier = self.store.reached_so(launch.hash)
        if not earlier or any(name in configured for name in earlier):
            return False
        had = {head.name for head in self.store.heads(earlier[0], "tool")}
        return not had.isdisjoint(exposed) and self.store.take_over(launch.server, earlier[0], exposed)

    def approve_all(self, server: str, definitions: Sequence[Definition], launch: Definition) -> Steps[None]:
        """Approve what is not blocked, some at a time. What cannot be written now is approved again with the next
        list."""
        decided: dict[DefinitionKind, tuple[Hashes, Hashes]] = {}
        new: list[Definition] = []
        for place, each in enumerate(definitions, 1):
            if each.kind not in decided:
                decided[each.kind] = yield from self.known(server, each.kind)
            if not any(each.hash in of.get(each.name, ()) for of in decided[each.kind]):
                new.append(each)
            if not place % _AT_ONCE:
                yield
        if not new:
            return
        try:
            at, rest = time.time(), iter(new)
            while part := list(islice(rest, _APPROVED_AT_ONCE)):
                yield
                found = (replace(of_launch(each, launch), state="approved", seen_at=at) for each in part)
                self.store.approve_listed(list(found))
        except StorageError as error:
            log.warning("%s; what server %r lists now is approved again later", error, server)
            self.unjudged.add(server)

    def keep_version(self, launch: Definition) -> None:
        """Record the version of a server of which nothing waits for approval. Raises `StorageError`."""
        approved = (each for each in self.store.approved(launch.server, "launch", "") if each.hash == launch.hash)
        if any(each.version != launch.version for each in approved):
            self.store.approve_listed([replace(launch, state="approved", seen_at=time.time())])

    def seen_elsewhere(self, server: str, listed: Collection[str], held: Sequence[Definition]) -> list[Definition]:
        """Return what waits of tools that a server has listed to a command or to another proxy, and not in our list
        (`listed`), of which `held` is held: our clients can do less, so this says not that it is gone."""
        before, self._held_here[server] = self._held_here.get(server, set()), {each.hash for each in held}
        if all(name in listed or hash in before for _, name, hash in self.held(server, ("tool",))):
            return []
        waiting = (each for each in self.store.undecided(server) if each.state == "held" and each.kind == "tool")
        found = [each for each in waiting if each.name not in listed and each.hash not in before]
        return found if len(found) <= _MOST_ELSEWHERE else []

    def hold_list(self, launch: Definition, kinds: Sequence[DefinitionKind], held: Sequence[Definition]) -> Steps[None]:
        """Keep what is held of a list of a server that is reached so."""
        waiting: list[Definition] = []
        for each in held:
            yield
            waiting.append(of_launch(each, launch))
        yield
        yield from self.hold(launch.server, kinds, waiting)

    def hold(
        self, server: str, kinds: Sequence[DefinitionKind], held: Sequence[Definition], name: str = ""
    ) -> Steps[None]:
        """Keep what is held. Without a change nothing is written; a server that changes all the time has to wait.
        `name`: the one definition that this is about, "" for all of the kinds."""
        kept = set()
        for kind in kinds:
            heads = yield from self.read(server, kind)
            held_now = (head for head in heads if head.state == "held" and name in ("", head.name))
            kept |= {(kind, head.name, head.hash) for head in held_now}
        if held:
            self.say(server, held)
        if kept == {(each.kind, each.name, each.hash) for each in held}:
            return
        if self._clock() - self._held_at.get((server, kinds[0], name), -RETRY_S) < RETRY_S:
            self.unjudged.add(server)
            return
        self._held_at[server, kinds[0], name] = self._clock()
        try:
            self._changed.add(server)
            at = time.time()
            waiting: list[Definition] = []
            for place, each in enumerate(held, 1):
                waiting.append(replace(each, state="held", seen_at=at))
                if not place % _AT_ONCE:
                    yield
            yield from self.store.hold(server, kinds, waiting, name)
            self._changed.add(server)  # what was read meanwhile was a part of it
        except StorageError as error:
            log.warning("%s; `foretool review` does not show what is held of server %r until that works", error, server)
            self.unjudged.add(server)

    def say(self, server: str, held: Sequence[Definition]) -> None:
        hashes = frozenset(each.hash for each in held)
        said, at = self._said.get(server, (frozenset(), 0.0))
        if not hashes <= said and self._clock() - at > (_SAY_S if said else 0.0):
            self._said[server] = (hashes, self._clock())
            log.warning("server %r: %s; run `%s`", server, describe_held(held), review_command(server))

    def find_held(self, name: str, key: tuple[str, str] | None = None) -> Tool | None:
        """Return the tool of this exposed name, or of this server and own name (`key`), if it is held and nothing is
        served in its place. Its hash is `HELD`."""
        for server, exposed, own in self.refused("tool"):
            if exposed == name or (server, own) == key:
                return Tool(ToolId(exposed), server, own, b"{}", HELD)
        return None

    def is_prompt_held(self, server: str, prompt: str) -> bool:
        """Return whether a server's prompt is held and nothing is served in its place."""
        return any((owner, own) == (server, prompt) for owner, _, own in self.refused("prompt"))

    def refused(self, kind: DefinitionKind) -> list[tuple[str, str, str]]:
        try:
            return [found for found in self.store.refused(kind) if found[0] in self._servers()]
        except StorageError:
            return []  # whatever is asked for is then looked up as if nothing were held, and is not listed

    def lacking(self) -> list[str]:
        """Return the servers of which tools wait for a decision while nothing is served in their place."""
        waiting = self.waiting()
        return sorted(waiting.keys() & {server for server, _, _ in self.refused("tool")}) if waiting else []

    def waiting(self) -> dict[str, tuple[frozenset[str], str]]:
        """Return what waits for a decision by server: the hashes, and one line that says what it is."""
        try:
            if self._waiting is None:
                self._waiting = say_waiting(self.store.held(), self._servers())
                self._changed.clear()
            for server in self._changed.intersection(self._servers()):
                self._waiting.pop(server, None)
                self._waiting |= say_waiting(self.store.held(server), {server})
                self._changed.discard(server)
        except StorageError:
            self._waiting = None
            return {}
        return self._waiting

    # -- in the course of time

    def look(self) -> set[str]:
        """Return the servers about which somebody has decided since the last call."""
        try:
            version = self.store.version
            before, self._version = self._version, version
            if before is None or before == version:
                return set()
            self._waiting = None
            return self.store.decided_since(before)
        except StorageError:
            return set()

    def due(self) -> set[str]:
        """Return the servers that should list again, because their last list could not be judged without the store.
        Empty until a pause is over, which grows."""
        if self._clock() < self._retry_at:
            return set()
        self._pause_s = min(2 * self._pause_s, AGAIN_S[1]) if self.unjudged else AGAIN_S[0]
        self._retry_at = self._clock() + self._pause_s
        due, self.unjudged = self.unjudged, set()
        return due
