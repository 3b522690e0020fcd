"""The answer of `discover_tools`: turns a ranking into matches, advice and the text that a model reads.

Every function here depends on its arguments alone: a ranking, the catalog and a budget go in, an answer comes out.
Which matches are shown, and how much of each, is decided in `answer_shape`; `answer_text` writes the lines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.confidence import LEAST_SHOWN
from foretool.retrieval.rankers.deletions import deletes
from foretool.retrieval.ranking import Query, Ranked, Ranking
from foretool.retrieval.tokens import estimate
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.search import Search
from foretool.server.catalog.signatures import CUT, signature
from foretool.server.config.loader import LiveConfig
from foretool.server.config.settings import Risk
from foretool.server.discovery.answer_shape import SHARE, ChosenMatches, Lacks, choose, read_request
from foretool.server.discovery.answer_text import (
    AnswerText,
    advise,
    mark_bridges,
    say_by_words,
    say_same,
    say_unknown,
    say_unread,
)
from foretool.server.discovery.arguments import MATCHES, Arguments
from foretool.server.discovery.match_groups import WordsOf, put_harmless_first, read_no_words
from foretool.server.discovery.schemas import CLAUSE, Schemas, describe
from foretool.server.discovery.server_map import UNDER_REVIEW, Away, blame, describe_absent, map_servers, matter
from foretool.server.discovery.skill_search import fit_offers
from foretool.server.methods.skills import SkillOffer
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.trust.gatekeeper import Gatekeeper
from foretool.server.trust.policy import Reach
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
_LEAST_READ: Final = 0.5
"""A task of which less than this share of the words is known may be one in a language that is not read."""
_FEWEST_WORDS: Final = 3
"""A shorter task may be a name alone."""
_UNREAD: Final = ""
"""Stands among what a session was told once it was asked for tasks in English; no server has that name."""


def is_unread(lines: Sequence[str]) -> bool:
    """Return whether a task is in a language that searches cannot read."""
    from foretool.retrieval.glossary import legibility

    text = "\n".join(lines)
    return (not text.isascii() or len(text.split()) >= _FEWEST_WORDS) and legibility(text).share < _LEAST_READ


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
    told: tuple[str, ...] = ()
    """The servers that it says something of which is said once a session."""
    nearest: tuple[Match, ...] = ()
    """The tools that it names although none is likely to fit."""
    absent: tuple[str, ...] = ()
    """The servers that are not there and could have what was searched for, also where it does not name them again."""
    unlisted: str = ""
    """What is to be done about servers whose tools nobody knows yet and that probably have what was searched for; "" if
    there are none."""


def with_handle(answer: Answer, handle: str) -> Answer:
    text = f"{answer.text}\nhandle: {handle}"
    return replace(answer, text=text, structured={**answer.structured, "handle": handle})


Visible = Callable[[ToolId], bool]
InstructionsFor = Callable[[Sequence[str] | None], "Sequence[Fragment]"]
"""Returns the instructions that apply to a task, by the servers of the tools that an answer describes, best first; for
None those of the user alone."""


def no_instructions(servers: Sequence[str] | None) -> Sequence[Fragment]:
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
    wanted = read_request(arguments, ranking, level, catalog, reach, lacks, k)
    chosen = choose(arguments, ranking, wanted, catalog, reach, words_of)
    cards = _cards(chosen, visible, lacks)
    nearest = _nearest(ranking, catalog, visible, reach) if not cards else []
    shown = cards or nearest
    calling = mark_bridges([tool for each in shown if (tool := catalog.get(each["name"]))], shown, reach)
    described = dict.fromkeys(tool.upstream for tool, _ in chosen.known[: chosen.lined])
    is_sure = wanted.level in ("high", "medium") and not lacks.meaning_in
    fragments = instructions_for([*described] if is_sure else None)
    could_have = [*matter(lacks.servers, catalog, arguments.lines, is_sure=not chosen.has_map), *lacks.waiting]
    missing = matter(could_have, catalog, arguments.lines, lacks.told, is_sure=False)
    told_whole = cards if wanted.is_paragraph else cards[: chosen.lined]
    tools = sum(catalog.now.count_tools(reach).values())
    structured: dict[str, Any] = {"confidence": wanted.level, "matches": cards}
    if note := _note(lacks):
        structured["note"] = note
    ending = {
        **_beside_matches(skills, fragments, nearest),
        **({"servers": _map(ranking, catalog, reach, has_matches=bool(cards))} if chosen.has_map else {}),
        **({"absent": describe_absent(missing)} if missing else {}),
        **say_same(wanted.shared_names, chosen.twins, catalog),
        "advice": advise(
            wanted.level, say_unknown(wanted.unknown, catalog, reach, lacks.held), lacks, tools, calling,
            has_matches=bool(cards), has_names=len(cards) > len(told_whole),
            has_more=any(CUT in card.get("call", "") for card in (*told_whole, *nearest)), is_lookup=wanted.is_lookup,
        ),
    }  # fmt: skip
    text = AnswerText({**structured, **ending}, chosen.lined, fragments, skills, wanted)
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
        down=tuple(each.name for each in missing if each.state not in ("starting", UNDER_REVIEW)),
        told=tuple(each.name for each in missing if each.state != "starting"),
        nearest=tuple(Match(each.tool, rank, each.score, each.parts) for rank, each in named),
        absent=tuple(each.name for each in could_have),
        unlisted=blame(lacks.servers, catalog, (*arguments.lines, *arguments.names)),
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


class Prediction(Struct, frozen=True):
    """What the gate predicts about the matches of an answer; None where it predicts nothing."""

    shown: float | None
    """The probability that a needed tool is among those that are shown, or among the first five of these."""
    first: float | None
    """The probability that the first one is right."""


class AnswerWriter:
    def __init__(
        self, catalog: Catalog, search: Search, instructions: Callable[[], Instructions], config: LiveConfig,
        find_absent: Callable[[Reach], Sequence[Away]], gatekeeper: Gatekeeper,
    ) -> None:  # fmt: skip
        """`find_absent` returns the servers of a profile that are starting or down."""
        self._catalog = catalog
        self._search = search
        self._instructions = instructions
        self._config = config
        self._find_absent = find_absent
        self._gatekeeper = gatekeeper

    def write(
        self, arguments: Arguments, query: Query, ranking: Ranking, visible: Visible, reach: Reach,
        told: set[str] | None = None, skills: Sequence[SkillOffer] = (), told_servers: Collection[str] = (),
        *, is_ours: bool = False,
    ) -> tuple[Answer, Prediction]:  # fmt: skip
        """Return the answer, and what the gate predicts of it. `told`: the servers of which the session was told that
        they are down; those of which this answer says so are added. `skills`: those that fit the task, best first.
        `told_servers`: those whose words the client has; `is_ours`: the task is a wrong name, and in no language."""
        judged = self._search.judge(ranking)
        level, k = judged.level, judged.k
        waiting = self._under_review(reach) if level != "high" else []
        absent = [*self._find_absent(reach), *(waiting if level != "medium" else ())]
        untold = [each for each in waiting if level == "medium" and each.name not in (told or ())]
        held = {name: server for name in arguments.names if (server := self.find_held(name, reach))}
        lacks = Lacks(
            absent, told or (), untold, held, self._search.count_unindexed(reach.admits),
            self._search.meaning_in() if query.lines else None,
            not is_ours and _UNREAD not in (told or ()) and level != "high" and is_unread(query.lines),
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
            told.update(written.told)
            if written.structured.get("note") == say_unread():
                told.add(_UNREAD)
        matches = written.matches
        is_judged = bool(judged.held) and bool(matches) and matches[0].tool == judged_first
        return written, Prediction(judged.among(len(matches)), judged.held[0] if is_judged else None)

    def find_held(self, name: str, reach: Reach) -> str:
        """Return the server of a tool that waits for the user, or ""."""
        if self._catalog.find(name) is not None:
            return ""
        held = self._gatekeeper.find_held(name, self._catalog.meanings.split(name))
        return held.upstream if held is not None and reach.admits(held.upstream) else ""

    def _under_review(self, reach: Reach) -> list[Away]:
        lacking = (name for name in self._gatekeeper.lacking() if reach.admits(name))
        # What one person's list has changed is for whoever decides, not for the others.
        return [Away(name, UNDER_REVIEW, has_tools=False) for name in lacking if not self._gatekeeper.is_per_user(name)]

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


def _cards(chosen: ChosenMatches, visible: Visible, lacks: Lacks) -> list[dict[str, Any]]:
    """Return the matches as structured content, without schemas."""
    gone = {each.name for each in lacks.servers if each.state == "down"}
    return [
        _card(tool, each, chosen, listed=visible(tool.id), down=tool.upstream in gone, ready=at < chosen.ready)
        for at, (tool, each) in enumerate(chosen.known)
    ]


def _card(
    tool: Tool, ranked: Ranked, chosen: ChosenMatches, *, listed: bool, down: bool, ready: bool
) -> dict[str, Any]:
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
    chosen: ChosenMatches, cards: Sequence[dict[str, Any]], asked: Collection[ToolId], schemas: Schemas
) -> dict[str, Raw]:
    """Put schemas into the cards of the first matches, whole ones into those of `asked`; return the definitions that
    they share. A tool that is like one above it gets a schema last."""
    first = zip(chosen.known[: chosen.ready], cards, strict=False)
    for (tool, _), card in sorted(first, key=lambda pair: pair[0][0].id in chosen.like):
        schemas.add(card, tool, whole=tool.id in asked)
    return schemas.shared()


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
