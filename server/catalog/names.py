"""Exposed names: how a tool of an upstream is called in front, and which tool a name means.

`server__tool`, at most 49 characters, so that `mcp__foretool__` before it still fits the 64 that model APIs allow.
"""

from __future__ import annotations

import hashlib
import itertools
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from foretool.storage.records import ToolId

LIMIT: Final = 49
SEPARATOR: Final = "__"
DISCOVER: Final = ToolId("discover_tools")
CALL: Final = ToolId("call_tool")
OWN: Final = frozenset({DISCOVER, CALL})

Key = tuple[str, str]
"""Upstream name and the tool's name there."""

COMPARED: Final = 100
"""Names that are compared letter by letter with one that no tool has."""
_PREFIX_LIMIT = 16
_DIGEST = 6
_forbidden = re.compile(r"[^A-Za-z0-9_-]")
_between = re.compile(r"[^a-z0-9]+")


def plain_name(prefix: str, tool: str) -> str:
    """The name a tool gets when nothing else has it. An empty prefix adds no separator."""
    joined = _forbidden.sub("_", f"{prefix}{SEPARATOR}{tool}" if prefix else tool)
    if len(joined) <= LIMIT:
        return joined
    short = _forbidden.sub("_", f"{prefix[:_PREFIX_LIMIT]}{SEPARATOR}{tool}" if prefix else tool)
    return f"{short[: LIMIT - _DIGEST - 1]}_{_digest(prefix, tool)}"


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGEST]


def assign(tools: Iterable[tuple[Key, str]], kept: Mapping[Key, ToolId]) -> dict[Key, ToolId]:
    """A name for every tool: the one it had, else its plain name, else a longer one that is free.

    `tools`: key and prefix, in the order of the config; the first comer keeps a name that several want.
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
        # Where nobody else wants its plain name, another one is from before its prefix was changed.
        contested = rivals[first] > 1 or held.get(ToolId(first), key) != key
        if name == first or (contested and name in _choices(key, wanted[key])):
            names[key] = name
            taken.add(name)
    # The name of a tool that is away for now is not given to another: it would come to mean something else.
    taken.update(name for name, key in held.items() if key not in firsts)
    for key, first in firsts.items():
        if key not in names:
            choices = _endless(_choices(key, wanted[key])) if first in taken else (first,)
            names[key] = ToolId(next(choice for choice in choices if choice not in taken))
            taken.add(names[key])
    return names


def _choices(key: Key, prefix: str) -> tuple[str, ...]:
    """The names a tool may get, the one it would like best first; the last is another tool's by malice alone."""
    upstream, tool = key
    full = plain_name(upstream, tool)
    return plain_name(prefix, tool), full, f"{full[: LIMIT - _DIGEST - 1]}_{_digest(upstream, tool)}"


def _endless(choices: tuple[str, ...]) -> Iterator[str]:
    yield from choices
    stem = choices[-1][: -_DIGEST - 1]
    yield from (f"{stem}_{_digest(choices[-1], str(number))}" for number in itertools.count())


class Resolver:
    """Finds the tool that a name means. Built once per catalog."""

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
        self._having: dict[str, array[int]] = {}  # places of the folded names that have two letters side by side
        self._names = names

    def resolve(self, name: str) -> ToolId | None:
        """The tool with exactly this name: exposed, `server__tool` in any spelling of the joint, or, where only one
        upstream has it, the upstream's own."""
        return self._exact.get(name) or self._bare.get(name) or self._without_client_prefix(name)

    def _without_client_prefix(self, name: str) -> ToolId | None:
        # Models sometimes repeat the name as their client shows it.
        parts = name.split(SEPARATOR, 2)
        return self._exact.get(parts[2]) if len(parts) == 3 and parts[0] == "mcp" else None

    def near(self, name: str, limit: int = 5) -> tuple[list[ToolId], bool]:
        """Tools that may have been meant, likeliest first, and whether only one can have been: the same name but for
        case and punctuation."""
        folded = self._fold()
        same = folded.get(_fold(name), [])
        if same:
            return same[:limit], len(same) == 1
        from difflib import get_close_matches  # only on this path, and slow to import

        close = get_close_matches(_fold(name), self._likely(_fold(name)), n=limit, cutoff=0.6)
        found = list(dict.fromkeys(tool for key in close for tool in folded[key]))
        return found[:limit], False

    def _likely(self, name: str) -> list[str]:
        """The folded names that share most neighbouring letters with this one; to compare it with every name of a big
        catalog would take seconds."""
        names = list(self._fold())
        if not self._having:
            for at, other in enumerate(names):
                for pair in _pairs(other):
                    self._having.setdefault(pair, array("I")).append(at)
        shared = Counter(itertools.chain.from_iterable(self._having.get(pair, ()) for pair in _pairs(name)))
        return [names[at] for at, _ in shared.most_common(COMPARED)]

    def _fold(self) -> dict[str, list[ToolId]]:
        if self._folded is None:
            self._folded = {}
            for (_, tool), name in self._names.items():
                for form in dict.fromkeys((_fold(name), _fold(tool))):
                    self._folded.setdefault(form, []).append(name)
        return self._folded


def _pairs(name: str) -> set[str]:
    return {name[at : at + 2] for at in range(len(name) - 1)}


def _fold(name: str) -> str:
    return _between.sub("", name.lower())
