"""Questions to an OpenAI-compatible API: what is sent, what is read, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from chat_fakes import chat_server, wishes
from command_fakes import remember, write_config

from foretool.learning.enrichment.answer import MOST_ANSWER
from foretool.learning.enrichment.run import GUESSED_S
from foretool.learning.enrichment.wish_models import (
    INSTALL,
    ChatEndpoint,
    EndpointError,
    LocalModel,
    ModelReply,
    RefusedError,
)
from foretool.retrieval.tokens import estimate
from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.server.config.settings import EnrichEntry
from foretool.storage.opening import open_store

KEY = "s3cret-key"


def ask(url: str, times: int = 1) -> ModelReply:
    async def run() -> ModelReply:
        endpoint = ChatEndpoint(EnrichEntry(url=url, model="tiny", key=KEY), pause_s=0.001)
        try:
            for _ in range(times - 1):
                await endpoint.ask("add: Adds.")
            return await endpoint.ask("add: Adds.")
        finally:
            await endpoint.close()

    return asyncio.run(run())


def test_a_question_is_a_chat_completion() -> None:
    with chat_server(lambda text: wishes(f"{text} please")) as server:
        assert ask(server.url + "/") == ModelReply(wishes("add: Adds. please"), 100)
        (asked,) = server.asked
    assert (asked["path"], asked["key"], asked["model"]) == ("/v1/chat/completions", f"Bearer {KEY}", "tiny")
    assert asked["response_format"]["type"] == "json_schema"


def test_a_server_that_knows_less_is_asked_plainly_from_then_on() -> None:
    with chat_server(lambda text: wishes("sum up"), is_old=True) as server:
        assert ask(server.url, times=2).content == wishes("sum up")
        assert [sorted(each)[:2] for each in server.asked] == [["key", "messages"]] * 2
        assert not any("response_format" in each for each in server.asked)


def test_a_busy_server_is_asked_again_and_no_longer_than_that() -> None:
    with chat_server(lambda text: wishes("a b"), (503, b"busy"), (429, b"slow down")) as server:
        assert ask(server.url).content == wishes("a b")
    with chat_server(lambda text: "", *[(500, b"broken")] * 20) as server:
        with pytest.raises(EndpointError, match=r"answered 500: broken"):
            ask(server.url)
        assert len(server.asked) == 4


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, f'{{"error": "bad key {KEY}"}}'.encode(), "enrich.key"),
        (404, b"no such model", "enrich.url"),
        (302, b"http://127.0.0.1:1/elsewhere", "redirects are not followed"),
    ],
)
def test_a_wrong_key_model_or_address_ends_it_and_no_key_is_shown(status: int, body: bytes, said: str) -> None:
    with chat_server(lambda text: "", (status, body)) as server:
        with pytest.raises(RefusedError, match=said) as caught:
            ask(server.url)
        assert len(server.asked) == 1
    assert KEY not in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"[]", b'{"choices": []}', b'{"choices": [{"message": {}}]}', b"\xff\xfe",
        b'{"choices": [{"message": {"content": 5}}]}', b"[" * 100_000, b'{"choices": [{"message": {"content": ""}}]}',
    ],
)  # fmt: skip
def test_what_is_no_completion_is_said_in_one_line(body: bytes) -> None:
    with chat_server(lambda text: "", (200, body)) as server, pytest.raises(EndpointError) as caught:
        ask(server.url)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_an_endless_answer_is_cut_off() -> None:
    with chat_server(lambda text: "x" * 3_000_000) as server, pytest.raises(EndpointError, match="more than"):
        ask(server.url)


def test_a_count_of_tokens_that_cannot_be_is_not_believed() -> None:
    body = json.dumps({"choices": [{"message": {"content": "x"}}], "usage": {"total_tokens": -5}}).encode()
    with chat_server(lambda text: "", (200, body)) as server:
        assert ask(server.url) == ModelReply("x", 0)


def test_nobody_at_the_address_is_said() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(EndpointError, match="ConnectError"):
        ask(f"http://127.0.0.1:{port}/v1")


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


def ask_here(path: Path, *texts: str) -> list[str]:
    async def run() -> list[str]:
        model = LocalModel(EnrichEntry(model=str(path)))
        try:
            return [reply.content for reply in await asyncio.gather(*map(model.ask, texts))]
        finally:
            await model.close()

    return asyncio.run(run())


def test_questions_are_asked_one_after_the_other_with_the_form_of_the_answer_forced(weights: Path) -> None:
    assert ask_here(weights, "calc: add.", "calc: subtract.") == [Llama.answer] * 2
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
        ask_here(weights, "x")


def test_a_file_that_is_not_there_or_no_model_says_the_way_out(weights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RefusedError, match=r"found none at .*none\.gguf"):
        ask_here(weights.with_name("none.gguf"), "x")
    broken = weights.with_name("broken.gguf")
    broken.write_bytes(b"<html>")
    with pytest.raises(RefusedError, match=r"cannot open .*broken\.gguf: Failed to load .*whole GGUF") as caught:
        ask_here(broken, "x")
    assert "\n" not in str(caught.value)
    monkeypatch.setitem(sys.modules, "llama_cpp", None)
    with pytest.raises(RefusedError) as caught:
        ask_here(weights, "x")
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
