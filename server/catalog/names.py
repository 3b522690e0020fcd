"""Exposed names: the name that clients call a tool by, and the tool that a name means.

A name is `server__tool`, at most 49 characters long, so that it still fits the 64 characters that model APIs allow
after a client has put `mcp__foretool__` before it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import itertools
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from foretool.server.trust.text import is_clean, one_line, visible
from foretool.storage.engine import StorageError
from foretool.storage.records import Tool, ToolId
from foretool.storage.sql.catalog import CatalogStore

LIMIT: Final = 49
_MAX_NAME: Final = 512
"""Characters. A tool with a longer name is dropped: clients take 64 to 128."""
SEPARATOR: Final = "__"
JOINTS: Final = (SEPARATOR, "/", ".", ":")
"""What may stand between a server and its tool in a name that a client calls."""
CLIENT_HEAD: Final = "mcp"
"""Clients show our tools as `mcp__foretool__<name>`."""
DISCOVER: Final = ToolId("discover_tools")
CALL: Final = ToolId("call_tool")
CALL_WRITE: Final = ToolId("call_tool_write")
CALL_TOOLS: Final = ToolId("call_tools")
READ_MORE: Final = ToolId("read_more")
CALL_RESULT: Final = ToolId("call_result")
"""These two are not listed: a result names them, one that was cut or one that is not there yet."""
CONNECT: Final = ToolId("connect_server")
OWN: Final = frozenset({DISCOVER, CALL, CALL_WRITE, CALL_TOOLS, READ_MORE, CALL_RESULT, CONNECT})

Key = tuple[str, str]
"""The name of an upstream and the name of a tool there."""

COMPARED: Final = 100
"""How many names are compared letter by letter with a name that no tool has."""
OFFERED: Final = 5
"""How many names are offered for a wrong one."""
_PREFIX_LIMIT = 16
_DIGEST = 6
_forbidden = re.compile(r"[^A-Za-z0-9_-]")
_between = re.compile(r"[^a-z0-9]+")


def check_name(name: str | None) -> str:
    if not name:
        raise ValueError("it has no name")
    if len(name) > _MAX_NAME:
        raise ValueError(f"its name, {name[:40]!r}, has {len(name)} characters, over the limit of {_MAX_NAME}")
    if not is_clean(name):
        raise ValueError(f"its name {one_line(visible(name))!r} has invisible characters")
    return name


def plain_name(prefix: str, tool: str) -> str:
    """Return the name that a tool gets unless another tool has it. An empty prefix adds no separator."""
    joined = _forbidden.sub("_", f"{prefix}{SEPARATOR}{tool}" if prefix else tool)
    if len(joined) <= LIMIT:
        return joined
    short = _forbidden.sub("_", f"{prefix[:_PREFIX_LIMIT]}{SEPARATOR}{tool}" if prefix else tool)
    return f"{short[: LIMIT - _DIGEST - 1]}_{digest_of(prefix, tool)}"


def plain_part(text: str) -> str:
    return _forbidden.sub("_", text)


def digest_of(*parts: str) -> str:
    """Return a short digest of these texts, to tell names apart that would be equal."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGEST]


def assign_names(
    tools: Iterable[tuple[Key, str]], given: Mapping[ToolId, Key], chosen: Mapping[Key, str] | None = None
) -> dict[Key, ToolId]:
    """Give every tool a name: the name it had, else its plain name, else a longer name that is free.

    `tools` holds keys and prefixes in the order of the config: where several tools want one name, the first gets it.
    `given` holds the names given for good: none of them goes to another tool, whether its own is there or not. A tool
    without a prefix gets a longer name if another server's tool has or ever had its own name. `chosen` holds what the
    user writes in place of own names: no tool that wants such a name gets it first, but one that was given it keeps it.
    """
    chosen = chosen or {}
    names: dict[Key, ToolId] = {}
    taken: set[str] = set(OWN)
    wanted = dict(tools)
    firsts = {key: plain_name(prefix, chosen.get(key, key[1])) for key, prefix in wanted.items()}
    rivals = Counter(firsts.values())
    had = {key for key in given.values() if key in wanted}
    for key, first in firsts.items():
        # If no other tool wants the plain name, a given name that differs from it stems from an older prefix.
        rivalled = rivals[first] > 1 and key not in chosen
        contested = key in had and (rivalled or given.get(ToolId(first), key) != key)
        known = (first, *_candidate_names(key, wanted[key])) if contested else (first,)
        name = next((ToolId(each) for each in known if given.get(ToolId(each)) == key), None)
        if name is not None and name not in taken:
            names[key] = name
            taken.add(name)
    owners = _first_owners(itertools.chain(given.values(), firsts))
    for key in sorted(firsts, key=lambda each: each not in chosen):
        if key not in names:
            longer = not wanted[key] and owners[key[1]] != key[0]
            choices: Iterator[str] = itertools.islice(_endless_names(_candidate_names(key, wanted[key])), longer, None)
            if key in chosen and (wanted[key] or owners.get(chosen[key], key[0]) == key[0]):
                choices = itertools.chain((firsts[key],), choices)
            free = (each for each in choices if each not in taken and given.get(ToolId(each), key) == key)
            names[key] = ToolId(next(free))
            taken.add(names[key])
    return names


