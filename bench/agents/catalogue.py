"""The catalogue around the tasks: the servers that the tasks need, and definitions of real servers that take no part.

The definitions are read at run time from a folder of `tools/list` answers of real servers, one JSON file a server. A
server that takes no part answers every call with an error, as it would without its account.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench import processes
from bench.clients.messages import Json

NEEDED: Final[Mapping[str, str]] = {
    "files": "ref-filesystem", "git": "mcp-server-git", "sqlite": "mcp-server-sqlite", "memory": "ref-memory",
    "time": "mcp-server-time", "calculator": "mcp-server-calculator", "editor": "mcp-text-editor",
    "fetch": "mcp-server-fetch",
}  # fmt: skip
"""The servers that tasks need, each with the file of its definitions."""
OTHERS: Final[Mapping[str, str]] = {
    "github": "ref-github", "playwright": "playwright-mcp", "duckduckgo": "duckduckgo-mcp-server",
    "youtube": "kimtaeyoon83-mcp-server-youtube-transcript", "context7": "upstash-context7-mcp",
    "chart": "antv-mcp-server-chart", "slack": "ref-slack", "notion": "notionhq-notion-mcp-server",
    "todoist": "doist-todoist-mcp", "linear": "linear-mcp-server", "excel": "excel-mcp-server",
    "word": "office-word-mcp-server", "powerpoint": "office-powerpoint-mcp-server",
    "trello": "delorenj-mcp-server-trello", "finance": "mcp-yahoo-finance", "maps": "ref-google-maps",
    "weather": "dangahagan-weather-mcp", "papers": "arxiv-mcp-server", "airbnb": "openbnb-mcp-server-airbnb",
    "zotero": "zotero-mcp-server", "kubernetes": "mcp-server-kubernetes", "atlassian": "mcp-atlassian",
}  # fmt: skip
"""Servers that take no part, in the order in which a larger catalogue has them."""
FAILURE: Final = "Error: not signed in. This server has no account here."


def read_tools(folder: Path, file: str) -> list[Json]:
    """The definitions of one server."""
    tools: list[Json] = json.loads((folder / f"{file}.json").read_text("utf-8"))["tools"]
    return tools


def read_catalogue(folder: Path, size: int, longest: float = math.inf) -> dict[str, list[Json]]:
    """Definitions by server: those of the needed servers, then of others until there are `size` tools.

    `longest`: of the others only those whose definitions have at most so many characters in the mean, for a model whose
    context does not hold so many tools of all kinds."""
    found = {name: read_tools(folder, file) for name, file in NEEDED.items()}
    for name, file in OTHERS.items():
        left = size - sum(map(len, found.values()))
        if left <= 0:
            break
        tools = read_tools(folder, file)
        if statistics.fmean(len(json.dumps(tool)) for tool in tools) <= longest:
            found[name] = tools[:left]
    return found


def stand_in(folder: Path, name: str, tools: Sequence[Json]) -> dict[str, Any]:
    """The config entry of a server that serves these definitions and fails every call."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(tools), "utf-8")
    return {
        "command": sys.executable,
        "args": ["-S", "-E", processes.ECHO, "--name", name, "--tools", str(path), "--failure", FAILURE],
    }


def write_config(
    folder: Path, entries: Mapping[str, Json], catalogue: Mapping[str, Sequence[Json]], **settings: Any
) -> Path:
    """Write a config into a folder, which is made, with these servers and a stand-in for each other one."""
    folder.mkdir(parents=True, exist_ok=True)
    others = {name: stand_in(folder, name, tools) for name, tools in catalogue.items() if name not in entries}
    return processes.write_config(folder, {**entries, **others}, **settings)
