"""Measures the tables 2 to 6 of ITR as far as retrieval alone decides them: no language model takes part.

    python -m bench.papers.itr_tables --data FOLDER [--sizes 8,40,120,508,1500,4432] [--sets a,b] [--cache FOLDER]
        [--sample N] [--without-reranker]

The steps are those of `bench.papers.itr_steps`, the forms those of `bench.papers.itr_forms`. `at_hand` is the share of
steps with a needed tool among what the step shows: the most that the paper's `tools-correct` can be, for a model may
still call another tool. `all_at_hand` is the share with every needed tool. Each row has the paper's figure where there
is one, named `..._paper`; the paper's was measured with a model on catalogues of 8 to 120 tools.

    table 2    tokens a step, and what is at hand, with each form
    table 4    steps without a needed tool at hand (misses), by K_B and fallback. A perfect judge of sufficiency calls
               the fallback: the expansion of the paper, or a search with `discover_tools` in the words of the step
    table 5    what is at hand by the size of the catalogue
    table 6    the same without a part of the method, as differences on the same steps
    K_A        wishes whose step quotes the instructions of the server that they need
    5.6        tokens that are read in episodes of ten steps, 2,000 tokens of history a step as in the paper. With ITR a
               step that lacks its tool is asked once more, wider. With foretool a step whose tool was neither listed
               nor in an earlier answer takes a turn more for the search, and answers stay in the history

Not measured, because a model's calls make them: the paper's `tools-correct` and `API-success`, its cost in dollars and
its latency (table 3).
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean
from typing import Final

from msgspec import Struct, field

from bench import options
from bench.kept_encoder import KeptEncoder
from bench.papers.itr_cost_model import CUMULATIVE, HISTORY, TABLE_2, TABLE_5, episode_tokens
from bench.papers.itr_forms import BY_SCORE, Answered, Meaning, Outcome, PublishedForm, ServedForm, open_served
from bench.papers.itr_steps import SEED, SETS, Catalogue, Step, StepSet, read_pool, read_step_set
from bench.papers.published.cross_encoder import CrossEncoder
from bench.reports import Row, difference, mean_row, print_row
from bench.retrieval.instructions import WISHES
from bench.retrieval.itr_ranking import open_cross_encoder
from foretool.retrieval import encoders
from foretool.server.catalog.encoders import open_any_encoder
from foretool.storage.opening import open_store
from foretool.storage.records import ToolId
from foretool.storage.store import Store

SIZES: Final = (8, 40, 120, 508, 1500, 4432)
STEPS: Final = 10
"""Steps of an episode."""
UNTRAINED: Final = "minilm"
"""The encoder of the published form."""
TABLE_4: Final = {"ITR, K_B=1": 6.1, "ITR, widened": 2.4}
"""Misses in per cent: one tool without a fallback, two with it."""
TABLE_6: Final = {
    "K_B 1 to 2": ("ITR, K_B=1", "ITR", 7.0, 180),
    "K_A 1 to 4": ("ITR, K_A=1", "ITR", 6.0, 220),
    "re-ranker off to on": ("ITR, no re-ranker", "ITR", 3.0, 60),
    "dense alone to hybrid": ("ITR, dense alone", "ITR", 3.0, 0),
}
"""From, to, and the paper's differences in API success (per cent) and in tokens a step."""
METHODS_2: Final = {
    "everything": "B0 monolithic", "router: its first": "B1 router-only", "prompt-RAG": "B2 prompt-RAG",
    "ITR": "ITR (K_A=4, K_B=2)",
}  # fmt: skip
"""The rows of table 2 by our names."""


class Episode(Struct, frozen=True):
    """The tokens that a model reads in ten steps."""

    everything: float
    itr: float
    served: float
    searches: int


