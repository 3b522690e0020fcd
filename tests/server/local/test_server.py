"""The proxy's end: greetings, services, limits, and an end in order."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from local_fakes import HERE, STORAGE, answering, ask_in_thread, echo, listening
from requirements import requirement

from foretool._version import __version__
from foretool.server.local import server as serving
from foretool.server.local.frames import MOST_GREETING
from foretool.server.local.server import LocalServer

pytestmark = pytest.mark.anyio

HELLO = {"foretool": 1, "wants": "hint", "config": HERE.config, "profile": "", "folder": HERE.folder}


def names_in(folder: Path) -> list[str]:
    return [each.name for each in folder.iterdir()]


class Conversation:
    """A caller that speaks for itself."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self.writer = reader, writer

    @classmethod
    async def begin(cls, folder: Path) -> Conversation:
        (name,) = names_in(folder)
        # Relative, because the folder of a test may have a long path.
        return cls(*await asyncio.open_unix_connection(f"/proc/self/cwd/{folder.name}/{name}"))

    def say(self, *messages: dict[str, Any] | bytes) -> None:
        for each in messages:
            self.writer.write(each if isinstance(each, bytes) else json.dumps(each).encode() + b"\n")

    async def hear(self) -> dict[str, Any] | None:
        """Return the next message, None at the end."""
        try:
            line = await asyncio.wait_for(self._reader.readline(), 10)
        except ConnectionResetError:
            return None
        return json.loads(line) if line else None


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "run"


@requirement("local:greeting")
async def test_the_greeting_says_who_serves_what(folder: Path) -> None:
    async with listening(folder):
        talk = await Conversation.begin(folder)
        talk.say(HELLO, {"id": 7, "ask": {"n": 1}}, {"id": 8, "ask": {"n": 2}})
        greeting = await talk.hear()
        assert greeting is not None and isinstance(greeting.pop("pid"), int)
        own = {"version": __version__, "config": HERE.config, "storage": STORAGE, "profile": "", "folder": HERE.folder}
        assert greeting == {"foretool": 1, **own}
        assert await talk.hear() == {"id": 7, "answer": {"echo": {"n": 1}}}
        assert await talk.hear() == {"id": 8, "answer": {"echo": {"n": 2}}}
        talk.writer.close()


@requirement("local:greeting")
@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"foretool": 2}, "expected form 1 of the local socket, found '2'; restart it"),
        ({"foretool": None}, "expected form 1 of the local socket, found 'None'; restart it"),
        ({"wants": "money"}, "no service 'money'"),
        ({"config": "/other.json"}, f"this proxy serves the config {HERE.config}"),
        ({"profile": "docs"}, "this proxy serves the profile ''"),
    ],
)
async def test_who_cannot_be_served_is_told_why(folder: Path, change: dict[str, Any], error: str) -> None:
    async with listening(folder):
        talk = await Conversation.begin(folder)
        talk.say({**HELLO, **change}, {"id": 1, "ask": {}})
        assert await talk.hear() == {"foretool": 1, "error": error}
        assert await talk.hear() is None
        talk.writer.close()


@pytest.mark.parametrize(
    "said", [b"\n", b"[]\n", b"\xff\n", b"x" * (MOST_GREETING + 1), b"x" * (MOST_GREETING + 1) + b"\n"]
)
async def test_what_is_no_greeting_ends_the_connection(folder: Path, said: bytes) -> None:
    async with listening(folder):
        talk = await Conversation.begin(folder)
        talk.say(said)
        assert await talk.hear() is None
        talk.writer.close()
        assert await ask_in_thread(folder, {"n": 1}) == {"echo": {"n": 1}}


@pytest.mark.parametrize("said", [b"{}\n", b'{"id": "1", "ask": {}}\n', b'{"id": 1, "ask": []}\n', b"x" * 200 + b"\n"])
async def test_a_message_that_asks_nothing_or_is_too_long_ends_the_talk(folder: Path, said: bytes) -> None:
    async with listening(folder, {"hint": answering(echo, limit=100)}):
        talk = await Conversation.begin(folder)
        talk.say(HELLO)
        assert await talk.hear() is not None
        talk.say(said)
        assert await talk.hear() is None
        talk.writer.close()


async def test_who_has_gone_before_the_answer_is_heard_all_the_same(folder: Path) -> None:
    heard = list[int]()
    is_heard = asyncio.Event()

    def note(question: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
        heard.append(question["n"])
        reply({})
        is_heard.set()

    async with listening(folder, {"hint": answering(note)}):
        (name,) = names_in(folder)
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(f"/proc/self/cwd/{folder.name}/{name}")
            caller.sendall(b"".join(json.dumps(each).encode() + b"\n" for each in (HELLO, {"id": 1, "ask": {"n": 7}})))
        await asyncio.wait_for(is_heard.wait(), 10)
    assert heard == [7]


async def test_an_error_of_ours_is_answered_and_logged(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    def fail(question: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
        raise RuntimeError("secret")

    async with listening(folder, {"hint": answering(fail)}):
        talk = await Conversation.begin(folder)
        talk.say(HELLO, {"id": 1, "ask": {}})
        assert await talk.hear() is not None
        assert await talk.hear() == {"id": 1, "error": "internal error"}
        talk.writer.close()
    assert "a question on the local socket failed" in caplog.text


@requirement("local:limits")
async def test_callers_of_a_service_and_callers_in_all_are_limited(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "MOST_CALLERS", 3)
    async with listening(folder, {"hint": answering(echo, most=1)}):
        talks = [await Conversation.begin(folder) for _ in range(4)]
        talks[0].say(HELLO)
        greeting = await talks[0].hear()
        assert greeting is not None and "error" not in greeting
        talks[1].say(HELLO)
        assert await talks[1].hear() == {"foretool": 1, "error": "too many callers"}
        assert await talks[3].hear() is None
        for talk in talks:
            talk.writer.close()


@requirement("local:limits")
async def test_who_says_nothing_is_dropped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "GREETING_S", 0.01)
    async with listening(folder, {"hint": answering(echo, idle_s=0.01)}):
        silent, greeted = await Conversation.begin(folder), await Conversation.begin(folder)
        greeted.say(HELLO)
        assert await greeted.hear() is not None
        assert await silent.hear() is None
        assert await greeted.hear() is None
        for talk in (silent, greeted):
            talk.writer.close()


async def test_stopping_ends_every_talk(folder: Path) -> None:
    async with listening(folder) as server:
        talk = await Conversation.begin(folder)
        talk.say(HELLO)
        assert await talk.hear() is not None
        await server.stop()
        assert await talk.hear() is None
        talk.writer.close()
        assert names_in(folder) == []


async def test_without_a_folder_there_is_no_socket(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    server = LocalServer(HERE, STORAGE, {})
    with caplog.at_level(logging.DEBUG, "foretool.local"):
        server.start({})
        (tmp_path / "file").write_text("")
        server.start({"FORETOOL_SOCKETS": str(tmp_path / "file" / "run")})
    await server.stop()
    assert "no local socket, so the prompt hook ranks by words alone" in caplog.text
