"""Cuts text into terms, so that a query and a tool share those they have in common.

Names are written `createIssue`, `create_issue` or `github__create-issue` and searched as "create issue"; all four must
match. Tools and queries are cut alike, so a crude stem does no harm.
"""

from __future__ import annotations

import re
from functools import cache, lru_cache

# Han, kana and hangul are written without spaces, so every character is a term of its own.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
_ASCII_CHUNK = re.compile(r"[^\W_]+")
_HUMPS = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[^\WA-Z]+|[A-Z]+\d*|[A-Z]")

_STOP = """
    a about above after again all also am an and any are as at be because been before being between both but by can
    could did do does doing done down during each else every few for from further give had has have having he help
    her here hers him his how i if in into is it its itself just know let like ll look looking may mcp me might more
    most must my myself need needs no nor not now of off on once one only or other our ours out over own per please
    provide re s same shall she should show so some such t tell than that the their theirs them then there these
    they this those through to too under until up upon us use used uses using ve very via want wants was we were
    what when where whether which while who whom whose why will with within without would you your yours
"""
STOP_WORDS = frozenset(_STOP.split())

_SAME_DEEDS = (
    "search find lookup query", "create add make", "delete remove", "update edit modify change", "open navigate visit",
)  # fmt: skip
"""Verbs that people and tool authors use for one another; each group means one thing (`docs/benchmarks.md`)."""

GET = "get"
_QUESTION = re.compile(r"\W*(?:what|which|who|whom|whose|where|when|how (?:much|many|long|far|old))\b", re.IGNORECASE)


@cache
def _any_chunk() -> re.Pattern[str]:
    """Return the pattern of the chunks of any text; compiling it takes 2 ms, which no start has to wait for."""
    return re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")


def chunks(text: str) -> list[str]:
    """Cut a text at everything but letters and digits; where no spaces are written, each character is a chunk."""
    return (_ASCII_CHUNK if text.isascii() else _any_chunk()).findall(text)


def is_question(text: str) -> bool:
    """Return whether a text begins as a question for something does; what answers it is named `get` by most authors."""
    return _QUESTION.match(text) is not None


def terms(text: str) -> list[str]:
    """Return the stemmed terms of a text in order, without stop words."""
    found: list[str] = []
    for chunk in chunks(text):
        found += _terms_of(chunk)
    return found


def own_terms(name: str, summary: str, upstream: str) -> frozenset[str]:
    """Return the terms of a tool's name and summary without those of its server's name. Tools that share most of them
    do the same."""
    return frozenset(terms(f"{name} {summary}")).difference(terms(upstream))


def spell_terms(text: str) -> dict[str, str]:
    """Return the terms of a text, each with the word as it was first written."""
    found: dict[str, str] = {}
    for chunk in chunks(text):
        for word in map(str.lower, _pieces(chunk)):
            if word not in STOP_WORDS:
                found.setdefault(stem(word), word)
    return found


def in_words(name: str) -> str:
    """Split a name into words: `createIssue`, `create_issue` and `create-issue` become "create issue"."""
    return " ".join(hump.lower() for chunk in chunks(name) for hump in _humps(chunk))


def compact(name: str) -> str:
    """Return the letters and digits of a name in lower case, without separators."""
    return "".join(chunks(name)).lower()


def letter_pairs(name: str) -> set[str]:
    """Return the pairs of neighbouring letters in a name."""
    return {name[at : at + 2] for at in range(len(name) - 1)}


# Tool texts repeat themselves: this cache answers nine chunks in ten and makes an index four times as fast.
@lru_cache(maxsize=8192)
def _terms_of(chunk: str) -> tuple[str, ...]:
    lowered = (piece.lower() for piece in _pieces(chunk))
    return tuple(stem(word) for word in lowered if word not in STOP_WORDS)


def _humps(chunk: str) -> list[str]:
    if chunk.islower() or chunk.isdecimal():
        return [chunk]
    return _HUMPS.findall(chunk) or [chunk]


def _pieces(chunk: str) -> list[str]:
    humps = _humps(chunk)
    # Others write "GitHub" and "YouTube" as one word, so it stays beside its humps.
    return [*humps, chunk] if len(humps) > 1 and chunk[0].isupper() else humps


def stem(word: str) -> str:
    """Cut off an English ending: "creating", "created", "creates" and "create" all become "creat"."""
    size = len(word)
    if size > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif size > 5 and word.endswith("ing"):
        word = word[:-3]
    elif size > 4 and word.endswith(("ed", "es")):
        word = word[:-2]
    elif size > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    return word[:-1] if len(word) > 4 and word.endswith("e") else word


_GROUPS = [[stem(word) for word in deed.split()] for deed in _SAME_DEEDS]
KINDRED = {term: tuple(other for other in group if other != term) for group in _GROUPS for term in group}
"""By term, the other terms that mean the same."""
KINDRED_WORDS = {GET: GET} | {stem(word): word for deed in _SAME_DEEDS for word in deed.split()}
"""By such a term, the word as it is written."""