def _first_owners(keys: Iterable[Key]) -> dict[str, str]:
    """Return by own name of a tool the first server that has it."""
    owners: dict[str, str] = {}
    for upstream, tool in keys:
        owners.setdefault(tool, upstream)
    return owners


def _candidate_names(key: Key, prefix: str) -> tuple[str, ...]:
    """Return the names that a tool may get, best first. Only malice gives another tool the last one."""
    upstream, tool = key
    full = plain_name(upstream, tool)
    return plain_name(prefix, tool), full, f"{full[: LIMIT - _DIGEST - 1]}_{digest_of(upstream, tool)}"


def _endless_names(candidates: tuple[str, ...]) -> Iterator[str]:
    yield from candidates
    stem = candidates[-1][: -_DIGEST - 1]
    yield from (f"{stem}_{digest_of(candidates[-1], str(number))}" for number in itertools.count())


class Resolver:
    """Finds the tool that a name means, among the tools of one version of the catalog.

    A name that a tool was ever given means that tool or nothing. A name with a prefix means a tool of the server whose
    prefix it is, or nothing, also behind what clients put before names. An own name means a tool only if no other
    server has or had a tool of that name.
    """

    def __init__(
        self,
        names: Mapping[Key, ToolId],
        given: Mapping[ToolId, Key] | None = None,
        known: Iterable[Key] = (),
        may_mean: Callable[[str, str], bool] = lambda name, upstream: True,
        split_loosely: Callable[[str], Key | None] = lambda name: None,
    ) -> None:
        """`given`: the names given for good; `known`: tools that are not there, whose own names are not free;
        `may_mean` tells whether a name may mean a tool of a server, as far as its prefix says; `split_loosely` returns
        the server and the tool of a name with any joint between them."""
        self._names = names
        self._exposed = {name: upstream for (upstream, _), name in names.items()}
        self._given = given or {}
        self._may_mean = may_mean
        self._split_loosely = split_loosely
        self._spelled: dict[str, Key] = {}
        bare: dict[str, dict[str, None]] = {}
        for key in names:
            for joint in JOINTS:
                self._spelled.setdefault(f"{key[0]}{joint}{key[1]}", key)
            bare.setdefault(key[1], {})[key[0]] = None
        for upstream, tool in itertools.chain(self._given.values(), known):
            if tool in bare:
                bare[tool][upstream] = None
        self._bare = {tool: (next(iter(found)), tool) for tool, found in bare.items() if len(found) == 1}
        self._folded: dict[str, list[ToolId]] | None = None
        self._places: dict[str, array[int]] = {}
        """By pair of neighbouring letters, the places of the folded names that have it."""

    def resolve(self, name: str) -> ToolId | None:
        """Return the tool with exactly this name: its exposed name, an exposed name that it had before, `server__tool`
        with `/`, `.` or `:` for the joint, or its own name if no other server has or had such a tool. Each of them may
        stand behind what a client puts before it; `mcp_server_tool` too, if the server has such a tool. Small models
        write a name as lists and hints show a call, `server__tool(path: string)`."""
        if found := self._find(name, (self._spelled, self._bare)):
            return found
        spellings = (name, *without_client_heads(name))
        for place, spelling in enumerate(spellings[1:], 1):
            if found := self._find_without_head(spelling):
                # What looks like a client's head may name a server that has no such tool now: no other one is meant.
                named = filter(None, map(self._split_loosely, spellings[:place]))
                return found if all(key[0] == self._exposed[found] for key in named) else None
        bare, parenthesis, _ = name.partition("(")
        return self.resolve(bare) if parenthesis and name.endswith(")") else None

    def _find_without_head(self, name: str) -> ToolId | None:
        if found := self._find(name, (self._spelled,)):
            return found
        key = self._split_loosely(name)
        return self._names.get(key) if key is not None else self._find(name, (self._bare,))

    def _find(self, name: str, spellings: Iterable[Mapping[str, Key]]) -> ToolId | None:
        if name in self._exposed:
            return ToolId(name)
        if (key := self._given.get(ToolId(name))) is not None:
            return self._names.get(key)
        keys = (spelled[name] for spelled in spellings if name in spelled)
        return next((self._names[key] for key in keys if self._may_mean(name, key[0])), None)

    def near(self, name: str, limit: int = OFFERED) -> list[ToolId]:
        """Return the tools that a misspelled name may mean, likeliest first."""
        folded = self._fold_names()
        if same := folded.get(fold_name(name), []):
            return same[:limit]
        from difflib import get_close_matches  # slow to import, and only this path needs it

        close = get_close_matches(fold_name(name), self._likely(fold_name(name)), n=limit, cutoff=0.6)
        return list(dict.fromkeys(tool for key in close for tool in folded[key]))[:limit]

    def _likely(self, name: str) -> list[str]:
        """Return the folded names that share most pairs of letters with this one: comparing it with all 4,432 names of
        179 real servers takes .6 s, and with 5,000 that a hostile server has chosen 4 s."""
        from foretool.retrieval.words import letter_pairs  # its word lists take milliseconds that no list needs

        names = list(self._fold_names())
        if not self._places:
            for place, other in enumerate(names):
                for pair in letter_pairs(other):
                    self._places.setdefault(pair, array("I")).append(place)
        shared = Counter(itertools.chain.from_iterable(self._places.get(pair, ()) for pair in letter_pairs(name)))
        return [names[place] for place, _ in shared.most_common(COMPARED)]

    def _fold_names(self) -> dict[str, list[ToolId]]:
        if self._folded is None:
            self._folded = {}
            for (_, tool), name in self._names.items():
                for form in dict.fromkeys((fold_name(name), fold_name(tool))):
                    self._folded.setdefault(form, []).append(name)
        return self._folded


