"""Decides with the store what of a server's texts is served: tools, prompts, and `instructions`.

The first sight of a server is approved, unless `approve_new` says otherwise; later changes are held until
`foretool review`, unless `trust` is `auto`. Every list is compared with the approvals as the store has them now, so
that all proxies over one store agree. Where the store cannot be read, what was compared last counts: a known server
keeps what is served of it, and a new one is compared as soon as the store can be read again.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from foretool.server.config.loader import LiveConfig
from foretool.server.config.servers import Server, fingerprint
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.trust import approvals
from foretool.server.trust.approvals import definition_of, hash_value, is_same, prompt_fits, text_of
from foretool.storage.records import Approval, Definition, DefinitionHead, DefinitionKind, Tool, ToolId
from foretool.storage.redaction import hide_shapes
from foretool.storage.stores import ApprovalStore, StorageError

RETRY_S: Final = 1.0
"""The shortest pause between two writes of what is held of a server."""
AGAIN_S: Final = (5.0, 300.0)
"""The first and the longest pause before servers list again that could not be compared with the store."""
SAY_S: Final = 30.0
"""A server whose held texts change all the time is logged at most this often."""
LISTED: Final[tuple[DefinitionKind, ...]] = ("launch", "tool", "instructions")
"""What is known of a server once it has listed its tools."""

HELD: Final = "held"
"""Stands for the hash of a tool that is held, where a call names it."""

Hashes = dict[str, list[str]]
"""Hashes by name."""

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
        self._clock = clock
        self._open_store = store
        self._config = config
        self._heads: dict[tuple[str, DefinitionKind], list[DefinitionHead]] = {}
        """By server and kind, as the store had them last."""
        self._unsaved: dict[tuple[str, DefinitionKind], Sequence[Definition]] = {}
        """By server and the kind of the first one: what was seen first while the store could not be written."""
        self._unjudged: set[str] = set()
        """Servers that have to be compared again."""
        self._pause_s, self._retry_at = AGAIN_S[0], 0.0
        self._version: int | None = None
        """The decisions of the store that were taken up; None before the first look."""
        self._held_at: dict[tuple[str, DefinitionKind], float] = {}
        """By server and first kind: when what is held was written last, in monotonic seconds."""
        self._said: dict[str, tuple[frozenset[str], float]] = {}
        """By server: the held texts that were logged last, and when."""

    @property
    def _store(self) -> ApprovalStore:
        return self._open_store()

    # -- tools and instructions

    def admit(self, name: str, listing: Listing, before: Listing) -> Listing:
        """Return what may be served of a server's listing. `before`: what is served of it now."""
        server = self._config.now.servers.get(name)
        if server is None:
            return listing
        try:
            return self._admit(server, listing, before)
        except StorageError as error:
            self._unjudged.add(name)
            if server.entry.trust != "auto" and (before.tools or before.text or server.entry.approve_new):
                log.warning("%s; nothing new of server %r is served until that works", error, name)
                return before
            return listing

    def _admit(self, server: Server, listing: Listing, before: Listing) -> Listing:
        launch = replace(launch_of(server), version=listing.version)
        self._see_first(server, launch, listing, before)
        held: list[Definition] = []
        is_strict = self._follow_launch(server, launch, held)
        said = text_of(server.name, "instructions", "", listing.text)
        if server.entry.trust == "auto":
            return self._admit_all(server.name, listing, said, launch)
        approved, blocked = self._known(server.name, "tool")
        judged = approvals.judge_tools(
            listing.tools, {} if is_strict else approved, blocked,
            lambda name: self._approved(server.name, "tool", name),
        )  # fmt: skip
        text = self._judge_text(said, listing.text, held, is_strict=is_strict)
        held += judged.held
        self._hold(server.name, LISTED, [_of(each, launch) for each in held])
        return Listing(judged.served, text, listing.version)

    def _admit_all(self, server: str, listing: Listing, said: Definition, launch: Definition) -> Listing:
        """Approve everything that was not blocked."""
        self._approve_all(server, [*_definitions(listing.tools), said, launch], launch)
        self._hold(server, LISTED, ())
        blocked = self._known(server, "tool")[1]
        tools = [tool for tool in listing.tools if tool.schema_hash not in blocked.get(tool.name, ())]
        is_blocked = said.hash in self._known(server, "instructions")[1].get("", ())
        return Listing(tools, "" if is_blocked else listing.text, listing.version)

    def _see_first(self, server: Server, launch: Definition, listing: Listing, before: Listing) -> None:
        """Keep the first sight of a server. What an earlier foretool already served counts as seen first."""
        if self._read(server.name, "launch") and (server.name, "launch") not in self._unsaved:
            return
        state: Approval = "held" if server.entry.approve_new else "approved"
        seen = before if before.tools or before.text else listing
        hidden = (tool for tool in listing.tools if seen is before and not server.offers(tool.name))
        first = [launch, *_definitions([*seen.tools, *hidden]), text_of(server.name, "instructions", "", seen.text)]
        if not listing.has_prompts:
            first.append(text_of(server.name, "prompt_list", "", ""))
        self._add_first([replace(_of(each, launch), state=state, seen_at=time.time()) for each in first])

    def _follow_launch(self, server: Server, launch: Definition, held: list[Definition]) -> bool:
        """Take in how the server is reached. The user has written that, so it needs no decision, except under
        `approve_new`. Returns whether nothing of the server counts as approved until then."""
        approved, blocked = self._known(server.name, "launch")
        if launch.hash in approved.get("", ()):
            return False
        if server.entry.approve_new:
            held.append(replace(launch, effect="withheld" if approved else "new"))
            return bool(approved)
        if launch.hash not in blocked.get("", ()):
            self._approve_all(server.name, [launch], launch)
        return False

    def _judge_text(self, said: Definition, text: str, held: list[Definition], *, is_strict: bool = False) -> str:
        """Return the text that may be served, and hold what nobody has decided about."""
        approved, blocked = self._known(said.server, said.kind)
        hashes = approved.get(said.name, ()) if not is_strict else ()
        if not said.value or said.hash in hashes:
            return text
        if said.hash not in blocked.get(said.name, ()):
            held.append(replace(said, effect="kept" if hashes else "new"))
        versions = self._approved(said.server, said.kind, said.name) if hashes else ()
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
        data = bytes(prompt)
        for server in self._config.now.servers.values():
            data = server.secrets.hide_credentials(data)
        return Raw(data)

    def _admit_prompts(self, server: Server, listed: dict[str, Definition], is_whole: bool) -> list[Raw]:
        launch = launch_of(server)
        marker = text_of(server.name, "prompt_list", "", "")
        if is_whole and (not self._read(server.name, "prompt_list") or (server.name, "prompt_list") in self._unsaved):
            state: Approval = "held" if server.entry.approve_new else "approved"
            first = [replace(_of(each, launch), state=state, seen_at=time.time()) for each in listed.values()]
            self._add_first([replace(marker, state="approved"), *first])
        if server.entry.trust == "auto":
            self._approve_all(server.name, list(listed.values()), launch)
        approved, blocked = self._known(server.name, "prompt")
        served: list[Raw] = []
        held: list[Definition] = []
        for prompt in listed.values():
            known = self._approved(server.name, "prompt", prompt.name) if prompt.name in approved else ()
            is_blocked = prompt.hash in blocked.get(prompt.name, ())
            if not is_blocked and any(is_same(each.value, prompt.value) for each in known):
                served.append(Raw(prompt.value))
                continue
            fits = bool(known) and prompt_fits(jsonrpc.plain(prompt.value), jsonrpc.plain(known[0].value))
            served += [Raw(known[0].value)] if fits else []
            if not is_blocked:
                held.append(replace(_of(prompt, launch), effect="kept" if fits else "withheld" if known else "new"))
        if is_whole:
            self._hold(server.name, ("prompt",), held)
        return served

    def admit_prompt_text(self, name: str, prompt: str, text: str) -> str:
        """Return what may be quoted of a prompt's text: the first one that was seen, until another one is approved."""
        server = self._config.now.servers.get(name)
        if server is None:
            return text
        said, launch = text_of(name, "prompt_text", prompt, self._config.redact(text)), launch_of(server)
        held: list[Definition] = []
        try:
            approved, blocked = self._known(name, "prompt_text")
            known = {*approved.get(prompt, ()), *blocked.get(prompt, ())}
            if server.entry.trust == "auto" or not (known or server.entry.approve_new):
                self._approve_all(name, [said], launch)
            found = self._judge_text(said, text, held)
            others = [
                each for each in self._store.undecided(name) if each.kind == "prompt_text" and each.name != prompt
            ]
            waiting = [each for each in others if each.state == "held"]
            self._hold(name, ("prompt_text",), [*waiting, *(_of(each, launch) for each in held)])
        except StorageError:
            return ""
        return found

    # -- what is refused

    def find_held(self, name: str) -> Tool | None:
        """Return the tool of this exposed name if it is held and nothing is served in its place. Its hash is `HELD`."""
        for server, exposed, own in self._refused("tool"):
            if exposed == name:
                return Tool(ToolId(name), server, own, b"{}", HELD)
        return None

    def is_prompt_held(self, server: str, prompt: str) -> bool:
        """Tell whether a server's prompt is held and nothing is served in its place."""
        return any((owner, own) == (server, prompt) for owner, _, own in self._refused("prompt"))

    def _refused(self, kind: DefinitionKind) -> list[tuple[str, str, str]]:
        try:
            return [found for found in self._store.refused(kind) if found[0] in self._config.now.servers]
        except StorageError:
            return []  # whatever is asked for is then looked up as if nothing were held, and is not listed

    # -- in the course of time

    def look(self) -> set[str]:
        """Return the servers about which somebody has decided since the last look."""
        try:
            version = self._store.version
            before, self._version = self._version, version
            return self._store.decided_since(before) if before is not None and before != version else set()
        except StorageError:
            return set()

    def due(self) -> set[str]:
        """Return the servers that have to list again, because the store could not be read or written."""
        if self._clock() < self._retry_at:
            return set()
        self._pause_s = min(2 * self._pause_s, AGAIN_S[1]) if self._unjudged else AGAIN_S[0]
        self._retry_at = self._clock() + self._pause_s
        due, self._unjudged = self._unjudged, set()
        return due

    # -- the store

    def _read(self, server: str, kind: DefinitionKind) -> list[DefinitionHead]:
        try:
            found = self._heads[server, kind] = self._store.heads(server, kind)
        except StorageError:
            if (known := self._heads.get((server, kind))) is None:
                raise
            return known
        return found or [DefinitionHead(each.name, each.hash, each.state) for each in self._kept(server, kind)]

    def _kept(self, server: str, kind: DefinitionKind) -> list[Definition]:
        """Return what was seen first of a server and could not be written."""
        found = (each for (owner, _), kept in self._unsaved.items() if owner == server for each in kept)
        return [each for each in found if each.kind == kind]

    def _known(self, server: str, kind: DefinitionKind) -> tuple[Hashes, Hashes]:
        """Return the approved and the blocked hashes of a kind."""
        approved: Hashes = {}
        blocked: Hashes = {}
        for head in self._read(server, kind):
            if head.state != "held":
                (approved if head.state == "approved" else blocked).setdefault(head.name, []).append(head.hash)
        return approved, blocked

    def _approved(self, server: str, kind: DefinitionKind, name: str) -> Sequence[Definition]:
        kept = (each for each in self._kept(server, kind) if each.name == name and each.state == "approved")
        return self._store.approved(server, kind, name) or list(kept)

    def _add_first(self, first: Sequence[Definition]) -> None:
        """Keep what was seen first; in memory, where the store cannot be written."""
        key = (first[0].server, first[0].kind)
        first = self._unsaved.pop(key, first)
        try:
            self._store.add_first(first)
        except StorageError as error:
            log.warning("%s; the first sight of server %r is kept in memory until that works", error, key[0])
            self._unsaved[key] = first
            self._unjudged.add(key[0])

    def _approve_all(self, server: str, definitions: Sequence[Definition], launch: Definition) -> None:
        """Approve what is not blocked. What cannot be written now is approved again with the next list."""
        decided = {kind: self._known(server, kind) for kind in {each.kind for each in definitions}}
        new = [each for each in definitions if not any(each.hash in of.get(each.name, ()) for of in decided[each.kind])]
        if not new:
            return
        try:
            at = time.time()
            self._store.approve_listed([replace(_of(each, launch), state="approved", seen_at=at) for each in new])
        except StorageError as error:
            log.warning("%s; what server %r lists now is approved again later", error, server)
            self._unjudged.add(server)

    def _hold(self, server: str, kinds: Sequence[DefinitionKind], held: Sequence[Definition]) -> None:
        """Keep what is held. Without a change nothing is written; a server that changes all the time has to wait."""
        kept = {
            (kind, head.name, head.hash) for kind in kinds for head in self._read(server, kind) if head.state == "held"
        }
        if held:
            self._say(server, held)
        if kept == {(each.kind, each.name, each.hash) for each in held}:
            return
        if self._clock() - self._held_at.get((server, kinds[0]), -RETRY_S) < RETRY_S:
            self._unjudged.add(server)
            return
        self._held_at[server, kinds[0]] = self._clock()
        try:
            self._store.hold(server, kinds, [replace(each, state="held", seen_at=time.time()) for each in held])
        except StorageError as error:
            log.warning("%s; `foretool review` does not show what is held of server %r until that works", error, server)
            self._unjudged.add(server)

    def _say(self, server: str, held: Sequence[Definition]) -> None:
        hashes = frozenset(each.hash for each in held)
        said, at = self._said.get(server, (frozenset(), 0.0))
        if not hashes <= said and self._clock() - at > (SAY_S if said else 0.0):
            self._said[server] = (hashes, self._clock())
            log.warning("server %r: %s; run `foretool review %s`", server, describe_held(held), server)


