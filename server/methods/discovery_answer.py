"""The answer of `discover_tools`: reads its arguments and turns a ranking into text and structured content.

Every function here depends on its arguments alone: a ranking, the catalog and a budget go in, an answer comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval.ranking import Query, Ranked, Ranking
from foretool.retrieval.tokens import estimate
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.names import CALL, CALL_WRITE
from foretool.server.catalog.own_tools import MOST
from foretool.server.catalog.search import Search
from foretool.server.config.loader import LiveConfig
from foretool.server.methods.schemas import KEPT, Schemas
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw, RpcError
from foretool.server.trust.policy import Reach
from foretool.server.trust.text import one_line, quote
from foretool.storage.records import Level, Match, Tool, ToolId

if TYPE_CHECKING:
    from foretool.retrieval.fragments import Fragment
    from foretool.server.methods.instructions import Instructions

MATCHES: Final = 12
WIDE: Final = 25
"""How many matches a wider search shows."""
CARD_TOKENS: Final = 12
"""Tokens of a match in addition to its description and its schema: the place, the keys and the punctuation."""
ADVICE_TOKENS: Final = 24
"""Tokens of the lines for the confidence and the advice."""
ALIKE: Final = 0.8
"""If two tools of different servers share this part of their words, only the first is described."""
ALIKE_OF_ONE: Final = 4
"""So many tools of one server that say much the same stand before other servers' tools."""
MUCH_ALIKE: Final = 0.5
"""Tools of one server that share this part of their words say much the same; figures in names do not count."""
IN_USE: Final = "server in use"
"""The reason in a ranking (`retrieval.explanations`) that marks the tools of servers called lately."""
SUMMARY_TOKENS: Final = 200
"""At most this many tokens go to the summary of servers that follows matches which may not suffice."""
MOST_TASK: Final = 20_000
MOST_NAME: Final = 256
"""Characters of a task, and of a name that is asked for."""
WORST_SUFFICIENCY: Final = 0.5
"""If the caller rates what it sees below this, the search widens (ITR section 3.7, threshold tau)."""


class Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """The arguments of `discover_tools`."""

    task: str = ""
    names: tuple[str, ...] = ()
    sufficiency: float | None = None
    limit: int | None = None
    handle: str = ""

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(line.strip() for line in self.task.splitlines() if line.strip())

    @property
    def wanted(self) -> int:
        if self.limit is not None:
            return max(1, min(self.limit, MOST))
        return WIDE if self.widens else MATCHES

    @property
    def widens(self) -> bool:
        """Whether the caller says that what it sees does not suffice."""
        return self.sufficiency is not None and self.sufficiency < WORST_SUFFICIENCY


_arguments = msgspec.json.Decoder(Arguments, strict=False)


def read_arguments(value: Raw | bytes) -> Arguments:
    """Decode the arguments of a call. Raises `RpcError`, which says what is wrong."""
    try:
        return _bounded(_decode(value))
    except ValueError as error:  # every error of the decoder is one
        raise RpcError(jsonrpc.INVALID_PARAMS, f"discover_tools: {error}; see its inputSchema") from None


def _decode(value: Raw | bytes) -> Arguments:
    try:
        # Models send null for what they leave out.
        given = {name: each for name, each in jsonrpc.fields(value).items() if bytes(each) != b"null"}
        return _arguments.decode(jsonrpc.encode(given))
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # Only the fast decoder refuses lone surrogates, and nothing in them can be searched for.
        return Arguments(task=str(jsonrpc.plain(value).get("task", "")).encode(errors="replace").decode())


def _bounded(arguments: Arguments) -> Arguments:
    """Return the arguments. Raises ValueError for more of them than one search may take: others wait meanwhile."""
    if len(arguments.task) > MOST_TASK:
        raise ValueError(f"task: expected at most {MOST_TASK:,} characters, found {len(arguments.task):,}; shorten it")
    if len(arguments.names) > MOST or any(len(name) > MOST_NAME for name in arguments.names):
        raise ValueError(f"names: expected at most {MOST} of at most {MOST_NAME} characters; ask for fewer")
    return arguments


class Answer(Struct, frozen=True):
    """An answer of `discover_tools`, as text and as structured content."""

    level: Level
    text: str
    structured: dict[str, Any]
    matches: tuple[Match, ...]
    tokens: int


def with_handle(answer: Answer, handle: str) -> Answer:
    """Return the answer with the handle of the conversation it belongs to."""
    text = f"{answer.text}\nhandle: {handle} (pass it on in later calls)"
    return replace(answer, text=text, structured={**answer.structured, "handle": handle})


