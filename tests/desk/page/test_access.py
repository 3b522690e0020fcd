"""Who gets in: the link once, this machine's names alone, reading alone, and nobody else's port."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browsing import HOME, browser, make_door
from command_fakes import fill, write_config
from msgspec import convert
from msgspec.structs import replace
from starlette.requests import Request

from foretool.desk.page.access import COOKIE, PageDoor
from foretool.desk.page.viewers import VIEWER, Viewer, admits, viewer_of
from foretool.server.config.loader import load
from foretool.server.config.settings import PerUserEntry

pytestmark = pytest.mark.anyio


@pytest.fixture
def door(tmp_path: Path) -> PageDoor:
    path = write_config(tmp_path)
    fill(path).close()
    return make_door(path)


async def test_the_link_opens_the_page_once(door: PageDoor) -> None:
    async with browser(door, opened=False) as first, browser(door, opened=False) as second:
        opened = await first.get(door.link)
        assert opened.status_code == 200
        assert (await first.get(door.place + "/")).status_code == 200
        again = await second.get(door.link)
        assert again.status_code == 403 and "used already" in again.text
        assert (await second.get(door.place + "/")).status_code == 401
        assert (await first.get(door.place + "/")).status_code == 200


async def test_a_wrong_key_does_not_use_the_link_up(door: PageDoor) -> None:
    async with browser(door, opened=False) as client:
        for key in ("", "?key=", "?key=None", "?key=ä"):
            assert (await client.get(f"{door.place}/open{key}")).status_code == 403
        assert (await client.get(door.link)).status_code == 200
        assert (await client.get(f"{door.place}/open?key=None")).status_code == 403


async def test_the_link_ends_after_five_minutes(tmp_path: Path) -> None:
    now = [0.0]
    door = make_door(write_config(tmp_path), lambda: now[0])
    now[0] = 301.0
    async with browser(door, opened=False) as client:
        assert (await client.get(door.link)).status_code == 403


async def test_only_our_own_cookie_lets_in(door: PageDoor) -> None:
    async with browser(door, opened=False) as client:
        for cookie in ("", COOKIE, f"{COOKIE}=", f"{COOKIE}=None", f"{COOKIE}=ä", "=", 'a="'):
            answer = await client.get(door.place + "/", headers={"cookie": cookie.encode()})
            assert answer.status_code == 401
        for path in ("/", "/misses", "/static/page.css", "/..", "//", door.place[:-1] + "/"):
            assert (await client.get(path)).status_code == 401


async def test_the_cookie_is_for_this_path_and_no_script(door: PageDoor) -> None:
    async with browser(door, opened=False) as client:
        written = (await client.get(door.link)).headers["set-cookie"]
    assert f"Path={door.place}/;" in written
    assert "HttpOnly" in written and "SameSite=strict" in written and "Domain" not in written
    assert len(door.place) >= 16


async def test_another_name_of_this_address_is_refused(door: PageDoor) -> None:
    """DNS rebinding: a page of evil.example whose name now leads to 127.0.0.1."""
    async with browser(door) as client:
        for host in ("evil.example", "evil.example:4000", "127.0.0.1.evil.example", "0.0.0.0", ""):
            answer = await client.get("/", headers={"host": host})
            assert answer.status_code == 421, host
        for path in (door.place + "/", door.link):
            assert (await client.get(HOME + path, headers={"origin": "http://evil.example"})).status_code == 403


async def test_another_site_can_neither_write_nor_frame_nor_read(door: PageDoor) -> None:
    async with browser(door) as client:
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert (await client.request(method, "/")).status_code == 405
        for site in ("cross-site", "same-site"):
            assert (await client.get("/", headers={"sec-fetch-site": site})).status_code == 403
        answer = await client.get("/")
        assert answer.status_code == 200
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert "access-control-allow-origin" not in answer.headers


async def test_every_answer_has_the_headers_and_asks_nobody_else(door: PageDoor) -> None:
    async with browser(door) as client:
        for path in (
            "/",
            "/misses",
            "/misses/1",
            "/tools",
            "/tools/calc__add",
            "/sessions",
            "/sessions/s1",
            "/review",
            "/review/calc",
            "/settings",
            "/nowhere",
            "/static/page.css",
        ):
            answer = await client.get(path)
            assert answer.headers["referrer-policy"] == "same-origin"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            assert re.findall(r"""(?:src|href|action|hx-get)="(?:[a-z]+:|//)""", answer.text) == []


async def test_files_beside_the_page_are_not_served(door: PageDoor) -> None:
    async with browser(door) as client:
        for path in (
            "/static/../access.py",
            "/static/%2e%2e/access.py",
            "/static/..%2faccess.py",
            "/static//etc/passwd",
        ):
            answer = await client.get(HOME + door.place + path)
            assert answer.status_code in (401, 404), path


def test_a_profile_admits_its_servers_alone(tmp_path: Path) -> None:
    config = load(write_config(tmp_path, profiles={"work": {"servers": ["calc"]}}))
    assert [admits(config, Viewer("key", "work"), name) for name in ("calc", "sky")] == [True, False]
    assert admits(config, Viewer("key"), "sky") and admits(config, Viewer("key", ""), "sky")
    assert not admits(config, Viewer("key", "gone"), "calc")


def test_what_a_server_lists_to_each_person_alone_is_shown_to_nobody_with_one_profile(tmp_path: Path) -> None:
    per_user = {"token_endpoint": "https://login.example/token", "client_id": "a", "client_secret": "s3cret-word"}
    config = load(write_config(tmp_path, profiles={"work": {"servers": ["*"]}}))
    mail = config.servers["calc"]
    entry = convert(per_user, PerUserEntry)
    config = replace(config, servers={**config.servers, "calc": replace(mail, per_user=entry)})
    assert [admits(config, Viewer("key", "work"), name) for name in ("calc", "sky")] == [False, True]
    assert admits(config, Viewer("key"), "calc")


def test_a_request_that_nobody_let_in_has_no_viewer() -> None:
    scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
    with pytest.raises(KeyError):
        viewer_of(Request(scope))
    assert viewer_of(Request({**scope, VIEWER: Viewer("key")})).sees_all
