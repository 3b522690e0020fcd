"""PORTS learns from tasks, and asks a language model which tools help it to make the right call."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np
import pytest

from foretool.learning.training import Material, TooLittle, ports, thin_encoder
from foretool.learning.training.continuation import Score, ScoreFile
from foretool.learning.training.ports_trainer import Example, PortsTrainer, choose_candidates, log_usefulness
from foretool.retrieval import encoders
from foretool.storage.records import Episode, Flow, MissedNeed, Tool, ToolId

TOOLS = tuple(
    Tool(ToolId(name), "", name, f'{{"name":"{name}","description":"{text}"}}'.encode(), "")
    for name, text in (("dice", "Rolls dice."), ("news", "Reads the news."), ("maps", "Shows the way."))
)


def test_a_task_of_two_tools_is_two_examples() -> None:
    episodes = (
        Episode((ToolId("news"), ToolId("maps"), ToolId("news")), ("what happens near me",)),
        Episode((ToolId("dice"),)),
        Episode((ToolId("gone"),), ("what was",)),
    )
    assert ports.examples_of(Material(TOOLS, episodes)) == [
        Example("what happens near me", 1, (2,)),
        Example("what happens near me", 2, (1,)),
    ]


def test_an_example_has_the_call_what_failed_and_whether_its_result_was_used() -> None:
    news, maps, dice = ToolId("news"), ToolId("maps"), ToolId("dice")
    episode = Episode(
        (news, maps, news), ("what happens near me",), arguments=('{"near":"string"}', "{}", ""), failed=(dice,)
    )
    flows = (Flow(news, maps, "place", "at", 3, 1.0),)
    assert ports.examples_of(Material(TOOLS, (episode,), flows=flows)) == [
        Example("what happens near me", 1, (2,), 'news(near="string")', (0,), True),
        Example("what happens near me", 2, (1,), "maps()", (0,), False),
    ]


def test_a_miss_is_an_example_whose_first_negatives_stood_above_the_needed_tool() -> None:
    news, maps, dice = (ToolId(name) for name in ("news", "maps", "dice"))
    episodes = (Episode((news, maps), ("a trip", "find a way")),)
    missed = (
        MissedNeed(1.0, "find a way", maps, (dice, news, ToolId("gone"))),
        MissedNeed(2.0, "something else", ToolId("gone")),
    )
    found = ports.examples_of(Material(TOOLS, episodes, missed=missed))
    # `news` was called in the same episode, so it is right too and no negative; the calls come last.
    assert found[0] == Example("find a way", 2, (1,), tried=(0,))
    assert [each.query for each in found[1:]] == ["a trip", "a trip"]


def test_what_failed_is_a_negative_before_all_others() -> None:
    cosines = np.asarray([0.9, 0.8, 0.1, 0.7], np.float32)
    assert choose_candidates(cosines, Example("a", 0, tried=(2,)), None, 2) == [0, 2, 1]
    assert choose_candidates(cosines, Example("a", 0, (1,), tried=(1, 2)), None, 2) == [0, 2, 3]
    assert choose_candidates(cosines, Example("a", 0, tried=(2,)), [0, 1, 3], 2) == [0, 1, 3]


def test_tools_that_nobody_called_are_not_trained_with() -> None:
    called, examples = ports.keep_called([Example("a", 5, tried=(2, 9)), Example("b", 2, (7,), "b()")])
    assert called == [2, 5, 7]
    assert examples == [Example("a", 1, tried=(0,)), Example("b", 0, (2,), "b()")]


def test_real_outcomes_weigh_in_what_the_model_says(tmp_path: Path) -> None:
    """Eq. 2 over a right tool whose result was used, one that failed, and one that nobody tried."""

    class Level:
        model = "level"

        def logprob(self, prompt: str, continuation: str) -> Score:
            assert continuation == " dice(sides=6)"
            return Score(-4.0, 2)

    example = Example("roll", 0, (), "dice(sides=6)", (1,), True)
    trainer = SimpleNamespace(examples=[example], cosines=lambda _: np.zeros((1, 3), np.float32))
    with ScoreFile(tmp_path / "scores.txt") as kept:
        asked = ports.ask_preferences(cast(PortsTrainer, trainer), TOOLS, Level(), kept, hard=2)
    means = asked.useful(0, [0, 1, 2])
    assert means == [-2.0 + ports.OUTCOME, -2.0 - ports.OUTCOME, -2.0]
    shares = np.exp(log_usefulness(np.asarray([means]), 0.5))[0]
    assert shares == pytest.approx(np.asarray([np.e, 1 / np.e, 1.0]) / (np.e + 1 / np.e + 1.0))


def test_the_model_is_asked_for_the_right_call_given_the_right_tool_and_the_hardest_others(tmp_path: Path) -> None:
    class Named:
        model = "named"

        def logprob(self, prompt: str, continuation: str) -> Score:
            return Score(-1.0 if f"def{continuation[:-2]}" in prompt else -8.0, 2)

    trainer = cast(
        PortsTrainer,
        SimpleNamespace(
            examples=[Example("old", 2), Example("roll", 0), Example("read", 1)],
            cosines=lambda examples: np.asarray([[0.1, 0.2, 0.3]] * len(examples), np.float32),
        ),
    )
    with ScoreFile(tmp_path / "scores.txt") as kept:
        asked = ports.ask_preferences(trainer, TOOLS, Named(), kept, most=2 * (1 + ports.HARD))
    assert asked.scored == {1: (0, 2, 1), 2: (1, 2, 0)}
    assert asked.useful(1, [0, 2]) == [-0.5, -4.0]
    assert asked.useful(0, [2, 1]) is None
    assert asked.pairs == 6


def test_a_tool_is_shown_as_a_function() -> None:
    tool = Tool(
        ToolId("s__roll"), "s", "roll",
        b'{"name":"roll","description":"Rolls\\n dice.","inputSchema":{"properties":{"sides":{},"times":{}}}}', "",
    )  # fmt: skip
    assert ports.docstring(tool) == 'def roll(sides, times):\n"""\nRolls dice.\n"""'


def test_a_training_goes_on_from_the_adapter_that_comes_with_us_where_the_rank_is_the_same() -> None:
    found = ports.shipped_adapter(16)
    assert found is not None
    assert found.base == encoders.MANIFEST[0].sha256
    assert {left.shape[1] for left, _ in found.changes.values()} == {16}
    assert ports.shipped_adapter(4) is None


def test_training_without_torch_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thin_encoder, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(TooLittle, match=r"torch not installed; pip install 'foretool\[train\]'"):
        ports.METHOD.train(Material(TOOLS, ()), lambda what, share: None)
