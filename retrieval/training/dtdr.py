"""Trains what comes next (`rankers.dtdr`): small networks on all demonstrations, and weights for the listwise layer.

The weights are learned on demonstrations that the networks beside them have not seen: each fold is scored by a model of
the others. Those of tools that nobody called are learned where a tenth of the tools are missing from training, with
every task that took one of them, as if they were installed a day later.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders.opening import unit
from foretool.retrieval.model_format import Floats
from foretool.retrieval.rankers.dtdr import METHOD as NAME
from foretool.retrieval.rankers.dtdr import (
    MOST_HISTORY,
    PARTS,
    Calls,
    Dtdr,
    Model,
    Network,
    history_rows,
    rows_of,
)
from foretool.retrieval.training import Embed, Material, Progress, TooLittle
from foretool.retrieval.training.demonstrations import Demonstration, demonstrations
from foretool.retrieval.training.lsa import fit_latent
from foretool.retrieval.training.newton import Doubles, minimize
from foretool.retrieval.training.next_text import fit_aim
from foretool.retrieval.training.perceptron import Draw, Plan, Samples, Weights, fit, padded
from foretool.storage.records import ToolId

MINIMUM = 20
FEWEST = 10
"""Demonstrations that a judge is fitted on."""
MOST_REMEMBERED = 4_000
"""Past tasks that are kept to look up; the latest ones."""
LENS = 128
"""Numbers that a past task is compared by: a quarter of what was said of it, which is the time to look it up."""
MOST_SCORES = 1_000_000
"""Steps times tools that the listwise layer is fitted on, with and without task, with and without new tools: 70 MB
each."""
MOST_WEIGHTS = 1_000_000
"""Of the layer over all classes, networks together: what a millisecond multiplies, with room for the rest."""
FEWEST_HIDDEN = 32
FEW = 1_500
"""Fewer demonstrations are all held out once, in folds; of more, one fold is enough."""
FOLDS = 5
ORDERS = 8
"""Walks through the demonstrations, each in orders that their dependencies allow: to make one takes as long as to learn
from it."""
NEWTON_STEPS = 8


class Recipe(Struct, frozen=True):
    """Everything that can be chosen; chosen on splits of the train files."""

    networks: int = 5
    plan: Plan = Plan(hidden=256, batch=64, decay=0.1)
    """Without its epochs: there are as many as `steps` take."""
    steps: int = 2_600
    """Batches that a network is fitted on, within `epochs`; half as many where it only judges a fold."""
    epochs: tuple[int, int] = (8, 200)
    """Fewest and most."""
    words: int = 128
    """Directions of the words."""
    scales: tuple[float, float] = (8.0, 8.0)
    ridge: float = 3.0
    """Pull of the listwise weights to `PRIOR`, in steps."""


PRIOR = dict.fromkeys(PARTS, 0.0) | {
    "network": 0.7, "neighbours": 0.1, "meaning": 0.3, "name": 0.5, "unseen": 0.0, "unseen_meaning": 0.6,
    "unseen_name": 0.8, "unseen_called": -2.0, "unseen_aim": 0.5, "unseen_sure": -1.0, "arrived": 1.0
}  # fmt: skip
"""What the weights are pulled to, and what they stay at where nothing tells."""
OF_UNSEEN = tuple(name for name in PARTS if name.startswith("unseen") or name == "arrived")
ONE_IN = 10
"""Tools are new while the weights of such are learned: of those in the order of their calls every tenth, so that much
and little used ones have their share."""


class Lesson(NamedTuple):
    """What is learned from: demonstrations and their tasks as vectors."""

    tools: tuple[ToolId, ...]
    """By class."""
    demonstrations: Sequence[Demonstration]
    vectors: Floats
    """(demonstrations, dimension), zeros where nobody said the task."""

    def part(self, places: Sequence[int]) -> Lesson:
        """Some of it, with the tools that occur there alone."""
        chosen = [self.demonstrations[place] for place in places]
        used = dict.fromkeys(call for each in chosen for call in (*each.earlier, *each.calls))
        number = {call: at for at, call in enumerate(used)}
        renumbered = [
            replace(
                each,
                calls=tuple(number[call] for call in each.calls),
                earlier=tuple(number[call] for call in each.earlier),
            )
            for each in chosen
        ]
        return Lesson(tuple(self.tools[call] for call in used), renumbered, self.vectors[list(places)])


class Shelf(NamedTuple):
    """The catalog that a model is to rank."""

    tools: Sequence[ToolId]
    vectors: Floats | None
    """(tools, dimension) of their texts, by the first encoder."""

    def without(self, gone: Container[ToolId]) -> Shelf:
        """The catalog before these were installed."""
        kept = [place for place, tool in enumerate(self.tools) if tool not in gone]
        return Shelf([self.tools[place] for place in kept], None if self.vectors is None else self.vectors[kept])

    def texts(self, tools: Sequence[ToolId]) -> dict[int, Floats]:
        """Vectors of those of these tools that it has, by their place."""
        if self.vectors is None:
            return {}
        place_of = {tool: place for place, tool in enumerate(self.tools)}
        return {number: self.vectors[place_of[tool]] for number, tool in enumerate(tools) if tool in place_of}


class Trainer:
    """One recipe (`training.Method`)."""

    def __init__(self, recipe: Recipe | None = None) -> None:
        self.recipe = recipe or Recipe()

    @property
    def name(self) -> str:
        return NAME

    @property
    def minimum(self) -> int:
        return MINIMUM

    def train(self, material: Material, progress: Progress) -> bytes:
        """Raises `TooLittle`."""
        lesson = lesson_of(material)
        if len(lesson.demonstrations) < self.minimum:
            raise TooLittle(f"{NAME}: {len(lesson.demonstrations)} episodes with calls; it takes {self.minimum}")
        return self.model(lesson, shelf_of(material), material.seed, progress).dumps()

    def model(self, lesson: Lesson, shelf: Shelf, seed: int, progress: Progress) -> Model:
        """What `train` packs."""
        folds = list(_folds(len(lesson.demonstrations), seed))
        rounds = 2 * len(folds) + 2 * self.recipe.networks
        given: dict[tuple[bool, bool], list[Example]] = {
            (said, new): [] for said in (True, False) for new in (False, True)
        }
        most = max(MOST_SCORES // (len(shelf.tools) + 1) // len(folds), 50)
        for number, (others, fold) in enumerate(folds):
            held = Lesson(lesson.tools, [lesson.demonstrations[place] for place in fold], lesson.vectors[fold])
            for new in (False, True):
                progress("weighing the parts", (2 * number + new) / rounds)
                judge = self._judge(lesson, others, shelf, seed + number, new=new)
                if judge is None:
                    continue
                for said in (True, False):
                    given[said, new] += examples(judge, held, most, seed, said=said)
        first = 2 * len(folds) / rounds
        model = self.fitted(
            lesson.part(range(len(lesson.demonstrations))),
            self.recipe.networks,
            self.recipe.steps,
            seed,
            shelf,
            lambda share: progress("training", first + share * (1 - first)),
        )
        asked, unasked = (weigh(given[said, False], given[said, True], self.recipe.ridge) for said in (True, False))
        return replace(model, asked=asked, unasked=unasked)

    def _judge(self, lesson: Lesson, others: Sequence[int], shelf: Shelf, seed: int, *, new: bool) -> Dtdr | None:
        """A smaller model of these demonstrations over the shelf; with `new`, some tools came after it was trained.
        None where too little is left."""
        known = shelf
        if new:
            calls = Counter(call for place in others for call in lesson.demonstrations[place].calls)
            later = some([call for call, _ in sorted(calls.items(), key=lambda each: (-each[1], each[0]))], seed)
            others = [place for place in others if later.isdisjoint(lesson.demonstrations[place].calls)]
            if len(others) < FEWEST:
                return None
            gone = {lesson.tools[call] for call in later}
            known = shelf.without(gone)
        steps = self.recipe.steps // 2
        judge = Dtdr(self.fitted(lesson.part(others), 1, steps, seed, known, lambda share: None))
        judge.align(shelf.tools, shelf.vectors)
        return judge

    def fitted(
        self, lesson: Lesson, networks: int, steps: int, seed: int, shelf: Shelf, progress: Callable[[float], None]
    ) -> Model:
        """A model whose parts still have the weights of `PRIOR`."""
        recipe = self.recipe
        classes = len(lesson.tools) + 1
        hidden = max(min(recipe.plan.hidden, MOST_WEIGHTS // (classes * networks)), FEWEST_HIDDEN)
        samples_each = sum(len(each.calls) + each.ended for each in lesson.demonstrations)
        epochs = int(np.clip(steps * recipe.plan.batch // max(samples_each, 1), *recipe.epochs))
        plan = replace(recipe.plan, hidden=hidden, epochs=epochs)
        tasks = [each.task for each in lesson.demonstrations]
        latent = fit_latent([task for task in tasks if task], recipe.words, seed)
        words = latent.vectors(tasks)
        said = np.concatenate([lesson.vectors, words], 1)
        scales = np.repeat(np.asarray(recipe.scales, np.float32), (lesson.vectors.shape[1], latent.dimension))
        walked = walker(lesson, said, seed)
        fitted = [
            fit(
                said * scales,
                rows_of(len(lesson.tools)),
                classes,
                walked,
                plan,
                np.random.default_rng((seed, number)),
                lambda share, number=number: progress((number + share) / networks),  # type: ignore[misc]
            )
            for number in range(networks)
        ]
        recent = slice(-MOST_REMEMBERED, None)
        lens = directions(said)
        called = set(lesson.tools)
        return Model(
            tools=lesson.tools,
            idle=tuple(tool for tool in shelf.tools if tool not in called),
            network=side_by_side(fitted),
            latent=latent,
            dimension=lesson.vectors.shape[1],
            aim=fit_aim(lesson.demonstrations, lesson.vectors, shelf.texts(lesson.tools), len(lesson.tools)),
            lens=lens,
            tasks=said[recent] @ lens,
            calls=remembered(lesson.demonstrations[recent]),
            asked=tuple(PRIOR.values()),
            unasked=tuple(PRIOR.values()),
            scales=recipe.scales,
        )


METHOD = Trainer()


def lesson_of(material: Material) -> Lesson:
    """Every episode with calls."""
    episodes = [episode for episode in material.episodes if episode.calls]
    tools = tuple(dict.fromkeys(call for episode in episodes for call in episode.calls))
    found = demonstrations(episodes, {tool: number for number, tool in enumerate(tools)})
    return Lesson(tools, found, task_vectors([each.task for each in found], material.readings or material.queries))


def task_vectors(tasks: Sequence[str], embed: Embed | None) -> Floats:
    """(tasks, dimension); zeros where a task is empty, no dimension where nobody embeds or nobody said anything."""
    told = list(dict.fromkeys(task for task in tasks if task))
    if embed is None or not told:
        return np.zeros((len(tasks), 0), np.float32)
    vectors = unit(embed(told))
    rows = {task: row for row, task in enumerate(told)}
    nothing = np.zeros((1, vectors.shape[1]), np.float32)
    return np.concatenate([vectors, nothing])[[rows.get(task, -1) for task in tasks]]


def shelf_of(material: Material) -> Shelf:
    """The catalog with the vectors of its texts."""
    tools = [tool.id for tool in material.tools]
    if material.documents is None:
        return Shelf(tools, None)
    texts = [embedded_text(document(tool, material.server_texts.get(tool.upstream, ""))) for tool in material.tools]
    return Shelf(tools, material.documents(texts))


def walker(lesson: Lesson, said: Floats, seed: int) -> Callable[[Draw], Samples]:
    """`samples` for each epoch, one of `ORDERS` walks; of one where every demonstration has but one order, as those of
    a log have."""
    most = ORDERS if any(each.has_orders for each in lesson.demonstrations) else 1
    kept: dict[int, Samples] = {}

    def walked(draw: Draw) -> Samples:
        which = int(draw.integers(most))
        if which not in kept:
            kept[which] = samples(lesson, said, np.random.default_rng((seed, which, most)))
        return kept[which]

    return walked


def samples(lesson: Lesson, said: Floats, draw: Draw) -> Samples:
    """One walk through every demonstration, each in an order that its dependencies allow."""
    choose = random.Random(int(draw.integers(1 << 62)))  # noqa: S311 (an order, not a secret)
    classes = len(lesson.tools)
    tasks: list[int] = []
    rows: list[list[int]] = []
    targets: list[tuple[int, ...]] = []
    for number, (each, vector) in enumerate(zip(lesson.demonstrations, said, strict=True)):
        for step in each.steps(classes, each.shuffled(choose)):
            tasks.append(number if vector.any() else -1)
            rows.append(history_rows(step.history, classes))
            targets.append(step.acceptable)
    return Samples(np.asarray(tasks), padded(rows, rows_of(classes)), spread(targets, classes + 1))


def spread(targets: Sequence[tuple[int, ...]], classes: int) -> Floats:
    """(samples, classes): every acceptable class alike."""
    found = np.zeros((len(targets), classes), np.float32)
    for row, target in zip(found, targets, strict=True):
        row[list(target)] = 1 / len(target)
    return found


def side_by_side(fitted: Sequence[Weights]) -> Network:
    """One network whose logits are the mean of theirs."""
    share = np.float32(1 / len(fitted))
    return Network(
        query=np.concatenate([each.query for each in fitted], 1),
        history=np.concatenate([each.history for each in fitted], 1),
        bias=np.concatenate([each.bias for each in fitted]),
        unasked=np.concatenate([each.unasked for each in fitted]),
        out=np.concatenate([each.out for each in fitted]) * share,
        out_bias=np.stack([each.out_bias for each in fitted]).mean(0),
    )


def directions(said: Floats) -> Floats:
    """(dimension, at most `LENS`): the main directions of what was said, about zero and not their mean, so that
    nothing said stays nothing."""
    if not said.shape[1]:
        return np.zeros((0, 0), np.float32)
    _, vectors = np.linalg.eigh(said.T @ said)
    found: Floats = np.ascontiguousarray(vectors[:, ::-1][:, :LENS], np.float32)
    return found


def remembered(past: Sequence[Demonstration]) -> Calls:
    """Their calls, each episode cut after `MOST_HISTORY`."""
    cut = [each.calls[:MOST_HISTORY] for each in past]
    return Calls(
        classes=padded(cut, -1).astype(np.int32),
        lengths=np.asarray([len(calls) for calls in cut], np.int32),
        ended=np.asarray([each.ended and len(each.calls) <= MOST_HISTORY for each in past], np.bool_),
    )


class Example(NamedTuple):
    """One prediction as the listwise layer sees it."""

    parts: Floats
    """(parts, slots and END)."""
    target: Floats
    """(slots and END,), adding up to 1."""


def examples(judge: Dtdr, held: Lesson, most: int, seed: int, *, said: bool) -> list[Example]:
    """At most so many steps of demonstrations that the judge has not seen, with or without their task."""
    slots = judge.slots
    classes = len(held.tools)
    steps = [(number, step) for number, each in enumerate(held.demonstrations) for step in each.steps(classes)]
    random.Random(seed).shuffle(steps)  # noqa: S311 (a sample, not a secret)
    found: list[Example] = []
    for number, step in sorted(steps[:most]):
        task = held.demonstrations[number].task if said else ""
        vector = held.vectors[number] if said and held.vectors.shape[1] else None
        end = [len(judge.live)] * (classes in step.acceptable)
        wanted = [
            slots[tool] for call in step.acceptable if call < classes and (tool := held.tools[call]) in slots
        ] + end
        if wanted:
            target = np.zeros(len(judge.live) + 1, np.float32)
            target[wanted] = 1 / len(wanted)
            history = [held.tools[call] for call in step.history]
            found.append(Example(judge.parts(history, judge.of_task(vector, (task,) if task else ())), target))
    return found


def weigh(known: Sequence[Example], hidden: Sequence[Example], ridge: float) -> tuple[float, ...]:
    """The weights of the listwise layer: first those of tools that training saw, then, where some of them were hidden,
    those of tools that it did not, the others staying as they are."""
    start = np.asarray([PRIOR[name] for name in PARTS])
    of_unseen = np.asarray([name in OF_UNSEEN for name in PARTS])
    weights = fit_weights(hidden, fit_weights(known, start, ~of_unseen, ridge), of_unseen, ridge)
    return tuple(round(float(each), 5) for each in weights)


def fit_weights(
    given: Sequence[Example], start: NDArray[np.float64], free: NDArray[np.bool_], ridge: float
) -> NDArray[np.float64]:
    """Softmax regression over the `free` weights, pulled to where they start by `ridge`."""

    def objective(some: Doubles) -> tuple[float, Doubles, Doubles]:
        """Cross-entropy plus the pull, its slope and its curvature."""
        weights, away = start.copy(), some - start[free]
        weights[free] = some
        value = ridge * float(away @ away) / 2
        slope = ridge * away
        curve = ridge * np.eye(len(some))
        for parts, target in given:
            logits = weights.astype(np.float32) @ parts
            top = float(logits.max())
            raised = np.exp(logits - top)
            total = float(raised.sum())
            chance = raised / np.float32(total)
            own = parts[free]
            mean = own @ chance
            value += top + float(np.log(total)) - float(logits @ target)
            slope = slope + mean - own @ target
            curve += (own * chance) @ own.T - np.outer(mean, mean)
        return value, slope, curve

    weights = start.copy()
    weights[free] = minimize(objective, start[free], NEWTON_STEPS) if given else start[free]
    return weights


def some(calls: Sequence[int], seed: int) -> set[int]:
    """One in `ONE_IN`, spread over the whole list; one at least."""
    first = random.Random(seed).randrange(min(ONE_IN, len(calls)))  # noqa: S311 (a sample, not a secret)
    return set(calls[first::ONE_IN])


def _folds(size: int, seed: int) -> Iterator[tuple[list[int], list[int]]]:
    """(others, fold): the places to learn from and those to judge by."""
    order = np.random.default_rng(seed).permutation(size)
    parts = np.array_split(order, FOLDS)
    for fold in parts if size < FEW else parts[:1]:
        held = set(fold.tolist())
        yield [place for place in range(size) if place not in held], sorted(held)
