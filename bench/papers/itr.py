"""Compares the selection of ITR as published with ours, on a data set at several budgets.

    python -m bench.papers.itr FOLDER [--sample N] [--vectors FILE]

FOLDER and the options are those of `bench.retrieval.ranking`. Each row is a way to fill a budget of tokens:

    itr            eq. 3 (cosine of the first encoder, BM25, the cross-encoder where installed), the best M_B tools
                   re-ranked; filled by score per token, at most K_B = 2 tools
    itr_wide       the same after an expansion (K_B = 4, twice the budget)
    itr_tokens     the same scores without K_B: score per token alone fills the budget
    itr_gain       the same scores without K_B, filled by score
    served         our ranking, filled by rank, as `step()` does
    served_tokens  our ranking, filled by gain per token

`recall` is the share of the needed tools among the shown ones, `complete` the share of queries with all of them.
`bench.papers.itr_tables` measures the tables of the paper, `bench.papers.itr_cost_model` computes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from bench import metrics
from bench.datasets import Task
from bench.papers.published.itr import PUBLISHED, per_token
from bench.reports import Row, mean_row, print_row
from bench.retrieval import ranking
from bench.retrieval.itr_ranking import Scores, open_cross_encoder, published
from bench.retrieval.pool import Pool
from foretool.retrieval import itr
from foretool.retrieval.confidence import judge
from foretool.retrieval.itr import Candidate
from foretool.retrieval.ranking import Query
from foretool.storage.opening import open_store
from foretool.storage.records import ToolId


def served(pool: Pool) -> Scores:
    """Our ranking, with the gains that `server/discovery/agent_step.py` gives it."""
    pipeline = pool.pipeline(len(pool.encoders))

    def search(query: str) -> list[tuple[ToolId, float]]:
        ranking = pipeline.rank(Query(tuple(query.splitlines())), limit=50)
        return [(each.tool, chance) for each, chance in zip(ranking.ranked, judge(ranking).chances, strict=False)]

    return search


class Way(NamedTuple):
    """A way to fill a budget."""

    scores: str
    per_token: bool
    most: int | None
    factor: float = 1.0


WAYS = {
    "itr": Way("published", True, PUBLISHED.tools),
    "itr_wide": Way("published", True, round(PUBLISHED.tools * PUBLISHED.expansion), PUBLISHED.expansion),
    "itr_tokens": Way("published", True, None),
    "itr_gain": Way("published", False, None),
    "served": Way("served", False, 12),
    "served_tokens": Way("served", True, 12),
}


def selections(name: str, pool: Pool, tasks: Sequence[Task], sizes: Mapping[ToolId, int], cap: int) -> Iterator[Row]:
    """Recall and tokens of each way at each budget. A tool costs at most `cap`: a bigger one is shown trimmed."""
    scorers = {"published": published(pool), "served": served(pool)}
    found = {key: [search(task.query) for task in tasks] for key, search in scorers.items()}
    for method, way in WAYS.items():
        for budget in (500, 1000, 2000, 4000):
            shown = [_shown(scores, way, budget, sizes, cap) for scores in found[way.scores]]
            pairs = [(each, task.gold) for each, task in zip(shown, tasks, strict=True)]
            recalls = [metrics.recall(each, gold, 50) for each, gold in pairs]
            yield {
                "set": name, "method": method, "n": len(tasks), "budget": round(budget * way.factor),
                **mean_row("recall", recalls),
                "complete": round(fmean(metrics.completeness(each, gold, 50) for each, gold in pairs), 4),
                "tools": round(fmean(len(each) for each in shown), 2),
                "tokens": round(fmean(sum(min(sizes[tool], cap) for tool in each) for each in shown)),
            }  # fmt: skip


def _shown(
    scores: Sequence[tuple[ToolId, float]], way: Way, budget: int, sizes: Mapping[ToolId, int], cap: int
) -> list[ToolId]:
    candidates = [Candidate(tool, "tool", min(sizes[tool], cap), score) for tool, score in scores]
    most: dict[itr.Kind, int] = {} if way.most is None else {"tool": way.most}
    given = per_token(candidates) if way.per_token else candidates
    selected = itr.select(given, round(budget * way.factor), most)
    return [ToolId(tool) for tool in selected.tools]


def main(argv: Sequence[str] | None = None) -> None:
    """Print the rows of one set."""
    arguments = ranking.make_parser("bench.papers.itr", __doc__).parse_args(argv)
    tools, tasks, texts = ranking.read_set(arguments)
    with open_store(arguments.vectors or ":memory:") as store:
        pool = Pool(tools, texts, ranking.open_encoders(arguments, store, arguments.encoder))
        used = "+".join(each.name for each in pool.encoders) or "none"
        more = {"encoders": used, "cross_encoder": open_cross_encoder() is not None}
        sizes = ranking.token_sizes(tools)
        for row in selections(arguments.folder.name, pool, tasks, sizes, ranking.CHARGED):
            print_row({**row, **more}, arguments.json)


if __name__ == "__main__":
    main()
