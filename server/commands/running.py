"""What commands ask running proxies, and say of those that are in trouble."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from msgspec import Struct, ValidationError, convert

from foretool.server.commands import output
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


def ask_proxies(config: Config) -> dict[int, OpenProxy]:
    """Return who uses each running proxy that several clients may share, by its process id."""
    folder = find_folder(os.environ)
    found: dict[int, OpenProxy] = {}
    for profile in config.profiles if folder is not None else ():
        wanted = ProxyIdentity.own(config.path, profile, is_project=config.named_by == "project_config")
        for answer in ask_all(str(folder), wanted, STATUS, {}, _ASK_S):
            with suppress(ValidationError):
                found[int(answer.get("pid", 0))] = convert(answer, OpenProxy)
    return found


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
