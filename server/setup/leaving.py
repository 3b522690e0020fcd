"""What `foretool uninstall` changes: the clients lose foretool and get their own servers back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from foretool.server.setup import changes, dialects
from foretool.server.setup.changes import Change
from foretool.server.setup.documents import DocumentError, open_document, value_at
from foretool.server.setup.launches import starts_foretool
from foretool.server.setup.scan import FoundFile


def plan_leaving(found: Iterable[FoundFile], backups: Path, own: Mapping[str, Any]) -> tuple[list[Change], list[str]]:
    """Return a change for each file that has foretool, and a line for each that cannot be changed.

    A file that nobody has edited since `init` becomes what it was. Any other one loses foretool alone, and gets back
    the servers of its latest copy, or, without a copy, those of our own file (`own`).
    """
    planned: list[Change] = []
    problems: list[str] = []
    for file in found:
        ours = [server for server in file.servers if server.is_foretool]
        if not ours or file.data is None:
            continue
        path, copies = file.file.path, changes.earlier_versions(file.file.path, backups)
        before = _unchanged_since(file.data, copies)
        if before is not None and not _has_foretool(file, before):
            planned.append(Change(path, file.data, before, "becomes what it was before foretool init"))
            continue
        try:
            document = file.open()
            for server in ours:
                document.remove(server.keys)
            back = _servers_of(file, [copy for copy, _ in copies])
            back = back if back is not None else {name: _written(file, entry) for name, entry in own.items()}
            count = 0
            for name, entry in back.items():
                if value_at(document.data(), (*file.file.keys, name)) is None:
                    document.set((*file.file.keys, name), entry)
                    count += 1
        except DocumentError as error:
            problems.append(f"{path}: {error}")
            continue
        why = f"loses foretool and gets {count} server{'' if count == 1 else 's'} back"
        planned.append(Change(path, file.data, document.text().encode(), why))
    return planned, problems


def _unchanged_since(data: bytes, copies: list[tuple[bytes, str]]) -> bytes | None:
    """Follow the copies back from a file as it is now, the newest first; None if it is not what was written."""
    found = None
    for copy, written in copies:
        if changes.digest(data) != written:
            break
        found = data = copy
    return found


def _has_foretool(file: FoundFile, data: bytes) -> bool:
    entries = value_at(open_document(data.decode(), file.file.kind).data(), file.file.keys)
    found = entries.values() if isinstance(entries, Mapping) else entries if isinstance(entries, list) else ()
    return any(isinstance(each, Mapping) and _starts_foretool(file, each) for each in found)


def _starts_foretool(file: FoundFile, written: Mapping[str, Any]) -> bool:
    try:
        return starts_foretool(file.file.dialect.read(written)[0])
    except (dialects.DialectError, AttributeError, TypeError, ValueError):
        return False


def _servers_of(file: FoundFile, copies: list[bytes]) -> dict[str, Any] | None:
    """Return the entries of the oldest copy of a file, as the client wrote them; None without a readable copy."""
    for copy in reversed(copies):
        try:
            entries = value_at(open_document(copy.decode(), file.file.kind).data(), file.file.keys)
        except (DocumentError, UnicodeDecodeError):
            continue
        if isinstance(entries, list):
            entries = {each["name"]: each for each in entries if isinstance(each, Mapping) and "name" in each}
        if isinstance(entries, Mapping):
            kept = {str(name): each for name, each in entries.items() if isinstance(each, Mapping)}
            return {name: dict(each) for name, each in kept.items() if not _starts_foretool(file, each)}
        return {}
    return None


def _written(file: FoundFile, entry: Any) -> dict[str, Any]:
    """Return an entry of ours as the client writes it. Raises `DocumentError`."""
    if not isinstance(entry, Mapping) or not (entry.get("command") or entry.get("url")):
        raise DocumentError("an entry of our own file has no command and no url; correct it first")
    return dialects.write_entry(file.file.dialect, entry)
