"""Tells which tool does what a command of a shell does, of those that a search has ranked; none if none surely does.

A command and a tool fit if the tool's server is for what the program is for, the tool's name has the command's verb or
one that means the same, and its name or first sentence has the command's noun. A command that reads never fits a tool
that writes, nor the other way round. A wrong bypass is worse than one that is not seen, so the search alone does not
decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from foretool.retrieval.document import document
from foretool.retrieval.ranking import Ranking
from foretool.retrieval.shell_table import FETCHING, PROGRAMS, Shape
from foretool.retrieval.words import in_words, stem
from foretool.storage.records import Tool, ToolId

_FETCH: Final = "fetch get read scrape"
_RUN: Final = "query execute sql find aggregate select"
"""Verbs of tools that do what a program without subcommands does."""
_READS: Final = (
    "get list search find view show read describe retrieve info details inspect query fetch log logs status diff"
    " top explain checks ls"
)
_WRITES: Final = (
    "create add new update edit set delete remove merge close put push post insert append write drop rename move assign"
    " install uninstall upgrade deploy apply scale patch fork upload batch cancel trigger rerun reply review"
    " comment note"
)
_MEANS: Final[dict[str, str]] = {
    "list": "list search find get", "ls": "list search find get", "view": "get view show read describe retrieve",
    "get": "get view read retrieve", "retrieve": "get view read retrieve", "describe": "describe get",
    "info": "get info describe", "inspect": "inspect get describe", "show": "show get", "details": "details get",
    "search": "search find query", "create": "create add new", "new": "create add new", "note": "comment note",
    "delete": "delete remove destroy", "edit": "edit update modify", "update": "update edit modify",
    "close": "close update", "switch": "checkout switch", "logs": "logs log", "execute": _RUN, "del": "delete del",
    "keys": "keys scan", "checks": "checks status", ".tables": "list show get", ".schema": "describe schema get",
    "put": "put set write", "move": "move transition", "tail": "get tail logs", "exec": "exec execute run",
    "rm": "remove delete rm", "invoke": "invoke run",
}  # fmt: skip
"""By the verb of a command, the words of tools' names that mean it; other verbs stand for themselves."""
_SPELLED: Final[dict[str, str]] = {
    "pr": "pull request", "prs": "pull requests", "mr": "merge request", "repo": "repository", "repos": "repositories",
    "app": "application", "proj": "project", ".tables": "tables", ".schema": "table", "ci": "pipeline",
    "del": "delete", "ls": "list", "pg": "postgres",
}  # fmt: skip
_SEARCHES: Final = frozenset(("code", "issues", "prs", "repos", "users"))
"""What `gh search` takes in the place of a verb."""
_LISTED: Final = {"ps": "containers", "images": "images"}
"""What commands list that have no verb."""
_OF_ONE: Final = frozenset(("get",))
"""Verbs of tools for one thing, which list many where the name has a plural."""
_LOOKED_AT: Final = 20
"""How many of the best tools are looked at."""
_SENTENCE: Final = 120
"""Characters of a description in which a noun counts."""


class _Wanted:
    """What a tool has to have to do what a command does."""

    def __init__(self, shape: Shape) -> None:
        program, *rest = shape
        subjects = PROGRAMS[program][0].split()
        self.subject = subjects[0]
        self._subjects = _stems(subjects)
        self._names_alone = program in FETCHING or program in ("git", "docker")
        """Descriptions do not count: half of the servers say something of the web, of Git or of Docker."""
        verb, nouns = _split(rest)
        self.text = f"run a read query in {self.subject}"
        if verb:
            self.text = " ".join((_SPELLED.get(verb, verb.lstrip(".")), *nouns, "in", self.subject))
        elif program in FETCHING:
            self.text = "fetch a web page"
        alone = _FETCH if program in FETCHING else _RUN
        self._verbs = _stems((_MEANS.get(verb, verb) if verb else alone).replace("-", " ").split())
        self._nouns = [_stems(noun.split()) for noun in nouns]
        self._is_list = verb in ("list", "ls")
        is_read = verb in _READS.split() or verb.startswith(".") or program in FETCHING
        is_write = verb in _WRITES.split()
        self._against = _stems((_WRITES if is_read else _READS if is_write else "").split()) - self._verbs

    def fit(self, tool: Tool, server_names: Iterable[str]) -> int | None:
        """Return how much of a tool's name the command lacks; None if the tool does something else."""
        words = in_words(tool.name).split()
        said = list(map(stem, words))
        name = frozenset(said)
        sentence = _stems(_first_sentence(tool))
        about = name.union(*(_stems(in_words(each).split()) for each in (tool.upstream, *server_names)))
        if not self._names_alone:
            about |= sentence
        if not (self._subjects & about and self._verbs & name) or self._against & name:
            return None
        if self._is_list and self._verbs & name <= _OF_ONE and not self._in_plural(words):
            return None
        in_name = [noun for noun in self._nouns if noun <= name]
        if self._nouns and not in_name and not any(noun <= sentence for noun in self._nouns):
            return None
        known = self._verbs.union(self._subjects, *self._nouns)
        return sum(each not in known for each in said) + 2 * bool(self._nouns and not in_name)

    def _in_plural(self, words: Iterable[str]) -> bool:
        """Return whether a name has a noun of the command in plural: `get_issue` lists nothing, `get_issues` does."""
        return any(word.endswith("s") and any(stem(word) in noun for noun in self._nouns) for word in words)


def search_words(shape: Shape) -> str:
    return _Wanted(shape).text


def find_served(
    shape: Shape, ranking: Ranking, get: Callable[[ToolId], Tool | None], names: Callable[[str], Iterable[str]]
) -> Tool | None:
    """Return the tool that does what a shell command does; None if none clearly does. `names` returns what the user
    calls a server."""
    wanted = _Wanted(shape)
    tools = [tool for ranked in ranking.ranked[:_LOOKED_AT] if (tool := get(ranked.tool)) is not None]
    fitting = [(lack, tool) for tool in tools if (lack := wanted.fit(tool, names(tool.upstream))) is not None]
    return min(fitting, key=lambda each: each[0])[1] if fitting else None  # of equal ones that with the better rank


def _split(subcommand: list[str]) -> tuple[str, list[str]]:
    """Return the verb of a subcommand, "" without one, and its nouns as tools spell them."""
    if not subcommand:
        return "", []
    *nouns, verb = subcommand
    if nouns == ["search"] and verb in _SEARCHES:
        return "search", [_SPELLED.get(verb, verb)]
    if verb in _LISTED:
        return "list", [_LISTED[verb]]
    if verb.startswith("."):
        nouns = [verb]
    return verb, [_SPELLED.get(noun, noun) for noun in nouns]


def _stems(words: Iterable[str]) -> frozenset[str]:
    return frozenset(map(stem, words))


def _first_sentence(tool: Tool) -> list[str]:
    return in_words(document(tool, "").description.split(". ")[0][:_SENTENCE].lower()).split()
