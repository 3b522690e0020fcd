"""Writes a storage file as it would be after months of use: calls, sessions, searches, lists and misses.

    python -m bench.storage.ledger FOLDER [--calls 1000000] [--misses 50000] [--days 88] [--copies 1] [--sums]

FOLDER gets a config, `mcp.json`, and beside it its storage file. The records are made up, by a fixed seed: nobody made
these calls. Their proportions are those of a busy user: sessions of about 25 calls by four clients in three profiles,
tasks of one to eight calls, a list per session, a search before every fifth call, and tools that are used as unevenly
as words are. The records go through the store's own methods, so the file holds what proxies would have written.
`--copies 5` writes each session five times, a few seconds apart, which is faster than five times the calls.
`--sums` adds up the log, as proxies do when they have run for a while. The config has `"encoder": "none"`, since no
tool has a vector: a command would embed all of them first.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import sqlite3
import time
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Final, NamedTuple

from bench.options import make_parser
from bench.processes import write_config
from foretool.server.config.loader import load
from foretool.server.config.servers import fingerprint
from foretool.server.recording.costs import add_next
from foretool.storage.opening import open_store
from foretool.storage.records import (
    Call,
    Cause,
    Discovery,
    Exposure,
    Match,
    Miss,
    Outcome,
    Prompt,
    SessionRecord,
    Tool,
    ToolId,
    UpstreamRecord,
)
from foretool.storage.steps import finish
from foretool.storage.store import Store

SEED: Final = 14
SERVERS: Final = 20
TOOLS: Final = 25
"""Tools of each server."""
PART: Final = 2000
"""Calls that are added up at once."""
LISTED: Final = 12
"""Tools in a list."""
CLIENTS: Final = ("claude-code", "cursor", "codex", "vscode")
PROFILES: Final = ("", "work", "home")
SESSION: Final = 25
"""Calls of a session."""
TASK: Final = 8
"""Most calls of a task."""
SEARCHED: Final = 0.2
"""Share of the calls before which the model searched."""
BATCH: Final = 100
"""Sessions that are written in one transaction."""
DAY_S: Final = 86_400.0
OUTCOMES: Final[Sequence[Outcome]] = ("ok", "tool_error", "error")
CAUSES: Final[Sequence[Cause]] = ("rank", "budget", "stale", "gate", "policy", "offline", "denied")
VERBS: Final = ("read", "write", "list", "search", "create", "update", "delete", "move", "send", "fetch")
NOUNS: Final = ("file", "issue", "page", "message", "branch", "event", "table", "image", "order", "note")


class Known(NamedTuple):
    """A tool and its server."""

    tool: ToolId
    server: str


def write_ledger(folder: Path, calls: int, misses: int, days: float, now: float) -> Path:
    """Write a config and its storage file into a folder; return the path of the config."""
    folder.mkdir(parents=True, exist_ok=True)
    servers = {f"server{number:02}": {"command": "/bin/false"} for number in range(SERVERS)}
    profiles = {name: {"servers": list(servers)} for name in PROFILES if name}
    path = write_config(folder, servers, profiles=profiles, encoder="none")
    config = load(path)
    with open_store(config.storage, busy_ms=10_000) as store:
        tools = [
            each
            for name, server in config.servers.items()
            for each in save_server(store, name, fingerprint(server), now - days * DAY_S)
        ]
        sessions = -(-calls // SESSION)
        # The last session is over, so that nothing of it can change any more.
        log = Log(store, tools, misses / calls, now - days * DAY_S, (days * DAY_S - 7200) / sessions)
        for first in range(0, sessions, BATCH):
            with store.atomic():
                for number in range(first, min(first + BATCH, sessions)):
                    log.write_session(number)
            if store.is_checkpoint_due:
                store.checkpoint()
    return path


def copy_sessions(path: Path, copies: int) -> None:
    """Write each session of a storage file so many times, under other keys and a few seconds apart."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute("BEGIN")
        file.execute("CREATE TEMP TABLE copy (number)")
        file.executemany("INSERT INTO copy VALUES (?)", [(number,) for number in range(copies)])
        for table in ("sessions", "exposures", "discoveries", "prompts", "calls", "misses"):
            columns = [name for _, name, *_ in file.execute(f"PRAGMA table_info({table})")]
            file.execute(f"CREATE TEMP TABLE old AS SELECT * FROM main.{table}")
            file.execute(f"DELETE FROM main.{table}")
            values = ", ".join(_copied(f'"{column}"') for column in columns)
            file.execute(f"INSERT INTO main.{table} SELECT {values} FROM old, copy ORDER BY old.rowid, number")
            file.execute("DROP TABLE old")
        file.execute("COMMIT")


def _copied(column: str) -> str:
    """Return the SQL of a column's value in a copy. Ids keep the order of time."""
    if column in ('"session"', '"key"'):
        return f"substr({column}, 2) || number"
    if column in ('"at"', '"started_at"', '"ended_at"'):
        return f"{column} + number * 3"
    if column in ('"id"', '"exposure"', '"discovery"', '"call"', '"first_call"'):
        return f"CASE WHEN {column} > 0 THEN ({column} - 1) * (SELECT count(*) FROM copy) + number + 1 ELSE 0 END"
    return column


def add_sums(path: Path) -> None:
    """Add up the log of a storage file, and count the use of its tools."""
    with open_store(load(path).storage, busy_ms=10_000) as store:
        store.calls.usage()  # counts what is not counted yet
        while add_next(store, time.time(), PART):
            if store.is_checkpoint_due:
                store.checkpoint()


