"""A model that was trained with misses ranks better for the same words on later tasks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean

import pytest

pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")

from learning_setting import ADD, MOON, RAIN, SUB, Setting
from requirements import requirement

from foretool.learning.rankers.masstool import MassTool
from foretool.learning.replay import Replay
from foretool.learning.run import Learner
from foretool.learning.timeline import Timeline
from foretool.learning.training import Material
from foretool.learning.training.masstool import METHOD
from foretool.learning.training.replay import StepRanks
from foretool.server import offline
from foretool.storage.records import Call, Discovery, Episode, Match, Miss, Prompt, SessionRecord

WORDS = {ADD: "total the bill", SUB: "the part left over", MOON: "phase tonight", RAIN: "take an umbrella"}
"""The tools of the setting all have one text, so only what was learned can tell them apart."""
TOGETHER = ((ADD, SUB), (MOON, RAIN))
"""Who needs one of a pair needs the other too, so episodes alone do not tell which words are for which."""
SESSIONS = 60


def record_sessions(setting: Setting) -> None:
    """Sessions of one prompt, in which the client searches for two things and calls the hidden tool of each."""
    draw = random.Random(3)
    for number in range(SESSIONS):
        key, at = f"s{number}", 10_000.0 * number + 1
        store = setting.store
        store.sessions.begin(SessionRecord(key, "c", "1", "legacy", "stdio", "", at))
        store.tasks.add_prompt(Prompt(at, f"help me with number {number}"))
        for place, tool in enumerate(draw.sample(draw.choice(TOGETHER), 2)):
            others = draw.sample([each for each in WORDS if each != tool], 2)
            matches = tuple(Match(each, rank, 1.0) for rank, each in enumerate((*others, tool), 1))
            moment = at + 10 * place + 1
            found = store.discoveries.add(Discovery(key, moment, WORDS[tool], (), None, "low", matches, 90, 1.0))
            call = Call(
                key, moment + 1, tool, tool.partition("__")[0], "bridge", True, "ok", 1.0, True, "", discovery=found
            )
            miss = Miss(
                key, moment + 1, tool, "discovery", "rank", 3, 5, WORDS[tool], (), 0, found, "", "discovered", 1, 90,
                call=1,
            )  # fmt: skip
            store.calls.record([call], [miss])
        store.sessions.end(key, at + 100)


def material_of(setting: Setting) -> Material:
    with offline.open_offline(setting.config) as app:
        learner = Learner(setting.config, app.catalog, setting.store, lambda *_: None, 1e9)
        assert len(learner.timeline) == SESSIONS
        return learner._material_before(len(learner.timeline))


def later_ranks(setting: Setting, model: MassTool, later: Sequence[Episode]) -> list[StepRanks]:
    with offline.open_offline(setting.config) as app:
        upstream_of = {tool.id: tool.upstream for tool in app.catalog.tools()}
        replay = Replay(app.catalog, None, Timeline([], later, upstream_of), upstream_of)
        return replay.ranks({"masstool": model}, 0, len(later))


@pytest.mark.slow
@requirement("learn:misses")
def test_training_with_misses_ranks_the_same_words_better_on_later_tasks(setting: Setting) -> None:
    record_sessions(setting)
    material = material_of(setting)
    assert len(material.missed) == 2 * SESSIONS
    assert {each.task: each.tool for each in material.missed} == {words: tool for tool, words in WORDS.items()}
    later = [Episode((tool,), (words,)) for tool, words in WORDS.items()]
    found = {
        known: [each.reciprocal for each in later_ranks(setting, MassTool.loads(METHOD.train(given, _silent)), later)]
        for known, given in (("with", material), ("without", _without(material)))
    }
    assert found["with"] == [1.0] * len(WORDS)
    assert fmean(found["without"]) < 0.9


def test_a_replay_trains_with_no_miss_of_the_tasks_that_it_judges(setting: Setting) -> None:
    record_sessions(setting)
    with offline.open_offline(setting.config) as app:
        learner = Learner(setting.config, app.catalog, setting.store, lambda *_: None, 1e9)
        known = learner._material_before(20)
        begins = learner.timeline.episodes[20].at
        assert len(known.missed) == 40
        assert all(each.at < begins for each in known.missed)
        assert not learner._material_before(0).missed


def _without(material: Material) -> Material:
    return Material(material.tools, material.episodes, seed=material.seed)


def _silent(what: str, share: float) -> None:
    """Nobody watches."""