def without_client_heads(name: str) -> tuple[str, ...]:
    """Return the names that may be meant by one that a client or a model has put something before or behind, such as
    `mcp__foretool__`; () if it has nothing of the kind."""
    from foretool.retrieval.rankers.names import spellings  # its word lists take milliseconds that no list needs

    return spellings(name)[1:]


class NameKeeper:
    """Saves the names that the catalog has given for good, shortly after the answer that uses them."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self._unsaved: dict[ToolId, Key] = {}

    def load(self) -> dict[ToolId, Key]:
        """Return every name that was ever given, none while the store cannot be read."""
        with contextlib.suppress(StorageError):
            return self._store.exposed_names()
        return {}

    def keep(self, names: Mapping[ToolId, Key]) -> None:
        """Save names in a later turn of the loop."""
        self._unsaved.update(names)
        asyncio.get_running_loop().call_soon(self.save)

    def save(self) -> None:
        """Save what is not saved; called again each second, for a store that refused it. 5,000 names take 40 ms."""
        with contextlib.suppress(StorageError):
            if self._unsaved:
                self._store.save_exposed_names(self._unsaved)
                self._unsaved = {}


def fold_name(name: str) -> str:
    """Return a name in lower case without punctuation, which people and models mix up."""
    return _between.sub("", name.lower())


def names_for_demonstrations(tools: Sequence[Tool]) -> dict[str, ToolId]:
    """Return every name by which a demonstration may call a tool: as exposed, `server/tool`, or its own if no other has
    it."""
    own = Counter(tool.name for tool in tools)
    found = {tool.name: tool.id for tool in tools if own[tool.name] == 1}
    found |= {f"{tool.upstream}/{tool.name}": tool.id for tool in tools}
    return found | {str(tool.id): tool.id for tool in tools}
