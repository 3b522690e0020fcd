"""What a step shows of a catalogue: ITR as published with its baselines, and what foretool serves.

The published form is `bench/papers/published/itr.py` over the definitions of the tools and the servers' instructions,
with an encoder that foretool has not trained. A tool costs `LEAST` to `MOST` tokens, as a document of the paper does.
The served form is the app of a default install on its first day, in process: its list, the answer of `discover_tools`,
and `step()` of the library.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from math import inf
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from bench import metrics
from bench.datasets import tool_of
from bench.kept_encoder import KeptEncoder
from bench.papers.itr_steps import Catalogue, Step
from bench.papers.published.cross_encoder import CrossEncoder
from bench.papers.published.itr import PUBLISHED, Corpora, Item, Itr, Parameters, Scorer
from bench.retrieval.itr_ranking import Signals
from bench.retrieval.pool import Pool
from foretool.learning.encoded_texts import EncodedTexts
from foretool.retrieval import tokens
from foretool.retrieval.corpus import Corpus
from foretool.retrieval.encoders import Weights
from foretool.retrieval.fragments import Fragment, fragments
from foretool.retrieval.ranking import Query
from foretool.server.app import App
from foretool.server.catalog.embedding import open_shipped_vectors, texts_to_embed
from foretool.server.catalog.encoders import open_any_encoder
from foretool.server.catalog.search import RANKED
from foretool.server.config.loader import load
from foretool.server.discovery.agent_step import BUDGET, StepPlan
from foretool.server.discovery.arguments import MATCHES, Arguments
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.opening import open_store
from foretool.storage.records import SessionRecord, ToolId
from foretool.storage.store import Store

LEAST: Final = 150
MOST: Final = 800
"""Tokens of the document of a tool (3.2): a shorter definition has exemplars beside it, a longer one is cut."""
VARIANTS: Final[Mapping[str, Parameters]] = {
    "ITR": PUBLISHED,
    "ITR, K_B=1": replace(PUBLISHED, tools=1),
    "ITR, K_B=4": replace(PUBLISHED, tools=4),
    "ITR, K_A=1": replace(PUBLISHED, instructions=1),
    "ITR, K_A=0": replace(PUBLISHED, instructions=0),
    "ITR, no re-ranker": replace(PUBLISHED, cross=0.0),
    "ITR, dense alone": replace(PUBLISHED, sparse=0.0, cross=0.0),
    "ITR, words alone": replace(PUBLISHED, dense=0.0, cross=0.0),
}
BY_SCORE: Final = "ITR, by score"
"""Filled by score and not by score per token."""


class Outcome(Struct, frozen=True):
    """What one form gave one step."""

    some: float
    """1 if a needed tool was at hand."""
    all: float
    """1 if every needed tool was."""
    tokens: float
    tools: int


def outcome(shown: Sequence[ToolId], step: Step, tokens: float) -> Outcome:
    """Judge what a step shows."""
    most = len(shown)
    return Outcome(
        metrics.hit(shown, step.gold, most), metrics.completeness(shown, step.gold, most), tokens, len(shown)
    )


@cache
def count(text: str) -> int:
    """The tokens of a text."""
    return tokens.count_tokens([text])[0] if tokens.available() else tokens.estimate(text)


class Once:
    """A scorer that scores a query once: the variants of a method read the same signals."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._cosines: dict[str, Sequence[float]] = {}
        self._words: dict[str, Sequence[float]] = {}
        self._judged: dict[str, dict[int, float]] = {}
        """What the cross-encoder says, by query and place."""

    def cosines(self, query: str) -> Sequence[float]:
        if query not in self._cosines:
            self._cosines[query] = self._scorer.cosines(query)
        return self._cosines[query]

    def words(self, query: str) -> Sequence[float]:
        if query not in self._words:
            self._words[query] = self._scorer.words(query)
        return self._words[query]

    def cross(self, query: str, places: Sequence[int]) -> Sequence[float] | None:
        known = self._judged.setdefault(query, {})
        if new := [place for place in places if place not in known]:
            judged = self._scorer.cross(query, new)
            if judged is None:
                return None
            known.update(zip(new, judged, strict=True))
        return [known[place] for place in places]


class Empty:
    """The scorer of a corpus without items."""

    def cosines(self, query: str) -> Sequence[float]:
        return ()

    def words(self, query: str) -> Sequence[float]:
        return ()

    def cross(self, query: str, places: Sequence[int]) -> Sequence[float] | None:
        return ()


