"""A missed tool is fixed by button, and the change is taken back by button."""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path

import pytest
from browsing import HOME, browser, make_door
from command_fakes import WEATHER, fill, write_config
from msgspec.structs import replace
from stored_records import MISS

from foretool.desk.page import fixing
from foretool.desk.page.access import FormError
from foretool.server.config.loader import load
from foretool.server.ledger.fixes import Fix, Kind
from foretool.storage.records import Call

pytestmark = pytest.mark.anyio

MOON = "sky__moon"


def record(path: Path) -> Path:
    """Number 2 is of a tool that the list lacks."""
    missed = replace(MISS, tool=MOON, at=time.time(), noticed="call", cause="rank", query="", call=0)
    with fill(path) as store:
        store.calls.record([Call("s1", time.time(), WEATHER, "sky", "name", True, "ok", 1.0, True, "")], [missed])
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return record(write_config(tmp_path))


def test_each_change_shows_what_it_writes_and_no_secret(tmp_path: Path) -> None:
    secret = "sk-live-0123456789abcdef"
    path = write_config(tmp_path, {"calc": {"command": "calc", "env": {"TOKEN": secret}}, "sky": {"command": "sky"}})
    page = fixing.read_fixes(load(record(path)), 2, None, fixing.Diagnoses())
    assert page is not None and not page.is_trying and page.listed_now is False
    pin = next(each for each in page.fixes if each.fix.kind == "pin")
    assert any(MOON in line.plain for line in pin.lines)
    assert pin.measured is not None and pin.measured.spares_nothing and not pin.is_advised, "the page says so at once"
    assert secret not in repr([line.plain for each in page.fixes for line in each.lines])
    assert len({each.key for each in page.fixes}) == len(page.fixes)
    assert fixing.read_fixes(load(path), 9, None, fixing.Diagnoses()) is None


def test_the_change_is_made_in_the_users_file_and_taken_back(path: Path) -> None:
    before = path.read_text()
    page = fixing.read_fixes(load(path), 2, None, fixing.Diagnoses())
    assert page is not None
    pin = next(each for each in page.fixes if each.fix.kind == "pin")
    assert fixing.make_fix(load(path), 2, pin.key) == pin.fix.what
    assert load(path).settings.pin == (MOON,)
    with pytest.raises(FormError, match="does not apply any more"):
        fixing.make_fix(load(path), 2, pin.key)
    assert str(path) in fixing.take_edit_back(load(path))
    assert path.read_text() == before
    with pytest.raises(FormError, match="nothing to take back"):
        fixing.take_edit_back(load(path))


def test_what_was_found_is_kept_for_a_while_and_not_after_a_change_of_the_config(path: Path) -> None:
    now = [0.0]
    diagnoses = fixing.Diagnoses(lambda: now[0])
    first = diagnoses.read(load(path), 2)
    assert first is not None and diagnoses.read(load(path), 2) is first
    now[0] = fixing.KEPT_S + 1
    again = diagnoses.read(load(path), 2)
    assert again == first and again is not first
    path.write_text(path.read_text().replace('"foretool": {', '"foretool": {"pin": ["sky__moon"], ', 1))
    changed = diagnoses.read(load(path), 2)
    assert changed is not None and changed.diagnosis.listed_now and not first.diagnosis.listed_now


def test_a_form_names_a_change_of_this_miss_alone(path: Path) -> None:
    before = path.read_text()
    for key in ("", "0" * 16, "pin", "../../x"):
        with pytest.raises(FormError):
            fixing.make_fix(load(path), 2, key)
        with pytest.raises(FormError):
            fixing.make_fix(load(path), 99, key)
    assert path.read_text() == before


async def test_from_the_overview_a_miss_is_fixed_in_two_clicks(path: Path) -> None:
    async with browser(make_door(path)) as client:
        overview = (await client.get("/")).text
        link = re.search(r'href="\./(misses/\d+)"', overview)
        assert link is not None
        shown = (await client.get(f"/{link[1]}")).text
        key = re.search(r'name="form_key" value="([^"]+)"', shown)
        fix = re.search(r'name="fix" value="(\w+)"', shown)
        assert key is not None and fix is not None
        form = {"form_key": key[1], "fix": fix[1]}
        refused = await client.post(f"/{link[1]}/fix", data={**form, "form_key": "x"}, headers={"origin": HOME})
        assert refused.status_code == 403 and load(path).settings.pin == ()
        sent = await client.post(f"/{link[1]}/fix", data=form, headers={"origin": HOME})
        assert sent.status_code == 303 and sent.headers["location"].startswith("../2?note=")
        after = (await client.get(f"/misses/{sent.headers['location'][3:]}")).text
        assert "Done: pin sky__moon" in after and "sky__moon is in the next list; nothing has to change" in after
        undone = await client.post(f"/{link[1]}/undo", data=form, headers={"origin": HOME})
        assert undone.status_code == 303 and load(path).settings.pin == ()
        forged = (await client.get("/misses/2?note=Done<b>")).text
        assert "Running proxies take this up" not in forged


@pytest.mark.slow  # plays the tasks in a process, as the page does
async def test_each_change_is_tried_on_the_tasks_on_record(path: Path) -> None:
    async with browser(make_door(path)) as client:
        key = re.search(r'name="form_key" value="([^"]+)"', (await client.get("/misses/2")).text)
        assert key is not None
        sent = await client.post("/misses/2/try", data={"form_key": key[1]}, headers={"origin": HOME})
        assert sent.headers["location"] == "../2?work=1"
        async with asyncio.timeout(100):
            while "Trying each change" in (shown := (await client.get("/misses/2?work=1")).text):
                await asyncio.sleep(0.2)
        assert "It would have spared no miss and no search in 1 task." in shown
        assert "Try each change" not in shown


def test_the_page_advises_what_the_command_makes_unasked() -> None:
    kinds: tuple[Kind, ...] = ("pin", "budget", "rule", "enable", "profile", "approve")
    shown = [fixing.ShownFix(Fix(kind, kind), kind, (), None) for kind in kinds]
    assert [each.key for each in shown if each.is_advised] == ["pin", "budget"]
    doubtful = fixing.ShownFix(Fix("description", "say what it is for", is_doubtful=True), "d", (), None)
    assert not doubtful.is_advised
