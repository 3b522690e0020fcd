"""Training from past tasks, on a world small enough to know what is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from requirements import requirement

from foretool.retrieval.model_format import Floats
from foretool.retrieval.rankers.masstool import MassTool, grams
from foretool.retrieval.ranking import Query
from foretool.retrieval.training import Material, TooLittle
from foretool.retrieval.training import masstool as training
from foretool.retrieval.training.masstool import (
    METHOD,
    Tasks,
    bank,
    classes,
    detection,
    familiar,
    likeness,
    logistic,
    mixed,
    parted,
    recall,
    sparse,
    taken,
    vocabulary,
)
from foretool.storage.records import Episode, ToolId

SUBJECTS = {
    "train": ("rail__search", "rail__book"),
    "hotel": ("inn__search", "inn__book"),
    "mail": ("post__list", "post__read"),
    "song": ("music__play",),
}
ABOUT = {
    "train": "ticket platform departure carriage seat railway",
    "hotel": "room night bed breakfast lobby suite",
    "mail": "letter inbox reply sender draft attachment",
    "song": "music melody album singer playlist chorus",
}
TOOLS = [ToolId(tool) for tools in SUBJECTS.values() for tool in tools]


def said(subject: str, place: int) -> str:
    """A task of that kind."""
    words = ABOUT[subject].split()
    return f"please {subject} {words[place % 6]} and {words[(place * 5 + 1) % 6]} number {place}"


def episodes(without: int = 0) -> tuple[Episode, ...]:
    """32 tasks of four kinds, each kind with its set of tools, and some that take none."""
    kinds = [(subject, tuple(map(ToolId, tools))) for subject, tools in SUBJECTS.items()]
    found = [Episode(tools, (said(subject, place),)) for place in range(8) for subject, tools in kinds]
    idle = [Episode((), (f"why does the moon shine at {hour}",)) for hour in range(without)]
    return (*found, *idle)


def embed(texts: Sequence[str]) -> Floats:
    """One direction a subject, and one for all else."""
    rows = [[float(subject in text) for subject in SUBJECTS] + [0.15] for text in texts]
    found = np.asarray(rows, np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def trained(without: int = 0, encoder: bool = True, seed: int = 7) -> MassTool:
    material = Material((), episodes(without), queries=embed if encoder else None, seed=seed)
    found = MassTool.loads(METHOD.train(material, lambda step, share: None))
    found.align(TOOLS, None)
    return found


def best(scores: Floats, count: int) -> set[str]:
    return {TOOLS[slot] for slot in np.argsort(-scores)[:count].tolist()}


def tasks(*golds: tuple[int, ...], tools: int = 4) -> Tasks:
    rows = [(np.asarray([row], np.int64), np.ones(1, np.float32)) for row in range(len(golds))]
    return Tasks(sparse(rows), np.zeros((len(golds), 0), np.float32), golds, tools)


@requirement("masstool:score")
@pytest.mark.parametrize("encoder", [True, False])
def test_a_task_gets_the_tools_that_such_tasks_took(encoder: bool) -> None:
    model = trained(encoder=encoder)
    for subject, tools in SUBJECTS.items():
        text = said(subject, 11)
        scores = model.score(Query((text,)), embed([text])[0] if encoder else None)
        assert best(scores, len(tools)) == set(tools), subject


@requirement("masstool:trust")
def test_a_task_of_another_kind_gets_nothing_from_a_thin_log() -> None:
    model = trained()
    text = "integrate sin(x) over the unit circle"
    near = "a hotel room for one night and breakfast please"
    assert model.trust(embed([text])[0], text) == 0.0
    assert model.trust(embed([near])[0], near) > 0.5
    assert not model.score(Query((text,)), embed([text])[0]).any()


def test_it_learns_from_the_vectors_of_all_encoders() -> None:
    def both(texts: Sequence[str]) -> Floats:
        return np.concatenate([embed(texts), embed(texts)[:, ::-1]], axis=1)

    found = MassTool.loads(METHOD.train(Material((), episodes(), queries=embed, readings=both), lambda *_: None))
    text = said("mail", 11)
    assert not found.read(text, embed([text])[0]).has_vector
    assert np.linalg.norm(found.read(text, both([text])[0]).vector) == pytest.approx(1.0)
    assert np.linalg.norm(found.bank, axis=1) == pytest.approx(np.ones(32), abs=0.02)


@requirement("masstool:detection")
def test_it_learns_which_tasks_need_no_tool() -> None:
    model = trained(without=24)
    needed, idle = "which hotel is left", "why does the moon shine at noon"
    assert (model.needs_tool(embed([needed])[0], needed) or 0.0) > 0.8
    assert (model.needs_tool(embed([idle])[0], idle) or 1.0) < 0.2
    assert trained(without=5).needs_tool(embed([idle])[0], idle) is None, "five say too little"


def test_a_seed_makes_the_same_model_again() -> None:
    material = Material((), episodes(), queries=embed)
    told: list[float] = []
    models = [METHOD.train(material, lambda step, share: told.append(share)) for _ in range(2)]
    assert models[0] == models[1]
    assert 0.0 <= min(told) <= max(told) == 1.0


def test_a_few_tasks_are_too_little() -> None:
    with pytest.raises(TooLittle, match="3 tasks in words with the calls they took; it takes 20"):
        METHOD.train(Material((), episodes()[:3]), lambda step, share: None)
    silent = tuple(Episode(each.calls) for each in episodes())
    with pytest.raises(TooLittle, match="0 tasks in words"):
        METHOD.train(Material((), silent), lambda step, share: None)


def test_one_set_of_tools_for_all_tasks_tells_nothing_apart() -> None:
    same = tuple(Episode((ToolId("a"),), (f"say {place}",)) for place in range(30))
    with pytest.raises(TooLittle, match="30 tasks that all took the same tools"):
        METHOD.train(Material((), same), lambda step, share: None)


def test_a_set_seen_once_is_learnt_tool_by_tool() -> None:
    found = classes([(0, 1), (0, 1), (2, 3), (2,)])
    assert found.sets == ((0, 1), (2,), (3,))
    assert found.targets == ((0,), (0,), (1, 2), (1,))
    assert found.of(np.asarray([2, 0])).tolist() == [[0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]


def test_familiar_tasks_took_what_others_took() -> None:
    assert familiar([(0, 1), (0,), (1,), (1, 2)]) == 0.75
    assert familiar([]) == 0.0


def test_the_vocabulary_is_what_two_tasks_share() -> None:
    counts = [grams("send mail"), grams("read mail"), grams("a whale")]
    hashes, idf = vocabulary(counts)
    assert hashes.tolist() == [next(iter(grams("mail")))]
    assert idf == pytest.approx([np.log(4 / 3) + 1])
    assert vocabulary([Counter()])[0].tolist() == []


def test_a_batch_has_only_the_columns_it_uses() -> None:
    words = sparse([
        (np.asarray([5, 1]), np.asarray([2.0, 3.0], np.float32)),
        (np.asarray([], np.int64), np.asarray([], np.float32)),
        (np.asarray([5]), np.asarray([7.0], np.float32)),
    ])  # fmt: skip
    used, found = taken(words, np.asarray([2, 1, 0]))
    assert used.tolist() == [1, 5]
    assert found.tolist() == [[0.0, 7.0], [0.0, 0.0], [3.0, 2.0]]


def test_the_bank_keeps_the_newest_of_every_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "BANK", 3)
    golds = [(0,), (0,), (1,), (0,), (0,)]
    assert bank(golds, np.arange(5)).tolist() == [2, 3, 4]
    assert bank(golds, np.asarray([0, 2])).tolist() == [0, 2]


def test_likeness_is_the_cosine_of_words_and_of_vectors() -> None:
    rows = [
        (np.asarray([0, 1]), np.asarray([0.6, 0.8], np.float32)),
        (np.asarray([1, 3]), np.asarray([0.8, 0.6], np.float32)),
    ]
    vectors = np.asarray([[1.0, 0.0], [0.6, 0.8]], np.float32)
    meaning, words = likeness(Tasks(sparse(rows), vectors, ((0,), (1,)), 2), np.asarray([0]), np.asarray([0, 1]))
    assert meaning == pytest.approx(np.asarray([[1.0, 0.6]]))
    assert words == pytest.approx(np.asarray([[1.0, 0.64]]))


def test_tasks_are_kept_back_together_with_all_that_took_their_tools() -> None:
    many = tasks(*[(place % 4,) for place in range(40)])
    rows, others = parted(many, np.asarray([0]), np.random.default_rng(1))
    assert sorted([*rows.tolist(), *others.tolist()]) == list(range(40))
    hidden = {row % 4 for row in rows.tolist() if row}
    assert len(hidden) == 1
    assert not any(other % 4 in hidden for other in others.tolist())


def test_the_mix_is_what_finds_most() -> None:
    golden = np.eye(12, dtype=np.float32)
    nothing = np.zeros((12, 12), np.float32)
    nothing[:, [0, 1, 2, 3, 4]] = 9.0
    held = training.Held(golden, golden, nothing, np.zeros((12, 4), np.float32), np.zeros(12, np.bool_), (0.0, 0.0))
    assert mixed([held]) == 1.0
    other = training.Held(golden, nothing, golden, np.zeros((12, 4), np.float32), np.zeros(12, np.bool_), (0.0, 0.0))
    assert mixed([other]) == 0.0


def test_recall_counts_the_golden_among_the_first() -> None:
    shares = np.asarray([[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], np.float32)
    golden = np.asarray([[1, 0, 1], [1, 0, 0]], np.float32)
    assert recall(shares, golden, 2).tolist() == [0.5, 0.0]


def test_logistic_regression_meets_the_odds() -> None:
    inputs = np.asarray([[1.0, 1.0], [1.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    found = logistic(inputs, np.asarray([0.75, 0.75, 0.5, 0.5]), np.ones(4), ridge=1e-9)
    assert found == pytest.approx([np.log(3), 0.0], abs=1e-6)
    twice = logistic(inputs[:, 1:], np.asarray([1.0, 0.0, 0.0, 0.0]), np.asarray([3.0, 1.0, 0.0, 0.0]), ridge=1e-9)
    assert twice == pytest.approx([np.log(3)], abs=1e-6)


def test_detection_counts_both_answers_alike() -> None:
    words = sparse([(np.asarray([place > 0], np.int64), np.ones(1, np.float32)) for place in range(10)])
    needed = np.asarray([True] + [False] * 9)
    weights = detection(words, np.zeros((10, 0), np.float32), needed, 2)
    assert weights[0] == pytest.approx(-weights[1], rel=0.05)
    assert weights[0] > 1.0
    assert weights[-1] == pytest.approx(0.0, abs=0.1)
