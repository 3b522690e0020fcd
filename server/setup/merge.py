"""Makes one list of servers out of those of all clients: the same server is one, and two of one name are a conflict."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from foretool.server.config import jsonc
from foretool.server.config.errors import dotted, name_some
from foretool.server.config.variables import expand_tilde
from foretool.server.setup.dialects import Entry
from foretool.server.setup.masking import mask_arguments
from foretool.server.setup.scan import FoundFile, FoundServer

_FOLDERS: Final = 4
"""How many folders a note names."""


class Origin(Struct, frozen=True):
    """The client and the file in which a server was found."""

    title: str
    client: str = ""
    """The name of the client, "" for our own file."""
    folder: str = ""
    """The project whose server it is, "" for one in every project."""


class Merged(Struct):
    """The servers of all clients as one list, beside those that our file has."""

    entries: dict[str, Entry] = {}
    """New servers by name, as our file will have them."""
    known: dict[str, Entry] = {}
    """Servers that our file has already."""
    origins: dict[str, list[Origin]] = {}
    """By name, where the server was found."""
    notes: list[str] = []
    """What the user should know of single servers, in one line each."""
    rewritten: list[tuple[str, jsonc.Path, str]] = []
    """Values of our file that name a secret from now on: server, place in its entry, and what stands there."""
    joined: dict[str, list[Entry]] = {}
    """Of the servers that stand for several of one name: the entries that each was made of."""
    widened: set[str] = set()
    """Servers of which a client gets more than it had, as another one had that."""
    taken: list[tuple[FoundFile, FoundServer, str]] = []
    """What our file has now, so that the clients need it no more, with its name there."""

    def alone(self) -> dict[str, Origin]:
        """Return the new servers that only one client or project had, with where each was found."""
        origins = {name: self.origins[name] for name in self.entries}
        return {name: each[0] for name, each in origins.items() if len({(at.client, at.folder) for at in each}) == 1}

    def titles(self, name: str) -> list[str]:
        """Return the titles of the clients that had a server."""
        return list(dict.fromkeys(each.title for each in self.origins[name]))


def merge_servers(
    found: Iterable[FoundFile], known: Mapping[str, Any], own: str, *, keeps_apart: bool = False
) -> Merged:
    """Merge the servers of clients into those that our file has. `own` names our file.

    Of two servers of one name the one is kept that does what both do, if there is one. `keeps_apart`: both are kept,
    and a server of which two clients have different tools is not the same one.
    """
    merged = Merged(known={name: dict(entry) for name, entry in known.items() if isinstance(entry, Mapping)})
    merged.origins = {name: [Origin(own)] for name in merged.known}
    for file in found:
        merged.notes += (
            f"{dotted(keys)} ({file.file.title}): stands in the file twice; only the last one, in line {line}, counts"
            for keys, line in file.find_repeated()
        )
        for server in file.servers:
            if not server.is_foretool and not server.problem:
                name = _add(merged, file, server, keeps_apart=keeps_apart)
                merged.taken.append((file, server, name))
    merged.notes += (_note_of_joined(merged, name, entries) for name, entries in merged.joined.items())
    return merged


def _note_of_joined(merged: Merged, name: str, entries: Iterable[Entry]) -> str:
    """Say which clients' servers one now stands for, and which folders not all of them had."""
    kept = merged.entries.get(name) or merged.known[name]
    had = [_split(_args(each))[1] for each in entries]
    new = [
        folder for folder in _split(_args(kept))[1]
        if not all(any(_is_within(folder, each) for each in folders) for folders in had)
    ]  # fmt: skip
    note = f"{name}: kept once, with all that {name_some(merged.titles(name))} had"
    if not new:
        return note
    shown = name_some(mask_arguments(new), _FOLDERS)
    return f"{note}: every client may now use {shown} (--profiles keeps them apart)"


