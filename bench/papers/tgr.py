"""Compares TGR with its paper (Tables 2, 3 and 5) on API-Bank: as published and as served.

Rows named `paper` are the paper's figures on all 311 samples; ours are on the queries of the given file. As published:
one vector of the whole query, one of each description (the source's table), eq. 3 over the graph. As served: each turn
is a line; name, description (of the runnable class where there is one) and parameter names are read; the pipeline runs
with and without the graph that the schemas give, and the same where no tool has an output schema. The discriminator is
trained on the tools of sealtools and of real servers. It is judged, as in the paper, on pairs of API-Bank tools: those
between which a value flowed in the queries' gold calls, both ways round, and 500 others. Nothing here is fitted on
API-Bank.

Appendix A (figure 5 of the paper, which prints curves and no numbers) compares the ways to compute how similar a query
and a tool are: `cosine`, `dot`, `L1` and `L2`, with vectors at the length that the encoder gives them, and with eq. 3
over these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

import numpy as np

from bench import metrics
from bench.datasets import catalog_tools, read_rows, tool_from_row
from bench.kept_encoder import KeptEncoder, open_kept, open_vectors
from bench.papers.published import tgr as published_form
from bench.papers.published.tgr import (
    AFTER,
    BEFORE,
    NONE,
    Direction,
    Discriminator,
    Pair,
    Quality,
    adjacency,
    convolve,
)
from bench.reports import Row, mean_row
from bench.retrieval.pool import Pool
from foretool.learning.rankers.tgr import Tgr
from foretool.retrieval import encoders
from foretool.retrieval.document import Fields, definition_fields, document, embedded_text
from foretool.retrieval.encoders.onnx import OnnxEncoder
from foretool.retrieval.graph import Graph, schema_edges
from foretool.retrieval.model_format import Floats
from foretool.retrieval.ranking import Query
from foretool.storage.records import Tool, ToolId

SET: Final = "apibank_tgr"
SEED: Final = 7
CUTS: Final = (5, 10)
DIRECTIONS: Final[tuple[Direction, ...]] = ("prerequisite", "dependant", "symmetric")
UNRELATED: Final = 500
"""Pairs without a dependency, as many as in the paper."""
SIMILARITIES: Final = ("cosine", "dot", "L1", "L2")
DENSITIES: Final = (0.25, 0.5, 0.75, 1.0)
DRAWS: Final = (0, 1, 2)
"""Seeds of the draws of edges that are kept."""
ALL: Final = 1_000_000

PAPER: Final[Mapping[str, Sequence[float]]] = {
    "paper: BM25": (0.391, 0.493, 0.353, 0.394, 0.228, 0.302),
    "paper: TF-IDF": (0.566, 0.746, 0.501, 0.573, 0.383, 0.605),
    "paper: PMLM-L3-v2": (0.659, 0.763, 0.569, 0.609, 0.479, 0.592),
    "paper: PMLM-L3-v2 + TGR-d": (0.736, 0.834, 0.622, 0.659, 0.576, 0.698),
    "paper: ToolBench-IR": (0.714, 0.790, 0.639, 0.670, 0.531, 0.624),
    "paper: ToolBench-IR + TGR-d": (0.761, 0.878, 0.664, 0.712, 0.595, 0.788),
    "paper: ToolBench-IR + TGR-m (annotated)": (0.788, 0.893, 0.698, 0.741, 0.646, 0.817),
}
NAMES: Final = ("recall@5", "recall@10", "ndcg@5", "ndcg@10", "pass@5", "pass@10")

Ranked = list[list[ToolId]]


class Bank:
    """API-Bank: its tools, its queries, and the vectors of both."""

    def __init__(self, folder: Path, queries: str, encoder: KeptEncoder, *, has_outputs: bool = True) -> None:
        """`has_outputs`: whether its tools say what they return, as most real ones do not."""
        self.rows = read_rows(folder / "tools.jsonl")
        self.records = read_rows(folder / queries)
        self.encoder = encoder
        self.tools = [
            tool_from_row(
                {**row, "server": "", "description": row.get("description_code") or row["description"]},
                **({"outputSchema": row["output_schema"]} if has_outputs else {}),
            )
            for row in self.rows
        ]
        self.ids = [tool.id for tool in self.tools]
        self.read = [definition_fields(tool) for tool in self.tools]
        self.gold = [tuple(frozenset((ToolId(name),)) for name in dict.fromkeys(row["calls"])) for row in self.records]

    def descriptions(self) -> Floats:
        """(tools, dimension), of the table's descriptions alone."""
        return self.encoder.documents([row["description"] for row in self.rows])

    def queries(self) -> Floats:
        """(queries, dimension), all turns of a query as one text."""
        return self.encoder.queries([row["query"] for row in self.records])

    def flowed(self) -> set[tuple[int, int]]:
        """Pairs of places of tools: the first gave the second a value."""
        place = {tool: at for at, tool in enumerate(self.ids)}
        return {
            (place[row["calls"][one]], place[row["calls"][two]])
            for row in self.records
            for one, two in row.get("edges") or ()
            if row["calls"][one] != row["calls"][two]
        }


