"""DTDR (dynamic tool dependency retrieval) as it is served: which tool a task calls next.

Like the paper, this reads the task and the calls so far. Where it differs from the published forms
(`bench/papers/published/dtdr.py`), it measured better (`python -m bench.papers.dtdr` prints both):

- The history enters as tool ids beside the task's vector, not as text behind it. [vector ; words ; counts ; last three]
  feed one hidden layer, and a softmax gives every tool that was ever called, and END, its probability. The task is
  encoded once, not at every step. Without a task, the history decides.
- Beside the network stand the nearest past tasks whose calls match the history (instead of clusters), and one
  dependency graph on the last three calls with back-off.
- A listwise layer, one softmax over the parts of each tool, sums these with what is known of any tool: how near its
  text is to the task, to the last tool and to the text expected next (`retrieval.linear_maps`), which words of its name
  the task has, and whether it was called already. So a tool that came after training is ranked at once, and every
  number can be explained. How much falls to tools that were never called depends on how sure the network is of the
  others. The less a training has seen of a tool, the more its text decides: a tool that came after training has at
  least the place that nearness to the task gives it, because the network is sure of what resembles it.
- In a search all of this counts as far as the task is like a past one (`familiarity`). A softmax is as sure of a task
  that is like none.

This module needs numpy alone and trains nothing (`training.dtdr`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from math import log
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from foretool.learning.linear_maps import Texts
from foretool.learning.rankers.dtdr_model import (
    AT,
    LAST,
    METHOD,
    PARTS,
    PLACES,
    UNKNOWN,
    Model,
    history_rows,
    read_model,
)
from foretool.retrieval.encoders.base import unit
from foretool.retrieval.model_format import Floats
from foretool.retrieval.rankers.learned import LearnedModel
from foretool.retrieval.ranking import Query
from foretool.retrieval.score_sum import softmax, z_scores
from foretool.retrieval.words import terms
from foretool.storage.records import ToolId

_NEIGHBOURS = 60
NEARNESS = 0.1
"""The temperature of the softmax over cosines of past tasks."""
SAME_CALLS, SAME_LAST = 3.0, 2.0
"""What a matching history counts beside the task, as exponents: Jaccard overlap of the calls, and the same last one."""
_READ = 2_000
"""Suffixes of histories whose counts are kept as they are used."""
_SUFFIX_MASS = 2.0
"""How many calls the shorter suffix counts beside what followed the longer one."""
TRACE = 1e-3
"""The least probability that a part gives a tool, so that its logarithm means "never" and not "impossible"."""

FOREIGN, KNOWN = 0.4, 0.8
"""Between these likenesses to the nearest past task, the mean of the cosines of meaning and words, what the model says
begins to count. With 200 tasks of four train splits on record (ultratool, toole, toole_multi, taskbench_multimedia) the
ranking of 543 others gains as much as without it, and of 85 wishes that no tool serves 65 stay doubtful in the mean (68
before anything is learned, 6 without it)."""
_TASKS = 16
"""Tasks that are remembered; each takes 20 bytes for each tool, and 35 kilobytes for its nearest past tasks."""
_NEAR = 2.5
"""How many standard deviations of nearness to the task count at most for tools that were called before: that a task is
about a tool says little about when it is called (`docs/benchmarks.md`)."""

_PLACED = 10
"""How many of the tools nearest to a task are looked at for those that came after training."""
_BEFORE = 1e-3
"""How much higher a log-odds is that takes the first place."""

_TRACE = np.float32(TRACE)


class CallGraph:
    """The tool dependency graph over suffixes of the history, up to three calls, with back-off to shorter ones.

    p(f | suffix) = (n(suffix, f) + m p(f | shorter suffix)) / (n(suffix) + m), m = `_SUFFIX_MASS`; the shortest is how
    often each tool is called at all. A history begins with a start mark, which is part of its suffix.
    """

    def __init__(self, walks: Iterable[Sequence[int]], classes: int) -> None:
        """`walks`: classes in order, with `classes` (END) as the last where the end was seen."""
        self._ends = classes + 1
        total = np.full(classes + 1, 0.5)
        found = [array("q") for _ in range(LAST)]  # lists of numbers would take five times as much memory
        for walk in walks:
            for place, called in enumerate(walk):
                total[called] += 1
                for code, seen in zip(self._codes(walk[:place]), found, strict=False):
                    seen.append(code * self._ends + called)
        self.prior = (total / total.sum()).astype(np.float32)
        self._follows = [_Counts.of(np.frombuffer(seen, np.int64), self._ends) for seen in found]
        """What followed the suffixes of each length, the shortest first: a dictionary would take forty times as much
        memory."""
        self._read: dict[tuple[int, int], tuple[np.float32, NDArray[np.int64], Floats]] = {}
        """By length and code of a suffix: what the shorter one counts beside it, and what followed it, with the shares;
        read when wanted."""

    def after(self, history: Sequence[int]) -> Floats:
        """Return the probability of each class, and of END, to come after these calls; (classes and END,)."""
        chance: Floats = self.prior.copy()
        for place, code in enumerate(self._codes(history)):
            if (read := self._read.get((place, code))) is None:
                if (read := self._read_counts(place, code)) is None:
                    break
                while len(self._read) >= _READ:
                    del self._read[next(iter(self._read))]
                self._read[place, code] = read
            shorter, classes, shares = read
            chance *= shorter
            chance[classes] += shares
        return chance

    def _read_counts(self, place: int, code: int) -> tuple[np.float32, NDArray[np.int64], Floats] | None:
        follows = self._follows[place]
        codes = follows.codes
        if not len(codes) or code > codes[-1]:
            return None
        # Of another type it would be compared with a copy of all codes.
        wanted = codes.dtype.type(code)
        first, last = codes.searchsorted(wanted), codes.searchsorted(wanted, "right")
        if first == last:
            return None
        counts = follows.counts[first:last].astype(np.float32)
        mass = np.float32(counts.sum() + _SUFFIX_MASS)
        return (
            np.float32(_SUFFIX_MASS) / mass,
            follows.classes[first:last].astype(np.int64),
            counts / mass,
        )

    def _codes(self, history: Sequence[int]) -> list[int]:
        """Return a number for each suffix, the shortest first; none from an unknown call on."""
        marked = (-1, *history[-LAST:]) if len(history) < LAST else tuple(history[-LAST:])
        codes, code, unit_of = [], 0, 1
        for call in reversed(marked):
            if call == UNKNOWN:
                break
            code += (call + 1) * unit_of
            unit_of *= self._ends + 1
            codes.append(code)
        return codes


class _Counts(NamedTuple):
    """How often each class followed each suffix of one length; one row for each pair, ordered by suffix."""

    codes: NDArray[np.integer[Any]]
    classes: NDArray[np.integer[Any]]
    counts: NDArray[np.integer[Any]]

    @classmethod
    def of(cls, pairs: NDArray[np.int64], ends: int) -> Self:
        """`pairs` are code * `ends` + class."""
        known, counts = np.unique(pairs, return_counts=True)
        return cls(_shrunk(known // ends), _shrunk(known % ends), _shrunk(counts))


def _shrunk(numbers: NDArray[np.int64]) -> NDArray[np.integer[Any]]:
    """Return the same numbers, none of them negative, in the smallest type that holds them."""
    return numbers.astype(np.min_scalar_type(int(numbers.max(initial=0))))


class Near(NamedTuple):
    """The past tasks that are most like a task, as they are compared with the calls so far; arrays are (tasks, places
    and the end) unless a field says otherwise."""

    weights: Floats
    """(tasks, 1): what each counts; they add up to 1."""
    firsts: NDArray[np.int64]
    """(tasks, places): the class where a task calls it for the first time, else -1."""
    before: NDArray[np.int64]
    """The class before each place; -2 at the start, -1 beyond the end."""
    known: Floats
    """How many different classes were called before each place."""
    next: NDArray[np.int64]
    """What came at each place, flat: a class, END, or one beyond END."""


class PreparedTask(NamedTuple):
    """The features of a task that do not change with its calls: computed once and used at every step."""

    hidden: Floats
    near: Near
    meaning: Floats
    """(slots,)."""
    name: Floats
    """(slots,)."""
    aim: Floats | None
    """(slots,): how near each text is to what the task expects (`Texts`); None where nothing is expected."""
    asked: bool
    familiar: float
    """How like the nearest past task it is, 0 to 1."""
    weights: Floats
    """The weights of the listwise layer for it, by `PARTS`."""
    base: Floats
    """(slots and END,): the sum of all parts that no call changes; minus infinity for slots without a tool."""
    called: Floats
    """(slots,): what a tool gains by having been called."""


class Dtdr(LearnedModel):
    """Predicts the next call from the task and the calls so far."""

    name = METHOD
    reads_all_encoders = True

    def __init__(self, model: Model) -> None:
        self.model = model
        self.classes = len(model.tools)
        self._class_of = {tool: number for number, tool in enumerate(model.tools)}
        calls, unknown = model.calls, self.classes + 1
        # What came next at each place of each past episode: a call, END, or nothing that was seen (one beyond END).
        known = np.where(calls.classes >= 0, calls.classes, calls.classes.dtype.type(unknown))
        self._next = np.pad(known, ((0, 0), (0, 1)), constant_values=unknown)
        rows = np.flatnonzero(calls.ended)
        self._next[rows, calls.lengths[rows]] = self.classes
        self._firsts = np.where(_first_calls(calls.classes) > 0, calls.classes, -1)
        self.call_graph = CallGraph((row[row < unknown].tolist() for row in self._next), self.classes)
        self._said = np.flatnonzero(model.tasks.any(1))
        self.align((), None)

    @classmethod
    def loads(cls, model: bytes) -> Self:
        return cls(read_model(model))

    def align(self, tools: Sequence[ToolId | None], vectors: Floats | None) -> None:
        self.live = np.asarray([tool is not None for tool in tools], np.bool_)
        self._classes = np.asarray([self._class_of.get(tool, -1) if tool else -1 for tool in tools], np.int64)
        trained = {None, *self.model.tools, *self.model.idle}
        self._arrived = np.asarray([tool not in trained for tool in tools], np.bool_)
        self._has_arrived = bool(self._arrived.any())
        self.slots = {tool: slot for slot, tool in enumerate(tools) if tool}
        aim, task = self.model.next_text, self.model.dimension
        # Texts are read by the first encoder, whose part of a task's vector comes first.
        fits = vectors is not None and 0 < vectors.shape[1] <= task and aim.dimension in (0, vectors.shape[1])
        self._vectors = vectors if fits else None
        self._texts = Texts(self._vectors, aim) if self._vectors is not None else None
        self._names = _Names(tools)
        self._unseen = (self._classes < 0).astype(np.float32)
        self._unseen_slots = np.flatnonzero(self._unseen)
        # Not `np.unique`, which imports numpy.ma: two megabytes.
        self._present = np.asarray(sorted(set(self._classes.tolist())), np.int64)
        self._all_present = len(self._present) - bool(len(self._unseen_slots)) == self.classes
        self._tasks: dict[tuple[bytes, tuple[str, ...]], PreparedTask] = {}
        self._latest: tuple[object, Floats] | None = None
        """What was asked last, and the answer of `_chances`."""

    def score(self, query: Query, vector: Floats | None) -> Floats:
        """Return how many times likelier than chance each tool is to come next, as log(1 + times); (slots,)."""
        chance, _ = self.after(query.history, vector, query.lines)
        times: Floats = np.log1p(chance * np.float32(max(int(self.live.sum()), 1)))
        return times

    def familiarity(self, vector: Floats | None, lines: Sequence[str]) -> float:
        return self.of_task(vector, tuple(lines)).familiar if lines and len(self.live) else 1.0

    def after(
        self, history: Sequence[ToolId], vector: Floats | None = None, lines: Sequence[str] = ()
    ) -> tuple[Floats, float]:
        if not len(self.live):
            return np.zeros(0, np.float32), 1.0
        chance = self._chances(history, vector, tuple(lines))
        return chance[:-1], float(chance[-1])

    def _chances(self, history: Sequence[ToolId], vector: Floats | None, lines: tuple[str, ...]) -> Floats:
        """Return (slots and END,). The last answer is remembered: a search scores by it, and its answer then names what
        is likely next."""
        asked = None if vector is None else vector.tobytes(), lines, tuple(history)
        if self._latest is None or self._latest[0] != asked:
            task = self.of_task(vector, lines)
            logits = self._logits(history, task)
            self._place_newcomers(logits, task.meaning, [self.slots[tool] for tool in history if tool in self.slots])
            chance = softmax(logits)
            chance.flags.writeable = False
            self._latest = asked, chance
        return self._latest[1]

    def _logits(self, history: Sequence[ToolId], task: PreparedTask) -> Floats:
        """Return (slots and END,): what the parts of `parts` sum up to. A call waits for it, so it adds to
        `PreparedTask.base` only what the calls change, and sums over classes before it spreads the sum over slots."""
        known = [self._class_of.get(tool, UNKNOWN) for tool in history]
        weights, slots = task.weights, len(self.live)
        # The last column is for tools without a class.
        chances = np.empty((3, self.classes + 2), np.float32)
        chances[:, -1] = 0
        chances[0, :-1] = self._network(known, task)
        chances[1, :-1] = self._neighbours(known, task.near)
        chances[2, :-1] = self.call_graph.after(known)
        chances += _TRACE
        np.log(chances, out=chances)
        summed = weights[:3] @ chances
        logits: Floats = task.base.copy()
        logits[:slots] += summed.take(self._classes)
        place = np.float32(min(len(history), PLACES) / PLACES)
        logits[slots] += summed[self.classes] + weights[AT["end_place"]] * place
        calls = [slot for tool in history if (slot := self.slots.get(tool)) is not None]
        for slot in set(calls):
            logits[slot] += task.called[slot]
        if len(self._unseen_slots):
            network = chances[0, :-1] if self._all_present else chances[0].take(self._present)
            surest = max(np.maximum.reduce(network), chances[0, self.classes])
            logits[self._unseen_slots] += weights[AT["unseen_sure"]] * surest
        if self._texts is not None:
            last = self.slots.get(history[-1]) if history else None
            kin, aim = self._texts.after(calls, last, len(history), task.aim)
            if kin is not None:
                logits[:slots] += weights[AT["kin"]] * kin
            if aim is not None:
                logits[:slots] += weights[AT["aim"]] * aim
                logits[self._unseen_slots] += weights[AT["unseen_aim"]] * aim[self._unseen_slots]
        return logits

    def _place_newcomers(self, logits: Floats, meaning: Floats, called: Sequence[int]) -> None:
        """Raise each tool that came after training to the place that it has among the nearest to the task, if it is
        nearer than the mean. Called tools take no part: a task that names a new tool leads to it once."""
        if not self._has_arrived or not meaning.any():
            return
        left = np.where(self.live, meaning, -np.inf)
        left[list(called)] = -np.inf
        for place, slot in enumerate(np.argsort(-left, kind="stable")[:_PLACED].tolist()):
            if self._arrived[slot] and left[slot] > 0:
                *before, there = np.sort(logits)[::-1][: place + 1].tolist()
                if logits[slot] < there:
                    logits[slot] = (before[-1] + there) / 2 if before else there + _BEFORE

    def _sum_fixed(self, meaning: Floats, name: Floats, weights: Floats) -> Floats:
        """Return `PreparedTask.base` for what the words of a task give."""
        slots, unseen = len(self.live), self._unseen
        prior = np.log(np.append(self.call_graph.prior, np.float32(0)) + np.float32(TRACE))
        base = np.empty(slots + 1, np.float32)
        base[:slots] = weights[AT["prior"]] * prior[self._classes] + weights[AT["arrived"]] * self._arrived
        base[:slots] += weights[AT["meaning"]] * np.minimum(meaning, _NEAR) + weights[AT["name"]] * name
        by_text = weights[AT["unseen_meaning"]] * meaning + weights[AT["unseen_name"]] * name
        base[:slots] += unseen * (weights[AT["unseen"]] + by_text)
        base[:slots][~self.live] = -np.inf
        base[slots] = weights[AT["prior"]] * prior[self.classes] + weights[AT["end"]]
        return base

    def parts(self, history: Sequence[ToolId], task: PreparedTask) -> Floats:
        """Return the features of which the listwise layer makes the score of each tool and of the end; (`PARTS`, slots
        and END)."""
        known = [self._class_of.get(tool, UNKNOWN) for tool in history]
        slots = len(self.live)
        found = np.zeros((len(PARTS), slots + 1), np.float32)
        graph = self.call_graph
        chances = (self._network(known, task), self._neighbours(known, task.near), graph.after(known), graph.prior)
        # The column behind END, -1, is for tools without a class.
        of_class = np.log(np.pad(chances, ((0, 0), (0, 1))) + np.float32(TRACE))
        found[:4, :slots], found[:4, slots] = of_class[:, self._classes], of_class[:, self.classes]
        found[AT["meaning"], :slots], found[AT["name"], :slots] = np.minimum(task.meaning, _NEAR), task.name
        called = [slot for tool in history if (slot := self.slots.get(tool)) is not None]
        found[AT["called"], called] = 1
        if self._texts is not None:
            last = self.slots.get(history[-1]) if history else None
            kin, aim = self._texts.after(called, last, len(history), task.aim)
            for name, each in (("kin", kin), ("aim", aim)):
                if each is not None:
                    found[AT[name], :slots] = each
        found[AT["end"], slots] = 1
        found[AT["end_place"], slots] = min(len(history), PLACES) / PLACES
        unseen = self._classes < 0
        found[AT["unseen"], :slots] = unseen
        found[AT["unseen_meaning"], :slots] = unseen * task.meaning
        for name in ("name", "called", "aim"):
            found[AT[f"unseen_{name}"], :slots] = unseen * found[AT[name], :slots]
        found[AT["unseen_sure"], :slots] = unseen * found[AT["network"]].max()
        found[AT["arrived"], :slots] = self._arrived
        return found

    def _read_task(self, vector: Floats | None, lines: Sequence[str]) -> PreparedTask:
        model, network, slots = self.model, self.model.network, len(self.live)
        if vector is not None:
            vector = unit(vector) if vector.shape == (model.dimension,) else None  # of other encoders
        said = np.zeros(network.query.shape[0], np.float32)
        if vector is not None:
            said[: model.dimension] = vector
        if lines and model.lsa.dimension:
            said[model.dimension :] = model.lsa.vector("\n".join(lines))
        texts = 0 if self._vectors is None else self._vectors.shape[1]
        # A network that was trained with vectors never saw words without one.
        asked = vector is not None or (not model.dimension and bool(said.any()))
        scales = np.asarray(model.scales, np.float32)
        scaled: Floats = said * np.repeat(scales, (model.dimension, model.lsa.dimension))
        meaning = np.zeros(slots, np.float32)
        if vector is not None and self._vectors is not None:
            meaning = z_scores(self._vectors @ vector[:texts])
        name = self._names.met(lines)
        weights = np.asarray(model.asked if asked else model.unasked, np.float32)
        near, familiar = self._nearest(said)
        return PreparedTask(
            hidden=network.bias + (scaled @ network.query if asked else network.unasked),
            near=near,
            meaning=meaning,
            name=name,
            aim=self._texts.towards(vector) if self._texts is not None and vector is not None else None,
            asked=asked,
            familiar=familiar,
            weights=weights,
            base=self._sum_fixed(meaning, name, weights),
            called=weights[AT["called"]] + weights[AT["unseen_called"]] * self._unseen,
        )

    def of_task(self, vector: Floats | None, lines: tuple[str, ...]) -> PreparedTask:
        """Return the features of a task that do not change with its calls. The latest ones are kept, because each step
        of a session asks for the same."""
        key = (b"" if vector is None else vector.tobytes(), lines)
        if (task := self._tasks.get(key)) is None:
            while len(self._tasks) >= _TASKS:
                del self._tasks[next(iter(self._tasks))]
            task = self._tasks[key] = self._read_task(vector, lines)
        return task

    def _network(self, history: Sequence[int], task: PreparedTask) -> Floats:
        """Return an array (classes and END,)."""
        network = self.model.network
        rows = network.history.take(history_rows(history, self.classes), 0)  # in half precision
        hidden: Floats = np.add.reduce(rows, 0, np.float32)
        hidden += task.hidden
        np.maximum(hidden, 0, out=hidden)
        logits: Floats = hidden @ network.out
        logits += network.out_bias
        return softmax(logits)

    def _nearest(self, said: Floats) -> tuple[Near, float]:
        """Return the nearest past tasks, and how like the task the nearest one is."""
        near = self._said
        if not len(near) or not said.any():
            return self._compare_with(near[:0], np.zeros(0, np.float32)), 0.0
        cosines = self.model.tasks @ (said @ self.model.lens)
        nearest = cosines[near].max()
        likeness = float(nearest) / float(said @ said)
        familiar = min(max((likeness - FOREIGN) / (KNOWN - FOREIGN), 0.0), 1.0)
        if len(near) > _NEIGHBOURS:
            near = near[np.argpartition(-cosines[near], _NEIGHBOURS - 1)[:_NEIGHBOURS]]
        weights: Floats = np.exp((cosines[near] - nearest) / np.float32(NEARNESS))
        weights /= weights.sum()
        return self._compare_with(near, weights), familiar

    def _compare_with(self, tasks: NDArray[np.int64], weights: Floats) -> Near:
        """Return past tasks with what each counts for (tasks,), as `_neighbours` reads them."""
        firsts = self._firsts[tasks].astype(np.int64)
        return Near(
            weights=weights[:, None],
            firsts=firsts,
            before=np.pad(self.model.calls.classes[tasks], ((0, 0), (1, 0)), constant_values=-2),
            known=np.pad(np.cumsum(firsts >= 0, 1, np.float32), ((0, 0), (1, 0))),
            next=self._next[tasks].ravel().astype(np.int64),
        )

    def _neighbours(self, history: Sequence[int], near: Near) -> Floats:
        """Return (classes and END,): what came next in the nearest past tasks whose calls were like ours."""
        if not len(near.weights):
            return np.zeros(self.classes + 1, np.float32)
        weights = np.exp(self._likeness(history, near))
        weights *= near.weights
        chance = np.bincount(near.next, weights.ravel(), minlength=self.classes + 2)[:-1].astype(np.float32)
        chance /= max(float(np.add.reduce(chance)), 1e-12)
        return chance

    def _likeness(self, history: Sequence[int], near: Near) -> Floats:
        """Return (tasks, places and the end): how like ours the calls before each place are, as an exponent."""
        likeness: Floats
        if history:
            ours = np.zeros(self.classes + 1, np.float32)
            ours[[call for call in history if call != UNKNOWN]] = 1
            # Jaccard compares sets: a call that a task repeats counts once, as it does in our history.
            shared = np.zeros_like(near.known)
            np.cumsum(ours.take(near.firsts), 1, out=shared[:, 1:])
            union = near.known - shared
            union += np.float32(len(set(history)))
            likeness = np.divide(shared, union, out=shared)
        else:
            likeness = (near.known == 0).astype(np.float32)
        likeness *= np.float32(SAME_CALLS)
        likeness += np.float32(SAME_LAST) * (near.before == (history[-1] if history else -2))
        return likeness


def _first_calls(classes: NDArray[np.int32]) -> Floats:
    """Return (episodes, places): 1 where an episode calls a class for the first time, else 0."""
    firsts = np.ones(classes.shape, np.float32)
    for place in range(1, classes.shape[1]):
        firsts[:, place] = (classes[:, :place] != classes[:, place, None]).all(axis=1)
    return firsts


class _Names:
    """Measures which words of a tool's name a task has, by the share of their idf."""

    def __init__(self, tools: Sequence[ToolId | None]) -> None:
        words = [set(terms(tool)) if tool else set() for tool in tools]
        self._slots: dict[str, list[int]] = {}
        for slot, each in enumerate(words):
            for word in each:
                self._slots.setdefault(word, []).append(slot)
        self._idf = {word: log(1 + len(tools) / len(slots)) for word, slots in self._slots.items()}
        self._mass = np.asarray([max(sum(self._idf[word] for word in each), 1e-6) for each in words], np.float32)

    def met(self, lines: Sequence[str]) -> Floats:
        """Return for each tool which share of its name's words a task has, by their idf, 0 to 1; (slots,)."""
        found = np.zeros(len(self._mass), np.float32)
        for word in {word for line in lines for word in terms(line)}:
            if slots := self._slots.get(word):
                found[slots] += np.float32(self._idf[word])
        return found / self._mass
