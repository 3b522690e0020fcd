"""Measures how lists improve with use, with an agent that replays the tasks of a data set.

    python -m bench.learning.simulation DATA [--sets a,b] [--tasks 200] [--svg FILE]

A real `foretool serve` stands in front of stand-in upstreams with the tools of a set. An agent does one task after
another with the calls that the set records, each task in its own conversation. If the wanted tool is in its list, the
agent calls it. If not, the call counts as hidden, and the agent asks `discover_tools` with the task's words: once per
task, and again only if the wanted tool was not in the answer. It then calls the tool by name if the list has gained it,
else through `call_tool_write`. A hidden tool that the prompt hook or a block after a result has named is called without
a discovery, and still counts as hidden. A tool that was named without its arguments takes a discovery by its name.

`--clients` says what the agent does when it is told that its list has changed: `again` lists again at once, `deaf`
never does, and `modern` speaks the era without sessions and passes on the handle of an answer.

With a prompt hook (`frozen+prompts`, `growing+prompts`) the code of `foretool hint` is told of each task before its
first call, as a client would do, without a process of its own. The agent reads what it prints, and waits for a list
that may grow as long as a model reads.

After every second block of tasks a new epoch begins. With learning `on`, `foretool learn` runs, which begins one;
with learning `off`, nothing is learned and the list follows usage alone; with `none` no epoch begins, so the list stays
as it was on the first day. The tasks are the train file in a random order (`dev` where a set has no other, or with
`--part dev`), never the held-out half; `--seeds` names the orders, with a run for each. The output is one JSON object
per block, then one per run: the tasks before the first epoch against as many at the end, all tasks, and all after the
first epoch. Last comes what learning changed, in pairs of the same tasks over all orders, with intervals.
`bench/learning/costs.py` says what is counted.

`--trace FILE` appends one JSON object for each discovery, so that one can see why it was needed. Its `rank` is that of
the wanted tool among 50 in `foretool search` for the same words once the run has ended, so with what was learned by
then; 0 is outside.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from bench import processes
from bench.clients.messages import PATIENCE_S, Failed, Json, envelope
from bench.clients.stdio import StdioClient
from bench.datasets import is_there, read_rows
from bench.learning import chart
from bench.learning.costs import Cost, Search, block_of, compare, comparison_table, name_of, summary, table
from bench.options import add_foretool, make_parser
from bench.proxy import many_servers
from bench.proxy.many_servers import OWN
from bench.retrieval import everyday
from foretool.retrieval import tokens
from foretool.server import hint
from foretool.server.calls.runner import READING_S
from foretool.server.hint import HintOptions
from foretool.storage.opening import open_store

SETS = ("ultratool", "bfcl_multi_turn", "mcpbench")
SEED = 7
PROMPTED = "+prompts"
"""Stands behind a policy with a client whose prompt hook is `foretool hint`."""
PROMPT_S = 2.0
"""The least time that a model takes to read a prompt; the list may grow meanwhile."""
CALL_MS = 5.0
"""How long a server takes for a call: the result of a faster one waits for no hint that was not written ahead."""
PICK_UP_S = 8.0
"""Waited until a running proxy has taken up what was learned; it looks once a second."""
_NAME = re.compile(r"[\w.-]+")
_SHARED = re.compile(r"([\w.-]+)\{(?=[\w.-]+[(,}])([^{}]*)\}")
"""Names that share a prefix: `files__{read(path: string), stat()}`."""
_MEMBER = re.compile(r"(?:^|, )([\w.-]+)(?=\(|,|$)")
_CALL = re.compile(r"([\w.-]+)\(")
_HANDLE = re.compile(r"^handle: ([\w-]+)", re.MULTILINE)
_SHOWN = re.compile(r"^\d+\. ([\w.-]+)[^\n]*\n +\{", re.MULTILINE)
"""A match of `discover_tools` with its schema."""


class Task(Struct, frozen=True):
    query: str
    calls: tuple[str, ...]
    """Exposed names, in order."""


class Agent(StdioClient):
    """A client that lists again as soon as the server announces a change."""

    listed: dict[str, Json]
    news: asyncio.Event
    may_grow = True
    """Whether the list may grow for a prompt."""

    async def begin(self) -> list[Json]:
        """Begin a new conversation; its first list."""
        self.listed = {}
        self.news = asyncio.Event()
        await self.initialize()
        tools = await self.tools()
        self.listed = {tool["name"]: tool for tool in tools}
        return tools

    def hear(self, message: Json) -> None:
        if message["method"] == "notifications/tools/list_changed":
            self._listing = asyncio.create_task(self._list_again())

    async def _list_again(self) -> None:
        self.listed = {tool["name"]: tool for tool in await self.tools()}
        self.news.set()

    async def read_prompt(self) -> None:
        """Wait until the list has grown for the prompt, or a model would have read it."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROMPT_S):
                await self.news.wait()


