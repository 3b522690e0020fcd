"""Reads the servers of every client that is installed. A file that cannot be read is named and left alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from foretool.server.config import jsonc
from foretool.server.config.files import read_regular
from foretool.server.setup.clients import ClientFile, Switch
from foretool.server.setup.dialects import DialectError, Entry
from foretool.server.setup.documents import ConfigDocument, DocumentError, Keys, members_at, open_document, value_at
from foretool.server.setup.launches import starts_foretool


class FoundServer(Struct, frozen=True):
    name: str
    keys: Keys
    """Where it stands in the file."""
    entry: Entry
    """As our `mcpServers` would write it; empty if it cannot be taken over."""
    notes: tuple[str, ...]
    problem: str = ""
    """Why it cannot be taken over."""
    is_foretool: bool = False
    folder: str = ""
    """The project that it belongs to; "" for one that the user has in every project."""
    written: Mapping[str, Any] = {}
    """As the client writes it."""


class FoundFile(Struct, frozen=True):
    """One file of a client that is installed."""

    file: ClientFile
    data: bytes | None
    """Its bytes; None if there is no such file yet."""
    servers: tuple[FoundServer, ...] = ()
    problem: str = ""
    """Why nothing of it can be read or changed, in one line."""

    def find_repeated(self) -> Iterator[tuple[Keys, int]]:
        """Yield what leads to servers and stands in the file twice, with the line of the later one: JSON then keeps
        that one and says nothing."""
        if self.file.kind != "json" or not self.data:
            return
        text = self.data.decode()
        for path, offset in jsonc.repeated_keys(text):
            keys = tuple(map(str, path))
            tops = (self.file.keys, self.file.per_project[:1])
            if any(top and (keys[: len(top)] == top or top[: len(keys)] == keys) for top in tops):
                yield keys, jsonc.line_and_column(text, offset)[0]

    def open(self) -> ConfigDocument:
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
    newer = value_at(found, file.newer) if file.newer else None
    if isinstance(newer, Mapping) and not any(key in newer for key in ("command", "url", "type")):
        file = replace(file, keys=file.newer)
    return FoundFile(file, data, tuple(_servers(file, found)))


def _servers(file: ClientFile, data: Any) -> Iterator[FoundServer]:
    lists = [
        (switch, _names_at(_data_of(switch.file) if switch.file else data, switch.keys)) for switch in file.switches
    ]
    found = list(_entries(file, data, file.keys, file.folder))
    if not file.per_project:
        yield from (_switched(server, lists) for server in found)
        return
    projects, servers, off = file.per_project
    offs = {folder: _names_at(data, (projects, folder, off)) for folder in value_at(data, (projects,)) or {}}
    for server in found:
        where = [folder for folder, names in offs.items() if server.name.casefold() in names and not server.is_foretool]
        note = f"off in {', '.join(where)}, which only a profile can say"
        yield replace(server, notes=(*server.notes, note)) if where else server
    for folder, names in offs.items():
        of_folder = _entries(file, data, (projects, folder, servers), folder)
        yield from (_switched(server, [(Switch((projects, folder, off)), names)]) for server in of_folder)


def _switched(server: FoundServer, lists: Iterable[tuple[Switch, Collection[str]]]) -> FoundServer:
    """Return a server, switched off if one of its client's lists says so."""
    for switch, names in lists:
        is_off = names and (server.name.casefold() in names) != switch.is_on
        if is_off and not server.is_foretool and not server.problem:
            says = ".".join(switch.keys[-2:] if len(switch.keys) == 2 else switch.keys[-1:])
            return replace(
                server, entry={**server.entry, "disabled": True}, notes=(*server.notes, f"switched off, by {says}")
            )
    return server


def _names_at(data: Any, keys: Keys) -> frozenset[str]:
    found = value_at(data, keys)
    return (
        frozenset(each.casefold() for each in found if isinstance(each, str))
        if isinstance(found, list)
        else frozenset()
    )


def _data_of(path: Path) -> Any:
    """Return what another file of the client says, None if it cannot be read: its own turn says why."""
    try:
        return open_document(read_regular(path).decode(), "json").data()
    except (OSError, UnicodeDecodeError, DocumentError):
        return None


def _entries(file: ClientFile, data: Any, keys: Keys, folder: str) -> Iterator[FoundServer]:
    for name, written in members_at(data, keys).items():
        place = (*keys, str(name))
        if not isinstance(written, Mapping):
            yield FoundServer(str(name), place, {}, (), "expected an object")
            continue
        try:
            entry, notes = file.dialect.read(written, folder)
        except DialectError as error:
            yield FoundServer(str(name), place, {}, (), str(error), folder=folder, written=written)
            continue
        is_foretool = starts_foretool(entry)
        if file.is_brought and entry.pop("description", ""):
            # Models read it as the user's words.
            notes = [*notes, 'left out: "description", which a repository may have written']
        yield FoundServer(str(name), place, entry, tuple(notes), "", is_foretool, folder, written)
