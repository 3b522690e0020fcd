"""The form of a replay: what it asks for is checked before anything runs."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import msgspec
import pytest
from browsing import HOME, browser, make_door
from command_fakes import fill, write_config

from foretool.desk.page.access import FormError
from foretool.desk.page.background import BackgroundCommand
from foretool.desk.page.replays import PrintedReplay, read_replay, replay_arguments
from foretool.desk.replay.effect import Recorded, compare_tasks
from foretool.server.config.loader import load

pytestmark = pytest.mark.anyio


def test_fields_become_changes_and_nothing_else(tmp_path: Path) -> None:
    config = load(write_config(tmp_path))
    form = {
        "list_tokens": ["900"], "policy": [""], "pin": ["calc__add, sky__moon"], "since": ["--version"],
        "more": ["servers.sky.disabled=true\n\n answer_tokens=10 "],
    }  # fmt: skip
    assert replay_arguments(config, form) == (
        "replay", "--json", f"--config={config.path}", "--since=7d", "--tasks=1000", "--set=list_tokens=900",
        "--set=pin+=calc__add", "--set=pin+=sky__moon", "--set=servers.sky.disabled=true", "--set=answer_tokens=10",
    )  # fmt: skip


def test_a_change_that_decides_nothing_is_refused_in_words(tmp_path: Path) -> None:
    config = load(write_config(tmp_path))
    for more in ("--help", "storage=/tmp/x", "servers.calc.command=rm", "token=x", "x"):
        with pytest.raises(FormError):
            replay_arguments(config, {"more": [more]})
    with pytest.raises(FormError, match="at most"):
        replay_arguments(config, {"more": ["list_tokens=1\n" * 30]})


def test_the_answer_of_the_command_is_read() -> None:
    printed = msgspec.json.encode(PrintedReplay(("list_tokens=1",), "same", Recorded(0.1, 0.2), compare_tasks([], [])))
    page = read_replay(BackgroundCommand(("replay",), time.monotonic(), printed))
    assert page.answer is not None and page.answer.changes == ("list_tokens=1",)
    assert read_replay(BackgroundCommand(("replay",), time.monotonic())).answer is None


@pytest.mark.slow  # plays the tasks in a process, as the page does
async def test_a_replay_is_asked_for_and_its_answer_shown(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    async with browser(make_door(path)) as client:
        key = re.search(r'name="form_key" value="([^"]+)"', (await client.get("/settings")).text)
        assert key is not None
        form = {"form_key": key[1], "list_tokens": "900", "since": "90d"}
        sent = await client.post("/replay", data=form, headers={"origin": HOME})
        assert (sent.status_code, sent.headers["location"]) == (303, "settings?work=1")
        async with asyncio.timeout(100):
            while "Playing the tasks again" in (shown := (await client.get("/settings?work=1")).text):
                await asyncio.sleep(0.2)
        # The tasks of the recorded week are older than 90 days, and the page says so in the words of the command.
        assert "no task of this time is on record" in shown
        for odd in ("work=0", "work=2", "work=x", "work=99999999999999"):
            assert "Playing" not in (await client.get(f"/settings?{odd}")).text
