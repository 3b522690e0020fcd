"""A model of this machine: what is asked, that it is asked in turn, and what is said where it cannot be opened."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from chat_fakes import wishes
from command_fakes import remember, write_config

from foretool.learning.enrichment.answer import MOST_ANSWER
from foretool.learning.enrichment.endpoint import EndpointError, RefusedError
from foretool.learning.enrichment.local_model import INSTALL, LocalModel
from foretool.learning.enrichment.run import GUESSED_S
from foretool.retrieval.tokens import estimate
from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.server.config.settings import EnrichEntry
from foretool.storage.opening import open_store


class Llama:
    """Stands in for llama.cpp: notes what it was asked, and that nobody asked meanwhile."""

    asked: ClassVar[list[dict[str, Any]]] = []
    opened: ClassVar[list[str]] = []
    answer: ClassVar[str] = wishes("sum up two prices")
    busy: ClassVar[int] = 0

    def __init__(self, path: str, **_: Any) -> None:
        if b"GGUF" not in Path(path).read_bytes():
            raise ValueError("Failed to load model from file\n" + path)
        Llama.opened.append(path)

    def create_chat_completion(self, **asked: Any) -> dict[str, Any]:
        Llama.busy += 1
        assert Llama.busy == 1, "two questions at once"
        Llama.asked.append(asked)
        if Llama.answer == "too long":
            raise ValueError("Requested tokens (5000) exceed context window of 4096")
        Llama.busy -= 1
        return {"choices": [{"message": {"content": Llama.answer}}], "usage": {"total_tokens": 60}}


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(sys.modules, "llama_cpp", SimpleNamespace(Llama=Llama))  # type: ignore[arg-type]
    Llama.asked, Llama.opened, Llama.busy, Llama.answer = [], [], 0, wishes("sum up two prices")
    path = tmp_path / "tiny.gguf"
    path.write_bytes(b"GGUF")
    return path


def ask(path: Path, *texts: str) -> list[str]:
    async def run() -> list[str]:
        model = LocalModel(EnrichEntry(model=str(path)))
        try:
            return [reply.content for reply in await asyncio.gather(*map(model.ask, texts))]
        finally:
            await model.close()

    return asyncio.run(run())


def test_questions_are_asked_one_after_the_other_with_the_form_of_the_answer_forced(weights: Path) -> None:
    assert ask(weights, "calc: add.", "calc: subtract.") == [Llama.answer] * 2
    assert Llama.opened == [str(weights)]
    texts = [json.loads(each["messages"][1]["content"])["tool"] for each in Llama.asked]
    assert texts == ["calc: add.", "calc: subtract."]
    schema = Llama.asked[0]["response_format"]["schema"]
    assert schema["required"] == ["wishes"]
    # A small model goes on and on: what it may write has to end before its tokens are used up.
    wishes = schema["properties"]["wishes"]
    longest = {"wishes": ["long wishes " * (wishes["items"]["maxLength"] // 12)] * wishes["maxItems"]}
    assert wishes["minItems"] == 1 and estimate(json.dumps(longest)) < MOST_ANSWER


def test_one_question_that_cannot_be_answered_is_said_in_one_line(weights: Path) -> None:
    Llama.answer = "too long"
    with pytest.raises(EndpointError, match=r"^tiny\.gguf: Requested tokens \(5000\) exceed"):
        ask(weights, "x")


def test_a_file_that_is_not_there_or_no_model_says_the_way_out(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=r"found none at .*none\.gguf"):
        ask(weights.with_name("none.gguf"), "x")
    broken = weights.with_name("broken.gguf")
    broken.write_bytes(b"<html>")
    with pytest.raises(RefusedError, match=r"cannot open .*broken\.gguf: Failed to load .*whole GGUF") as caught:
        ask(broken, "x")
    assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(RefusedError) as caught:
        ask(weights, "x")
    assert INSTALL in str(caught.value)


def test_enrich_asks_the_file_of_the_config_and_says_that_nothing_is_sent(
    tmp_path: Path, weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A relative path is read from the folder of the config, since every client starts foretool in another one.
    path = write_config(tmp_path, {"calc": {"command": "calc"}}, enrich={"model": weights.name})
    with open_store(load(path).storage) as store:
        remember(load(path), store, "calc", {"add": "Adds two numbers."})
    assert run(["enrich", "--dry-run", "--json", "--config", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["estimate"]["seconds"] == GUESSED_S, "one after the other"
    assert run(["enrich", "--yes", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "nowhere: the model runs in this command" in " ".join(out.split())
    assert "price" not in out and str(weights) not in out
    assert run(["enrich", "--show", "--json", "--config", str(path)]) == 0
    shown = [(each["tool"], each["model"], each["texts"]) for each in json.loads(capsys.readouterr().out)]
    assert shown == [("calc__add", "tiny.gguf", ["sum up two prices"])]


def test_a_model_without_an_address_has_to_be_a_file_of_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, {"calc": {"command": "calc"}}, enrich={"model": "llama3.2"})
    assert run(["enrich", "--dry-run", "--config", str(path)]) != 0
    assert "enrich.url" in (said := capsys.readouterr().err) and "(.gguf) as `model`" in " ".join(said.split())
