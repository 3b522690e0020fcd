"""The page as a person uses it, in headless Chromium over a recorded week.

Each address is also looked at by axe-core (WCAG 2.2 AA), in light and dark and at the width of a phone. Where no
Chromium or no Playwright is, these tests are skipped and say so. With FORETOOL_SCREENSHOTS=1 the pictures of
`docs/page.md` come from this run.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from recorded_week import BUDGET, CHANGED, record_week

from foretool.server.config.loader import load
from foretool.storage.opening import open_existing_store

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

CHROMIUM: Final = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PICTURES: Final = Path(__file__).parents[3] / "docs" / "pictures"
TAGS: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
PATHS: Final = (
    "/", "/?days=30", "/misses", "/tools", "/tools?server=my-mail", "/tools/my-mail__read_message", "/sessions",
    "/review/my-mail", "/settings",
)  # fmt: skip

pytestmark = [
    pytest.mark.slow,  # a browser, a proxy and a recorded week
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH; on Debian: apt install chromium"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # pipes of the browser's driver
]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_week(tmp_path_factory.mktemp("week"))


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    with api.sync_playwright() as driver:
        # The sandbox of Chromium needs rights that containers rarely give; the page under test is our own.
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Visit:
    """One browser with the page open. Collects every error, and every request to anything but the page."""

    def __init__(self, browser: Browser, home: str, **options: Any) -> None:
        self.home = home
        self.problems: list[str] = []
        self.context = browser.new_context(**options)
        self.context.on("request", self._look)
        self.context.on("weberror", lambda error: self.problems.append(f"error: {error.error}"))
        self.context.on("console", self._hear)
        self.page: Page = self.context.new_page()

    def _look(self, request: Any) -> None:
        if not request.url.startswith(self.home):
            self.problems.append(f"request to {request.url}")

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"console: {message.text}")

    def go(self, path: str) -> Page:
        self.page.goto(self.home + path)
        return self.page


@pytest.fixture
def link(config: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "foretool", "page", "--config", str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        yield running.stdout.readline().strip()
        running.terminate()


def open_page(browser: Browser, link: str, **options: Any) -> Visit:
    """Follow the one-time link."""
    visit = Visit(browser, link.rpartition("/open?")[0], **options)
    visit.page.goto(link)
    visit.page.wait_for_url(f"{visit.home}/")
    return visit


def press(locator: Locator) -> None:
    """Click what leads to another page, and wait until that is there: a click alone does not."""
    with locator.page.expect_navigation():
        locator.click()


def test_a_person_finds_out_why_and_fixes_it_reviews_a_change_and_tries_a_setting(
    config: Path, chromium: Browser, link: str
) -> None:
    visit = open_page(chromium, link, viewport={"width": 1100, "height": 800})
    page = visit.page
    assert page.inner_text("h1") == "Overview of the last 14 days"
    take(visit, "overview")

    # Filters: the list follows the choice without a press of the button.
    visit.go("/misses")
    everything = page.inner_text("#found h2")
    page.select_option("select[name=server]", "my-calendar")
    page.wait_for_function("old => document.querySelector('#found h2').innerText !== old", arg=everything)
    rows = page.locator("#found .rows li").all_inner_texts()
    assert rows and all("my-calendar__" in row for row in rows)
    assert "server=my-calendar" in page.url
    take(visit, "misses")

    # Why was a tool missed, and the fix: from the overview, with a click for each step.
    visit.go("/")
    press(page.get_by_role("link", name=re.compile(r"^List my-")))
    assert "How to fix it" in page.inner_text("#fixes h2")
    page.get_by_role("button", name="Try each change on the tasks on record").click()
    page.wait_for_selector("#fixes >> text=/Over \\d+ tasks/", timeout=100_000)
    take(visit, "miss")
    before = config.read_text()
    press(page.get_by_role("button", name=re.compile("^Make this change: raise list_tokens ")))
    assert page.inner_text("p.done").startswith("Done: raise list_tokens ")
    assert load(config).settings.list_tokens > BUDGET and "the next list names it" in page.inner_text("#fixes")
    press(page.get_by_role("button", name="Take the latest change back"))
    assert page.inner_text("p.done").startswith("Taken back:") and config.read_text() == before

    # What a setting would have done.
    visit.go("/settings")
    page.fill("input[name=list_tokens]", "1500")
    page.get_by_role("button", name="Replay").click()
    page.wait_for_selector("#result >> text=/tokens read/i", timeout=100_000)
    assert "list_tokens=1500" in page.inner_text("#result")
    take(visit, "replay")

    # A changed tool: what looks wrong is not ticked, and only what is ticked is decided.
    visit.go("/tools")
    press(page.get_by_role("link", name="Review my-mail"))
    assert CHANGED.split(". ")[1][:20] in page.inner_text("main")
    take(visit, "review")
    assert page.locator("input[type=checkbox]:checked").count() == 1
    press(page.get_by_role("button", name="Approve what is ticked"))
    assert page.inner_text("p.done").startswith("1 approved.")
    with open_existing_store(load(config).storage) as store:
        assert [(each.name, each.state) for each in store.approvals.undecided()] == [("read_message", "held")]
    assert visit.problems == []


def test_the_first_screen_of_a_phone_answers_three_questions(config: Path, chromium: Browser, link: str) -> None:
    visit = open_page(chromium, link, viewport={"width": 360, "height": 800})
    for question in ("What it saved", "What it missed", "What to do now"):
        box = visit.page.get_by_role("heading", name=question).bounding_box()
        assert box is not None and box["y"] < 750
    first = visit.page.locator(".answers ol li").first.bounding_box()
    assert first is not None and first["y"] + first["height"] < 800
    assert visit.page.locator("nav a").count() == 5
    take(visit, "phone")


def test_every_page_is_accessible_in_light_dark_and_on_a_phone(config: Path, chromium: Browser, link: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-core is not installed").Axe()
    visit = open_page(chromium, link, viewport={"width": 1100, "height": 800})
    misses = visit.context.request.get(f"{visit.home}/misses").text()
    session = re.findall(r"sessions/(\w+)", visit.context.request.get(f"{visit.home}/sessions").text())[0]
    miss = re.findall(r"misses/(\d+)", misses)[-1]
    found = []
    for number, path in enumerate((*PATHS, f"/misses/{miss}", f"/sessions/{session}", "/nowhere")):
        # Both schemes use every colour, so each page is looked at in one of them.
        scheme, width = (("dark", 360), ("light", 1100))[number % 2]
        visit.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        visit.page.set_viewport_size({"width": width, "height": 800})
        visit.go(path)
        found += [f"{path} {scheme}: {each}" for each in run_axe(axe, visit.page)]
        visit.page.set_viewport_size({"width": 360, "height": 800})
        if visit.page.evaluate("document.documentElement.scrollWidth") > 360:
            found.append(f"{path} is wider than a phone")
    assert found == []
    # A page that is not there is the only error that the browser may speak of.
    assert [each for each in visit.problems if "404" not in each] == []


def run_axe(axe: Any, page: Page) -> list[str]:
    # axe comes in over the driver, past the page's Content-Security-Policy.
    report = axe.run(page, options={"runOnly": {"type": "tag", "values": TAGS}}).response
    return [
        f"{rule['id']}: {json.dumps(node['html'])[:150]} {node['any'][:1] and node['any'][0]['message']}"
        for rule in report["violations"] for node in rule["nodes"][:3]
    ]  # fmt: skip


def test_the_keyboard_reaches_the_content_the_filters_and_the_buttons(
    config: Path, chromium: Browser, link: str
) -> None:
    visit = open_page(chromium, link)
    page = visit.go("/misses")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    reached = set()
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.add(
            page.evaluate("document.activeElement.name || document.activeElement.textContent.trim().slice(0, 12)")
        )
    assert {"since", "server", "tool", "cause", "recovered", "Filter"} <= reached
    assert visit.problems == []


def test_an_open_overview_follows_what_happens(config: Path, chromium: Browser, link: str) -> None:
    visit = open_page(chromium, link)
    with (
        open_existing_store(load(config).storage) as store,
        visit.page.expect_request(f"{visit.home}/", timeout=30_000) as asked,
    ):
        store.serving.tell_once("a write that the page has to notice")
    assert asked.value.headers.get("hx-request") == "true"
    assert visit.problems == []


def test_without_scripts_everything_is_there(config: Path, chromium: Browser, link: str) -> None:
    visit = open_page(chromium, link, java_script_enabled=False)
    page = visit.go("/misses")
    server = page.locator("#found .rows strong").last.inner_text().partition("__")[0]
    page.select_option("select[name=server]", server)
    press(page.get_by_role("button", name="Filter"))
    rows = page.locator("#found .rows li").all_inner_texts()
    assert f"server={server}" in page.url and rows and all(f"{server}__" in row for row in rows)
    press(page.locator("#found .rows a").first)
    assert "What happened" in page.inner_text("main")


def test_the_cookie_is_not_for_scripts_nor_for_other_ports(config: Path, chromium: Browser, link: str) -> None:
    visit = open_page(chromium, link)
    assert visit.page.evaluate("document.cookie") == ""
    (cookie,) = visit.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and len(cookie["path"]) > 16
    for attack in (
        "eval('1')",
        "document.body.appendChild(Object.assign(document.createElement('script'), {text: 'window.x=1'}))",
    ):
        visit.page.evaluate(f"() => {{ try {{ {attack} }} catch {{}} }}")
    assert visit.page.evaluate("window.x") is None


def take(visit: Visit, name: str) -> None:
    """Take a picture for the docs, if that was asked for."""
    if os.environ.get("FORETOOL_SCREENSHOTS"):
        PICTURES.mkdir(exist_ok=True)
        visit.page.screenshot(path=PICTURES / f"{name}.png")
