"""Wordings of wishes for the tools of well-known servers, which come with foretool (`known_tools.tsv`).

A language model wrote them for this project; it had seen the name, description and parameters of each tool, and no task
of any data set. A line of the file has, separated by tabs: the words of the tool's name, the server, a sketch of its
definition, a plain request, a question, a vague wish for which the tool is the means, and a few search words.
`python -m bench.learning.known_tools` makes the file.

Versions of a server differ, and servers of all kinds have a tool `search`. So a tool is known if it has the same name
and at least half of the words of its description and of its parameters in common. The texts of others are not in the
file: a sketch has the smallest of the hashes of these words, and two sketches tell how much two sets have in common
(bottom-k sketches, Broder 1997).
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection
from functools import lru_cache
from hashlib import blake2b
from heapq import nsmallest
from pathlib import Path
from typing import Final

from msgspec import Struct

from foretool.retrieval.document import Document
from foretool.retrieval.near_words import SortedLines
from foretool.retrieval.words import in_words, terms

FILE: Final = Path(__file__).with_name("known_tools.tsv")
_LEAST_COMMON: Final = 0.5
"""How much of the words of two tools has to be the same (`docs/benchmarks.md`)."""
SKETCHED: Final = 24
"""How many hashes a sketch has at most."""
_HASH_BYTES: Final = 2


class KnownTool(Struct, frozen=True):
    """A well-known tool: one line of the shipped file."""

    name: str
    """The words of the name."""
    server: str
    sketch: frozenset[int]
    wishes: tuple[str, ...]
    """A plain request, a question, a vague wish, and search words; searches read all of them."""


class KnownTools:
    """The well-known tools of the shipped file, found by name and content."""

    def __init__(self, data: bytes) -> None:
        self._lines = SortedLines(data, b"\t")

    def find(self, document: Document) -> KnownTool | None:
        """Return the well-known tool that has this name and mostly the same text, so perhaps another version of it;
        None if there is none."""
        name = in_words(document.name)
        lines = self._lines.find(name.encode("utf-8", "replace"))
        if not lines:
            return None
        sketch = sketch_definition(document)
        common, best = max(
            ((share_in_common(sketch, each.sketch), each) for each in (read_line(name, line) for line in lines)),
            key=lambda found: found[0],
        )
        return best if common >= _LEAST_COMMON else None


def shipped_wordings(document: Document) -> tuple[str, ...]:
    """Return the wordings that come with foretool for a tool; () if it is not a known one."""
    found = known_tools().find(document)
    return found.wishes if found is not None else ()


def read_line(name: str, rest: bytes) -> KnownTool:
    """Read one line of the file of well-known tools. `rest` is the line without the name and the tab behind it."""
    server, sketch, *wishes = rest.decode().split("\t")
    return KnownTool(name, server, _read_sketch(sketch), tuple(wishes))


def write_line(tool: KnownTool) -> str:
    return "\t".join((tool.name, tool.server, _write_sketch(tool.sketch), *tool.wishes)) + "\n"


def sketch_definition(document: Document) -> frozenset[int]:
    words = {*terms(document.description), *(f"={in_words(each)}" for each in document.parameters)}
    return frozenset(nsmallest(SKETCHED, {_hash(word) for word in words}))


def share_in_common(one: Collection[int], other: Collection[int]) -> float:
    """Estimate how much of two sets is in both, 0 to 1 (Jaccard), from their sketches."""
    both = set(one).intersection(other)
    least = nsmallest(SKETCHED, both.union(one, other))
    return sum(each in both for each in least) / len(least) if least else 0.0


@lru_cache(maxsize=1)
def known_tools() -> KnownTools:
    """Return the well-known tools that come with foretool. The file is read once, until `let_go`."""
    return KnownTools(FILE.read_bytes())


def let_go() -> None:
    """Give back the memory of the file. The next use reads it again, which takes a millisecond."""
    known_tools.cache_clear()


def _hash(word: str) -> int:
    data = word.encode("utf-8", "replace")
    return int.from_bytes(blake2b(data, digest_size=_HASH_BYTES).digest())


def _write_sketch(sketch: Collection[int]) -> str:
    return b64encode(b"".join(each.to_bytes(_HASH_BYTES) for each in sorted(sketch))).decode().rstrip("=")


def _read_sketch(text: str) -> frozenset[int]:
    data = b64decode(text + "=" * (-len(text) % 4))
    return frozenset(int.from_bytes(data[at : at + _HASH_BYTES]) for at in range(0, len(data), _HASH_BYTES))
