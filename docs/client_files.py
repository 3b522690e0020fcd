"""The files of the clients on each system, from what `foretool init` itself goes by."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

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
