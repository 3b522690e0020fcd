"""Node packages for the tests, installed once into `.tools` at exactly one version each."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = ROOT / ".tools"
OLDEST_NODE = 22
"""The conformance suite and MCP Inspector do not start on an older one."""
INSTALL_S = 600
"""Downloads on a first run."""


def environment() -> dict[str, str]:
    """This process's, with the Node that `make node` may have put into `.tools` first. Node keeps what it compiles: the
    suites are started a hundred times."""
    path = f"{TOOLS / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "NODE_COMPILE_CACHE": str(TOOLS / "compiled")}


def _has_node() -> bool:
    if shutil.which("npm", path=environment()["PATH"]) is None:
        return False
    command = ["node", "-p", "process.versions.node"]
    found = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    return found.returncode == 0 and int(found.stdout.partition(".")[0]) >= OLDEST_NODE


def package(name: str, version: str, program: str) -> str:
    """The path of a program of a package."""
    return str(installed(name, version) / "node_modules" / ".bin" / program)


def installed(name: str, version: str) -> Path:
    """The folder whose `node_modules` has a package."""
    folder = TOOLS / f"{name.rpartition('/')[2]}-{version}"
    if not (folder / "installed").exists():
        if not _has_node():
            subprocess.run(["make", "-s", "node"], cwd=ROOT, check=True, timeout=INSTALL_S)
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(folder)]
        subprocess.run([*command, f"{name}@{version}"], env=environment(), check=True, timeout=INSTALL_S)
        (folder / "installed").touch()  # only now: an installation that was broken off starts again
    return folder
