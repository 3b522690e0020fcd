"""Counts turns and tokens of tasks of several steps: single calls against one `call_tools`, over real servers.

    python -m bench.agents.series --servers FOLDER

There is no model: each task is written down as a model would write it that knows the tools and what they answer
(scripted). So this is the most that `call_tools` can save, not what a model makes of it. Three arms:

  single    one call a turn
  parallel  calls that need no result of another in one turn, as clients allow
  series    one `call_tools` a task

Each has one more turn, in which the model answers. `read`: tokens before the model, summed over the turns; `fresh`:
those of them that no earlier turn of the task had; `written`: tokens of its calls. All are estimates of
`retrieval.tokens`. The arms run under `"bridges": "one"`, so that a series may hold what changes something.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any, Final

from msgspec import Struct

from bench import processes
from bench.agents.world import World
from bench.clients.messages import Json
from bench.clients.stdio import StdioClient
from bench.options import add_foretool, make_parser
from foretool.retrieval.tokens import estimate
from foretool.server.calls.json_paths import ITEM, fill_in, read_path
from foretool.server.calls.json_paths import Path as ValuePath
from foretool.server.calls.series import value_of
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw

ANSWER: Final = 1
"""Turns in which the model answers."""


class Script(Struct, frozen=True):
    """One task, written down."""

    task: str
    calls: Sequence[Json]
    wanted: Sequence[str] = ()
    """What `return` names; without any, the last result."""
    in_order: bool = False
    """Its calls have to run in this order, also where none uses a result of another."""


def call(name: str, for_each: str = "", **arguments: Any) -> Json:
    return {"name": name, "arguments": arguments} | ({"for_each": for_each} if for_each else {})


def scripts(files: str, repository: str) -> list[Script]:
    """Return the tasks in one world."""
    tree, read, write = "files__directory_tree", "files__read_text_file", "files__write_file"
    remember, graph, nodes = "memory__add_observations", "memory__read_graph", "memory__open_nodes"
    table, query, change = "sqlite__describe_table", "sqlite__read_query", "sqlite__write_query"
    git = {"repo_path": repository}
    calculate, now, convert = "calculator__calculate", "time__get_current_time", "time__convert_time"
    reports = call(tree, path=f"{files}/reports")

    def each(of: str, folder: str, tool: str = read) -> Json:
        return call(tool, of, path=f"{files}/{folder}/{{$.item.name}}")

    notes = f"$.1['{files}/notes.txt']"
    patch = {
        "line_start": 1,
        "line_end": 1,
        "range_hash": f"{notes}.ranges[0].range_hash",
        "contents": "Call the painter\n",
    }
    return [
        Script("What do the three reports say?", [reports, each("$.1[*]", "reports")], ["$.2"]),
        Script("Compare the two prices.", [call(tree, path=f"{files}/prices"), each("$.1", "prices")], ["$.2"]),
        Script("Read my letters of 2024.", [call(tree, path=f"{files}/letters/2024"), each("$.1", "letters/2024")]),
        Script("How many reports are there?", [reports], ["$.1.length()"]),
        Script("How large are the reports?", [reports, each("$.1", "reports", "files__get_file_info")]),
        Script("Show the first report.", [reports, call(read, path=f"{files}/reports/{{$.1[0].name}}")], ["$.2"]),
        Script("Show the last two reports.", [reports, each("$.1[-2:]", "reports")], ["$.2"]),
        Script(
            "Copy the contract.",
            [
                call(read, path=f"{files}/prices/contract.txt"),
                call(write, path=f"{files}/contract.txt", content="$.1"),
            ],
        ),
        Script(
            "Put my settings into my draft.",
            [
                call(read, path=f"{files}/settings.ini"),
                call(read, path=f"{files}/draft.txt"),
                call(write, path=f"{files}/draft.txt", content="{$.2}\n{$.1}"),
            ],
        ),
        Script("Who is remembered, and as what?", [call(graph)], ["$.1.entities[*]['name','entityType']"]),
        Script(
            "How many people and links are remembered?",
            [call(graph)],
            ["$.1.entities.length()", "$.1.relations.length()"],
        ),
        Script(
            "What is known of those that others are linked to?",
            [call(graph), call(nodes, names="$.1.relations[*].to")],
            ["$.2.entities[*].observations"],
        ),
        Script(
            "The one who plays chess has moved to Oslo.",
            [
                call("memory__search_nodes", query="chess"),
                call(remember, observations=[{"entityName": "$.1.entities[0].name", "contents": ["lives in Oslo"]}]),
            ],
        ),
        Script(
            "Everybody remembered works at Acme.",
            [
                call(graph),
                call(
                    "memory__create_relations",
                    "$.1.entities[*].name",
                    relations=[{"from": "$.item", "to": "Acme", "relationType": "works_at"}],
                ),
            ],
        ),
        Script(
            "Remember my settings for Carol.",
            [
                call(read, path=f"{files}/settings.ini"),
                call(remember, observations=[{"entityName": "Carol", "contents": ["$.1"]}]),
            ],
        ),
        Script(
            "What is known of Carol and of Acme?",
            [call(nodes, names=["Carol"]), call(nodes, names=["Acme"])],
            ["$.1", "$.2"],
        ),
        Script(
            "What time is it in three cities?",
            [call(now, timezone=zone) for zone in ("Asia/Tokyo", "Europe/Rome", "America/Lima")],
            ["$.1.datetime", "$.2.datetime", "$.3.datetime"],
        ),
        Script(
            "When is 14:00 of Rome in three cities?",
            [
                call(convert, source_timezone="Europe/Rome", time="14:00", target_timezone=zone)
                for zone in ("Asia/Tokyo", "America/Lima", "Africa/Cairo")
            ],
            ["$.1.target.datetime", "$.2.target.datetime", "$.3.target.datetime"],
        ),
        Script(
            "The mean of the sales.", [call(calculate, expression="310+275+402"), call(calculate, expression="{$.1}/3")]
        ),
        Script(
            "Compound interest over three years.",
            [
                call(calculate, expression="1200*1.04"),
                call(calculate, expression="{$.1}*1.04"),
                call(calculate, expression="{$.2}*1.04"),
            ],
        ),
        Script(
            "Which columns do the tables have?",
            [call(table, table_name="customers"), call(table, table_name="orders")],
            ["$.1", "$.2"],
        ),
        Script(
            "Show customers and orders.",
            [call(query, query="select * from customers"), call(query, query="select * from orders")],
            ["$.1", "$.2"],
        ),
        Script(
            "Add a customer, and count them.",
            [
                call(change, query="insert into customers values (4, 'Ada', 'Rome')"),
                call(query, query="select count(*) from customers"),
            ],
            in_order=True,
        ),
        Script(
            "What has changed in the repository?",
            [
                call("git__git_status", **git),
                call("git__git_diff_unstaged", **git),
                call("git__git_diff_staged", **git),
            ],
            ["$.1", "$.2", "$.3"],
        ),
        Script(
            "Show history and branches.",
            [call("git__git_log", **git), call("git__git_branch", branch_type="all", **git)],
            ["$.1", "$.2"],
        ),
        Script(
            "Commit the new file.",
            [
                call("git__git_add", files=["new.txt"], **git),
                call("git__git_commit", message="Add a file", **git),
                call("git__git_log", max_count=1, **git),
            ],
            in_order=True,
        ),
        Script(
            "Write a note and check it.",
            [
                call(write, path=f"{files}/todo.txt", content="Buy milk\n"),
                call(read, path=f"{files}/todo.txt"),
            ],
            in_order=True,
        ),
        Script(
            "Put two files into a new folder.",
            [
                call("files__create_directory", path=f"{files}/old"),
                call("files__move_file", source=f"{files}/draft.txt", destination=f"{files}/old/draft.txt"),
                call("files__move_file", source=f"{files}/notes.txt", destination=f"{files}/old/notes.txt"),
            ],
            in_order=True,
        ),
        Script(
            "Call the painter, not the plumber.",
            [
                call(
                    "editor__get_text_file_contents",
                    files=[{"file_path": f"{files}/notes.txt", "ranges": [{"start": 1, "end": 1}]}],
                ),
                call(
                    "editor__edit_text_file_contents",
                    files=[{"path": f"{files}/notes.txt", "file_hash": f"{notes}.file_hash", "patches": [patch]}],
                ),
            ],
        ),
        Script(
            "Save the history of the repository in a file.",
            [call("git__git_log", **git), call(write, path=f"{files}/history.txt", content="$.1")],
        ),
    ]


class Turn(Struct, frozen=True):
    """What a model writes in one turn, and what it reads after it."""

    written: int
    results: int


def cost(base: int, turns: Sequence[Turn]) -> dict[str, float]:
    """Return turns and tokens of a task; `base`: tokens of the list and the task."""
    read, so_far = 0, base
    for turn in turns:
        read += so_far
        so_far += turn.written + turn.results
    written = sum(each.written for each in turns)
    return {"turns": len(turns) + ANSWER, "read": read + so_far, "fresh": so_far, "written": written}


class Runner:
    """Runs scripts over one proxy."""

    def __init__(self, client: StdioClient, list_tokens: int, series_tokens: int) -> None:
        self._client = client
        self._list_tokens = list_tokens
        self._series_tokens = series_tokens

    async def single(self, script: Script) -> dict[str, dict[str, float]]:
        """Run the calls one by one. Returns what they cost in turn, and where those that can share a turn do."""
        values, levels = list[Raw](), list[int]()
        done = list[tuple[int, Turn]]()
        for number, each in enumerate(script.calls, 1):
            used = find_roots(each)
            level = max((levels[root - 1] for root in used), default=0) + 1
            levels.append(max(level, number) if script.in_order else level)
            items = [jsonrpc.EMPTY]
            if "for_each" in each:
                items = jsonrpc.items(_look_up(values, jsonrpc.EMPTY, read_path(each["for_each"])))
            found = list[Raw]()
            for item in items:
                given = fill_in(jsonrpc.raw(each["arguments"]), partial(_look_up, values, item))
                result = await self._run("call_tool", {"name": each["name"], "arguments": json.loads(bytes(given))})
                wrote = estimate(f'call_tool{{"name":"{each["name"]}","arguments":{bytes(given).decode()}}}')
                done.append((levels[-1], Turn(wrote, estimate(_text(result)))))
                found.append(value_of(jsonrpc.raw(result)))
            values.append(jsonrpc.raw(found) if "for_each" in each else found[0])
        base = self._list_tokens + estimate(script.task)
        together = [[turn for at, turn in done if at == level] for level in sorted({at for at, _ in done})]
        parallel = [
            Turn(sum(each.written for each in turns), sum(each.results for each in turns)) for turns in together
        ]
        return {"single": cost(base, [turn for _, turn in done]), "parallel": cost(base, parallel)}

    async def series(self, script: Script) -> dict[str, float]:
        given: Json = {"calls": script.calls} | ({"return": script.wanted} if script.wanted else {})
        result = await self._run("call_tools", given)
        written = estimate(f"call_tools{json.dumps(given, separators=(',', ':'))}")
        base = self._list_tokens + self._series_tokens + estimate(script.task)
        return cost(base, [Turn(written, estimate(_text(result)))])

    async def _run(self, tool: str, arguments: Json) -> Json:
        result = await self._client.call(tool, arguments)
        if result.get("isError"):
            raise SystemExit(f"{tool} {json.dumps(arguments)[:300]}: {_text(result)[:600]}")
        return result


def find_roots(each: Json) -> set[int]:
    """Return the numbers of the calls whose results a call uses."""
    found = set[int]()

    def note(path: ValuePath) -> Raw:
        found.add(path.root)
        return Raw(b'""')

    fill_in(jsonrpc.raw([each["arguments"], each.get("for_each", "")]), note)
    return found - {ITEM}


def _look_up(values: Sequence[Raw], item: Raw, path: ValuePath) -> Raw:
    return path.read(item if path.root == ITEM else values[path.root - 1])


def _text(result: Json) -> str:
    return "\n".join(block.get("text", "") for block in result["content"])


async def measure(command: Sequence[str], servers: Path, folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Run every task in each arm. Returns the task and its costs by arm."""
    world, rows = World(folder / "world"), list[tuple[str, dict[str, Any]]]()
    for script in scripts(str(world.files), str(world.repository)):
        found: dict[str, Any] = {}
        for arm in ("single", "series"):
            world.reset()
            settings = {"storage": "store.sqlite3", "encoder": "none", "bridges": "one", "call_tools": True}
            config = folder / "mcp.json"
            entries = world.servers(servers)
            config.write_text(json.dumps({"mcpServers": entries, "foretool": settings}), "utf-8")
            async with StdioClient.serve([*command], config) as client:
                await client.initialize()
                tools = {each["name"]: estimate(json.dumps(each)) for each in await client.tools()}
                own = tools.pop("call_tools")
                runner = Runner(client, sum(tools.values()), own)
                found |= await runner.single(script) if arm == "single" else {"series": await runner.series(script)}
        rows.append((script.task, found))
        print(script.task, {arm: (each["turns"], each["read"]) for arm, each in found.items()}, flush=True)
    return rows


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser("python -m bench.agents.series", __doc__)
    parser.add_argument("--servers", type=Path, required=True, help="where the packages of the servers are")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        rows = asyncio.run(measure(processes.installed(arguments.foretool), arguments.servers, Path(folder)))
    print(f"{len(rows)} tasks, scripted: no model took part")
    for arm in ("single", "parallel", "series"):
        means = {name: mean(found[arm][name] for _, found in rows) for name in ("turns", "read", "fresh", "written")}
        print(f"{arm:<9}", " ".join(f"{name} {value:,.1f}" for name, value in means.items()))


if __name__ == "__main__":
    main()
