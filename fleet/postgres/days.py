"""Calls, exposures and discoveries by day: partitions that are made ahead, closed when nobody writes them any more, and
dropped as a whole once they are old.

A record belongs to the day, in UTC, of its `at`. The partition `..._rest` takes what no day is there for, so that no
insert ever fails: records of a clock that is wrong, and late ones of a day that was dropped. `..._before` has what was
written before there were days.

Ids grow in the order of writing, and `days` keeps which ids each day has, so that whoever looks for an id reads few
days. An open day may get any id from `first` on; a closed one notes the ids that come late (trigger `notes_late`).
Whoever migrates owns the functions, which run with the owner's rights: the role of a proxy may own nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, Final

from foretool.storage.engine import StorageError
from foretool.storage.sql.database import Database

BY_DAY: Final = frozenset({"calls", "exposures", "discoveries"})
"""The tables whose records are kept by day."""
AHEAD: Final = 2
"""Days that are made ahead, for clocks that are fast and for a night in which no proxy runs."""
EVERY_S: Final = 600.0
"""Between two looks at which days are missing."""
BATCH: Final = 500
PAUSE_S: Final = 0.02
"""Records outside of days that are deleted at once, and the pause after that, as `sql.retention` does it."""
TRIES: Final = 20
TRY_S: Final = 0.25
"""How often a day is tried to drop that others are reading, and the pause between: whoever waits for its lock keeps
writers waiting as well."""
_MOST_OUTSIDE: Final = 1000
"""Records outside of days whose times are looked at to narrow a query."""

_FUNCTIONS: Final = (
    # The role of a proxy may write `days`, and must not have another table dropped by what it writes there.
    """
CREATE FUNCTION is_day(which text) RETURNS boolean LANGUAGE sql STABLE SET search_path = {path} AS $$
    SELECT EXISTS (
        SELECT 1 FROM pg_inherits WHERE inhrelid = to_regclass(quote_ident(which))
        AND inhparent IN ('calls'::regclass, 'discoveries'::regclass, 'exposures'::regclass)
    ) AND which !~ '_rest$'
$$
""",
    # A call of one night may be written the next morning; what comes later than a day is late.
    """
CREATE FUNCTION notes_late() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = {path} AS $$
BEGIN
    UPDATE days SET last = greatest(last, NEW.id), count = count + 1 WHERE part = TG_TABLE_NAME;
    RETURN NULL;
END $$
""",
    # Who forgets records deletes them from the table, whatever days they are of.
    """
CREATE FUNCTION counts_anew() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = {path} AS $$
BEGIN
    UPDATE days SET count = NULL WHERE parent = TG_TABLE_NAME AND count IS NOT NULL;
    RETURN NULL;
END $$
""",
    """
CREATE FUNCTION make_days(
    ahead integer, today bigint DEFAULT floor(extract(epoch FROM clock_timestamp()) / 86400)
) RETURNS integer LANGUAGE plpgsql SECURITY DEFINER
SET search_path = {path} SET lock_timeout = '500ms' SET client_min_messages = 'warning' AS $$
DECLARE
    made integer := 0;
    whole text;
    part text;
    low double precision;
    outside bigint;
    first bigint;
    old record;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('foretool days'), hashtext(current_schema()));
    FOREACH whole IN ARRAY ARRAY['calls', 'discoveries', 'exposures'] LOOP
        FOR day IN today .. today + ahead LOOP
            low := day * 86400.0;
            CONTINUE WHEN EXISTS (
                SELECT 1 FROM days WHERE days.parent = whole AND since < low + 86400 AND until > low
            );
            -- A record that is just being written for this day would be refused by the rest, and belongs into the day.
            EXECUTE format('LOCK TABLE ONLY %I IN SHARE ROW EXCLUSIVE MODE', whole);
            EXECUTE format('SELECT count(*) FROM (SELECT FROM %I WHERE at >= $1 AND at < $2 LIMIT 20001) AS those',
                whole || '_rest') INTO outside USING low, low + 86400;
            -- Moving more would keep writers waiting for seconds. Such a day stays in the rest until it is old.
            CONTINUE WHEN outside > 20000;
            part := whole || '_' || to_char(to_timestamp(low) AT TIME ZONE 'UTC', 'YYYYMMDD');
            EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING DEFAULTS)', part, whole);
            first := coalesce(pg_sequence_last_value(pg_get_serial_sequence(whole, 'id')::regclass), 0) + 1;
            IF outside > 0 THEN
                EXECUTE format('WITH moved AS (DELETE FROM %I WHERE at >= $1 AND at < $2 RETURNING *)'
                    ' INSERT INTO %I SELECT * FROM moved', whole || '_rest', part) USING low, low + 86400;
                EXECUTE format('SELECT least(min(id), $1) FROM %I', part) INTO first USING first;
            END IF;
            EXECUTE format('ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%s) TO (%s)', whole, part,
                low::bigint, low::bigint + 86400);
            PERFORM copy_rights(whole, part);
            INSERT INTO days (parent, part, since, until, first) VALUES (whole, part, low, low + 86400, first);
            made := made + 1;
        END LOOP;
    END LOOP;
    FOR old IN SELECT * FROM days WHERE days.last IS NULL AND days.until <= (today - 1) * 86400.0
        AND is_day(days.part)
    LOOP
        BEGIN
            EXECUTE format('LOCK TABLE ONLY %I IN SHARE ROW EXCLUSIVE MODE', old.part);
            EXECUTE format('CREATE TRIGGER notes_late AFTER INSERT ON %I FOR EACH ROW EXECUTE FUNCTION notes_late()',
                old.part);
            EXECUTE format('UPDATE days SET last = coalesce((SELECT max(id) FROM %I), 0) WHERE part = $1', old.part)
                USING old.part;
        EXCEPTION WHEN lock_not_available THEN
            NULL; -- it is being vacuumed, and is closed another time
        END;
    END LOOP;
    FOR old IN SELECT * FROM days WHERE days.last IS NOT NULL AND days.count IS NULL AND is_day(days.part)
        LIMIT 100
    LOOP
        -- Late records wait for this row before they are counted.
        PERFORM 1 FROM days WHERE days.part = old.part FOR UPDATE;
        EXECUTE format('UPDATE days SET count = (SELECT count(*) FROM %I) WHERE part = $1', old.part) USING old.part;
    END LOOP;
    RETURN made;
