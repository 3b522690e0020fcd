"""Names that pass for another server's tool, and the names of other servers' tools in a text."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import Final

_LIKE_LATIN: Final = {
    "a": (0x430, 0x3B1, 0x251), "b": (0x432, 0x3B2), "c": (0x441, 0x3F2), "d": (0x501, 0x257), "e": (0x435, 0x3B5),
    "g": (0x261, 0x581), "h": (0x4BB, 0x570, 0x43D), "i": (0x456, 0x3B9, 0x131), "j": (0x458,), "k": (0x43A, 0x3BA),
    "l": (0x4CF,), "m": (0x43C,), "n": (0x3B7, 0x578), "o": (0x43E, 0x3BF, 0x585, 0x3C3), "p": (0x440, 0x3C1),
    "q": (0x51B,), "s": (0x455,), "t": (0x442, 0x3C4), "u": (0x3C5, 0x57D), "v": (0x3BD, 0x475), "w": (0x51D, 0x3C9),
    "x": (0x445, 0x3C7), "y": (0x443, 0x3B3), "_": (0x2010, 0x2011, 0x2013, 0x2014, 0x2212),
}  # fmt: skip
_LIKE: Final = str.maketrans({chr(code): latin for latin, codes in _LIKE_LATIN.items() for code in codes})
"""Letters of other scripts by the Latin letters that they look like; NFKC folds wide and mathematical ones."""
_SWAPS: Final = (("rn", "m"), ("vv", "w"), ("0", "o"), ("1", "l"), ("5", "s"), ("3", "e"), ("4", "a"), ("i", "l"))
_PARTS: Final = re.compile(r"[^a-z0-9]+")
_NAME: Final = re.compile(
    r"(?<![A-Za-z0-9])[0-9]*(?P<joined>[A-Za-z][A-Za-z0-9]*(?:[_-]{1,2}[A-Za-z0-9]+)+)"
    r"|(?<![a-z])(?P<humped>[a-z]+(?:[A-Z][a-z0-9]+)+)"
)
"""What can be a tool's name in a text: words joined by `_`, `-` or capitals."""
_LEAST: Final = 6
"""Characters of a name that is told from an ordinary word."""
_COPIED: Final = 0.7
"""Two descriptions that share this part of their words are taken for a copy."""
_LEAST_WORDS: Final = 4


def fold_lookalikes(text: str) -> str:
    """Return a text in plain lower-case Latin letters, as it looks to a reader."""
    if text.isascii():
        return text.lower()
    import unicodedata  # a megabyte that plain names do not need

    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text)).lower().translate(_LIKE)
    return "".join(each for each in plain if not unicodedata.combining(each))


def skeleton(name: str) -> str:
    """Return a form of a name that is equal for names that look alike."""
    plain = _PARTS.sub("", fold_lookalikes(name))
    for one, other in _SWAPS:
        plain = plain.replace(one, other)
    return plain


class Names:
    """The names and descriptions of all servers' tools, to find copies among them.

    Servers that run one program, as for two accounts, count as one server.
    """

    def __init__(
        self, tools: Iterable[tuple[str, str, str]] = (), programs: Mapping[str, Hashable] | None = None
    ) -> None:
        """`tools`: server, the tool's own name there, description. `programs`: what each server runs."""
        self._programs = programs or {}
        self._by_skeleton: dict[str, list[tuple[str, str, frozenset[str]]]] = {}
        self._by_name: dict[str, set[str]] = {}
        """Servers by lower-case name."""
        self._of: dict[Hashable, set[str]] = {}
        """Lower-case names by program."""
        for server, name, description in tools:
            self._of.setdefault(self._program(server), set()).add(name.lower())
            self._by_skeleton.setdefault(skeleton(name), []).append((server, name, _words(description)))
            self._by_name.setdefault(name.lower(), set()).add(server)

    def _program(self, server: str) -> Hashable:
        """Return what a server runs; its name, where that is not known."""
        return self._programs.get(server, server)

    def _is_other(self, server: str, other: str) -> bool:
        return self._program(server) != self._program(other)

    def lookalike(self, server: str, name: str) -> tuple[str, str] | None:
        """Return another server's tool that a name passes for without being it: by letters of another script, or by
        figures and letters that look the same."""
        for other, known, _ in self._by_skeleton.get(skeleton(name), ()):
            plain = (_PARTS.sub("", known.lower()), _PARTS.sub("", name.lower()))
            if plain[0] != plain[1] and self._is_other(server, other):
                return other, known
        return None

    def copied(self, server: str, name: str, description: str) -> tuple[str, str] | None:
        """Return another server's tool with the same name and nearly the same description; None without one."""
        words = _words(description)
        for other, known, theirs in self._by_skeleton.get(skeleton(name), ()):
            is_alike = len(words & theirs) >= max(_LEAST_WORDS, _COPIED * len(words | theirs))
            if is_alike and self._is_other(server, other):
                return other, known
        return None

    def are_twins(self, server: str, other: str) -> bool:
        """Return whether two servers have the same tools, as when one program is started in two ways."""
        own = self._of.get(self._program(server), set())
        return len(own) > 1 and own == self._of.get(self._program(other))

    def are_own(self, server: str, text: str) -> bool:
        """Return whether a text names tools and all of them are this server's."""
        named = [name.lower() for _, name in _names(text)]
        return bool(named) and self._of.get(self._program(server), set()).issuperset(named)

    def mentioned(self, server: str, text: str) -> list[tuple[int, str, str]]:
        """Return the names of other servers' tools in a text: where each stands, the name, its server. A name that this
        server has, too, is its own."""
        found: list[tuple[int, str, str]] = []
        for at, written in _names(text):
            name = written.lower()
            server_of, _, bare = name.rpartition("__")
            servers = self._by_name.get(bare if server_of else name, set())
            is_foreign = bool(servers) and all(self._is_other(server, each) for each in servers)
            if len(name) >= _LEAST and is_foreign:
                found.append((at, written, min(servers)))
        return found


def _names(text: str) -> Iterator[tuple[int, str]]:
    """Yield what is written as names of tools are, and where. No word is begun twice, however long it is."""
    for found in _NAME.finditer(text):
        kind = found.lastgroup or ""
        yield found.start(kind), found[kind]


def _words(description: str) -> frozenset[str]:
    return frozenset(_PARTS.sub(" ", fold_lookalikes(description[:2000])).split())
