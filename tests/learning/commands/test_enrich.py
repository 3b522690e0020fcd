"""`foretool enrich`: what is said before, what is sent, what is shown, and taking it back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from chat_fakes import ChatServer, chat_server, wishes
from command_fakes import definition, fill, write_config

from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.storage.opening import open_store
from foretool.storage.records import Definition
from foretool.storage.steps import finish


def configure(folder: Path, server: ChatServer, **more: object) -> Path:
    servers = {"calc": {"command": "calc"}, "sky": {"command": "sky", "deny": ["moon"]}}
    path = write_config(folder, servers, enrich={"url": server.url, "model": "tiny"}, **more)
    fill(path).close()
    return path


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server(lambda text: wishes("sum up my shopping") if "calc" in text else wishes("do I need a coat")) as it:
        yield it


def test_cost_and_address_are_said_and_nothing_is_sent_without_consent(
    tmp_path: Path, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    path = configure(tmp_path, server)
    assert run(["enrich", "--dry-run", "--config", str(path)]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert server.url in out and "(this machine)" in out and "a guess" in out and "nothing of your tasks" in out
    assert run(["enrich", "--config", str(path)]) == 2
    assert "add --yes" in capsys.readouterr().err and server.asked == []
    assert run(["enrich", "--dry-run", "--json", "--config", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["outcome"] is None and told["estimate"]["tools"] >= 2


def test_wordings_are_kept_shown_as_those_of_the_model_and_deleted(
    tmp_path: Path, server: ChatServer, capsys: pytest.CaptureFixture[str]
) -> None:
    path = configure(tmp_path, server)
    assert run(["enrich", "--yes", "--config", str(path)]) == 0
    out = capsys.readouterr().out
    assert "got wordings" in out and "got no answer" not in out and "enrich --show" in out
    assert run(["enrich", "--yes", "--config", str(path)]) == 0
    assert "Nothing to ask" in capsys.readouterr().out
    assert run(["enrich", "--show", "--config", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "sum up my shopping" in shown and "tiny" in shown
    assert run(["search", "coat", "--tool", "sky__forecast", "--json", "--config", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["asked"]["rank"] == 1 and "wordings made by tiny, not by the server" in json.dumps(told)
    assert "coat" not in json.dumps([each.get("definition", "") for each in told["matches"]])
    assert run(["enrich", "--remove", "--server", "sky", "--config", str(path)]) == 0
    assert "1 wording deleted" in capsys.readouterr().out
    assert run(["search", "coat", "--tool", "sky__forecast", "--json", "--config", str(path)]) == 0
    assert json.loads(capsys.readouterr().out)["asked"]["rank"] == 0


def test_definitions_held_for_review_and_denied_tools_are_not_sent(tmp_path: Path, server: ChatServer) -> None:
    path = configure(tmp_path, server)
    config = load(path)
    held = Definition("calc", "tool", "wipe", "calc__wipe", "h", definition("wipe", "Wipes it all."), "held", 1.0)
    with open_store(config.storage) as store:
        finish(store.approvals.hold("calc", ["tool"], [held]))
    assert run(["enrich", "--yes", "--config", str(path)]) == 0
    assert server.sent and not any("wipe" in text.lower() or "moon" in text for text in server.sent)


def test_what_is_missing_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    assert run(["enrich", "--config", str(path)]) == 1
    said = capsys.readouterr().err
    assert '"enrich": {"url"' in said and "Traceback" not in said
    assert run(["enrich", "--show", "--config", str(path)]) == 1
    assert run(["enrich", "--server", "nobody", "--config", str(path)]) == 1
    capsys.readouterr()
    for entry, said in (
        ({"url": "ollama", "model": "m"}, "foretool.enrich.url: expected the address"),
        ({"url": "${HOME}", "model": "m"}, "found '${HOME}'"),
        ({"url": "http://127.0.0.1:1"}, "foretool.enrich.model: expected the name"),
        ({"urls": "x"}, "foretool.enrich.urls"),
    ):
        path = write_config(tmp_path, enrich=entry)
        assert run(["enrich", "--config", str(path)]) == 2
        assert said in capsys.readouterr().err


def test_nobody_at_the_address_is_one_line_and_a_wrong_exit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with chat_server(lambda text: "", *[(401, b"who are you")] * 9) as refusing:
        path = configure(tmp_path, refusing)
        assert run(["enrich", "--yes", "--config", str(path)]) == 1
    out, error = capsys.readouterr()
    assert "enrich.key" in error and "Traceback" not in error
    assert "0 got wordings, " in out and " got no answer; " in out and "can be used" not in out and "--show" not in out


def _heed_interrupts() -> None:
    """As in a terminal: what runs in the background of a script is started deaf to them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_a_run_that_is_ended_goes_on_where_it_was(tmp_path: Path, end: signal.Signals) -> None:
    stop = Event()
    answered: list[str] = []

    def answer(text: str) -> str:
        if len(answered) >= 1 and not stop.is_set():
            stop.wait(60)
        answered.append(text)
        return wishes("do a thing")

    with chat_server(answer) as server:
        path = configure(tmp_path, server)
        command = [sys.executable, "-m", "foretool", "enrich", "--yes", "--config", str(path)]
        child = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ, preexec_fn=_heed_interrupts
        )
        until = time.monotonic() + 60
        kept = 0
        while not kept and time.monotonic() < until:
            time.sleep(0.05)
            with open_store(load(path).storage) as store:
                kept = len(store.wordings.all())
        assert kept == 1
        child.send_signal(end)
        out, _ = child.communicate(timeout=60)
        assert b"Traceback" not in out
        stop.set()
        asked = len(answered)
        assert run(["enrich", "--yes", "--config", str(path)]) == 0
        with open_store(load(path).storage) as store:
            total = len(store.wordings.all())
        assert total > 1 and store is not None and len(answered) >= asked
