"""The page behind a real `foretool serve --http`: a process of its own, which ends with the proxy."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from command_fakes import fill, write_config
from held_fakes import NEW, hold_changes, undecided

from foretool.desk.page import process
from foretool.desk.page.process import PageProcess
from foretool.server.config.loader import load
from foretool.server.protocol import versions
from foretool.server.protocol.headers import Headers
from foretool.storage.opening import open_existing_store
from foretool.storage.records import Miss, SessionRecord

pytestmark = pytest.mark.slow  # a proxy and the process of its page

OWNER, CLERK = "kD93-xV27-qPz8-Lm41-Wt6r", "Zr58-bN60-hJc2-Yf97-Qs3u"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    tokens = [
        {"name": "owner", "token": OWNER, "profiles": ["*"], "may_decide": True},
        {"name": "clerk", "token": CLERK, "profiles": ["work"]},
    ]
    path = write_config(tmp_path, tokens=tokens, profiles={"work": {"servers": ["calc"]}}, bind="127.0.0.1:0")
    with fill(path) as store:
        store.sessions.begin(SessionRecord("s2", "codex", "1", "modern", "http", "work", 200.0))
    hold_changes(load(path))
    return path


@pytest.fixture
def home(config: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "foretool", "serve", "--http", "--config", str(config)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        found = next(filter(None, (re.search(r"http://127\.0\.0\.1:\d+", line) for line in running.stderr)))
        yield found[0]
        running.send_signal(signal.SIGTERM)
        running.stderr.read()


def children_named(word: str) -> list[int]:
    """Processes of ours whose command line has a word."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if word.encode() in line:
            found.append(int(entry.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_the_owner_reads_and_decides_and_the_clerk_sees_one_profile(config: Path, home: str) -> None:
    assert children_named(str(config) + "\0") and not [pid for pid in children_named("--behind") if _is_of(pid, config)]
    with httpx2.Client(base_url=home, follow_redirects=True, timeout=60, headers={"origin": home}) as owner:
        assert owner.get("/ui").status_code == 401
        opened = owner.post("/ui/open", data={"token": OWNER})
        everything = opened.url.path.rstrip("/")
        assert opened.status_code == 200 and "<h1>Overview of the last 14 days</h1>" in opened.text
        (page,) = [pid for pid in children_named("--behind") if _is_of(pid, config)]
        assert "budget" in owner.get(f"{everything}/misses/1").text
        shown = owner.get(f"{everything}/review/calc").text
        key = re.search(r'name="form_key" value="([^"]+)"', shown)
        assert key is not None
        form = {"form_key": key[1], "decision": "approve", "change": NEW.hash}
        assert "1 approved." in owner.post(f"{everything}/review/calc", data=form).text
        assert undecided(load(config)) == {"add": "held"}
        assert owner.get(f"{everything}/static/page.css").headers["content-type"].startswith("text/css")
        with owner.stream("GET", f"{everything}/events") as events:
            assert next(events.iter_lines()) == "retry: 5000"
    with httpx2.Client(base_url=home, follow_redirects=True, timeout=60, headers={"origin": home}) as clerk:
        let_in = clerk.post("/ui/open", data={"token": CLERK})
        overview, place = let_in.text, let_in.url.path.rstrip("/")
        assert "Only the profile work is shown" in overview and "sky" not in overview
        assert clerk.get(f"{place}/misses").text.count("/misses/1") == 0
        for path in (
            "misses/1",
            "tools/sky__forecast",
            "sessions/s1",
            "review",
            "review/calc",
        ):
            assert clerk.get(f"{place}/{path}").status_code == 404, path
        assert clerk.get(f"{place}/sessions/s2").status_code == 200
        settings = clerk.get(f"{place}/settings").text
        assert "mcp.json" not in settings and "foretool.sqlite3" not in settings
        form |= {"decision": "block"}
        assert clerk.post(f"{place}/review/calc", data=form).status_code == 403
        assert clerk.post(f"{place.removesuffix('/profile/work')}/all/review/calc", data=form).status_code == 404
        assert undecided(load(config)) == {"add": "held"}
    os.kill(page, signal.SIGKILL)
    with httpx2.Client(base_url=home, timeout=60, headers={"authorization": f"Bearer {OWNER}"}) as again:
        until = time.monotonic() + 30
        while (
            again.get("/ui/all/settings").status_code != 200
        ):  # the killed process is noticed, and another one started
            assert time.monotonic() < until
        assert again.get("/mcp").status_code in (400, 404, 405, 406)


@pytest.mark.anyio
async def test_a_page_that_nobody_looks_at_ends_and_comes_back(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "IDLE_S", 0.2)
    page = PageProcess(["--config", str(config)])
    viewer = {"form_key": "k", "profile": None, "may_decide": False}

    async def visit() -> int:
        said: list[dict[str, Any]] = []
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(event: dict[str, Any]) -> None:
            said.append(event)

        await page.forward("GET", "/settings", b"", Headers([]), viewer, b"", receive, send)
        assert said[0]["status"] == 200 and page.pid is not None
        return page.pid

    try:
        async with asyncio.timeout(60):
            first = await visit()
            while page.pid is not None:
                await asyncio.sleep(0.05)
            assert await visit() != first
            # Two at once, as the first has just ended, get one process.
            while page.pid is not None:
                await asyncio.sleep(0.05)
            assert len({*await asyncio.gather(visit(), visit())}) == 1
    finally:
        await page.close()
    assert page.pid is None


def _is_of(pid: int, config: Path) -> bool:
    try:
        return str(config).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_a_tool_of_another_profile_looks_on_the_page_like_one_that_exists_nowhere(config: Path, home: str) -> None:
    """Called by name and through the bridge, and searched for by name: whoever could tell the two apart could ask for
    any name and learn what other profiles have."""

    def ask(http: httpx2.Client, number: int, tool: str, arguments: dict[str, Any]) -> str:
        meta = {versions.META_VERSION: versions.LATEST_MODERN, versions.META_CAPABILITIES: {},
                versions.META_CLIENT_INFO: {"name": f"client{number}", "version": "1"}}  # fmt: skip
        params = {"name": tool, "arguments": arguments, "_meta": meta}
        headers = {"mcp-protocol-version": versions.LATEST_MODERN, "mcp-method": "tools/call", "mcp-name": tool,
                   "accept": "application/json, text/event-stream", "authorization": f"Bearer {CLERK}"}  # fmt: skip
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        return http.post("/mcp/work", json=body, headers=headers).text

    with httpx2.Client(base_url=home, follow_redirects=True, timeout=60) as http:
        for at, name in enumerate(("sky__forecast", "elsewhere__x")):
            for _ in range(2):
                ask(http, at, name, {})
                ask(http, at, "call_tool", {"name": name, "arguments": {}})
                ask(http, at, "discover_tools", {"names": [name]})
        place = http.post("/ui/open", data={"token": CLERK}, headers={"origin": home}).url.path.rstrip("/")
        pages = [http.get(f"{place}/{path}").text for path in ("", "misses", "misses?cause=denied", "sessions")]
        misses = re.findall(r"misses/(\d+)", pages[1])
        told = [http.get(f"{place}/misses/{number}").text for number in misses]
        of_server = http.get(f"{place}/misses?server=sky").text
    for each in told:
        assert "does not have its server" not in each and "servers of" not in each
        assert "one of 2 ranked" not in each
    hidden, unknown = (sum(f"{name}" in each for each in told) for name in ("sky__forecast", "elsewhere__x"))
    assert hidden == unknown > 0
    assert "<h2>0 misses</h2>" in of_server and "<h2>0 misses</h2>" in pages[2]
    kept = [(each.noticed, each.cause) for each in read_misses(config) if each.tool == "sky__forecast"]
    assert ("unknown_name", "denied") in kept, "the owner still reads why"


def read_misses(config: Path) -> list[Miss]:
    with open_existing_store(load(config).storage) as store:
        return store.calls.misses()