def launch_of(server: Server) -> Definition:
    """Return how a server is reached as a definition. Its text has no secrets that we know of."""
    entry = server.entry
    parts = {
        "command": " ".join((entry.command or "", *map(_without_secret, entry.args))).strip(),
        "cwd": entry.cwd,
        "url": re.sub(r"//[^/?#]*@|[?#].*", lambda match: "//" if match[0][:2] == "//" else "", entry.url or ""),
        "env": sorted(entry.env),
        "headers": sorted(entry.headers),
    }
    text = hide_shapes(
        server.secrets.redact(msgspec.json.encode({key: part for key, part in parts.items() if part}).decode())
    )
    return Definition(server.name, "launch", "", fingerprint(server), text.encode(), fingerprint=fingerprint(server))


def _without_secret(argument: str) -> str:
    return re.sub(r"(?i)((?:key|token|secret|passw\w*|auth\w*)[=:]).+", r"\1[...]", argument)


def _of(definition: Definition, launch: Definition) -> Definition:
    """Return a definition with what was known of its server when it listed it."""
    return replace(definition, fingerprint=launch.fingerprint, version=launch.version)


def _definitions(tools: Sequence[Tool]) -> list[Definition]:
    return [definition_of(tool) for tool in tools]


def _prompt_of(server: str, listed: Raw) -> Definition | None:
    """Return a prompt as a definition; None if it has no name."""
    name = jsonrpc.member(listed, "name")
    return None if name is None else Definition(server, "prompt", name, hash_value(bytes(listed)), bytes(listed))


def why_held(server: str) -> str:
    """Say why a tool or a prompt is not served, and the way out."""
    return f"server {server!r} changed or added it, and only the user can approve that: foretool review {server}"


def count_held(held: Sequence[Definition]) -> str:
    """Say what is held of a server, for example "30 tools changed, 2 tools new"."""
    nouns: dict[DefinitionKind, str] = {"tool": "tool", "prompt": "prompt", "prompt_text": "prompt text"}
    counts = Counter((each.kind, "new" if each.effect == "new" else "changed") for each in held)
    parts = [
        f"{count} {noun}{'s' if count > 1 else ''} {change}"
        for kind, noun in nouns.items()
        for change in ("changed", "new")
        if (count := counts[kind, change])
    ]
    for each in held:
        if each.kind == "instructions":
            parts.append(f"its instructions {'are new' if each.effect == 'new' else 'changed'}")
        elif each.kind == "launch":
            parts.append(f"its command {'is new' if each.effect == 'new' else 'changed'}")
    return ", ".join(parts)


def describe_held(held: Sequence[Definition]) -> str:
    """Say in one line what is held of a server, and what that means."""
    return f"{count_held(held)}; nobody has approved this, so it is not served"
