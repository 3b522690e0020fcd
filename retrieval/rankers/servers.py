"""Finds the servers that a task names: by their names, and by the words of the config that tell their entries apart.

A task that names a server means the tools of that server: SQL for "the prod database" must not run on another one. What
names a server is the user's alone (names, prefixes and values of the config), so no server can name itself.

A named server gains a share of each of its scores, as usage does (`rankers.usage`). So a task with a common word that
is also a server's name, such as "time" or "memory", lifts none of its tools over one whose words are clearly better.
Of tools that do the same on several servers, that of the named server comes first.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Final

from msgspec import Struct

from foretool.retrieval.words import STOP_WORDS, chunks, in_words, stem

NAMED: Final = 0.25
"""The share of its scores that a server gains that the task names as one: "in github-work", "with playwright"."""
_COMMON: Final = 0.5
"""A word that more of the entries have tells none of them from others."""
_MOST_READ: Final = 10_000
"""Characters of a line that are read."""
TOLD_APART: Final = 1.0
"""What a server gains besides if the task tells it from another one that has the same tools: "on the prod database"."""

_GENERIC: Final = frozenset(
    map(stem, ("api", "app", "client", "com", "http", "https", "io", "mcp", "org", "server", "stdio", "tool", "www"))
)
"""Words of names and entries that tell no server from another."""
_SAME: Final = {
    stem(word): stem(other)
    for word, other in (
        ("production", "prod"), ("development", "dev"), ("stage", "staging"), ("stg", "staging"),
        ("localhost", "local"),
    )
}  # fmt: skip
"""Words that people and configs use for one another."""
_LEADS: Final = r"\b(?:with|using|use|via|through|in|on|from|at|by|of|to)\s+(?:the\s+|my\s+|our\s+)?[`\"'@]?"
_TAILS: Final = r"[`\"']?\s+(?:mcp\b(?:\s+server\b)?|server\b)"


class ServerWords(Struct, frozen=True):
    """The words by which a user may mean one server: its names in the config, and what its entry points at."""

    names: tuple[str, ...]
    """Its name, and its prefix where that is another."""
    marks: tuple[str, ...] = ()
    """Words of its description, folders, accounts, hosts and databases, as they are written; none of a secret."""
    folders: tuple[str, ...] = ()
    """The folders and files that it is given as arguments; none that holds a secret."""


class Mention(Struct, frozen=True):
    """How a line of a task names one server."""

    share: float = 0.0
    """The share of its scores that the server gains."""
    names: frozenset[str] = frozenset()
    """The terms of the line that its name has."""
    marks: frozenset[str] = frozenset()
    """Those that its entry has."""
    rest: str = ""
    """The line without the name, "" where that is the same or says nothing."""

    @property
    def strength(self) -> tuple[float, int, int]:
        """How surely the server is meant, to be compared with another one."""
        return self.share, len(self.names), len(self.marks)


NOT_NAMED: Final = Mention()


class ServerNames:
    """The words by which a task may name each server."""

    def __init__(self, servers: Mapping[str, ServerWords] = {}) -> None:
        self._servers = servers
        self._forms: dict[str, list[frozenset[str]]] = {}
        """By server, the terms of each of its names, in each way to split it into words."""
        self._names = {server: terms_of(*said.names) for server, said in servers.items()}
        marks = {server: terms_of(*said.marks) for server, said in servers.items()}
        having = Counter(term for terms in marks.values() for term in terms)
        # What most entries have, such as the folder of the user, tells none of them from others.
        self._marks = {
            server: frozenset(term for term in terms if having[term] <= max(len(servers) * _COMMON, 1))
            for server, terms in marks.items()
        }
        self._having: dict[str, dict[str, None]] = {}
        """By term, the servers that it may name."""
        for server, said in servers.items():
            forms = [terms_of(form) for name in said.names for form in (name, in_words(name))]
            self._forms[server] = [form for form in forms if form]
            for term in self._names[server].union(self._marks[server], *forms):
                self._having.setdefault(term, {})[server] = None
        self.find = lru_cache(maxsize=64)(self._find)
        """Returns how a line names servers, by server; {} where it names none."""

    def _find(self, line: str) -> dict[str, Mention]:
        line = line[:_MOST_READ]
        said = _said_in(line)
        servers = dict.fromkeys(server for term in said for server in self._having.get(term, ()))
        found = {server: self._mention(server, line, said) for server in servers}
        return {server: mention for server, mention in found.items() if mention.names or mention.marks}

    def _mention(self, server: str, line: str, said: frozenset[str]) -> Mention:
        whole = next((form for form in self._forms[server] if form <= said), frozenset[str]())
        rest = self._without_name(server, line) if whole else None
        share = NAMED if rest is not None else 0.0
        return Mention(share, (self._names[server] & said) | whole, self._marks[server] & said, rest or "")

    def _without_name(self, server: str, line: str) -> str | None:
        """Return the line without a name of the server, "" where that says nothing; None where it is not named as a
        server."""
        for name in self._servers[server].names:
            rest, times = _name_in_line(name).subn(" ", line)
            if times:
                return rest.strip(" ,.:;") if terms_of(rest) else ""
        return None

    def folders_apart(self, servers: Sequence[str]) -> dict[str, list[str]]:
        """Return for each server the folders that it is given and some other of these servers is not."""
        given = {server: said.folders for server in servers if (said := self._servers.get(server)) is not None}
        shared = frozenset[str].intersection(*map(frozenset, given.values())) if given else frozenset[str]()
        return {server: [each for each in folders if each not in shared] for server, folders in given.items()}

    def tell_apart(self, servers: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Return for each server the words of its entry that tell it from the others: neither part of its name nor
        common to all of them."""
        marks = {
            server: {term: word for word in said.marks for term in terms_of(word)}
            for server in servers
            if (said := self._servers.get(server)) is not None
        }
        shared = frozenset[str].intersection(*map(frozenset, marks.values())) if len(marks) > 1 else frozenset[str]()
        return {
            server: tuple(
                word for term, word in words.items() if term not in shared | terms_of(*self._servers[server].names)
            )
            for server, words in marks.items()
        }


def terms_of(*texts: str) -> frozenset[str]:
    """Return the stemmed terms of texts without generic ones, which tell no server from others."""
    return frozenset(term for text in texts for word in chunks(text) if (term := _term(word)) not in _GENERIC)


def _said_in(line: str) -> frozenset[str]:
    """Return the terms of a line, and those of two words of it written as one: "google maps" names `googlemaps`."""
    words = chunks(line)
    return terms_of(*words, *(one + other for one, other in pairwise(words)))


def _term(word: str) -> str:
    lowered = word.lower()
    if lowered in STOP_WORDS:
        return "mcp"  # tells nothing
    stemmed = stem(lowered)
    return _SAME.get(stemmed, stemmed)


@lru_cache(maxsize=4096)
def _name_in_line(name: str) -> re.Pattern[str]:
    """Return what finds a name in a line where it is that of a server, with the words around it that say so: "in git",
    "git mcp", "git: ...", or a name of several words as no other text has it, `github-work`."""
    words = chunks(in_words(name)) or [re.escape(name)]
    written = r"[\W_]{0,3}".join(map(re.escape, words))
    forms = [
        rf"{_LEADS}{written}\b(?:{_TAILS})?",
        rf"\b{written}{_TAILS}",
        rf"^\W*{written}\s*:",
        rf"[`@]{written}\b`?",
    ]
    if len(words) > 1:
        forms.append(rf"\b{r'[-_./]'.join(map(re.escape, words))}\b")
    return re.compile("|".join(forms), re.IGNORECASE)