END $$
""",
    # Returns how many records went with the day, -1 if some are not in `usage` yet.
    """
CREATE FUNCTION drop_day(which text) RETURNS bigint LANGUAGE plpgsql SECURITY DEFINER
SET search_path = {path} SET lock_timeout = '200ms' AS $$
DECLARE
    day record;
    done bigint := 0;
    newest bigint;
    added bigint;
    records bigint;
BEGIN
    SELECT * INTO day FROM days WHERE part = which FOR UPDATE;
    IF NOT FOUND OR NOT is_day(which) THEN
        RETURN 0;
    END IF;
    EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', which);
    IF day.parent = 'calls' THEN
        SELECT costs_marks.done INTO done FROM costs_marks WHERE name = 'calls';
    END IF;
    EXECUTE format('SELECT count(*), count(*) FILTER (WHERE id <= $1), coalesce(max(id), 0) FROM %I', which)
        INTO records, added, newest USING coalesce(done, 0);
    IF day.parent = 'calls' THEN
        IF newest > coalesce((SELECT call FROM usage_folded WHERE id = 1), 0) THEN
            RETURN -1;
        END IF;
        UPDATE costs_marks SET count = costs_marks.count - added WHERE name = 'calls';
    END IF;
    EXECUTE format('DROP TABLE %I', which);
    DELETE FROM days WHERE part = which;
    RETURN records;
END $$
""",
    """
CREATE FUNCTION copy_rights(source text, target text) RETURNS void LANGUAGE plpgsql SET search_path = {path} AS $$
DECLARE
    given record;
BEGIN
    FOR given IN SELECT * FROM pg_class, aclexplode(relacl)
        WHERE pg_class.oid = source::regclass AND grantee <> relowner
    LOOP
        EXECUTE format('GRANT %s ON %I TO %s', given.privilege_type, target,
            CASE given.grantee WHEN 0 THEN 'PUBLIC' ELSE given.grantee::regrole::text END);
    END LOOP;
