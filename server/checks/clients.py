"""Checks how the clients of this machine start foretool, and which variables they give it.

A client that was started from the desktop has no variables of a shell, and some clients pass on only a few of those
they have. So a variable that is set here may be missing there.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec
from msgspec import Struct

from foretool.server.config.codes import Code
from foretool.server.config.errors import it_or_them, name_some
from foretool.server.config.files import own_file
from foretool.server.config.loader import Config
from foretool.server.config.servers import Server
from foretool.server.config.variables import BASIC_NAMES, is_pattern, variable_names
from foretool.server.diagnosis import Finding, Repair, note, ok, warning
from foretool.server.setup import launches
from foretool.server.setup.clients import ClientFile, Machine, client_files, this_machine
from foretool.server.setup.documents import Keys
from foretool.server.setup.scan import FoundServer, scan

Gives = Literal["shell", "few", "desktop"]
"""What a client gives foretool: everything of the shell that it was started from, only the names that the MCP SDKs pass
on, or what a program has that was started from the desktop."""

_GIVES: Final[Mapping[str, Gives]] = {
    "claude-code": "shell", "gemini": "shell", "qwen": "shell", "opencode": "shell", "copilot": "shell",
    "goose": "shell", "cline-cli": "shell", "claude-desktop": "few", "codex": "few",
}  # fmt: skip
_SESSION_PREFIXES: Final = ("LC_", "XDG_", "DBUS_")
_SESSION_NAMES: Final = frozenset((
    *BASIC_NAMES, "LANG", "TZ", "TMPDIR", "TEMP", "TMP", "DISPLAY", "WAYLAND_DISPLAY", "SSH_AUTH_SOCK", "APPDATA",
    "LOCALAPPDATA", "USERPROFILE", "SYSTEMROOT", "PROGRAMFILES", "HOMEDRIVE", "HOMEPATH", "USERNAME", "COMSPEC",
    "PATHEXT", "WINDIR", "PROGRAMDATA",
))  # fmt: skip
_SESSION_PATH: Final = ("/usr/local/bin", "/usr/local/sbin", "/usr/bin", "/bin", "/usr/sbin", "/sbin", "/snap/bin")


UNREGISTERED: Final = "no client's file has foretool with this config, so none starts it"


def gives(client: str) -> Gives:
    """Return what a client gives foretool. `client`: as `--client` spells it."""
    return _GIVES.get(client, "desktop")


class Registered(Struct, frozen=True):
    """One entry of a client that starts foretool with the config that is examined."""

    file: ClientFile
    server: FoundServer

    @property
    def gives(self) -> Gives:
        return gives(self.file.client)

    @property
    def written(self) -> dict[str, str]:
        """The variables that the entry itself sets."""
        found = self.server.entry.get("env") or {}
        return {str(name): str(value) for name, value in found.items() if isinstance(value, str | int)}

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the variables that foretool gets from this client, as far as they can be told from here."""
        if self.gives == "shell":
            given = dict(environ)
        else:
            passed = {str(name) for name in self.server.entry.get("inherit") or ()}
            known = frozenset(BASIC_NAMES) if self.gives == "few" else _SESSION_NAMES
            given = {name: value for name, value in environ.items() if name in known | passed or _is_of_session(name)}
        # What the client would have to expand first cannot be told from here.
        return given | {name: value for name, value in self.written.items() if "${" not in value}


def _is_of_session(name: str) -> bool:
    return name.startswith(_SESSION_PREFIXES)


def find_registered(config: Path, machine: Machine | None = None) -> list[Registered]:
    """Return the entries of all clients that start foretool with this config, also those that cannot start it."""
    files = [each for each in client_files(machine or this_machine()) if each.scope == "user"]
    return [
        Registered(found.file, server)
        for found in scan(files)
        for server in found.servers
        if server.is_foretool and not server.entry.get("disabled") and _is_of(server, config)
    ]


def _is_of(server: FoundServer, config: Path) -> bool:
    """Return whether an entry starts foretool with this config, or with one that is gone: then your own file is
    meant."""
    named, own = launches.config_of(server.entry, os.environ), os.path.realpath(own_file(os.environ))
    return named == os.path.realpath(config) or (os.path.realpath(config) == own and not os.path.lexists(named))


