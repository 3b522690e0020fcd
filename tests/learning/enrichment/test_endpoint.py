"""Questions to an OpenAI-compatible API: what is sent, what is read, and what goes wrong."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest
from chat_fakes import chat_server, wishes

from foretool.learning.enrichment.endpoint import ChatEndpoint, EndpointError, ModelReply, RefusedError
from foretool.server.config.settings import EnrichEntry

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