END $$
""",
)

_DAYS: Final = (
    'CREATE TABLE days (parent text COLLATE "C" NOT NULL, part text COLLATE "C" PRIMARY KEY,'
    " since double precision NOT NULL, until double precision NOT NULL, first bigint NOT NULL, last bigint,"
    " count bigint)"
)
_INDEXES: Final = {"calls": (), "discoveries": ("(at)",), "exposures": ("(at)", "(session)", "(list)")}


def create(run: Callable[..., Any]) -> None:
    """Make the tables of `BY_DAY` partitioned ones; what they hold becomes one partition of all days until tonight."""
    ((path,),) = run("SELECT quote_ident(current_schema()) || ', pg_temp'").fetchall()
    run(_DAYS)
    for function in _FUNCTIONS:
        run(function.replace("{path}", path))
    for name in ("make_days(integer, bigint)", "drop_day(text)", "copy_rights(text, text)"):
        run(f"REVOKE EXECUTE ON FUNCTION {name} FROM PUBLIC")
    # Others may write until now; what is read of a table from here on stays true.
    run(f"LOCK TABLE {', '.join(sorted(BY_DAY))} IN ACCESS EXCLUSIVE MODE")
    for table in sorted(BY_DAY):
        _divide(run, table)
    run("SELECT make_days(%s)", (AHEAD,))


def _divide(run: Callable[..., Any], table: str) -> None:
    sequence = f"pg_get_serial_sequence('{table}', 'id')::regclass"
    ((newest, holds_any),) = run(
        f"SELECT coalesce(pg_sequence_last_value({sequence}), 0), EXISTS (SELECT 1 FROM {table})"  # noqa: S608
    ).fetchall()
    before, rest = f"{table}_before", f"{table}_rest"
    run(f"ALTER TABLE {table} RENAME TO {before}")
    run(f"ALTER TABLE {before} ALTER id DROP IDENTITY")
    # An identity of a partitioned table needs PostgreSQL 17. The name is that of the one before.
    run(f"CREATE SEQUENCE {table}_id_seq")
    run(f"CREATE TABLE {table} (LIKE {before} INCLUDING DEFAULTS) PARTITION BY RANGE (at)")
    run(f"ALTER TABLE {table} ALTER id SET DEFAULT nextval('{table}_id_seq'), ADD PRIMARY KEY (id, at)")
    run(f"ALTER SEQUENCE {table}_id_seq OWNED BY {table}.id")
    if newest:
        run(f"SELECT setval('{table}_id_seq', %s)", (newest,))
    for columns in _INDEXES[table]:
        run(f"CREATE INDEX ON {table} {columns}")
    if table == "calls":
        # A few bytes for a thousand calls, and nearly nothing for each; a B-tree would cost every call.
        run("CREATE INDEX ON calls USING brin (at) WITH (pages_per_range = 16, autosummarize = on)")
    run(f"CREATE TRIGGER counts_anew AFTER DELETE ON {table} FOR EACH STATEMENT EXECUTE FUNCTION counts_anew()")
    run(f"CREATE TABLE {rest} PARTITION OF {table} DEFAULT")
    for each in (table, rest):
        run("SELECT copy_rights(%s, %s)", (before, each))
    run(
        "DO $$ DECLARE given record; BEGIN FOR given IN SELECT DISTINCT grantee FROM pg_class, aclexplode(relacl)"  # noqa: S608
        f" WHERE pg_class.oid = '{before}'::regclass AND privilege_type = 'INSERT' AND grantee NOT IN (0, relowner)"
        f" LOOP EXECUTE format('GRANT USAGE ON SEQUENCE {table}_id_seq TO %s', given.grantee::regrole); END LOOP;"
        " END $$"
    )
    if not holds_any:
        run(f"DROP TABLE {before}")
        return
    # Not the rest: each new day would be looked for in all that it holds.
    ((until,),) = run("SELECT (floor(extract(epoch FROM now()) / 86400) + 1)::float8 * 86400").fetchall()
    run(
        f"WITH moved AS (DELETE FROM {before} WHERE NOT at < %s RETURNING *) INSERT INTO {rest} SELECT * FROM moved",  # noqa: S608
        (until,),
    )
    run(f"ALTER TABLE {before} DROP CONSTRAINT {table}_pkey, ADD PRIMARY KEY (id, at)")
    run(f"ALTER TABLE {table} ATTACH PARTITION {before} FOR VALUES FROM (MINVALUE) TO ({until:.0f})")
    run(
        "INSERT INTO days (parent, part, since, until, first) VALUES (%s, %s, '-infinity', %s, 0)",
        (table, before, until),
    )


# -- what the engine asks

_TIMES: Final = """
    WITH inside AS (
        SELECT since, until FROM days
        WHERE parent = '{table}' AND first <= :until AND coalesce(last, 9223372036854775807) >= :first
    ), outside AS (SELECT at FROM {table}_rest WHERE id >= :first AND id <= :until LIMIT :most)
    SELECT (SELECT min(since) FROM inside), (SELECT max(until) FROM inside), min(at), max(at), count(*) FROM outside
