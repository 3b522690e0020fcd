"""What a tool could say of itself, or be called, so that searches in the words of people find it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final

from foretool.retrieval.words import spell_terms, terms
from foretool.server.catalog.catalog import Catalog
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.trust.text import one_line
from foretool.storage.records import Tool

FOR: Final = "Used for:"
MOST_WORDS: Final = 200
"""Characters of a task that go into a description."""
TRIED_WORDS: Final = 5
"""So many words of the tasks are looked at for a name."""
LONGEST_NAME: Final = 40
_WORD: Final = re.compile(r"[A-Za-z]{3,20}\Z")
"""A word that can stand in a name."""
_PARTS: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
"""The words of a name."""
_SAYS_HOW: Final = re.compile(
    r"(ly|ed|ing|i[sz]e)\Z|\A(every|full|more|new|next|now|soon|to(day|morrow|night)|yesterday)\Z", re.IGNORECASE
)
"""A word that is probably no noun."""


def describe_for(tool: Tool, query: str) -> str | None:
    """Return the description of a tool with the words of a task at its end; None if there are no words, or they are
    there already."""
    words = cut_words(query)
    said = read_description(tool)
    if not words or words.lower() in said.lower():
        return None
    return f"{said.rstrip()} {words}." if FOR in said else f"{said.rstrip()}\n{FOR} {words}.".lstrip()


def cut_words(query: str, most: int = MOST_WORDS) -> str:
    """Return the words of a task in one line."""
    return one_line(" ".join(query.split()), most).rstrip(".")


def name_for(catalog: Catalog, tool: Tool, tasks: Sequence[str], other: Tool | None = None) -> str | None:
    """Return the name that has the word which most tasks of this tool share, and which its own name lacks. The name of
    another tool that is taken for it, and what that one says, lack the word as well. None for a tool that the user has
    named, and where no word will do: a name of several words does not read like one with another word behind it, nor
    does one with a word that says when or how."""
    if (tool.upstream, tool.name) in catalog.overrides.names or len(_PARTS.findall(tool.name)) > 1:
        return None
    said = f"{tool.name} {other.name} {read_description(other)}" if other is not None else tool.name
    known = set(terms(said))
    shared = Counter(
        word
        for task in tasks
        for term, word in spell_terms(task).items()
        if term not in known and _WORD.match(word) and not _SAYS_HOW.search(word)
    )
    for word, _ in shared.most_common(TRIED_WORDS):
        name = f"{tool.name}{'-' if '-' in tool.name and '_' not in tool.name else '_'}{word.lower()}"
        if len(name) <= LONGEST_NAME and _is_free(catalog, tool, name):
            return name
    return None


def _is_free(catalog: Catalog, tool: Tool, name: str) -> bool:
    """Tell whether a server may have a tool of this name, and has none."""
    is_allowed = catalog.namespaces.refusal(tool.upstream, name) is None
    return is_allowed and catalog.find(catalog.overrides.exposed(tool.upstream, name)) is None


def read_description(tool: Tool) -> str:
    """Return what a tool says of itself, "" if it says nothing."""
    return jsonrpc.member(Raw(tool.definition), "description") or ""
