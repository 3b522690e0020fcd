"""Tells the members of an enumeration apart: a sentence that lists what it needs has one need in each member.

"We want a system that tracks parcels, prints labels, and tells customers when to be home" has three needs. A list of
three or more members counts where all of them begin in one form (tracks, tracking, or the bare verb after "to"), or
where a word such as "including" or a colon announces them. Three names of towns in a sentence are no needs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from foretool.retrieval.words import terms

_LEAST = 3
"""A list of fewer members is no enumeration: the joining words of two needs split them already."""
_LEAST_TERMS = 2
"""A member with fewer different terms names no need. Fewer than for a clause: the sentence says the rest."""

_COMMA = re.compile(r",\s+(?:(?:and|or|plus|as well as)\s+)?", re.IGNORECASE)
_JOINED_LAST = re.compile(r",\s+(?:and|or|plus|as well as)\s", re.IGNORECASE)
_JOINT = re.compile(r"\s(?:and|or)\s", re.IGNORECASE)
_BEFORE_ANNOUNCED = re.compile(r",\s+(?=(?:including|such as|covering|namely|for example)\b)", re.IGNORECASE)
_ANNOUNCED = re.compile(r"(?:\b(?:including|such as|covering|namely|for example)|:)\s+(?=\S)", re.IGNORECASE)
_DOING = re.compile(r"\b\w{2,}ing\b")
_DOES = re.compile(r"\b(?:that|which|who|it|also|and)\s+(?=\w+s\b)", re.IGNORECASE)
_DO = re.compile(
    r"\bto\s+(?=\w)|\b(?:can|could|should|will|must|please|would)\s+(?:you\s+)?(?:please\s+)?(?=\w)", re.IGNORECASE
)
_NO_VERB = re.compile(
    r"(?:the|an?|with|at|in|on|of|for|from|by|my|our|your|their|his|her|its|if|when|where|while|because|since|so|which"
    r"|who|that|what|how|i|we|you|they|it|he|she|can|could|\W*\d)\b",
    re.IGNORECASE,
)
"""Starts of members that are no deeds: more about the one before."""


def members(sentence: str) -> list[str]:
    """Return the members of the enumeration in a sentence; [] where it has none. What stands before the first member
    is left out."""
    first, *others = _COMMA.split(_BEFORE_ANNOUNCED.sub(" ", sentence.strip().rstrip(".!?;")))
    if others and not _JOINED_LAST.search(sentence):
        others = _part_last(others)
    if len(others) < _LEAST - 1 or (start := _start(first, others)) is None:
        return []
    found = [first[start:].strip(), *(each.strip() for each in others)]
    return found if all(len(set(terms(each))) >= _LEAST_TERMS for each in found) else []


def _part_last(others: Sequence[str]) -> list[str]:
    """Part "B and C", the end of "A, B and C", where B and C have one form; [] where nothing joins the last two."""
    *before, last = others
    form = _form(before[0] if before else last)
    for joint in _JOINT.finditer(last):
        if _form(last[joint.end() :]) is form:
            return [*before, last[: joint.start()], last[joint.end() :]]
    return []


def _start(first: str, others: Sequence[str]) -> int | None:
    """Return where the first member begins in what stands before the first comma; None where it is no member."""
    if announced := list(_ANNOUNCED.finditer(first)):
        return announced[-1].end()
    forms = {_form(each) for each in others}
    if len(forms) > 1 or any(map(_NO_VERB.match, others)):
        return None
    return forms.pop()(first)


def _doing(first: str) -> int | None:
    """Find the last word in -ing that has something behind it."""
    starts = [found.start() for found in _DOING.finditer(first)]
    return next((at for at in reversed(starts) if len(set(terms(first[at:]))) >= _LEAST_TERMS), None)


def _does(first: str) -> int | None:
    """Find the last verb in -s that follows a word such as "that"."""
    return max((found.end() for found in _DOES.finditer(first)), default=None)


def _do(first: str) -> int | None:
    """Find the first verb that follows "to" or a request."""
    return next((found.end() for found in _DO.finditer(first)), None)


def _form(member: str) -> Callable[[str], int | None]:
    """Return what finds the first member, by the form in which another one begins."""
    verb = member.lstrip().partition(" ")[0].lower()
    if len(verb) > 4 and verb.endswith("ing"):
        return _doing
    return _does if len(verb) > 3 and verb.endswith("s") and not verb.endswith("ss") else _do