"""
_LAST_ID: Final = (1 << 63) - 1


class Days:
    """What the engine knows of the days of an open database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._looked_at = 0.0
        """Monotonic seconds of the last look at which days are missing."""

    def within(self, table: str, first: int, last: int | None) -> str:
        """Return the condition on `at` that all records with these ids meet; see `Database.within`."""
        if table not in BY_DAY:
            return "1 = 1"
        values = {"first": first, "until": _LAST_ID if last is None else last, "most": _MOST_OUTSIDE}
        ((since, until, low, high, outside),) = self._database.rows(_TIMES.format(table=table), values)
        if outside == _MOST_OUTSIDE:
            return "1 = 1"
        if since is None and low is None and last is not None:
            return "1 = 0"
        parts = (
            [f"{table}.at >= {_write(min(each for each in (since, low) if each is not None))}"]
            if (since is not None or low is not None)
            else []
        )
        if last is not None:
            # What is outside of days may lie behind the last of them.
            ends = until is not None and (high is None or high < until)
            parts.append(f"{table}.at {'<' if ends else '<='} {_write(until if ends else high)}")
        return " AND ".join(parts) or "1 = 1"

    def first_since(self, table: str, since: float) -> int:
        """Return an id before which no record is of this time or a later one."""
        rows = self._database.rows(
            f"SELECT min(first) FROM (SELECT first FROM days WHERE parent = ? AND until > ?"  # noqa: S608  # a constant
            f" UNION ALL SELECT min(id) FROM {table}_rest WHERE at >= ?) AS those",
            (table, since, since),
        )
        return int(rows[0][0] or 0)

    def count(self, table: str) -> int:
        """Return how many records a table has; those of closed days are counted already."""
        ((total,),) = self._database.rows(
            "SELECT coalesce(sum(count), 0) FROM days WHERE parent = ? AND last IS NOT NULL", (table,)
        )
        # Whoever may write `days` must not choose what this connection runs: it may be that of the tables' owner.
        parts = self._database.rows(
            "SELECT quote_ident(part) FROM days WHERE parent = ? AND (last IS NULL OR count IS NULL) AND is_day(part)",
            (table,),
        )
        for (part,) in (*parts, (f"{table}_rest",)):
            total += self._database.rows(f"SELECT count(*) FROM {part}")[0][0]  # noqa: S608  # a partition, quoted
        return int(total)

    # Upkeep

    @property
    def is_look_due(self) -> bool:
        """Whether it is time to look which days are missing."""
        return not self._looked_at or time.monotonic() - self._looked_at > EVERY_S

    def make(self, database: Database) -> int:
        """Make the days that are missing, over another connection; close and count those that are over."""
        self._looked_at = time.monotonic()
        return int(database.rows("SELECT make_days(?)", (AHEAD,))[0][0])


def prune(database: Database, before: float, most: int, fold: Callable[[], object]) -> int:
    """Drop the days that ended before a time, and delete the older records that have no day. Returns how many records
    went. `fold` counts calls in `usage`."""
    deleted = 0
    old = database.rows("SELECT parent, part FROM days WHERE until <= ? ORDER BY until, part", (before,))
    # Where the role of this connection may not drop days, their records are deleted one by one.
    ((may_drop,),) = database.rows("SELECT has_function_privilege('drop_day(text)', 'EXECUTE')")
    for _, part in old if may_drop else ():
        deleted += _drop(database, part, fold)
        if deleted >= most:
            return deleted
    loose = [(table, f"{table}_rest") for table in BY_DAY]
    # As in `Days.count`: what stands in `days` becomes a part of statements only where it is a partition.
    loose += database.rows(
        "SELECT parent, quote_ident(part) FROM days WHERE (since = '-infinity' AND until > :before"
        " OR until <= :before AND :drops = 0) AND parent = ANY(:parents) AND is_day(part) ORDER BY until, part",
        {"before": before, "drops": may_drop, "parents": sorted(BY_DAY)},
    )
    for table, part in loose:
        while deleted < most and (gone := _delete_some(database, table, part, before)):
            deleted += gone
            time.sleep(PAUSE_S)
    return deleted


def _drop(database: Database, part: str, fold: Callable[[], object]) -> int:
    for _ in range(TRIES):
        try:
            with database.atomic():
                gone = int(database.rows("SELECT drop_day(?)", (part,))[0][0])
        except StorageError as error:
            if not error.temporary:
                raise
            # Whoever reads it, such as a backup, may take long: then it goes another time.
            gone = 0
        else:
            if gone >= 0:
                return gone
            fold()
        time.sleep(TRY_S)
    return 0


def _delete_some(database: Database, table: str, part: str, before: float) -> int:
    with database.atomic():
        found = database.rows(
            f"DELETE FROM {part} WHERE id IN (SELECT id FROM {part} WHERE at < ? LIMIT ?) RETURNING id",  # noqa: S608
            (before, BATCH),
        )
        if found:
            database.run("UPDATE days SET count = NULL WHERE part = ?", (part,))
        if found and table == "calls":
            database.run(
                "UPDATE costs_marks SET count = count"
                " - (SELECT count(*) FROM unnest(?::bigint[]) AS id WHERE id <= done)"
                " WHERE name = 'calls'",
                ([id for (id,) in found],),
            )
    return len(found)


def _write(at: float) -> str:
    return repr(at) if math.isfinite(at) else f"'{at}'::float8"
