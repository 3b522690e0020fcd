"""How much MassTool is to be believed: tasks are kept back, and the others say how right head and vote are there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from foretool.learning.rankers.masstool import Ints, Trust, votes
from foretool.learning.training.masstool_head import (
    Classes,
    Head,
    TrainingTasks,
    choose_bank,
    class_shares,
    lists_of,
    take_rows,
)
from foretool.learning.training.optimizers import logistic_regression
from foretool.retrieval.model_format import Floats

MOST_KEPT_BACK: Final = 2_000
_STRANGE: Final = 0.15
"""Share of the tasks that are kept back because of their tools."""
_NEAR: Final = 0.02
"""Share of the tasks of known kinds that distance may take something from."""
_APART: Final = 0.9
"""Least share of the pairs of tasks without a tool in common that count as strangers to each other."""
_MIXES: Final = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Shares of the head that are tried; the vote has the rest."""
_RIDGE: Final = 0.1


class HeldBack(Struct, frozen=True):
    """Tasks that were kept out of a training, and the scores of their tools by models that had not seen them."""

    golden: Floats
    """(rows, tools): 1 where golden."""
    head: Floats
    """(rows, tools): the shares by the heads."""
    vote: Floats
    """(rows, tools): the shares by the vote of similar tasks."""
    signs: Floats
    """(rows, 4): as in `Familiarity`."""
    strange: NDArray[np.bool_]
    """(rows,): whether a task took a tool that none of the others took."""
    apart: tuple[float, ...]
    """The likeness of vectors and of words below which most pairs of tasks without a tool in common are."""


def likeness(tasks: TrainingTasks, rows: Ints, others: Ints) -> tuple[Floats, Floats]:
    """Return how alike tasks (`rows`) and other tasks are: the cosines of their sentence vectors (0 without an encoder)
    and those of their words; (rows, others) each."""
    used, words = take_rows(tasks.words, others)
    place = np.full(int(tasks.words.columns.max(initial=0)) + 1, -1)
    place[used] = np.arange(len(used))
    own, mine = take_rows(tasks.words, rows)
    shared = place[own] >= 0
    meaning: Floats = tasks.vectors[rows] @ tasks.vectors[others].T
    return meaning, mine[:, shared] @ words[:, place[own[shared]]].T


def judge_held_back(tasks: TrainingTasks, known: Classes, heads: Sequence[Head], rows: Ints, others: Ints) -> HeldBack:
    """Score tasks by `heads` and by a search among `others`, neither of which has seen them."""
    kept = choose_bank(tasks.golds, others)
    golds = tasks.golden(others).any(axis=0)
    golden = tasks.golden(rows)
    own = tasks.golden(kept)
    vote, signs, pairs = [], [], []
    spread = lists_of([tasks.golds[row] for row in kept.tolist()])
    for start in range(0, len(rows), 128):
        meaning, words = likeness(tasks, rows[start : start + 128], kept)
        both = (meaning + words) / 2 if meaning.any() else words
        vote += [spread.spread(votes(each), tasks.tools) for each in both]
        strangers = golden[start : start + 128] @ own.T == 0
        pairs.append([float(np.quantile(each[strangers], _APART)) for each in (meaning, words) if strangers.any()])
        signs.append(np.stack([meaning.max(1, initial=0.0), words.max(1, initial=0.0)], axis=1))
    said = class_shares(heads, tasks, rows)
    lists = lists_of(known.sets)
    shares = np.stack([lists.spread(each, tasks.tools) for each in said])
    agreement = np.minimum(shares, np.stack(vote)).sum(1)
    return HeldBack(
        golden=golden,
        head=shares,
        vote=np.stack(vote),
        signs=np.column_stack([np.concatenate(signs), said.max(1), agreement]).astype(np.float32),
        strange=np.asarray(golden[:, ~golds].sum(axis=1) > 0),
        apart=tuple(np.mean([each for each in pairs if each] or [[0.0, 0.0]], axis=0).tolist()),
    )


def split_strangers(tasks: TrainingTasks, rows: Ints, draw: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the tasks to keep back, which are `rows` and all that took some drawn tools; and the other tasks."""
    golden = np.zeros((len(tasks), tasks.tools), np.bool_)
    for row, golds in enumerate(tasks.golds):
        golden[row, list(golds)] = True
    hidden = np.zeros(len(tasks), np.bool_)
    for tool in draw.permutation(tasks.tools):
        if hidden.sum() >= min(_STRANGE * len(tasks), MOST_KEPT_BACK):
            break
        hidden |= golden[:, tool]
    hidden[rows] = True
    return np.flatnonzero(hidden), np.flatnonzero(~hidden)


def recall(shares: Floats, golden: Floats, k: int = 5) -> Floats:
    """Return which share of the golden tools is among the first k, for each task; (rows,)."""
    best = np.argsort(-shares, axis=1, kind="stable")[:, :k]
    found: Floats = np.take_along_axis(golden, best, axis=1).sum(1) / golden.sum(1)
    return found


def choose_mix(held: Sequence[HeldBack]) -> float:
    """Return the share of the head that finds most of what was kept back; the larger of equals."""

    def found(mix: float) -> float:
        known = [recall(mix_shares(each, mix), each.golden)[~each.strange] for each in held]
        return round(float(np.concatenate(known).mean()), 3)

    return max(_MIXES, key=lambda mix: (found(mix), mix))


def mix_shares(held: HeldBack, mix: float) -> Floats:
    """Return the scores of tools by head and vote together; (rows, tools). `mix`: the share of the head."""
    return np.float32(mix) * held.head + np.float32(1 - mix) * held.vote


def fit_trust(held: Sequence[HeldBack], mix: float, *, reads_vectors: bool) -> Trust:
    """Fit how right the mix is by logistic regression on the signs; strange tasks and others count half each."""
    right = np.concatenate([recall(mix_shares(each, mix), each.golden, 3) for each in held])
    signs = np.concatenate([each.signs for each in held]).astype(np.float64)
    strange = np.concatenate([each.strange for each in held])
    share = np.where(strange, 0.5 / max(strange.sum(), 1), 0.5 / max((~strange).sum(), 1)) * len(strange)
    inputs = np.hstack([signs, np.ones((len(signs), 1))])
    weights = logistic_regression(inputs, right, share, _RIDGE)
    while (weights[:-1] < 0).any():
        inputs[:, :-1] *= weights[:-1] > 0
        weights = np.where(inputs.any(axis=0), logistic_regression(inputs, right, share, _RIDGE), 0.0)
    meaning, words, sureness, agreement, bias = weights.tolist()
    likeness = signs[~strange, 0 if reads_vectors else 1]
    return Trust(
        bias=bias,
        meaning=meaning,
        words=words,
        sureness=sureness,
        agreement=agreement,
        near=float(np.quantile(likeness, _NEAR)),
        far=float(np.mean([each.apart[0 if reads_vectors else 1] for each in held])),
        reads_vectors=reads_vectors,
    )
