"""What DTDR's masks cost and hold: tokens of the prompt, and how often the next call is among the tools that it names.

    python -m bench.papers.dtdr_masks DATA [--sets bfcl_multi_turn] [--alphas 0.05,0.2] [--cache FOLDER] [--json]

The forms of section 5 of the paper, each with one demonstration (drawn with seed 7) to show how a task is completed:

    no list               every tool
    raw demonstrations    every tool, and up to five demonstrations more whose plans have the expected tools
    hard mask             the expected tools alone
    soft mask             every tool, and the names of the expected ones, which are to be preferred
    ..., weighted         the same with the probability of each expected tool

Expected are the tools (and END) with a probability above alpha, by the published DTDR-C and DTDR-L, fitted on
`train.jsonl` and asked at every step of the gold plans of the file, as `bench.papers dtdr` does. The paper gives no
alpha. `expected` is how many there are in the mean, `recall` the mean share of the acceptable next calls among them,
`hit` the share of steps with one of them at least: what a hard mask holds. A soft mask hides nothing.

`constant` are the tokens that no step changes, which a server can keep (figure 4): guidelines, demonstration, and the
tools where all are listed. `variable` is the rest: task, calls so far, and what the form adds. `total over no list` is
the change of both together. Tokens are those of o200k_base. No language model is asked here.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np

from bench.options import add_json, make_parser
from bench.papers.__main__ import with_cost
from bench.papers.dtdr import SEED, Predict, World, published_c, published_l, without_earlier, worlds
from bench.papers.dtdr_end_to_end import signature
from bench.reports import Row, mean_row, print_row
from foretool.learning.training.demonstrations import Demonstration, PredictionStep
from foretool.retrieval import tokens
from foretool.retrieval.model_format import Floats

GUIDELINES = (
    "You carry out tasks by calling tools, one call at a time. Answer with the name of the next tool alone, or with"
    " `end` if the task is done. The tools:"
)
END_LINE = "- end(): The task is done."
PREFERRED = "Generally prefer these tools: {}."
WEIGHTS = " The number behind a tool says how likely it is the next."
DEMONSTRATIONS = 5
FORMS = (
    "raw demonstrations",
    "hard mask",
    "hard mask, weighted",
    "soft mask",
    "soft mask, weighted",
)


class Prompt(NamedTuple):
    """A prompt as texts: those that no step changes, and the others."""

    constant: list[str]
    variable: list[str]


class Masks:
    """Writes the prompts of one set."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.lines = [*(signature(tool, None) for tool in world.tools), END_LINE]
        self.names = [*(tool.name for tool in world.tools), "end"]
        self.example = demonstrated(self, random.Random(SEED).choice(list(world.train)))

    def prompt(
        self, form: str, each: Demonstration, step: PredictionStep, expected: Sequence[tuple[int, float]]
    ) -> Prompt:
        """The prompt of a form; `expected`: classes with their probabilities, the likeliest first."""
        weighted = form.endswith("weighted")
        asked = [*([WEIGHTS] if weighted else []), self.question(each, step)]
        if form.startswith("hard mask"):
            shown = [self.lines[at] + (f" [{chance:.2f}]" if weighted else "") for at, chance in expected]
            return Prompt([GUIDELINES, self.example], [*shown, *asked])
        constant = [GUIDELINES, *self.lines, self.example]
        if form.startswith("soft mask"):
            named = (self.names[at] + (f" [{chance:.2f}]" if weighted else "") for at, chance in expected)
            return Prompt(constant, [PREFERRED.format(", ".join(named)), *asked])
        if form == "raw demonstrations":
            return Prompt(constant, [*self.demonstrations({at for at, _ in expected}), *asked])
        return Prompt(constant, asked)

    def question(self, each: Demonstration, step: PredictionStep) -> str:
        """The task and the calls so far."""
        calls = ", ".join(self.names[call] for call in step.history) or "none"
        return f"Task: {each.task}\nCalls made so far, in order: {calls}\nWhat is the next call?"

    def demonstrations(self, expected: set[int]) -> list[str]:
        """Up to five whose plans have most of the expected tools, at least one; of equals the first."""
        wanted = expected - {self.world.end}
        shared = [len(wanted.intersection(each.calls)) for each in self.world.train]
        order = sorted((at for at, count in enumerate(shared) if count), key=lambda at: -shared[at])
        return [demonstrated(self, self.world.train[at]) for at in order[:DEMONSTRATIONS]]


