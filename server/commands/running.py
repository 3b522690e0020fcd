"""What commands ask running proxies, and say of those that are in trouble, or go on without the config."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from msgspec import Struct, ValidationError, convert

from foretool.server.commands import output
from foretool.server.config.errors import ConfigError, RefusedConfig
from foretool.server.config.loader import Config
from foretool.server.local.caller import ask_all
from foretool.server.local.frames import STATUS
from foretool.server.local.places import ProxyIdentity, find_folder
from foretool.server.recording.notes import ProxyJob
from foretool.server.recording.store_watch import TroubleNote
from foretool.storage.records import UpstreamState

_ASK_S: Final = 1.0
"""How long all running proxies may take to say which windows they have."""


class SharedWindow(Struct, frozen=True):
    """One open window of a client whose proxy is shared."""

    pid: int
    folder: str
    client: str
    """The name that the client gives itself, "" before it has."""
    since: float


class OpenProxy(Struct, frozen=True):
    """Who uses a running proxy that several clients may share."""

    windows: tuple[SharedWindow, ...] = ()
    """Those that share it."""
    address: str = ""
    """Where it serves over HTTP, "" if it does not."""
    sessions: dict[str, int] = {}
    """By the name of a token or a person, how many clients are connected over HTTP."""
    roots: str = ""
    """Which servers are not told in which folders their clients work, and why; "" if none lacks that."""
    refused: RefusedConfig | None = None


def ask_proxies(config: Config) -> dict[int, OpenProxy]:
    """Return who uses each running proxy of a config that several clients may share, by its process id."""
    return _ask(ProxyIdentity.own(config.path, None, is_project=config.named_by == "project_config"))


def _ask(wanted: ProxyIdentity) -> dict[int, OpenProxy]:
    folder = find_folder(os.environ)
    if folder is None:
        return {}
    found: dict[int, OpenProxy] = {}
    for answer in ask_all(folder, wanted, STATUS, {}, _ASK_S):
        with suppress(ValidationError):
            found[int(answer.get("pid", 0))] = convert(answer, OpenProxy)
    return found


def tell_who_serves_on(error: ConfigError) -> list[str]:
    """Return a line for each running proxy whose config cannot be used now."""
    if error.file is None:
        return []
    asked = _ask(ProxyIdentity.own(error.file, None, is_project=False))
    return [_say_serves_on(pid, each) for pid, each in asked.items()]


def _say_serves_on(pid: int, proxy: OpenProxy) -> str:
    count = len(proxy.windows) + sum(proxy.sessions.values())
    said = f"proxy {pid} still serves {output.plural(count, 'client')}"
    if proxy.refused is None:
        return said
    since = output.span(time.time() - proxy.refused.since)
    return f"{said}, for {since} with the config before this error; it takes the file up once it is correct"


def say_older_config(refused: RefusedConfig) -> str:
    """Say for how long a proxy has not been able to use the config, and why; a command, in another environment, may."""
    return f"serves with an older config for {output.span(time.time() - refused.since)}: {refused.error}"


def find_unrecorded(pids: Iterable[int], states: Iterable[UpstreamState], noted: Iterable[TroubleNote]) -> set[int]:
    """Return those of running proxies that have written nothing down: they have just started, or cannot."""
    return set(pids) - {each.pid for each in states} - {each.pid for each in noted}


def say_proxy_troubles(without_storage: Iterable[TroubleNote], failing_jobs: Iterable[ProxyJob]) -> None:
    """Say which running proxies cannot write the storage, and what others cannot do in the background."""
    for note in without_storage:
        for_how_long = output.span(time.time() - note.since)
        state = "been older than its storage" if note.is_writing else "served without its storage"
        output.say(f"proxy {note.pid} has {state} for {for_how_long}:", "red")
        output.say(f"  {note.trouble}")
    for each in failing_jobs:
        for_how_long = output.span(time.time() - each.since)
        output.say(f"proxy {each.pid}: background job {each.job!r} has failed for {for_how_long} [{each.code}]:", "red")
        output.say(f"  {each.error}")
