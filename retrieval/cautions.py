"""What a description warns of: that its tool is deprecated, overwrites something, or does what cannot be undone."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Final

from msgspec.structs import replace

from foretool.retrieval.ranking import REPLACES, Ranked
from foretool.storage.records import ToolId

_MOST_READ: Final = 8_000
"""Characters of a description that are read."""
_SENTENCE: Final = re.compile(r"(?<=[.!?])[*_]*\s+|\n\s*\n|\n(?=\s*[*#-])")
"""What stands between two sentences."""
_DEPRECATED: Final = re.compile(
    r"\W*(?:this (?:\w+ )?(?:is|has been) (?:now )?)?(?:deprecated|superseded by|obsolete)\b", re.IGNORECASE
)
"""The beginning of a sentence that is said of the tool, and not of one of its parameters."""
_WARNS: Final = re.compile(r"\b(?:overwrit\w+|irreversibl[ey]|cannot be undone|caution)\b", re.IGNORECASE)
_REPLACED: Final = re.compile(
    r"\b(?:use|superseded by|replaced by|in favou?r of|prefer)\s+(?:the\s+)?[`'\"*]{0,3}([A-Za-z][\w.-]*\w)",
    re.IGNORECASE,
)
"""The name of what is to be used instead."""


def find_warning(description: str) -> str:
    """Return the sentence with a warning behind the first sentence of a description; "" if there is none, or if the
    first sentence calls the tool deprecated."""
    first, *others = [*_sentences(description)] or [""]
    if _DEPRECATED.match(first):
        return ""
    deprecated = (each for each in others if _DEPRECATED.match(each))
    return next(deprecated, "") or next(filter(_WARNS.search, others), "")


def find_replacements(description: str) -> list[str]:
    """Return the names of the tools to use instead of a deprecated one, by its description; [] for others."""
    said = description[:_MOST_READ].lower()
    if not any(word in said for word in ("deprecated", "superseded by", "obsolete")):
        return []
    following = pairwise([*_sentences(description), ""])
    found = next((f"{one} {other}" for one, other in following if _DEPRECATED.match(one)), "")
    return _REPLACED.findall(found)


def put_replacements_first(
    ranked: Sequence[Ranked], replacements_of: Callable[[ToolId], Sequence[ToolId]]
) -> tuple[Ranked, ...]:
    """Return a ranking in which no deprecated tool stands above the one that replaces it: the two change places, and
    the scores stay where they are. `replacements_of`: the tools that replace one."""
    order = list(ranked)
    for place, each in enumerate(ranked):
        if (wanted := replacements_of(each.tool)) and order[place] is each:
            behind = islice(enumerate(order), place + 1, None)
            at = next((at for at, other in behind if other.tool in wanted), None)
            if at is not None:
                leader = order[at]
                order[place] = replace(leader, score=each.score, reasons=(*leader.reasons, REPLACES))
                order[at] = replace(each, score=ranked[at].score)
    return tuple(order)


def _sentences(text: str) -> Iterator[str]:
    for each in _SENTENCE.split(text[:_MOST_READ]):
        if said := " ".join(each.split()).strip("*_#- "):
            yield said