class Measured(Struct):
    """What was measured at one size of the catalogue."""

    size: int
    outcomes: dict[str, list[Outcome]] = field(default_factory=dict)
    """By form, one for each step, in the same order."""
    sets: list[str] = field(default_factory=list)
    """The set of each step."""
    episodes: list[Episode] = field(default_factory=list)

    def add(self, name: str, found: Mapping[str, Outcome]) -> None:
        """Add what the forms gave one step."""
        self.sets.append(name)
        for form, each in found.items():
            self.outcomes.setdefault(form, []).append(each)

    def figures(self, form: str, name: str | None = None) -> Row:
        """The figures of one form over the steps of a set, or of all."""
        found = [each for each, of in zip(self.outcomes[form], self.sets, strict=True) if name in (None, of)]
        return {
            "n": len(found), **mean_row("at_hand", [each.some for each in found]),
            "all_at_hand": round(fmean(each.all for each in found), 4),
            "tokens": round(fmean(each.tokens for each in found)),
            "tools": round(fmean(each.tools for each in found), 1),
        }  # fmt: skip


class Bench:
    """The encoders and the sets, opened once."""

    def __init__(
        self, sets: Sequence[StepSet], vectors: Store, *, encoder: str = "auto", reranks: bool = True
    ) -> None:  # fmt: skip
        """`encoder`: the setting of what is served, and `none` for the published form without one as well. `reranks`:
        with the cross-encoder, where it is installed."""
        self.sets = sets
        self.cross_encoder: CrossEncoder | None = open_cross_encoder() if reranks else None
        self.encoders: list[KeptEncoder] = []
        self.meaning: Meaning | None = None
        if encoder != "none":
            for weights in encoders.resolve_weights(UNTRAINED):
                opened = open_any_encoder(weights, in_bulk=True)
                self.encoders.append(KeptEncoder(opened, vectors.vectors, weights.key, weights.query_key))
            self.meaning = Meaning(vectors, encoders.resolve_weights(encoder))

    def published(self, catalogue: Catalogue) -> PublishedForm:
        """ITR as published over a catalogue."""
        return PublishedForm(catalogue, self.encoders, self.cross_encoder)

    def measure(self, size: int, *, by_words: bool = False) -> Measured:
        """Give every step to every form; `by_words`: to what is served without an encoder as well."""
        measured = Measured(size)
        for steps in self.sets:
            for catalogue, asked in steps.catalogues(size):
                published = self.published(catalogue)
                words = open_served(catalogue, None) if by_words else nullcontext()
                with open_served(catalogue, self.meaning) as served, words as lexical:
                    for step in asked:
                        found = {**published.outcomes(step), **served.outcomes(step)}
                        if lexical is not None:
                            found["list + answer, words alone"] = lexical.outcomes(step)["list + answer"]
                        measured.add(steps.name, found)
                    measured.episodes += episodes(asked, published, served)
        return measured


# Episodes, sections 5.1 and 5.6


def episodes(asked: Sequence[Step], published: PublishedForm, served: ServedForm) -> Iterator[Episode]:
    """Episodes of ten steps in a drawn order; none where a catalogue has fewer steps."""
    drawn = random.Random(SEED).sample(asked, len(asked))
    for start in range(0, len(drawn) - STEPS + 1, STEPS):
        steps = drawn[start : start + STEPS]
        users = [HISTORY * place for place in range(STEPS)]
        answers = [served.answer(step.words) for step in steps]
        read, searches = served_tokens(steps, answers, served.listed, served.fixed)
        everything = episode_tokens(STEPS, published.all_instructions, published.all_tools, users)
        outcomes = [published.outcomes(step) for step in steps]
        yield Episode(everything, itr_tokens(outcomes), read, searches)


def itr_tokens(outcomes: Sequence[Mapping[str, Outcome]]) -> float:
    """The tokens of an episode with ITR: a step that lacks its tool is asked again, wider."""
    read = 0.0
    for place, found in enumerate(outcomes):
        passes = ["ITR"] if found["ITR"].some else ["ITR", "ITR, widened"]
        read += sum(found[name].tokens + HISTORY * place for name in passes)
    return read


def served_tokens(
    steps: Sequence[Step], answers: Sequence[Answered], listed: frozenset[ToolId], fixed: float
) -> tuple[float, int]:
    """The tokens of an episode with foretool, and its searches."""
    known, read, said, searches = set(listed), 0.0, 0.0, 0
    for place, (step, answer) in enumerate(zip(steps, answers, strict=True)):
        history = HISTORY * place
        if not any(need & known for need in step.gold):
            searches += 1
            read += fixed + history + said
            said += answer.tokens
            known.update(answer.ready)
        read += fixed + history + said
    return read, searches


