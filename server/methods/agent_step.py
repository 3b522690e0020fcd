"""One step of an agent, put together as ITR does it: instructions and tools under one budget, and the prompt for them.

Serves `step()` of the library and the prompt `assemble_step`. The algorithm is `retrieval/itr.py`; the ranking, the
gate and the catalog are the proxy's own. What differs from the paper: the gain of a tool is the gate's probability over
its rank, that of an instruction the share of the query it has, and the budget is filled by gain, not by gain per token
(`python -m bench.papers.itr` prints what each finds in the same budget).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval import itr
from foretool.retrieval.document import document, summary_line
from foretool.retrieval.domains import Domains
from foretool.retrieval.fragments import Fragment
from foretool.retrieval.itr import Candidate, Fallback, Kind, Parameters, Selected, Signatures
from foretool.retrieval.ranking import Query, Ranking
from foretool.retrieval.tokens import estimate
from foretool.server.catalog.names import DISCOVER
from foretool.server.clients.exposure import View, Why
from foretool.server.config.servers import matches
from foretool.server.methods import discover_tools
from foretool.server.methods.schemas import trim
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.records import Discovery, Exposure, Level, Match, StepRecord, Tool, ToolId

if TYPE_CHECKING:
    from foretool.server.clients.session import Session
    from foretool.server.config.loader import Profile
    from foretool.server.config.settings import DomainEntry
    from foretool.server.proxy import Proxy

BUDGET: Final = 2000
"""Tokens of a step where nobody says: the prompt, and the definitions of its tools."""
TOOLS: Final = discover_tools.MATCHES
INSTRUCTIONS: Final = 4
"""K_B and K_A: tools are cheap to pass over and dear to miss, so the budget mostly decides (ITR 3.7, recall first)."""
RANKED: Final = 50
KEPT_S: Final = 900.0
"""How long a selection is remembered while nothing it was made of changes."""


class Shown(Struct, frozen=True):
    """A tool of a step."""

    tool: ToolId
    definition: Raw
    """As its upstream wrote it under its exposed name; a giant one with a trimmed schema."""
    tokens: int


class Plan(Struct, frozen=True):
    """What one step is given."""

    query: Query
    prompt: str
    tools: tuple[Shown, ...]
    fragments: tuple[Fragment, ...]
    tokens: int
    """Of the prompt and the tools, `discover_tools` among them."""
    budget: int
    level: Level
    probability: float
    """That a needed tool is among the first five, as the gate sees it."""
    ranking: Ranking
    candidates: tuple[Candidate, ...]
    pinned: tuple[Candidate, ...]
    selected: Selected
    sufficiency: float | None = None
    cached: bool = False
    took_ms: float = 0.0

    @property
    def task(self) -> str:
        return "\n".join(self.query.lines)

    @property
    def fallback(self) -> Fallback:
        return self.selected.fallback


class StepView(View, frozen=True):
    """The list of one step."""

    def why_hidden(self, tool: ToolId, upstream: str) -> Why:
        ranked = self.order()
        rank = ranked.index(tool) + 1 if tool in ranked else 0
        if upstream in self.offline:
            change = f"none: the tools of {upstream!r} were not known yet, and are from now on"
            return Why("offline", rank, len(ranked), change)
        if 0 < rank <= TOOLS:
            return Why("budget", rank, len(ranked), f"give the step more than {self.budget} tokens, or pin {tool}")
        return Why("rank", rank, len(ranked), f"widen the step, pin {tool}, or say more of the task")


class Steps:
    """See the module."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._cache: Signatures[Plan] = Signatures()
        self._domains: tuple[object, Domains] = ({}, Domains({}))

    # -- putting together

    def plan(self, query: Query, profile: Profile, budget: int, go: Callable[[Plan], None]) -> None:
        """Lines 1 to 5 of Algorithm 1; `go` is called now, or once the slow encoders have answered."""
        started = time.perf_counter()
        domain = self._domain(query)
        key = (*map(itr.signature, query.lines), query.history, query.servers_in_use, profile.name, budget, domain)
        known = self._cache.get(key, self._version())
        if known is not None:
            go(replace(known, cached=True, took_ms=(time.perf_counter() - started) * 1000))
            return

        def ranked(ranking: Ranking) -> None:
            plan = self._made(query, ranking, profile, budget, domain)
            # What was found out on the way (files read anew) may have moved it.
            self._cache.put(key, self._version(), plan)
            go(replace(plan, took_ms=(time.perf_counter() - started) * 1000))

        self._proxy.search.find(query, profile.admits, RANKED, ranked)

    def widened(self, plan: Plan, sufficiency: float, profile: Profile) -> Plan:
        """Line 8: more tools under twice the budget, or the catalog in brief where there are no more."""
        started = time.perf_counter()
        parameters = Parameters(budget=plan.budget - self._fixed(profile), tools=max(len(plan.tools), TOOLS // 2))
        selected = itr.widen(plan.selected, plan.candidates, plan.pinned, parameters, per_token=False)
        wider = self._assembled(replace(plan, selected=selected, budget=2 * plan.budget), profile)
        return replace(wider, sufficiency=sufficiency, cached=False, took_ms=(time.perf_counter() - started) * 1000)

    def _version(self) -> tuple[object, ...]:
        """Of everything a plan is made of."""
        proxy = self._proxy
        return (*proxy.search.version, proxy.instructions.version, proxy.settings, int(proxy.clock() / KEPT_S))

    def _made(self, query: Query, ranking: Ranking, profile: Profile, budget: int, domain: str) -> Plan:
        proxy = self._proxy
        found, said = proxy.search.assess(ranking)
        probability = said or 0.0
        pinned = self._pinned(profile, domain)
        ranked = self._candidates(ranking, probability)
        # What is ranked all the same waits for a step that is widened.
        tools = ranked if found != "none" else []
        hits = proxy.instructions.find(query.lines, profile, [ToolId(each.id) for each in tools[:1]])
        texts = [Candidate(each.fragment.id, "instruction", each.fragment.tokens, each.relevance) for each in hits]
        most: dict[Kind, int] = {"instruction": INSTRUCTIONS, "tool": TOOLS}
        selected = itr.select([*tools, *texts], budget - self._fixed(profile), most, pinned, per_token=False)
        if not selected.tools:
            selected = replace(selected, fallback="discover")
        plan = Plan(
            query, "", (), tuple(hit.fragment for hit in hits), 0, budget, found, probability, ranking,
            (*ranked, *texts), tuple(pinned), selected,
        )  # fmt: skip
        return self._assembled(plan, profile)

    def _assembled(self, plan: Plan, profile: Profile) -> Plan:
        """With its prompt and its tools, as selected."""
        catalog = self._proxy.catalog
        by_id = {each.id: each for each in [*plan.fragments, *self._proxy.instructions.of(profile)]}
        fragments = [by_id[id] for id in plan.selected.instructions if id in by_id]
        overlay = self._proxy.instructions.overlay(profile)
        tools = [self._shown(tool) for id in plan.selected.tools if (tool := catalog.get(ToolId(id))) is not None]
        prompt = itr.assemble([*overlay, *fragments])
        if plan.fallback == "discover":
            hidden = [tool.id for tool in catalog.tools() if profile.admits(tool.upstream)]
            left = plan.budget - self._fixed(profile) - plan.selected.tokens
            brief = itr.summary((name for name in hidden if name not in plan.selected.tools), left, estimate)
            prompt = f"{prompt}\n\n{brief}" if brief else prompt
        tokens = estimate(prompt) + sum(each.tokens for each in tools) + self.discover(profile).tokens
        return replace(plan, prompt=prompt, tools=tuple(tools), fragments=tuple(fragments), tokens=tokens)

    def _fixed(self, profile: Profile) -> int:
        """What every step of a profile costs: overlay, routing note, `discover_tools`."""
        overlay = self._proxy.instructions.overlay(profile)
        return estimate(itr.assemble(overlay)) + self.discover(profile).tokens

    def discover(self, profile: Profile) -> Shown:
        """`discover_tools`, which each step ends with."""
        counts = self._proxy.catalog.upstreams()
        own = dict(discover_tools.definitions({name: count for name, count in counts.items() if profile.admits(name)}))
        return Shown(ToolId(DISCOVER), own[ToolId(DISCOVER)], estimate(bytes(own[ToolId(DISCOVER)]).decode()))

    def _candidates(self, ranking: Ranking, probability: float) -> list[Candidate]:
        found = [(tool, each) for each in ranking.ranked if (tool := self._proxy.catalog.get(each.tool)) is not None]
        return [
            Candidate(tool.id, "tool", self._shown(tool).tokens, max(probability, 0.01) / rank)
            for rank, (tool, _) in enumerate(found, 1)
        ]

    def _shown(self, tool: Tool) -> Shown:
        """A tool at what it costs, trimmed if it is over the cap (setting `tool_tokens`)."""
        catalog, cap = self._proxy.catalog, self._proxy.settings.tool_tokens
        if (tokens := catalog.tokens(tool.id)) <= cap:
            return Shown(tool.id, catalog.definition(tool), tokens)
        members = jsonrpc.fields(tool.definition)
        about = f'{summary_line(document(tool))} (shortened; discover_tools(names=["{tool.id}"]) has all of it)'
        schema = trim(jsonrpc.plain(members["inputSchema"]))
        short = jsonrpc.raw({"name": tool.id, "description": about, "inputSchema": schema})
        return Shown(tool.id, short, estimate(bytes(short).decode()))

    # -- pins

    def _domain(self, query: Query) -> str:
        """Which of the setting `domains` the task is in, "" for none."""
        entries: Mapping[str, DomainEntry] = self._proxy.settings.domains
        if self._domains[0] is not entries:
            self._domains = (entries, Domains({name: entry.examples for name, entry in entries.items()}))
        return self._domains[1].of("\n".join(query.lines))

    def _pinned(self, profile: Profile, domain: str) -> list[Candidate]:
        """What is pinned always, and what is pinned for this kind of task."""
        catalog = self._proxy.catalog
        patterns = self._proxy.settings.domains[domain].pin if domain else ()
        found = [*catalog.pins(profile.pin), *(tool.id for tool in catalog.tools() if matches(tool.id, patterns))]
        known = [tool for id in dict.fromkeys(found) if (tool := catalog.get(id)) and profile.admits(tool.upstream)]
        return [Candidate(tool.id, "tool", self._shown(tool).tokens, 1.0) for tool in known]

    # -- on record

    def record(self, session: Session, plan: Plan, error: str = "") -> None:
        """Keep it as the discovery that it is, and what ITR's telemetry asks for."""
        proxy = self._proxy
        at, task = proxy.clock(), plan.task if proxy.keeps_text else ""
        shown = {each.tool for each in plan.tools}
        found = [each for each in plan.ranking.ranked if each.tool in shown]
        kept = Discovery(
            session=session.record.key, at=at, task=task, names=(), sufficiency=plan.sufficiency, level=plan.level,
            matches=tuple(Match(each.tool, rank, each.score, each.parts) for rank, each in enumerate(found, 1)),
            tokens=plan.tokens, took_ms=plan.took_ms, probability=plan.probability or None,
        )  # fmt: skip
        for miss in session.discovered(kept, proxy.recorder.discovery(kept), len(proxy.catalog)):
            proxy.recorder.miss(miss)
        step = StepRecord(
            session=session.record.key, at=at, task=task, tools=tuple(each.tool for each in plan.tools),
            fragments=tuple(each.id for each in plan.fragments), tokens=plan.tokens, budget=plan.budget,
            probability=plan.probability, sufficiency=plan.sufficiency, fallback=plan.fallback,
            cached=plan.cached, error=error, took_ms=plan.took_ms,
        )  # fmt: skip
        proxy.recorder.step(step)

    def show(self, session: Session, plan: Plan, profile: Profile) -> None:
        """From now on these are the tools that the session sees: any other it calls is a miss."""
        proxy = self._proxy
        tools = tuple(sorted([*(each.tool for each in plan.tools), self.discover(profile).tool]))
        order = tuple(each.tool for each in plan.ranking.ranked)
        view = StepView(
            profile.name, "frozen", 0, tools, frozenset(tools), b"[]", plan.tokens, plan.budget, proxy.clock(),
            lambda: order, proxy.unknown_upstreams(),
        )  # fmt: skip
        exposure = Exposure(session.record.key, proxy.clock(), "frozen", 0, tools, plan.tokens, "list")
        session.listed(view, proxy.recorder.exposure(exposure))


def described(plan: Plan) -> str:
    """The whole step as one text: its prompt with the tools in it."""
    tools = [json.dumps(jsonrpc.plain(each.definition), ensure_ascii=False) for each in plan.tools]
    head, _, note = plan.prompt.rpartition(itr.NOTE)
    listed = "\n".join(["Tools:", *tools]) if tools else ""
    return "\n\n".join(part for part in (head.strip(), listed, itr.NOTE + note) if part)


def query_of(proxy: Proxy, task: str, history: Sequence[str] = ()) -> Query:
    """A task in words, one need a line, after these calls (by exposed or upstream name, oldest first)."""
    lines = tuple(line.strip() for line in task.splitlines() if line.strip())
    called = [tool for name in history if (tool := proxy.catalog.find(name)) is not None]
    servers = tuple(dict.fromkeys(tool.upstream for tool in reversed(called)))
    return Query(lines, (), tuple(tool.id for tool in called), servers)
