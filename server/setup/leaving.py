"""What `foretool uninstall` changes: the clients lose foretool and get their own servers back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foretool.server.setup import changes, dialects
from foretool.server.setup.changes import Earlier, FileChange
from foretool.server.setup.documents import DocumentError, Keys, open_document, value_at
from foretool.server.setup.launches import starts_foretool
from foretool.server.setup.scan import FoundFile


def plan_leaving(
    found: Iterable[FoundFile], backups: Path, own: Mapping[str, Any]
) -> tuple[list[FileChange], list[str]]:
    """Return a change for each file that has foretool, and a line for each that cannot be changed.

    A file that nobody has edited since `init` becomes what it was. Any other one loses foretool alone, and gets back
    the servers of its oldest copy, with their comments where the lines around them are as `init` wrote them; without a
    copy it gets those of our own file (`own`).
    """
    planned: list[FileChange] = []
    problems: list[str] = []
    for file in found:
        ours = [server for server in file.servers if server.is_foretool]
        if not ours or file.data is None:
            continue
        path, copies = file.file.path, changes.earlier_versions(file.file.path, backups)
        before = _unchanged_since(file.data, copies) or _put_back(file, copies)
        if before is not None and not _has_foretool(file, before):
            edits = "" if before == copies[-1].before else ", with your edits since"
            planned.append(FileChange(path, file.data, before, f"becomes what it was before foretool init{edits}"))
            continue
        try:
            document = file.open()
            for server in ours:
                document.remove(server.keys)
            back = _servers_of(file, copies)
            if back is None:
                back = {(*file.file.keys, name): _written(file, entry) for name, entry in own.items()}
            missing = {keys: entry for keys, entry in back.items() if value_at(document.data(), keys) is None}
            for keys, entry in missing.items():
                document.set(keys, entry)
            count = len(missing)
        except DocumentError as error:
            problems.append(f"{path}: {error}")
            continue
        why = f"loses foretool and gets {count} server{'' if count == 1 else 's'} back"
        planned.append(FileChange(path, file.data, document.text().encode(), why))
    return planned, problems


def _put_back(file: FoundFile, copies: list[Earlier]) -> bytes | None:
    """Take out of an edited file what the first run of `init` wrote, line by line; None if that does not fit the edits,
    or would lose a server."""
    if not copies or copies[-1].written is None or file.data is None:
        return None
    try:
        texts = [each.decode() for each in (copies[-1].written, file.data, copies[-1].before)]
        if (text := changes.merge_texts(*texts)) is None:
            return None
        data = open_document(text, file.file.kind).data()
    except (DocumentError, UnicodeDecodeError):
        return None
    wanted = [*(server.keys for server in file.servers if not server.is_foretool), *(_servers_of(file, copies) or ())]
    return text.encode() if all(value_at(data, keys) is not None for keys in wanted) else None


def _unchanged_since(data: bytes, copies: list[Earlier]) -> bytes | None:
    """Follow the copies back from a file as it is now, the newest first; None if it is not what was written."""
    found = None
    for copy in copies:
        if changes.digest(data) != copy.after:
            break
        found = data = copy.before
    return found


def _has_foretool(file: FoundFile, data: bytes) -> bool:
    found = _entries_in(file, open_document(data.decode(), file.file.kind).data())
    return any(_starts_foretool(file, each) for each in found.values())


def _entries_in(file: FoundFile, data: Any) -> dict[Keys, Mapping[str, Any]]:
    """Return the entries of a client's file, and where each stands, those of its projects too."""
    places = [file.file.keys]
    if file.file.per_project:
        projects, servers, _ = file.file.per_project
        places += [(projects, folder, servers) for folder in value_at(data, (projects,)) or {}]
    found: dict[Keys, Mapping[str, Any]] = {}
    for place in places:
        entries = value_at(data, place)
        if isinstance(entries, list):
            entries = {each["name"]: each for each in entries if isinstance(each, Mapping) and "name" in each}
        if isinstance(entries, Mapping):
            found |= {(*place, str(name)): each for name, each in entries.items() if isinstance(each, Mapping)}
    return found


def _starts_foretool(file: FoundFile, written: Mapping[str, Any]) -> bool:
    try:
        return starts_foretool(file.file.dialect.read(written)[0])
    except (dialects.DialectError, AttributeError, TypeError, ValueError):
        return False


def _servers_of(file: FoundFile, copies: list[Earlier]) -> dict[Keys, dict[str, Any]] | None:
    """Return the entries of the oldest copy of a file, as the client wrote them; None without a readable copy."""
    for copy in reversed(copies):
        try:
            entries = _entries_in(file, open_document(copy.before.decode(), file.file.kind).data())
        except (DocumentError, UnicodeDecodeError):
            continue
        return {keys: dict(each) for keys, each in entries.items() if not _starts_foretool(file, each)}
    return None


def _written(file: FoundFile, entry: Any) -> dict[str, Any]:
    """Return an entry of ours as the client writes it. Raises `DocumentError`."""
    if not isinstance(entry, Mapping) or not (entry.get("command") or entry.get("url")):
        raise DocumentError("an entry of our own file has no command and no url; correct it first")
    return dialects.write_entry(file.file.dialect, entry)