# Tables


def table_2(measured: Measured) -> Iterator[Row]:
    """Tokens a step and what is at hand."""
    names = ("everything", "router: its first", "prompt-RAG", "ITR", BY_SCORE, "list", "list + answer",
             "list + answer, names too", "answer", "answer: its first", "step()")  # fmt: skip
    for form in names:
        paper = TABLE_2.get(METHODS_2.get(form, ""))
        of_paper = {"tokens_paper": paper[0], "right_%_paper": paper[1]} if paper else {}
        yield {"table": 2, "row": form, "of_tools": measured.size, **measured.figures(form), **of_paper}


def table_4(measured: Measured) -> Iterator[Row]:
    """Misses by K_B and fallback."""
    of = measured.outcomes
    ways: dict[str, list[float]] = {
        "ITR, K_B=1": [each.some for each in of["ITR, K_B=1"]],
        "ITR": [each.some for each in of["ITR"]],
        "ITR, widened": [each.some for each in of["ITR, widened"]],
        f"{BY_SCORE}, widened": [each.some for each in of[f"{BY_SCORE}, widened"]],
        "ITR, then discover_tools": either(of["ITR"], of["answer"]),
        "list": [each.some for each in of["list"]],
        "list, then discover_tools": [each.some for each in of["list + answer"]],
        "step()": [each.some for each in of["step()"]],
        "step(), widened": [each.some for each in of["step(), widened"]],
        "step(), then discover_tools": either(of["step()"], of["answer"]),
    }
    for way, found in ways.items():
        paper = {"miss_%_paper": TABLE_4[way]} if way in TABLE_4 else {}
        missed = mean_row("miss_%", [100 * (1 - each) for each in found], 1)
        yield {"table": 4, "row": way, "of_tools": measured.size, "n": len(found), **missed, **paper}


def either(one: Sequence[Outcome], other: Sequence[Outcome]) -> list[float]:
    """1 for each step at which one of two forms has a needed tool."""
    return [max(mine.some, theirs.some) for mine, theirs in zip(one, other, strict=True)]


def table_5(measured: Measured) -> Iterator[Row]:
    """What is at hand at one size, for all steps and by set."""
    paper = TABLE_5.get(measured.size)
    for form in ("ITR", BY_SCORE, "list", "list + answer", "step()"):
        of_paper = {"right_%_paper": paper[1]} if paper and form == "ITR" else {}
        row: Row = {"table": 5, "row": form, "of_tools": measured.size, **measured.figures(form), **of_paper}
        yield row | {name: measured.figures(form, name)["at_hand"] for name in dict.fromkeys(measured.sets)}


def table_6(measured: Measured) -> Iterator[Row]:
    """What each part adds, on the same steps."""
    rows = {
        **TABLE_6,
        "ITR: by score per token to by score": ("ITR", BY_SCORE, None, None),
        "served: words alone to with the encoder": ("list + answer, words alone", "list + answer", None, None),
        "served: first 2 of the ranking to first 12": ("ranking, the first 2", "ranking, the first 12", None, None),
        "served: answer to first 12 of the ranking": ("answer, names too", "ranking, the first 12", None, None),
    }
    for row, (before, after, success, tokens) in rows.items():
        if not {before, after} <= measured.outcomes.keys():
            continue  # no step was served by words alone
        one, other = measured.outcomes[before], measured.outcomes[after]
        yield {
            "table": 6, "row": row, "of_tools": measured.size, "n": len(one),
            "at_hand_gained": difference([each.some for each in other], [each.some for each in one]),
            **({} if "ranking" in after else {"tokens_more": round(_mean_tokens(other) - _mean_tokens(one))}),
            **({} if success is None else {"success_gained_%_paper": success, "tokens_more_paper": tokens}),
        }  # fmt: skip


def _mean_tokens(found: Sequence[Outcome]) -> float:
    return fmean(each.tokens for each in found)


