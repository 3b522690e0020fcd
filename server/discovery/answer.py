"""The answer of `discover_tools`: turns a ranking into matches, advice and the text that a model reads.

Every function here depends on its arguments alone: a ranking, the catalog and a budget go in, an answer comes out.
How much is shown at which confidence is decided in `answer_shape`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.confidence import LEAST_SHOWN
from foretool.retrieval.rankers.deletions import deletes
from foretool.retrieval.ranking import IN_USE, REPLACES, SERVER_NAMED, USED, Query, Ranked, Ranking
from foretool.retrieval.tokens import estimate
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.names import CALL, CALL_WRITE
from foretool.server.catalog.search import Search
from foretool.server.catalog.signatures import CUT, name_calls, signature, split_call
from foretool.server.config.loader import LiveConfig
from foretool.server.config.settings import Risk
from foretool.server.discovery.answer_shape import LEAST, SHARE, enough, shape
from foretool.server.discovery.arguments import MATCHES, Arguments
from foretool.server.discovery.match_groups import (
    Known,
    WordBits,
    WordsOf,
    fold_twins,
    group,
    put_harmless_first,
    read_no_words,
    thin,
    twin_servers,
)
from foretool.server.discovery.schemas import CLAUSE, Schemas, describe
from foretool.server.discovery.server_map import Away, blame, describe_absent, map_servers, matter, write_map
from foretool.server.discovery.skill_search import describe_offer, fit_offers
from foretool.server.methods.skills import SkillOffer
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.trust.policy import Reach
from foretool.server.trust.text import one_line, quote
from foretool.storage.records import Level, Match, Tool, ToolId

if TYPE_CHECKING:
    from foretool.retrieval.fragments import Fragment
    from foretool.server.discovery.instructions import Instructions

_MAP_TOKENS: Final = 135
"""At most this many tokens go to the map of servers where no tool fits: such an answer has 300 in all."""
_WIDE_MAP: Final = 200
"""The same beside the names of tools."""
_NEAREST: Final = 3
"""So many of the best tools have a line where none is likely to fit, so that nobody has to ask for them again."""
_ROUNDED_S: Final = 5
"""In which steps an answer says how long something takes."""
_SPARE: Final = 8
"""So many matches more are looked through for tools that do the same, because these leave room in the answer."""
_MOST_SAME: Final = 5
"""So many tools that do the same are named; the rest are counted."""
_MOST_MARKS: Final = 4
"""So many words of an entry say what tells it from others: its last ones, as paths and addresses end with what tells
most."""
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
_LEAST_READ: Final = 0.5
"""A task of which less than this share of the words is known may be one in a language that is not read."""
_FEWEST_WORDS: Final = 3
"""A shorter task may be a name alone."""
_UNREAD: Final = ""
"""Stands among what a session was told once it was asked for tasks in English; no server has that name."""


def say_unread() -> str:
    """Ask for a task in English."""
    from foretool.retrieval.languages import NAMES

    return f"few words of this task are known: beside English, {', '.join(NAMES.values())} are read. If no tool below \
fits, ask again in English"


def is_unread(lines: Sequence[str]) -> bool:
    """Return whether a task is in a language that is not read."""
    from foretool.retrieval.glossary import legibility

    text = "\n".join(lines)
    return (not text.isascii() or len(text.split()) >= _FEWEST_WORDS) and legibility(text).share < _LEAST_READ


def say_by_words(ready_in_s: float) -> str:
    """Say what an answer begins with before the tools are embedded."""
    about = max(math.ceil(ready_in_s / _ROUNDED_S), 1) * _ROUNDED_S
    return (
        f"search by meaning is still being prepared, for about {about} s: until then tools are found by their words, so"
        " ask again after that if none of these fits"
    )


class Lacks(Struct, frozen=True):
    """What a search had to do without."""

    servers: Sequence[Away] = ()
    """Those that are not there."""
    told: Collection[str] = ()
    """The servers of them that the session was told of."""
    unsearched: int = 0
    """How many tools are not indexed yet."""
    meaning_in: float | None = None
    """In about how many seconds all tools are ranked by meaning; None if they are. Words rank some or all of them as
    long as that."""
    unread: bool = False
    """Whether the words of the task are mostly unknown ones, as in a language that is not read, and the session was not
    told so before."""


class Answer(Struct, frozen=True):
    """An answer of `discover_tools`, as text and as structured content."""

    level: Level
    text: str
    structured: dict[str, Any]
    matches: tuple[Match, ...]
    tokens: int
    callable: tuple[ToolId, ...] = ()
    """The matches that the text shows with what a call of them needs."""
    by_words: bool = False
    """Words ranked some or all tools, because these are still being embedded."""
    down: tuple[str, ...] = ()
    """The servers of which it says that they are down."""
    nearest: tuple[Match, ...] = ()
    """The tools that it names although none is likely to fit."""
    absent: tuple[str, ...] = ()
    """The servers that are not there and could have what was searched for, also where it does not name them again."""
    unlisted: str = ""
    """What is to be done about servers whose tools nobody knows yet and that probably have what was searched for; "" if
    there are none."""


def with_handle(answer: Answer, handle: str) -> Answer:
    """Return the answer with the handle of the conversation it belongs to."""
    text = f"{answer.text}\nhandle: {handle}"
    return replace(answer, text=text, structured={**answer.structured, "handle": handle})


Visible = Callable[[ToolId], bool]
InstructionsFor = Callable[[Sequence[str] | None], "Sequence[Fragment]"]
"""Returns the instructions that apply to a task, by the servers of the tools that an answer describes, best first; for
None those of the user alone."""


def no_instructions(servers: Sequence[str] | None) -> Sequence[Fragment]:
    """Return no instructions."""
    return ()


def answer(
    arguments: Arguments,
    ranking: Ranking,
    level: Level,
    catalog: Catalog,
    visible: Visible,
    reach: Reach,
    budget: int,
    cap: int,
    instructions_for: InstructionsFor = no_instructions,
    lacks: Lacks | None = None,
    k: int = MATCHES,
    words_of: WordsOf = read_no_words,
    skills: Sequence[SkillOffer] = (),
) -> Answer:
    """Return the matches, best first, then the servers where that helps, then advice.

    The best matches carry ready-to-call schemas of at most `cap` tokens each while `budget` tokens last; tools asked
    for by name carry their whole schema. One that does not fit the task stands behind those that do. `visible`: whether
    a tool is in the client's list already. `reach`: what its profile reaches. `instructions_for`: what applies to the
    task, paid from the budget. `lacks`: what the search had to do without. `k`: how many tools suffice, as far as that
    is known. `words_of`: the words of a tool that are kept. `skills`: those that fit the task, paid likewise.
    """
    lacks = lacks or Lacks()
    wanted = _read_request(arguments, ranking, level, catalog, reach, lacks, k)
    chosen = _choose(arguments, ranking, wanted, catalog, reach, words_of)
    cards = _cards(chosen, visible, lacks)
    nearest = _nearest(ranking, catalog, visible, reach) if not cards else []
    shown = cards or nearest
    calling = _mark_bridges([tool for each in shown if (tool := catalog.get(each["name"]))], shown, reach)
    described = dict.fromkeys(tool.upstream for tool, _ in chosen.known[: chosen.lined])
    is_sure = wanted.level in ("high", "medium") and not lacks.meaning_in
    fragments = instructions_for([*described] if is_sure else None)
    could_have = matter(lacks.servers, catalog, arguments.lines, is_sure=not chosen.has_map)
    missing = matter(could_have, catalog, arguments.lines, lacks.told, is_sure=False)
    told_whole = cards if wanted.is_paragraph else cards[: chosen.lined]
    structured: dict[str, Any] = {"confidence": wanted.level, "matches": cards}
    if note := _note(lacks):
        structured["note"] = note
    ending = {
        **_beside_matches(skills, fragments, nearest),
        **({"servers": _map(ranking, catalog, reach, has_matches=bool(cards))} if chosen.has_map else {}),
        **({"absent": describe_absent(missing)} if missing else {}),
        **_say_same(wanted.shared_names, chosen.twins, catalog),
        "advice": _advice(
            wanted.level, _say_unknown(wanted.unknown, catalog, reach), lacks, len(catalog), calling,
            has_matches=bool(cards), has_names=len(cards) > len(told_whole),
            has_more=any(CUT in card.get("call", "") for card in (*told_whole, *nearest)), is_lookup=wanted.is_lookup,
        ),
    }  # fmt: skip
    text = _Text({**structured, **ending}, chosen.lined, fragments, skills, wanted)
    # The lines without schemas come first: what they leave goes to the schemas.
    schemas = Schemas(budget - estimate(text.with_schemas({})), cap)
    if shared := _add_schemas(chosen, cards, {each.tool for each in wanted.asked}, schemas):
        structured["$defs"] = shared
    written = text.with_schemas(shared)
    named = enumerate(ranking.ranked[: len(nearest)], 1)
    return Answer(
        wanted.level,
        written,
        structured | ending,
        chosen.matches(),
        estimate(written),
        callable=tuple(card["name"] for card in told_whole if "call" in card or "inputSchema" in card),
        by_words=lacks.meaning_in is not None,
        down=tuple(each.name for each in missing if each.state != "starting"),
        nearest=tuple(Match(each.tool, rank, each.score, each.parts) for rank, each in named),
        absent=tuple(each.name for each in could_have),
        unlisted=blame(lacks.servers, catalog, (*arguments.lines, *arguments.names)),
    )


class _Request(Struct, frozen=True):
    """What a search asks for, as its answer reads it."""

    level: Level
    """How sure the answer is."""
    asked: Sequence[Ranked]
    """Tools asked for by name that fit the task, if there is one."""
    apart: Sequence[Ranked]
    """The others asked for by name: they have a line behind the best matches."""
    unknown: Sequence[str]
    """Names that no tool has."""
    shared_names: Mapping[str, Sequence[ToolId]]
    """By name, the tools of several servers that share it."""
    needs: int
    """How many the task has."""
    k: int
    """How many tools suffice; 0 where that is not known."""
    is_lookup: bool
    """Tools were asked for by their names alone, so that nobody doubts what is meant."""
    is_paragraph: bool
    """The task is a paragraph of several clauses."""
    lacks_likely: bool
    """A server that is not there probably has the tool."""


def _read_request(
    arguments: Arguments, ranking: Ranking, level: Level, catalog: Catalog, reach: Reach, lacks: Lacks, k: int
) -> _Request:
    """Return what a search asks for: by name, by task, and how much of it. `level`: how sure its ranking is."""
    asked, unknown, shared_names = _asked(arguments, catalog, reach)
    asked, apart = _by_fit(asked, arguments, ranking, level)
    lacks_likely = bool(matter(lacks.servers, catalog, arguments.lines, is_sure=True))
    if asked and not (unknown or apart):
        level = "high"
    else:
        level = _doubt(level, has_some=bool(ranking.ranked or asked or lacks.meaning_in), lacks_likely=lacks_likely)
    clauses = len(_clauses(arguments))
    steps = 0 if clauses else _count_steps(arguments)
    return _Request(
        level,
        asked,
        apart,
        unknown,
        shared_names,
        needs=max(len(arguments.lines), steps, 1),
        k=max(enough(k, clauses), LEAST * steps) if k else 0,
        is_lookup=not arguments.lines,
        is_paragraph=clauses > 0,
        lacks_likely=lacks_likely,
    )


def _note(lacks: Lacks) -> str:
    """Say what an answer begins with: that words alone rank, or that the task is not read."""
    if lacks.meaning_in:
        return say_by_words(lacks.meaning_in)
    return say_unread() if lacks.unread else ""


def _beside_matches(
    skills: Sequence[SkillOffer], fragments: Sequence[Fragment], nearest: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return what fits the task and is no match, as structured content."""
    found: dict[str, Any] = {}
    if skills:
        found["skills"] = [
            {"name": each.name, "uri": each.uri, "server": each.server, "description": each.description}
            for each in skills
        ]
    if fragments:
        found["instructions"] = [{"source": each.source, "text": each.text} for each in fragments]
    if nearest:
        found["nearest"] = nearest
    return found


