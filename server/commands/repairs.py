"""`foretool doctor --fix`: makes the changes that the findings name, after showing them, and keeps what there was."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from click import UsageError
from msgspec import Struct

from foretool.server.commands import edits, hint, output
from foretool.server.config.errors import name_some
from foretool.server.diagnosis import Diagnosis, Finding, Repair
from foretool.server.setup import changes, launches
from foretool.server.setup.changes import FileChange, Protection
from foretool.server.setup.clients import client_files, this_machine
from foretool.server.setup.documents import ConfigDocument, value_at
from foretool.server.setup.own_servers import OwnServers, copies_of
from foretool.server.setup.plan import secrets_of
from foretool.server.setup.scan import FoundFile, scan
from foretool.server.upstreams.missing_variables import CERTIFICATE_FILES

_NOTHING: Final = "Nothing here can be mended without you: each line above says what to do."


class Planned(Struct):
    """The changes that `doctor --fix` is going to make, in words and as files."""

    what: list[str] = []
    left: list[str] = []
    """What only a person can allow, in words."""
    lines: list[str] = []
    """The lines of files that change, without secrets."""
    changes: list[FileChange] = []
    protections: list[Protection] = []
    files: dict[str, tuple[FoundFile, ConfigDocument]] = {}
    """By path, the files of clients that change."""


class Fixed(Struct):
    """What `foretool doctor --fix` did."""

    what: list[str]
    left: list[str]
    """What was left alone, because only a person can allow it."""
    lines: list[str]
    """The lines of files that change, with `+` and `-`, below those that open their entries, without secrets."""
    backup: str | None
    """The folder with the earlier files; null if nothing was written."""


def fix(path: Path | None, diagnosis: Diagnosis, *, agreed: bool, dry_run: bool, as_json: bool) -> Fixed:
    """Make the changes that the findings of an examination name. Raises `ChangeError` and `UsageError`."""
    can_ask = sys.stdin.isatty() and not as_json
    own = edits.open_file(path)
    with edits.errors_of(own.path):
        planned = _plan(own, diagnosis.findings, may_ask=can_ask and not agreed and not dry_run)
    if not as_json:
        _show(planned)
    kept = None
    if planned.what and not dry_run:
        if can_ask and not agreed:
            output.say_lines("")
        if agreed or (can_ask and output.agrees("Change this?")):
            kept = changes.write_changes(planned.changes, copies_of(own.path), planned.protections, "doctor")
    if not as_json:
        _say_end(planned, kept, own.path, dry_run=dry_run)
    return Fixed(planned.what, planned.left, planned.lines, str(kept) if kept else None)


def refuse_silence(*, agreed: bool, dry_run: bool, as_json: bool) -> None:
    """Refuse `--fix` before the long examination where nobody could agree to it. Raises `UsageError`."""
    if not (agreed or dry_run or (sys.stdin.isatty() and not as_json)):
        raise UsageError("there is nobody to ask: add --yes to change this, or --dry-run to see what would change")


def _plan(own: OwnServers, findings: Iterable[Finding], *, may_ask: bool) -> Planned:
    planned = Planned()
    disabled: set[str] = set()
    done: set[Repair] = set()
    distrustful: dict[str, tuple[str, ...]] = {}
    for finding in findings:
        repair = finding.repair
        if repair is None or repair in done or disabled & {*repair.servers}:
            continue
        done.add(repair)
        if repair.kind == "disable":
            disabled |= {*repair.servers}
        if found := find_distrustful([repair]):
            distrustful |= found
            continue
        _add(planned, own, finding, repair, may_ask=may_ask)
    _pass_certificates(planned, own, distrustful, may_ask=may_ask)
    _end_edits(planned)
    if change := own.change("mended by foretool doctor --fix"):
        planned.changes.insert(0, change)
        planned.lines[:0] = edits.differing_lines(own)
    return planned


def find_distrustful(repairs: Iterable[Repair]) -> dict[str, tuple[str, ...]]:
    """Return the servers that trust no certificate of this network, and the variables that name those trusted here."""
    return {
        server: each.names
        for each in repairs
        if each.kind == "inherit" and CERTIFICATE_FILES.issuperset(each.names)
        for server in each.servers
    }


def _add(planned: Planned, own: OwnServers, finding: Finding, repair: Repair, *, may_ask: bool) -> None:
    names = ", ".join(repair.servers)
    known = own.servers()
    if any(name not in known for name in repair.servers):
        return
    if repair.kind == "disable":
        for name in repair.servers:
            own.switch(name, on=False)
        why = finding.what.replace(f"{names}: is ", "it is ").removeprefix(f"{names}: ")
        planned.what.append(f"{names}: switch it off, because {why}")
    elif repair.kind == "command":
        for name in repair.servers:
            own.set_command(name, repair.path)
        planned.what.append(f"{names}: start {repair.path} by its full path, which every client finds")
    elif repair.kind == "inherit":
        _inherit(planned, own, repair, may_ask=may_ask)
    elif repair.kind == "protect":
        planned.protections.append(Protection(Path(repair.path), repair.mode))
        planned.what.append(f"{edits.short(Path(repair.path))}: let only you reach it (chmod {repair.mode:o})")
    else:
        _edit_client(planned, repair, own.path)


def _inherit(planned: Planned, own: OwnServers, repair: Repair, *, may_ask: bool) -> None:
    """Pass variables on to a server that asks for them, if a person agrees to each.

    The server chose their names, and gets their values: `--yes` is no answer to that.
    """
    (server,) = repair.servers
    for name in repair.names:
        question = f"{server} asks for {name}, which is set here. Give it to {server}? It may send it anywhere."
        if may_ask and output.agrees(question):
            own.inherit(server, name)
            planned.what.append(f"{server}: give it {name}")
        else:
            planned.left.append(f"{server}: asks for {name}; only you can say whether it may have it")


def _pass_certificates(
    planned: Planned, own: OwnServers, distrustful: Mapping[str, Sequence[str]], *, may_ask: bool
) -> None:
    """Pass the names of certificate files on to all servers that trust no certificate here, if a person agrees once:
    these are files of certificates, no secrets."""
    servers = [name for name in distrustful if name in own.servers()]
    if not servers:
        return
    who = name_some(servers)
    files = ", ".join(dict.fromkeys(name for server in servers for name in distrustful[server]))
    question = (
        f"{who} did not trust a certificate of this network; {files} name those that are trusted here. Pass them on?"
    )
    if may_ask and output.agrees(question):
        for server in servers:
            for name in distrustful[server]:
                own.inherit(server, name)
        planned.what.append(f"{who}: give {files}")
    else:
        planned.left.append(f"{who}: may need {files}, which name certificates; only you can say whether")


def _edit_client(planned: Planned, repair: Repair, config: Path) -> None:
    """Take a second entry of foretool out of a client's file, or have an entry start foretool again."""
    if (opened := planned.files.get(repair.path)) is None:
        files = [each for each in client_files(this_machine()) if str(each.path) == repair.path]
        found = next((each for each in scan(files) if not each.problem), None)
        if found is None:
            return
        opened = planned.files[repair.path] = (found, found.open())
    file, document = opened
    where, name = edits.short(file.file.path), repair.names[-1]
    server = next((each for each in file.servers if each.keys == repair.names), None)
    written = value_at(document.data(), repair.names)
    if server is None or not isinstance(written, Mapping):
        return
    if repair.kind == "unregister":
        document.remove(repair.names)
        planned.what.append(f"{where}: delete {name}, a second entry of foretool")
        return
    words = launches.mend(server.entry, hint.launcher(), config, os.environ)
    for keys, value in launches.write_launch(written, words).items():
        document.set((*repair.names, *keys), value)
    planned.what.append(f"{where}: have {name} start foretool again; then restart {file.file.title}")