def scored(bank: Bank, ranked: Ranked) -> Row:
    """The paper's three metrics at both cuts, and the interval of the pass rate."""
    pairs = list(zip(ranked, bank.gold, strict=True))
    found: Row = {}
    for k in CUTS:
        found[f"recall@{k}"] = round(fmean(metrics.recall(order, gold, k) for order, gold in pairs), 4)
    for k in CUTS:
        found[f"ndcg@{k}"] = round(fmean(metrics.ndcg(order, gold, k) for order, gold in pairs), 4)
    for k in CUTS:
        passed = [metrics.completeness(order, gold, k) for order, gold in pairs]
        found |= mean_row(f"pass@{k}", passed)
    return found


def ordered(bank: Bank, scores: Floats) -> Ranked:
    """The tools of each query, best first; `scores` (queries, tools)."""
    return [[bank.ids[at] for at in np.argsort(-row, kind="stable").tolist()] for row in scores]


def published(bank: Bank, graph: Graph, told: str) -> Iterator[tuple[str, Ranked]]:
    """Rankings by the base encoder, then by eq. 3 over the graph in each direction; `told`: the source of the graph."""
    base, queries = bank.descriptions(), bank.queries()
    name = bank.encoder.name
    if told == "schemas":
        yield f"published: {name} alone", ordered(bank, queries @ base.T)
    prerequisites = adjacency(graph, bank.ids)
    for direction in DIRECTIONS if told == "schemas" else DIRECTIONS[:1]:
        mixed = convolve(base, prerequisites, direction)
        yield f"published: {name} + eq. 3, {direction}, graph of {told}", ordered(bank, queries @ mixed.T)


class Unscaled(OnnxEncoder):
    """The encoder before its vectors are scaled to length 1, at which a dot product is a cosine."""

    def _run(self, batch: Sequence[Sequence[int]]) -> Floats:
        return self._pool(batch)


def unscaled(weights: encoders.Weights) -> Unscaled:
    """Open the encoder of these weights so."""
    path = encoders.locate(weights)
    assert path is not None, weights.name
    return Unscaled(weights, path)


def similarity(kind: str, queries: Floats, tools: Floats) -> Floats:
    """How similar each query is to each tool, (queries, tools); a distance counts as its negative."""
    if kind == "cosine":
        lengths = np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(tools, axis=1)[None, :]
        cosines: Floats = (queries @ tools.T) / np.maximum(lengths, 1e-12)
        return cosines
    if kind == "dot":
        return queries @ tools.T
    return -np.stack([np.linalg.norm(tools - each, ord=1 if kind == "L1" else 2, axis=1) for each in queries])


def by_similarity(bank: Bank, encoder: Unscaled, graph: Graph) -> Iterator[tuple[str, Ranked]]:
    """Appendix A: rankings by each similarity, without and with the graph."""
    queries = encoder.queries([row["query"] for row in bank.records])
    base = encoder.documents([row["description"] for row in bank.rows])
    mixed = convolve(base, adjacency(graph, bank.ids), scaled=False)
    for kind in SIMILARITIES:
        yield f"published: {kind}, alone", ordered(bank, similarity(kind, queries, base))
        yield f"published: {kind} + eq. 3", ordered(bank, similarity(kind, queries, mixed))


