"""Compares ITR with its paper: the cost model against the paper's tables, and the published selection against ours.

    python -m bench.papers.itr [--json]
    python -m bench.papers.itr --data FOLDER [--queries FILE] ...

Without a folder: the cost model (eqs. 5 to 9) and what it makes of Tables 1 and 2, the paper's figures beside ours. The
model is given what the paper states as inputs, and says which those are; the rest is computed. Where the paper's own
numbers do not agree with each other, the difference is printed.

With a folder (as `bench.retrieval.ranking` reads it): the published selection on a set, next to ours, at several
budgets. All gold tools are looked for among what is shown:

    itr         eq. 3 (cosine of the first encoder, BM25, the cross-encoder where it is installed), best M_B re-ranked,
                greedy by score per token, K_B = 2
    itr_wide    the same after an expansion (K_B = 4, twice the budget)
    itr_tokens  the same scores, no K_B: score per token alone fills the budget
    itr_gain    the same scores, no K_B: filled by score
    served      our ranking, filled by rank, as `step()` does
    served_tokens  our ranking, filled by gain per token
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import exp
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from bench.retrieval import ranking_methods
from bench.retrieval.ranking_methods import Pool
from foretool.retrieval import evaluation, itr
from foretool.retrieval.confidence import sufficiency
from foretool.retrieval.encoders.weights import EncoderError
from foretool.retrieval.itr import PUBLISHED, Candidate
from foretool.retrieval.papers.cross_encoder import CrossEncoder
from foretool.retrieval.papers.itr import retrieve
from foretool.retrieval.ranking import Query
from foretool.storage.records import ToolId

Row = dict[str, Any]

# The cost model

WINDOW = 1_000_000
HISTORY = 2_000
"""Tokens a step adds to the history (Table 1)."""
ITR_STATIC = 1_500
MONOLITHIC = 30_000
"""Tokens of a step with everything, and with ITR (Table 2)."""
TABLE_1 = (
    ("50 instr + 30 tools", 40_000, 480, 499),
    ("150 instr + 100 tools", 110_000, 445, 499),
    ("300 instr + 200 tools", 220_000, 390, 499),
    ("500 instr + 400 tools", 400_000, 300, 499),
    ("800 instr + 600 tools", 620_000, 190, 499),
)
"""Corpus, static tokens, most loops without and with ITR."""
TABLE_2 = {
    "B0 monolithic": (30_000, 62.0),
    "B1 router-only": (30_000, 70.0),
    "B2 prompt-RAG": (11_000, 66.0),
    "ITR (K_A=4, K_B=2)": (1_500, 82.0),
}
"""Tokens a step, and per cent of calls with the right tool."""
TABLE_5 = {8: (74.0, 84.0), 40: (57.0, 82.0), 120: (45.0, 76.0)}
"""Tools, right calls without and with ITR, per cent."""
TOKENS_OF_A_TOOL = 180
"""Table 6: K_B from 1 to 2 costs 180 tokens."""
TOKENS_OF_AN_INSTRUCTION = 220 / 3
"""Table 6: K_A from 1 to 4 costs 220 tokens, which is below the 200 to 600 a chunk of section 3.2."""
MISS_RATE = 0.024
"""Table 4, K_B = 2 with the discovery fallback: 1 - recall."""
CUMULATIVE = {"B0": 390_000, "ITR": 105_000}
"""Section 5.6, ten steps."""
LOOPS = {1: (30_000, 1_500), 5: (39_000, 10_500), 10: (50_000, 21_500)}
"""Section 5.1: tokens of the n-th loop without and with ITR."""


def most_loops(static: int, window: int = WINDOW, history: int = HISTORY) -> int:
    """Steps until the window is full, each adding `history` tokens to the `static` ones (section 5.2)."""
    return (window - static) // history


def step_tokens(user: float, instructions: float, tools: float) -> float:
    """Eq. 7."""
    return user + instructions + tools


def episode_tokens(steps: int, instructions: float, tools: float, users: Sequence[float]) -> float:
    """Eqs. 8 and 9: L (S + T) + sum of U_t."""
    return steps * (instructions + tools) + sum(users)


def correct(tools: float, interference: float, recall: float = 1.0) -> float:
    """Eqs. 5 and 6: r alpha / (alpha + beta (N - 1)), with `interference` = beta / alpha."""
    return recall / (1.0 + interference * (tools - 1.0))


def fitted_interference(observed: Mapping[int, float]) -> float:
    """beta / alpha with the least squared error to accuracies (0 to 1) by number of tools; by golden section."""

    def error(interference: float) -> float:
        return sum((correct(tools, interference) - seen) ** 2 for tools, seen in observed.items())

    low, high = 0.0, 1.0
    ratio = (5**0.5 - 1) / 2
    while high - low > 1e-9:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, right) if error(left) < error(right) else (left, high)
    return (low + high) / 2


class Parts(NamedTuple):
    """Tokens of a step by where they come from (eq. 7 without the user's)."""

    instructions: float
    all_tools: float
    chosen_instructions: float
    chosen_tools: float


def parts() -> Parts:
    """What Table 2 is made of. Given: 30,000 and 1,500 tokens a step, 180 a tool, and the mean catalog of Table 5 (56
    tools). Computed: everything else, the 11,000 of B2 among it."""
    all_tools = TOKENS_OF_A_TOOL * fmean(TABLE_5)
    chosen_tools = TOKENS_OF_A_TOOL * PUBLISHED.tools
    return Parts(MONOLITHIC - all_tools, all_tools, ITR_STATIC - chosen_tools, chosen_tools)


def table_1() -> Iterator[Row]:
    for corpus, static, mono, itr_loops in TABLE_1:
        yield {
            "table": 1, "row": corpus, "static": static,
            "mono": most_loops(static), "mono_paper": mono,
            "itr": most_loops(ITR_STATIC), "itr_paper": itr_loops,
        }  # fmt: skip


def table_2() -> Iterator[Row]:
    """Tokens by eq. 7, accuracy by eqs. 5 and 6 with one beta / alpha fitted to Table 5's column without ITR."""
    of, interference = parts(), fitted_interference({tools: mono / 100 for tools, (mono, _) in TABLE_5.items()})
    everything = fmean(correct(tools, interference) for tools in TABLE_5)
    found: dict[str, tuple[float, float | None]] = {
        "B0 monolithic": (step_tokens(0, of.instructions, of.all_tools), everything),
        "B1 router-only": (step_tokens(0, of.instructions, of.all_tools), None),
        "B2 prompt-RAG": (step_tokens(0, of.chosen_instructions, of.all_tools), everything),
        "ITR (K_A=4, K_B=2)": (
            step_tokens(0, of.chosen_instructions, of.chosen_tools),
            correct(PUBLISHED.tools, interference, 1.0 - MISS_RATE),
        ),
    }
    given = ("B0 monolithic", "B1 router-only", "ITR (K_A=4, K_B=2)")
    for method, (tokens, accuracy) in found.items():
        yield {
            "table": 2, "row": method, "tokens": round(tokens), "tokens_paper": TABLE_2[method][0],
            "tokens_are": "given" if method in given else "computed",
            "right_%": None if accuracy is None else round(100 * accuracy, 1), "right_%_paper": TABLE_2[method][1],
        }  # fmt: skip
    first, last = TABLE_2["B0 monolithic"], TABLE_2["ITR (K_A=4, K_B=2)"]
    yield {
        "table": 2, "row": "ITR against B0",
        "tokens_saved_%": round(100 * (1 - last[0] / first[0]), 1), "tokens_saved_%_paper": 95.0,
        "right_gained_%": round(100 * (last[1] / first[1] - 1), 1), "right_gained_%_paper": 32.0,
    }  # fmt: skip


def equations() -> Iterator[Row]:
    """Eqs. 5 and 6 on Table 5, eqs. 8 and 9 on ten steps, and the loops of section 5.1."""
    interference = fitted_interference({tools: mono / 100 for tools, (mono, _) in TABLE_5.items()})
    for tools, (mono, with_itr) in TABLE_5.items():
        yield {
            "table": 5, "row": f"{tools} tools", "right_%": round(100 * correct(tools, interference), 1),
            "right_%_paper": mono, "beta/alpha_fitted": round(interference, 4),
            "beta/alpha_of_this_row": round((100 / mono - 1) / (tools - 1), 4),
            "itr_right_%": round(100 * correct(PUBLISHED.tools, interference, 1 - MISS_RATE), 1),
            "itr_right_%_paper": with_itr,
        }  # fmt: skip
    users = [HISTORY * step for step in range(10)]
    of = parts()
    mono = episode_tokens(10, of.instructions, of.all_tools, users)
    chosen = episode_tokens(10, of.chosen_instructions, of.chosen_tools, users)
    yield {
        "table": "5.6", "row": "10 steps", "mono": round(mono), "mono_paper": CUMULATIVE["B0"],
        "itr": round(chosen), "itr_paper": CUMULATIVE["ITR"],
    }  # fmt: skip
    for loop, (mono_paper, itr_paper) in LOOPS.items():
        before = HISTORY * (loop - 1)
        yield {
            "table": "5.1", "row": f"loop {loop}", "mono": MONOLITHIC + before, "mono_paper": mono_paper,
            "itr": ITR_STATIC + before, "itr_paper": itr_paper,
            "history_a_step_of_the_paper": round((mono_paper - MONOLITHIC) / (loop - 1)) if loop > 1 else None,
        }  # fmt: skip


# The selection on a set


class Signals:
    """Eq. 3 over a pool: cosines of its first encoder, textbook BM25, a cross-encoder's sigmoid."""

    def __init__(self, pool: Pool, cross: CrossEncoder | None) -> None:
        self._pool = pool
        self._bm25 = ranking_methods.bm25_scores(pool)
        self._cross = cross
        meaning = pool.pipeline(1).meaning
        self._head = meaning.heads[0] if meaning is not None else None
        self._slots = [pool.corpus.slot_of[tool.id] for tool in pool.tools]

    def cosines(self, query: str) -> Sequence[float]:
        if self._head is None:
            return [0.0] * len(self._slots)
        found = self._head.cosines([query])[0].tolist()
        return [found[slot] for slot in self._slots]

    def words(self, query: str) -> Sequence[float]:
        return self._bm25(query)

    def cross(self, query: str, places: Sequence[int]) -> Sequence[float] | None:
        if self._cross is None:
            return None
        texts = [self._pool.said[self._pool.tools[place].id] for place in places]
        return [1.0 / (1.0 + exp(-max(min(logit, 30.0), -30.0))) for logit in self._cross.scores(query, texts)]


def signals(pool: Pool, *, cross: bool = True) -> Signals:
    """With the cross-encoder where it is wanted and installed."""
    try:
        return Signals(pool, CrossEncoder() if cross else None)
    except EncoderError:
        return Signals(pool, None)


Scores = Callable[[str], list[tuple[ToolId, float]]]


def published(pool: Pool, *, cross: bool = True) -> Scores:
    """The best M_B by eq. 3 with their scores, best first."""
    scorer = signals(pool, cross=cross)

    def search(query: str) -> list[tuple[ToolId, float]]:
        found = retrieve(query, scorer, PUBLISHED.top_tools)
        return [(pool.tools[place].id, score) for place, score in found]

    return search


def served(pool: Pool) -> Scores:
    """Our ranking with the gains that `server/methods/agent_step.py` gives it."""
    pipeline = pool.pipeline(len(pool.encoders))

    def search(query: str) -> list[tuple[ToolId, float]]:
        ranking = pipeline.rank(Query(tuple(query.splitlines())), limit=50)
        read = [sufficiency(each) for each in ranking.evidence]
        probability = max(sum(read) / len(read) if read else 0.0, 0.01)
        return [(each.tool, probability / rank) for rank, each in enumerate(ranking.ranked, 1)]

    return search


class Way(NamedTuple):
    """How a budget is filled."""

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


def selections(name: str, pool: Pool, tasks: Sequence[Any], sizes: Mapping[ToolId, int], cap: int) -> Iterator[Row]:
    """Recall and tokens of each way at each budget; a tool costs at most `cap`, for it is then shown trimmed."""
    scorers = {"published": published(pool), "served": served(pool)}
    found = {key: [search(task.query) for task in tasks] for key, search in scorers.items()}
    for method, way in WAYS.items():
        for budget in (500, 1000, 2000, 4000):
            shown = [_shown(scores, way, budget, sizes, cap) for scores in found[way.scores]]
            pairs = [(each, task.gold) for each, task in zip(shown, tasks, strict=True)]
            recalls = [evaluation.recall(each, gold, 50) for each, gold in pairs]
            yield {
                "set": name, "method": method, "n": len(tasks), "budget": round(budget * way.factor),
                "recall": round(fmean(recalls), 4),
                "recall_interval": [round(end, 4) for end in evaluation.interval(recalls)],
                "complete": round(fmean(evaluation.completeness(each, gold, 50) for each, gold in pairs), 4),
                "tools": round(fmean(len(each) for each in shown), 2),
                "tokens": round(fmean(sum(min(sizes[tool], cap) for tool in each) for each in shown)),
            }  # fmt: skip


def _shown(
    scores: Sequence[tuple[ToolId, float]], way: Way, budget: int, sizes: Mapping[ToolId, int], cap: int
) -> list[ToolId]:
    candidates = [Candidate(tool, "tool", min(sizes[tool], cap), score) for tool, score in scores]
    most: dict[itr.Kind, int] = {} if way.most is None else {"tool": way.most}
    selected = itr.select(candidates, round(budget * way.factor), most, per_token=way.per_token)
    return [ToolId(tool) for tool in selected.tools]


def over_data(argv: Sequence[str]) -> Iterator[Row]:
    """One set; `argv` as for `bench.retrieval.ranking`."""
    from functools import partial

    from bench.retrieval import ranking
    from foretool.storage.opening import open_store

    arguments = ranking.parser().parse_args(argv)
    tools, tasks, texts = ranking.read(arguments)
    with open_store(arguments.vectors or ":memory:") as store:
        open_encoders = partial(ranking.opened, arguments, store)
        pool = Pool(tools, texts, open_encoders(arguments.encoder), open_encoders)
        used = "+".join(each.encoder.name for each in pool.encoders) or "none"
        reads = signals(pool)._cross is not None
        sizes = ranking.token_sizes(tools)
        for row in selections(arguments.folder.name, pool, tasks, sizes, ranking.CHARGED):
            yield {**row, "encoders": used, "cross_encoder": reads}


def shown(row: Row) -> str:
    """A line for people."""
    parts = (f"{key} {value}" for key, value in row.items() if value is not None)
    return "  ".join(part for part in parts if "_interval" not in part)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print as results come."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.papers.itr", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, metavar="FOLDER", help="a set; what follows is as for bench.retrieval.ranking"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    arguments, rest = parser.parse_known_args(argv)
    if arguments.data:
        rows = over_data([str(arguments.data), *rest])
    elif rest:
        parser.error(f"{' '.join(rest)}: only with --data")
    else:
        rows = (row for each in (table_1, table_2, equations) for row in each())
    for row in rows:
        print(json.dumps(row) if arguments.json else shown(row), flush=True)


if __name__ == "__main__":
    main()