class PublishedForm:
    """ITR as published over one catalogue, its variants and its baselines."""

    def __init__(
        self, catalogue: Catalogue, encoders: Sequence[KeptEncoder], cross_encoder: CrossEncoder | None
    ) -> None:
        said = [
            each for server in catalogue.servers
            for each in fragments(server.instructions, f"server {server.name}", upstream=server.name)
        ]  # fmt: skip
        self.fragments = tuple(said)
        tools = catalogue.tools
        sizes = {tool.id: count(tool.definition.decode()) for tool in tools}
        self.all_tools = sum(sizes.values())
        self.all_instructions = sum(each.tokens for each in said)

        def scorer(pool: Pool) -> Scorer:
            if not pool.tools:
                return Empty()
            signals = Signals(pool, cross=False)
            signals.cross_encoder = cross_encoder
            return Once(signals)

        texts = [tool_of("", {"name": each.id, "description": each.text}) for each in said]
        items = tuple(Item(tool.id, tool.definition.decode(), max(LEAST, min(sizes[tool.id], MOST))) for tool in tools)
        corpora = Corpora(self.fragments, scorer(Pool(texts, {}, encoders)), items, scorer(Pool(tools, {}, encoders)))
        self.methods = {name: Itr(corpora, parameters) for name, parameters in VARIANTS.items()}
        self.methods[BY_SCORE] = Itr(corpora, per_token=False)

    @property
    def everything(self) -> int:
        """The tokens of a step with all instructions and all tools (eq. 1)."""
        return self.all_instructions + self.all_tools

    def quoted(self, words: str, method: str) -> list[Fragment]:
        """The instructions that a step shows."""
        selected, _, _ = self.methods[method].step(words)
        return [each for each in self.fragments if each.id in selected.instructions]

    def outcomes(self, step: Step) -> dict[str, Outcome]:
        """What each method and each baseline gives a step."""
        itr = self.methods["ITR"]
        selected, candidates, _ = itr.step(step.words)
        best = max((each for each in candidates if each.kind == "tool"), key=lambda each: each.gain)
        chosen = sum(each.tokens for each in self.quoted(step.words, "ITR"))
        found = {
            # All tools are shown: at hand is what the router, or the model alone, would have to pick.
            "router: its first": outcome([ToolId(best.id)], step, self.everything),
            "prompt-RAG": Outcome(1.0, 1.0, chosen + self.all_tools, len(itr.corpora.tools)),
            "everything": Outcome(1.0, 1.0, self.everything, len(itr.corpora.tools)),
        }
        for name, method in self.methods.items():
            shown, _, _ = method.step(step.words)
            found[name] = outcome([*map(ToolId, shown.tools)], step, method.tokens(shown))
        for name in ("ITR", BY_SCORE):
            method = self.methods[name]
            selected, candidates, _ = method.step(step.words)
            # The model rates its tools; here it knows whether they suffice.
            if not found[name].some:
                selected = method.widen(step.words, selected, candidates)
            found[f"{name}, widened"] = outcome([*map(ToolId, selected.tools)], step, method.tokens(selected))
        return found


class Answered(Struct, frozen=True):
    """One answer of `discover_tools`."""

    ready: tuple[ToolId, ...]
    """The tools that it shows with what a call needs."""
    named: tuple[ToolId, ...]
    """All tools that it names, best first."""
    tokens: int
    servers: frozenset[str]
    """The servers whose instructions it quotes."""


