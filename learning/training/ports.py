"""PORTS (Molfetta et al., EMNLP 2025): fine-tunes the encoder on tasks, and on what a language model says of tools.

It differs from the paper: the loss is added to a contrastive one over every tool (`ports_trainer`); only queries are
read with what was learned, tools keep the vectors that they have; thin matrices are trained instead of all weights
(`thin_encoder`), starting from the shipped ones.

The model is an adapter of the encoder's file (`retrieval.adapters`): method "ports", version 1, about a megabyte.
Serving opens it through `encoders.adapted` and scores with it in `rankers.ports`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from foretool.learning.training import Material, Method, Progress, TooLittle
from foretool.learning.training.continuation import (
    ContinuationScorer,
    LikelihoodQuestion,
    ScoreFile,
    score_all,
    write_call,
)
from foretool.learning.training.ports_trainer import Example, PortsTrainer, TrainingPlan, choose_candidates
from foretool.learning.training.thin_encoder import trainable_weights
from foretool.retrieval import adapters, encoders
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders.adapted import read_shipped
from foretool.storage.records import Episode, Tool, ToolId

_MINIMUM = 50
"""Fewest calls of tasks in words."""
_MOST_ASKED = 1500
"""Pairs of task and tool that the language model is asked about in one training, the latest tasks first; this takes
some minutes."""
HARD = 5
"""Tools beside the right one that it is asked about for a task; the hardest of them are the negatives."""
OUTCOME = 0.5
"""Natural log-probability a token that a real outcome is worth: as much as the temperature of eq. 2, so that Q changes
by a factor of e."""
_PASSES = 4096
"""Tasks read in one training, about a minute of one core. Few tasks are read several times, at most eight."""


def train(material: Material, progress: Progress) -> bytes:
    """Train an adapter of the first encoder on every task of the material; later tasks, which it has not, judge it.

    Raises `TooLittle`, also if a library that trains it is not installed.
    """
    weights = trainable_weights()
    called, examples = keep_called(examples_of(material))
    if len(examples) < _MINIMUM:
        raise TooLittle(f"calls of tasks in words: {len(examples)} of the {_MINIMUM} that it takes")
    tools = [material.tools[at] for at in called]
    texts = [embedded_text(document(each, material.server_texts.get(each.upstream, ""))) for each in tools]
    vectors = material.documents(texts) if material.documents else None
    plan = TrainingPlan(seed=material.seed, epochs=max(1, min(8, _PASSES // len(examples))))
    name = sha256(msgspec.json.encode((texts, examples, plan, weights.sha256))).hexdigest()[:16]
    with TemporaryDirectory() as scratch:
        checkpoint = work_folder() / f"{name}.checkpoint"
        start = shipped_adapter(plan.rank)
        trainer = PortsTrainer(weights, texts, examples, plan, Path(scratch), checkpoint, vectors=vectors, start=start)
        answers = _ask(material, tools, trainer, progress)
        trainer.useful, trainer.scored = answers.useful, answers.scored
        trainer.run(lambda done, total, loss: progress(f"training, loss {loss:.3f}", done / total))
        report = {
            "examples": len(examples), "asked": answers.pairs, "scorer": answers.model,
            "plan": msgspec.to_builtins(plan),
        }  # fmt: skip
        data = trainer.encoder.adapter(report).dumps()
        checkpoint.unlink(missing_ok=True)
    return data


def _ask(material: Material, tools: Sequence[Tool], trainer: PortsTrainer, progress: Progress) -> ModelAnswers:
    scorer = material.open_scorer() if material.open_scorer is not None else None
    if scorer is None:
        return ModelAnswers()
    with ScoreFile(work_folder() / "scores.txt") as kept:
        return ask_preferences(trainer, tools, scorer, kept, lambda done, of: progress("asking the model", done / of))


class ModelAnswers(Struct, frozen=True):
    """What a language model says of tasks and tools."""

    means: Mapping[tuple[int, int], float] = {}
    """By example and document, the mean log-probability of the right call."""
    scored: Mapping[int, tuple[int, ...]] = {}
    """By example, the documents that it was asked about."""
    model: str = ""

    @property
    def pairs(self) -> int:
        return len(self.means)

    def useful(self, example: int, documents: Sequence[int]) -> Sequence[float] | None:
        """Return the mean log-probability of an example's right call given each of these documents (`Useful`)."""
        found = [self.means.get((example, each)) for each in documents]
        return None if None in found else [each for each in found if each is not None]