def _add(merged: Merged, file: FoundFile, server: FoundServer, *, keeps_apart: bool) -> str:
    """Record one server; return its name in our file."""
    title, name = file.file.title, server.name
    origin = Origin(title, file.file.client, server.folder)
    merged.notes += (f"{name} ({title}): {note}" for note in server.notes)
    present = {**merged.known, **merged.entries}
    entry = server.entry
    alike = present
    if keeps_apart and file.file.scope == "user":  # what the user has written into our file decides its tools there
        alike = {each: old for each, old in present.items() if each in merged.known or _has_same_tools(old, entry)}
    if not (same := same_server(entry, alike, name)):
        everywhere = {each: _without_folder(old, merged.origins[each][0].folder) for each, old in alike.items()}
        entry = _without_folder(entry, server.folder)
        if same := same_server(entry, everywhere, name):
            merged.entries |= {same: everywhere[same]} if same in merged.entries else {}
            merged.notes.append(f"{same}: it starts in the folder of the config, as not only one project has it")
    if same:
        if same == name or all(each.client != origin.client for each in merged.origins[same]):
            _add_same(merged, same, FoundServer(name, server.keys, entry, ()), origin, trusts=file.file.scope == "user")
            return same
        merged.notes.append(f"{name} ({title}) is the same server as {same}; both names stay, as {title} has both")
    if name in present:
        first, second = present[name], server.entry
        # What a repository brings changes no server of the user.
        is_apart = keeps_apart or file.file.scope == "project"
        if not is_apart and (widest := find_widest(first, second)) is not None:
            merged.joined.setdefault(name, [first]).append(second)
            merged.widened.add(name)
            merged.origins[name].append(origin)
            if widest is not first:
                merged.known.pop(name, None)
                merged.entries[name] = widest
            return name
        other = _free_name(f"{name}-{file.file.client}", present)
        differ = ", ".join(key for key in {**first, **second} if first.get(key) != second.get(key))
        first_from = merged.origins[name][0].title
        merged.notes.append(f"{name}, {other}: two servers, because {first_from} and {title} differ in {differ}")
        name = other
    merged.entries[name] = server.entry
    merged.origins[name] = [origin]
    return name


def _without_folder(entry: Entry, folder: str) -> Entry:
    """Return an entry without the folder of its project, unless it names a path there: a server that others have in
    every folder is the same one."""
    if not folder or entry.get("cwd") != folder:
        return entry
    words = (str(entry.get("command", "")), *map(str, _args(entry)))
    if any(_RELATIVE.match(word) for word in words):
        return entry
    return {key: value for key, value in entry.items() if key != "cwd"}


_RELATIVE: Final = re.compile(r"(?![-/~$@\\]|\w+:)(?:\.\.?$|.*[/\\]|.*\.(?:[cm]?[jt]s|py|sh|rb|jar|exe|bat|cmd|ps1)$)")
"""A word that may be a path below the folder that a program starts in."""


def _add_same(merged: Merged, name: str, server: FoundServer, origin: Origin, *, trusts: bool) -> None:
    """Record a server that is there already. All clients have it from now on, with what one of them allowed, unless
    that is a file that a repository may have brought."""
    if name != server.name:
        merged.notes.append(f"{server.name} ({origin.title}) is the same server as {name}, so it keeps that name")
    present = merged.entries.get(name)
    if present is not None and trusts:
        merged.entries[name] = _widest(present, server.entry)
    kept = merged.entries.get(name) or merged.known[name]
    narrow = [origin.title] if _is_wider(kept, server.entry) else []
    narrow += merged.titles(name) if present is not None and _is_wider(kept, present) else []
    if narrow:
        merged.widened.add(name)
        merged.notes.append(
            f"{name}: {' and '.join(narrow)} had only some of its tools; all clients have {_tools(kept)}"
        )
    merged.origins[name].append(origin)


def _tools(entry: Entry) -> str:
    return "all of them" if not (entry.get("include") or entry.get("exclude")) else "those of all of these clients"


def _widest(one: Entry, other: Entry) -> Entry:
    """Return the entry of one server with the settings of two: the longer time, and every tool that either has."""
    both = {**other, **one}
    both.pop("disabled", None)
    if one.get("disabled") and other.get("disabled"):
        both["disabled"] = True
    if "timeout_s" in one and "timeout_s" in other:
        both["timeout_s"] = max(one["timeout_s"], other["timeout_s"])
    for key, found in (
        ("include", [*one["include"], *other["include"]] if "include" in one and "include" in other else []),
        ("exclude", [each for each in one.get("exclude", ()) if each in other.get("exclude", ())]),
        ("inherit", [*one.get("inherit", ()), *other.get("inherit", ())]),
    ):
        both.pop(key, None)
        if found:
            both[key] = list(dict.fromkeys(found))
    return both


