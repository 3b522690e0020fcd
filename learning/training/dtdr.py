"""Trains what comes next (`rankers.dtdr`): small networks on all demonstrations, and weights for the listwise layer.

The weights are learned on demonstrations that the networks beside them have not seen: each fold is scored by a model of
the others. The weights of tools that nobody called are learned where a tenth of the tools are missing from training,
with every task that took one of them, as if they were installed a day later.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from foretool.learning.rankers.dtdr import Dtdr
from foretool.learning.rankers.dtdr_model import METHOD as NAME
from foretool.learning.rankers.dtdr_model import (
    MOST_HISTORY,
    PARTS,
    Model,
    Network,
    PastCalls,
    history_rows,
    read_model,
    rows_of,
)
from foretool.learning.training import Material, Method, Progress, TooLittle
from foretool.learning.training.demonstrations import (
    Demonstration,
    ToolVectors,
    TrainingSet,
    tool_vectors_of,
    training_set_of,
)
from foretool.learning.training.linear_maps import fit_lsa, fit_next_text
from foretool.learning.training.optimizers import Doubles, log_softmax, minimize
from foretool.learning.training.perceptron import NONE, Draw, NetworkPlan, Samples, fit_network, pad_lists
from foretool.retrieval.model_format import Floats, ModelError

_MINIMUM = 20
_FEWEST = 10
"""Fewest demonstrations that a judge is fitted on."""
_MOST_REMEMBERED = 4_000
"""Past tasks that are kept for lookup, the latest ones."""
_LENS = 128
"""Numbers by which past tasks are compared; fewer make the lookup faster."""
_MOST_SCORES = 150_000
"""Steps times tools that the listwise layer is fitted on, with and without task, with and without new tools each."""
_MOST_WEIGHTS = 1_000_000
"""Weights of the layer over all classes, for all networks, so that a prediction takes about a millisecond."""
_FEWEST_HIDDEN = 32
_FEW = 1_500
"""With fewer demonstrations each is held out once, in folds; with more, one fold is enough."""
_FOLDS = 5
_MANY, _ENOUGH_FOLDS = 200, 2
"""With `_MANY` demonstrations, so many of the folds suffice."""
_ORDERS = 8
"""Different walks through the demonstrations, each in orders that their dependencies allow; drawing a walk takes as
long as learning from it."""
_NEWTON_STEPS = 8
_SUMMED_AT_ONCE = 20_000
"""Slots of the steps that are summed at once."""
PRIOR = dict.fromkeys(PARTS, 0.0) | {
    "network": 0.7, "neighbours": 0.1, "meaning": 0.3, "name": 0.5, "unseen": 0.0, "unseen_meaning": 0.6,
    "unseen_name": 0.8, "unseen_called": -2.0, "unseen_aim": 0.5, "unseen_sure": -1.0, "arrived": 1.0,
}  # fmt: skip
"""The weights that the fitted ones are pulled to, and keep where there is nothing to fit them on."""
_OF_UNSEEN = tuple(name for name in PARTS if name.startswith(("unseen", "arrived")))
_ONE_IN = 10
"""Every tenth tool, in the order of their calls, is new while the weights of new tools are learned, so that tools that
are used much and little both have their share."""


class Recipe(Struct, frozen=True):
    """The settings of the training, chosen on parts of the training files."""

    networks: int = 3
    trial_networks: int = 2
    """In a model that is only replayed."""
    plan: NetworkPlan = NetworkPlan(hidden=256, batch=64, decay=0.1)
    """Its epochs are replaced by as many as `steps` take."""
    steps: int = 1_600
    """Batches that a network is fitted on, within `epochs`; half as many if it only judges a fold."""
    steps_with_vectors: int = 600
    """The same where tasks have vectors, which need not be learned first: more of them ranked no better."""
    epochs: tuple[int, int] = (8, 200)
    """Fewest and most."""
    words: int = 128
    """Dimension of the words' vectors."""
    scales: tuple[float, float] = (8.0, 8.0)
    """Factors of the tasks' vectors and of their words."""
    ridge: float = 3.0
    """Pull of the listwise weights to `PRIOR`, in steps."""


