"""How foretool leaves: what a run of `init` did to a file is taken out of it again, and the user's edits stay.

`foretool init --undo` takes out what the latest run did, `foretool uninstall` what every run did since the file last
had no foretool. Both use `revert`.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from foretool.server.config import jsonc
from foretool.server.setup import changes, client_hooks, dialects
from foretool.server.setup.changes import UNINSTALL, ChangeError, Earlier, EditedError, FileChange, Run, Undone
from foretool.server.setup.client_hooks import HOOKS, SHELL_HOOKS
from foretool.server.setup.clients import ClientFile, client_files, this_machine
from foretool.server.setup.dialects import Entry
from foretool.server.setup.documents import (
    ConfigDocument,
    DocumentError,
    JsonDocument,
    Keys,
    members_at,
    open_document,
    value_at,
)
from foretool.server.setup.launches import config_of, starts_foretool
from foretool.server.setup.merge import same_server
from foretool.server.setup.scan import FoundFile, scan

NOT_AS_WRITTEN: Final = "not all with the comments and the layout they had; the old text is in"


# One file, one run


def revert(file: ClientFile, now: bytes, run: Earlier) -> bytes:
    """Return a client's file without what a run changed in it; edits since then stay.

    Line by line where the edits leave that a whole; else the entry of foretool goes, and the servers that the run took
    come back. Empty if the run made the file and nothing else is in it. Raises `DocumentError` for a file that cannot
    be read.
    """
    if changes.digest(now) == run.after:
        return run.before or b""
    text, before = _decode(now), _decode(run.before or b"")
    written = _decode(run.written) if run.written is not None else None
    after = _merge(file, text, before, written)
    if after is None:
        after = _put_back(file, text, before, written)
    return b"" if run.before is None and _is_bare(file, after) else after.encode()


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise DocumentError("expected UTF-8, found other bytes; save it as UTF-8") from None


def _merge(file: ClientFile, now: str, before: str, written: str | None) -> str | None:
    """Take out the lines that a run wrote; None if that does not fit the edits, or would lose or double a server."""
    if written is None or (text := changes.merge_texts(written, now, before)) is None:
        return None
    wanted = {keys: each for keys, each in _entries(file, now).items() if not _starts_foretool(file, each)}
    try:
        found = _entries(file, text)
    except DocumentError:
        return None
    is_doubled = file.kind == "json" and bool(jsonc.repeated_keys(text))
    is_whole = all(found.get(keys) == each for keys, each in wanted.items())
    taken = _taken(file, before, written)
    is_whole = is_whole and all(found.get(keys) == each for keys, each in taken.items() if keys not in wanted)
    is_whole = is_whole and taken.keys() <= found.keys()
    return text if is_whole and not is_doubled and not _added(file, text, before) else None


def _put_back(file: ClientFile, now: str, before: str, written: str | None) -> str:
    """Take our entries and hooks out of a text, and put back the servers that a run took and that it lacks."""
    document = open_document(now, file.kind)
    for keys in _added(file, now, before):
        document.remove(keys)
    source = open_document(before, file.kind)
    for keys, entry in _taken(file, before, written).items():
        if value_at(document.data(), keys) is not None:
            continue
        if isinstance(document, JsonDocument) and isinstance(source, JsonDocument):
            document.copy_member(keys, source)
        else:
            document.set(keys, dict(entry))
    _drop_empty(document, file, before)
    return without_hooks(file.path, document.text(), before)


def is_as_written(file: ClientFile, after: bytes, run: Earlier) -> bool:
    """Return whether the servers that a run took out of a file are in it again with their comments and layout. Raises
    `DocumentError`."""
    before, written, text = (_decode(each or b"") for each in (run.before, run.written, after))
    old, new = (open_document(each, file.kind) for each in (before, text))
    if isinstance(old, JsonDocument) and isinstance(new, JsonDocument):
        places = _taken(file, before, written)
        return all(_member_text(old, keys) == _member_text(new, keys) for keys in places)
    lines = [Counter(each.splitlines()) for each in (before, written, text)]
    return not (lines[0] - lines[1]) - lines[2]


def _member_text(document: JsonDocument, keys: Keys) -> tuple[str, ...]:
    return tuple(map(str.strip, document.member_text(keys) or ()))


def _drop_empty(document: ConfigDocument, file: ClientFile, before: str) -> None:
    """Remove the empty object of servers that the file did not have before."""
    data = open_document(before, file.kind).data()
    for depth in range(len(file.keys), 0, -1):
        keys = file.keys[:depth]
        if value_at(data, keys) is None and value_at(document.data(), keys) in ({}, []):
            document.remove(keys)


def without_hooks(path: Path, text: str, before: str) -> str:
    """Return a text without the hooks of ours that an earlier text of the file did not have. Raises `DocumentError`."""
    for hook in (*HOOKS.values(), *SHELL_HOOKS.values()):
        if Path(hook.file).expanduser() == path and client_hooks.without_hook(hook, before) == before:
            text = client_hooks.without_hook(hook, text, before)
    return text


def _is_bare(file: ClientFile, text: str) -> bool:
    """Return whether a text says nothing but what `init` writes into a new file."""
    data = open_document(text, file.kind).data()
    return not {key: value for key, value in (data or {}).items() if (key, value) not in file.top}


def _taken(file: ClientFile, before: str, written: str | None) -> dict[Keys, Mapping[str, Any]]:
    """Return the servers that a run took out of a file, as the client wrote them."""
    theirs = {keys: each for keys, each in _entries(file, before).items() if not _starts_foretool(file, each)}
    left = _entries(file, written) if written is not None else {}
    return {keys: each for keys, each in theirs.items() if keys not in left}


def _added(file: ClientFile, now: str, before: str) -> list[Keys]:
    """Return where foretool stands in a file, and did not before."""
    had = _entries(file, before)
    found = _entries(file, now)
    return [keys for keys, each in found.items() if keys not in had and _starts_foretool(file, each)]


def _has_foretool(file: ClientFile, data: bytes | None) -> bool:
    try:
        return any(_starts_foretool(file, each) for each in _entries(file, _decode(data or b"")).values())
    except DocumentError:
        return False


def _entries(file: ClientFile, text: str) -> dict[Keys, Mapping[str, Any]]:
    """Return the entries of a client's file, and where each stands, those of its projects too. Raises
    `DocumentError`."""
    data = open_document(text, file.kind).data()
    places = [file.keys]
    if file.per_project:
        projects, servers, _ = file.per_project
        places += [(projects, folder, servers) for folder in value_at(data, (projects,)) or {}]
    found: dict[Keys, Mapping[str, Any]] = {}
    for place in places:
        entries = members_at(data, place).items()
        found |= {(*place, str(name)): each for name, each in entries if isinstance(each, Mapping)}
    return found


def _starts_foretool(file: ClientFile, written: Mapping[str, Any]) -> bool:
    return starts_foretool(_read(file, written))


# `foretool init --undo`


def undo_init(own: Path, backups: Path, *, dry_run: bool = False) -> tuple[Undone, Run | None]:
    """Put back what the latest run of `init` changed, or with `dry_run` change nothing; return what became of it, and
    the run before it that is still in force. Raises `ChangeError` if there is nothing to undo.

    Our own file `own` stays while a client still starts foretool with it.
    """
    runs = changes.latest_runs(backups)
    if runs and runs[0].what == UNINSTALL:
        raise ChangeError(
            f"{backups}: there is nothing to undo; foretool uninstall put the files back {runs[0].moment}"
        )
    if not runs:
        raise changes.nothing_to_undo(backups)
    files = {file.path: file for file in client_files(this_machine()) if file.scope == "user"}

    rewritten: dict[Path, Path] = {}

    def revert_edited(path: Path, now: bytes, run: Earlier) -> bytes:
        if path in files:
            after = revert(files[path], now, run)
            if run.copy is not None and not is_as_written(files[path], after, run):
                rewritten[path] = run.copy
            return after
        if path == own:
            raise EditedError("it has changed since")
        text, before = _decode(now), _decode(run.before or b"")
        left = without_hooks(path, text, before)
        if left == text and without_hooks(path, text, "") != text:
            raise EditedError("it has changed since")
        return b"" if run.before is None and left.strip() in ("", "{}") else left.encode()

    def keep(path: Path, run: Earlier, undone: Undone) -> str:
        return _why_own_stays(own, run, undone) if path == own else ""

    undone = runs[0].undo(revert_edited, keep, own, dry_run=dry_run)
    undone.rewritten = {path: copy for path, copy in rewritten.items() if path in undone.edited}
    is_over = len(runs) < 2 or runs[1].what == UNINSTALL or not runs[1].has_changed(besides=own)
    return undone, None if is_over else runs[1]


def _why_own_stays(own: Path, run: Earlier, undone: Undone) -> str:
    """Return why our own file stays while the files of clients are put back, "" if nothing keeps it."""
    if undone.problems:
        return "a client that was not put back may start foretool with it"
    if run.before is None:
        put_back = {*undone.restored, *undone.edited} if undone.is_dry else set[Path]()
        files = (each for each in client_files(this_machine()) if each.path not in put_back)
        found = scan(each for each in files if each.scope == "user")
        titles = [file.file.title for file in found if _starts_with(file, own)]
        if titles:
            return f"{', '.join(titles)} still {'starts' if len(titles) == 1 else 'start'} foretool with it"
    return ""


def _starts_with(file: FoundFile, own: Path) -> bool:
    place = os.path.realpath(own)
    return any(each.is_foretool and config_of(each.entry, os.environ) == place for each in file.servers)


# `foretool uninstall`


def plan_leaving(
    found: Iterable[FoundFile], backups: Path, own: Mapping[str, Any]
) -> tuple[list[FileChange], list[str]]:
    """Return a change for each file that has foretool, and a line for each that cannot be changed.

    Each run of `init` is taken out, the newest first, back to the state in which the file had no foretool. A file that
    nobody has edited becomes what it was then; one without copies gets the servers of our own file (`own`).
    """
    planned: list[FileChange] = []
    problems: list[str] = []
    for file in found:
        if file.data is None or not any(server.is_foretool for server in file.servers):
            continue
        try:
            planned.append(_leave(file, file.data, changes.earlier_versions(file.file.path, backups), own))
        except DocumentError as error:
            problems.append(f"{file.file.path}: {error}")
    return planned, problems


def _leave(file: FoundFile, now: bytes, versions: Sequence[Earlier], own: Mapping[str, Any]) -> FileChange:
    """Return what takes foretool out of one file. Raises `DocumentError`."""
    runs, after = _since_foretool(file.file, versions), now
    copies: list[Path] = []
    for run in runs:
        after = revert(file.file, after, run)
        if run.copy is not None and not is_as_written(file.file, after, run):
            copies.append(run.copy)
    if _has_foretool(file.file, after):
        after = _put_back(file.file, _decode(after), "", "").encode()
    if not runs:
        document = open_document(after.decode(), file.file.kind)
        for name, entry in own.items():
            if value_at(document.data(), keys := (*file.file.keys, name)) is None:
                document.set(keys, _written(file.file, entry))
        after = document.text().encode()
    path, first = file.file.path, runs[-1] if runs else None
    if first is not None and first.before is None and not after:
        return FileChange(path, now, b"", "goes: foretool init made it", is_gone=True, folders=first.made)
    if first is not None and after == first.before:
        return FileChange(path, now, after, "becomes what it was before foretool init")
    if first is not None and copies:
        why = f"gets its servers back, with your edits since, but {NOT_AS_WRITTEN} {', '.join(map(str, copies))}"
        return FileChange(path, now, after, why)
    if first is not None:
        return FileChange(path, now, after, "becomes what it was before foretool init, with your edits since")
    had, has = ({*_entries(file.file, _decode(each))} for each in (now, after))
    count = len(has - had)
    return FileChange(path, now, after, f"loses foretool and gets {count} server{'' if count == 1 else 's'} back")


def _since_foretool(file: ClientFile, versions: Iterable[Earlier]) -> list[Earlier]:
    """Return the runs since a file last had no foretool, the newest first."""
    runs = []
    for run in versions:
        if run.is_gone or (run.written is not None and not _has_foretool(file, run.written)):
            break
        runs.append(run)
        if not _has_foretool(file, run.before):
            break
    return runs


def _written(file: ClientFile, entry: Any) -> dict[str, Any]:
    """Return an entry of ours as the client writes it. Raises `DocumentError`."""
    if not isinstance(entry, Mapping) or not (entry.get("command") or entry.get("url")):
        raise DocumentError("an entry of our own file has no command and no url; correct it first")
    return dialects.write_entry(file.dialect, entry)


def text_before_hooks(path: Path, backups: Path) -> str:
    """Return what a file was before a run put a hook of ours into it; "" where that is not on record."""
    with suppress(DocumentError):
        for each in changes.earlier_versions(path, backups):
            if not client_hooks.has_hook(text := _decode(each.before or b"")):
                return text
    return ""


def as_before(change: FileChange, backups: Path) -> FileChange:
    """Return a change that takes our hooks out of a file, so that a file which nobody has edited becomes what it was,
    byte for byte; it goes if a run made it and nothing is left in it."""
    versions = changes.earlier_versions(change.path, backups)
    if change.is_gone or not versions:
        return change
    if versions[-1].before is None and change.after.strip() in (b"", b"{}"):
        return replace(change, after=b"", is_gone=True, folders=versions[-1].made)
    now = change.before
    with suppress(DocumentError):
        for each in versions:
            if change.why or each.written != now or each.before is None:
                break
            now = each.before
            if not any(map(client_hooks.has_hook, map(_decode, (now, change.after)))):
                return replace(change, after=now)
    return change


def in_no_client(found: Iterable[FoundFile], planned: Sequence[FileChange], own: Mapping[str, Any]) -> list[str]:
    """Return the servers of our own file that no client will have in the same form, under whatever name."""
    after = {change.path: change.after for change in planned}
    given: list[tuple[str, str, Entry]] = []
    for file in found:
        if file.file.scope == "user" and not file.problem:
            text = _decode(after.get(file.file.path, file.data or b""))
            for keys, written in _entries(file.file, text).items():
                given.append((file.file.client, keys[-1], _read(file.file, written)))
    return [name for name, entry in own.items() if not any(_is_given(name, entry, *each) for each in given)]


def _is_given(name: str, entry: Mapping[str, Any], client: str, client_name: str, theirs: Entry) -> bool:
    """Return whether an entry of a client is a server of ours: the same one, or what `init` has made it of, which may
    name a secret or another place of the program."""
    if same_server(entry, {client_name: theirs}):
        return True
    is_name = name == client_name or name.startswith(f"{client_name}-{client}")
    return is_name and _is_like(_words(entry), _words(theirs))


def _words(entry: Mapping[str, Any]) -> list[str]:
    return [str(entry.get("url") or entry.get("command") or ""), *map(str, entry.get("args") or ())]


def _is_like(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    """Compare words of which ours may name variables, and the program with or without its folder."""
    if len(ours) != len(theirs):
        return False
    programs = {ours[0], theirs[0]}
    if not all("/" in each for each in programs):
        ours, theirs = ([each[0].rpartition("/")[2], *each[1:]] for each in (ours, theirs))
    return all(_fits(re.split(r"\$\{[^}]*\}", one), other) for one, other in zip(ours, theirs, strict=True))


def _fits(parts: Sequence[str], text: str) -> bool:
    """Return whether a text is these parts with anything between two of them. No pattern: of many parts that would try
    every place for each."""
    first, *others = parts
    if not others:
        return text == first
    *middle, last = others
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    at = len(first)
    for part in middle:
        found = text.find(part, at, len(text) - len(last))
        if found < 0:
            return False
        at = found + len(part)
    return True


def _read(file: ClientFile, written: Mapping[str, Any]) -> Entry:
    try:
        return file.dialect.read(written)[0]
    except dialects.DialectError:
        return {}