def episode_row(measured: Measured) -> Row:
    """The mean episode of ten steps."""
    found = measured.episodes
    return {
        "table": "5.6", "row": f"{STEPS} steps", "of_tools": measured.size, "n": len(found),
        "everything": round(fmean(each.everything for each in found)), "everything_paper": CUMULATIVE["B0"],
        "itr": round(fmean(each.itr for each in found)), "itr_paper": CUMULATIVE["ITR"],
        "served": round(fmean(each.served for each in found)),
        "searches": round(fmean(each.searches for each in found), 1),
    }  # fmt: skip


def quoted_instructions(bench: Bench, catalogue: Catalogue) -> Iterator[Row]:
    """Whose instructions a step quotes, for wishes that need one server each."""
    wishes: dict[str, str] = json.loads(WISHES.read_text("utf-8"))
    names = {server.name for server in catalogue.servers if server.instructions}
    asked = {name: wish for name, wish in wishes.items() if name in names}
    if not asked:
        return
    published = bench.published(catalogue)
    quoted = {
        method: {name: published.quoted(wish, method) for name, wish in asked.items()}
        for method in ("ITR, K_A=1", "ITR", BY_SCORE)
    }
    with open_served(catalogue, bench.meaning) as served:
        answers = {name: served.answer(wish).servers | served.greeted for name, wish in asked.items()}
    for method, found in quoted.items():
        right = [float(any(each.upstream == name for each in shown)) for name, shown in found.items()]
        tokens = fmean(sum(each.tokens for each in shown) for shown in found.values())
        yield {"table": "K_A", "row": method, "n": len(asked), **mean_row("quoted", right), "tokens": round(tokens)}
    right = [float(name in found) for name, found in answers.items()]
    yield {"table": "K_A", "row": "served, its answer or its greeting", "n": len(asked), **mean_row("quoted", right)}


def rows(bench: Bench, sizes: Sequence[int], pool: Catalogue) -> Iterator[Row]:
    """The rows of each size as they come: tables 2, 4 and 6 at the paper's largest size and at the largest of all,
    instructions where that is the whole pool.

    Runs within an event loop."""
    for size in sizes:
        measured = bench.measure(size, by_words=size == max(sizes) and bench.meaning is not None)
        if measured.sets:
            yield from table_5(measured)
            if size in (max(TABLE_5), max(sizes)):
                yield from (*table_2(measured), *table_4(measured), *table_6(measured))
        if measured.episodes:
            yield episode_row(measured)
    if max(sizes) >= len(pool.tools):
        yield from quoted_instructions(bench, pool)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print as rows come."""
    parser = options.make_parser("bench.papers.itr_tables", __doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="the folder of data sets")
    parser.add_argument("--sets", default=",".join(SETS), help="comma-separated; default %(default)s")
    parser.add_argument(
        "--sizes",
        default=",".join(map(str, SIZES)),
        help="tools of the catalogues, comma-separated; default %(default)s",
    )
    parser.add_argument("--sample", type=int, metavar="N", help="at most N steps of each set, drawn with a fixed seed")
    parser.add_argument("--without-reranker", action="store_true", help="leave the cross-encoder out")
    parser.add_argument("--cache", type=Path, metavar="FOLDER", help="keeps embeddings between runs")
    parser.add_argument("--encoder", default="auto", choices=("auto", "none"), help="none: words alone everywhere")
    options.add_json(parser)
    arguments = parser.parse_args(argv)
    names = options.split_names(parser, "--sets", arguments.sets, SETS)
    pool = read_pool(arguments.data)
    read = (read_step_set(arguments.data, name, pool) for name in names)
    sets = [each.sample(arguments.sample) for each in read if each is not None]
    sizes = [int(size) for size in arguments.sizes.split(",")]
    if arguments.cache:
        arguments.cache.mkdir(parents=True, exist_ok=True)

    async def run() -> None:
        with open_store(arguments.cache / "vectors.sqlite3" if arguments.cache else ":memory:") as store:
            bench = Bench(sets, store, encoder=arguments.encoder, reranks=not arguments.without_reranker)
            for row in rows(bench, sizes, Catalogue(tuple(pool))):
                more = {"cross_encoder": bench.cross_encoder is not None}
                print_row({**row, **more}, arguments.json)

    asyncio.run(run())


if __name__ == "__main__":
    main()
