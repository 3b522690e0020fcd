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
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from foretool.storage.records import ToolId
from foretool.storage.stores import CatalogStore, StorageError

LIMIT: Final = 49
SEPARATOR: Final = "__"
DISCOVER: Final = ToolId("discover_tools")
CALL: Final = ToolId("call_tool")
OWN: Final = frozenset({DISCOVER, CALL})

Key = tuple[str, str]
"""The name of an upstream and the name of a tool there."""

COMPARED: Final = 100
"""How many names are compared letter by letter with a name that no tool has."""
_PREFIX_LIMIT = 16
_DIGEST = 6
_forbidden = re.compile(r"[^A-Za-z0-9_-]")
_between = re.compile(r"[^a-z0-9]+")


def plain_name(prefix: str, tool: str) -> str:
    """Return the name that a tool gets unless another tool has it. An empty prefix adds no separator."""
    joined = _forbidden.sub("_", f"{prefix}{SEPARATOR}{tool}" if prefix else tool)
    if len(joined) <= LIMIT:
        return joined
    short = _forbidden.sub("_", f"{prefix[:_PREFIX_LIMIT]}{SEPARATOR}{tool}" if prefix else tool)
    return f"{short[: LIMIT - _DIGEST - 1]}_{_digest(prefix, tool)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGEST]


def assign_names(tools: Iterable[tuple[Key, str]], kept: Mapping[Key, ToolId]) -> dict[Key, ToolId]:
    """Give every tool a name: the name it had, else its plain name, else a longer name that is free.

    `tools` holds keys and prefixes in the order of the config: where several tools want one name, the first gets it.
    `kept` holds the names that clients know already.
    """
    names: dict[Key, ToolId] = {}
    taken: set[str] = set(OWN)
    wanted = dict(tools)
    firsts = {key: plain_name(prefix, key[1]) for key, prefix in wanted.items()}
    rivals = Counter(firsts.values())
    held = {name: key for key, name in kept.items()}
    for key, first in firsts.items():
        name = kept.get(key)
        if name is None or name in taken:
            continue
        # If no other tool wants the plain name, a kept name that differs from it stems from an older prefix.
        contested = rivals[first] > 1 or held.get(ToolId(first), key) != key
        if name == first or (contested and name in _candidate_names(key, wanted[key])):
            names[key] = name
            taken.add(name)
    # The name of a tool that is away stays reserved: given to another tool, it would change its meaning.
    taken.update(name for name, key in held.items() if key not in firsts)
    for key, first in firsts.items():
        if key not in names:
            choices = _endless_names(_candidate_names(key, wanted[key])) if first in taken else (first,)
            names[key] = ToolId(next(choice for choice in choices if choice not in taken))
            taken.add(names[key])
    return names


def _candidate_names(key: Key, prefix: str) -> tuple[str, ...]:
    """Return the names that a tool may get, best first. Only malice gives another tool the last one."""
    upstream, tool = key
    full = plain_name(upstream, tool)
    return plain_name(prefix, tool), full, f"{full[: LIMIT - _DIGEST - 1]}_{_digest(upstream, tool)}"


def _endless_names(candidates: tuple[str, ...]) -> Iterator[str]:
    yield from candidates
    stem = candidates[-1][: -_DIGEST - 1]
    yield from (f"{stem}_{_digest(candidates[-1], str(number))}" for number in itertools.count())


class Resolver:
    """Finds the tool that a name means, among the tools of one version of the catalog."""

    def __init__(self, names: Mapping[Key, ToolId]) -> None:
        self._exact: dict[str, ToolId] = {}
        bare: dict[str, list[ToolId]] = {}
        for (upstream, tool), name in names.items():
            for joint in (SEPARATOR, "/", ".", ":"):
                self._exact.setdefault(f"{upstream}{joint}{tool}", name)
            bare.setdefault(tool, []).append(name)
        self._exact.update({name: name for name in names.values()})
        self._bare = {tool: found[0] for tool, found in bare.items() if len(found) == 1}
        self._folded: dict[str, list[ToolId]] | None = None
        self._places: dict[str, array[int]] = {}
        """By pair of neighbouring letters, the places of the folded names that have it."""
        self._names = names

    def resolve(self, name: str) -> ToolId | None:
        """Return the tool with exactly this name: its exposed name, `server__tool` with `/`, `.` or `:` for the joint,
        or its own name if only one upstream has such a tool."""
        return self._exact.get(name) or self._bare.get(name) or self._without_client_prefix(name)

    def _without_client_prefix(self, name: str) -> ToolId | None:
        # Models sometimes repeat the name as their client shows it.
        parts = name.split(SEPARATOR, 2)
        return self._exact.get(parts[2]) if len(parts) == 3 and parts[0] == "mcp" else None

    def near(self, name: str, limit: int = 5) -> tuple[list[ToolId], bool]:
        """Return the tools that a wrong name may mean, likeliest first, and whether the first is certain: its name
        differs only in case and punctuation, and no other tool's name does."""
        folded = self._fold_names()
        same = folded.get(_fold(name), [])
        if same:
            return same[:limit], len(same) == 1
        from difflib import get_close_matches  # slow to import, and only this path needs it

        close = get_close_matches(_fold(name), self._likely(_fold(name)), n=limit, cutoff=0.6)
        found = list(dict.fromkeys(tool for key in close for tool in folded[key]))
        return found[:limit], False

    def _likely(self, name: str) -> list[str]:
        """Return the folded names that share most pairs of letters with this one: comparing it with every name of a big
        catalog would take seconds."""
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
                for form in dict.fromkeys((_fold(name), _fold(tool))):
                    self._folded.setdefault(form, []).append(name)
        return self._folded


class NameKeeper:
    """Saves the names that the catalog gives for good, shortly after the answer that uses them."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self._unsaved: dict[ToolId, Key] = {}

    def load(self) -> dict[Key, ToolId]:
        """Return every name that was ever given."""
        return {key: tool for tool, key in self._store.exposed_names().items()}

    def keep(self, names: Mapping[ToolId, Key]) -> None:
        """Save names in a later turn of the loop."""
        self._unsaved.update(names)
        asyncio.get_running_loop().call_soon(self.save)

    def save(self) -> None:
        """Save what is not saved; called again about once a second, for a store that refused it."""
        if self._unsaved:
            with contextlib.suppress(StorageError):
                self._store.save_exposed_names(self._unsaved)
                self._unsaved.clear()


def _fold(name: str) -> str:
    return _between.sub("", name.lower())