class DeafAgent(Agent):
    """A client that reads its list when a conversation begins and never again."""

    may_grow = False

    def hear(self, message: Json) -> None:
        """Take no notice of a change."""


class ModernAgent(DeafAgent):
    """A client of the era without sessions: a conversation begins with a list, and goes by the handle of an answer."""

    handle = ""

    async def initialize(self) -> Json:
        """Begin a conversation; nothing is sent for that."""
        self.handle = ""
        return {}

    async def ask(self, method: str, params: Json | None = None, patience_s: float = PATIENCE_S) -> Json:
        return await super().ask(method, {**(params or {}), "_meta": envelope()}, patience_s)

    async def call(self, tool: str, arguments: Json, patience_s: float = PATIENCE_S) -> Json:
        if tool not in OWN:
            return await super().call(tool, arguments, patience_s)
        more = {"handle": self.handle} if self.handle else {}
        result = await super().call(tool, {**arguments, **more}, patience_s)
        found = _HANDLE.search(" ".join(_texts(result))) if tool == "discover_tools" else None
        self.handle = found[1] if found else self.handle
        return result


CLIENTS: Mapping[str, type[Agent]] = {"again": Agent, "deaf": DeafAgent, "modern": ModernAgent}


@lru_cache(maxsize=20_000)
def _tokens(text: str) -> int:
    return sum(tokens.count_tokens([text]))


def size(*texts: str) -> int:
    """The tokens of some texts."""
    return sum(map(_tokens, texts))


def written(tools: Sequence[Json]) -> list[str]:
    """The definitions as they are sent."""
    return [json.dumps(tool, ensure_ascii=False, separators=(",", ":")) for tool in tools]


def sample(schema: Any) -> Any:
    """The smallest value that a schema accepts, by its types and required members."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    if "default" in schema:
        return schema["default"]
    for key in ("anyOf", "oneOf"):
        if schema.get(key):
            return sample(schema[key][0])
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: sample(properties.get(name, {})) for name in schema.get("required", ())}
    if kind == "array":
        return [sample(schema.get("items", {}))] * int(schema.get("minItems", 0))
    numbers = {"integer": int(schema.get("minimum", 1)), "number": schema.get("minimum", 1.0)}
    plain = {"boolean": True, "null": None, "string": "x" * max(int(schema.get("minLength", 1)), 1)}
    return (numbers | plain).get(kind, "x")


class Reader:
    """What a model has read in one task, and what that cost."""

    def __init__(self, agent: Agent, names: Collection[str], cost: Cost, seen: Counter[str] | None = None) -> None:
        """`seen`: the earlier tasks that called each tool."""
        self.seen = Counter[str]() if seen is None else seen
        self.named_by_hook = 0
        self._agent = agent
        self._names = frozenset(names)
        self._cost = cost
        self._said = 0
        self.known: set[str] = set()
        """Tools that any text has named with their arguments."""
        self.bare: set[str] = set()
        """Tools that were named, with their arguments or without."""
        self.told: set[str] = set()
        """Tools that the list, a prompt hook or an appended block has named."""

    def think(self) -> None:
        """Count one turn of the model."""
        self._cost.read(size(*written(list(self._agent.listed.values()))), self._said)

    def read(self, *texts: str) -> tuple[int, set[str]]:
        """Record texts of foretool; return their tokens and the tools that they name."""
        tokens = size(*texts)
        self._said += tokens
        return tokens, self._note(texts)

    def _note(self, texts: Sequence[str]) -> set[str]:
        """Record the tools that texts name; return those that they name with their arguments."""
        with_arguments, bare = read_names(texts, self._names)
        self.known |= with_arguments
        self.bare |= bare
        return with_arguments

    def read_list(self, tools: Sequence[Json]) -> None:
        """Read which tools the definitions of foretool's own tools name; their tokens count with the list."""
        self.told = self._note([tool.get("description", "") for tool in tools if tool["name"] not in self._names])

    def read_appended(self, result: Json) -> None:
        """Read the blocks that foretool appended to a result; the stand-in upstream answers with one block."""
        tokens, named = self.read(*_texts(result)[1:])
        self._cost.hint_tokens += tokens
        self.told |= named


