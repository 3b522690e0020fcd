"""Keeps an account of what a client reads and misses, and compares it with what foretool says of it.

    python -m bench.proxy.account [DATA] [--kinds growing,deaf,modern] [--tasks 60] [--encoder auto] [--ends .2]

Each task is a conversation of its own, in a window that joins the shared proxy, as people run it. The client counts
with the tokenizer what it reads: the texts of results, and the definitions of its list at each turn. It knows which
tool it needs. What its list lacks it searches for, at times in words that lead nowhere. Some tasks only search, some
give up, some search for two things before the first call, some call a tool that no search has shown. Without DATA the
catalogue is generated. `foretool misses`, `stats` and the first page are then asked, and each figure is compared.

With `--ends` the proxy is ended before that share of turns, by SIGTERM or SIGKILL in turns: the window goes on with
another one, and the account of the client stays as it was.

`growing`: a client of the legacy era that lists again as soon as it is told; `deaf`: one that never does; `modern`: one
of the era 2026-07-28.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any, ClassVar, Final, Literal

from msgspec import Struct, field

from bench import processes
from bench.clients.messages import MODERN, Failed, Json
from bench.clients.stdio import StdioClient
from bench.datasets import is_there, read_rows
from bench.learning.simulation import read_names, sample, size, written
from bench.options import add_foretool, make_parser
from bench.proxy import many_servers
from bench.proxy.many_servers import OWN
from foretool.desk.page.overview import read_overview
from foretool.desk.page.viewers import Viewer
from foretool.retrieval import token_ranks
from foretool.server.config.loader import load
from foretool.storage.opening import open_store

Kind = Literal["growing", "deaf", "modern"]
KINDS: Final[tuple[Kind, ...]] = ("growing", "deaf", "modern")
WITHIN: Final = 0.02
"""How far apart two counts of tokens may be."""
READS_S: Final = 0.05
"""No model reads an answer and writes the next call sooner, and a proxy names nothing to a program."""
KNOWN_S: Final = 120.0
"""The longest wait for the tools of all servers."""
SEED: Final = 11

THINGS: Final = {
    "invoices": "invoice", "calendar": "meeting", "mail": "message", "weather": "forecast", "files": "document",
    "git": "branch", "travel": "flight", "music": "playlist", "health": "workout", "shop": "order",
}  # fmt: skip
"""By server, what its tools are about."""
VERBS: Final = ("create", "list", "update", "delete", "export", "share", "archive", "summarize")
_HANDLE = re.compile(r"^handle: (\S+)", re.MULTILINE)


class Task(Struct, frozen=True):
    """What one conversation is for."""

    query: str
    needs: dict[str, str]
    """Exposed names of the tools that it needs, each with words for this one alone."""
    vague: str
    """Words that lead nowhere."""


class Search(Struct, eq=False):
    """One search as the client saw it."""

    words: str
    wanted: str
    """The tool that it was for."""
    shown: frozenset[str]
    """All tools that the answer names."""
    fits: bool
    """Whether the answer has a first match, and does not say that none is likely to fit."""
    listed: frozenset[str]
    """The list that the client had."""
    tokens: int
    served: bool = False
    """A tool that it showed was called, or its session did nothing else."""


class Called(Struct, eq=False):
    """The call of a tool that the client did not see."""

    tool: str
    listed: frozenset[str]
    """The list that the client had, at the search if there was one."""
    search: Search | None
    """The search that showed the tool."""


class Pursuit(Struct, eq=False):
    """Searches one after the other, and the missed calls that they led to."""

    searches: list[Search] = field(default_factory=list)
    calls: list[Called] = field(default_factory=list)


class Account(Struct):
    """What the client read and did."""

    pursuits: list[Pursuit] = field(default_factory=list)
    searches: int = 0
    calls: int = 0
    tasks: int = 0
    """Conversations that called something."""
    said: int = 0
    """Tokens of answers and of blocks behind results, each counted once."""
    listed: int = 0
    """Tokens of the list, counted at each turn."""
    read: int = 0
    """Tokens of the list and of all that the conversation was told before, counted at each turn."""


class Client(StdioClient):
    """A window of the legacy era that lists again as soon as it is told."""

    identity: ClassVar[Json] = {"name": "account-growing", "version": "1"}
    listed: dict[str, Json]
    relisted: asyncio.Event

    async def begin(self) -> None:
        """Begin a session, and list."""
        self.relisted = asyncio.Event()
        await self.initialize()
        await self.list_again()

    async def list_again(self) -> None:
        self.listed = {tool["name"]: tool for tool in await self.tools()}
        self.relisted.set()

    async def follow(self) -> None:
        """Wait for the list of the proxy that took the place of one that has ended."""
        async with asyncio.timeout(KNOWN_S):
            await self.relisted.wait()

    def hear(self, message: Json) -> None:
        if message["method"] == "notifications/tools/list_changed":
            self._listing = asyncio.create_task(self.list_again())


class DeafClient(Client):
    """A window of the legacy era that never lists again."""

    identity: ClassVar[Json] = {"name": "account-deaf", "version": "1"}

    def hear(self, message: Json) -> None:
        """Ignore it."""

    async def follow(self) -> None:
        """Go on with the list that it has."""


class ModernClient(Client):
    """A window of the modern era, which says in each request who it is."""

    identity: ClassVar[Json] = {"name": "account-modern", "version": "1"}

    async def ask(self, method: str, params: Json | None = None, patience_s: float = KNOWN_S) -> Json:
        meta = {
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": self.identity,
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        return await super().ask(method, {**(params or {}), "_meta": meta}, patience_s)

    async def initialize(self) -> Json:
        return await self.ask("server/discover")

    async def follow(self) -> None:
        """Go on with the list that it has."""


LIST_TOKENS: Final = 1000
"""The budget of a list: so small that it lacks most tools, and a client has to search for them."""

CLIENTS: Final[Mapping[Kind, type[Client]]] = {"growing": Client, "deaf": DeafClient, "modern": ModernClient}


class Place:
    """A config and a store in a folder, with sockets of its own, so that its windows share a proxy."""

    def __init__(
        self, command: Sequence[str], folder: Path, catalogs: Mapping[str, Sequence[Json]], **settings: Any
    ) -> None:
        self.command = [*command]
        self.folder = folder
        self.catalogs = catalogs
        entries = processes.serve_tools(folder, catalogs)
        self.path = processes.write_config(folder, entries, share=True, **settings)
        self.environ = {**os.environ, "FORETOOL_SOCKETS": str(folder / "run")}
        self.names: dict[str, str] = {}
        """By server and tool, joined by a slash, the exposed name."""
        self.schemas: dict[str, Any] = {}

    @asynccontextmanager
    async def window(self, kind: Kind) -> AsyncIterator[Client]:
        """A window that has listed its tools."""
        client = await CLIENTS[kind].start([*self.command, "serve", "--config", str(self.path)], self.environ)
        try:
            await client.begin()
            yield client
        finally:
            await client.stop(60.0)

    def ask(self, *arguments: str) -> Json:
        """What a command says as JSON. Raises `Failed`."""
        done = subprocess.run(
            [*self.command, *arguments, "--json", "--config", str(self.path)], capture_output=True, env=self.environ,
            check=False,
        )  # fmt: skip
        if not done.stdout:
            raise Failed(done.stderr.decode())
        found: Json = json.loads(done.stdout)
        return found

    async def learn_tools(self, kind: Kind) -> None:
        """Let a proxy learn of every tool, and find out how to count tokens."""
        wanted = sum(map(len, self.catalogs.values()))
        ranks = self.folder / "encoders" / token_ranks.NAME
        async with self.window(kind), asyncio.timeout(KNOWN_S):
            while len(self.names) < wanted or not ranks.exists():
                await asyncio.sleep(0.3)
                with open_store(self.folder / "foretool.sqlite3") as store:
                    known = store.catalog.exposed_names().items()
                    self.names = {f"{server}/{tool}": name for name, (server, tool) in known}
        for server, tools in self.catalogs.items():
            self.schemas |= {self.names[f"{server}/{tool['name']}"]: tool["inputSchema"] for tool in tools}

    def end_proxies(self, how: signal.Signals) -> None:
        """End every proxy, and wait until it has ended; the open windows go on with another one."""
        for proxy in self.ask("status")["proxies"]:
            with suppress(ProcessLookupError):
                while proxy["is_running"]:
                    os.kill(proxy["pid"], how)
                    time.sleep(0.1)

    def discoveries(self) -> list[int]:
        """The ids of all searches on record, in order."""
        with open_store(self.folder / "foretool.sqlite3") as store:
            return sorted(each.id for each in store.discoveries.recent(-1))

    def list_of(self, miss: Json) -> frozenset[str]:
        """The tools of the list that is recorded with a miss."""
        with open_store(self.folder / "foretool.sqlite3") as store:
            found = store.sessions.exposure(miss["exposure"])
        return frozenset(found.tools) if found is not None else frozenset()


class Interruption:
    """Ends the proxy before a share of all turns."""

    def __init__(self, place: Place, share: float, draw: random.Random) -> None:
        self._place = place
        self._share = share
        self._draw = draw
        self._ways = cycle((signal.SIGTERM, signal.SIGKILL))

    def come(self) -> bool:
        """End the proxy, or do not; return whether it was ended."""
        if self._draw.random() >= self._share:
            return False
        self._place.end_proxies(next(self._ways))
        return True


class Conversation:
    """One task, played by one client."""

    def __init__(
        self, client: Client, place: Place, account: Account, draw: random.Random, interruption: Interruption
    ) -> None:
        self._interruption = interruption
        self._client = client
        self._place = place
        self._account = account
        self._draw = draw
        self._names = frozenset(place.schemas)
        self._said = 0
        self._handle = ""
        self._passes_handle = draw.random() < 0.5
        self._shown: dict[str, Search] = {}
        """Tools that a search has shown while the list lacked them: the latest one, or the one that was for it."""
        self._told: set[str] = set()
        """Tools that the list or a block behind a result has named with their arguments."""
        self._missed: set[tuple[Search | None, str]] = set()
        self._pursuit: Pursuit | None = None
        for tool in client.listed.values():
            if tool["name"] in OWN:
                self._told |= read_names([tool.get("description", "")], self._names)[0]

    async def play(self, task: Task) -> None:
        """Do the task."""
        way, first = self._draw.random(), next(iter(task.needs))
        if way < 0.08:  # only looks
            (await self._search(task.query, first)).served = True
            return
        if way < 0.16:  # gives up
            await self._search(task.vague, first)
            await self._search(f"{task.vague} please", first)
            return
        if way < 0.3:  # searches for everything first
            for name, words in task.needs.items():
                if name not in self._client.listed:
                    await self._search(words, name)
        for name in task.needs:
            await self._find(name, task)
            await self._call(name)
        self._account.tasks += 1

    async def _find(self, name: str, task: Task) -> None:
        """Search for a tool that the client does not know how to call, at times in vain."""
        if self._knows(name):
            return
        while self._draw.random() < 0.3:
            await self._search(task.vague, name)
        if not self._knows(name) and self._draw.random() < 0.9:
            await self._search(task.query, name)

    def _knows(self, name: str) -> bool:
        return name in self._client.listed or name in self._shown or name in self._told

    async def _search(self, words: str, wanted: str) -> Search:
        await self._think()
        listed = frozenset(self._client.listed)
        result = await self._client.call("discover_tools", self._with_handle({"task": words}))
        texts = [part["text"] for part in result["content"]]
        if (handle := _HANDLE.search(texts[0])) is not None:
            self._handle = handle[1]
        shown = frozenset(read_names(texts[:1], self._names)[1])
        fits = "\n1. " in texts[0] and not texts[0].startswith("confidence: none")
        search = Search(words, wanted, shown, fits, listed, self._read(texts))
        for text in texts[1:]:
            if text.startswith("Likely next"):
                self._told |= read_names([text], self._names)[0]
        if self._pursuit is None or self._pursuit.calls or any(each.served for each in self._pursuit.searches):
            self._pursuit = Pursuit()
            self._account.pursuits.append(self._pursuit)
        self._pursuit.searches.append(search)
        self._account.searches += 1
        for name in shown - listed:
            known = self._shown.get(name)
            if known is None or known.wanted != name or name == wanted or known not in self._pursuit.searches:
                self._shown[name] = search
        return search

    async def _call(self, name: str) -> None:
        await self._think()
        arguments = sample(self._place.schemas[name])
        listed = frozenset(self._client.listed)
        if name in listed:
            result = await self._client.call(name, arguments)
        else:
            bridged = self._with_handle({"name": name, "arguments": arguments})
            result = await self._client.call("call_tool_write", bridged)
        if result.get("isError"):
            raise Failed(json.dumps(result)[:500])
        self._account.calls += 1
        self._note_call(name, listed)
        blocks = [part["text"] for part in result["content"][1:]]
        self._read(blocks)
        self._told |= read_names(blocks, self._names)[0]

    def _note_call(self, name: str, listed: frozenset[str]) -> None:
        search = self._shown.get(name)
        for each in self._pursuit.searches if self._pursuit is not None else ():
            each.served = each.served or each is search or (name in each.shown and name == each.wanted)
        if name in self._told or (search, name) in self._missed or (search is None and name in listed):
            return
        self._missed.add((search, name))
        called = Called(name, search.listed if search is not None else listed, search)
        own = next((each for each in self._account.pursuits if search in each.searches), None)
        if own is None and self._pursuit is not None and not all(each.served for each in self._pursuit.searches):
            own = self._pursuit
        if own is None:
            own = Pursuit()
            self._account.pursuits.append(own)
        own.calls.append(called)

    async def _think(self) -> None:
        """Count one turn of the model."""
        self._client.relisted.clear()
        if await asyncio.to_thread(self._interruption.come):
            await self._client.follow()
        await asyncio.sleep(READS_S)
        listed = size(*written(list(self._client.listed.values())))
        self._account.listed += listed
        self._account.read += listed + self._said

    def _read(self, texts: Sequence[str]) -> int:
        tokens = size(*texts)
        self._said += tokens
        self._account.said += tokens
        return tokens

    def _with_handle(self, arguments: Json) -> Json:
        return {**arguments, "handle": self._handle} if self._handle and self._passes_handle else arguments


class Line(Struct, frozen=True):
    """One figure: what the client says, and what foretool says."""

    what: str
    client: float
    foretool: float
    within: float = 0.0

    @property
    def agrees(self) -> bool:
        return abs(self.client - self.foretool) <= self.within * abs(self.client)


def compare(place: Place, account: Account) -> list[Line]:
    """Compare the account with what the commands say, and with each miss."""
    ledger = place.ask("misses", "--all", "--limit", "100000")
    total = place.ask("status", "--stats")["total"]
    page = read_overview(load(place.path), Viewer("")).total
    return [
        *_compare_sums(account, ledger, total),
        Line("page: searches", account.searches, page.discoveries),
        Line("page: misses", ledger["total"], page.misses),
        Line("page: tokens read", account.read, page.read_tokens, WITHIN),
        *_compare_misses(place, account, ledger["misses"]),
    ]


def _compare_sums(account: Account, ledger: Json, total: Json) -> Iterator[Line]:
    yield Line("searches", account.searches, total["discoveries"])
    yield Line("calls", account.calls, total["calls"])
    yield Line("tasks", account.tasks, total["tasks"])
    yield Line("tokens said", account.said, total["said_tokens"], WITHIN)
    yield Line("tokens of lists", account.listed, total["list_tokens"], WITHIN)
    yield Line("tokens read", account.read, total["read_tokens"], WITHIN)
    yield Line("misses", ledger["total"], total["misses"])
    by_tool = ledger["groups"]
    expected = [miss for pursuit in account.pursuits for miss in expect(pursuit)]
    yield Line("turns of misses", sum(each.turns for each in expected), sum(each["turns"] for each in by_tool))
    spent = sum(each.tokens for each in expected)
    yield Line("tokens of misses", spent, sum(each["tokens"] for each in by_tool), WITHIN)


class Expected(Struct, frozen=True):
    """A miss, as the client would write it down."""

    noticed: str
    tool: str
    turns: int
    tokens: int
    search: Search | None
    listed: frozenset[str]


def expect(pursuit: Pursuit) -> Iterator[Expected]:
    """Yield the misses of one pursuit."""
    turns, tokens = len(pursuit.searches), sum(search.tokens for search in pursuit.searches)
    vain = [search for search in pursuit.searches if not search.served]
    paying: list[tuple[str, Called, Search]] = []
    for call in pursuit.calls:
        if call.search is not None:
            paying.append(("discovery", call, call.search))
        elif (failed := next((each for each in reversed(vain) if each.wanted == call.tool), None)) is not None:
            vain.remove(failed)
            paying.append(("search", call, failed))
        else:
            yield Expected("bridge", call.tool, 0, 0, None, call.listed)
    for place, (noticed, call, search) in enumerate(paying):
        share = [number // len(paying) + (place < number % len(paying)) for number in (turns, tokens)]
        yield Expected(noticed, call.tool, share[0], share[1], search, search.listed)
    for search in vain:
        noticed = "search" if search.fits else "nothing_found"
        cost = (0, 0) if paying else (1, search.tokens)
        if any(call.tool == search.wanted for _, call, _ in paying):
            yield Expected(noticed, search.wanted, *cost, search, search.listed)
        else:
            yield Expected(noticed, "", *cost, search, search.listed)


def _compare_misses(place: Place, account: Account, misses: Sequence[Json]) -> Iterator[Line]:
    """Compare each miss: what it is of, what revealed it, what it cost, and the list that lacked the tool."""
    searches = [search for pursuit in account.pursuits for search in pursuit.searches]
    ids = dict(zip(searches, place.discoveries(), strict=True))
    of_client = Counter[str]()
    of_foretool = Counter[str]()
    for pursuit in account.pursuits:
        for each in expect(pursuit):
            discovery = ids[each.search] if each.search is not None else 0
            of_client[f"{each.noticed} {each.tool} {discovery} turns {each.turns} tokens {each.tokens}"] += 1
            lists = f"{each.noticed} {each.tool} {discovery} list {sorted(each.listed)}"
            of_client[lists] += 1
    for miss in misses:
        told = f"{miss['noticed']} {miss['tool']} {miss['discovery']}"
        of_foretool[f"{told} turns {miss['turns']} tokens {miss['tokens']}"] += 1
        of_foretool[f"{told} list {sorted(place.list_of(miss))}"] += 1
    yield Line("lists with the tool", 0, sum(miss["tool"] in place.list_of(miss) for miss in misses))
    of_one = {"client": of_client - of_foretool, "foretool": of_foretool - of_client}
    differ = [f"{side}: {told}" for side, only in of_one.items() for told in only.elements()]
    for difference in differ:
        print("   ", difference[:300])
    yield Line("misses that differ", 0, len(differ))


def generate() -> dict[str, list[Json]]:
    """A catalogue of servers with tools about one thing each."""
    found: dict[str, list[Json]] = {}
    for server, thing in THINGS.items():
        properties = {
            f"{thing}_id": {"type": "string", "description": f"Which {thing}"},
            "limit": {"type": "integer", "description": "How many at most"},
            "note": {"type": "string", "description": f"What to say about the {thing}"},
        }
        schema = {"type": "object", "properties": properties, "required": [f"{thing}_id"]}
        for verb in VERBS:
            about = f"{verb.capitalize()}s a {thing} in the {server} of the company. Answers with what came of it."
            found.setdefault(server, []).append(
                {"name": f"{verb}_{thing}", "description": about, "inputSchema": schema}
            )
    return found


def make_tasks(place: Place, count: int, draw: random.Random) -> list[Task]:
    """Tasks for the generated catalogue."""
    every = [(server, verb) for server in THINGS for verb in VERBS]
    found = []
    for _ in range(count):
        chosen = [every[int(len(every) * draw.random() ** 1.5)] for _ in range(draw.choice((1, 1, 2, 3)))]
        person = draw.choice(("Ann", "Bo", "Cy"))
        parts = {
            place.names[f"{server}/{verb}_{THINGS[server]}"]: f"{verb} the {THINGS[server]} of {person}"
            for server, verb in chosen
        }
        vague = draw.choice((f"the note of {person}", f"of {person}, the other"))
        found.append(Task(" and ".join(parts.values()), parts, vague))
    return found


def read_tasks(place: Place, data: Path, count: int, draw: random.Random) -> list[Task]:
    """Tasks of a data set."""
    rows = read_rows(data / ("dev.jsonl" if is_there(data / "dev.jsonl") else "train.jsonl"))
    draw.shuffle(rows)
    bare = {key.partition("/")[2]: name for key, name in place.names.items()}
    found = []
    for row in rows:
        needs = {name: row["query"] for call in row["calls"] if (name := bare.get(call))}
        if needs:
            words = row["query"].split()
            found.append(Task(row["query"], needs, " ".join(words[: max(len(words) // 4, 2)])))
    return found[:count]


async def play(place: Place, kind: Kind, tasks: Sequence[Task], draw: random.Random, ends: float = 0.0) -> Account:
    """Play tasks, each in a window of its own; the account of the client."""
    account, interruption = Account(), Interruption(place, ends, random.Random(SEED))
    for task in tasks:
        async with place.window(kind) as client:
            await Conversation(client, place, account, draw, interruption).play(task)
    return account


async def run(
    command: Sequence[str], folder: Path, kind: Kind, count: int, encoder: str = "auto", data: Path | None = None,
    ends: float = 0.0,
) -> tuple[Place, Account]:  # fmt: skip
    """Play so many tasks through a proxy on a fresh store. `ends`: the share of turns before which the proxy ends."""
    draw = random.Random(SEED)
    catalogs = many_servers.read_set(data) if data is not None else generate()
    settings = {"list_tokens": LIST_TOKENS} | ({} if encoder == "auto" else {"encoder": encoder})
    place = Place(command, folder, catalogs, **settings)
    await place.learn_tools(kind)
    tasks = read_tasks(place, data, count, draw) if data is not None else make_tasks(place, count, draw)
    return place, await play(place, kind, tasks, draw, ends)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments, play, and compare."""
    parser = make_parser("bench.proxy.account", __doc__)
    parser.add_argument("data", type=Path, nargs="?", help="a data set; default: a generated catalogue")
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of clients; default %(default)s")
    parser.add_argument("--tasks", type=int, default=60, help="default %(default)s")
    parser.add_argument("--encoder", default="auto", help="the setting `encoder`; default %(default)s")
    parser.add_argument("--ends", type=float, default=0.0, help="share of turns before which the proxy ends")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    command = processes.installed(arguments.foretool)
    for kind in KINDS:
        if kind not in arguments.kinds.split(","):
            continue
        with tempfile.TemporaryDirectory(prefix="bench-account-", ignore_cleanup_errors=True) as folder:
            place, account = asyncio.run(
                run(command, Path(folder), kind, arguments.tasks, arguments.encoder, arguments.data, arguments.ends)
            )
            print(kind)
            for line in compare(place, account):
                mark = "" if line.agrees else "  differs"
                print(f"  {line.what:<20} {line.client:>12,.0f} {line.foretool:>12,.0f}{mark}", flush=True)


if __name__ == "__main__":
    main()
