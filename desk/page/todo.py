"""What a person should do now, as the first page says it: each with the address that leads on."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Final
from urllib.parse import quote

from msgspec import Struct

from foretool.desk.page.viewers import Viewer
from foretool.server.app import App
from foretool.server.config.errors import name_some, plural
from foretool.server.config.loader import Config
from foretool.server.ledger.conditions import ListedServer
from foretool.server.ledger.fixes import most_missed
from foretool.storage.records import MissCount, ToolId

_NAMED: Final = 3
"""How many servers an entry names."""


_AGAIN: Final = "foretool doctor tries all of them again"


class Todo(Struct, frozen=True):
    """One task for the user on the first page."""

    what: str
    why: str = ""
    link: str = ""
    """The address below the page that leads on; "" if what to do is all in the words."""


def read_todo(
    app: App, config: Config, viewer: Viewer, servers: Sequence[ListedServer], missed: Sequence[MissCount],
    listed: Collection[ToolId],
) -> list[Todo]:  # fmt: skip
    """Return what to do, the most urgent first. `missed`: the most frequent first; `listed`: what a list that is made
    now has. Raises `StorageError`."""
    if not viewer.sees_all:
        return [*_repair(servers), *_show_tool(app, missed, listed)]
    return [
        *_repair(servers), *_review(servers), *_show_tool(app, missed, listed), *_correct(config.warnings),
        *_start(servers),
    ]  # fmt: skip


def _repair(servers: Sequence[ListedServer]) -> list[Todo]:
    ill = [each for each in servers if not each.is_well]
    if not ill:
        return []
    again = f"foretool doctor {shlex.join(each.name for each in ill[:_NAMED])} tries again"
    if len(ill) == 1:
        return [Todo(f"Repair {ill[0].name}", f"{ill[0].error}; {again}", "#servers")]
    names = name_some([each.name for each in ill], _NAMED)
    return [
        Todo(f"Repair {plural(len(ill), 'server')}", f"{names}; {again if len(ill) <= _NAMED else _AGAIN}", "#servers")
    ]


def _review(servers: Sequence[ListedServer]) -> list[Todo]:
    held = [each for each in servers if each.held]
    if not held:
        return []
    if len(held) == 1:
        address = f"review/{quote(held[0].name, safe='')}"
        return [Todo(f"Review {held[0].name}", f"{held[0].held}; not served before you approve it", address)]
    names = name_some([each.name for each in held], _NAMED)
    return [
        Todo(
            f"Review {plural(len(held), 'server')}",
            f"{names}: changes are not served before you approve them",
            "tools#review",
        )
    ]


def _correct(warnings: Sequence[str]) -> list[Todo]:
    if not warnings:
        return []
    more = f" And {len(warnings) - 1} more; foretool doctor says them all." if len(warnings) > 1 else ""
    return [Todo("Correct the config", f"{warnings[0]}{more}")]


def _show_tool(app: App, missed: Sequence[MissCount], listed: Collection[ToolId]) -> list[Todo]:
    """Return the most missed tool that a list of now still lacks and that a change would show."""
    each = most_missed(app, missed, listed)
    if each is None:
        return []
    return [Todo(f"List {each.tool} always", f"missed {plural(each.count, 'time')}", f"misses/{each.last_id}")]


def _start(servers: Sequence[ListedServer]) -> list[Todo]:
    if not servers:
        return [Todo("Run foretool init", "no server yet; it takes over those of your clients")]
    new = name_some([each.name for each in servers if each.is_unlisted], _NAMED)
    return [Todo("Run foretool doctor", f"it starts {new} once, to learn what tools there are")] if new else []
