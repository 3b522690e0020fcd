"""What `foretool init` will change: our own file gets the servers, the clients get foretool in their place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from foretool.server.config.servers import matches
from foretool.server.config.variables import CREDENTIAL, Secrets, collect, secrets_in_url
from foretool.server.setup.changes import FileChange
from foretool.server.setup.documents import DocumentError
from foretool.server.setup.launches import profile_of
from foretool.server.setup.merge import Merged
from foretool.server.setup.own_servers import OwnServers
from foretool.server.setup.pasted import slug
from foretool.server.setup.registrations import register
from foretool.server.setup.scan import FoundFile, FoundServer
from foretool.server.setup.secrets import find_secrets

_PROFILES: Final = ("foretool", "profiles")


class _Profiles:
    """Which profile each client and each project gets."""

    def __init__(self, own: OwnServers, merged: Merged, *, is_wanted: bool) -> None:
        self._own, self._merged, self.is_wanted = own, merged, is_wanted

    def of_client(self, file: FoundFile, folder: str = "") -> str:
        """Return the profile of a client, or of its project, with the servers that it had; "" if none is wanted."""
        if not self.is_wanted:
            return ""
        client = file.file.client
        everywhere = [
            name for name, origins in self._merged.origins.items() if all(not each.client for each in origins)
        ]
        had = [
            name for each, server, name in self._merged.taken
            if each.file.client == client and each.file.scope == "user" and server.folder in ("", folder)
        ]  # fmt: skip
        profile = f"{client}-{slug(Path(folder).name)}" if folder else client
        self.add(profile, [*everywhere, *had])
        return profile

    def add(self, profile: str, names: Sequence[str]) -> None:
        """Add servers to a profile that names its servers; one that does not has them all."""
        kept = self._own.value((*_PROFILES, profile))
        known = kept.get("servers") if isinstance(kept, Mapping) else []
        if isinstance(known, list):
            new = [name for name in dict.fromkeys(names) if not matches(name, [str(each) for each in known])]
            if new or kept is None:
                self._own.set_value((*_PROFILES, profile, "servers"), [*known, *new])


def plan(
    own: OwnServers, merged: Merged, found: Sequence[FoundFile], launch: Sequence[str], *, with_profiles: bool = False
) -> tuple[list[FileChange], list[str]]:
    """Return the changes, our own file first, and a line for each file that cannot be changed.

    `launch` is the program and the arguments that start foretool for a client. `with_profiles`: each client, and each
    project of a client, gets a profile with the servers that it had.
    """
    before = own.text()
    profiles = _Profiles(own, merged, is_wanted=with_profiles)
    changes: list[FileChange] = []
    problems = []
    for file in found:
        if file.problem:
            problems.append(f"{file.file.path}: {file.problem}")
            continue
        try:
            changes += _client_change(file, merged, launch, profiles)
        except DocumentError as error:
            problems.append(f"{file.file.path}: {error}")
    return [*_own_change(own, merged, before), *changes], problems


def _own_change(own: OwnServers, merged: Merged, before: str) -> list[FileChange]:
    for name, position, value in merged.rewritten:
        own.set_value((own.key, name, *position), value)
    for name, entry in merged.entries.items():
        own.set_server(name, entry)
    if own.before is not None and own.text() == before:
        return []
    count = len(merged.entries)
    if count or own.before is None:
        why = f"gets {count or 'no'} server{'' if count == 1 else 's'}"
    else:
        why = "names its secrets instead of holding them" if merged.rewritten else "gets profiles"
    change = own.change(why)
    return [change] if change else []


def _find_own_entry(file: FoundFile) -> FoundServer | None:
    return next((each for each in file.servers if each.is_foretool and each.keys[:-1] == file.file.keys), None)


def profile_after(file: FoundFile, *, with_profiles: bool) -> str:
    """Return the profile with which a client starts foretool once the plan is carried out, "" for none."""
    if (ours := _find_own_entry(file)) is not None:
        return profile_of(ours.entry)
    return file.file.client if with_profiles else ""


def _client_change(file: FoundFile, merged: Merged, launch: Sequence[str], profiles: _Profiles) -> list[FileChange]:
    if file.file.scope == "project":
        return []
    document = file.open()
    taken = [(server, name) for origin, server, name in merged.taken if origin is file]
    for server, _ in taken:
        document.remove(server.keys, with_comments=True)
    ours = _find_own_entry(file)
    if ours is not None and (profile := profile_of(ours.entry)):
        profiles.add(profile, [name for server, name in taken if not server.folder])
    elif file.file.registers and ours is None:
        if not file.data:
            for key, value in file.file.top:
                document.set((key,), value)
        register(document, file.file, _with_profile(launch, profiles.of_client(file)))
        for folder in dict.fromkeys(server.folder for server, _ in taken if server.folder):
            if profile := profiles.of_client(file, folder):
                # In Claude Code the server of a project takes the place of the user's server of this name.
                keys = (*file.file.per_project[:1], folder, *file.file.per_project[1:2])
                register(document, replace(file.file, keys=keys), _with_profile(launch, profile))
    what = "gets foretool" if file.file.registers else "loses what foretool has now"
    replaced = len(taken) if file.file.registers else 0
    why = f"{what} in place of {len(taken)}" if taken else what
    change = FileChange(file.file.path, file.data, document.text().encode(), why, replaced)
    return [change] if change.after != change.before else []


def _with_profile(launch: Sequence[str], profile: str) -> list[str]:
    return [*launch, "--profile", profile] if profile else [*launch]


def secrets_of(entries: Iterable[Mapping[str, Any]]) -> Secrets:
    """Return the values that no output shows, of entries as we or a client write them: those of variables, headers,
    arguments and addresses, and of all keys whose names say so."""
    pairs: list[tuple[str, str]] = []
    for entry in entries:
        pairs += _named_secrets(entry)
        for key in ("url", "serverUrl", "httpUrl", "uri"):
            if isinstance(entry.get(key), str):
                pairs += secrets_in_url(entry[key])
        pairs += ((secret.value, secret.name) for secret in find_secrets(entry))
    return collect(pairs)


_SECRET_KEYS: Final = frozenset({"env", "envs", "environment", "headers", "http_headers"})


def _named_secrets(value: Any, name: str = "", *, is_secret: bool = False) -> Iterator[tuple[str, str]]:
    if isinstance(value, str) and is_secret and "${" not in value:
        yield from ((part, name) for part in (value, *value.split()))
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _named_secrets(
                each, str(key), is_secret=is_secret or key in _SECRET_KEYS or bool(CREDENTIAL.search(str(key)))
            )
    elif isinstance(value, list):
        for each in value:
            yield from _named_secrets(each, name, is_secret=is_secret)