def demonstrated(masks: Masks, each: Demonstration) -> str:
    """A demonstration as text."""
    return f"Task: {each.task}\nCalls: {', '.join(masks.names[call] for call in each.calls)}, end"


@cache
def cost(text: str) -> int:
    """Tokens of one text and the line break behind it."""
    return tokens.count_tokens([f"{text}\n"])[0]


def expected_at(chances: Floats, alpha: float) -> list[tuple[int, float]]:
    """F_t: the classes with a probability above alpha, the likeliest first."""
    order = np.argsort(-chances, kind="stable").tolist()
    return [(at, float(chances[at])) for at in order if chances[at] > alpha]


def rows(world: World, alphas: Sequence[float]) -> Iterator[Row]:
    """The rows of one set."""
    world = world._replace(train=without_earlier(world.train), asked=without_earlier(world.asked))
    masks = Masks(world)
    steps = [(each, step) for each in world.asked for step in each.steps(world.end)]
    plain = [masks.prompt("no list", each, step, ()) for each, step in steps]
    head: Row = {"set": world.name, "tools": len(world.tools), "n": len(steps)}
    base = spent(plain)
    yield {**head, "method": "no list", **base}
    for name, fitted in (("DTDR-C", published_c), ("DTDR-L", published_l)):
        predict: Predict = fitted(world)
        every = [predict(each, step) for each, step in steps]
        for alpha in alphas:
            found = [expected_at(chances, alpha) for chances in every]
            held = holding(steps, found)
            for form in FORMS:
                prompts = [masks.prompt(form, *at, one) for at, one in zip(steps, found, strict=True)]
                row = spent(prompts)
                change = row["total"] / base["total"] - 1
                yield {**head, "method": f"{name}, alpha {alpha:g}: {form}", **held, **row,
                       "total over no list": round(change, 3)}  # fmt: skip


def holding(steps: Sequence[tuple[Demonstration, PredictionStep]], found: Sequence[Sequence[tuple[int, float]]]) -> Row:
    """How many are expected, and what they hold of the acceptable calls."""
    shares = [
        fmean(float(call in {at for at, _ in one}) for call in step.acceptable)
        for (_, step), one in zip(steps, found, strict=True)
    ]
    return {
        "expected": round(fmean(map(len, found)), 2),
        **mean_row("recall", shares),
        "hit": round(fmean(float(share > 0) for share in shares), 4),
    }


def spent(prompts: Sequence[Prompt]) -> Row:
    """The mean tokens of both parts, and of the whole."""
    constant, variable = (fmean(sum(map(cost, each[part])) for each in prompts) for part in (0, 1))
    return {"constant": round(constant), "variable": round(variable), "total": round(constant + variable)}


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print a row for each form."""
    parser = make_parser("bench.papers.dtdr_masks", __doc__)
    parser.add_argument("data", type=Path, help="the folder of data sets")
    parser.add_argument("--sets", default="bfcl_multi_turn,taskbench_multimedia,ultratool", help="default %(default)s")
    parser.add_argument("--alphas", default="0.01,0.05,0.1,0.2", help="default %(default)s")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="keeps embeddings between runs")
    add_json(parser)
    arguments = parser.parse_args(argv)
    alphas = [float(each) for each in arguments.alphas.split(",")]
    for world in worlds(arguments.data, arguments.sets.split(","), arguments.cache):
        for row in with_cost(rows(world, alphas)):
            print_row(row, arguments.json, width=44)


if __name__ == "__main__":
    main()
