"""Which server a name belongs to: prefixes of the config and of earlier runs are reserved, and so is every name that
a tool was ever given."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from foretool.server.catalog.names import (
    CLIENT_HEAD,
    JOINTS,
    LIMIT,
    SEPARATOR,
    Key,
    digest_of,
    fold_name,
    plain_name,
    plain_part,
)
from foretool.server.config.servers import Server
from foretool.server.trust.text import one_line
from foretool.storage.records import ToolId

OTHER_PREFIX: Final = 'give the server another "prefix"'
_NAMED: Final = 3
_SHOWN: Final = 60
"""How many refused tools are named, and with how many characters."""
_JOINT: Final = re.compile(r"(?:__|--|[_/.:-])(?=.)")
"""What clients write between a server and its tool."""
_STEM: Final = 9
"""How much of a server's name stands in a prefix that a digest tells from another."""


class Gone(NamedTuple):
    """Why a name that belongs to a server means no tool, and the way out."""

    upstream: str
    reason: str
    way_out: str
    cause: Literal["offline", "gone", "denied"]
    """Of the miss: the entry of its server cannot be used, its server is not in use, or the config excludes it."""

    @property
    def change(self) -> str:
        """Why there is no tool and what would change that, for the user."""
        return f"{self.reason}: {self.way_out}"

    @property
    def for_model(self) -> str:
        """Why the tool cannot be called, for a model, which can only tell the user of an entry."""
        return f"{self.reason}, and {self.way_out}, so tell the user" if self.cause == "offline" else self.reason


class Seen(NamedTuple):
    """Which servers and prefixes the names that were given for good show."""

    prefixes: dict[str, dict[str, None]]
    """The prefixes that stood in names, each with its servers."""
    upstreams: set[str]
    """Every server that has or had a tool."""


class Namespaces:
    """Gives each server the prefix of its names and knows whom every other prefix belongs to.

    The name of a server always is its own. A prefix of the config goes to one server: to one that had it before, else
    to the first in the config. Every other server uses its own name instead.
    """

    def __init__(
        self,
        entries: Sequence[Server],
        prefixes: Mapping[str, str] | None = None,
        given: Mapping[ToolId, Key] | None = None,
        broken: Collection[str] = (),
    ) -> None:
        """`prefixes`: of all servers in the order of the config, also of disabled and broken ones; `given`: the names
        given for good; `broken`: the servers whose entries cannot be used."""
        self.problems: dict[str, tuple[str, ...]] = {}
        """By server, what is wrong with its prefix."""
        self._given = {} if given is None else given
        self._places: dict[ToolId, int] = {}
        """The place of each name among those given, the oldest first; built when it is first needed."""
        self._entries = {entry.name: entry for entry in entries}
        self._broken = frozenset(broken)
        self._written = dict(prefixes or {entry.name: entry.prefix for entry in entries})
        self._owners: dict[str, str] = {}
        """By prefix or server name, as written and as it is exposed: whom it belongs to."""
        self._prefixes: dict[str, str] = {}
        seen = _see_prefixes(self._given)
        self._claim_names()
        self._claim_prefixes(seen.prefixes)
        for head, upstreams in seen.prefixes.items():
            self._owners.setdefault(head, next(iter(upstreams)))
        for upstream in seen.upstreams:
            self._owners.setdefault(upstream, upstream)
            self._owners.setdefault(plain_part(upstream), upstream)
        self._longest = max(map(len, self._owners), default=0)
        self._report_alike()

    def prefix(self, upstream: str) -> str:
        """Return what stands before `__` in the names of a server; "" exposes its own names."""
        return self._prefixes.get(upstream, upstream)

    def bare(self) -> list[str]:
        """Return the servers without a prefix, whose tools are exposed under their own names."""
        return [name for name in self._entries if not self.prefix(name)]

    def split(self, name: str) -> tuple[str, str] | None:
        """Return the server that a name belongs to by what stands before a joint, and what stands behind it. The
        longest prefix counts."""
        for end in range(min(len(name), self._longest), 0, -1):
            if name.startswith(JOINTS, end) and (owner := self._owners.get(name[:end])) is not None:
                joint = next(joint for joint in JOINTS if name.startswith(joint, end))
                return owner, name[end + len(joint) :]
        return None

    def split_loosely(self, name: str) -> tuple[str, str] | None:
        """Do what `split` does for a name with any joint and in any case, as clients write `server_tool`. Of servers
        that differ in case alone the one that is written so counts, or none. What clients put before is no server."""
        lowered = name.lower()
        fitting = [each for each in self._owners if lowered.startswith(each.lower()) and _JOINT.match(name, len(each))]
        most = max(map(len, fitting), default=0)
        longest = [each for each in fitting if len(each) == most]
        owners = {self._owners[each] for each in longest if len(longest) == 1 or name.startswith(each)}
        joint = _JOINT.match(name, most) if len(owners) == 1 else None
        if joint is None:
            return None
        (owner,), tool = owners, name[joint.end() :]
        return None if self.prefix(owner) == CLIENT_HEAD and SEPARATOR in tool else (owner, tool)

    def may_mean(self, name: str, upstream: str) -> bool:
        """Return whether a name may mean a tool of a server, as far as its prefix says."""
        found = self.split(name)
        return found is None or found[0] == upstream

    def refusal(self, upstream: str, tool: str) -> str | None:
        """Return why a server may not have a tool or a prompt of this name; None if it may."""
        prefix = self.prefix(upstream)
        part = plain_part(tool)
        if SEPARATOR not in part and not part.startswith("_"):
            return None  # the name cannot reach behind another prefix
        if not prefix:
            return f"without a prefix a name must not hold {SEPARATOR}" if SEPARATOR in part else None
        if prefix == CLIENT_HEAD and SEPARATOR in part:
            return f"clients put {CLIENT_HEAD}{SEPARATOR} before the names of all servers"
        found = self.split(plain_name(prefix, tool))
        return f"the name belongs to server {found[0]!r}" if found is not None and found[0] != upstream else None

    def count_older(self, tool: ToolId) -> int:
        """Return how many names were given before this one: of two tools that are alike, the one with fewer was there
        first. Names of tools that came together are given in the order of the config."""
        if len(self._places) < len(self._given):
            self._places = {name: place for place, name in enumerate(self._given)}
        return self._places.get(tool, len(self._given))

    def why_gone(self, upstream: str, tool: str) -> Gone | None:
        """Return why a tool of a server cannot be called: the config excludes it, or the server is not in use."""
        entry = self._entries.get(upstream)
        if upstream in self._broken:
            way_out = f"foretool doctor {shlex.quote(upstream)} says what is wrong with it"
            return Gone(upstream, f"the config entry of server {upstream!r} cannot be used", way_out, "offline")
        if entry is None and upstream in self._written:
            command = shlex.join(("foretool", "enable", upstream))
            return Gone(upstream, f"server {upstream!r} is disabled", command, "gone")
        if entry is None:
            reason = f"it belongs to server {upstream!r}, which is not in the config"
            return Gone(upstream, reason, "add it again", "gone")
        if not entry.offers(tool):
            reason = f"it is excluded in the config of server {upstream!r}"
            return Gone(upstream, reason, 'see its "include", "exclude" and "tools"', "denied")
        return None

    # -- who gets which prefix

    def _claim_names(self) -> None:
        for name in self._written:
            self._owners.setdefault(name, name)
            other = self._owners.setdefault(plain_part(name), name)
            if other != name:
                prefix = f"{plain_part(name)[:_STEM]}_{digest_of(name)}"
                self._owners.setdefault(prefix, name)
                self._prefixes[name] = prefix
                self._report(name, f"its name is the same as that of server {other!r} where names are exposed")

    def _claim_prefixes(self, seen: Mapping[str, Mapping[str, None]]) -> None:
        wanted = [(name, prefix) for name, prefix in self._written.items() if prefix not in ("", name)]
        self._prefixes |= {name: "" for name, prefix in self._written.items() if not prefix}
        # Who had a prefix before keeps it, whatever its place in the config.
        for name, prefix in sorted(wanted, key=lambda each: each[0] not in seen.get(plain_part(each[1]), ())):
            head = plain_part(prefix)
            before = seen.get(head, {name: None})
            owner = self._owners.get(head, name if name in before else next(iter(before)))
            if owner == name:
                self._owners[head] = self._owners[prefix] = name
                self._prefixes[name] = prefix
            else:
                self._report(name, f'its "prefix" {prefix!r} belongs to server {owner!r}')

    def _report(self, upstream: str, problem: str) -> None:
        """Say what is wrong with a prefix and what its tools are called instead."""
        if upstream in self._entries:
            shown = f"{self.prefix(upstream)}{SEPARATOR}<tool>"
            said = f"{problem}, so its tools are shown as {shown}; {OTHER_PREFIX}"
            self.problems[upstream] = (*self.problems.get(upstream, ()), said)

    def _report_alike(self) -> None:
        """Report servers whose prefixes differ in case and punctuation alone."""
        first: dict[str, str] = {}
        for name in self._entries:
            prefix = self.prefix(name)
            other = first.setdefault(fold_name(prefix), name) if fold_name(prefix) else name
            if other != name and not self.problems.get(name):
                said = f"its prefix {prefix!r} looks like that of server {other!r}; {OTHER_PREFIX}"
                self.problems[name] = (said,)


