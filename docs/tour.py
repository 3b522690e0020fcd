"""Runs the commands of `docs/tutorial.md`, plays the client between them, and records them as a terminal session.

`python docs/tour.py` writes `docs/tutorial.cast` from a real run; `asciinema play docs/tutorial.cast` shows it. It uses
the servers of `make servers` in place of `uvx` and `npx`, which would download them. The tests run the same commands,
compare what they print with the page, and say when the recording is stale.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "tutorial.md"
RECORDING: Final = ROOT / "docs" / "tutorial.cast"
SERVERS: Final = ROOT / ".demo"

WIDTH: Final = 110
HEIGHT: Final = 30
MOST_LINES: Final = 60
"""Lines of an output that the recording shows whole."""
TYPED_S: Final = 0.03
"""Seconds for each typed letter of the recording."""
READ_S: Final = 1.5
"""Seconds after each output of the recording."""

_BLOCK: Final = re.compile(r"^```(sh|text)\n(.*?)^```$|^<!-- client\n(.*?)^-->$", re.DOTALL | re.MULTILINE)
_ESCAPE: Final = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x1b\x07]*(?:\x07|\x1b\\))")
"""Colours, moves of the cursor and links."""
_END: Final = "that was step"


class Step(NamedTuple):
    """Commands, or calls of a client, and what the page shows of their output."""

    kind: Literal["sh", "client"]
    source: str
    shown: str


class TourFailed(Exception):
    """A command of the page failed; the text has its output."""


def read_steps(page: str) -> list[Step]:
    """Return the steps of a page in their order."""
    steps: list[Step] = []
    for kind, block, calls in _BLOCK.findall(page):
        if kind == "text":
            steps[-1] = steps[-1]._replace(shown=block)
        else:
            steps.append(Step("sh" if kind else "client", block or calls, ""))
    return steps


def fingerprint(steps: list[Step]) -> str:
    """Return a hash of what a recording of the steps has to show."""
    return hashlib.sha256(repr(steps).encode()).hexdigest()


def missing_lines(shown: str, printed: str) -> list[str]:
    """Return the lines of the page that the output does not have, in this order. `...` stands for anything, and blanks
    for any number of them."""
    lines = [" ".join(line.split()) for line in _ESCAPE.sub("", printed).splitlines()]
    missing = []
    for line in filter(None, (" ".join(line.split()) for line in shown.splitlines())):
        pattern = re.compile(".*".join(re.escape(part.strip()) for part in line.split("...")))
        found = next((at for at, each in enumerate(lines) if pattern.search(each)), None)
        if found is None:
            missing.append(line)
        else:
            lines = lines[found + 1 :]
    return missing


class Shell:
    """One bash on a terminal of its own, in which the commands run one after the other, so that folder and variables
    stay."""

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        ours, its = pty.openpty()
        fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, WIDTH, 0, 0))
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], stdin=subprocess.PIPE, stdout=its, stderr=its, cwd=folder,
            env=dict(environ), text=True,
        )  # fmt: skip
        os.close(its)
        self._screen = os.fdopen(ours, encoding="utf-8", newline="\r\n")

    def run(self, commands: str) -> str:
        """Run commands; return what they print. Raises `TourFailed` when one of them fails."""
        assert self._bash.stdin is not None
        self._bash.stdin.write(f'failed=; trap failed=1 ERR\n{commands}\necho; echo "{_END} $failed"\n')
        self._bash.stdin.flush()
        lines: list[str] = []
        while (line := self._screen.readline()) and not line.startswith(_END):
            lines.append(line.replace("\r\n", "\n"))
        if line.strip() != _END:
            raise TourFailed(f"{commands}\n{''.join(lines)}")
        return "".join(lines).rstrip("\n") + "\n"

    def close(self) -> None:
        self._bash.communicate()
        self._screen.close()


def play_client(calls: str, folder: Path, environ: Mapping[str, str]) -> str:
    """Make the calls as a client would, through a proxy of its own; return the text of the results."""
    proxy = subprocess.Popen(
        ["foretool", "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=folder,
        env=dict(environ), text=True,
    )  # fmt: skip
    assert proxy.stdin is not None
    ender = threading.Timer(120, proxy.kill)
    ender.start()
    info = {"name": "claude-code", "version": "tour"}
    first = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    printed = []
    try:
        _ask(proxy, 1, "initialize", first)
        proxy.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        _ask(proxy, 2, "tools/list", {})
        for number, call in enumerate(calls.splitlines(), 3):
            result = _ask(proxy, number, "tools/call", json.loads(call))
            if result.get("isError"):
                raise TourFailed(f"{call}\n{result}")
            printed += [block["text"] for block in result["content"] if block["type"] == "text"]
    finally:
        proxy.communicate()
        ender.cancel()
    return "\n".join(printed) + "\n"


def _ask(proxy: subprocess.Popen[str], ident: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
    assert proxy.stdin is not None
    assert proxy.stdout is not None
    proxy.stdin.write(json.dumps({"jsonrpc": "2.0", "id": ident, "method": method, "params": params}) + "\n")
    proxy.stdin.flush()
    for line in proxy.stdout:
        reply = json.loads(line)
        if reply.get("id") == ident and "method" not in reply:
            if "result" not in reply:
                raise TourFailed(f"{method}: {line}")
            result: dict[str, Any] = reply["result"]
            return result
    raise TourFailed(f"{method}: foretool ended")


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a bare home with foretool, `uvx` and `npx` on PATH; the last two are scripts that start
    the installed servers. Raises `FileNotFoundError` if these are not installed."""
    home, programs = folder / "home", folder / "bin"
    for each in (home, programs):
        each.mkdir(exist_ok=True)
    files = SERVERS / "node" / "node_modules" / "@modelcontextprotocol" / "server-filesystem" / "dist" / "index.js"
    for needed in (files, SERVERS / "time" / "bin" / "mcp-server-time"):
        if not needed.exists():
            raise FileNotFoundError(f"{needed} is not there; run `make servers`")
    start = f'package=$1; shift; exec {shlex.quote(str(SERVERS))}/"${{package#mcp-server-}}"/bin/"$package" "$@"'
    _write_program(programs / "uvx", start)
    _write_program(programs / "npx", f'shift; shift; exec node {shlex.quote(str(files))} "$@"')
    path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"HOME": str(home), "PATH": path, "COLUMNS": str(WIDTH), "LANG": "C.UTF-8", "TERM": "xterm-256color"}


