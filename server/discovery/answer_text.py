"""The text of an answer of `discover_tools`, as a model reads it: its lines, and what it says beside the matches."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from foretool.retrieval.ranking import IN_USE, REPLACES, SERVER_NAMED, USED
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.names import CALL, CALL_WRITE
from foretool.server.catalog.signatures import CUT, name_calls, split_call
from foretool.server.discovery.answer_shape import MOST_SAME, Lacks, Request
from foretool.server.discovery.server_map import write_map
from foretool.server.discovery.skill_search import describe_offer
from foretool.server.methods.skills import SkillOffer
from foretool.server.protocol import jsonrpc
from foretool.server.trust.approvals import why_held
from foretool.server.trust.policy import Reach
from foretool.server.trust.text import one_line, quote
from foretool.storage.records import Level, Tool, ToolId

if TYPE_CHECKING:
    from foretool.retrieval.fragments import Fragment

_FOR_PEOPLE: Final = (
    "name", "similar name", SERVER_NAMED, "words", "words alike", "words translated", "meaning", USED, IN_USE,
    "like an earlier task", "often comes first", REPLACES,
)  # fmt: skip
"""Reasons that explain a ranking to people. A model can do nothing with them, so its text leaves them out."""
_MARKS: Final = {"listed": "listed", "read": CALL, "write": CALL_WRITE, "down": "server down"}
"""What stands behind a name, by the key of a match."""
NOT_DONE: Final = "Nothing has run yet: call the tool that fits now, and answer only from its result."
"""Said of tools that are found: without it a small model mostly answered from the descriptions and called none
(docs/agents.md)."""
_STEPS_NOT_DONE: Final = "Nothing has run yet: call the tool of the first step now, and answer only from results."
"""The same for a task of several needs."""
_PERHAPS_NONE: Final = (
    "Perhaps none of these tools does it. Nothing has run yet: call the one that fits{}, if one does, and else say that"
    " no tool does it."
)
"""Said in place of that in doubt: a model that is told to call a tool takes the nearest one."""
_NONE: Final = "No tool is likely to fit this task. Say it in other words, or name a server."
_NONE_OF_THE_NEAREST: Final = (
    "No tool is likely to fit this task. Call one of the nearest only if its description fits; else say the task in"
    " other words, or tell the user that no tool does it."
)
_ROUNDED_S: Final = 5
"""In which steps an answer says how long something takes."""
_MOST_MARKS: Final = 4
"""So many words of an entry say what tells it from others: its last ones, as paths and addresses end with what tells
most."""


def say_unread() -> str:
    """Ask for a task in English."""
    from foretool.retrieval.languages import NAMES

    return f"few words of this task are known: beside English, {', '.join(NAMES.values())} are read. If no tool below \
fits, ask again in English"


def say_by_words(ready_in_s: float) -> str:
    """Return the note with which an answer begins while tools are still being embedded."""
    about = max(math.ceil(ready_in_s / _ROUNDED_S), 1) * _ROUNDED_S
    return (
        f"search by meaning is still being prepared, for about {about} s: until then tools are found by their words, so"
        " ask again after that if none of these fits"
    )


def say_shared(name: str, tools: Sequence[ToolId]) -> str:
    """Say that several servers have a tool of one name, and how each is called."""
    more = f" and {len(tools) - MOST_SAME} more" if len(tools) > MOST_SAME else ""
    return f"{len(tools)} servers have a tool {name!r}: {', '.join(tools[:MOST_SAME])}{more}"


def _tell_apart(servers: Sequence[str], catalog: Catalog) -> list[str]:
    """Say which servers have a tool that does the same, each with the folders that the others are not given, or else
    with the words of its entry that the others lack."""
    if not servers:
        return []
    folders, words = catalog.texts.names.folders_apart(servers), catalog.texts.names.tell_apart(servers)
    marks = {name: ", ".join(folders.get(name, ())) or " ".join(words.get(name, ())[-_MOST_MARKS:]) for name in servers}
    each = [f"{name} ({mark})" if mark else name for name, mark in marks.items()]
    more = f" and {len(each) - MOST_SAME} more" if len(each) > MOST_SAME else ""
    return [f"The same tool on {len(each)} servers: {', '.join(each[:MOST_SAME])}{more}"]


def say_same(shared_names: Mapping[str, Sequence[ToolId]], twins: Sequence[str], catalog: Catalog) -> dict[str, str]:
    """Say which tools have one name, or else which servers have a tool that does the same; {} if there are none."""
    said = [say_shared(name, tools) for name, tools in shared_names.items()] or _tell_apart(twins, catalog)
    return {"twins": ". ".join([*said, "Take the one that the task means."])} if said else {}


def say_unknown(names: Sequence[str], catalog: Catalog, reach: Reach, held: Mapping[str, str]) -> str:
    """Say of names that were asked for why they mean no tool, as a call of them would be told. `held`: the servers of
    those that wait for the user."""
    said, nobodys = [], []
    for name in names:
        gone = catalog.meanings.why_gone(name)
        if name in held:
            said.append(f"{name!r} cannot be called: {why_held(held[name])}.")
        elif gone is None or not reach.admits(gone.upstream):
            nobodys.append(repr(name))
        else:
            said.append(f"{name!r} cannot be called: {gone.for_model}.")
    return " ".join([*said, *([f"No tool is called {', '.join(nobodys)}."] if nobodys else [])])


def advise(level: Level, unknown: str, lacks: Lacks, tools: int, calling: str, *, has_matches: bool, has_names: bool,
            has_more: bool, is_lookup: bool) -> str:  # fmt: skip
    """Return the advice at the end of an answer. `unknown`: what is said about names that mean no tool; `calling`: how
    the matches are called, or the nearest tools where there are none; `has_names`: some tools are named without any
    argument, `has_more`: some without all of them."""
    said = [unknown] if unknown else []
    if is_lookup and unknown:
        said.append("To find the tool for a task, describe the task.")
    elif level == "none" and not (lacks.unsearched or has_matches):
        said.append(_NONE_OF_THE_NEAREST if calling else _NONE)
    if calling:
        said.append(calling)
    unsaid = [*([f'behind "{CUT}"'] if has_more else []), *(["of a further match"] if has_names else [])]
    if unsaid:
        said.append(f'For the arguments {" or ".join(unsaid)}: discover_tools(names=["its name"]).')
    if lacks.unsearched:  # thousands of tools came at once and are still being indexed
        said.append(
            f"{min(lacks.unsearched, tools)} of {tools} tools are not searched yet: if none of these fits, ask again in"
            " a few seconds."
        )
    elif (level in ("low", "medium") or (level == "none" and has_matches)) and not is_lookup:
        said.append("If none fits, say the task in other words, or name a server.")
    return " ".join(said)


def _say_not_done(needs: int, *, is_doubtful: bool) -> str:
    """Say that a search calls nothing, and what to call next."""
    if is_doubtful:
        return _PERHAPS_NONE.format(" the first step" if needs > 1 else "")
    return _STEPS_NOT_DONE if needs > 1 else NOT_DONE


def _cited(fragment: Fragment) -> str:
    """Show instructions: the user's own as they are, those of a server quoted, so that they cannot pose as other lines
    of the answer."""
    source = one_line(fragment.source)
    return (
        f"instructions ({source}):\n{quote(fragment.text)}"
        if fragment.upstream
        else f"instructions ({source}): {fragment.text}"
    )


class AnswerText:
    """What a model reads: the first matches in a line each, the further ones by their names alone, or with what their
    calls need. Everything but the schemas is written once; how long that is says which schemas there is room for."""

    def __init__(
        self, structured: Mapping[str, Any], lined: int, fragments: Sequence[Fragment],
        skills: Sequence[SkillOffer], wanted: Request,
    ) -> None:  # fmt: skip
        """`lined`: how many matches have a line."""
        cards = structured["matches"]
        note = structured.get("note", "")
        confidence = "" if wanted.is_lookup else f"confidence: {structured['confidence']}{note and f'; {note}'}"
        is_doubtful = structured["confidence"] in ("low", "none") and not wanted.is_lookup
        nearest, advice = structured.get("nearest"), structured.get("advice")
        if nearest:  # before these are read, it is said what to do with them
            next_step, advice = advice, ""
        else:
            next_step = _say_not_done(wanted.needs, is_doubtful=is_doubtful) if cards else ""
        absent = structured.get("absent", "")
        head, ending = (absent, "") if wanted.lacks_likely else ("", absent)
        self._head = "\n".join(filter(None, (head, ". ".join(filter(None, (confidence, next_step))))))
        self._skills = list(map(describe_offer, skills))
        self._lined = [(card, f"{place}. {_line(card)}") for place, card in enumerate(cards[:lined], 1)]
        self._named = [*_same(cards), *_further(cards[lined:], "call" if wanted.is_paragraph else "name")]
        self._ending = list(map(_cited, fragments))
        if nearest:
            self._ending += ["nearest tools:", *(f"- {_line(card)}" for card in nearest)]
        if servers := structured.get("servers"):
            self._ending += write_map(servers)
        self._ending += filter(None, (structured.get("twins"), ending, advice))

    def with_schemas(self, shared: Mapping[str, Any]) -> str:
        """Return the text with the schemas that the matches have by now, and the definitions that they share."""
        lines = [*filter(None, [self._head]), *self._skills]
        for card, line in self._lined:
            lines.append(line)
            if "inputSchema" in card:
                lines.append("   " + bytes(card["inputSchema"]).decode())
            if "trimmed" in card:
                lines.append(f"   trimmed: {card['trimmed']}")
        lines += self._named
        if shared:
            lines.append("$defs of all of them: " + jsonrpc.encode(shared).decode())
        lines += self._ending
        return "\n".join(lines)


def _further(cards: Sequence[Mapping[str, Any]], key: str) -> list[str]:
    """Name matches, those with the same marks in one line."""
    found: dict[str, list[str]] = {}
    for card in cards:
        found.setdefault("; ".join(_marks(card)), []).append(card[key])
    return [name_calls(f"further matches{marks and f' [{marks}]'}", names) for marks, names in found.items()]


def _same(cards: Sequence[Mapping[str, Any]]) -> list[str]:
    """Name the tools that do the same as a match, in one line for each match that has some."""
    found = []
    for card in cards:
        if others := card.get("same"):
            rest = f" and {len(others) - MOST_SAME} more" if len(others) > MOST_SAME else ""
            # Of another server it may read another folder, another account: that is not the same.
            is_own = all(split_call(each)[0] == split_call(card["name"])[0] for each in others)
            one, more = ("does the same as", "do the same as") if is_own else ("is like", "are like")
            count = f"1 other {one}" if len(others) == 1 else f"{len(others)} others {more}"
            found.append(f"{count} {card['name']}: {', '.join(others[:MOST_SAME])}{rest}")
    return found


def _marks(card: Mapping[str, Any]) -> list[str]:
    return [said for key, said in _MARKS.items() if card.get(key)]


def _line(card: Mapping[str, Any]) -> str:
    marks = _marks(card)
    why = [reason for reason in card["why"].split("; ") if reason and reason.split(":")[0] not in _FOR_PEOPLE]
    behind = "".join(f" [{'; '.join(each)}]" for each in (marks, why) if each)
    said = f": {card['description']}" if card["description"] else ""
    return f"{card.get('call', card['name'])}{behind}{said}"


def mark_bridges(tools: Sequence[Tool], cards: Sequence[dict[str, Any]], reach: Reach) -> str:
    """Mark each match with the tool that calls it, and return what the marks mean. A hidden tool is called through one
    of ours, because some clients refuse names that they were not listed (`docs/clients.md`). Each line names its own
    call, in the same way in every answer: small models carry a default from one answer over to the next."""
    for tool, card in zip(tools, cards, strict=True):
        if "listed" not in card:
            card["read" if reach.verdict(tool).bridge == CALL else "write"] = True
    bridges = [_MARKS[key] for key in ("read", "write") if any(key in card for card in cards)]
    if not bridges:
        return "To call one, use its own name." if cards else ""
    through = f"To call one, use its [tool]: {' or '.join(bridges)}(name, arguments)"
    has_listed = any("listed" in card for card in cards)
    return f"{through}{', or its own name if marked [listed]' if has_listed else ''}."
