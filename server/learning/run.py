"""Learning: from the log and demonstrations to models that serve, each promoted only if it would have served better.

For each method the later tasks are played again in two parts, forward in time: a model trained on everything before a
part ranks it, and so does what is served now, which has not seen these tasks either. If the new one is better outside
the error of that comparison, it is trained once more on everything and serves from then on; else its report alone is
kept. Lists are treated alike: would more of the called tools have been in the list, within the same budget?

Runs in a process of its own (`foretool learn`, or a child of `serve`); the only file that imports `retrieval.training`.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval import list_growth as growths
from foretool.retrieval import list_prior as priors
from foretool.retrieval.tokens import estimate
from foretool.server.catalog import models
from foretool.server.config.loader import Config
from foretool.server.learning.encoded_texts import Texts
from foretool.server.methods import discover_tools
from foretool.storage import episodes as log
from foretool.storage.artifacts import Artifact, Artifacts
from foretool.storage.flows import Flows
from foretool.storage.records import Episode, Tool, ToolId, Usage
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.retrieval.list_growth import Fixed, Growth
    from foretool.retrieval.model_format import Learned
    from foretool.retrieval.pipeline import Pipeline
    from foretool.retrieval.training import Material, Method
    from foretool.retrieval.training.list_growth import Gain, Stretch, Told
    from foretool.retrieval.training.replay import Comparison, Walk
    from foretool.server.catalog.catalog import Catalog

METHODS: Final[Mapping[str, str]] = {
    "dtdr": "foretool.retrieval.training.dtdr:METHOD",
    "tgr": "foretool.retrieval.training.tgr:METHOD",
    "masstool": "foretool.retrieval.training.masstool:METHOD",
    "ports": "foretool.retrieval.training.ports:METHOD",
}
"""What can be trained; each must read as `models.CLASSES` says."""

LEAST_REPLAYED: Final = 10
"""Fewer tasks say nothing about a model."""
MOST_REPLAYED: Final = 300
"""The latest ones; more would only take longer."""
SHARE_REPLAYED: Final = 0.4
"""Of all tasks, when a method is trained for the first time."""
PARTS: Final = 2
"""In how many steps the replayed tasks are gone through, each with a model trained on all before it."""
LEAST_OF_PART: Final = 40
"""Tasks of a part; fewer are gone through in one step, which spares a training."""
HALF_LIFE: Final = 200.0
"""Tasks after which one counts half for what lists are made from."""
THRIFTS: Final = (0.0, 0.5, 1.0)
LEASE_S: Final = 7200
"""After this long a run that never ended no longer keeps others from learning."""
RUN: Final = "run"
"""The kind under which the report of a whole run is kept."""

NOTHING: Final[Mapping[str, Any]] = {}

Say = Callable[[str, str, float], None]
"""Which method, what is being done, and which share of it is, 0 to 1."""


class Lesson(Struct, frozen=True):
    """What came of one method."""

    kind: str
    outcome: str
    """`promoted`, `kept` (the old one serves on), or `skipped`."""
    said: str
    """Why, in words."""
    report: dict[str, Any] = {}
    number: int = 0
    """Of the model, 0 if none was trained."""


class Run(Struct, frozen=True):
    """One learning run."""

    at: float
    episodes: int
    imported: int
    lessons: tuple[Lesson, ...]
    took_s: float


class Busy(Exception):
    """Another process is learning from the same file."""


def learn(
    config: Config, catalog: Catalog, store: Store, say: Say, *, methods: Sequence[str] = (), now: float | None = None
) -> Run:
    """Train, replay, promote; raises `Busy`, and `StorageError`. `methods`: only these."""
    at = time.time() if now is None else now
    artifacts = Artifacts(store)
    _lease(store, at)
    started = time.perf_counter()
    try:
        learner = Learner(config, catalog, store, say, at)
        lessons = tuple(learner.lessons(methods))
        run = Run(at, len(learner.episodes), learner.imported, lessons, round(time.perf_counter() - started, 1))
        artifacts.add(RUN, b"", msgspec.to_builtins(run), promote=False, at=at)
        artifacts.bump()
    finally:
        _release(store)
    return run


def _lease(store: Store, now: float) -> None:
    with store.atomic():
        rows = store.read("SELECT value FROM counters WHERE name = 'learning_until'")
        if rows and rows[0][0] > now:
            raise Busy("another process is learning from this file; wait for it, or see `foretool learn --report`")
        _set_lease(store, int(now) + LEASE_S)


def _release(store: Store) -> None:
    _set_lease(store, 0)


def _set_lease(store: Store, until: int) -> None:
    store.write_all(
        "INSERT INTO counters (name, value) VALUES ('learning_until', ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        [(until,)],
    )


def trusted(store: Store, tools: Sequence[Tool]) -> list[Tool]:
    """The tools as training may read them: of one whose text has changed, what it said first."""
    rows = store.read("SELECT upstream, name FROM tool_versions GROUP BY upstream, name HAVING count(*) > 1")
    changed = {(upstream, name) for upstream, name in rows}
    found = []
    for tool in tools:
        if (tool.upstream, tool.name) in changed:
            first = store.versions(tool.upstream, tool.name)[0]
            tool = replace(tool, definition=first.definition, schema_hash=first.schema_hash, tokens=first.tokens)
        found.append(tool)
    return found


def names_of(tools: Sequence[Tool]) -> dict[str, ToolId]:
    """Every name by which a demonstration may call a tool: as exposed, `server/tool`, or its own if no other has it."""
    own = Counter(tool.name for tool in tools)
    found = {tool.name: tool.id for tool in tools if own[tool.name] == 1}
    found |= {f"{tool.upstream}/{tool.name}": tool.id for tool in tools}
    return found | {str(tool.id): tool.id for tool in tools}


class Learner:
    """One run over one store."""

    def __init__(self, config: Config, catalog: Catalog, store: Store, say: Say, now: float) -> None:
        self.catalog = catalog
        self.store = store
        self.say = say
        self.now = now
        self.artifacts = Artifacts(store)
        self.tools = trusted(store, catalog.tools())
        self.upstream_of = {tool.id: tool.upstream for tool in self.tools}
        self._flows = Flows(store).all()
        told = self.artifacts.demonstrations()
        self.imported = len(told)
        self.episodes = log.without([*told, *log.episodes(store, now=now)], self.upstream_of)
        """What was imported first, then the log, oldest first; of tools that are there."""
        self.problem = ""
        """Why no encoder takes part, in words."""
        self._config = config
        self._texts = Texts.open(config.settings, store, self._note)
        self._known: dict[str, list[tuple[int, Learned]]] = {}
        """By kind, what is to serve, as it is after the episodes before each of these places: what has seen a task may
        not take part when it is replayed."""
        self._pipeline: Pipeline | None = None

    def _note(self, problem: str) -> None:
        self.problem = problem

    def lessons(self, methods: Sequence[str] = ()) -> Iterator[Lesson]:
        """One for each method, for lists, and for the weights of the sum."""
        yield self._lists()
        try:
            opened = models.open_models(models.read(self.store))
        except ImportError as error:
            opened = models.Opened(None, {}, (f"{error.name} is missing",))
        if opened.experience is not None:
            for kind, model in opened.experience.models.items():
                if self._comparable(kind) is None:
                    continue
                self._known[kind] = [(self._place_after(opened.served[kind]), model)]
        before = self._numbers()
        for kind in METHODS:
            if not methods or kind in methods:
                yield self._method(kind)
        if self._known and (not methods or models.WEIGHTS in methods):
            yield self._factors()
        if self._known and (not methods or models.GROWTH in methods or self._numbers() != before):
            yield self._growth()

    # -- which episodes

    def _place_after(self, old: Artifact | None) -> int:
        """From which place on the episodes are new to a model."""
        if old is None:
            share = max(int(SHARE_REPLAYED * len(self.episodes)), LEAST_REPLAYED)
            return max(len(self.episodes) - share, 0)
        until, imports = old.report.get("until", 0.0), old.report.get("imported", 0)
        seen = [
            place
            for place, each in enumerate(self.episodes)
            if (place < imports if each.source == "import" else each.at <= until)
        ]
        return seen[-1] + 1 if seen else 0

    def _replayed(self, old: Artifact | None) -> list[tuple[int, int]]:
        """The parts that are replayed, each from one place to another; [] if there is too little."""
        first, last = self._place_after(old), len(self.episodes)
        if last - first < LEAST_REPLAYED:
            return []
        count = PARTS if last - first >= PARTS * LEAST_OF_PART else 1
        if old is not None:
            # A new model has to have seen something that the old one has not.
            first = min(first + (last - first) // (count + 1), last - LEAST_REPLAYED)
        first = max(first, last - MOST_REPLAYED)
        bounds = [first + (last - first) * number // count for number in range(count + 1)]
        return list(itertools.pairwise(bounds))

    def _too_few(self, kind: str, old: Artifact | None) -> Lesson:
        new = len(self.episodes) - self._place_after(old)
        since = f"since {kind} {old.number}" if old else "on record"
        return Lesson(kind, "skipped", f"{new} tasks {since}; it takes {LEAST_REPLAYED} to tell whether it is better")

    def _stamp(self) -> dict[str, Any]:
        """Up to where a model has seen the episodes."""
        return {
            "episodes": len(self.episodes),
            "imported": self.imported,
            "until": max((each.at for each in self.episodes), default=0.0),
            "encoders": self._encoders(),
        }

    # -- models

    def _method(self, kind: str) -> Lesson:
        from foretool.retrieval.training import TooLittle

        try:
            method = _loaded(METHODS[kind])
        except ImportError as error:
            return Lesson(kind, "skipped", f"{error.name} is missing; pip install 'foretool[models]'")
        old = self._comparable(kind)
        if len(self.episodes) < method.minimum:
            return Lesson(kind, "skipped", f"{len(self.episodes)} tasks on record; it takes {method.minimum}")
        parts = self._replayed(old)
        if not parts:
            return self._too_few(kind, old)
        started = time.perf_counter()
        try:
            compared, gain, trained = self._compared(kind, method, parts)
            report: dict[str, Any] = {"lists": gain.told()} if gain else {}
            if not _is_promoted(compared, gain, old):
                return self._kept(kind, compared, old, started, report)
            data = method.train(self._material(len(self.episodes)), lambda what, share: self.say(kind, what, share))
        except TooLittle as error:
            return Lesson(kind, "skipped", str(error))
        self._known[kind] = [*self._known.get(kind, ()), *trained]
        report |= {**self._report(compared, started), "bytes": len(data)}
        made = self.artifacts.add(kind, data, report, promote=True, at=self.now)
        return Lesson(kind, "promoted", _gained(compared), report, made.number)

    def _kept(
        self, kind: str, compared: Comparison, old: Artifact | None, started: float, more: Mapping[str, Any] = NOTHING
    ) -> Lesson:
        report = {**self._report(compared, started), **more}
        made = self.artifacts.add(kind, b"", report, promote=False, at=self.now)
        serves = f"{kind} {old.number} serves on" if old else "it is not served"
        short = "not better" if old else "not better outside the error"
        return Lesson(kind, "kept", f"{short}: {_gained(compared)}; {serves}", report, made.number)

    def _report(self, compared: Comparison, started: float) -> dict[str, Any]:
        from foretool.retrieval.training.replay import told

        return {**self._stamp(), **told(compared), "took_s": round(time.perf_counter() - started, 1)}

    def _compared(
        self, kind: str, method: Method, parts: Sequence[tuple[int, int]]
    ) -> tuple[Comparison, Gain | None, list[tuple[int, Learned]]]:
        """What is served against new models, in ranks and in what growing lists cost, and these, each with the place up
        to which it has seen the episodes."""
        from foretool.retrieval.training.replay import compare

        before: list[Walk] = []
        after: list[Walk] = []
        trained: list[tuple[int, Learned]] = []
        lists: list[tuple[Stretch, Stretch]] = []
        for number, (first, last) in enumerate(parts):
            self.say(kind, "training for the replay", number / len(parts))
            material = self._material(first)
            data = method.train(material, lambda what, share: self.say(kind, what, share))
            new = models.open_model(kind, data)
            self.say(kind, "replaying", number / len(parts))
            served = self._unseeing(first)
            before += self._walked(served, first, last)
            after += self._walked({**served, kind: new}, first, last)
            lists.append((self._stretch(served, first, last), self._stretch({**served, kind: new}, first, last)))
            trained.append((first, new))
        self.say(kind, "replaying lists", 1.0)
        return compare(before, after), self._lists_compared(lists), trained

    def _unseeing(self, place: int) -> dict[str, Learned]:
        """What is to serve, by kind, as it was before it saw any episode from this place on."""
        found: dict[str, Learned] = {}
        for kind, held in self._known.items():
            for until, model in held:
                if until <= place:
                    found[kind] = model
        return found

    def _walked(self, served: Mapping[str, Learned], first: int, last: int) -> list[Walk]:
        from foretool.retrieval.training.replay import walk

        return walk(self._ranking(served), self.episodes[first:last], self.upstream_of, used(self.episodes[:first]))

    def _material(self, until: int) -> Material:
        """What may be learned from before this place."""
        from foretool.retrieval.training import Material

        return Material(
            tools=tuple(self.tools),
            episodes=tuple(self.episodes[:until]),
            server_texts={name: self.catalog.server_text(name) for name in self.catalog.upstreams()},
            documents=self._texts.documents if self._texts else None,
            queries=self._texts.queries if self._texts else None,
            readings=self._texts.readings if self._texts else None,
            flows=tuple(self._flows),
        )

    def _ranking(self, served: Mapping[str, Learned]) -> Pipeline:
        """The ranking as the proxy has it, with these models."""
        from foretool.retrieval.pipeline import Pipeline
        from foretool.retrieval.rankers.learned import Experience

        if self._pipeline is None:
            corpus = self.catalog.pipeline.corpus
            meaning = self._texts.meaning(self.catalog) if self._texts else None
            self._pipeline = Pipeline(corpus, meaning)
        self._pipeline.experience = Experience(served) if served else None
        return self._pipeline

    # -- the weights of the sum

    def _factors(self) -> Lesson:
        """Refitted on episodes that none of the models has seen, with the shipped weights as prior."""
        from foretool.retrieval.rankers.learned import Factors
        from foretool.retrieval.training import factors
        from foretool.retrieval.training.replay import compare

        kind, old = models.WEIGHTS, self.artifacts.active(models.WEIGHTS)
        first = max(max(place for place, _ in held) for held in self._known.values())
        unseen = self.episodes[first:]
        if len(unseen) < LEAST_REPLAYED:
            return Lesson(kind, "skipped", f"{len(unseen)} tasks that no model has seen; it takes {LEAST_REPLAYED}")
        started = time.perf_counter()
        self.say(kind, "replaying", 0.0)
        ranking = self._ranking(self._unseeing(first))
        found = list(factors.examples(ranking, unseen, self.upstream_of, used(self.episodes[:first])))
        self.say(kind, "fitting", 0.5)
        current = _read_factors(self.artifacts, old)
        compared = compare(factors.walks(found, current), factors.crossed(found))
        if not compared.is_better:
            return self._kept(kind, compared, old, started)
        fitted = Factors(
            "+".join(head.name for head in ranking.meaning.heads) if ranking.meaning else "", factors.fit(found)
        )
        report = {**self._report(compared, started), "factors": fitted.factors}
        made = self.artifacts.add(kind, msgspec.json.encode(fitted), report, promote=True, at=self.now)
        return Lesson(kind, "promoted", _gained(compared), report, made.number)

    # -- how lists grow

    def _growth(self) -> Lesson:
        """Refitted with every run for the models that serve now, from tasks that none of them had seen."""
        from foretool.retrieval.training import list_growth as training

        kind, old = models.GROWTH, self.artifacts.active(models.GROWTH)
        stretches = [each for each in self._stretches() if each.episodes]
        count = sum(len(each.episodes) for each in stretches)
        if count < LEAST_REPLAYED:
            said = f"{count} tasks in words that no model has seen; it takes {LEAST_REPLAYED}"
            return Lesson(kind, "skipped", said)
        started = time.perf_counter()
        self.say(kind, "replaying", 0.0)
        tokens, budget = self.catalog.tokens, self._budget
        allowed = self._allowed

        def fitted(part: Sequence[Stretch]) -> Growth | None:
            return training.fitted(part, tokens, budget=budget, own=self._own, allowed=allowed)

        rule = self._grows_by(old)
        before: list[Told] = []
        after: list[Told] = []
        for part, other in training.halves(stretches):
            crossed = fitted(other) or rule
            before += training.play(part, rule, tokens, budget, self._base(rule))
            after += training.play(part, crossed, tokens, budget, self._base(crossed))
        gain = training.Gain(tuple(before), tuple(after))
        report = {**self._stamp(), **gain.told(), "allowed": round(allowed, 1)}
        growth = fitted(stretches)
        if growth is None or not gain.is_better:
            report["took_s"] = round(time.perf_counter() - started, 1)
            made = self.artifacts.add(kind, b"", report, promote=False, at=self.now)
            return Lesson(kind, "kept", f"not better: {_spared(report)}", report, made.number)
        growth = replace(growth, models=self._numbers(), encoders=self._encoders())
        report |= {"growth": msgspec.to_builtins(growth), "took_s": round(time.perf_counter() - started, 1)}
        made = self.artifacts.add(kind, growths.dumps(growth), report, promote=True, at=self.now)
        return Lesson(kind, "promoted", _spared(report), report, made.number)

    def _lists_compared(self, pairs: Sequence[tuple[Stretch, Stretch]]) -> Gain | None:
        """What growing lists cost without a model and with it, each fitted to its own; None if there is too little."""
        from foretool.retrieval.training import list_growth as training

        if sum(len(old.episodes) for old, _ in pairs) < LEAST_REPLAYED:
            return None

        def cost(stretches: Sequence[Stretch]) -> list[Told]:
            told: list[Told] = []
            tokens, budget = self.catalog.tokens, self._budget
            for part, other in training.halves(stretches):
                rule: Fixed | Growth | None = growths.Fixed(most_found=None)
                if part[0].has_models:
                    rule = training.fitted(other, tokens, budget=budget, own=self._own, allowed=self._allowed)
                rule = rule or growths.Fixed()
                told += training.play(part, rule, tokens, budget, self._base(rule))
            return told

        return training.Gain(tuple(cost([old for old, _ in pairs])), tuple(cost([new for _, new in pairs])))

    def _stretches(self) -> Iterator[Stretch]:
        """The later tasks with every model as it was before them."""
        last = len(self.episodes)
        places = sorted({place for held in self._known.values() for place, _ in held if place < last})
        for first, end in itertools.pairwise([*places, last]):
            served = self._unseeing(first)
            if len(served) == len(self._known) and end > last - MOST_REPLAYED:
                yield self._stretch(served, first, end)

    def _stretch(self, served: Mapping[str, Learned], first: int, last: int) -> Stretch:
        """The tasks from one place to another with these models, and lists as they were before."""
        from foretool.retrieval.rankers.learned import Experience, Factors
        from foretool.retrieval.training.list_growth import Stretch

        factors = Factors(self._encoders(), dict(_read_factors(self.artifacts, self.artifacts.active(models.WEIGHTS))))
        earlier = [each.calls for each in self.episodes[:first]]
        usage = used_in(earlier)
        has_prior = self.artifacts.active(models.PRIOR) is not None
        prior = self._fitted(earlier) if has_prior else priors.Prior()
        return Stretch(
            self._ranking({}), Experience(served, factors) if served else None, self.episodes[first:last],
            self.upstream_of, usage=usage, prompted=self._prompted,
            order=priors.order(prior, usage.values(), self.catalog.tokens, 0.0, 1.0),
        )  # fmt: skip

    @cached_property
    def _allowed(self) -> float:
        """Tokens that lists may take: see `retrieval.training.growth`."""
        from foretool.retrieval.training import list_growth as training

        return training.allowance(self._unlearned(), self.catalog.tokens, self._budget)

    def _unlearned(self) -> Stretch:
        """The tasks on record as they would be without anything learned or used."""
        from foretool.retrieval.training.list_growth import Stretch

        return Stretch(
            self._ranking({}), None, self.episodes[-MOST_REPLAYED:], self.upstream_of, usage={}, order=(),
            prompted=self._prompted,
        )  # fmt: skip

    @cached_property
    def _prompted(self) -> frozenset[str]:
        """Tasks that a hook recorded before their first call."""
        return frozenset(each.text for each in self.store.prompts())

    def _grows_by(self, old: Artifact | None) -> Fixed | Growth:
        """How lists grow now, with the models that serve now."""
        for _, data in self.artifacts.whole(models.GROWTH) if old else ():
            with suppress(msgspec.MsgspecError):
                growth = growths.loads(data)
                if growth.models == self._numbers() and growth.encoders == self._encoders():
                    return growth
        return growths.Fixed()

    def _base(self, rule: Fixed | Growth) -> int:
        """Tokens that a list begins with."""
        if isinstance(rule, growths.Growth):
            return rule.base
        return max(int(growths.BASE_SHARE * self._config.profiles[""].list_tokens) - self._own, 0)

    def _numbers(self) -> dict[str, int]:
        return models.numbers(self.artifacts.served())

    def _encoders(self) -> str:
        return self._texts.names if self._texts else ""

    def _comparable(self, kind: str) -> Artifact | None:
        """The model in use, unless it was trained with other encoders: what it reads is gone."""
        old = self.artifacts.active(kind)
        return old if old is None or old.report.get("encoders", "") in ("", self._encoders()) else None

    # -- lists

    def _lists(self) -> Lesson:
        """What lists are filled by: would more of the called tools have been in them, within the same budget?"""
        kind, old = models.PRIOR, self.artifacts.active(models.PRIOR)
        parts = self._replayed(old)
        if not parts:
            return self._too_few(kind, old)
        started = time.perf_counter()
        self.say(kind, "replaying lists", 0.0)
        served = _read_prior(self.artifacts)
        covered = Covered()
        for first, last in parts:
            earlier = [each.calls for each in self.episodes[:first]]
            later = [each.calls for each in self.episodes[first:last]]
            covered.add([self._listed(prior, earlier) for prior in (served, self._fitted(earlier))], later)
        report = {
            **self._stamp(), "replayed": len(covered.before), "budget": self._budget, **covered.told(self.catalog),
            "took_s": round(time.perf_counter() - started, 1),
        }  # fmt: skip
        figures = f"{covered.figures} of the called tools in the list, over {len(covered.before)} later tasks"
        if covered.difference[0] <= 0.0:
            made = self.artifacts.add(kind, b"", report, promote=False, at=self.now)
            return Lesson(kind, "kept", f"not better outside the error: {figures}", report, made.number)
        fitted = self._fitted([each.calls for each in self.episodes])
        made = self.artifacts.add(kind, priors.dumps(fitted), report, promote=True, at=self.now)
        return Lesson(kind, "promoted", figures, report, made.number)

    @property
    def _own(self) -> int:
        """Tokens of our own tools."""
        own = discover_tools.definitions(self.catalog.upstreams())
        return sum(estimate(bytes(definition).decode()) for _, definition in own)

    @property
    def _budget(self) -> int:
        """Tokens of a list without our own tools."""
        return max(self._config.profiles[""].list_tokens - self._own, 0)

    def _listed(self, prior: priors.Prior, earlier: Sequence[tuple[ToolId, ...]]) -> list[ToolId]:
        usages = used_in(earlier).values()
        return priors.fill(
            priors.order(prior, usages, self.catalog.tokens, 0.0, 1.0), self.catalog.tokens, self._budget
        )

    def _fitted(self, earlier: Sequence[tuple[ToolId, ...]]) -> priors.Prior:
        """Needs of all, and the thrift that would have done best for the later third of them."""
        split = len(earlier) * 2 // 3
        known = priors.needs(earlier[:split], HALF_LIFE)

        def covered(thrift: float) -> float:
            listed = self._listed(priors.learned_from(known, thrift), earlier[:split])
            return fmean(priors.coverage(listed, earlier[split:]) or [0.0])

        best = max(THRIFTS, key=covered)
        return priors.learned_from(priors.needs(earlier, HALF_LIFE), best)


class Covered:
    """How much of later tasks the old and the new way to fill a list would have had in it."""

    def __init__(self) -> None:
        self.before: list[float] = []
        self.after: list[float] = []
        self._lists: Sequence[Sequence[ToolId]] = ((), ())

    def add(self, lists: Sequence[Sequence[ToolId]], later: Sequence[tuple[ToolId, ...]]) -> None:
        """The old and the new list of one part."""
        self._lists = lists
        self.before += priors.coverage(lists[0], later)
        self.after += priors.coverage(lists[1], later)

    @property
    def difference(self) -> tuple[float, float, float]:
        """Lower end, mean and upper end of the gain."""
        from foretool.retrieval.evaluation import paired_interval

        if not self.before:
            return 0.0, 0.0, 0.0
        low, high = paired_interval(self.after, self.before)
        return round(low, 4), round(fmean(self.after) - fmean(self.before), 4), round(high, 4)

    @property
    def figures(self) -> str:
        low, _, high = self.difference
        return f"{fmean(self.before or [0.0]):.1%} -> {fmean(self.after or [0.0]):.1%} ({low:+.1%} to {high:+.1%})"

    def told(self, catalog: Catalog) -> dict[str, Any]:
        """For a report; tokens are those of the last part's lists."""
        sizes = [sum(map(catalog.tokens, each)) for each in self._lists]
        return {
            "old": {"in_list": round(fmean(self.before or [0.0]), 4), "tokens": sizes[0]},
            "new": {"in_list": round(fmean(self.after or [0.0]), 4), "tokens": sizes[1]},
            "difference": list(self.difference),
        }