def _map(ranking: Ranking, catalog: Catalog, reach: Reach, *, has_matches: bool) -> dict[str, str]:
    """Return the map of the servers, those of the best tools first."""
    best = (tool.upstream for each in ranking.ranked if (tool := catalog.get(each.tool)) is not None)
    return map_servers(catalog, reach, best, _WIDE_MAP if has_matches else _MAP_TOKENS)


def _say_same(shared_names: Mapping[str, Sequence[ToolId]], twins: Sequence[str], catalog: Catalog) -> dict[str, str]:
    """Say which tools have one name, or else which servers have a tool that does the same; {} if there are none."""
    said = [say_shared(name, tools) for name, tools in shared_names.items()] or _tell_apart(twins, catalog)
    return {"twins": ". ".join([*said, "Take the one that the task means."])} if said else {}


class Prediction(Struct, frozen=True):
    """What the gate predicts of the matches of an answer; None where it predicts nothing."""

    shown: float | None
    """The probability that a needed tool is among those that are shown, or among the first five of these."""
    first: float | None
    """The probability that the first one is right."""


class AnswerWriter:
    """Writes answers from what the catalog, the gate and the instructions say."""

    def __init__(
        self, catalog: Catalog, search: Search, instructions: Callable[[], Instructions], config: LiveConfig,
        find_absent: Callable[[Reach], Sequence[Away]],
    ) -> None:  # fmt: skip
        """`find_absent` returns the servers of a profile that are starting or down."""
        self._catalog = catalog
        self._search = search
        self._instructions = instructions
        self._config = config
        self._find_absent = find_absent

    def write(
        self, arguments: Arguments, query: Query, ranking: Ranking, visible: Visible, reach: Reach,
        told: set[str] | None = None, skills: Sequence[SkillOffer] = (), told_servers: Collection[str] = (),
    ) -> tuple[Answer, Prediction]:  # fmt: skip
        """Return the answer, and what the gate predicts of it. `told`: the servers of which the session was told that
        they are down; those of which this answer says so are added. `skills`: those that fit the task, best first.
        `told_servers`: those whose words the client has."""
        judged = self._search.judge(ranking)
        level, k = judged.level, judged.k
        lacks = Lacks(
            self._find_absent(reach), told or (), self._search.count_unindexed(),
            self._search.meaning_in() if query.lines else None,
            _UNREAD not in (told or ()) and level != "high" and is_unread(query.lines),
        )  # fmt: skip
        if lacks.meaning_in and level == "none":
            level, k = "low", min(LEAST_SHOWN, len(ranking.ranked))  # words alone cannot tell that nothing fits
        judged_first = ranking.ranked[0].tool if ranking.ranked else None
        ranking = replace(ranking, ranked=put_harmless_first(ranking.ranked, level, ranking.task, self._risk_of(reach)))
        settings = self._config.settings
        # Skills are instructions with a name: both are paid from one share of the answer.
        skills, spent = fit_offers(skills, settings.answer_tokens // SHARE)

        def instructions_for(servers: Sequence[str] | None) -> Sequence[Fragment]:
            if not query.lines:
                return ()
            return self._instructions().beside(query.lines, reach.profile, servers, spent, told_servers)

        written = answer(
            arguments, ranking, level, self._catalog, visible, reach, settings.answer_tokens,
            settings.tool_tokens, instructions_for, lacks, k, self._search.words_of, skills,
        )  # fmt: skip
        if told is not None:
            told.update(written.down)
            if written.structured.get("note") == say_unread():
                told.add(_UNREAD)
        matches = written.matches
        is_judged = bool(judged.held) and bool(matches) and matches[0].tool == judged_first
        return written, Prediction(judged.among(len(matches)), judged.held[0] if is_judged else None)

    def _risk_of(self, reach: Reach) -> Callable[[ToolId], Risk | None]:
        """Return how dangerous a tool is: as the user says, else "destructive" where its name deletes, else as its
        server says; None where nobody says anything. Servers call destructive what may overwrite something too: moving
        a file, opening a page, adding a comment. So that hint tells only that the tool changes something."""

        def risk(name: ToolId) -> Risk | None:
            if (tool := self._catalog.get(name)) is None:
                return None
            verdict = reach.verdict(tool)
            if verdict.source == "config":
                return verdict.risk
            if deletes(tool.name):
                return "destructive"
            if verdict.source == "none":
                return None
            return "read" if verdict.risk == "read" else "write"

        return risk


class _Chosen(Struct, frozen=True):
    """The matches of an answer, and how they are shown."""

    known: Sequence[Known]
    """Those that are shown for themselves, best first."""
    like: Mapping[ToolId, ToolId]
    """By tool, one above it that it is like."""
    folded: Mapping[ToolId, Sequence[Known]]
    """By tool, those that are only named beside it, because they do the same."""
    twins: Sequence[str]
    """The servers of the first tool that others do the same as, and of those."""
    ready: int
    """So many of the first ones get a schema while the budget lasts."""
    lined: int
    """So many of the first ones, those included, have a line each."""
    has_map: bool
    """Whether the servers are listed."""

    def matches(self) -> tuple[Match, ...]:
        """Return what is recorded: the matches that are shown, then those that are only named beside one."""
        beside = (each for tool, _ in self.known for each in self.folded.get(tool.id, ()))
        told = enumerate((*self.known, *beside), 1)
        return tuple(Match(each.tool, rank, each.score, each.parts) for rank, (_, each) in told)


def _choose(
    arguments: Arguments, ranking: Ranking, wanted: _Request, catalog: Catalog, reach: Reach, words_of: WordsOf
) -> _Chosen:
    """Choose the matches that are shown, and how those after the tools that were asked for by name are shown."""
    asked, apart, k = wanted.asked, wanted.apart, wanted.k
    named = {each.tool for each in (*asked, *apart)}
    words = WordBits(words_of)
    # Who asks by name alone wants these tools and no others.
    others = [each for each in ranking.ranked if each.tool not in named] if arguments.lines or not asked else []
    known = [(tool, each) for each in (*asked, *others) if (tool := catalog.get(each.tool)) is not None]
    most = arguments.wanted if arguments.limit is not None else max(arguments.wanted, k)
    insists = arguments.limit is not None or arguments.widens
    known = thin(known, len(asked), max(most, len(asked)) + (0 if insists else _SPARE), words)
    pins = {tool.id for tool, _ in known if catalog.is_pinned(tool, reach.pins)}
    known, like = group(
        known,
        len(asked),
        catalog.namespaces.count_older,
        pins,
        lambda tool: reach.verdict(tool).bridge == CALL,
        words,
    )
    k = max(k, _count_named(known[len(asked) :])) if k else 0
    folded: dict[ToolId, list[Known]] = {}
    if not insists:  # who asks for more sees every tool in its place
        known, folded = fold_twins(known, like)
    found = shape(
        wanted.level, min(len(known), max(most, k, len(asked))) - len(asked), k, needs=wanted.needs,
        limit=arguments.limit, widens=arguments.widens,
    )  # fmt: skip
    known, cut = known[: len(asked) + found.shown], known[len(asked) + found.shown :]
    shown = {tool.id for tool, _ in known}
    for each in () if insists else reversed(cut):
        if (leader := like.get(each[0].id)) is not None:
            folded.setdefault(leader, []).insert(0, each)
    like = {one: other for one, other in like.items() if one in shown and other in shown}
    folded = {tool: each for tool, each in folded.items() if tool in shown}
    told = [tool for tool, _ in itertools.chain(known, *folded.values())]
    ready = len(asked) + found.ready
    # What only may fit is not worth a choice between servers.
    twins = next((servers for tool, _ in known[:ready] if (servers := twin_servers(tool, told, words))), [])
    behind = [(tool, each) for each in apart if (tool := catalog.get(each.tool)) is not None]
    known = [*known[:ready], *behind, *known[ready:]]
    return _Chosen(known, like, folded, twins, ready, ready + len(behind) + found.lined, found.has_map and not asked)


def _count_named(known: Sequence[Known]) -> int:
    """Return how many of the first tools the task names alike: none of them is left out for another one."""
    names = [ranked.parts.get("name", 0.0) for _, ranked in known[:_MOST_SAME]]
    return sum(name == names[0] for name in names) if names and names[0] else 0


def _tell_apart(servers: Sequence[str], catalog: Catalog) -> list[str]:
    """Say which servers have a tool that does the same, each with the folders that the others are not given, or else
    with the words of its entry that the others lack."""
    if not servers:
        return []
    folders, words = catalog.texts.names.folders_apart(servers), catalog.texts.names.tell_apart(servers)
    marks = {name: ", ".join(folders.get(name, ())) or " ".join(words.get(name, ())[-_MOST_MARKS:]) for name in servers}
    each = [f"{name} ({mark})" if mark else name for name, mark in marks.items()]
    more = f" and {len(each) - _MOST_SAME} more" if len(each) > _MOST_SAME else ""
    return [f"The same tool on {len(each)} servers: {', '.join(each[:_MOST_SAME])}{more}"]


def _asked(
    arguments: Arguments, catalog: Catalog, reach: Reach
) -> tuple[list[Ranked], list[str], dict[str, list[ToolId]]]:
    """Return the tools that were asked for by name, the names that no tool has, and by name the tools that share it,
    that of a server which the task names first."""
    from foretool.retrieval.rankers.servers import NOT_NAMED  # word lists, which no list needs

    found: list[Ranked] = []
    unknown: list[str] = []
    shared: dict[str, list[ToolId]] = {}
    for name in arguments.names:
        tool = catalog.find(name)
        if tool is not None and reach.finds(tool):
            found.append(Ranked(tool.id, 1.0, {"name": 1.0}, ("name",)))
        elif same := tools_named(name, catalog, reach):
            meant = catalog.texts.names.find(arguments.task)
            same.sort(key=lambda tool: meant.get(tool.upstream, NOT_NAMED).strength, reverse=True)
            shared[name] = [each.id for each in same]
            found += [Ranked(each, 1.0, {"name": 1.0}, ("name",)) for each in shared[name]]
        else:
            unknown.append(name)
            near = close_names(name, catalog, reach)
            found += [Ranked(one, 0.5, {"name": 0.5}, (f"close to {name!r}",)) for one in near[:3]]
    best: dict[ToolId, Ranked] = {}
    for each in found:  # a tool may be asked for by its name and be close to a name that no tool has
        if each.tool not in best or each.score > best[each.tool].score:
            best[each.tool] = each
    return list(best.values()), unknown, shared


def _by_fit(
    asked: Sequence[Ranked], arguments: Arguments, ranking: Ranking, level: Level
) -> tuple[list[Ranked], list[Ranked]]:
    """Return the tools asked for by name that fit the task, and the others. Where there is no task, or no tool fits it,
    a name is all that is known of what is wanted."""
    if not arguments.lines or level == "none":
        return list(asked), []
    fitting = {each.tool for each in ranking.ranked[:MATCHES]}
    return [each for each in asked if each.tool in fitting], [each for each in asked if each.tool not in fitting]


def tools_named(name: str, catalog: Catalog, reach: Reach) -> list[Tool]:
    """Return the tools of a profile that share an own name, those of several servers."""
    found = [tool for tool in catalog.now.tools_called(name) if reach.finds(tool)]
    return found if len(found) > 1 else []


def say_shared(name: str, tools: Sequence[ToolId]) -> str:
    """Say that several servers have a tool of one name, and how each is called."""
    more = f" and {len(tools) - _MOST_SAME} more" if len(tools) > _MOST_SAME else ""
    return f"{len(tools)} servers have a tool {name!r}: {', '.join(tools[:_MOST_SAME])}{more}"


def close_names(name: str, catalog: Catalog, reach: Reach) -> list[ToolId]:
    """Return the tools of a profile whose names are close to an unknown name, the closest first. The name of a tool
    that is gone means no other tool."""
    near = catalog.meanings.near(name) if catalog.meanings.why_gone(name) is None else ()
    return [one for one in near if (tool := catalog.get(one)) is not None and reach.finds(tool)]


def _cards(chosen: _Chosen, visible: Visible, lacks: Lacks) -> list[dict[str, Any]]:
    """Return the matches as structured content, without schemas."""
    gone = {each.name for each in lacks.servers if each.state == "down"}
    return [
        _card(tool, each, chosen, listed=visible(tool.id), down=tool.upstream in gone, ready=at < chosen.ready)
        for at, (tool, each) in enumerate(chosen.known)
    ]


def _card(tool: Tool, ranked: Ranked, chosen: _Chosen, *, listed: bool, down: bool, ready: bool) -> dict[str, Any]:
    like = chosen.like.get(tool.id)
    said = f"as {like}" if like else describe(tool.definition, 0 if ready else CLAUSE)
    card: dict[str, Any] = {"name": tool.id, "description": said, "why": "; ".join(ranked.reasons)}
    if not ready:
        card["call"] = signature(tool, marks_optional=True) or tool.id
    if listed:
        card["listed"] = True
    if down:
        card["down"] = True
    if others := chosen.folded.get(tool.id):
        card["same"] = [other.id for other, _ in others]
    return card


def _add_schemas(
    chosen: _Chosen, cards: Sequence[dict[str, Any]], asked: Collection[ToolId], schemas: Schemas
) -> dict[str, Raw]:
    """Put schemas into the cards of the first matches, whole ones into those of `asked`; return the definitions that
    they share. A tool that is like one above it gets a schema last."""
    first = zip(chosen.known[: chosen.ready], cards, strict=False)
    for (tool, _), card in sorted(first, key=lambda pair: pair[0][0].id in chosen.like):
        schemas.add(card, tool, whole=tool.id in asked)
    return schemas.shared()


def _mark_bridges(tools: Sequence[Tool], cards: Sequence[dict[str, Any]], reach: Reach) -> str:
    """Mark each match with what calls it, and say what the marks mean. A hidden tool is called through one of ours:
    some clients refuse every name that they were not listed (`docs/clients.md`). Each line says its own call, in the
    same way in every answer: a default that changed between two answers would be carried over by a small model."""
    for tool, card in zip(tools, cards, strict=True):
        if "listed" not in card:
            card["read" if reach.verdict(tool).bridge == CALL else "write"] = True
    bridges = [_MARKS[key] for key in ("read", "write") if any(key in card for card in cards)]
    if not bridges:
        return "To call one, use its own name." if cards else ""
    through = f"To call one, use its [tool]: {' or '.join(bridges)}(name, arguments)"
    has_listed = any("listed" in card for card in cards)
    return f"{through}{', or its own name if marked [listed]' if has_listed else ''}."


def _nearest(ranking: Ranking, catalog: Catalog, visible: Visible, reach: Reach) -> list[dict[str, Any]]:
    """Return the best tools of a search that none fits, each with what a call needs and what it does."""
    known = [tool for each in ranking.ranked[:_NEAREST] if (tool := catalog.get(each.tool)) is not None]
    cards: list[dict[str, Any]] = []
    for tool in known:
        card = {
            "name": tool.id,
            "call": signature(tool, marks_optional=True) or tool.id,
            "description": describe(tool.definition, CLAUSE),
        }
        cards.append({**card, "why": "", "listed": True} if visible(tool.id) else {**card, "why": ""})
    return cards


def _say_unknown(names: Sequence[str], catalog: Catalog, reach: Reach) -> str:
    """Say of names that were asked for why they mean no tool, as a call of them would be told."""
    said, nobodys = [], []
    for name in names:
        gone = catalog.meanings.why_gone(name)
        if gone is None or not reach.admits(gone.upstream):
            nobodys.append(repr(name))
        else:
            said.append(f"{name!r} cannot be called: {gone.for_model}.")
    return " ".join([*said, *([f"No tool is called {', '.join(nobodys)}."] if nobodys else [])])


def _advice(level: Level, unknown: str, lacks: Lacks, tools: int, calling: str, *, has_matches: bool, has_names: bool,
            has_more: bool, is_lookup: bool) -> str:  # fmt: skip
    """`unknown`: what is said of names that mean no tool; `calling`: how the matches are called, or the nearest tools
    where there are none; `has_names`: some stand there without any argument, `has_more`: without some."""
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
            f"{lacks.unsearched} of {tools} tools are not searched yet: if none of these fits, ask again in a few"
            " seconds."
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


def _clauses(arguments: Arguments) -> list[str]:
    """Return the clauses of a task that is a paragraph; [] for any other."""
    from foretool.retrieval.clauses import clauses, in_english

    return clauses(in_english(arguments.lines[0])) if len(arguments.lines) == 1 else []


def _count_steps(arguments: Arguments) -> int:
    """Return how many steps a task of one line says; 0 for one alone."""
    from foretool.retrieval.clauses import in_english, steps

    return len(steps(in_english(arguments.lines[0]))) if len(arguments.lines) == 1 else 0


def _doubt(level: Level, *, has_some: bool, lacks_likely: bool) -> Level:
    """Return the level of an answer. Without any tool it is none; where a server that probably has the tool is not
    there (`lacks_likely`), what others have is a neighbour of it."""
    if not has_some:
        return "none"
    return "low" if lacks_likely and level == "medium" else level


class _Text:
    """What a model reads: the first matches in a line each, the further ones by their names alone, or with what their
    calls need. Everything but the schemas is written once; how long that is says which schemas there is room for."""

    def __init__(
        self, structured: Mapping[str, Any], lined: int, fragments: Sequence[Fragment],
        skills: Sequence[SkillOffer], wanted: _Request,
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
            rest = f" and {len(others) - _MOST_SAME} more" if len(others) > _MOST_SAME else ""
            # Of another server it may read another folder, another account: that is not the same.
            is_own = all(split_call(each)[0] == split_call(card["name"])[0] for each in others)
            one, more = ("does the same as", "do the same as") if is_own else ("is like", "are like")
            count = f"1 other {one}" if len(others) == 1 else f"{len(others)} others {more}"
            found.append(f"{count} {card['name']}: {', '.join(others[:_MOST_SAME])}{rest}")
    return found


def _marks(card: Mapping[str, Any]) -> list[str]:
    return [said for key, said in _MARKS.items() if card.get(key)]


def _line(card: Mapping[str, Any]) -> str:
    marks = _marks(card)
    why = [reason for reason in card["why"].split("; ") if reason and reason.split(":")[0] not in _FOR_PEOPLE]
    behind = "".join(f" [{'; '.join(each)}]" for each in (marks, why) if each)
    said = f": {card['description']}" if card["description"] else ""
    return f"{card.get('call', card['name'])}{behind}{said}"
