"""Real MCP servers for the demo and for the tests with real servers, each in its own environment under `.demo/`.

`python demo/servers.py` installs what is missing, at once and side by side, and writes `.demo/mcp.json` over what is
there. A server that cannot be installed is left out and named; the others are not held up.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / ".demo"
CONFIG = ROOT / "mcp.json"
STORAGE = ROOT / "foretool.sqlite3"
LIST_TOKENS = 1_500
"""By default all tools of the demo would be listed, for they are few; it shows what happens with many."""
REPOSITORY = ROOT / "repository"
"""A small repository for mcp-server-git, and the folder that the filesystem server may read."""
README = REPOSITORY / "README.md"
SKILLS = ROOT / "skills"
SKILL = """\
---
name: release-notes
description: Write release notes from the commits of a repository since its last version.
---
Read the commits with `git_log`. Write a line for each that a user would notice, the newest first.
"""

OLDEST_NODE = 18
LONGEST_INSTALL_S = 300.0


@dataclass(frozen=True, slots=True)
class Server:
    """A server to install."""

    name: str
    """The name in `mcp.json`."""
    package: str
    arguments: tuple[str, ...] = ()
    prepare: Callable[[], None] | None = None
    """Prepares what the server needs; raises InstallFailed or Unsuitable."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A server that can be started."""

    server: Server
    version: str
    command: tuple[str, ...]
    took_s: float
    """0 if the server was there already."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A server that cannot be started, and why."""

    server: Server
    reason: str
    failed: bool
    """True if its installation failed, false if the machine lacks what it needs."""


Outcome = Installed | LeftOut


class InstallFailed(Exception):
    """An installation failed; the text is the last line that the installer wrote."""


class Unsuitable(Exception):
    """This machine lacks something; the text says what."""


def _make_history() -> None:
    """Make two commits, so that there is something to ask for."""
    if not shutil.which("git"):
        raise Unsuitable("git is not on PATH")
    if (REPOSITORY / ".git").exists():
        return
    git = ["git", "-C", str(REPOSITORY), "-c", "user.name=Demo", "-c", "user.email=demo@localhost"]
    _run([*git, "init", "--quiet"])
    for subject in ("Say what this is", "Say how long its history is"):
        _run([*git, "add", README.name])
        _run([*git, "-c", "commit.gpgsign=false", "commit", "--quiet", "--message", subject])
        README.write_text(f"{README.read_text(encoding='utf-8')}It has two commits.\n", encoding="utf-8")


PYTHON_SERVERS = (
    Server("time", "mcp-server-time", ("--local-timezone", "UTC")),
    Server("git", "mcp-server-git", ("--repository", str(REPOSITORY)), _make_history),
    Server("calculator", "mcp-server-calculator"),
    Server("fetch", "mcp-server-fetch"),
)
NODE_SERVERS = (
    Server("everything", "@modelcontextprotocol/server-everything"),
    Server("files", "@modelcontextprotocol/server-filesystem", (str(REPOSITORY),)),
)
ALL_SERVERS = (*PYTHON_SERVERS, *NODE_SERVERS)


def install_all() -> Iterator[Outcome]:
    """Install every server; the outcomes come as they are ready, those of installed servers at once."""
    ROOT.mkdir(exist_ok=True)
    (ROOT / ".gitignore").write_text("*\n", encoding="utf-8")
    if not README.exists():
        REPOSITORY.mkdir(exist_ok=True)
        README.write_text("# A repository to ask questions about\n", encoding="utf-8")
    missing_node = _why_no_node()
    with ThreadPoolExecutor() as pool:
        tasks = [pool.submit(_attempt, _install_python, server) for server in PYTHON_SERVERS]
        if missing_node is None:
            # One after the other into one folder: npm does not share it with a second npm.
            tasks.append(pool.submit(_install_node_servers))
        for task in as_completed(tasks):
            yield from task.result()
    if missing_node is not None:
        yield from (LeftOut(server, missing_node, failed=False) for server in NODE_SERVERS)