def check_clients(config: Config, registered: Iterable[Registered], environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check the entries of clients, and what their servers would miss there."""
    found = list(registered)
    if not found:
        yield ok("client", f"{UNREGISTERED}; foretool init registers it")
    by_file: dict[Path, list[Registered]] = {}
    for each in found:
        by_file.setdefault(each.file.path, []).append(each)
        yield from _check_entry(each, environ)
    for path, entries in by_file.items():
        names: dict[Keys, list[str]] = {entry.server.keys[:-1]: [] for entry in entries}
        for entry in entries:
            names[entry.server.keys[:-1]].append(entry.server.name)
        for twins in (each for each in names.values() if len(each) > 1):
            what = f"{entries[0].file.title} starts foretool {len(twins)} times: {', '.join(twins)} in {path}"
            second = next(entry for entry in entries if entry.server.name == twins[1])
            repair = Repair("unregister", path=str(path), names=second.server.keys)
            yield warning("client", Code.REGISTERED_TWICE, what, f"delete {', '.join(twins[1:])}", repair=repair)
    yield from _check_variables(config, found, environ)
    yield from _check_programs(config, found, environ)


def _check_entry(each: Registered, environ: Mapping[str, str]) -> Iterator[Finding]:
    if fault := launches.find_fault(each.server.entry, environ):
        what = f"{each.file.title} cannot start foretool: {fault}, in {each.file.path}"
        do = "run foretool doctor --fix, or remove that entry and run foretool init"
        repair = Repair("register", path=str(each.file.path), names=each.server.keys)
        yield warning("client", Code.REGISTRATION_BROKEN, what, do, repair=repair)


def needed_variables(server: Server) -> list[str]:
    """Return the variables without which a server does not run as its entry says: `${VAR}` and names in `inherit`."""
    written = msgspec.json.encode(server.entry).decode()
    return sorted(variable_names(written, required=True) | {name for name in server.inherit if not is_pattern(name)})


def _check_variables(config: Config, found: list[Registered], environ: Mapping[str, str]) -> Iterator[Finding]:
    """Note variables that a server needs and only this shell has; what the same clients lack stands once."""
    given = [(each, each.environment(environ)) for each in found]
    by_clients: dict[tuple[str, str], dict[str, list[str]]] = {}
    for server in config.servers.values():
        lacking: dict[str, list[Registered]] = {}
        for name in needed_variables(server):
            if name in environ and (without := [each for each, has in given if name not in has]):
                lacking[name] = without
        if not lacking:
            continue
        titles = name_some(list(dict.fromkeys(each.file.title for without in lacking.values() for each in without)))
        entries = dict.fromkeys(
            f"the entry {each.server.name} in {each.file.path}" for without in lacking.values() for each in without
        )
        by_clients.setdefault((titles, name_some(list(entries))), {})[server.name] = list(lacking)
    for (titles, entries_said), needed in by_clients.items():
        names = dict.fromkeys(name for wanted in needed.values() for name in wanted)
        setting = ", ".join(f'"{name}": "..."' for name in names)
        what = f"{_say_needed(needed)} {'is' if len(names) == 1 else 'are'} set in this shell, but {titles} may not"
        server_named = next(iter(needed)) if len(needed) == 1 else ""
        do = f'add "env": {{{setting}}} to {entries_said}'
        yield warning("client", Code.VARIABLE_NOT_IN_CLIENT, f"{what} have {it_or_them(names)}", do, server_named)


def _say_needed(needed: Mapping[str, Sequence[str]]) -> str:
    """Say which servers need which variables: `git, files: TOKEN`, or `git: TOKEN; files: KEY`."""
    by_names: dict[str, list[str]] = {}
    for server, names in needed.items():
        by_names.setdefault(name_some(names), []).append(server)
    return "; ".join(f"{', '.join(servers)}: {names}" for names, servers in by_names.items())


def _check_programs(config: Config, found: list[Registered], environ: Mapping[str, str]) -> Iterator[Finding]:
    """Note programs that are found through a folder that only this shell has in PATH."""
    without = [each for each in found if each.gives != "shell" and "PATH" not in each.written]
    if not without:
        return
    session = os.pathsep.join(_SESSION_PATH)
    for program in dict.fromkeys(each.command for each in config.servers.values() if each.type == "stdio"):
        here = None if os.sep in program or not program else shutil.which(program, path=environ.get("PATH"))
        if here is not None and shutil.which(program, path=session) is None:
            titles = name_some(list(dict.fromkeys(each.file.title for each in without)))
            what = f"{program} is {here}, a folder that {titles} may not have in PATH"
            do = 'if its servers fail there, write this full path as "command"'  # equal for all, so it is said once
            started = tuple(each.name for each in config.servers.values() if each.entry.command == program)
            repair = Repair("command", started, here) if started and Path(here).is_absolute() else None
            yield note("client", Code.PROGRAM_NOT_IN_CLIENT, what, do, repair=repair)
