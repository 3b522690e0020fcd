"""Training from past tasks, on a world small enough to know what is right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace
from requirements import requirement

from foretool.learning.rankers.masstool import NAME, VERSION, MassTool
from foretool.learning.training import Material, TooLittle
from foretool.learning.training.masstool import FEW, METHOD, fit_detection, keep_back
from foretool.learning.training.masstool_head import stack_rows
from foretool.retrieval.model_format import Floats, pack, unpack
from foretool.retrieval.ranking import Query
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


@requirement("masstool:score")
@pytest.mark.parametrize("encoder", [True, False])
def test_a_task_gets_the_tools_that_such_tasks_took(encoder: bool) -> None:
    model = trained(encoder=encoder)
    for subject, tools in SUBJECTS.items():
        text = said(subject, 11)
        scores = model.score(Query((text,)), embed([text])[0] if encoder else None)
        assert best(scores, len(tools)) == set(tools), subject


@pytest.mark.slow
@requirement("masstool:trust")
@pytest.mark.parametrize("encoder", [True, False])
def test_a_model_is_believed_also_where_the_vote_alone_gives_the_shares(encoder: bool) -> None:
    material = Material((), episodes(), queries=embed if encoder else None)
    told, arrays = unpack(METHOD.train(material, lambda step, share: None), NAME, VERSION)
    by_head = {"bias": -9.0, "meaning": 0.0, "words": 0.0, "sureness": 18.0, "agreement": 0.0}
    trusts = {name: told[name] | by_head for name in ("read", "unread")}
    votes_alone = pack(NAME, VERSION, {**told, **trusts, "mix": 0.0}, arrays)
    model = MassTool.loads(METHOD.train(replace(material, earlier=votes_alone), lambda step, share: None))
    model.align(TOOLS, None)
    text = said("mail", 11)
    scores = model.score(Query((text,)), embed([text])[0] if encoder else None)
    assert model.header.mix == 0.0
    assert best(scores, 2) == set(SUBJECTS["mail"])
    assert scores.max() > 0.0


@pytest.mark.slow
@requirement("masstool:trust")
def test_a_task_of_another_kind_gets_nothing_from_a_thin_log() -> None:
    model = trained()
    text = "integrate sin(x) over the unit circle"
    near = "a hotel room for one night and breakfast please"
    assert model.believed(model.past(model.read(text, embed([text])[0]))) == 0.0
    assert model.believed(model.past(model.read(near, embed([near])[0]))) > 0.5
    assert not model.score(Query((text,)), embed([text])[0]).any()


@pytest.mark.slow
def test_it_learns_from_the_vectors_of_all_encoders() -> None:
    def both(texts: Sequence[str]) -> Floats:
        return np.concatenate([embed(texts), embed(texts)[:, ::-1]], axis=1)

    found = MassTool.loads(METHOD.train(Material((), episodes(), queries=both), lambda *_: None))
    text = said("mail", 11)
    assert not found.read(text, embed([text])[0]).has_vector
    assert np.linalg.norm(found.read(text, both([text])[0]).vector) == pytest.approx(1.0)
    assert np.linalg.norm(found.bank, axis=1) == pytest.approx(np.ones(32), abs=0.02)


@pytest.mark.slow
@requirement("masstool:detection")
def test_it_learns_which_tasks_need_no_tool() -> None:
    model = trained(without=24)
    needed, idle = "which hotel is left", "why does the moon shine at noon"
    assert (model.needs_tool(embed([needed])[0], needed) or 0.0) > 0.8
    assert (model.needs_tool(embed([idle])[0], idle) or 1.0) < 0.2
    assert trained(without=5).needs_tool(embed([idle])[0], idle) is None, "five say too little"


@pytest.mark.slow
def test_where_most_tasks_have_no_vectors_the_words_of_all_are_learned() -> None:
    def train(material: Material) -> bytes:
        return METHOD.train(material, lambda step, share: None)

    few, many = episodes()[:12], tuple(replace(each, at=1.0) for each in episodes()[12:])
    by_words = train(Material((), few, queries=embed, unread=many))
    assert by_words == train(Material((), (*few, *many)))
    # Trust that was fitted by words is fitted again once there are vectors of most.
    read = Material((), episodes(), queries=embed)
    assert train(replace(read, earlier=by_words)) == train(read) == train(replace(read, unread=many))


@pytest.mark.slow
def test_a_seed_makes_the_same_model_again() -> None:
    material = Material((), episodes(), queries=embed)
    told: list[float] = []
    models = [METHOD.train(material, lambda step, share: told.append(share)) for _ in range(2)]
    assert models[0] == models[1]
    assert 0.0 <= min(told) <= max(told) == 1.0


def test_a_few_tasks_are_too_little() -> None:
    with pytest.raises(TooLittle, match="tasks in words with the calls they took: 3 of the 20 that it takes"):
        METHOD.train(Material((), episodes()[:3]), lambda step, share: None)
    silent = tuple(Episode(each.calls) for each in episodes())
    with pytest.raises(TooLittle, match="tasks in words with the calls they took: 0"):
        METHOD.train(Material((), silent), lambda step, share: None)


def test_one_set_of_tools_for_all_tasks_tells_nothing_apart() -> None:
    same = tuple(Episode((ToolId("a"),), (f"say {place}",)) for place in range(30))
    with pytest.raises(TooLittle, match="30 tasks that all took the same tools"):
        METHOD.train(Material((), same), lambda step, share: None)


def test_tasks_that_never_take_a_tool_twice_do_not_show_what_the_past_is_worth() -> None:
    once = tuple(Episode((ToolId(f"t{place}"),), (f"say {place}",)) for place in range(30))
    with pytest.raises(TooLittle, match="30 tasks that never take a tool twice"):
        METHOD.train(Material((), once, queries=embed), lambda step, share: None)


def test_detection_counts_both_answers_alike() -> None:
    words = stack_rows([(np.asarray([place > 0], np.int64), np.ones(1, np.float32)) for place in range(10)])
    needed = np.asarray([True] + [False] * 9)
    weights = fit_detection(words, np.zeros((10, 0), np.float32), needed, 2)
    assert weights[0] == pytest.approx(-weights[1], rel=0.05)
    assert weights[0] > 1.0
    assert weights[-1] == pytest.approx(0.0, abs=0.1)


def test_the_texts_of_one_episode_are_kept_back_together() -> None:
    few = np.repeat(np.arange(20), 3)  # 20 episodes of three texts each
    parts = keep_back(few, np.random.default_rng(5))
    assert sorted(np.concatenate(parts).tolist()) == list(range(60)) and len(parts) == 4
    many = np.repeat(np.arange(FEW), 3)
    (part,) = keep_back(many, np.random.default_rng(5))
    assert 0.14 * len(many) < len(part) <= 0.15 * len(many)
    for episode_of, kept in [(few, part) for part in parts] + [(many, part)]:
        inside = set(episode_of[kept].tolist())
        assert set(np.flatnonzero(np.isin(episode_of, list(inside))).tolist()) == set(kept.tolist())
