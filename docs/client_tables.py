"""The tables of `client-files.md`, written from what `foretool init` itself goes by."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from foretool.server.setup import prompt_hooks
from foretool.server.setup.clients import ClientFile, Machine, System, client_files

HOME = Path("/~")
SYSTEMS: tuple[System, ...] = ("linux", "darwin", "win32")
LAUNCH = ("/usr/local/bin/foretool", "serve")


def files_of(system: System) -> list[ClientFile]:
    """Return the files of a fresh home on one system."""
    environ = {"APPDATA": f"{HOME}/AppData/Roaming"} if system == "win32" else {}
    return client_files(Machine(system, HOME, environ, HOME))


def place(file: ClientFile) -> str:
    """Write a path as users of its system do."""
    path = str(PurePosixPath(file.path)).removeprefix("/")
    return path.replace("~/AppData/Roaming", "%APPDATA%").replace("~/Library/Application Support", "~/Library/…")


def write_files() -> str:
    """Return one row for each file of each client."""
    lines = [
        "| client | `--client` | its file on Linux | servers under | prompt hook |",
        "|---|---|---|---|---|",
    ]
    for first in files_of("linux"):
        hook = prompt_hooks.HOOKS.get(first.client) if first.registers else None
        under = f"`{'.'.join(first.keys)}`" + (f", also `{first.per_project[0]}`" if first.per_project else "")
        role = "" if first.registers else " (only read)"
        cells = [f"{first.title}{role}", f"`{first.client}`", f"`{place(first)}`", under]
        lines.append(f"| {' | '.join(cells)} | {f'`{hook.file}`' if hook else '-'} |")
    return "\n".join([*lines, ""])
