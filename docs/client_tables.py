"""The tables of `client-files.md`, written from what `foretool init` itself goes by."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from foretool.server.setup import prompt_hooks
from foretool.server.setup.clients import ClientFile, Machine, System, client_files
from foretool.server.setup.registrations import registration

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
    by_system = [files_of(system) for system in SYSTEMS]
    lines = [
        "| client | `--client` | Linux | macOS | Windows | servers under | prompt hook |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in zip(*by_system, strict=True):
        first = each[0]
        hook = prompt_hooks.HOOKS.get(first.client) if first.registers else None
        under = f"`{'.'.join(first.keys)}`" + (f", also `{first.per_project[0]}`" if first.per_project else "")
        role = "" if first.registers else " (only read)"
        cells = [f"{first.title}{role}", f"`{first.client}`", *(f"`{place(file)}`" for file in each), under]
        lines.append(f"| {' | '.join(cells)} | {f'`{hook.file}`' if hook else '-'} |")
    return "\n".join([*lines, ""])


def write_entries() -> str:
    """Return what `foretool init` writes into each kind of file, those that write alike together."""
    alike: dict[tuple[str, str], list[str]] = {}
    for file in files_of("linux"):
        if file.registers:
            titles = alike.setdefault((registration(file, LAUNCH).text, file.kind), [])
            if file.title not in titles:
                titles.append(file.title)
    return "\n".join(f"{', '.join(titles)}:\n\n```{kind}\n{text}\n```\n" for (text, kind), titles in alike.items())