def _see_prefixes(given: Mapping[ToolId, Key]) -> Seen:
    """Read the names given for good."""
    seen: dict[str, dict[str, None]] = defaultdict(dict)
    upstreams: set[str] = set()
    plain: set[str] = set()
    for name, (upstream, tool) in given.items():
        upstreams.add(upstream)
        ending = SEPARATOR + tool
        if name == upstream + ending:
            plain.add(upstream)  # nearly all names are like this
            continue
        if not name.endswith(ending):
            ending = plain_part(ending)  # a long name is cut, so its prefix cannot be told
        if len(name) > len(ending) and name.endswith(ending):
            seen[name[: -len(ending)]][upstream] = None
    for upstream in sorted(plain):
        seen[plain_part(upstream)][upstream] = None
    return Seen(dict(seen), upstreams)


def lawful(given: Mapping[ToolId, Key]) -> dict[ToolId, Key]:
    """Return the given names, without those that an older foretool let a server take by listing a tool named
    `prefix__tool` with the prefix of another."""
    return {name: key for name, key in given.items() if not _is_taken(name, key[1])}


def _is_taken(name: str, tool: str) -> bool:
    # Lengths are compared first: a warm start asks this of thousands of names.
    return len(name) == min(len(tool), LIMIT) and SEPARATOR in name and name == plain_name("", tool)


def say_refused(refused: Mapping[str, str]) -> tuple[str, ...]:
    """Return one line on tools that were refused (each with the reason), with the way out; () if there are none."""
    if not refused:
        return ()
    named = ", ".join(repr(one_line(tool, _SHOWN)) for tool in list(refused)[:_NAMED])
    more = f" and {len(refused) - _NAMED} more" if len(refused) > _NAMED else ""
    why = next(iter(refused.values()))
    return (f"refused {named}{more}: {why}; {OTHER_PREFIX}",)