def _is_wider(one: Entry, other: Entry) -> bool:
    """Return whether the entry of a server offers tools that another one of it does not."""
    return not _has_same_tools(one, other) and bool(other.get("include") or other.get("exclude"))


def _has_same_tools(one: Entry, other: Entry) -> bool:
    lists = [[sorted(entry.get(key) or ()) for key in ("include", "exclude")] for entry in (one, other)]
    return lists[0] == lists[1]


def same_server(entry: Mapping[str, Any], known: Mapping[str, Any], name: str = "") -> str:
    """Return the name of the server that is the same as an entry: what is started or reached, and as whom; or "". Of
    several, that of this name."""
    reach = _reach(entry)
    same = [each for each, other in known.items() if isinstance(other, Mapping) and _reach(other) == reach]
    return name if name in same else same[0] if same else ""


def _reach(entry: Mapping[str, Any]) -> bytes:
    """Return what two entries share if they mean the same server: what is started or reached, and as whom."""
    keys = ("command", "args", "env", "cwd", "url", "headers")
    return msgspec.json.encode([entry.get(key) or None for key in keys], order="sorted")


def _free_name(name: str, present: Mapping[str, Entry]) -> str:
    number, free = 2, name
    while free in present:
        free, number = f"{name}-{number}", number + 1
    return free


# Two of one name

_QUIET: Final = frozenset({"-y", "--yes", "-q", "--quiet"})
"""Options of package runners that say nothing of the server."""


def find_widest(first: Entry, second: Entry) -> Entry | None:
    """Return the entry that does what both do, one of the two or a new one, if the two start or reach the same as the
    same user; None if they do not."""
    programs = [os.path.basename(str(entry.get("command", ""))) for entry in (first, second)]  # noqa: PTH119
    (words, folders), (other_words, others) = (_split(_args(entry)) for entry in (first, second))
    fewer, more = sorted((words, other_words), key=len)
    same = programs[0] == programs[1] and not Counter(fewer) - Counter(more) and bool(folders) == bool(others)
    if not same or any((first.get(key) or "") != (second.get(key) or "") for key in ("url", "cwd")):
        return None
    joined = dict(first)
    found: set[Literal["first", "second", "joined"]] = set()
    for key in ("env", "headers"):
        given = [each if isinstance(each := entry.get(key), Mapping) else {} for entry in (first, second)]
        wider = max(given, key=len)
        if not all(each.items() <= wider.items() for each in given):
            return None
        if len(given[0]) != len(given[1]):
            found.add("first" if wider is given[0] else "second")
            joined[key] = wider
    if len(words) != len(other_words):
        found.add("first" if more is words else "second")
    new = [each for each in others if not any(_is_within(each, folder) for folder in folders)]
    old = [each for each in folders if not any(_is_within(each, folder) for folder in others)]
    if new or old:
        found.add("joined" if new and old else "second" if new else "first")
    if _args(first) or _args(second):
        joined["args"] = [*_args(second), *old] if "second" in found and more is not words else [*_args(first), *new]
    if found <= {"first"}:
        return first
    return second if found == {"second"} else joined


def _args(entry: Entry) -> list[Any]:
    """Return the arguments of an entry, which may be a broken one of our own file."""
    found = entry.get("args")
    return found if isinstance(found, list) else []


def _split(args: Sequence[Any]) -> tuple[list[str], list[str]]:
    """Return the arguments that say what is started, without a version, and the folders that it may use: full paths
    that belong to no option."""
    words: list[str] = []
    folders: list[str] = []
    for place, each in enumerate(map(str, args)):
        is_of_option = place > 0 and str(args[place - 1]).startswith("-") and args[place - 1] not in _QUIET
        if each.startswith(("/", "~", "${HOME}")) and not is_of_option and words:
            folders.append(each)
        elif each not in _QUIET:
            words.append(re.sub(r"(?<=\w)@[\w.^~*-]+\Z", "", each))
    return words, folders


def _is_within(folder: str, other: str) -> bool:
    """Return whether a folder is another one or lies in it."""
    home = os.path.expanduser("~")  # noqa: PTH111 -- the texts of a config, which need not exist
    paths = [os.path.normpath(expand_tilde(each.replace("${HOME}", "~", 1), home)) for each in (folder, other)]
    return paths[0] == paths[1] or paths[0].startswith(f"{paths[1].rstrip('/')}/")