Visible = Callable[[ToolId], bool]


def answer(
    arguments: Arguments,
    ranking: Ranking,
    level: Level,
    catalog: Catalog,
    visible: Visible,
    reach: Reach,
    budget: int,
    cap: int,
    fragments: Sequence[Fragment] = (),
    unsearched: int = 0,
) -> Answer:
    """Return the matches, best first, then advice. Without a match, the servers are listed, so that the next question
    can be a better one.

    Matches carry ready-to-call schemas of at most `cap` tokens each while `budget` tokens last; tools asked for by
    name carry their whole schema. `visible`: whether a tool is in the client's list already. `reach`: what its profile
    reaches. `fragments`: instructions that apply, paid from the budget. `unsearched`: how many tools
    are not indexed yet.
    """
    asked, unknown = _asked(arguments.names, catalog, reach)
    chosen = [*asked, *(each for each in ranking.ranked if each.tool not in {one.tool for one in asked})]
    known = [(tool, each) for each in chosen if (tool := catalog.get(each.tool)) is not None]
    known = _thinned(known, len(asked), max(arguments.wanted, len(asked)))
    known, like = _grouped(known, len(asked), catalog.namespaces.count_older)
    cards = [_card(tool, each, visible(tool.id), like.get(tool.id)) for tool, each in known]
    bridges = _mark_bridges([tool for tool, _ in known], cards, reach)
    whole = {each.tool for each in asked}
    more: dict[str, Any] = {}
    if fragments:
        more["instructions"] = [{"source": each.source, "text": each.text} for each in fragments]
    left = budget - sum(map(_card_cost, known, cards)) - sum(each.tokens + CARD_TOKENS for each in fragments)
    if not chosen:
        level = "none"
        more["servers"] = _servers(catalog, reach, left)
    elif arguments.widens and level in ("low", "none"):
        # What was found may not suffice either, so the answer says what else there is (ITR 3.7).
        more["servers"] = servers = _servers(catalog, reach, min(left, SUMMARY_TOKENS))
        left -= sum(estimate(f"{name} {entry}") + 4 for name, entry in servers.items())
    schemas = Schemas(left, cap)
    # A tool that is like one above it gets a schema last.
    for (tool, _), card in sorted(zip(known, cards, strict=True), key=lambda pair: pair[0][0].id in like):
        schemas.add(card, tool, whole=tool.id in whole)
    level = "high" if asked and not unknown else level
    structured: dict[str, Any] = {"confidence": level, "matches": cards}
    if shared := schemas.shared():
        structured["$defs"] = shared
    advice = _advice(level, unknown, unsearched, len(catalog), bridges)
    structured |= {**more, "advice": advice if chosen else advice.replace("None fits clearly", "Nothing fits")}
    text = _text(structured, fragments)
    matches = tuple(Match(each.tool, rank, each.score, each.parts) for rank, (_, each) in enumerate(known, 1))
    tokens = budget - schemas.left + ADVICE_TOKENS if chosen else estimate(text)
    return Answer(level, text, structured, matches, tokens)


class AnswerWriter:
    """Writes answers from what the catalog, the gate and the instructions say."""

    def __init__(
        self, catalog: Catalog, search: Search, instructions: Callable[[], Instructions], config: LiveConfig
    ) -> None:
        self._catalog = catalog
        self._search = search
        self._instructions = instructions
        self._config = config

    def write(
        self, arguments: Arguments, query: Query, ranking: Ranking, visible: Visible, reach: Reach
    ) -> tuple[Answer, float | None]:
        """Return the answer, and the gate's probability that the first five matches suffice."""
        judged = self._search.judge(ranking)
        level = judged.level
        fragments = self._instructions().beside(query, ranking, level, reach.profile) if query.lines else ()
        settings = self._config.settings
        written = answer(
            arguments, ranking, level, self._catalog, visible, reach, settings.answer_tokens,
            settings.tool_tokens, fragments, self._search.count_unindexed(),
        )  # fmt: skip
        return written, judged.probability


def _asked(names: Sequence[str], catalog: Catalog, reach: Reach) -> tuple[list[Ranked], list[str]]:
    found: list[Ranked] = []
    unknown: list[str] = []
    for name in names:
        tool = catalog.find(name)
        if tool is not None and reach.finds(tool):
            found.append(Ranked(tool.id, 1.0, {"name": 1.0}, ("name",)))
            continue
        unknown.append(name)
        near = close_names(name, catalog, reach)
        found += [Ranked(one, 0.5, {"name": 0.5}, (f"close to {name!r}",)) for one in near[:3]]
    return list({each.tool: each for each in found}.values()), unknown


