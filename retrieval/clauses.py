"""Splits a task into its needs: a paragraph asks for several things, and a tool meets one of them.

The paragraph as a whole says what it is about, and each clause what is needed there. Both are read, because nobody
tells which paragraph is one story and which is a list of wishes. A short task has several needs where it says so:
"count the lines and remember the number" has two steps.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from foretool.retrieval.enumerations import members
from foretool.retrieval.glossary import is_put_into_english, language_of, put_into_english
from foretool.retrieval.ranking import MAX_LINES, MAX_NEED_WORDS
from foretool.retrieval.words import terms

MOST = 8
"""The budget of a task: with more clauses, the shortest neighbours are joined."""
_READ = 64
"""So many clauses are told apart; what stands behind them belongs to the last one."""
_LEAST_TERMS = 4
"""A clause with fewer different terms names no need of its own."""
_LEAST_STEP = 2
"""The same for a step of a short task."""
LONG = 14
"""With encoders a task of more words is read clause by clause; by words alone only a paragraph."""
STORY = 80
"""A task of more words is a story: its clauses say where it plays as often as what is needed."""
SHARE = 0.6
"""What the best clause of a tool counts beside the task as a whole, by words alone and in a story."""

_SENTENCE = re.compile(r"(?<=[.!?;]) |(?<=[\u3002\uff01\uff1f\uff1b])")
_END = re.compile(
    r"(?<=[.!?;:]) | [\u2013\u2014-] |(?<=[\u3002\uff01\uff1f\uff1b])"
    r"|, (?=(?:and|then|but|also|plus|so)\b)| (?=(?:and then|and also|after that|as well as)\b)",
    re.IGNORECASE,
)


_DEEDS = """
    add append apply attach book build calculate call cancel change check click close commit compare compute convert
    copy count create cut delete describe download draft draw edit email enter export extract fetch fill filter find
    format forward generate get give highlight import insert install keep list load log look make mark merge message
    move name note notify open order paste plot post print publish push put read record remember remove rename replace
    reply report reset resize run save schedule search select send set share show sort start stop store submit summarize
    take tell test text transfer translate turn type update upload use visit watch write