def save_server(store: Store, name: str, key: str, at: float) -> Iterator[Known]:
    """Keep what a server listed, and yield its tools."""
    record = UpstreamRecord(name, key, "modern", '{"name":"made up"}', "", '{"tools":{}}', at)
    tools = []
    for number in range(TOOLS):
        own = f"{VERBS[number % len(VERBS)]}_{NOUNS[number * 7 % len(NOUNS)]}_{number}"
        definition = _definition(name, own)
        digest = hashlib.sha256(definition).hexdigest()
        tools.append(Tool(ToolId(f"{name}__{own}"), name, own, definition, digest, len(definition) // 4))
    finish(store.catalog.save_upstream(record, tools))
    store.catalog.save_exposed_names({each.id: (name, each.name) for each in tools})
    return (Known(each.id, name) for each in tools)


def _definition(server: str, name: str) -> bytes:
    """Return the definition of a tool, about 600 bytes as those of real servers."""
    verb, noun, _ = name.split("_")
    fields = {each: {"type": "string", "description": f"The {each} of the {noun} to {verb}."} for each in NOUNS[:5]}
    text = f"Lets you {verb} one {noun} of {server}, with its history and the people who changed it."
    schema = {"type": "object", "properties": fields, "required": [NOUNS[0]]}
    return json.dumps({"name": name, "description": text, "inputSchema": schema}, separators=(",", ":")).encode()


class Log:
    """Writes sessions, the oldest first."""

    def __init__(self, store: Store, tools: Sequence[Known], missed: float, start: float, every_s: float) -> None:
        """`missed`: share of the calls that reveal a miss; `every_s`: seconds from one session to the next."""
        self._store, self._tools, self._missed, self._start, self._every_s = store, tools, missed, start, every_s
        self._random = random.Random(SEED)
        shuffled = list(tools)
        self._random.shuffle(shuffled)
        self._often = shuffled
        # As often as words are used: the second half as often as the first, and so on (Zipf).
        self._weights = list(accumulate(1 / rank for rank in range(1, len(shuffled) + 1)))

    def write_session(self, number: int) -> None:
        """Write one session with its list, tasks, searches, calls and misses."""
        choose, store = self._random, self._store
        at = self._start + number * self._every_s
        key = f"{choose.getrandbits(128):032x}"
        client = CLIENTS[number % 7 % len(CLIENTS)]
        profile = PROFILES[number % 11 % len(PROFILES)]
        store.sessions.begin(SessionRecord(key, client, "2.1", "modern", "stdio", profile, at))
        first = number % 50 * 7
        shown = tuple(each.tool for each in self._often[first : first + LISTED])
        list_id = store.sessions.add_exposure(Exposure(key, at, "frozen", 1, shown, 1800, "list"))
        calls: list[Call] = []
        misses: list[Miss] = []
        used = choose.choices(self._often, cum_weights=self._weights, k=SESSION)
        left = 0
        for tool, server in used:
            at += choose.expovariate(1 / 20)
            if not left:
                left = choose.randint(1, TASK)
                task = f"{choose.choice(VERBS)} the {choose.choice(NOUNS)} number {choose.randrange(5000)}"
                if choose.random() < 0.3:
                    store.tasks.add_prompt(Prompt(at - 2, task, key, "/home/user/project"))
            left -= 1
            found = 0
            if choose.random() < SEARCHED:
                others = choose.sample(self._tools, 4)
                matches = tuple(
                    Match(each.tool, rank, 9.0 - rank, {"words": 5.0, "usage": 1.0})
                    for rank, each in enumerate([Known(tool, server), *others], 1)
                )
                found = store.discoveries.add(
                    Discovery(key, at - 1, task, (), None, "high", matches, 700, 3.0, probability=0.8)
                )
            is_missed = choose.random() < self._missed
            outcome = choose.choices(OUTCOMES, (96, 3, 1))[0]
            calls.append(
                Call(
                    key, at, tool, server, "bridge" if found else "name", is_missed or bool(found), outcome,
                    choose.expovariate(1 / 80), True, '{"file":"string","page":"string"}', found,
                )
            )  # fmt: skip
            if is_missed:
                cause = choose.choice(CAUSES)
                history = tuple(each.tool for each in calls[-6:-1])
                misses.append(
                    Miss(
                        key, at, tool, "discovery" if found else "bridge", cause, choose.randint(1, 90),
                        len(self._tools), task, history, list_id, found, f"pin {tool}",
                        choose.choice(("called", "discovered", "no")), 1, 700, {"words": 3.5}, 0, len(calls),
                    )
                )  # fmt: skip
        store.calls.record(calls, misses)
        store.sessions.end(key, at + 60)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and write the file."""
    parser = make_parser("bench.storage.ledger", __doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--misses", type=int, default=50_000)
    parser.add_argument("--copies", type=int, default=1, help="write each session so many times")
    parser.add_argument("--sums", action="store_true", help="add up the log afterwards")
    parser.add_argument("--days", type=float, default=88.0, help="how long ago the first call was")
    arguments = parser.parse_args(argv)
    started = time.monotonic()
    path = write_ledger(
        arguments.folder, arguments.calls // arguments.copies, arguments.misses // arguments.copies, arguments.days,
        time.time(),
    )  # fmt: skip
    if arguments.copies > 1:
        copy_sessions(path.with_name("foretool.sqlite3"), arguments.copies)
    print(f"{path}: {arguments.calls:,} calls, written in {time.monotonic() - started:.0f} s")
    if arguments.sums:
        used = time.process_time()
        add_sums(path)
        print(f"added up in {time.process_time() - used:.0f} s of processor time")


if __name__ == "__main__":
    main()