def used(episodes: Sequence[Episode]) -> dict[ToolId, Usage]:
    """Usage as these episodes would have left it."""
    return used_in([each.calls for each in episodes])


def used_in(calls: Sequence[tuple[ToolId, ...]]) -> dict[ToolId, Usage]:
    counts = Counter(tool for each in calls for tool in each)
    return {tool: Usage(tool, count, 0, 0.0) for tool, count in counts.items()}


def _gained(compared: Comparison) -> str:
    low, _mean, high = compared.difference
    return (
        f"reciprocal rank {compared.old['mrr']:.3f} -> {compared.new['mrr']:.3f} ({low:+.3f} to {high:+.3f}),"
        f" in the first five {compared.old['top5']:.1%} -> {compared.new['top5']:.1%},"
        f" over {compared.episodes} later tasks"
    )


def _is_promoted(compared: Comparison, gain: Gain | None, old: Artifact | None) -> bool:
    """Whether a model is better outside the error: in its ranks, or better in the mean there and in what lists cost
    outside the error. One that follows its like need only be better in the mean."""
    if compared.is_better:
        return True
    return compared.may_follow and (old is not None or (gain is not None and gain.is_sure))


def _spared(report: Mapping[str, Any]) -> str:
    old, new = report["old"], report["new"]
    return (
        f"hidden calls {old['hidden']:.1%} -> {new['hidden']:.1%}, discoveries a task {old['discoveries']:.2f} ->"
        f" {new['discoveries']:.2f}, tokens of tools in the list {old['tokens']:.0f} -> {new['tokens']:.0f},"
        f" over {report['replayed']} later tasks"
    )


def _loaded(place: str) -> Method:
    module, _, name = place.partition(":")
    found: Method = getattr(import_module(module), name)
    return found


def _read_prior(artifacts: Artifacts) -> priors.Prior:
    for _, data in artifacts.whole(models.PRIOR):
        try:
            return priors.loads(data)
        except msgspec.MsgspecError:
            continue
    return priors.Prior()


def _read_factors(artifacts: Artifacts, old: Artifact | None) -> Mapping[str, float]:
    found: Mapping[str, float] = old.report.get("factors", {}) if old else {}
    return found