def _end_edits(planned: Planned) -> None:
    """Add the changes of the clients' files, and their lines without secrets."""
    for file, document in planned.files.values():
        change = FileChange(file.file.path, file.data, document.text().encode(), "starts foretool")
        if change.after != change.before:
            planned.changes.append(change)
            secrets = secrets_of(server.entry for server in file.servers)
            lines = edits.changed_lines(file.data.decode() if file.data else "", document.text())
            planned.lines += [secrets.redact(line) for line in lines]


def _show(planned: Planned) -> None:
    if planned.what:
        output.say("\nWhat --fix changes:", "bold")
        _bullets(planned.what)
        edits.show_lines(planned.lines)
    if planned.left:
        output.say("\nLeft to you (run foretool doctor --fix in a terminal to be asked):", "bold")
        _bullets(planned.left)
    if not planned.what and not planned.left:
        output.say(f"\n{_NOTHING}")


def _bullets(lines: Sequence[str]) -> None:
    for line in lines:
        output.say(f"  {line}")


def _say_end(planned: Planned, kept: Path | None, place: Path, *, dry_run: bool) -> None:
    if kept is not None:
        undo = edits.typed("doctor --undo", place)
        output.say(f"\nDone. Running proxies take this up by themselves. To take it back: {undo}")
    elif planned.what and dry_run:
        output.say("Nothing was written.")
    elif planned.what:
        output.say("Nothing was changed.")
