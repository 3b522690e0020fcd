"""Plans one step of an agent as ITR does: instructions and tools under one budget, and the prompt for them.

Serves `step()` of the library and the prompt `assemble_step`. The algorithm is in `retrieval/itr.py`. The gain of a
tool is the gate's probability over its rank, and that of an instruction is the share of the query's words that it has.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval import itr
from foretool.retrieval.fragments import Fragment, fit_fragment
from foretool.retrieval.itr import Candidate, Domains, Fallback, Selected, Signatures
from foretool.retrieval.ranking import Query, Ranking, task_lines
from foretool.retrieval.tokens import estimate
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.definitions import write_definition
from foretool.server.catalog.names import DISCOVER
from foretool.server.catalog.search import Search
from foretool.server.clients.exchange import Caller, Exchange
from foretool.server.clients.session import Session
from foretool.server.config.loader import LiveConfig, Profile
from foretool.server.config.settings import DomainEntry
from foretool.server.discovery.arguments import MATCHES
from foretool.server.discovery.instructions import Instructions
from foretool.server.discovery.plain_schemas import trim
from foretool.server.discovery.schemas import describe
from foretool.server.discovery.skill_search import SkillSearch, as_fragment
from foretool.server.lists import own_tools
from foretool.server.lists.maker import View
from foretool.server.methods.prompts import STEP
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, Raw, RpcError
from foretool.server.recording.recorder import Recorder
from foretool.server.trust.policy import TrustPolicy
from foretool.storage.records import Discovery, Exposure, Level, Match, StepRecord, Tool, ToolId

BUDGET: Final = 2000
"""Tokens of a step (its prompt and the definitions of its tools) if the caller gives no budget."""
_TOOLS: Final = MATCHES
_LEAST: Final = 5
"""A step of a task that something fits has room for this many tools: no other tool can be called in it."""
_INSTRUCTIONS: Final = 4
"""At most this many tools and instructions (K_B and K_A). A missing tool costs more than a useless one, so `_TOOLS` is
high and the budget mostly decides (ITR 3.7, recall first)."""
_SHARE: Final = 4
"""Instructions are sure of 1 / `_SHARE` of a step's tokens; they get more only where tools leave it."""
_RANKED: Final = 50
_KEPT_S: Final = 900.0
"""A plan is remembered this long while nothing it was made of changes."""


class Shown(Struct, frozen=True):
    tool: ToolId
    definition: Raw
    """The upstream's definition under the exposed name; a large one has a trimmed schema."""
    tokens: int


class StepPlan(Struct, frozen=True):
    """What a step of an agent gets: a prompt and tools, with what they were selected from."""

    query: Query
    prompt: str
    tools: tuple[Shown, ...]
    fragments: tuple[Fragment, ...]
    tokens: int
    """Tokens of the prompt and the tools, `discover_tools` included."""
    budget: int
    level: Level
    probability: float
    """The gate's probability that a needed tool is among the first five."""
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