def served(bank: Bank, held: Sequence[KeptEncoder], graph: Graph | None) -> Ranked:
    """Rankings of the proxy's pipeline, with each turn as a line."""
    pipeline = Pool(bank.tools, {}, held).pipeline(models={"tgr": Tgr(graph)} if graph is not None else {})
    found = []
    for row in bank.records:
        ranking = pipeline.rank(Query(tuple(row["query"].splitlines())), limit=ALL).ranked
        order = [each.tool for each in ranking]
        found.append([*order, *(tool for tool in bank.ids if tool not in set(order))])
    return found


def taught(data: Path, encoder: KeptEncoder) -> tuple[Discriminator, Quality, int] | None:
    """A discriminator trained on the tools of sealtools and of real servers, its quality on servers that were held out,
    and the number of their pairs."""
    tools: list[Tool] = []
    if (data / "sealtools").is_dir():
        rows = read_rows(data / "sealtools" / "tools.jsonl")
        tools += [tool_from_row(row, outputSchema=row.get("output_schema") or {}) for row in rows]
    if (data / "mcp_catalogs").is_dir():
        tools += catalog_tools(data / "mcp_catalogs")
    giving = [(tool, each) for tool in tools if (each := definition_fields(tool)).gives]
    if not giving:
        return None
    read = [each for _, each in giving]
    vectors = encoder.documents([embedded_text(document(tool)) for tool, _ in giving])
    balanced, imbalanced = published_form.pairs_of(read, SEED)
    taught_on, checked = published_form.split(imbalanced, read, SEED)
    first, _ = published_form.split(balanced, read, SEED)
    model = published_form.train_discriminator(read, vectors, first, taught_on, SEED)
    return model, published_form.quality(model, read, vectors, checked), len(checked)


def pairs(bank: Bank) -> list[Pair]:
    """The pairs of the paper's test: dependent ones both ways round, and unrelated ones."""
    flowed = sorted(bank.flowed())
    related = {*flowed, *((two, one) for one, two in flowed)}
    size = len(bank.ids)
    free = [(one, two) for one in range(size) for two in range(one + 1, size) if (one, two) not in related]
    np.random.default_rng(SEED).shuffle(free)
    return [
        *(Pair(one, two, BEFORE) for one, two in flowed),
        *(Pair(two, one, AFTER) for one, two in flowed),
        *(Pair(one, two, NONE) for one, two in free[:UNRELATED]),
    ]


def of_schemas(read: Sequence[Fields], asked: Sequence[Pair]) -> Quality:
    """The quality of the edges that schemas give, as answers to the same pairs."""
    place = {each.id: at for at, each in enumerate(read)}
    edges = {(place[edge.before], place[edge.after]) for edge in schema_edges(read)}
    told = [
        BEFORE if (one, two) in edges else AFTER if (two, one) in edges else NONE
        for one, two in ((pair.first, pair.second) for pair in asked)
    ]
    right = sum(said == pair.label != NONE for said, pair in zip(told, asked, strict=True))
    precision = right / max(sum(said != NONE for said in told), 1)
    recall = right / max(sum(pair.label != NONE for pair in asked), 1)
    return Quality(precision, recall, 2 * precision * recall / max(precision + recall, 1e-9))


def quality(method: str, n: int, found: Quality, name: str = "pairs of apibank_tgr") -> Row:
    return {
        "set": name,
        "method": method,
        "n": n,
        "precision": round(found.precision, 3),
        "recall": round(found.recall, 3),
        "f1": round(found.f1, 3),
    }


def discriminators(data: Path, bank: Bank) -> Iterator[tuple[Row, Graph | None]]:
    """The rows of Table 3, the last with the graph of the trained discriminator."""
    asked = pairs(bank)
    yield quality("paper: BERT-base discriminator", 620, Quality(0.893, 0.760, 0.817)), None
    yield quality("ours: schemas alone, served", len(asked), of_schemas(bank.read, asked)), None
    if (found := taught(data, bank.encoder)) is None:
        return
    model, held_out, n = found
    vectors = bank.encoder.documents([embedded_text(document(tool)) for tool in bank.tools])
    yield quality("ours: trained discriminator", n, held_out, "servers held out"), None
    graph = Graph(published_form.edges_of(model, bank.read, vectors))
    yield (
        quality("ours: trained discriminator", len(asked), published_form.quality(model, bank.read, vectors, asked)),
        graph,
    )


