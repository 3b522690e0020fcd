"""Reads the servers of every client that is installed. A file that cannot be read is named and left alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from foretool.server.config.files import read_regular
from foretool.server.setup.clients import ClientFile
from foretool.server.setup.dialects import DialectError, Entry
from foretool.server.setup.documents import Document, DocumentError, Keys, open_document, value_at
from foretool.server.setup.launches import starts_foretool


class FoundServer(Struct, frozen=True):
    """One server of one client."""

    name: str
    keys: Keys
    """Where it stands in the file."""
    entry: Entry
    """As our `mcpServers` would write it; empty if it cannot be taken over."""
    notes: tuple[str, ...]
    problem: str = ""
    """Why it cannot be taken over."""
    is_foretool: bool = False


class FoundFile(Struct, frozen=True):
    """One file of a client that is installed."""

    file: ClientFile
    data: bytes | None
    """Its bytes; None if there is no such file yet."""
    servers: tuple[FoundServer, ...] = ()
    problem: str = ""
    """Why nothing of it can be read or changed, in one line."""

    def open(self) -> Document:
        """Return the file for changes. Raises `DocumentError`."""
        return open_document((self.data or b"").decode(), self.file.kind)


def scan(files: Iterable[ClientFile]) -> list[FoundFile]:
    """Read the files of all clients that are installed."""
    return [_read(each) for each in files if each.is_installed and (each.registers or each.path.is_file())]


def _read(file: ClientFile) -> FoundFile:
    try:
        if not file.path.exists():
            return FoundFile(file, None)
        data = read_regular(file.path)
        found = open_document(data.decode(), file.kind).data()
    except UnicodeDecodeError:
        return FoundFile(file, None, (), "expected UTF-8, found other bytes; save it as UTF-8")
    except DocumentError as error:
        return FoundFile(file, None, (), str(error))
    except OSError as error:
        return FoundFile(file, None, (), f"cannot be read ({error.strerror}); move it away, or check its permissions")
    return FoundFile(file, data, tuple(_servers(file, found)))


def _servers(file: ClientFile, data: Any) -> Iterator[FoundServer]:
    yield from _entries(file, data, file.keys, None)
    if file.per_project:
        projects, servers = file.per_project
        for folder in value_at(data, (projects,)) or {}:
            yield from _entries(file, data, (projects, folder, servers), Path(folder))


def _entries(file: ClientFile, data: Any, keys: Keys, folder: Path | None) -> Iterator[FoundServer]:
    found = value_at(data, keys)
    if isinstance(found, list):
        found = {
            each["name"]: each for each in found if isinstance(each, Mapping) and isinstance(each.get("name"), str)
        }
    if not isinstance(found, Mapping):
        return
    for name, written in found.items():
        place = (*keys, str(name))
        if not isinstance(written, Mapping):
            yield FoundServer(str(name), place, {}, (), "expected an object")
            continue
        try:
            entry, notes = file.dialect.read(written)
        except (DialectError, AttributeError, TypeError, ValueError) as error:
            problem = str(error) if isinstance(error, DialectError) else "its values are of other types than expected"
            yield FoundServer(str(name), place, {}, (), problem)
            continue
        if folder is not None and "cwd" not in entry and _depends_on_folder(entry):
            entry["cwd"] = str(folder)
        yield FoundServer(str(name), place, entry, tuple(notes), is_foretool=starts_foretool(entry))


def _depends_on_folder(entry: Entry) -> bool:
    """Tell whether a program is started with a path that begins in the working folder."""
    words = (entry.get("command", ""), *(entry.get("args") or ()))
    return any(isinstance(word, str) and (word == "." or word.startswith(("./", "../", ".\\"))) for word in words)