class AgentSteps:
    """Plans the steps of agents, remembers them for a while, and records what each was given."""

    def __init__(
        self, catalog: Catalog, search: Search, instructions: Instructions, recorder: Recorder, config: LiveConfig,
        unlisted: Callable[[], frozenset[str]], policy: TrustPolicy, skills: SkillSearch,
    ) -> None:  # fmt: skip
        """`unlisted` returns the upstreams whose tools are unknown."""
        self._catalog = catalog
        self._search = search
        self._instructions = instructions
        self._recorder = recorder
        self._config = config
        self._unlisted = unlisted
        self._policy = policy
        self._skills = skills
        self._cache: Signatures[StepPlan] = Signatures()
        self._domains: tuple[object, Domains] = ({}, Domains({}))

    # -- planning

    def plan(
        self, query: Query, client: Caller, budget: int, go: Callable[[StepPlan], None], asked: Sequence[ToolId] = ()
    ) -> None:
        """Plan a step (ITR, Algorithm 1, lines 1 to 5) and call `go` with it, once the slow encoders have answered.
        `asked`: tools that a search of the model's own has shown, best first; they come before what is ranked."""
        started = time.perf_counter()
        profile = client.profile
        query = replace(query, profile=profile.name)
        domain = self._find_domain(query)
        # The whole text counts: "copy alpha to beta" has the words of "copy beta to alpha" and is another task.
        skills = self._skills.known(client, profile)
        asked = [tool for tool in asked[:_LEAST] if self._finds(tool, profile)]
        key = (query.lines, query.history, query.servers_in_use, profile.key, budget, domain, skills, *asked)
        known = self._cache.get(key, self._version())
        if known is not None:
            go(replace(known, cached=True, took_ms=(time.perf_counter() - started) * 1000))
            return

        def build(ranking: Ranking) -> None:
            found = self._skills.find(query.lines, client, profile)
            plan = self._build(query, ranking, profile, budget, domain, [as_fragment(each) for each in found], asked)
            # Planning may have read changed files, which moves the version.
            self._cache.put(key, self._version(), plan)
            go(replace(plan, took_ms=(time.perf_counter() - started) * 1000))

        def ranked(ranking: Ranking) -> None:
            self._skills.when_embedded(client, profile, partial(build, ranking))

        self._search.find(query, self._policy.reach(profile).finds, _RANKED, ranked)

    def widen(self, plan: StepPlan, sufficiency: float, profile: Profile) -> StepPlan:
        """Return a wider plan (Algorithm 1, line 8): more tools under twice the budget, or, if no more tools were
        found, the names of hidden tools."""
        started = time.perf_counter()
        budget = plan.budget - self._fixed_tokens(profile)
        tools = max(len(plan.tools), _TOOLS // 2)
        selected = itr.widen(plan.selected, plan.candidates, plan.pinned, budget, tools)
        wider = self._assemble(replace(plan, selected=selected, budget=2 * plan.budget), profile)
        return replace(wider, sufficiency=sufficiency, cached=False, took_ms=(time.perf_counter() - started) * 1000)

    def _version(self) -> tuple[object, ...]:
        """Return the version of everything that a plan is made of."""
        age = int(self._recorder.now() / _KEPT_S)
        return (*self._search.version, self._instructions.version, self._config.settings, age)

    def _finds(self, id: ToolId, profile: Profile) -> bool:
        tool = self._catalog.get(id)
        return tool is not None and self._policy.reach(profile).finds(tool)

    def _build(
        self, query: Query, ranking: Ranking, profile: Profile, budget: int, domain: str, skills: Sequence[Fragment],
        asked: Sequence[ToolId],
    ) -> StepPlan:  # fmt: skip
        judged = self._search.judge(ranking)
        found, probability = judged.level, judged.probability or 0.0
        pinned = self._find_pins(profile, domain)
        chances = zip((each.tool for each in ranking.ranked), judged.chances, strict=True)
        wanted = self._candidates((tool, 1.0) for tool in asked)
        ranked = self._candidates((tool, chance) for tool, chance in chances if tool not in asked)
        # Even if nothing was found, a step that is widened may take what is ranked.
        tools = [*wanted, *(ranked if found != "none" else ())]
        most = min(max(judged.k, _LEAST) + len(wanted), _TOOLS)
        servers = self._servers_of(each.id for each in tools[:most])
        hits = self._instructions.find(query.lines, profile, servers)
        left = budget - self._fixed_tokens(profile)
        # A missing tool costs more than a missing text: texts are sure of their share alone.
        matched = [*skills, *(hit.fragment for hit in hits)]
        reserved = sum(map(_cited_tokens, _fit_texts(matched, left // _SHARE)))
        selected = itr.select(tools, left - reserved, {"tool": most}, pinned)
        # A tool may have found no room, and then its server has nothing to say.
        if (given := self._servers_of(each.id for each in tools if each.id in selected.tools)) != servers:
            hits = self._instructions.find(query.lines, profile, given)
        texts = _fit_texts([*skills, *(hit.fragment for hit in hits)], left - selected.tokens)
        relevance = {each.id: 1.0 for each in skills} | {hit.fragment.id: hit.relevance for hit in hits}
        shown = [Candidate(each.id, "instruction", _cited_tokens(each), relevance[each.id]) for each in texts]
        selected = replace(
            selected,
            instructions=tuple(each.id for each in shown),
            tokens=selected.tokens + sum(each.tokens for each in shown),
        )
        if not selected.tools:
            selected = replace(selected, fallback="discover")
        plan = StepPlan(
            query, "", (), tuple(texts), 0, budget, found, probability, ranking, (*wanted, *ranked, *shown),
            tuple(pinned), selected,
        )  # fmt: skip
        return self._assemble(plan, profile)

    def _servers_of(self, tools: Iterable[str]) -> list[str]:
        found = (self._catalog.get(ToolId(id)) for id in tools)
        return [*dict.fromkeys(tool.upstream for tool in found if tool is not None)]

    def _assemble(self, plan: StepPlan, profile: Profile) -> StepPlan:
        catalog = self._catalog
        # Those of the plan come last: some are cut to fit.
        by_id = {each.id: each for each in [*self._instructions.of(profile), *plan.fragments]}
        fragments = [by_id[id] for id in plan.selected.instructions if id in by_id]
        overlay = self._instructions.overlay(profile)
        tools = [self._fit_tool(tool) for id in plan.selected.tools if (tool := catalog.get(ToolId(id))) is not None]
        prompt = itr.assemble([*overlay, *fragments])
        if plan.fallback == "discover":
            hidden = [tool.id for tool in filter(self._policy.reach(profile).finds, catalog.tools())]
            left = plan.budget - self._fixed_tokens(profile) - plan.selected.tokens
            brief = itr.summary((name for name in hidden if name not in plan.selected.tools), left, estimate)
            prompt = f"{prompt}\n\n{brief}" if brief else prompt
        tokens = estimate(prompt) + sum(each.tokens for each in tools) + self.discover(profile).tokens
        return replace(plan, prompt=prompt, tools=tuple(tools), fragments=tuple(fragments), tokens=tokens)

    def _fixed_tokens(self, profile: Profile) -> int:
        """Return what every step of a profile costs: overlay, routing note, `discover_tools`."""
        return estimate(itr.assemble(self._instructions.overlay(profile))) + self.discover(profile).tokens

    def discover(self, profile: Profile) -> Shown:
        """Return the definition of `discover_tools`, with which every step ends."""
        counts = self._catalog.now.count_tools(self._policy.reach(profile))
        own = dict(own_tools.definitions(counts, rates_tools=True))
        return Shown(ToolId(DISCOVER), own[ToolId(DISCOVER)], estimate(bytes(own[ToolId(DISCOVER)]).decode()))

    def _candidates(self, gains: Iterable[tuple[ToolId, float]]) -> list[Candidate]:
        return [
            Candidate(id, "tool", self._fit_tool(tool).tokens, gain)
            for id, gain in gains
            if (tool := self._catalog.get(id)) is not None
        ]

    def _fit_tool(self, tool: Tool) -> Shown:
        """Return a tool with its cost, trimmed if it is over the cap (setting `tool_tokens`)."""
        catalog, cap = self._catalog, self._config.settings.tool_tokens
        if (tokens := catalog.tokens(tool.id)) <= cap:
            return Shown(tool.id, write_definition(tool), tokens)
        members = jsonrpc.fields(tool.definition)
        about = f'{describe(tool.definition)} (shortened; discover_tools(names=["{tool.id}"]) has all of it)'
        schema = trim(jsonrpc.decode_value(members["inputSchema"]))
        short = jsonrpc.raw({"name": tool.id, "description": about, "inputSchema": schema})
        return Shown(tool.id, short, estimate(bytes(short).decode()))

    # -- pins

    def _find_domain(self, query: Query) -> str:
        """Return the entry of the setting `domains` that a task belongs to, "" for none."""
        entries: Mapping[str, DomainEntry] = self._config.settings.domains
        if self._domains[0] is not entries:
            self._domains = (entries, Domains({name: entry.examples for name, entry in entries.items()}))
        return self._domains[1].of("\n".join(query.lines))

    def _find_pins(self, profile: Profile, domain: str) -> list[Candidate]:
        """Return the tools that are always pinned, and those that are pinned for this kind of task."""
        catalog = self._catalog
        patterns = self._config.settings.domains[domain].pin if domain else ()
        found = [*catalog.pins(profile.pin), *(tool.id for tool in catalog.tools() if catalog.is_meant(tool, patterns))]
        finds = self._policy.reach(profile).finds
        known = [tool for id in dict.fromkeys(found) if (tool := catalog.get(id)) and finds(tool)]
        return [Candidate(tool.id, "tool", self._fit_tool(tool).tokens, 1.0) for tool in known]

    # -- recording

    def record(self, session: Session, plan: StepPlan, error: str = "") -> None:
        """Record the plan as a discovery and as a step (the figures of ITR's telemetry)."""
        at, task = self._recorder.now(), self._recorder.keep_text(plan.task)
        shown = {each.tool for each in plan.tools}
        found = [each for each in plan.ranking.ranked if each.tool in shown]
        kept = Discovery(
            session=session.record.key, at=at, task=task, names=(), sufficiency=plan.sufficiency, level=plan.level,
            matches=tuple(Match(each.tool, rank, each.score, each.parts) for rank, each in enumerate(found, 1)),
            tokens=plan.tokens, took_ms=plan.took_ms, probability=plan.probability or None,
        )  # fmt: skip
        settled = session.discovered(kept, self._recorder.discovery(kept), len(self._catalog), is_step=True)
        self._recorder.settle(settled.new, settled.changed)
        step = StepRecord(
            session=session.record.key, at=at, task=task, tools=tuple(each.tool for each in plan.tools),
            fragments=tuple(each.id for each in plan.fragments), tokens=plan.tokens, budget=plan.budget,
            probability=plan.probability, sufficiency=plan.sufficiency, fallback=plan.fallback,
            cached=plan.cached, error=error, took_ms=plan.took_ms,
        )  # fmt: skip
        self._recorder.step(step)

    def show(self, session: Session, plan: StepPlan, profile: Profile) -> None:
        """Show the session only the tools of a step: a call of any other tool is a miss."""
        at = self._recorder.now()
        tools = tuple(sorted([*(each.tool for each in plan.tools), self.discover(profile).tool]))
        view = View(
            policy="frozen", epoch=0, tools=tools, shown=frozenset(tools), array=b"[]", tokens=plan.tokens,
            budget=plan.budget, created_at=at, ranked=tuple(each.tool for each in plan.ranking.ranked), most=_TOOLS,
            offline=self._unlisted(),
        )  # fmt: skip
        exposure = Exposure(session.record.key, at, "frozen", 0, tools, plan.tokens, "list")
        session.list.give(view, self._recorder.exposure(exposure))

    # -- the prompt `assemble_step`

    def answer_prompt(self, exchange: Exchange) -> None:
        """Answer `prompts/get` for `assemble_step` with the result of `step()` of the library as one text."""
        session = exchange.own_session
        given = jsonrpc.fields(exchange.params.get("arguments", UNSET))
        task, budget = jsonrpc.text(given.get("task")) or "", jsonrpc.text(given.get("budget")) or str(BUDGET)
        if not task.strip():
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{STEP}: task is missing; say what to do, one need per line")
        if not budget.isdecimal() or not 0 < int(budget) <= 1_000_000:
            raise RpcError(jsonrpc.INVALID_PARAMS, f"{STEP}: budget: expected a number of tokens, found {budget!r}")
        self._catalog.fix_names()

        def answer(plan: StepPlan) -> None:
            self.record(session, plan)
            content = {"type": "text", "text": f"{_describe(plan)}\n\n{task}"}
            about = f"{len(plan.tools)} tools and {len(plan.fragments)} instructions, confidence {plan.level}"
            exchange.own_result({"description": about, "messages": [{"role": "user", "content": content}]})

        query = self.query(task, session.conversations.whole.steps)
        self.plan(query, exchange.client, int(budget), lambda plan: exchange.attempt(lambda: answer(plan)))

    def query(self, task: str, history: Sequence[str] = ()) -> Query:
        """Return the query for a task with one need a line. `history`: exposed or own names of the tools called so far,
        the oldest first."""
        lines = task_lines(task)
        called = [tool for name in history if (tool := self._catalog.find(name)) is not None]
        servers = tuple(dict.fromkeys(tool.upstream for tool in reversed(called)))
        return Query(lines, (), tuple(tool.id for tool in called), servers)


def _fit_texts(matched: Sequence[Fragment], budget: int) -> list[Fragment]:
    """Return the first texts that fit into `budget` tokens as a prompt quotes them, at most `_INSTRUCTIONS`; one that
    is too long is cut."""
    fitted: list[Fragment] = []
    for fragment in matched[:_INSTRUCTIONS]:
        quotes = _cited_tokens(replace(fragment, text=""))
        part = fit_fragment(fragment, budget - quotes)
        if part is not None and (tokens := _cited_tokens(part)) <= budget:
            fitted.append(part)
            budget -= tokens
    return fitted


def _cited_tokens(fragment: Fragment) -> int:
    """Return what a text costs in a prompt, with its source and the line that separates it from the next part."""
    return estimate(itr.cited(fragment)) + 1


def _describe(plan: StepPlan) -> str:
    """Return the whole step as one text: its prompt with the tools in it."""
    tools = [json.dumps(jsonrpc.decode_value(each.definition), ensure_ascii=False) for each in plan.tools]
    head, _, note = plan.prompt.rpartition(itr.NOTE)
    listed = "\n".join(["Tools:", *tools]) if tools else ""
    return "\n\n".join(part for part in (head.strip(), listed, itr.NOTE + note) if part)
