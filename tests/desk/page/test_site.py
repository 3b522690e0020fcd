"""The pages as a browser gets them; hostile texts stay texts."""

from __future__ import annotations

import json
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browsing import browser, make_door
from command_fakes import fill, remember, write_config
from msgspec.structs import replace

from foretool.desk.page import history
from foretool.server.config.loader import load
from foretool.server.trust.approvals import hash_value
from foretool.storage.opening import open_store
from foretool.storage.records import (
    Call,
    Definition,
    Discovery,
    Exposure,
    Match,
    Miss,
    MissFilter,
    SessionRecord,
    ToolId,
)
from foretool.storage.steps import finish

pytestmark = pytest.mark.anyio

XSS = """"'><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7*7 }}\u202e\U000e0041"""
PATHS = (
    "/", "/misses", "/misses/1", "/tools", "/tools/calc__add", "/sessions", "/sessions/s1", "/review/calc",
    "/settings",
)  # fmt: skip


class Reader(HTMLParser):
    """Collects elements and attributes as a browser would see them, and what is left open."""

    VOID = frozenset({"meta", "link", "br", "input", "rect", "line", "circle"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes |= {name for name, _ in attributes}
        self.ids += [value or "" for name, value in attributes if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def hostile(tmp_path: Path) -> Path:
    """A store in which every text that somebody else writes is an attack."""
    path = write_config(tmp_path, {"calc": {"command": "calc", "description": XSS}, XSS: {"command": XSS}})
    config = load(path)
    with open_store(config.storage) as store:
        remember(config, store, "calc", {"add": XSS})
        store.sessions.begin(SessionRecord("s", XSS, XSS, "legacy", "stdio", XSS, 100.0))
        exposure = store.sessions.add_exposure(Exposure("s", 101.0, "frozen", 1, (ToolId(XSS),), 3, "list"))
        match = Match(ToolId(XSS), 1, 1.0, {XSS: 1.0})
        found = store.discoveries.add(Discovery("s", 102.0, XSS, (), None, "high", (match,), 8, 1.0))
        call = Call("s", 103.0, ToolId(XSS), XSS, "name", True, "ok", 1.0, True, XSS, found)
        miss = Miss(
            "s", 103.0, XSS, "discovery", "budget", 1, 3, XSS, (ToolId(XSS),), exposure, found, XSS, "no", 1, 1,
            {XSS: 1.0}, call=1,
        )  # fmt: skip
        store.calls.record([call], [miss])
        store.flows.add({(ToolId("calc__add"), ToolId(XSS), XSS, XSS): 3}, 104.0)
        held = json.dumps({"name": XSS, "description": XSS, "inputSchema": {"type": "object", XSS: XSS}}).encode()
        finish(store.approvals.add_first([Definition("calc", "launch", "", "f", b"{}", "approved")]))
        finish(
            store.approvals.hold(
                "calc", ["tool"], [Definition("calc", "tool", XSS, hash_value(held), held, version=XSS)]
            )
        )
        store.artifacts.add(XSS, b"x", {"old": {"mrr": 0.1}, "new": {"mrr": 0.2}}, promote=True)
    return path


async def test_every_page_is_whole_html_with_one_heading_and_no_id_twice(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    async with browser(make_door(path)) as client:
        for address in PATHS:
            answer = await client.get(address)
            assert answer.status_code == 200, address
            read = Reader(answer.text)
            assert read.open == []
            assert read.elements.count("h1") == read.elements.count("main") == 1
            assert len(read.ids) == len(set(read.ids))
            assert "style" not in read.attributes


async def test_texts_of_others_never_become_markup(tmp_path: Path) -> None:
    async with browser(make_door(hostile(tmp_path))) as client:
        for address in (*PATHS, f"/misses?tool={XSS}&server={XSS}", f"/tools?text={XSS}", f"/tools/{XSS}", f"/{XSS}"):
            answer = await client.get(address)
            assert answer.status_code in (200, 404)
            read = Reader(answer.text)
            assert read.elements.count("script") == 2, address
            assert "img" not in read.elements
            assert not any(name.startswith("on") for name in read.attributes)
            assert "49" not in re.findall(r"&gt;(\d+)", answer.text)
            assert "\u202e" not in answer.text and "\U000e0041" not in answer.text
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in (await client.get("/misses/1")).text


async def test_a_miss_is_reached_from_the_overview_and_says_what_helps(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    async with browser(make_door(path)) as client:
        listed = (await client.get("/misses")).text
        assert 'href="./misses/1"' in listed
        shown = (await client.get("/misses/1")).text
        assert "pin sky__forecast" in shown and "weather in Paris" in shown
        for missing in ("/misses/2", "/misses/99999999999999999999", "/tools/none", "/x/y"):
            answer = await client.get(missing)
            assert answer.status_code == 404 and "Not here" in answer.text
            assert (
                "../" * (missing.count("/") - 1) + ("static" if missing.count("/") > 1 else "./static") in answer.text
            )


async def test_empty_pages_say_when_they_will_fill(tmp_path: Path) -> None:
    async with browser(make_door(write_config(tmp_path))) as client:
        for address in ("/", "/misses", "/tools", "/sessions", "/settings"):
            assert "This fills " in (await client.get(address)).text, address
        assert "This fills " not in (await client.get("/misses?server=calc")).text


async def test_older_misses_are_reached(tmp_path: Path) -> None:
    path, more = write_config(tmp_path), history.MOST_MISSES + 2
    with fill(path) as store:
        (first,) = store.calls.find_misses(MissFilter(), 1)
        store.calls.record([], [replace(first, at=200.0 + number, call=0) for number in range(more)])
    async with browser(make_door(path)) as client:
        shown = (await client.get("/misses?cause=budget")).text
        (older,) = re.findall(r'href="./(misses\?[^"]+)">Older', shown)
        assert "cause=budget" in older
        rest = (await client.get(unescape(older))).text
    numbers = [re.findall(r'misses/(\d+)"', page) for page in (shown, rest)]
    assert len(numbers[0]) == history.MOST_MISSES and len({*numbers[0], *numbers[1]}) == more + 1
    assert "Older misses" not in rest


async def test_a_changed_config_is_shown_at_the_next_request(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    async with browser(make_door(path)) as client:
        assert "calc__add" in (await client.get("/tools")).text
        write_config(tmp_path, {"sky": {"command": "sky"}})
        assert "calc__add" not in (await client.get("/tools")).text
        path.write_text("{")
        assert (await client.get("/tools")).status_code == 200


async def test_a_damaged_storage_file_is_said_in_one_page(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    (tmp_path / "foretool.sqlite3").write_bytes(b"not a database" * 100)
    async with browser(make_door(path)) as client:
        answer: Any = await client.get("/misses")
        assert answer.status_code == 503 and "foretool.sqlite3" in answer.text
