"""What `foretool init` will change: our own file gets the servers, the clients get foretool in their place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from foretool.server.config.variables import Secrets, collect, secrets_in_url
from foretool.server.setup.changes import Change
from foretool.server.setup.dialects import Entry
from foretool.server.setup.documents import DocumentError
from foretool.server.setup.merge import Merged
from foretool.server.setup.own_servers import OwnServers
from foretool.server.setup.registrations import register
from foretool.server.setup.scan import FoundFile
from foretool.server.setup.secrets import find_secrets


def plan(
    own: OwnServers, merged: Merged, found: Iterable[FoundFile], launch: Sequence[str]
) -> tuple[list[Change], list[str]]:
    """Return the changes, our own file first, and a line for each file that cannot be changed.

    `launch` is the program and the arguments that start foretool for a client.
    """
    changes = _own_change(own, merged)
    problems = []
    for file in found:
        if file.problem:
            problems.append(f"{file.file.path}: {file.problem}")
            continue
        try:
            changes += _client_change(file, merged, launch)
        except DocumentError as error:
            problems.append(f"{file.file.path}: {error}")
    return changes, problems


def _own_change(own: OwnServers, merged: Merged) -> list[Change]:
    if not merged.entries and own.before is not None and not merged.rewritten:
        return []
    for name, position, value in merged.rewritten:
        own.set_value((own.key, name, *position), value)
    for name, entry in merged.entries.items():
        own.set_server(name, entry)
    count = len(merged.entries)
    if count or not merged.rewritten:
        why = f"gets {count or 'no'} server{'' if count == 1 else 's'}"
    else:
        why = "names its secrets instead of holding them"
    change = own.change(why)
    return [change] if change else []


def _client_change(file: FoundFile, merged: Merged, launch: Sequence[str]) -> list[Change]:
    if file.file.scope == "project":
        return []
    document = file.open()
    taken = [server for origin, server in merged.taken if origin is file]
    for server in taken:
        document.remove(server.keys)
    is_registered = any(server.is_foretool and server.keys[:-1] == file.file.keys for server in file.servers)
    if file.file.registers and not is_registered:
        if not file.data:
            for key, value in file.file.top:
                document.set((key,), value)
        register(document, file.file, launch)
    what = "gets foretool" if file.file.registers else "loses what foretool has now"
    return _change(file.file.path, file.data, document.text(), f"{what} in place of {len(taken)}" if taken else what)


def _change(path: Path, before: bytes | None, after: str, why: str) -> list[Change]:
    return [Change(path, before, after.encode(), why)] if (before or b"") != after.encode() or before is None else []


def secrets_of(entries: Iterable[Entry]) -> Secrets:
    """Return the values of variables, headers, arguments and addresses that no output shows."""
    pairs: list[tuple[str, str]] = []
    for entry in entries:
        for key in ("env", "headers"):
            for name, value in (entry.get(key) or {}).items():
                if isinstance(value, str) and "${" not in value:
                    pairs += ((part, name) for part in (value, *value.split()))
        if isinstance(entry.get("url"), str):
            pairs += secrets_in_url(entry["url"])
        pairs += ((secret.value, secret.name) for secret in find_secrets(entry))
    return collect(pairs)