def write_config(servers: Sequence[Installed]) -> None:
    """Write `.demo/mcp.json` as a user would write it, with the storage and a skill beside it."""
    entries = {
        each.server.name: {"command": each.command[0], "args": [*each.command[1:], *each.server.arguments]}
        for each in sorted(servers, key=lambda one: ALL_SERVERS.index(one.server))
    }
    skill = SKILLS / "release-notes" / "SKILL.md"
    skill.parent.mkdir(parents=True, exist_ok=True)
    skill.write_text(SKILL, encoding="utf-8")
    settings = {"storage": STORAGE.name, "list_tokens": LIST_TOKENS, "skills": [str(SKILLS)]}
    config = {"mcpServers": entries, "foretool": settings}
    CONFIG.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _attempt(install: Callable[[Server], Installed], server: Server) -> list[Outcome]:
    try:
        if server.prepare is not None:
            server.prepare()
        return [install(server)]
    except Unsuitable as lack:
        return [LeftOut(server, str(lack), failed=False)]
    except InstallFailed as failure:
        return [LeftOut(server, str(failure), failed=True)]


def _install_python(server: Server) -> Installed:
    folder = ROOT / server.name
    python, program = folder / "bin" / "python", folder / "bin" / server.package
    stamp = folder / "installed"
    started = time.monotonic()
    # A link to a Python that has gone does not exist either.
    if not (stamp.is_file() and python.exists() and program.exists()):
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
        pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
        _run([*pip, "install", "--quiet", server.package])
        version = f"import importlib.metadata as m; print(m.version({server.package!r}))"
        stamp.write_text(_run([str(python), "-c", version]), encoding="utf-8")
        return Installed(server, _first_line(stamp), (str(program),), time.monotonic() - started)
    return Installed(server, _first_line(stamp), (str(program),), 0.0)


def _install_node_servers() -> list[Outcome]:
    return [outcome for server in NODE_SERVERS for outcome in _attempt(_install_node, server)]


def _install_node(server: Server) -> Installed:
    folder = ROOT / "node"
    package = folder / "node_modules" / server.package
    started, found = time.monotonic(), (package / "package.json").is_file()
    if not found:
        folder.mkdir(exist_ok=True)
        quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error"]
        _run(["npm", "install", "--prefix", str(folder), *quiet, server.package])
    about = json.loads((package / "package.json").read_text(encoding="utf-8"))
    program = package / next(iter(about["bin"].values()))
    took_s = 0.0 if found else time.monotonic() - started
    return Installed(server, about["version"], (shutil.which("node") or "node", str(program)), took_s)


def _why_no_node() -> str | None:
    if not (shutil.which("node") and shutil.which("npm")):
        return "no Node on PATH"
    version = _run(["node", "--version"]).strip()
    if int(version.removeprefix("v").partition(".")[0]) < OLDEST_NODE:
        return f"Node {version} is older than {OLDEST_NODE}"
    return None


def _run(command: Sequence[str]) -> str:
    """Run a command; its stdout. Raises InstallFailed with the line that says why."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LONGEST_INSTALL_S, stdin=subprocess.DEVNULL, check=True
        )
    except subprocess.TimeoutExpired as error:
        raise InstallFailed(f"{Path(command[0]).name} took longer than {LONGEST_INSTALL_S:.0f} s") from error
    except subprocess.CalledProcessError as error:
        raise InstallFailed(_why(error.stderr) or f"{Path(command[0]).name} exited with {error.returncode}") from error
    except OSError as error:
        raise InstallFailed(f"{command[0]}: {error.strerror}") from error
    return done.stdout


def _why(stderr: str) -> str:
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()]
    return (errors or lines or [""])[-1]


def _first_line(path: Path) -> str:
    return path.read_text(encoding="utf-8").split("\n", 1)[0]


def main() -> int:
    outcomes = list(install_all())
    installed = [each for each in outcomes if isinstance(each, Installed)]
    for each in outcomes:
        if isinstance(each, LeftOut):
            print(f"left out: {each.server.package}: {each.reason}")
    write_config(installed)
    print(f"{len(installed)} servers in {CONFIG.parent.name}: {', '.join(each.server.name for each in installed)}")
    return 0 if installed else 1


if __name__ == "__main__":
    raise SystemExit(main())
