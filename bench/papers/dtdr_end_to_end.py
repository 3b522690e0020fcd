"""Measures whether a small open model picks the right next call when it sees fewer tools (DTDR, Table 3).

    python -m bench.papers.dtdr_end_to_end DATA --model FILE.gguf --cache FOLDER

The paper's table compares lists of models; this one compares lists of tools. The model reads the task, the calls so
far and one of these lists, and says which tool it calls next, with which arguments:

    full       every tool of the set
    bm25       the K tools that BM25 ranks first for the task
    dtdr       the K tools that DTDR, as served and trained on the train split, expects next, each with its probability
               (the paper's weighted hard mask)

`accuracy` is the share of steps at which the model named an acceptable next call: one whose dependencies are done. The
model is never asked for END, so it always calls a tool. `listed` is the share of steps whose list held an acceptable
tool. `filled` covers the named tools that were in the list: the share whose arguments are an object with every required
key and no unknown one. Steps are drawn with a fixed seed. Answers are greedy and kept by the hash of model and prompt,
so an interrupted run continues where it stopped.

The output is one JSON object per line. The model runs on llama.cpp (`pip install 'foretool[llm]'`); any instruct model
in GGUF with a ChatML template works.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import numpy as np

from bench.kept_encoder import open_kept, open_vectors
from bench.metrics import quantile
from bench.options import make_parser
from bench.papers.dtdr import Predict, World, aligned, read, served_by, without_earlier
from bench.reports import Row, difference, mean_row
from bench.retrieval.pool import Pool, bm25
from foretool.learning.training.demonstrations import Demonstration, PredictionStep
from foretool.learning.training.dtdr import METHOD
from foretool.retrieval import encoders
from foretool.storage.records import Tool

SETS: Final = ("taskbench_multimedia", "bfcl_multi_turn")
SHOWN: Final = 5
SEED: Final = 7
CONTEXT: Final = 16_384
"""Tokens; the longest list of these sets has fewer."""
ANSWER: Final = 96
"""Tokens of an answer; a longer one is cut and does not count as filled."""
OPENING: Final = '{"name": "'
"""The answer begins with this text, so that every model answers with a call."""

Shown = list[tuple[int, float | None]]
"""Places of tools, each with its probability where the ranker has one."""


class Asked(NamedTuple):
    """One step of one task."""

    task: Demonstration
    step: PredictionStep


class Answer(NamedTuple):
    """An answer of the model."""

    text: str
    tokens: int
    """Tokens of the prompt."""
    seconds: float


class Model:
    """Answers greedily with the model of one GGUF file, and keeps its answers."""

    def __init__(self, path: Path, threads: int, kept: Path) -> None:
        from llama_cpp import Llama  # type: ignore[import-not-found]

        self._key = f"{path.name}:{path.stat().st_size}"
        self._llama = Llama(str(path), n_ctx=CONTEXT, n_threads=threads, verbose=False, seed=SEED)
        self._file = kept
        lines = kept.read_text("utf-8").splitlines() if kept.exists() else []
        self._known = {row["key"]: Answer(*row["answer"]) for row in map(json.loads, lines)}

    def __call__(self, prompt: str) -> Answer:
        key = sha256(f"{self._key}\n{prompt}".encode()).hexdigest()
        if key not in self._known:
            started = time.perf_counter()
            said = self._llama.create_completion(prompt, max_tokens=ANSWER, temperature=0.0, stop=["\n", "<|im_end|>"])
            answer = Answer(said["choices"][0]["text"], said["usage"]["prompt_tokens"], time.perf_counter() - started)
            self._known[key] = answer
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, "answer": answer}) + "\n")
        return self._known[key]


def signature(tool: Tool, chance: float | None) -> str:
    """A tool in one line: name, parameters, the start of its description, its probability."""
    definition = json.loads(tool.definition)
    schema = definition.get("inputSchema") or {}
    required = set(schema.get("required") or ())
    parameters = ", ".join(
        f"{name}{'' if name in required else '?'}: {_type(of)}" for name, of in (schema.get("properties") or {}).items()
    )
    likely = "" if chance is None else f" [{chance:.2f}]"
    return f"- {tool.name}({parameters}): {' '.join(definition.get('description', '').split())[:160]}{likely}"


def _type(schema: Any) -> str:
    return str(schema.get("type", "any")) if isinstance(schema, dict) else "any"


def prompt(world: World, asked: Asked, shown: Shown) -> str:
    """The question as ChatML. The list comes first, so that llama.cpp reads the part that prompts share only once."""
    tools = "\n".join(signature(world.tools[place], chance) for place, chance in shown)
    weighed = (
        " The number behind a tool says how likely it is the next." if any(c is not None for _, c in shown) else ""
    )
    calls = ", ".join(world.tools[call].name for call in asked.step.history) or "none"
    return (
        f"<|im_start|>system\nYou carry out tasks by calling tools, one call at a time.{weighed} Answer with the next"
        ' call alone, as JSON: {"name": TOOL, "arguments": {...}}. The tools:\n'
        f"{tools}<|im_end|>\n<|im_start|>user\nTask: {asked.task.task}\nCalls made so far, in order: {calls}\n"
        f"What is the next call?<|im_end|>\n<|im_start|>assistant\n{OPENING}"
    )


def steps(world: World, most: int) -> list[Asked]:
    """At most `most` steps at which a call is due, drawn with a fixed seed."""
    every = [
        Asked(each, step) for each in world.asked for step in each.steps(world.end) if world.end not in step.acceptable
    ]
    return random.Random(SEED).sample(every, min(most, len(every)))


def lists(world: World) -> Mapping[str, Callable[[Asked], Shown]]:
    """By method, the tools that it shows at a step."""
    place = {tool.id: at for at, tool in enumerate(world.tools)}
    search = bm25(Pool(world.tools, {}))

    @cache
    def trained() -> Predict:
        # Training takes minutes, so it waits until a step needs it.
        model = METHOD.train(world.material(world.train), lambda what, share: None)
        return served_by(world, aligned(world, model))

    def words(asked: Asked) -> Shown:
        return [(place[tool], None) for tool in search(asked.task.task)[:SHOWN]]

    def foreseen(asked: Asked) -> Shown:
        chances = trained()(asked.task, asked.step)[: world.end]
        return [(at, float(chances[at])) for at in np.argsort(-chances, kind="stable")[:SHOWN].tolist()]

    return {
        "full": lambda asked: [(at, None) for at in range(len(world.tools))],
        f"bm25 top {SHOWN}": words,
        f"dtdr top {SHOWN}, weighted hard mask": foreseen,
    }


def judged(world: World, asked: Asked, shown: Shown, said: str) -> tuple[float, float, float | None]:
    """Whether the answer is accurate, listed and filled; the last is None where it names a tool that was not shown."""
    name, _, rest = said.partition('"')
    wanted = {world.tools[place].name for place in asked.step.acceptable}
    seen = {world.tools[place].name: world.tools[place] for place, _ in shown}
    filled = None if name not in seen else float(_fits(seen[name], OPENING + name + '"' + rest))
    return float(name in wanted), float(bool(wanted & seen.keys())), filled


def _fits(tool: Tool, text: str) -> bool:
    try:
        call, _ = json.JSONDecoder().raw_decode(text)
        given = call["arguments"]
    except (ValueError, KeyError, TypeError):
        return False
    schema = json.loads(tool.definition).get("inputSchema") or {}
    known, required = set(schema.get("properties") or ()), set(schema.get("required") or ())
    return isinstance(given, dict) and required <= given.keys() <= known


def over(world: World, model: Callable[[str], Answer], most: int, methods: Sequence[str]) -> Iterator[Row]:
    """A row for each method, with its difference to the full list on the same steps."""
    drawn = steps(world, most)
    baseline: list[float] = []
    for method, shows in lists(world).items():
        if not any(method.startswith(each) for each in methods):
            continue
        found, tokens, seconds = [], [], []
        for asked in drawn:
            shown = shows(asked)
            answer = model(prompt(world, asked, shown))
            found.append(judged(world, asked, shown, answer.text))
            tokens.append(answer.tokens)
            seconds.append(answer.seconds)
        right = [each[0] for each in found]
        filled = [each[2] for each in found if each[2] is not None]
        baseline = baseline or right
        yield {
            "set": world.name, "method": method, "n": len(drawn), **mean_row("accuracy", right, 3),
            "over_full": difference(right, baseline, 3),
            "listed": round(fmean(each[1] for each in found), 3),
            "filled": round(fmean(filled), 3) if filled else None,
            "prompt_tokens": round(fmean(tokens)), "seconds": round(fmean(seconds), 2),
            "seconds_median": round(quantile(seconds, 0.5), 2),
        }  # fmt: skip


def results(arguments: argparse.Namespace) -> Iterator[Row]:
    """The rows of each set."""
    cache, weights = arguments.cache, encoders.resolve_weights("auto")[0]
    with open_vectors(cache) as vectors:
        model = Model(arguments.model, arguments.threads, cache / "answers.jsonl")
        encoder = open_kept(weights, cache, vectors)
        for name in arguments.sets.split(","):
            world = read(arguments.data / name, arguments.queries, [encoder], encoder)
            if any(each.earlier for each in world.train):
                world = world._replace(train=without_earlier(world.train), asked=without_earlier(world.asked))
            yield from over(world, model, arguments.steps, arguments.methods.split(","))


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print as results come."""
    parser = make_parser("bench.papers.dtdr_end_to_end", __doc__)
    parser.add_argument("data", type=Path, help="the folder of data sets")
    parser.add_argument("--model", type=Path, required=True, metavar="FILE", help="an instruct model in GGUF")
    parser.add_argument("--sets", default=",".join(SETS), help="comma-separated; default %(default)s")
    parser.add_argument("--queries", default="dev.jsonl", metavar="FILE", help="file of each set; default %(default)s")
    parser.add_argument("--methods", default="full,bm25,dtdr", help="default %(default)s")
    parser.add_argument("--steps", type=int, default=60, metavar="N", help="of each set; default %(default)s")
    parser.add_argument("--threads", type=int, default=2, metavar="N")
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER", help="keeps answers and embeddings")
    for row in results(parser.parse_args(argv)):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
