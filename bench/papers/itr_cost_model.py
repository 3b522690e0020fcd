"""Compares the cost model of ITR (eqs. 5 to 9) with the tables of its paper: `python -m bench.papers.itr_cost_model`.

The model is given what the paper states as inputs, and the rows say which those are; the rest is computed. Each figure
of the paper stands beside the computed one, named `..._paper`. Where the paper's own numbers do not agree
with each other, the rows show the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from bench.options import add_json, make_parser
from bench.papers.published.itr import PUBLISHED
from bench.reports import Row, print_row

WINDOW = 1_000_000
HISTORY = 2_000
"""Tokens that a step adds to the history (Table 1)."""
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
    """The tokens of a step (eq. 7)."""
    return user + instructions + tools


def episode_tokens(steps: int, instructions: float, tools: float, users: Sequence[float]) -> float:
    """The tokens of an episode (eqs. 8 and 9): L (S + T) + sum of U_t."""
    return steps * (instructions + tools) + sum(users)


def correct(tools: float, interference: float, recall: float = 1.0) -> float:
    """The share of right calls (eqs. 5 and 6): r alpha / (alpha + beta (N - 1)); `interference` is beta / alpha."""
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
    """The tokens of a step by their source (eq. 7 without the user's)."""

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
    """Rows of the most loops that fit into the window."""
    for corpus, static, mono, itr_loops in TABLE_1:
        yield {
            "table": 1, "row": corpus, "static": static,
            "mono": most_loops(static), "mono_paper": mono,
            "itr": most_loops(ITR_STATIC), "itr_paper": itr_loops,
        }  # fmt: skip


def table_2() -> Iterator[Row]:
    """Rows of tokens (eq. 7) and accuracy (eqs. 5 and 6); beta / alpha is fitted to Table 5's column without ITR."""
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
    """Rows of eqs. 5 and 6 on Table 5, of eqs. 8 and 9 on ten steps, and of the loops of section 5.1."""
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


def main(argv: Sequence[str] | None = None) -> None:
    """Print the rows of all tables."""
    parser = make_parser("bench.papers.itr_cost_model", __doc__)
    add_json(parser)
    arguments = parser.parse_args(argv)
    for table in (table_1, table_2, equations):
        for row in table():
            print_row(row, arguments.json)


if __name__ == "__main__":
    main()