class ServedForm:
    """A default install over one catalogue, on its first day."""

    def __init__(self, app: App) -> None:
        self._app = app
        profile = app.live.profile("")
        self._reach = app.policy.reach(profile)
        self._client = app.router.open("legacy", "library", _Nobody(), "")
        session = SessionRecord("bench", "bench", "1", "legacy", "stdio", "", 0.0)
        view = app.lists.try_out(profile, app.lists.ledger.choose(profile, session))
        self._shown = view.shown
        # What a list names with its arguments can be called at once, like what it defines.
        self.listed = frozenset(self._own(each) for each in {*view.shown, *view.named} if app.catalog.get(each))
        said, self.greeted = app.answering.offering.greeting.instructions(profile)
        self.fixed = count(view.array.decode()) + count(said)
        """The tokens of the list and of our own instructions."""

    def _own(self, exposed: ToolId) -> ToolId:
        tool = self._app.catalog.get(exposed)
        assert tool is not None
        return ToolId(f"{tool.upstream}/{tool.name}")

    def answer(self, words: str) -> Answered:
        """What `discover_tools` says to a task."""
        asked, app = Arguments(task=words), self._app
        query = Query(asked.lines)
        ranking = app.search.rank(query, self._reach.finds, RANKED)
        answer, _ = app.answering.answers.write(
            asked, query, ranking, self._shown.__contains__, self._reach, told_servers=self.greeted
        )
        quoted = answer.structured.get("instructions", ())
        return Answered(
            tuple(map(self._own, answer.callable)),
            tuple(self._own(each.tool) for each in answer.matches),
            count(answer.text),
            frozenset(each["source"].removeprefix("server ") for each in quoted),
        )

    def plan(self, words: str) -> StepPlan:
        """What `step()` of the library gives."""
        steps, found = self._app.answering.steps, list[StepPlan]()
        steps.plan(steps.query(words), self._client, BUDGET, found.append)
        return found[0]

    def outcomes(self, step: Step) -> dict[str, Outcome]:
        """What the list, the answer and `step()` give a step."""
        answer, plan = self.answer(step.words), self.plan(step.words)
        listed = sorted(self.listed)
        ranking = self._app.search.rank(Query(Arguments(task=step.words).lines), self._reach.finds, MATCHES)
        both = self.fixed + answer.tokens
        planned = [self._own(each.tool) for each in plan.tools]
        found = {
            "list": outcome(listed, step, self.fixed),
            "list + answer": outcome([*dict.fromkeys((*listed, *answer.ready))], step, both),
            "list + answer, names too": outcome([*dict.fromkeys((*listed, *answer.named))], step, both),
            "answer": outcome(answer.ready, step, answer.tokens),
            "answer, names too": outcome(answer.named, step, answer.tokens),
            "answer: its first": outcome(answer.named[:1], step, answer.tokens),
            "ranking, the first 2": outcome([self._own(each.tool) for each in ranking.ranked[:2]], step, 0),
            "ranking, the first 12": outcome([self._own(each.tool) for each in ranking.ranked], step, 0),
            "step()": outcome(planned, step, plan.tokens),
        }
        if not found["step()"].some:
            plan = self._app.answering.steps.widen(plan, 0.0, self._client.profile)
            planned = [self._own(each.tool) for each in plan.tools]
        return {**found, "step(), widened": outcome(planned, step, plan.tokens)}


class Meaning:
    """The encoders of a default install, and the vectors that they have made."""

    def __init__(self, vectors: Store, weights: Sequence[Weights]) -> None:
        self._vectors = vectors.vectors
        self._weights = weights
        self._shipped = {each.key: open_shipped_vectors(each) for each in weights}
        self._texts = EncodedTexts(weights, [open_any_encoder(each, in_bulk=True) for each in weights], vectors)

    def install(self, app: App, corpus: Corpus) -> None:
        """Rank by meaning, with the vectors that come with foretool where it has them, as a proxy does."""
        tools = {key: document for key, _, document in texts_to_embed(corpus, app.catalog)}
        for each in self._weights:
            known = self._shipped[each.key]
            missing = self._vectors.missing(each.key, set(tools)) if known is not None else ()
            found = {key: known.find(tools[key]) for key in missing} if known is not None else {}
            self._vectors.save(each.key, {key: vector for key, vector in found.items() if vector is not None})
        app.search.install_encoders(self._texts.meaning(app.catalog, corpus))


class _Nobody:
    """The client's end, which takes nothing."""

    def send(self, data: bytes) -> None: ...

    def poll(self) -> None: ...

    def finish(self, data: bytes, code: int | None) -> None: ...

    def end(self) -> None: ...


@contextmanager
def open_served(catalogue: Catalogue, meaning: Meaning | None) -> Iterator[ServedForm]:
    """Serve a catalogue; without `meaning` by words alone. Runs within an event loop."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "mcp.json"
        entries = {server.name: {"command": "true"} for server in catalogue.servers}
        own = {"storage": "s", "encoder": "none" if meaning is None else "auto"}
        path.write_text(json.dumps({"mcpServers": entries, "foretool": own}), "utf-8")
        config = load(path)
        with open_store(config.storage) as store:
            app = App(config, store)
            for server in catalogue.servers:
                app.catalog.replace(server.name, [Raw(tool.definition) for tool in server.tools], server.instructions)
            app.catalog.fix_names()
            corpus = app.search.update_corpus(inf)
            if meaning is not None:
                meaning.install(app, corpus)
            yield ServedForm(app)