def ask_preferences(
    trainer: PortsTrainer,
    tools: Sequence[Tool],
    scorer: ContinuationScorer,
    kept: ScoreFile,
    progress: Callable[[int, int], None] | None = None,
    most: int = _MOST_ASKED,
    hard: int = HARD,
) -> ModelAnswers:
    """Ask about the latest examples, each with the right tool and the most similar others.

    `tools`: in the order of the trainer's documents; `most`: questions in all; `hard`: other tools for each example.
    """
    count = min(len(trainer.examples), most // (1 + hard))
    chosen = range(len(trainer.examples) - count, len(trainer.examples))
    near = trainer.cosines([trainer.examples[at] for at in chosen])
    scored = {
        at: tuple(choose_candidates(row, trainer.examples[at], None, hard))
        for at, row in zip(chosen, near, strict=True)
    }
    questions = {
        (at, each): LikelihoodQuestion(
            docstring(tools[each]), example.query, example.call or f"{tools[example.tool].name}()"
        )
        for at in chosen
        for example in (trainer.examples[at],)
        for each in scored[at]
    }
    scores = score_all(scorer, questions.values(), kept, progress)
    means = {
        (at, each): scores[asked].mean + outcome(trainer.examples[at], each) for (at, each), asked in questions.items()
    }
    return ModelAnswers(means, scored, scorer.model)


def outcome(example: Example, document: int) -> float:
    """Return what real calls add to a language model's opinion (the mean log-probability of a call given this
    document). The paper leaves real outcomes to later work. A tool that failed at the task, or was passed over for
    another, gets less; one whose result a later call used gets more."""
    if document in example.tried:
        return -OUTCOME
    return OUTCOME if example.used and document == example.tool else 0.0


def docstring(tool: Tool) -> str:
    """Write a tool as a Python function, as the paper shows tools to the language model."""
    text = document(tool)
    lines = [f"def {text.name}({', '.join(text.parameters)}):", '"""', " ".join(text.description.split())[:400], '"""']
    return "\n".join(lines)


def examples_of(material: Material) -> list[Example]:
    """Return each task with each tool that it took, oldest first; a task of several tools is several examples (4.1)."""
    place = {tool.id: at for at, tool in enumerate(material.tools)}
    found = []
    flowed = {(each.before, each.after) for each in material.flows}
    for episode in material.episodes:
        right = list(dict.fromkeys(place[each] for each in episode.calls if each in place))
        tried = tuple(place[each] for each in episode.failed if each in place and place[each] not in right)
        for query in episode.tasks[:1]:
            found += [
                Example(
                    query, each, tuple(other for other in right if other != each), _written(material, episode, each),
                    tried, _is_used(episode, material.tools[each].id, flowed),
                )
                for each in right
            ]  # fmt: skip
    return [*_examples_of_missed(material, place), *found]


def _examples_of_missed(material: Material, place: Mapping[ToolId, int]) -> list[Example]:
    """Return an example for each miss; what stood above the needed tool are its first negatives.

    They come first, for the language model is asked about the latest examples, and of these only calls are known.
    """
    right: dict[str, set[ToolId]] = {}
    for each in material.missed:
        right.setdefault(each.task, set()).add(each.tool)
    for episode in material.episodes:
        for task in set(episode.tasks) & right.keys():
            right[task] |= set(episode.calls)
    return [
        Example(
            each.task, place[each.tool],
            tuple(sorted(place[other] for other in right[each.task] if other != each.tool and other in place)),
            tried=tuple(place[other] for other in each.shown if other in place and other not in right[each.task]),
        )
        for each in material.missed
        if each.tool in place
    ]  # fmt: skip


def _written(material: Material, episode: Episode, tool: int) -> str:
    """Return the first call of a tool in an episode with its arguments; "" where they are not known."""
    of = material.tools[tool]
    arguments = episode.arguments[episode.calls.index(of.id)] if episode.arguments else ""
    return write_call(of.name, arguments) if arguments else ""


def _is_used(episode: Episode, tool: ToolId, flowed: Container[tuple[ToolId, ToolId]]) -> bool:
    """Return whether a later call of the episode is of a tool that takes values from this one's results."""
    later = episode.calls[episode.calls.index(tool) + 1 :]
    return any((tool, each) in flowed for each in later)


def keep_called(examples: Sequence[Example]) -> tuple[list[int], list[Example]]:
    """Return the places of the documents that some example calls, and the examples with places among these. Training
    leaves out a tool that nobody has called yet: it would only ever be a negative, and be found less."""
    called = sorted({at for each in examples for at in (each.tool, *each.also)})
    place = {at: new for new, at in enumerate(called)}
    return called, [
        replace(
            each,
            tool=place[each.tool],
            also=tuple(place[at] for at in each.also),
            tried=tuple(place[at] for at in each.tried if at in place),
        )
        for each in examples
    ]


def shipped_adapter(rank: int) -> Adapter | None:
    """Return the adapter that ships with the first encoder, to continue from; None if there is none of this rank.
    Raises `ModelError` for another file, and `OSError`."""
    weights = encoders.MANIFEST[0]
    if not weights.adapter:
        return None
    found = adapters.loads(read_shipped(weights))
    fits = found.base == weights.sha256 and all(left.shape[1] == rank for left, _ in found.changes.values())
    return found if fits else None


def work_folder() -> Path:
    """Return the folder of scores and checkpoints, from which a training that was killed continues."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    # A relative folder would be one of the working folder.
    folder = Path(base if base.startswith("/") else "~/.cache").expanduser() / "foretool" / "ports"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


METHOD = Method(_MINIMUM, train)
