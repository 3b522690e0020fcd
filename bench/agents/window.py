"""Talks to VS Code in a browser, as a person does: opens its window, types a prompt into its chat, allows each call.

VS Code comes as the package code-server of npm, with its own agent in it; the browser is the Chromium of the system,
which Playwright drives (`pip install playwright`):

    npm install --prefix FOLDER --dangerously-allow-all-scripts code-server

Its model is one of an endpoint of the user's own, so nobody signs in. `python -m bench.agents.window PROGRAM PROMPT
MODEL LAST` runs it in the home folder of its variables until the agent has said its last words.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from bench import processes

START_S: Final = 120.0
"""VS Code loads its agent once the window is open."""
TURN_S: Final = 120.0
_CHAT: Final = ".interactive-session"
_INPUT: Final = ".interactive-input-part .monaco-editor"
_ALLOW: Final = "Allow in this Session"


def main(program: str, prompt: str, model: str, last: str) -> None:
    """Give the agent one prompt and wait for its `last` words. `model`: the name of its model in the window."""
    from playwright.sync_api import sync_playwright

    home, address = Path.home(), f"127.0.0.1:{processes.free_port()}"
    folder = home / "project"
    folder.mkdir(exist_ok=True)
    words = ["--auth", "none", "--bind-addr", address, "--user-data-dir", str(home / ".config/Code"), str(folder)]
    server = subprocess.Popen([program, *words, "--disable-telemetry", "--disable-update-check"])
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            page = browser.new_page()
            _open(page, f"http://{address}/?folder={folder}")
            # Whoever looks at the models starts the agent, which then takes the only one.
            page.get_by_text("Auto", exact=True).first.click(timeout=START_S * 1000)
            page.get_by_text("Manage Models...").first.click()
            page.get_by_text(model, exact=True).first.wait_for(timeout=START_S * 1000)
            page.keyboard.press("Escape")
            page.locator(_INPUT).first.click()
            page.keyboard.type(prompt)
            page.keyboard.press("Enter")
            _allow_until(page, last)
            browser.close()
    finally:
        server.terminate()
        server.wait(30)


def _open(page: Any, address: str) -> None:
    end = time.monotonic() + START_S
    while True:
        try:
            page.goto(address)
        except Exception:  # the server is not up yet, and Playwright has no narrower error for that
            if time.monotonic() > end:
                raise
            time.sleep(0.5)
        else:
            return


def _allow_until(page: Any, last: str) -> None:
    """Allow each call that the agent asks for, until it has said its last words."""
    end = time.monotonic() + TURN_S
    while last not in page.locator(_CHAT).last.inner_text().splitlines() and time.monotonic() < end:
        if (allow := page.get_by_text(_ALLOW, exact=True)).count():
            allow.last.click()
        page.wait_for_timeout(500)


if __name__ == "__main__":
    main(*sys.argv[1:])