"""
_STEP = re.compile(
    r",? (?:and )?(?:then|after that|afterwards),? |,? and also |; |"
    rf"(?:[.?],?|,? and|,) (?=(?:{'|'.join(_DEEDS.split())}|(?:work|figure|find) out|look up)\b)",
    re.IGNORECASE,
)
"""What stands between two steps of a short task: a word for it, or "and" before another deed."""

_FILE = re.compile(
    r"(?<!file )(?<![\w/.:@-])(?:(?:the|a|my|this) )?"
    r"([\w-]+\.(?:txt|md|rst|csv|tsv|jsonl?|ya?ml|toml|ini|xml|html?|css|log|sql|py|sh)\b)(?![./])",
    re.IGNORECASE,
)
"""A file of text that a step names without calling it a file: by meaning, "save it to page.html" asks for a page, and
"read budget.csv" for a spreadsheet. Other kinds of files have servers of their own."""


def steps(need: str) -> list[str]:
    """Return the steps of a short need that names several in a row ("do this, then that"); [] where it names one."""
    found = [_FILE.sub(r"the file \1", piece.strip()) for piece in _STEP.split(" ".join(need.split()))]
    return found if 1 < len(found) <= MOST and all(len(set(terms(each))) >= _LEAST_STEP for each in found) else []


def clauses(need: str, longer_than: int = MAX_NEED_WORDS) -> list[str]:
    """Return the clauses of a need of more words than `longer_than`, at most `MOST`; [] for a shorter need and for one
    clause."""
    lines = [" ".join(line.split()) for line in need.splitlines()]
    size = _count_words(lines)
    if size <= longer_than:
        return []
    found = _listed(lines) if size <= STORY else []
    if not found:
        found = _told_apart([piece for line in lines for piece in _END.split(line)])
    while len(found) > MOST:
        sizes = [len(piece) for piece in found]
        at = min(range(len(found) - 1), key=lambda place: sizes[place] + sizes[place + 1])
        found[at : at + 2] = [f"{found[at]} {found[at + 1]}"]
    return found if len(found) > 1 else []


def _told_apart(pieces: Sequence[str]) -> list[str]:
    """Return the pieces that name a need."""
    said = [piece.strip() for piece in pieces if piece.strip()]
    said = [*said[: _READ - 1], " ".join(said[_READ - 1 :])]
    return [piece for piece in said if len(set(terms(piece))) >= _LEAST_TERMS]


def _listed(lines: Sequence[str]) -> list[str]:
    """Return the clauses of a need of which a sentence enumerates needs, each member a clause; [] where none does."""
    found: list[str] = []
    enumerates = False
    for sentence in (each for line in lines for each in _SENTENCE.split(line)):
        listed = members(sentence)
        enumerates |= bool(listed)
        found += listed or _told_apart(_END.split(sentence))
    return found if enumerates else []


@lru_cache(maxsize=64)
def in_english(need: str) -> str:
    """Return a need with its foreign words replaced by English ones, line by line; one in English stays as it is."""
    if not is_put_into_english(need):
        return need
    lines = need.splitlines()
    # Each of a few lines tells its own language; of hundreds, that would be asked thousands of times a search.
    language = language_of(need) if len(lines) > MAX_LINES else None
    return "\n".join(put_into_english(line, language) for line in lines)


_LEAST_PASTED = 200
"""A shorter need is no pasted block: "run tests/a.py with -x" is one wish."""
_PLAIN = 0.72
"""The share of letters in plain words below which a need is mostly code, a log or data: of 2,025 long prompts and
tasks of the data sets in use 2% have less, and these hold such a block."""
_MARKS = ".,;:!?()[]\"'`*-" + (
    _WIDE_MARKS := "\u2013\u2014\u2018\u2019\u201c\u201d\u2026\u3001\u3002\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f"
)
"""What stands at the end of a word; Chinese has the wide ones between words too."""
_PLAIN_WORD = re.compile(rf"[^\W\d_]+(?:['/.{_WIDE_MARKS}-][^\W\d_]+)*")


def is_pasted(need: str) -> bool:
    """Return whether most of a need is a pasted block, whose words are no wishes: code, a stack trace, a log, data."""
    if len(need) < _LEAST_PASTED:
        return False
    words = need.split()
    plain = (word for word in words if not (core := word.strip(_MARKS)) or _PLAIN_WORD.fullmatch(core))
    return sum(map(len, plain)) < _PLAIN * sum(map(len, words))


def is_story(need: str) -> bool:
    """Return whether a need is so long that most of its clauses tell a story."""
    return _count_words([" ".join(line.split()) for line in need.splitlines()]) > STORY


def _count_words(lines: Sequence[str]) -> int:
    return sum(line.count(" ") + 1 for line in lines if line)


def longest_whole(*, by_words: bool) -> int:
    """Return up to how many words a need is searched as one text; `by_words`: whether the ranking uses words alone."""
    return MAX_NEED_WORDS if by_words else LONG


def parts(need: str, *, by_words: bool) -> list[str]:
    """Return the clauses of a long need, or its steps where these are more; [] where it is searched as one text. A
    need in another language is split where its English is, and its parts are in English."""
    need = in_english(need)
    told = clauses(need, longest_whole(by_words=by_words))
    # A short clause names no need of its own, a short step does: "and tell me the time in Tokyo".
    found = [] if told and is_story(need) else steps(need)
    return found if len(found) > len(told) else told


def split_task(needs: Sequence[str], *, by_words: bool = False) -> list[str]:
    """Return every text of a task that a search scores: its needs, then all of them as one, or the clauses of a single
    need."""
    if len(needs) == 1:
        return [*needs, *parts(needs[0], by_words=by_words)]
    return [*needs, "\n".join(needs)] if needs else []