def by_density(bank: Bank, held: Sequence[KeptEncoder], graph: Graph) -> Iterator[Row]:
    """Figure 4: what the graph adds with a part of its edges, the mean over draws; as served, and as published.

    The paper compares categories of ToolBench by the share of tools that have an edge (`connected`). API-Bank is one
    category, so edges are left out here instead.
    """
    edges = sorted(graph, key=lambda edge: (edge.before, edge.after))
    base = bank.queries() @ bank.descriptions().T
    without = {"served": recall_at(bank, served(bank, held, None)), "published": recall_at(bank, ordered(bank, base))}
    for share in DENSITIES:
        draws = [np.random.default_rng(seed).permutation(len(edges))[: round(share * len(edges))] for seed in DRAWS]
        parts = [Graph(edges[at] for at in sorted(each.tolist())) for each in (draws if share < 1 else draws[:1])]
        touched = [len({tool for edge in part for tool in (edge.before, edge.after)}) for part in parts]
        mixed = (convolve(bank.descriptions(), adjacency(part, bank.ids)) for part in parts)
        found = {
            "served": fmean(recall_at(bank, served(bank, held, part)) for part in parts),
            "published": fmean(recall_at(bank, ordered(bank, bank.queries() @ each.T)) for each in mixed),
        }
        for form, value in found.items():
            yield {
                "set": SET,
                "method": f"{form}: {share:.0%} of the edges",
                "n": len(bank.records),
                "connected": round(fmean(touched) / len(bank.ids), 3),
                "recall@5": round(value, 4),
                "added": round(value - without[form], 4),
            }


def recall_at(bank: Bank, ranked: Ranked, k: int = CUTS[0]) -> float:
    """The mean recall of the first k."""
    return fmean(metrics.recall(order, gold, k) for order, gold in zip(ranked, bank.gold, strict=True))


def rows(data: Path, queries: str, sets: Sequence[str] | None, cache: Path | None) -> Iterator[Row]:
    """The paper's rows, then ours."""
    if sets is not None and SET not in sets:
        return
    for method, figures in PAPER.items():
        yield {"set": SET, "method": method, "n": 311, **dict(zip(NAMES, figures, strict=True))}
    found = encoders.resolve_weights("auto")
    if not found:
        raise SystemExit(f"tgr: no encoder is installed; {encoders.INSTALL}")
    with open_vectors(cache) as vectors:
        frozen, *opened = [open_kept(each, vectors) for each in (found[0].untrained, *found)]
        bank = Bank(data / SET, queries, frozen)
        graph = Graph(schema_edges(bank.read))
        n = len(bank.records)
        name = "+".join(each.name for each in opened)
        for method, held, told in (
            (f"served: {name} and graph", opened, graph),
            (f"served: {name}, no graph", opened, None),
            ("served: words and graph", (), graph),
            ("served: words, no graph", (), None),
        ):
            yield {"set": SET, "method": method, "n": n, **scored(bank, served(bank, held, told))}
        bare = Bank(data / SET, queries, frozen, has_outputs=False)
        for method, told in (("and graph", Graph(schema_edges(bare.read))), ("no graph", None)):
            found_by = f"served: {name}, no output schemas, {method}"
            edges = len(list(told)) if told is not None else 0
            yield {"set": SET, "method": found_by, "n": n, **scored(bare, served(bare, opened, told)), "edges": edges}
        for method, ranked in published(bank, graph, "schemas"):
            yield {"set": SET, "method": method, "n": n, **scored(bank, ranked), "edges": len(list(graph))}
        for method, ranked in by_similarity(bank, unscaled(found[0].untrained), graph):
            yield {"set": SET, "method": method, "n": n, **scored(bank, ranked)}
        yield from by_density(bank, opened, graph)
        for row, drawn in discriminators(data, bank):
            yield row
            for method, ranked in published(bank, drawn, "the discriminator") if drawn is not None else ():
                yield {"set": SET, "method": method, "n": n, **scored(bank, ranked), "edges": len(list(drawn or ()))}