def read_names(texts: Sequence[str], names: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the tools that texts name with their arguments, and all that they name."""
    plain = [_write_out(text) for text in texts]
    with_arguments = {name for text in plain for name in (*_CALL.findall(text), *_SHOWN.findall(text))}
    return with_arguments & {*names}, {name for text in plain for name in _NAME.findall(text)} & {*names}


def _write_out(text: str) -> str:
    """Write names that share a prefix one by one."""

    def whole(found: re.Match[str]) -> str:
        return _MEMBER.sub(lambda member: f", {found[1]}{member[1]}", found[2])

    return _SHARED.sub(whole, text)


async def do(
    agent: Agent, task: Task, schemas: Mapping[str, Any], cost: Cost, hook: HintOptions | None = None,
    seen: Counter[str] | None = None,
) -> None:  # fmt: skip
    """Do one task, call by call; `hook`: the options of the hook that is told of its prompt; `seen`: as of `Reader`."""
    first = await agent.begin()
    reader = Reader(agent, schemas.keys(), cost, seen)
    reader.read_list(first)
    if hook:
        agent.news.clear()
        printed = await asyncio.to_thread(_run_hook, hook, task)
        tokens, named = reader.read(printed)
        reader.told |= named
        reader.named_by_hook = len(named)
        cost.hook_tokens += tokens
        if agent.may_grow and not set(task.calls) <= agent.listed.keys():
            await agent.read_prompt()
    cost.list_tokens += size(*written(first))
    started_with = {tool["name"] for tool in first}
    for place, name in enumerate(task.calls):
        cost.calls += 1
        if name not in agent.listed:
            cost.hidden += 1
            if name in reader.known:
                cost.hinted += name in reader.told
            else:
                cost.at_first += not place
                await _discover(agent, task, place, reader, cost)
        reader.think()
        arguments = sample(schemas[name])
        if name in agent.listed:
            result = await agent.call(name, arguments)
        else:
            await asyncio.sleep(2 * READING_S)  # a model does not call sooner, and a proxy names nothing to a program
            result = await agent.call("call_tool_write", {"name": name, "arguments": arguments})
            if result.get("isError"):
                raise Failed(f"{name}: {' '.join(_texts(result))[:300]}")
        reader.read_appended(result)
    reader.think()  # its last turn is the answer to the user
    grown = [tool for name, tool in agent.listed.items() if name not in started_with]
    cost.grown_tokens += size(*written(grown)) if grown else 0
    reader.seen.update(set(task.calls))
    cost.end_task()


def _run_hook(hook: HintOptions, task: Task) -> str:
    event = json.dumps({"prompt": task.query, "session_id": "simulation", "cwd": str(Path.cwd())})
    # Its own deadline serves people who wait; a busy machine must not make it skip prompts here.
    return hint.answer_prompt(event.encode(), hook, PATIENCE_S)


async def _discover(agent: Agent, task: Task, place: int, reader: Reader, cost: Cost) -> None:
    wanted = task.calls[place]
    reader.think()
    cost.discoveries += 1
    by_name = wanted in reader.bare
    cost.by_name += by_name
    answer = await agent.call("discover_tools", {"names": [wanted]} if by_name else {"task": task.query})
    cost.answer_tokens += reader.read(*_texts(answer))[0]
    found = wanted in reader.bare
    cost.not_found += not found
    cost.searches.append(
        Search(len(cost.by_task), task.query, wanted, place, reader.seen[wanted], reader.named_by_hook, by_name, found)
    )
    # Whatever the answer lacks, the agent of a recorded task goes on with the right call.
    reader.known.add(wanted)


def _texts(result: Json) -> list[str]:
    return [part.get("text", "") for part in result["content"]]


class Setup:
    """A config and a store in a folder, over stand-in upstreams with the tools of a set."""

    def __init__(
        self, command: Sequence[str], folder: Path, data: Path, policy: str, encoder: str, fill: bool = True,
        **more: Any,
    ) -> None:  # fmt: skip
        """`more`: further settings of the proxy."""
        self.command = list(command)
        self.folder = folder
        self.catalogs = many_servers.read_set(data)
        entries = processes.serve_tools(folder, self.catalogs)
        for entry in entries.values():
            entry["args"] += ["--call-ms", str(CALL_MS)]
        # What is learned changes only lists that do not hold every tool.
        settings = {
            "policy": policy.partition("+")[0], "encoder": encoder, "epoch_s": 0, "learn_s": 0, "list_whole": False,
            "list_fill": fill, **more,
        }  # fmt: skip
        self.path = processes.write_config(folder, entries, **settings)
        self.by_meaning = encoder != "none"
        self.names: dict[str, str] = {}
        self.schemas: dict[str, Any] = {}

    async def remember(self) -> None:
        """Let a proxy learn of every tool, and embed it where an encoder ranks, so that the first task finds a warm
        store without any usage."""
        wanted = sum(map(len, self.catalogs.values()))
        async with Agent.serve(self.command, self.path) as agent:
            await agent.begin()
            while len(self._known()) < wanted and agent.age_s < many_servers.READY_S:
                await asyncio.sleep(0.5)
            if self.by_meaning:
                await everyday.wait_until_ready(agent, by_meaning=True)
        self.names = self._known()
        for server, tools in self.catalogs.items():
            for tool in tools:
                self.schemas[self.names[f"{server}/{tool['name']}"]] = tool["inputSchema"]

    def _known(self) -> dict[str, str]:
        """By server and tool, joined by a slash, the exposed name."""
        with open_store(self.folder / "foretool.sqlite3") as store:
            return {f"{server}/{tool}": name for name, (server, tool) in store.catalog.exposed_names().items()}

    def tasks(self, data: Path, count: int, skip: int = 0, seed: int = SEED, part: str = "train") -> list[Task]:
        """The tasks of a part in the order of a seed without the first `skip`; calls of tools that the set does not
        describe are left out."""
        rows = read_rows(data / (f"{part}.jsonl" if is_there(data / f"{part}.jsonl") else "dev.jsonl"))
        random.Random(seed).shuffle(rows)
        bare = {key.partition("/")[2]: name for key, name in self.names.items()}
        # Some sets write `server/tool`, with the server as the set calls it.
        full = {key.removeprefix(f"{data.name}-"): name for key, name in self.names.items()}
        found = []
        for row in rows:
            calls = tuple(name for call in row["calls"] if (name := full.get(call) or bare.get(call)))
            if calls:
                found.append(Task(row["query"], calls))
        return found[skip : skip + count]

    def rank(self, query: str, wanted: str) -> int:
        """The rank of a tool among the 50 that a search finds, 0 if it is none of them."""
        done = subprocess.run(
            [*self.command, "search", "--json", "--limit", "50", "--config", str(self.path), "--", query],
            check=True, capture_output=True,
        )  # fmt: skip
        names = [match["tool"] for match in json.loads(done.stdout)["matches"]]
        return names.index(wanted) + 1 if wanted in names else 0

    def learn(self) -> Json:
        """Run `foretool learn`; its outcome for each method."""
        started = time.perf_counter()
        done = subprocess.run(
            [*self.command, "learn", "--json", "--config", str(self.path)],
            check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        run = json.loads(done.stdout)
        outcomes = {lesson["kind"]: lesson["outcome"] for lesson in run["lessons"]}
        return {"took_s": round(time.perf_counter() - started, 1), **outcomes}

    def begin_epoch(self) -> None:
        """Begin a new epoch without learning: lists follow usage."""
        with open_store(self.folder / "foretool.sqlite3", busy_ms=5000) as store:
            store.artifacts.add("run", b"", {}, promote=False)  # so that the log says when
            store.artifacts.bump_version()


async def run(
    command: Sequence[str],
    data: Path,
    policy: str,
    learning: str,
    count: int,
    block: int,
    every: int,
    encoder: str,
    fill: bool = True,
    trace: Path | None = None,
    skip: int = 0,
    seed: int = SEED,
    part: str = "train",
    client: str = "again",
) -> list[Json]:
    """Do the tasks of one run and print its blocks; `every`: blocks between two epochs; `fill`: whether lists are
    filled before anything was called; `trace`: the file that is told of each discovery; `skip`: tasks left out at
    the front, in the order of `seed`; `client`: one of `CLIENTS`."""
    with tempfile.TemporaryDirectory(prefix="bench-simulation-", ignore_cleanup_errors=True) as folder:
        place = Setup(command, Path(folder), data, policy, encoder, fill)
        await place.remember()
        tasks = place.tasks(data, count, skip, seed, part)
        hook = HintOptions(str(place.path)) if policy.endswith(PROMPTED) else None
        found: list[Json] = []
        searches: list[Json] = []
        seen = Counter[str]()
        async with CLIENTS[client].serve(command, place.path) as agent:
            agent.may_grow = agent.may_grow and not policy.startswith("frozen")
            for start in range(0, len(tasks), block):
                some, cost = tasks[start : start + block], Cost()
                for task in some:
                    await do(agent, task, place.schemas, cost, hook, seen)
                row = {"test": "simulation", "set": data.name, "policy": policy, "client": client, "learning": learning,
                       "seed": seed, "skip": skip, **block_of(cost, len(some)), "done": start + len(some)}  # fmt: skip
                if start + block < len(tasks) and (start // block + 1) % every == 0:
                    if learning == "on":
                        row["learned"] = await asyncio.to_thread(place.learn)
                    elif learning == "off":
                        place.begin_epoch()
                    await asyncio.sleep(PICK_UP_S)
                print(json.dumps(row), flush=True)
                found.append(row)
                about = {"set": data.name, "policy": policy, "client": client, "learning": learning, "encoder": encoder}
                searches += [{**about, **asdict(each), "task": start + each.task, "rank": 0} for each in cost.searches]
        if trace is not None:
            with trace.open("a", encoding="utf-8") as file:
                for each in searches:
                    rank = place.rank(each["query"], each["wanted"])
                    file.write(json.dumps({**each, "rank": rank}) + "\n")
    return found


def drawn(runs: Sequence[Sequence[Json]], key: str, title: str, unit: str, most: float | None = None) -> str:
    """The runs as one plot with a panel for each set."""
    panels: dict[str, tuple[list[float], dict[str, list[float]]]] = {}
    for blocks in runs:
        first = blocks[0]
        places, lines = panels.setdefault(first["set"], ([block["done"] for block in blocks], {}))
        del places[len(blocks) :]
        lines[f"{name_of(first)}, {first['learning']}"] = [block[key] for block in blocks]
    return chart.svg(title, panels, unit, most)


def draw(runs: Sequence[Sequence[Json]], file: Path) -> None:
    """Write two plots: hidden calls, and tokens into a file beside it."""
    title = "Share of calls whose tool was hidden, by tasks done (learning on and off)"
    file.write_text(drawn(runs, "hidden_share", title, "share", 1.0), "utf-8")
    title = "Tokens a task: lists, growth, answers of discover_tools, hook, hints"
    beside = file.with_name(f"{file.stem}_tokens{file.suffix}")
    beside.write_text(drawn(runs, "tokens_per_task", title, "tokens"), "utf-8")


def read_runs(files: Sequence[Path]) -> list[list[Json]]:
    """The blocks of each run that the files hold."""
    runs: dict[tuple[Any, ...], list[Json]] = {}
    for row in (json.loads(line) for file in files for line in file.read_text("utf-8").splitlines()):
        if row["test"] == "simulation":
            runs.setdefault((*order_of(row), row["learning"]), []).append(row)
    return list(runs.values())


def order_of(row: Json) -> tuple[Any, ...]:
    """The set and policy of a row, and in which order its run did the tasks."""
    return row["set"], name_of(row), row.get("seed", SEED), row.get("skip", 0)


def comparisons(runs: Sequence[Sequence[Json]], every: int) -> Iterator[Json]:
    """What use and learning change, for each set, policy and client: `off` against `none`, and `on` against both, over
    all orders together."""
    by_learning: dict[str, dict[tuple[Any, ...], Sequence[Json]]] = {}
    for run in runs:
        by_learning.setdefault(run[0]["learning"], {})[order_of(run[0])] = run
    for before, after in (("none", "off"), ("off", "on"), ("none", "on")):
        pairs: dict[tuple[str, str], list[tuple[Sequence[Json], Sequence[Json]]]] = {}
        for order, run in by_learning.get(after, {}).items():
            if other := by_learning.get(before, {}).get(order):
                pairs.setdefault((run[0]["set"], name_of(run[0])), []).append((other, run))
        for each in pairs.values():
            yield from compare(each, every)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and simulate."""
    parser = make_parser("bench.learning.simulation", __doc__)
    parser.add_argument("data", type=Path, nargs="?", help="folder of data sets; default $FORETOOL_DATA")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--policies", default="frozen,frozen+prompts,growing,growing+prompts")
    parser.add_argument("--clients", default="again", help=f"of {', '.join(CLIENTS)}; default %(default)s")
    parser.add_argument("--part", default="train", choices=("train", "dev"), help="of the set; default %(default)s")
    parser.add_argument("--learning", default="off,on", help="of none, off, on; default %(default)s")
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--skip", type=int, default=0, help="tasks left out at the front; default %(default)s")
    parser.add_argument("--seeds", default=str(SEED), help="orders of the tasks, one run each; default %(default)s")
    parser.add_argument("--block", type=int, default=25, help="tasks a figure is of; default %(default)s")
    parser.add_argument("--every", type=int, default=2, help="blocks between two epochs; default %(default)s")
    parser.add_argument("--encoder", default="auto", help="setting of the proxy; default %(default)s")
    parser.add_argument("--no-fill", action="store_true", help="lists hold only what is used, so the first is empty")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="append what each discovery was for")
    parser.add_argument("--svg", type=Path, help="where the plot goes; a second one, of tokens, beside it")
    parser.add_argument(
        "--drawn", type=Path, nargs="*", help="simulate nothing: draw and tabulate what earlier runs printed"
    )
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    if arguments.drawn:
        earlier = read_runs(arguments.drawn)
        print("\n".join(table([summary(blocks, arguments.every) for blocks in earlier])))
        print("\n".join(comparison_table(list(comparisons(earlier, arguments.every)))))
        if arguments.svg:
            draw(earlier, arguments.svg)
        return
    data = arguments.data or Path(os.environ.get("FORETOOL_DATA", ""))
    if not data.is_dir() or data == Path():
        print("left out: FORETOOL_DATA names no folder", file=sys.stderr)
        return
    command = processes.installed(arguments.foretool)
    runs: list[list[Json]] = []
    chosen = (arguments.sets, arguments.policies, arguments.clients, arguments.learning, arguments.seeds)
    for name, policy, client, learning, seed in itertools.product(*(each.split(",") for each in chosen)):
        options = (arguments.tasks, arguments.block, arguments.every, arguments.encoder, not arguments.no_fill)
        more = (arguments.trace, arguments.skip, int(seed), arguments.part, client)
        blocks = asyncio.run(run(command, data / name, policy, learning, *options, *more))
        runs.append(blocks)
        print(json.dumps(summary(blocks, arguments.every)), flush=True)
    for row in comparisons(runs, arguments.every):
        print(json.dumps(row), flush=True)
    if arguments.svg:
        draw(runs, arguments.svg)


if __name__ == "__main__":
    main()
