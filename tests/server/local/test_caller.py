"""A command asks the proxy that serves what it wants, and gets a reason where none does."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
from local_fakes import HERE, answering, ask_in_thread, listening
from requirements import requirement

from foretool.server.local.caller import NoAnswer, ask
from foretool.server.local.places import name_socket
from foretool.server.local.unix import SocketFolder

pytestmark = pytest.mark.anyio


@requirement("local:discovery")
async def test_the_question_reaches_the_proxy_of_the_callers_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    other = HERE._replace(folder="/home/me")
    named = answering(lambda question, reply: reply({"name": "other"}))
    async with listening(folder), listening(folder, {"hint": named}, other):
        assert await ask_in_thread(folder, {"n": 1}) == {"echo": {"n": 1}}
        assert await ask_in_thread(folder, {"n": 1}, other) == {"name": "other"}


@requirement("local:discovery")
async def test_reasons_are_given(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(NoAnswer, match="No such file"):
        await ask_in_thread(folder, {})
    async with listening(folder):
        with pytest.raises(NoAnswer, match="no proxy runs"):
            await ask_in_thread(folder, {}, HERE._replace(config="/home/me/other.json"))
        with pytest.raises(NoAnswer, match="no service 'session'"):
            await ask_in_thread(folder, {}, service="session")
    with pytest.raises(NoAnswer, match="no proxy runs"):
        await ask_in_thread(folder, {})


async def test_an_error_of_the_service_is_a_reason(tmp_path: Path) -> None:
    def refuse(question: dict[str, object], reply: object) -> None:
        raise ValueError("prompt: expected a text")

    async with listening(tmp_path / "run", {"hint": answering(refuse)}):
        with pytest.raises(NoAnswer, match="prompt: expected a text"):
            await ask_in_thread(tmp_path / "run", {})


def test_a_proxy_that_does_not_answer_costs_no_more_than_the_patience(tmp_path: Path) -> None:
    place = SocketFolder(str(tmp_path / "run"), make=True)
    with place, place.listen(name_socket(HERE, "hung")), pytest.raises(NoAnswer, match=r"in time|timed out"):
        ask(str(tmp_path / "run"), HERE, "hint", {"text": "x" * 2_000_000}, 0.05)


@pytest.mark.parametrize(
    "said",
    [b"", b"\n", b"no json\n", b"[]\n", b'{"foretool": 1}\n', b'{"foretool": 1, "config": "/x"}\n{"answer": {}}\n'],
)
def test_what_is_no_greeting_of_this_proxy_is_no_answer(tmp_path: Path, said: bytes) -> None:
    place = SocketFolder(str(tmp_path / "run"), make=True)
    with place, place.listen(name_socket(HERE, "odd")) as listener:
        listener.setblocking(True)
        thread = threading.Thread(target=_say, args=(listener, said))
        thread.start()
        with pytest.raises(NoAnswer):
            ask(str(tmp_path / "run"), HERE, "hint", {}, 10)
        thread.join()


def _say(listener: socket.socket, said: bytes) -> None:
    connection, _ = listener.accept()
    with connection:
        connection.recv(65536)
        connection.sendall(said)
