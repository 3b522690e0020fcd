"""Makes one list of servers out of those of all clients: the same server is one, and two of one name are a conflict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from foretool.server.config import jsonc
from foretool.server.setup.dialects import Entry
from foretool.server.setup.scan import FoundFile, FoundServer

Choice = Literal["first", "second", "both"]


class Conflict(Struct, frozen=True):
    """Two different servers of one name."""

    name: str
    first: Entry
    first_from: str
    """The title of the client, or the path of our own file."""
    second: Entry
    second_from: str

    @property
    def differs(self) -> list[str]:
        """Return the keys whose values differ; the values may be secrets."""
        return [key for key in {**self.first, **self.second} if self.first.get(key) != self.second.get(key)]


class Merged(Struct):
    """One list of servers."""

    entries: dict[str, Entry] = {}
    """New servers by name, as our file will have them."""
    known: dict[str, Entry] = {}
    """Servers that our file has already."""
    origins: dict[str, list[str]] = {}
    """By name, the titles of the clients that had the server."""
    notes: list[str] = []
    """What the user should know of single servers, in one line each."""
    rewritten: list[tuple[str, jsonc.Path, str]] = []
    """Values of our file that name a secret from now on: server, place in its entry, and what stands there."""
    taken: list[tuple[FoundFile, FoundServer]] = []
    """What our file has now, so that the clients need it no more."""


def merge(
    found: Iterable[FoundFile], known: Mapping[str, Any], own: str, choose: Callable[[Conflict], Choice]
) -> Merged:
    """Merge the servers of clients into those that our file has. `own` names our file; `choose` decides conflicts."""
    merged = Merged(known={name: dict(entry) for name, entry in known.items() if isinstance(entry, Mapping)})
    merged.origins = {name: [own] for name in merged.known}
    for file in found:
        for server in file.servers:
            if not server.is_foretool and not server.problem:
                _add(merged, file, server, choose)
                merged.taken.append((file, server))
    return merged


def _add(merged: Merged, file: FoundFile, server: FoundServer, choose: Callable[[Conflict], Choice]) -> None:
    title, name = file.file.title, server.name
    merged.notes += (f"{name} ({title}): {note}" for note in server.notes)
    present = {**merged.known, **merged.entries}
    if same := same_server(server.entry, present):
        if title not in merged.origins[same]:
            merged.origins[same].append(title)
        if same != name:
            merged.notes.append(f"{name} ({title}) is the same server as {same}, so it keeps that name")
        return
    if name in present:
        conflict = Conflict(name, present[name], merged.origins[name][0], server.entry, title)
        choice = choose(conflict)
        if choice == "first":
            return
        if choice == "both":
            name = _free_name(f"{name}-{file.file.client}", present)
        elif name in merged.known:
            merged.known.pop(name)
    merged.entries[name] = server.entry
    merged.origins[name] = [title]


def same_server(entry: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return the name of the server that is the same as an entry: what is started or reached, and as whom; or ""."""
    reach = _reach(entry)
    return next((name for name, each in known.items() if isinstance(each, Mapping) and _reach(each) == reach), "")


def _reach(entry: Mapping[str, Any]) -> bytes:
    """Return what two entries share if they mean the same server: what is started or reached, and as whom."""
    keys = ("command", "args", "env", "cwd", "url", "headers")
    return msgspec.json.encode([entry.get(key) or None for key in keys], order="sorted")


def _free_name(name: str, present: Mapping[str, Entry]) -> str:
    number, free = 2, name
    while free in present:
        free, number = f"{name}-{number}", number + 1
    return free