class DtdrTrainer:
    def __init__(self, recipe: Recipe | None = None) -> None:
        self.recipe = recipe or Recipe()

    def train(self, material: Material, progress: Progress) -> bytes:
        """Return the model as bytes. Raises `TooLittle`."""
        material = material.of_most_tasks()
        given = training_set_of(material)
        if len(given.demonstrations) < _MINIMUM:
            raise TooLittle(f"{NAME}: tasks with calls: {len(given.demonstrations)} of the {_MINIMUM} that it takes")
        trainer = self
        if material.is_trial:
            trainer = DtdrTrainer(replace(self.recipe, networks=self.recipe.trial_networks))
        earlier = None
        with suppress(ModelError):  # another version of foretool has written it
            earlier = read_model(material.earlier) if material.earlier else None
        if earlier is not None and earlier.dimension != given.vectors.shape[1]:
            earlier = None
        return trainer.model(given, tool_vectors_of(material), material.seed, progress, earlier).dumps()

    def model(
        self, given: TrainingSet, catalog: ToolVectors, seed: int, progress: Progress, earlier: Model | None = None
    ) -> Model:
        """Return the model that `train` packs; it weighs its parts as `earlier` does, if that is given."""
        if earlier is not None:
            whole = given.part(range(len(given.demonstrations)))
            model = self.fit(whole, catalog, seed, lambda share: progress("training", share))
            return replace(model, asked=earlier.asked, unasked=earlier.unasked)
        folds = list(_folds(len(given.demonstrations), seed))
        rounds = 2 * len(folds) + 2 * self.recipe.networks
        steps: dict[tuple[bool, bool], list[ListwiseStep]] = {
            (said, new): [] for said in (True, False) for new in (False, True)
        }
        most = max(_MOST_SCORES // (len(catalog.tools) + 1) // len(folds), 50)
        for number, (others, fold) in enumerate(folds):
            held = TrainingSet(given.tools, [given.demonstrations[place] for place in fold], given.vectors[fold])
            for new in (False, True):
                progress("weighing the parts", (2 * number + new) / rounds)
                judge = self._judge(given, others, catalog, seed + number, new=new)
                if judge is None:
                    continue
                for said in (True, False):
                    steps[said, new] += listwise_steps(judge, held, most, seed, said=said)
        first = 2 * len(folds) / rounds
        whole = given.part(range(len(given.demonstrations)))
        model = self.fit(whole, catalog, seed, lambda share: progress("training", first + share * (1 - first)))
        asked, unasked = (
            fit_listwise(steps[said, False], steps[said, True], self.recipe.ridge) for said in (True, False)
        )
        return replace(model, asked=asked, unasked=unasked)

    def _judge(
        self, given: TrainingSet, others: Sequence[int], catalog: ToolVectors, seed: int, *, new: bool
    ) -> Dtdr | None:
        """Return a smaller model of these demonstrations over the catalog; with `new`, some tools came after it was
        trained. None if too few demonstrations are left."""
        known = catalog
        if new:
            calls = Counter(call for place in others for call in given.demonstrations[place].calls)
            later = choose_new([call for call, _ in sorted(calls.items(), key=lambda each: (-each[1], each[0]))], seed)
            others = [place for place in others if later.isdisjoint(given.demonstrations[place].calls)]
            if len(others) < _FEWEST:
                return None
            gone = {given.tools[call] for call in later}
            known = catalog.without(gone)
        judge = Dtdr(self.fit(given.part(others), known, seed, lambda share: None, judges=True))
        judge.align(catalog.tools, catalog.vectors)
        return judge

    def fit(
        self,
        given: TrainingSet,
        catalog: ToolVectors,
        seed: int,
        progress: Callable[[float], None],
        *,
        judges: bool = False,
    ) -> Model:
        """Fit a model whose parts still have the weights of `PRIOR`; a smaller one if it only `judges` a fold."""
        recipe = self.recipe
        steps = recipe.steps_with_vectors if given.vectors.shape[1] else recipe.steps
        networks, steps = (1, steps // 2) if judges else (recipe.networks, steps)
        classes = len(given.tools) + 1
        hidden = max(min(recipe.plan.hidden, _MOST_WEIGHTS // (classes * networks)), _FEWEST_HIDDEN)
        samples_each = sum(len(each.calls) + each.ended for each in given.demonstrations)
        epochs = int(np.clip(steps * recipe.plan.batch // max(samples_each, 1), *recipe.epochs))
        plan = replace(recipe.plan, hidden=hidden, epochs=epochs)
        tasks = [each.task for each in given.demonstrations]
        lsa = fit_lsa([task for task in tasks if task], recipe.words, seed)
        words = lsa.vectors(tasks)
        said = np.concatenate([given.vectors, words], 1)
        scales = np.repeat(np.asarray(recipe.scales, np.float32), (given.vectors.shape[1], lsa.dimension))
        walks = draw_walks(given, said, seed)
        fitted = [
            fit_network(
                said * scales,
                rows_of(len(given.tools)),
                classes,
                walks,
                plan,
                np.random.default_rng((seed, number)),
                lambda share, number=number: progress((number + share) / networks),  # type: ignore[misc]
            )
            for number in range(networks)
        ]
        recent = slice(-_MOST_REMEMBERED, None)
        lens = main_directions(said)
        called = set(given.tools)
        return Model(
            tools=given.tools,
            idle=tuple(tool for tool in catalog.tools if tool not in called),
            network=merge_networks(fitted),
            lsa=lsa,
            dimension=given.vectors.shape[1],
            next_text=fit_next_text(given.demonstrations, given.vectors, catalog.texts(given.tools), len(given.tools)),
            lens=lens,
            tasks=said[recent] @ lens,
            calls=pack_calls(given.demonstrations[recent]),
            asked=tuple(PRIOR.values()),
            unasked=tuple(PRIOR.values()),
            scales=recipe.scales,
        )


METHOD = Method(_MINIMUM, DtdrTrainer().train)


def draw_walks(given: TrainingSet, said: Floats, seed: int) -> Callable[[Draw], Samples]:
    """Return a function that draws the `samples` of an epoch, one of `_ORDERS` walks; there is one walk if every
    demonstration has a single order, as those of a log have."""
    most = _ORDERS if any(each.has_orders for each in given.demonstrations) else 1
    kept: dict[int, Samples] = {}

    def draw_walk(draw: Draw) -> Samples:
        which = int(draw.integers(most))
        if which not in kept:
            kept[which] = samples(given, said, np.random.default_rng((seed, which, most)))
        return kept[which]

    return draw_walk


def samples(given: TrainingSet, said: Floats, draw: Draw) -> Samples:
    """Return one sample for each step of every demonstration, walked in an order that its dependencies allow."""
    choose = random.Random(int(draw.integers(1 << 62)))  # noqa: S311 (an order, not a secret)
    classes = len(given.tools)
    tasks: list[int] = []
    rows: list[list[int]] = []
    targets: list[tuple[int, ...]] = []
    for number, (each, vector) in enumerate(zip(given.demonstrations, said, strict=True)):
        for step in each.steps(classes, each.shuffled(choose)):
            tasks.append(number if vector.any() else -1)
            rows.append(history_rows(step.history, classes))
            targets.append(step.acceptable)
    return Samples(np.asarray(tasks), pad_lists(rows, rows_of(classes)), pad_lists(targets, NONE))


def merge_networks(fitted: Sequence[Network]) -> Network:
    """Put networks side by side into one, whose logits are the mean of theirs."""
    share = np.float32(1 / len(fitted))
    return Network(
        query=np.concatenate([each.query for each in fitted], 1),
        history=np.concatenate([each.history for each in fitted], 1),
        bias=np.concatenate([each.bias for each in fitted]),
        unasked=np.concatenate([each.unasked for each in fitted]),
        out=np.concatenate([each.out for each in fitted]) * share,
        out_bias=np.stack([each.out_bias for each in fitted]).mean(0),
    )


def main_directions(said: Floats) -> Floats:
    """Return (dimension, at most `_LENS`): the main directions of the tasks' vectors, about zero, not their mean,
    so that the vector of an unknown task stays zero."""
    if not said.shape[1]:
        return np.zeros((0, 0), np.float32)
    _, vectors = np.linalg.eigh(said.T @ said)
    found: Floats = np.ascontiguousarray(vectors[:, ::-1][:, :_LENS], np.float32)
    return found


def pack_calls(past: Sequence[Demonstration]) -> PastCalls:
    """Pack the calls of past demonstrations, each cut after `MOST_HISTORY`."""
    cut = [each.calls[:MOST_HISTORY] for each in past]
    return PastCalls(
        classes=pad_lists(cut, -1).astype(np.int32),
        lengths=np.asarray([len(calls) for calls in cut], np.int32),
        ended=np.asarray([each.ended and len(each.calls) <= MOST_HISTORY for each in past], np.bool_),
    )


def _folds(size: int, seed: int) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the places to learn from and the places to judge by."""
    order = np.random.default_rng(seed).permutation(size)
    parts = np.array_split(order, _FOLDS)
    for fold in parts[: _FOLDS if size < _MANY else _ENOUGH_FOLDS if size < _FEW else 1]:
        held = set(fold.tolist())
        yield [place for place in range(size) if place not in held], sorted(held)


# The listwise layer


class ListwiseStep(NamedTuple):
    """One prediction of the next call, as the listwise layer is fitted on it."""

    parts: Floats
    """(parts, slots and END)."""
    target: Floats
    """(slots and END,), adding up to 1."""


def listwise_steps(judge: Dtdr, held: TrainingSet, most: int, seed: int, *, said: bool) -> list[ListwiseStep]:
    """Return at most `most` steps of demonstrations that the judge has not seen, with or without their task."""
    slots = judge.slots
    classes = len(held.tools)
    steps = [(number, step) for number, each in enumerate(held.demonstrations) for step in each.steps(classes)]
    random.Random(seed).shuffle(steps)  # noqa: S311 (a sample, not a secret)
    found: list[ListwiseStep] = []
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
            found.append(ListwiseStep(judge.parts(history, judge.of_task(vector, (task,) if task else ())), target))
    return found


def fit_listwise(known: Sequence[ListwiseStep], hidden: Sequence[ListwiseStep], ridge: float) -> tuple[float, ...]:
    """Fit the weights of tools that training saw on `known`, then those of unseen tools on `hidden`, where some tools
    were hidden; the others stay as they are."""
    start = np.asarray([PRIOR[name] for name in PARTS])
    of_unseen = np.asarray([name in _OF_UNSEEN for name in PARTS])
    weights = fit_softmax(hidden, fit_softmax(known, start, ~of_unseen, ridge), of_unseen, ridge)
    return tuple(round(float(each), 5) for each in weights)


def fit_softmax(
    given: Sequence[ListwiseStep], start: NDArray[np.float64], free: NDArray[np.bool_], ridge: float
) -> NDArray[np.float64]:
    """Softmax regression over the `free` weights, pulled to where they start by `ridge`."""

    batches = list(_batches(given))

    def objective(some: Doubles) -> tuple[float, Doubles, Doubles]:
        """Cross-entropy plus the pull, its slope and its curvature."""
        weights, away = start.copy(), some - start[free]
        weights[free] = some
        value = ridge * float(away @ away) / 2
        slope = ridge * away
        curve = ridge * np.eye(len(some))
        for parts, target in batches:
            shares = log_softmax(weights.astype(np.float32) @ parts)
            chance, own = np.exp(shares), parts[:, free]
            mean = (own @ chance[..., None])[..., 0]
            value -= float(np.einsum("sn,sn->", shares, target, dtype=np.float64))
            slope = slope + mean.sum(0) - (own @ target[..., None])[..., 0].sum(0)
            weighed = (own * chance[:, None]).transpose(1, 0, 2).reshape(len(some), -1)
            curve += weighed @ own.transpose(1, 0, 2).reshape(len(some), -1).T - mean.T @ mean
        return value, slope, curve

    weights = start.copy()
    weights[free] = minimize(objective, start[free], _NEWTON_STEPS) if given else start[free]
    return weights


def _batches(given: Sequence[ListwiseStep]) -> Iterator[tuple[Floats, Floats]]:
    """Yield (steps, parts, slots and END) and (steps, slots and END): steps over as many slots are summed together."""
    by_size: dict[int, list[ListwiseStep]] = {}
    for each in given:
        by_size.setdefault(len(each.target), []).append(each)
    for size, same in by_size.items():
        at_once = max(_SUMMED_AT_ONCE // size, 1)
        for first in range(0, len(same), at_once):
            part = same[first : first + at_once]
            yield np.stack([each.parts for each in part]), np.stack([each.target for each in part])


def choose_new(calls: Sequence[int], seed: int) -> set[int]:
    """Choose one in `_ONE_IN` of the calls, spread over the whole list, and at least one."""
    first = random.Random(seed).randrange(min(_ONE_IN, len(calls)))  # noqa: S311 (a sample, not a secret)
    return set(calls[first::_ONE_IN])