def _write_program(path: Path, body: str) -> None:
    path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    path.chmod(0o755)


def run_steps(steps: list[Step], folder: Path) -> Iterator[tuple[Step, str]]:
    """Run the steps in a home of their own; yield each with what it printed. Raises `TourFailed`."""
    environ = environment(folder)
    shell = Shell(folder / "home", environ)
    tour = folder / "home" / "foretool-tour"
    try:
        for step in steps:
            if step.kind == "sh":
                yield step, shell.run(step.source)
            else:
                yield step, play_client(step.source, tour, {**environ, "FORETOOL_CONFIG": str(tour / "mcp.json")})
    finally:
        shell.close()


def record(steps: list[Step], folder: Path) -> str:
    """Return a recording of the steps, as lines of JSON. Nothing in it names this machine."""
    header = {
        "version": 2, "width": WIDTH, "height": HEIGHT, "title": "Ten minutes with foretool",
        "env": {"steps": fingerprint(steps)},
    }  # fmt: skip
    lines, now = [json.dumps(header)], 0.0

    def say(text: str, pause: float) -> None:
        nonlocal now
        lines.append(json.dumps([round(now, 2), "o", text.replace("\n", "\r\n")]))
        now += pause

    for step, printed in run_steps(steps, folder):
        if step.kind == "client":
            say("# the client's model calls:\n" + "".join(f"#   {call}\n" for call in step.source.splitlines()), READ_S)
        else:
            say("$ ", TYPED_S)
            for letter in step.source.rstrip("\n"):
                say("\n> " if letter == "\n" else letter, TYPED_S)
            say("\n", TYPED_S)
        say(_shorten(_without_paths(printed, folder)), READ_S)
    return "\n".join(lines) + "\n"


def _shorten(printed: str) -> str:
    """Leave out the middle of a very long output."""
    lines = printed.split("\n")
    return printed if len(lines) <= MOST_LINES else "\n".join([*lines[:20], "...", *lines[-5:]])


def _without_paths(printed: str, folder: Path) -> str:
    programs = Path(sys.executable).parent
    shown = {folder / "home": "/home/you", folder / "bin": "/usr/local/bin", programs: "/home/you/.local/bin"}
    for path, name in shown.items():
        printed = printed.replace(str(path), name)
    return printed


def main() -> int:
    steps = read_steps(PAGE.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        RECORDING.write_text(record(steps, Path(folder)), encoding="utf-8")
    sys.stdout.write(f"wrote {RECORDING.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