def close_names(name: str, catalog: Catalog, reach: Reach) -> list[ToolId]:
    """Return the tools of a profile whose names are close to an unknown name, the closest first. The name of a tool
    that is gone means no other tool."""
    near = catalog.near(name) if catalog.why_gone(name) is None else ()
    return [one for one in near if (tool := catalog.get(one)) is not None and reach.finds(tool)]


class _Described(Struct, frozen=True):
    """The members of a definition that describe a tool in words."""

    name: str = ""
    title: str | None = None
    description: str | None = None


_described = msgspec.json.Decoder(_Described)


@lru_cache(maxsize=KEPT)
def summarize(definition: bytes) -> str:
    """Return the first sentence of a tool's description, or else its title."""
    # Imported here because only searches need it, and no list should wait for it.
    from foretool.retrieval.document import document, first_sentence, summary_line

    try:
        said = _described.decode(definition)
    except msgspec.DecodeError:
        return summary_line(document(Tool(ToolId(""), "", "", definition, "")))
    return first_sentence((said.description or "").strip() or (said.title or "").strip())


@lru_cache(maxsize=1024)
def _words(definition: bytes, name: str, upstream: str) -> frozenset[str]:
    """Return the words of a tool's name and summary, without those of its server's name."""
    from foretool.retrieval.words import terms

    return frozenset(terms(f"{name} {summarize(definition)}")).difference(terms(upstream))


def _thinned(known: Sequence[tuple[Tool, Ranked]], asked: int, wanted: int) -> list[tuple[Tool, Ranked]]:
    """Return the first `wanted` tools, with what one server says too often behind everything else: its copies of a tool
    must not push the original out of the answer. The first `asked` tools stay."""
    kept, surplus = list(known[:asked]), list[tuple[Tool, Ranked]]()
    said: dict[str, list[tuple[frozenset[str], int]]] = {}
    for tool, ranked in known[asked:]:
        if len(kept) >= wanted:
            break
        own = said.setdefault(tool.upstream, [])
        words = frozenset(each for each in _words(tool.definition, tool.name, tool.upstream) if not each.isdigit())
        at = next((at for at, (other, _) in enumerate(own) if _are_alike(words, other, MUCH_ALIKE)), None)
        if at is None:
            own.append((words, 1))
        else:
            own[at] = (own[at][0], own[at][1] + 1)
        is_surplus = at is not None and own[at][1] > ALIKE_OF_ONE
        (surplus if is_surplus else kept).append((tool, ranked))
    return [*kept, *surplus][:wanted]


def _grouped(
    known: Sequence[tuple[Tool, Ranked]], asked: int, count_older: Callable[[ToolId], int]
) -> tuple[list[tuple[Tool, Ranked]], dict[ToolId, ToolId]]:
    """Group tools of several servers that say nearly the same. Return the new order, and for each tool that need not be
    described the one that it is like. The first `asked` tools are not grouped.

    The tool that was there first is described and stands first: a newer one may be a copy made to take its place. Only
    where the newer one's server is in use does that one stand first, and then both are described.
    """
    order = list(known)
    like: dict[ToolId, ToolId] = {}
    words = {tool.id: _words(tool.definition, tool.name, tool.upstream) for tool, _ in order}
    for place in range(asked, len(order)):
        tool, ranked = order[place]
        alike = (one for one in range(asked, place) if _are_alike(words[order[one][0].id], words[tool.id]))
        first = next(alike, None)
        if first is None or order[first][0].id in like or order[first][0].upstream == tool.upstream:
            continue
        other, other_ranked = order[first]
        is_older = count_older(tool.id) < count_older(other.id)
        in_use = (IN_USE in ranked.reasons) - (IN_USE in other_ranked.reasons)
        if in_use > 0 or (is_older and in_use == 0):
            order[first], order[place] = order[place], order[first]
        older, newer = (tool, other) if is_older else (other, tool)
        if order[first][0] is older:
            like = {one: older.id if its == newer.id else its for one, its in like.items()}
            like[newer.id] = older.id
    return order, like


def _are_alike(one: frozenset[str], other: frozenset[str], part: float = ALIKE) -> bool:
    shared = len(one & other)
    return shared >= part * (len(one) + len(other) - shared) > 0


