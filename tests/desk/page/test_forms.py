"""A form changes something only if a page of ours sent it, and a viewer who may."""

from __future__ import annotations

import re
from pathlib import Path

import httpx2
import pytest
from browsing import HOME, browser, make_door
from command_fakes import write_config
from held_fakes import NEW, hold_changes, undecided

from foretool.desk.page.access import PageDoor
from foretool.server.config.loader import Config, load

pytestmark = pytest.mark.anyio


@pytest.fixture
def config(tmp_path: Path) -> Config:
    config = load(write_config(tmp_path))
    hold_changes(config)
    return config


@pytest.fixture
def door(config: Config) -> PageDoor:
    return make_door(config.path)


async def read_key(client: httpx2.AsyncClient) -> str:
    found = re.search(r'name="form_key" value="([^"]+)"', (await client.get("/review/calc")).text)
    assert found is not None
    return found[1]


async def test_a_button_of_the_page_works_and_leads_back_to_it(door: PageDoor, config: Config) -> None:
    async with browser(door) as client:
        form = {"form_key": await read_key(client), "decision": "approve", "change": NEW.hash}
        sent = await client.post("/review/calc", data=form, headers={"origin": HOME, "sec-fetch-site": "same-origin"})
        assert (sent.status_code, sent.headers["location"]) == (303, "calc?done=approved&count=1&left=0")
        assert "1 approved." in (await client.get(f"/review/{sent.headers['location']}")).text
    assert undecided(config) == {"add": "held"}


async def test_a_form_of_another_site_or_visit_changes_nothing(door: PageDoor, config: Config) -> None:
    async with browser(door) as client:
        key = await read_key(client)
        form = {"form_key": key, "decision": "approve", "change": NEW.hash}
        own = {"origin": HOME}
        attacks: list[tuple[dict[str, str], dict[str, str]]] = [
            (form, {}),
            (form, {"origin": "null"}),
            (form, {"origin": "http://evil.example"}),
            (form, {"origin": "http://127.0.0.1:9999"}),
            (form, {"origin": "http://localhost:4000"}),
            (form, {"origin": HOME + ".evil.example"}),
            (form, {"origin": "file://127.0.0.1:4000"}),
            (form, {**own, "sec-fetch-site": "same-site"}),
            (form, {**own, "sec-fetch-site": "cross-site"}),
            (form, {**own, "sec-fetch-site": "none"}),
            ({**form, "form_key": ""}, own),
            ({**form, "form_key": key[:-1]}, own),
            ({**form, "form_key": "ä"}, own),
            ({name: form[name] for name in ("decision", "change")}, own),
        ]
        for data, headers in attacks:
            answer = await client.post("/review/calc", data=data, headers=headers)
            assert answer.status_code == 403, (data, headers)
        for kind in ("text/plain", "application/json", "multipart/form-data; boundary=x"):
            answer = await client.post("/review/calc", content=f"form_key={key}", headers={**own, "content-type": kind})
            assert answer.status_code == 403, kind
    assert undecided(config) == {"add": "held", "sub": "held"}


async def test_a_form_without_a_cookie_is_not_even_read(door: PageDoor, config: Config) -> None:
    async with browser(door) as client:
        key = await read_key(client)
    async with browser(door, opened=False) as stranger:
        form = {"form_key": key, "decision": "approve", "change": NEW.hash}
        answer = await stranger.post(f"{door.place}/review/calc", data=form, headers={"origin": HOME})
        assert answer.status_code == 401
    assert undecided(config) == {"add": "held", "sub": "held"}


async def test_a_get_never_decides(door: PageDoor, config: Config) -> None:
    async with browser(door) as client:
        key = await read_key(client)
        address = f"/review/calc?form_key={key}&decision=approve&change={NEW.hash}"
        assert (await client.get(address)).status_code == 200
    assert undecided(config) == {"add": "held", "sub": "held"}


async def test_forms_are_read_within_limits(door: PageDoor) -> None:
    async with browser(door) as client:
        key = await read_key(client)
        kind = {"origin": HOME, "content-type": "application/x-www-form-urlencoded"}
        for body in ("x" * 300_000, "a=1&" * 5000, "form_key=%ff%fe", "form_key=\xe4"):
            answer = await client.post("/review/calc", content=body.encode(), headers=kind)
            assert answer.status_code == 403
        assert key
