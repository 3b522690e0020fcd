"""Reads the data sets and the catalogs of real servers that the benchmarks run on."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from foretool.storage.records import Tool, ToolId

Json = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """A query and the tools it needs."""

    query: str
    gold: tuple[frozenset[ToolId], ...]
    """One set for each need: the tools that meet it."""


def is_there(path: Path) -> bool:
    """Whether the file exists, plain or gzipped."""
    return path.exists() or path.with_name(f"{path.name}.gz").exists()


def read_rows(path: Path) -> list[Json]:
    """The JSON lines of a file, plain or gzipped."""
    if path.suffix != ".gz" and path.exists():
        text = path.read_text("utf-8")
    else:
        packed = path if path.suffix == ".gz" else path.with_name(f"{path.name}.gz")
        text = gzip.decompress(packed.read_bytes()).decode()
    # Not splitlines(): texts that people wrote may hold other line separators.
    return [json.loads(line) for line in text.split("\n") if line.strip()]


def tool_of(server: str, definition: Mapping[str, Any]) -> Tool:
    """A tool as the catalog would hold it; its id is `server/name`, or the name where no server is known."""
    name = definition["name"]
    raw = json.dumps(definition, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    return Tool(ToolId(f"{server}/{name}" if server else name), server, name, raw, sha256(raw).hexdigest())


def tool_from_row(row: Json, **more: Any) -> Tool:
    """A tool from a line of `tools.jsonl`; `more` are further or other members of its definition."""
    definition = {"name": row["name"], "description": row.get("description") or ""}
    return tool_of(row.get("server") or "", {**definition, "inputSchema": row.get("input_schema") or {}, **more})


def read_tools(folder: Path) -> list[Tool]:
    """The tools of a set."""
    return [tool_from_row(row) for row in read_rows(folder / "tools.jsonl")]


def place_by_name(tools: Iterable[Tool]) -> dict[str, int]:
    """Where the first tool of each name stands."""
    places: dict[str, int] = {}
    for place, tool in enumerate(tools):
        places.setdefault(tool.name, place)
    return places


def read_tasks(path: Path, tools: Sequence[Tool]) -> list[Task]:
    """The queries whose gold tools exist; a name without server stands for the first tool that has it."""
    by_name = {name: tools[place].id for name, place in place_by_name(tools).items()}
    known = {str(tool.id): tool.id for tool in tools}

    def need(names: Sequence[str]) -> frozenset[ToolId]:
        found = (known.get(name) or by_name.get(name) for name in names)
        return frozenset(tool for tool in found if tool)

    tasks = []
    for row in read_rows(path):
        ambiguous = row.get("ambiguous") or {}
        wanted = row.get("accept") or [[call, *ambiguous.get(call.rpartition("/")[2], ())] for call in row["calls"]]
        needs = dict.fromkeys(found for names in wanted if (found := need(names)))
        if needs:
            tasks.append(Task(row["query"], tuple(needs)))
    return tasks


def read_search_file(path: Path, servers: bool) -> tuple[list[Tool], list[Task]]:
    """The tools and tasks of one file; with `servers` false the servers' names are not read as text."""
    data = json.loads(path.read_text("utf-8"))
    by_name: dict[str, Tool] = {}
    for server, tools in data["servers"].items():
        for tool in tools:
            by_name[tool["name"]] = tool_of(server if servers else "", tool)
    wanted = ((row["query"], [by_name[name].id for name in row["gold"] if name in by_name]) for row in data["queries"])
    tasks = [Task(query, tuple(frozenset((tool,)) for tool in gold)) for query, gold in wanted if gold]
    return list(by_name.values()), tasks


def read_server_texts(folder: Path) -> dict[str, str]:
    """What the servers of a set say of themselves, where the set has it."""
    path = folder / "servers.jsonl"
    return {row["server"]: row.get("description") or "" for row in read_rows(path)} if path.exists() else {}


def read_catalogs(folder: Path, limit: int | None = None) -> list[tuple[str, list[Json]]]:
    """Real servers, by the names of their files, each with its `tools/list`; `limit`: only the first so many."""
    held = (json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))[:limit])
    return [(each["server"], each["tools"]) for each in held]


def read_instructions(folder: Path) -> dict[str, str]:
    """What real servers say of themselves when a client connects, by the names of their files."""
    held = (json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json")))
    return {each["server"]: each.get("instructions") or "" for each in held}


def catalog_tools(folder: Path) -> list[Tool]:
    """All tools of real servers."""
    return [tool_of(server, tool) for server, tools in read_catalogs(folder) for tool in tools]


def opening_words(tools: Iterable[Json]) -> list[str]:
    """A query for each tool: the first sentence of its description, at most twelve words."""
    texts = (str(tool.get("description") or tool["name"]) for tool in tools)
    return [" ".join(text.split(". ")[0].split()[:12]) for text in texts]