def _card(tool: Tool, ranked: Ranked, listed: bool, like: ToolId | None = None) -> dict[str, Any]:
    description = f"as {like}" if like else summarize(tool.definition)
    card = {"name": tool.id, "description": description, "why": "; ".join(ranked.reasons)}
    return {**card, "listed": True} if listed else card


def _mark_bridges(tools: Sequence[Tool], cards: Sequence[dict[str, Any]], reach: Reach) -> str:
    """Say which of our tools calls the matches that are not listed. Where both do, the fewer matches are marked
    (`"read"` or `"write"`); a mark at every match would cost twice as many tokens."""
    hidden = [
        (card, reach.verdict(tool).bridge) for tool, card in zip(tools, cards, strict=True) if "listed" not in card
    ]
    reads, writes = ([card for card, bridge in hidden if bridge == name] for name in (CALL, CALL_WRITE))
    if not reads or not writes:
        return f"{CALL_WRITE if writes else CALL}(name, arguments) where it is not listed"
    first, other, mark, marked = (
        (CALL, CALL_WRITE, "write", writes) if len(writes) <= len(reads) else (CALL_WRITE, CALL, "read", reads)
    )
    for card in marked:
        card[mark] = True
    return f"where it is not listed {first}(name, arguments), {other} if marked {mark}"


def _card_cost(known: tuple[Tool, Ranked], card: Mapping[str, Any]) -> int:
    """Return the tokens of a match without its schema, from parts that are counted once."""
    return CARD_TOKENS + _summary_tokens(known[0].definition) + (len(card["name"]) + len(card["why"])) // 4


@lru_cache(maxsize=KEPT)
def _summary_tokens(definition: bytes) -> int:
    return estimate(summarize(definition))


def _advice(level: Level, unknown: Sequence[str], unsearched: int, tools: int, bridges: str) -> str:
    missing = f"No tool is called {', '.join(map(repr, unknown))}. " if unknown else ""
    if unsearched:  # thousands of tools came at once and are still being indexed
        left = f"{unsearched} of {tools} tools"
        return f"{missing}{left} are not searched yet: if none of these fits, ask again in a few seconds."
    if level in ("low", "none"):
        missing += "None fits clearly: describe the task in other words, or go on without a tool."
        return f"{missing} A match is called by its name, or {bridges}." if CALL_WRITE in bridges else missing
    return f"{missing}Call a match by its name, or {bridges}."


def _servers(catalog: Catalog, reach: Reach, left: int) -> dict[str, str]:
    """Summarize the catalog: for each server, the number of its tools and the beginning of its instructions."""
    servers: dict[str, str] = {}
    shown = {name: count for name, count in catalog.count_tools(reach).items() if count}
    for name, count in shown.items():
        text = one_line(catalog.server_text(name))[:100]
        entry = f"{count} tools" + (f": {text}" if text else "")
        left -= estimate(f"{name} {entry}") + 4
        if left < 0:
            servers["..."] = f"{len(shown) - len(servers)} more servers"
            break
        servers[name] = entry
    return servers


def _cited(fragment: Fragment) -> str:
    """Show instructions: the user's own as they are, those of a server quoted, so that they cannot pose as other lines
    of the answer."""
    source = one_line(fragment.source)
    return (
        f"instructions ({source}):\n{quote(fragment.text)}"
        if fragment.upstream
        else f"instructions ({source}): {fragment.text}"
    )


def _text(structured: Mapping[str, Any], fragments: Sequence[Fragment] = ()) -> str:
    lines = [f"confidence: {structured['confidence']}"]
    for place, card in enumerate(structured["matches"], 1):
        marked = "".join(f" ({mark})" for mark in ("listed", "read", "write") if card.get(mark))
        why = f" [{card['why']}]" if card["why"] else ""
        lines.append(f"{place}. {card['name']}{marked}: {card['description']}{why}")
        if "inputSchema" in card:
            lines.append("   " + bytes(card["inputSchema"]).decode())
        if "trimmed" in card:
            lines.append(f"   trimmed: {card['trimmed']}")
    if "$defs" in structured:
        lines.append("$defs of all of them: " + jsonrpc.encode(structured["$defs"]).decode())
    lines += map(_cited, fragments)
    lines += [f"{name}: {entry}" for name, entry in structured.get("servers", {}).items()]
    lines.append(structured["advice"])
    return "\n".join(lines)


def query(arguments: Arguments, history: Sequence[ToolId], servers: Sequence[str]) -> Query:
    return Query(arguments.lines, arguments.names, tuple(history), tuple(servers))
