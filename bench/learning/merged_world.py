"""Measures what each learned part adds where many tools are used: one world of several data sets and real servers.

    python -m bench.learning.merged_world DATA [--sets a,b] [--background 500] [--log 200] [--later 150] [--orders 2]

The tools of the sets and those of real servers, which nobody calls, stand in one catalog. Three people use it. Each
prefers a third of the servers (`HABIT` times as often), these habits move on in the course of the tasks, and every
`LATE`th server comes after the log, so that its tools are new. The tasks are of the train files, and no list, search
or hint of this bench is its own: `ListMaker`, `Search`, `AnswerWriter` and `write_next_hint` of the proxy are asked,
without processes and sockets, so that hundreds of tasks with many arms take minutes.

The agent is that of `bench.learning.simulation`: it calls a tool that the list defines, one that a text has named with
its arguments through a bridge, and else asks `discover_tools` with the words of the task. The log is played once, with
lists of the first day. Then each arm plays the same later tasks with lists made anew every `EPOCH` of them:

    nothing        the lists of the first day, and no model
    defined        used tools are defined and not named
    names          used tools are defined or named
    names + X      with X besides: a model that was trained on the log and serves whatever a replay says
    growing        a list that gains tools, with the names of a frozen one
    all            everything that was trained

The output is one JSON object for each arm: discoveries, tokens (each text once), tokens read (each text at every turn)
and calls of tools whose schema nobody has shown, all by task, and the difference of the first three from `names` with
its 95 % interval over the tasks of all orders. PORTS is left out where torch is missing.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from bench.clients.messages import Json
from bench.datasets import read_catalogs, read_rows
from bench.learning.simulation import read_names, size
from bench.options import make_parser
from bench.proxy.many_servers import read_set
from foretool.learning.encoded_texts import EncodedTexts
from foretool.learning.results import paired_difference
from foretool.learning.training import Material, TooLittle
from foretool.retrieval import methods
from foretool.retrieval.rankers.learned import LearnedModels
from foretool.retrieval.ranking import Query
from foretool.server.app import App
from foretool.server.catalog import models
from foretool.server.config.loader import load
from foretool.server.config.settings import FROM_FILE
from foretool.server.discovery.answer import AnswerWriter
from foretool.server.discovery.arguments import Arguments
from foretool.server.hints.texts import LATEST_END, Mark, write_next_hint, write_prompt_hint
from foretool.server.lists.maker import View
from foretool.server.lists.order import GrowthRule, Prediction
from foretool.server.protocol import jsonrpc
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Episode, Policy, Tool, ToolId
from foretool.storage.store import Store

SETS: Final = ("ultratool", "bfcl_multi_turn", "sealtools", "taskbench_multimedia", "toole_multi")
PEOPLE: Final = 3
HABIT: Final = 6.0
"""How much more often a person takes a task of a preferred server."""
LATE: Final = 5
EPOCH: Final = 50
TASK_S: Final = 900.0
"""Seconds between two tasks; usage halves in 14 days."""
BEGIN: Final = 1_700_000_000.0
PEN: Final = "names"
"""The arm that the others are compared with."""


class Task(Struct, frozen=True):
    """One task of one person."""

    query: str
    calls: tuple[ToolId, ...]


class Arm(Struct, frozen=True):
    """What takes part besides usage."""

    name: str
    kinds: tuple[str, ...] = ()
    """The models that serve."""
    follows_use: bool = True
    list_names: bool = True
    policy: Policy = "frozen"


class Cost(Struct):
    """What the tasks of one arm cost; the lists have one number for each task."""

    discoveries: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    read: list[float] = field(default_factory=list)
    not_found: int = 0
    unseen_schema: int = 0
    hints: int = 0
    hints_used: int = 0


class World:
    """The catalog, the tasks, and the config over them."""

    def __init__(self, folder: Path, data: Path, sets: Sequence[str], background: int, encoder: str = "auto") -> None:
        self.folder = folder
        self.encoder = encoder
        self.first = folder / "first.sqlite3"
        """A store in which nothing was done."""
        self.rows = {each: read_rows(data / each / "train.jsonl") for each in sets}
        self.servers: dict[str, list[Json]] = {}
        for each in sets:
            called = {call for row in self.rows[each] for call in row["calls"]}
            for name, tools in read_set(data / each).items():
                # Of a set with thousands of tools those that some task calls: the others are background like any.
                known = [tool for tool in tools if tool["name"] in called]
                if known:
                    self.servers[name] = tools if len(tools) < 2 * len(known) else known
        self.used = tuple(self.servers)
        left = background
        for name, tools in read_catalogs(data / "mcp_catalogs"):
            if left >= len(tools):
                self.servers[f"real-{name}"] = tools
                left -= len(tools)
        self.late = frozenset(name for place, name in enumerate(self.used) if place % LATE == LATE - 1)
        entries = {name: {"command": "true"} for name in self.servers}
        self.path = folder / "mcp.json"
        os.environ[FROM_FILE] = "file"
        self._entries = entries

    @contextmanager
    def open(self, place: Path, *, late: bool, **limits: object) -> Iterator[Proxy]:
        """A proxy over a store; `late`: whether the servers that come later are there."""
        more = {"limits": {"list_whole": False, **limits}, "storage": str(place), "encoder": self.encoder}
        self.path.write_text(json.dumps({"mcpServers": self._entries, "foretool": more}), "utf-8")
        config = load(self.path)
        with open_store(config.storage) as store:
            clock = [BEGIN]
            proxy = Proxy(App(config, store, lambda: clock[0]), store, clock)
            for name, tools in self.servers.items():
                if late or name not in self.late:
                    proxy.app.catalog.replace(name, [jsonrpc.raw(tool) for tool in tools])
            proxy.app.catalog.fix_names()
            yield proxy

    def tasks(self, app: App, count: int, seed: int) -> list[Task]:
        """So many tasks in an order: the servers that a person prefers move on, and late ones come at the end."""
        draw = random.Random(seed)
        pools: dict[str, list[tuple[str, list[tuple[str, str]]]]] = {}
        for name, rows in self.rows.items():
            where = {tool["name"]: server for server in self.used for tool in self.servers[server]
                     if server.startswith(f"{name}-")}  # fmt: skip
            for row in rows:
                calls = [(where[call], call) for call in row["calls"] if call in where]
                if calls:
                    pools.setdefault(calls[0][0], []).append((row["query"], calls))
        for pool in pools.values():
            draw.shuffle(pool)
        exposed = {(tool.upstream, tool.name): tool.id for tool in app.catalog.tools()}
        names = sorted(pools)
        draw.shuffle(names)
        found: list[Task] = []
        while len(found) < count and any(pools.values()):
            moved = len(found) * len(names) // (2 * count)
            person = draw.randrange(PEOPLE)
            preferred = {names[(place + moved) % len(names)] for place in range(person, len(names), PEOPLE)}
            is_early = len(found) < self.first_late
            open_ones = [name for name in names if pools[name] and not (is_early and name in self.late)]
            if not open_ones:
                break
            weights = [(HABIT if name in preferred else 1.0) * len(pools[name]) ** 0.5 for name in open_ones]
            query, calls = pools[draw.choices(open_ones, weights)[0]].pop()
            if is_early and any(server in self.late for server, _ in calls):
                continue
            found.append(Task(query, tuple(exposed[call] for call in calls)))
        return found

    first_late = 0
    """The place of the first task that may call a server which comes later."""


class Proxy:
    """The parts of one proxy that an agent asks, without a client."""

    def __init__(self, app: App, store: Store, clock: list[float]) -> None:
        """`clock`: what the app takes for the present time, in its only place."""
        self.app, self.store, self._clock = app, store, clock
        self.profile = app.live.profile("")
        self.reach = app.policy.reach(self.profile)
        self.answers = AnswerWriter(
            app.catalog,
            app.search,
            lambda: app.answering.instructions,
            app.live,
            lambda reach: (),
            app.known.gatekeeper,
        )

    @property
    def now(self) -> float:
        return self._clock[0]

    @now.setter
    def now(self, at: float) -> None:
        self._clock[0] = at

    def embed(self) -> EncodedTexts | None:
        """Index every tool, and rank by meaning where an encoder is set."""
        corpus = self.app.search.update_corpus(inf)
        texts = EncodedTexts.open(self.app.live.now.settings, self.store)
        if texts is not None:
            self.app.search.install_encoders(texts.meaning(self.app.catalog, corpus))
        return texts

    def make_list(self, policy: Policy) -> View:
        """The list that a new epoch would have now."""
        self.app.lists.forget()
        return self.app.lists.try_out(self.profile, policy)

    def record(self, tool: Tool) -> None:
        self.store.calls.record([Call("s", self.now, tool.id, tool.upstream, "name", False, "ok", 1.0, True, "")])


class Conversation:
    """An agent that does one task with one list."""

    def __init__(self, proxy: Proxy, view: View, task: Task, cost: Cost, *, hook: bool) -> None:
        self.proxy, self.view, self.task, self.cost = proxy, view, task, cost
        self.hook = hook
        self.listed = set(view.shown)
        self.list_tokens = view.tokens
        self.known = set(view.named)
        self.shown: set[str] = set()
        """Tools whose schema was read."""
        self.hinted: set[ToolId] = set()
        self.said = self.read = self.discoveries = 0
        self.steps: list[ToolId] = []
        self.lines: tuple[str, ...] = ()

    def run(self) -> None:
        if self.hook:
            self._prompt()
        for tool in self.task.calls:
            self.read += self.list_tokens + self.said
            if tool not in self.listed and tool not in self.known:
                self._discover(tool)
                self.read += self.list_tokens + self.said
            self.cost.unseen_schema += tool not in self.listed and tool not in self.shown
            self.cost.hints_used += tool in self.hinted and tool not in self.listed
            known = self.proxy.app.catalog.get(tool)
            assert known is not None
            self.proxy.record(known)
            if self.steps[-1:] != [tool]:
                self.steps.append(tool)
            self._predict(is_read=tool not in self.listed)
        self.read += self.list_tokens + self.said
        self.cost.discoveries.append(self.discoveries)
        self.cost.tokens.append(self.list_tokens + self.said)
        self.cost.read.append(self.read)

    def _query(self) -> Query:
        get = self.proxy.app.catalog.get
        servers = [tool.upstream for each in reversed(self.steps) if (tool := get(each)) is not None]
        return Query(self.lines, (), tuple(self.steps), tuple(dict.fromkeys(servers)))

    def _prompt(self) -> None:
        self.lines = Arguments(self.task.query).lines
        proxy, get = self.proxy, self.proxy.app.catalog.get
        ranking = proxy.app.search.rank(self._query(), proxy.reach.finds, 50)
        if proxy.app.search.judge(ranking).level == "none":
            return
        tools = (tool for each in ranking.ranked if (tool := get(each.tool)) is not None)
        hint = write_prompt_hint(
            tools, lambda tool: Mark(tool.id in self.listed, writes=True, is_named=tool.id in self.known)
        )
        self.known |= set(hint.tools)
        self.said += size(hint.text)

    def _discover(self, wanted: ToolId) -> None:
        self.discoveries += 1
        proxy = self.proxy
        self.lines = Arguments(self.task.query).lines
        query = self._query()
        ranking = proxy.app.search.rank(query, proxy.reach.finds, 50)
        answer, _ = proxy.answers.write(
            Arguments(self.task.query), query, ranking, self.listed.__contains__, proxy.reach, set()
        )
        with_arguments, bare = read_names([answer.text], {each.tool for each in answer.matches} | {wanted})
        self.known |= {ToolId(name) for name in with_arguments}
        self.shown |= with_arguments
        self.cost.not_found += wanted not in bare
        self.known.add(wanted)  # the agent of a recorded task goes on with the right call
        self.shown.add(wanted)
        self.said += size(answer.text)
        if self.view.policy == "growing" and answer.level in ("high", "medium"):
            rule = GrowthRule() if proxy.app.search.has_learned else GrowthRule(most_found=None)
            found = [each for each in ranking.ranked if each.tool in {match.tool for match in answer.matches}]
            self._grow(rule.for_discovery(found, True))
        self._hint(Prediction(*proxy.app.search.predict(self.steps, self.lines)))

    def _predict(self, *, is_read: bool) -> None:
        grows = self.view.policy == "growing"
        if not grows and not is_read:
            return
        prediction = Prediction(*self.proxy.app.search.predict(self.steps, self.lines))
        if grows:
            chances = {tool: chance for tool, chance in prediction.chances.items() if tool not in self.listed}
            self._grow(GrowthRule().for_next(chances, prediction.goes_on))
        if is_read:
            self._hint(prediction)

    def _hint(self, prediction: Prediction) -> None:
        threshold, proxy = self.proxy.app.live.settings.hint_threshold, self.proxy
        if prediction.end > LATEST_END:
            return
        new = {
            tool: chance
            for tool, chance in prediction.chances.items()
            if tool not in self.listed and tool not in self.known
        }
        hint = write_next_hint(
            new, threshold, proxy.app.catalog.get, lambda tool: proxy.reach.verdict(tool).bridge
        )  # fmt: skip
        if hint is not None:
            self.cost.hints += 1
            self.hinted |= set(hint.tools)
            self.known |= set(hint.tools)
            self.said += size(hint.text)

    def _grow(self, tools: Sequence[ToolId]) -> None:
        new = [tool for tool in tools if tool not in self.listed]
        added = self.proxy.app.lists.maker.fitting(self.view, [*(self.listed - self.view.shown)], new)
        self.listed |= set(added)
        self.list_tokens += sum(map(self.proxy.app.catalog.tokens, added))


def play(proxy: Proxy, tasks: Sequence[Task], arm: Arm, *, hook: bool) -> Cost:
    """Do the tasks of one arm; a new list every `EPOCH` of them."""
    cost = Cost()
    view = proxy.make_list(arm.policy)
    for number, task in enumerate(tasks):
        if number and number % EPOCH == 0 and arm.follows_use:
            view = proxy.make_list(arm.policy)
        proxy.now += TASK_S
        Conversation(proxy, view, task, cost, hook=hook).run()
    return cost


def train(
    chosen: Sequence[str], proxy: Proxy, texts: EncodedTexts | None, episodes: Sequence[Episode], tools: Sequence[Tool]
) -> dict[str, bytes]:
    """The bytes of each model that can be trained on the log."""
    material = Material(
        tuple(tools), tuple(episodes), documents=texts.documents if texts else None,
        queries=texts.queries if texts else None,
    )  # fmt: skip
    found: dict[str, bytes] = {}
    for kind, method in methods.METHODS.items():
        if chosen and not any(kind in name or name == "all" for name in chosen):
            continue
        try:
            found[kind] = methods.import_object(method.training).train(material, lambda what, share: None)
        except (ImportError, TooLittle) as error:
            print(json.dumps({"left_out": kind, "why": str(error)}), flush=True)
    return found


def arms(kinds: Sequence[str]) -> list[Arm]:
    """The arms, for the models that were trained."""
    alone = [Arm(f"names + {kind}", (kind,)) for kind in kinds]
    return [
        Arm("nothing", follows_use=False), Arm("defined", list_names=False), Arm(PEN),
        *alone, Arm("growing", policy="growing"),
        Arm("growing + dtdr", ("dtdr",), policy="growing"), Arm("all", tuple(kinds)),
    ]  # fmt: skip


async def run_order(
    world: World, log: int, later: int, seed: int, *, hook: bool, chosen: Sequence[str]
) -> dict[str, Cost]:
    """Play one order: the log once, then every arm."""
    started = time.perf_counter()
    place = world.folder / "log.sqlite3"
    world.first_late = log
    with world.open(world.first, late=True) as whole:
        tasks = world.tasks(whole.app, log + later, seed)
        whole.embed()  # once, so that every arm finds the vectors
    shutil.copy(world.first, place)
    with world.open(place, late=False) as proxy:
        texts = proxy.embed()
        view = proxy.make_list("frozen")
        episodes: list[Episode] = []
        cost = Cost()
        for task in tasks[:log]:
            proxy.now += TASK_S
            Conversation(proxy, view, task, cost, hook=hook).run()
            episodes.append(Episode(task.calls, (task.query,), key=f"s:{len(episodes)}", at=proxy.now))
        trained = train(chosen, proxy, texts, episodes, proxy.app.catalog.tools())
        end = proxy.now
    took = round(time.perf_counter() - started)
    print(json.dumps({"order": seed, "log": log, "trained": list(trained), "took_s": took}), flush=True)
    found: dict[str, Cost] = {}
    for arm in arms(list(trained)):
        if chosen and arm.name not in chosen:
            continue
        copy = world.folder / "arm.sqlite3"
        shutil.copy(place if arm.follows_use else world.first, copy)
        with world.open(copy, late=True, list_names=arm.list_names) as proxy:
            proxy.now = end
            proxy.embed()
            opened = {kind: models.open_model(kind, trained[kind]) for kind in arm.kinds}
            proxy.app.search.install_models(LearnedModels(opened) if opened else None)
            found[arm.name] = play(proxy, tasks[log:], arm, hook=hook)
    return found


def row_of(name: str, costs: Sequence[Cost], names: Sequence[Cost]) -> Json:
    """The figures of an arm over all orders, by task."""

    def every(of: Sequence[Cost], key: str) -> list[float]:
        return [each for cost in of for each in getattr(cost, key)]

    count = len(every(costs, "discoveries"))
    row: Json = {"test": "merged world", "arm": name, "orders": len(costs), "tasks": count}
    for key, digits in (("discoveries", 3), ("tokens", 0), ("read", 0)):
        own, other = every(costs, key), every(names, key)
        row[key] = round(sum(own) / count, digits)
        row[f"{key}_to_{PEN}"] = [round(each, max(digits, 0)) for each in paired_difference(own, other)]
    row["not_found"] = round(sum(each.not_found for each in costs) / count, 3)
    row["without_schema"] = round(sum(each.unseen_schema for each in costs) / count, 3)
    row["hints"] = round(sum(each.hints for each in costs) / count, 3)
    row["hints_used"] = round(sum(each.hints_used for each in costs) / count, 3)
    return row


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and play."""
    parser = make_parser("bench.learning.merged_world", __doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--background", type=int, default=500, help="tools of real servers; default %(default)s")
    parser.add_argument("--log", type=int, default=200, help="tasks on record; default %(default)s")
    parser.add_argument("--later", type=int, default=150, help="tasks of each arm; default %(default)s")
    parser.add_argument("--orders", type=int, default=2)
    parser.add_argument("--arms", default="", help="only these, separated by commas")
    parser.add_argument("--store", type=Path, help="a file that keeps the vectors of tools and tasks between runs")
    parser.add_argument("--encoder", default="auto", help="setting of the proxy; default %(default)s")
    parser.add_argument("--hook", action="store_true", help="a prompt hook tells of each task")
    arguments = parser.parse_args(argv)
    chosen = list(filter(None, arguments.arms.split(",")))
    every: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory(prefix="bench-world-") as folder:
        world = World(Path(folder), arguments.data, arguments.sets.split(","), arguments.background, arguments.encoder)
        world.first = arguments.store or world.first
        for seed in range(arguments.orders):
            # An app asks for the loop that it runs on, although nothing here waits.
            found = asyncio.run(
                run_order(world, arguments.log, arguments.later, seed, hook=arguments.hook, chosen=chosen)
            )
            for name, cost in found.items():
                every.setdefault(name, []).append(cost)
            for name, costs in every.items():
                print(json.dumps(row_of(name, costs, every.get(PEN, costs))), flush=True)


if __name__ == "__main__":
    main()
