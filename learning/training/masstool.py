"""Trains what `rankers.masstool` serves from the tasks on record, with numpy alone.

Some tasks are kept back at first, which tells how to mix head and vote and how far to believe them (`masstool_trust`).
Then all tasks are learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foretool.learning.rankers.masstool import Header, Ints, Sparse, Trust, dumps, grams, read_header, weighted
from foretool.learning.training import Material, Method, Progress, TooLittle, masstool_tuned
from foretool.learning.training.masstool_head import (
    EVEN,
    LOUD,
    SIZE,
    Classes,
    Head,
    TrainingTasks,
    build_vocabulary,
    choose_bank,
    familiar_share,
    find_classes,
    fit_head,
    flatten,
    stack_rows,
)
from foretool.learning.training.masstool_trust import (
    MOST_KEPT_BACK,
    choose_mix,
    fit_trust,
    judge_held_back,
    split_strangers,
)
from foretool.learning.training.optimizers import Adam
from foretool.retrieval.encoders.base import unit
from foretool.retrieval.model_format import Floats, ModelError
from foretool.storage.records import ToolId

_MINIMUM: Final = 20
"""Fewest tasks."""
_MOST: Final = 40_000
"""Tasks learned from, the newest."""
_READERS, _LISTENERS = 3, 1
"""Heads of words and sentence vector, whose mean logits serve, and heads of words alone, for tasks without a vector."""
_ALONE: Final = 2
"""Heads without an encoder."""
_KEPT_BACK: Final = 0.15
FEW: Final = 600
"""With fewer tasks each is kept back once, in `_FOLDS` turns."""
_FOLDS: Final = 4
_LEAST_WITHOUT: Final = 20
"""Fewest tasks that needed no tool, for detection to be learned."""
_RELAXED: Final = 10.0
"""The ridge of detection is 1 / (RELAXED x tasks)."""
_DETECTION_STEPS, _DETECTION_RATE = 300, 0.3


def fit_detection(words: Sparse, vectors: Floats, needed: NDArray[np.bool_], columns: int) -> Floats:
    """Fit whether a task needs a tool by logistic regression on [vector ; words], both answers of equal weight.

    Returns the weights (dimension + columns + 1,), the bias last.
    """
    size = vectors.shape[1]
    share = np.where(needed, 0.5 / max(needed.sum(), 1), 0.5 / max((~needed).sum(), 1)).astype(np.float32)
    ridge = np.float32(1.0 / (_RELAXED * len(needed)))
    row_of = np.repeat(np.arange(len(words)), np.diff(words.starts))
    weights = np.zeros(size + columns + 1, np.float32)
    adam = Adam(weights)
    for step in range(_DETECTION_STEPS):
        logits = vectors @ weights[:size] + words.times(weights[size:-1]) + weights[-1]
        error = share * (1.0 / (1.0 + np.exp(-np.clip(logits, -30, 30))) - needed)
        slope = np.concatenate(
            [
                error @ vectors,
                np.bincount(words.columns, error[row_of] * words.values, columns),
                [error.sum()],
            ]
        ).astype(np.float32)
        slope[:-1] += ridge * weights[:-1]
        adam.step(slope, (1.0 - step / _DETECTION_STEPS) * _DETECTION_RATE)
    return weights


def keep_back(episode_of: Ints, draw: np.random.Generator) -> list[Ints]:
    """Return the rows to keep back, for each turn; few tasks are each kept back once, in `_FOLDS` turns.

    The texts of one episode stay on one side: they have the same tools, so one would give the others away.
    """
    episodes, sizes = np.unique(episode_of, return_counts=True)
    order = draw.permutation(len(episodes))
    if len(episode_of) < FEW:
        drawn = np.array_split(order, _FOLDS)
    else:
        most = min(int(_KEPT_BACK * len(episode_of)), MOST_KEPT_BACK)
        drawn = [order[: max(1, int(np.searchsorted(np.cumsum(sizes[order]), most, side="right")))]]
    return [np.flatnonzero(np.isin(episode_of, episodes[each])) for each in drawn if len(each)]


class _Training:
    """One training: reads the tasks, keeps some back, fits the heads, and packs the model."""

    def __init__(self, material: Material, progress: Progress) -> None:
        self.material, self.progress = material, progress
        self.draw = np.random.default_rng(material.seed)
        said = [
            (text, frozenset(each.calls), number)
            for number, each in enumerate(material.episodes)
            for text in each.tasks
            if text.strip()
        ]
        said += _read_missed(material, len(material.episodes))
        self.with_tools = [(text, calls) for text, calls, _ in said if calls][-_MOST:]
        self.without = [text for text, calls, _ in said if not calls][-_MOST:]
        self.episode_of = np.asarray([number for _, calls, number in said if calls][-_MOST:], np.int64)
        """(tasks with tools,): the episode that each comes from."""
        if len(self.with_tools) < _MINIMUM:
            raise TooLittle(
                f"tasks in words with the calls they took: {len(self.with_tools)} of the {_MINIMUM} that it takes"
            )

    def run(self) -> bytes:
        texts = [text for text, _ in self.with_tools] + self.without
        counts = [grams(text) for text in texts]
        hashes, idf = build_vocabulary(counts)
        rows = [weighted(each, hashes, idf) for each in counts]
        vectors = self._embed(texts)
        names = sorted({tool for _, calls in self.with_tools for tool in calls})
        number = {tool: place for place, tool in enumerate(names)}
        golds = tuple(tuple(sorted(number[tool] for tool in calls)) for _, calls in self.with_tools)
        count = len(golds)
        tasks = TrainingTasks(stack_rows(rows[:count]), vectors[:count], golds, len(names))
        known = find_classes(golds)
        earlier = None
        with suppress(ModelError):  # another version of foretool has written it
            earlier = read_header(self.material.earlier) if self.material.earlier else None
        if earlier is not None and earlier.read.reads_vectors != bool(vectors.shape[1]):
            earlier = None
        mix, read, unread = (
            (earlier.mix, earlier.read, earlier.unread) if earlier is not None else self._weigh(tasks, known)
        )
        # The trust reads the head also where the vote alone gives the shares.
        seen = self._heads(tasks)
        heads = [
            self._fit_head(one, known, np.arange(count), place, 0.5 + 0.48 * place / len(seen), 0.48 / len(seen))
            for place, one in enumerate(seen)
        ]
        stage = self._tune_encoder(texts[:count], known) if mix > 0 and not self.material.is_trial else {}
        detects = len(self.without) >= _LEAST_WITHOUT
        detect = np.zeros(vectors.shape[1] + len(hashes) + 1, np.float32)
        if detects:
            needed = np.arange(len(texts)) < count
            detect = fit_detection(stack_rows(rows), vectors, needed, len(hashes))
        header = Header(
            tools=tuple(names),
            read=read,
            unread=unread,
            nets=len(heads),
            mix=mix,
            even=EVEN,
            tasks=count,
            familiar=familiar_share(golds, self.episode_of.tolist()),
            detects=detects,
        )
        self.progress("packing", 1.0)
        found: dict[str, NDArray[Any]] = {
            "hashes": hashes,
            "idf": idf.astype(np.float16),
            "detect": detect.astype(np.float16),
        }
        return dumps(header, found | _pack(tasks, known, heads) | stage)

    def _heads(self, tasks: TrainingTasks) -> list[TrainingTasks]:
        """Return what each head reads."""
        trial = self.material.is_trial
        if not tasks.vectors.shape[1]:
            return [tasks] * (1 if trial else _ALONE)
        return [*[tasks] * (1 if trial else _READERS), *[tasks.without_vectors()] * _LISTENERS]

    def _tune_encoder(self, texts: Sequence[str], known: Classes) -> dict[str, NDArray[Any]]:
        """Return the encoder fine-tuned on these tasks and a head on it; {} with too few tasks or nothing that trains
        it."""
        weights = masstool_tuned.weights_to_tune(len(texts)) if self.material.queries is not None else None
        if weights is None:
            return {}
        return masstool_tuned.tune(
            weights, texts, known.of, self.material.seed, lambda share: self.progress("fine-tuning the encoder", share)
        )

    def _embed(self, texts: Sequence[str]) -> Floats:
        embed = self.material.queries
        if embed is None:
            return np.zeros((len(texts), 0), np.float32)
        found = []
        for start in range(0, len(texts), 256):
            self.progress("reading the tasks", 0.2 * start / len(texts))
            found.append(unit(embed(texts[start : start + 256])))
        return np.concatenate(found)

    def _fit_head(self, tasks: TrainingTasks, known: Classes, rows: Ints, seed: int, begun: float, part: float) -> Head:
        seed += self.material.seed
        return fit_head(tasks, known, rows, seed, lambda share: self.progress("learning", begun + part * share))

    def _weigh(self, tasks: TrainingTasks, known: Classes) -> tuple[float, Trust, Trust]:
        """Return the share of the head, and the trust with and without sentence vectors, from tasks that were kept
        back."""
        parts = keep_back(self.episode_of, self.draw)
        blind = tasks.without_vectors()
        read, unread = [], []
        for place, part in enumerate(parts):
            rows, others = split_strangers(tasks, part, self.draw)
            if not len(others):
                raise TooLittle(f"{len(tasks)} tasks that all took the same tools; there is nothing to tell apart")
            each = 0.15 / len(parts)
            begun = 0.2 + 2 * each * place
            reader = self._fit_head(tasks, known, others, 0, begun, each)
            read.append(judge_held_back(tasks, known, [reader], rows, others))
            if not tasks.vectors.shape[1]:
                unread.append(read[-1])
                continue
            listener = self._fit_head(blind, known, others, 0, begun + each, each)
            unread.append(judge_held_back(blind, known, [listener], rows, others))
        if all(each.strange.all() for each in read):
            raise TooLittle(f"{len(tasks)} tasks that never take a tool twice; nothing shows what the past is worth")
        mix = choose_mix(read)
        return (
            mix,
            fit_trust(read, mix, reads_vectors=tasks.vectors.shape[1] > 0),
            fit_trust(unread, mix, reads_vectors=False),
        )


def _pack(tasks: TrainingTasks, known: Classes, heads: Sequence[Head]) -> dict[str, NDArray[Any]]:
    """Pack the arrays that `rankers.masstool.MassTool` reads."""
    kept = choose_bank(tasks.golds, np.arange(len(tasks)))
    words = stack_rows([(tasks.words.row(row)) for row in kept.tolist()])
    found: dict[str, NDArray[Any]] = {}
    found["class_starts"], found["class_tools"] = flatten(known.sets)
    found["golds_starts"], found["golds_tools"] = flatten([tasks.golds[row] for row in kept.tolist()])
    found["bank"] = np.rint(127 * tasks.vectors[kept]).astype(np.int8)
    found["word_starts"], found["word_columns"] = words.starts, words.columns.astype(np.uint16)
    found["word_values"] = words.values.astype(np.float16)
    for number, head in enumerate(heads):
        scales = np.maximum(np.abs(head.rows).max(1), 1e-9) / 127
        found[f"rows{number}"] = np.rint(head.rows / scales[:, None]).astype(np.int8)
        found[f"scales{number}"] = scales.astype(np.float32)
        out = head.out.copy()
        out[SIZE:] *= LOUD
        found[f"out{number}"], found[f"bias{number}"] = out.astype(np.float16), head.bias
    return found


def _read_missed(material: Material, count: int) -> list[tuple[str, frozenset[ToolId], int]]:
    """Return what each miss adds: its words, the one tool that they led to, and the episode that it belongs to.

    The words are in an episode already, with all of its calls; a row of their own tells which of these they are for. A
    miss whose words no episode has stands for itself, `count` and up.
    """
    place_of = {text: place for place, each in enumerate(material.episodes) for text in each.tasks}
    new = {each.task: count + place for place, each in enumerate(material.missed)}
    return [
        (each.task, frozenset({each.tool}), place_of.get(each.task, new[each.task]))
        for each in material.missed
        if each.task.strip()
    ]


def train(material: Material, progress: Progress) -> bytes:
    """Train a model for `rankers.masstool.MassTool`, as bytes. Raises `TooLittle`."""
    return _Training(material.of_most_tasks(), progress).run()


METHOD: Final = Method(_MINIMUM, train)
