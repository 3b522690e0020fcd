"""A log of tasks to play again: a config, tools that are known, and sessions that searched and called."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from command_fakes import remember, write_config

from foretool.server.config import loader
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Match, Miss, Prompt, SessionRecord, ToolId

START = 1_000_000.0
HOUR = 3600.0
TOOLS = {
    "calc": {"add": "Adds two numbers.", "subtract": "Takes one number from another."},
    "sky": {"forecast": "Forecast of the weather for a city.", "moon": "Phase of the moon on a day."},
    "mail": {"send": "Sends a message by mail.", "find": "Finds messages in the mailbox by their words."},
}
SERVERS: dict[str, Any] = {name: {"command": name} for name in TOOLS}


def write_recorded(folder: Path, tasks: Sequence[tuple[str, Sequence[str]]], **settings: Any) -> Path:
    """A config over a store in which each task (its words, and the tools it called) was a session, an hour apart.

    Each task searched once, called what it found, and its first call was a miss.
    """
    path = write_config(folder, SERVERS, **{"policy": "frozen", "list_tokens": 420, **settings})
    config = loader.load(path)
    with open_store(config.storage) as store:
        for server, tools in TOOLS.items():
            remember(config, store, server, tools)
            store.catalog.save_exposed_names({ToolId(f"{server}__{name}"): (server, name) for name in tools})
        for number, (words, calls) in enumerate(tasks):
            key, at = f"s{number}", START + number * HOUR
            store.sessions.begin(SessionRecord(key, "claude-code", "2.1", "legacy", "stdio", "", at, at + 60))
            found = 0
            if words:
                matches = (Match(ToolId(calls[0]), 1, 2.0),)
                found = store.discoveries.add(Discovery(key, at + 1, words, (), None, "high", matches, 90, 1.0))
            each = [
                Call(key, at + 2 + place, ToolId(tool), tool.partition("__")[0], "bridge", True, "ok", 5.0, True, "",
                     found if place == 0 else 0)
                for place, tool in enumerate(calls)
            ]  # fmt: skip
            miss = Miss(
                key, at + 2, calls[0], "discovery", "budget", 1, 3, words, (), 0, found, "", "discovered", 1, 90, call=1
            )
            store.calls.record(each, [miss])
            store.sessions.end(key, at + 60)
    return path


def add_prompt(path: Path, at: float, text: str) -> None:
    """Record that a user's prompt hook told of this text."""
    with open_store(loader.load(path).storage) as store:
        store.tasks.add_prompt(Prompt(at, text))
