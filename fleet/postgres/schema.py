"""The tables in PostgreSQL: numbered steps like those of SQLite, whose tables have the same columns.

Text is compared byte by byte (`COLLATE "C"`), as SQLite does. Where a table has no id, `rowid` counts its rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

Run = Callable[..., Any]
"""Runs one statement, with its values if there are any."""

_TYPES: Final = {"int": "bigint", "float": "double precision", "str": 'text COLLATE "C"', "bytes": "bytea"}
LOCK: Final = 0x666F7265
"""`fore` in ASCII: the class of the advisory locks of foretool."""

COUNT_TABLES: Final = """
SELECT count(*) FROM pg_class
WHERE relkind IN ('r', 'p') AND relnamespace = to_regnamespace(coalesce(current_schema(), %s))
"""
"""Counts the tables of the schema, which has the name that is given where it does not exist yet."""

_TABLES: Final = {
    "counters": "*name str, value int",
    "upstreams": "*id int, name str, fingerprint str, era str?, server_info str, instructions str, capabilities str,"
    "lacks str?, listed_at float",
    "definitions": "*id int, schema_hash str, definition bytes, tokens int?",
    "tools": "*upstream int>upstreams, *name str, position int, exposed str, definition int>definitions",
    "tool_versions": "*upstream str, *name str, *definition int>definitions, first_seen float",
    "exposed_names": "*exposed str, upstream str, name str",
    "sessions": "*key str, client str, version str, era str, transport str, profile str, started_at float,"
    "ended_at float?, first_call int",
    "lists": "*id int, hash bytes, tools str",
    "exposures": "*id int, session str, at float, policy str, epoch int, list int, tokens int, reason str",
    "discoveries": "*id int, session str, at float, task str, names str, sufficiency float?, level str, matches str,"
    "tokens int, took_ms float, handle str, probability float?",
    "calls": "*id int, session str, at float, tool str, upstream str, via str, hidden int, outcome str, took_ms float,"
    "sent int, arguments str, discovery int, handle str",
    "misses": "*id int, session str, at float, tool str, noticed str, cause str, rank int, of int, query str,"
    "history str, exposure int, discovery int, change str, recovered str, turns int, tokens int, parts str, call int",
    "clients": "*client str, *version str, *era str, announced int, relisted int, delays str, last_seen float,"
    "recent str, tries int, late int, whole_tokens int",
    "usage": "*tool str, calls int, misses int, last_at float",
    "usage_folded": "*id int, call int, miss int",
    "working_sets": "*key str, epoch int, tools str, listing bytes, created_at float, inputs str, named str",
    "upstream_states": "*machine str, *pid int, started_at float, *upstream str, state str, since float, era str?,"
    "tools int, restarts int, skipped_lines int, last_error str, stderr str, seen_at float",
    "vectors": "*encoder str, *digest bytes, data bytes, used_at float",
    "artifacts": "*id int, kind str, number int, created_at float, sha256 str, data bytes, active int, previous int,"
    "promoted_at float, report str",
    "demonstrations": "*digest bytes, episode str, at float",
    "prompts": "*id int, at float, session str, cwd str, text str",
    "steps": "*id int, session str, at float, task str, tools str, fragments str, tokens int, budget int,"
    "probability float, sufficiency float?, fallback str, cached int, error str, took_ms float",
    "flows": "*before str, *after str, *field str, *parameter str, times int, last_at float",
    "costs": "*period int, *client str, tasks int, calls int, hidden int, misses int, discoveries int,"
    "list_tokens int, said_tokens int, read_tokens int",
    "costs_marks": "*name str, done int, count int",
    "costs_open": "*session str, since float, calls int, discoveries int, exposures int, misses int",
    "approvals": "*server str, *kind str, *name str, *hash str, state str, seen_at float, exposed str,"
    "fingerprint str, version str, effect str, decision int, value bytes",
}
"""The columns of each table, as in the first steps of SQLite: a star marks the key, a question mark what may be NULL,
and `>` the table whose ids a column holds."""
_AUDIT: Final = (
    "*id int, at float, principal str, name str, client str, profile str, action str, target str, outcome str,"
    "detail str, session str"
)
_DEFAULTS: Final = {
    ("discoveries", "handle"): "''", ("calls", "handle"): "''", ("clients", "recent"): "''", ("clients", "tries"): "0",
    ("clients", "late"): "0", ("clients", "whole_tokens"): "0", ("working_sets", "named"): "'[]'",
}  # fmt: skip
_INDEXES: Final = (
    "CREATE UNIQUE INDEX ON upstreams (name, fingerprint)",
    "CREATE UNIQUE INDEX ON definitions (schema_hash)",
    "CREATE UNIQUE INDEX ON lists (hash)",
    "CREATE INDEX ON sessions (started_at)",
    *(f"CREATE INDEX ON {table} (at)" for table in ("exposures", "discoveries", "misses", "prompts", "steps")),
    "CREATE INDEX ON misses (tool, cause, at, recovered, turns, tokens, session)",
    "CREATE INDEX ON exposures (session)",
    "CREATE INDEX ON exposures (list)",
    "CREATE INDEX ON artifacts (kind, active)",
    "CREATE INDEX ON approvals (server, kind) WHERE state != 'approved'",
)


_COPY_RIGHTS: Final = """
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
"""
"""Gives the roles that may use one table the same rights to another one."""
_BY_DAY: Final = {
    "calls": ("USING brin (at) WITH (pages_per_range = 16, autosummarize = on)",),
    "discoveries": ("(at)",),
    "exposures": ("(at)", "(session)", "(list)"),
}
"""The tables that an earlier version kept by day, each with its indexes."""


def _create_tables(run: Run) -> None:
    for table, spec in _TABLES.items():
        run(create_table(table, spec))
    for index in _INDEXES:
        run(index)


def _create_audit(run: Run) -> None:
    run(create_table("audit", _AUDIT))
    run("CREATE INDEX ON audit (at)")
    run("CREATE INDEX ON audit (principal, at)")
    # For whoever owns the table as well; the role of a proxy needs no right but INSERT and SELECT.
    run(
        "CREATE FUNCTION audit_only_grows() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RAISE EXCEPTION ''the audit log only grows''; END'"
    )
    run(
        "CREATE TRIGGER audit_refuses_changes BEFORE UPDATE OR DELETE OR TRUNCATE ON audit"
        " FOR EACH STATEMENT EXECUTE FUNCTION audit_only_grows()"
    )


def _create_replicas(run: Run) -> None:
    """Create what replicas share while they run, which SQLite has no use for; and tell them of changes of the rest."""
    run(
        'CREATE TABLE live_sessions (ident bytea PRIMARY KEY, session text COLLATE "C" NOT NULL,'
        ' principal text COLLATE "C" NOT NULL, profile text COLLATE "C" NOT NULL, memo bytea NOT NULL,'
        ' reader text COLLATE "C" NOT NULL, revision bigint NOT NULL, used_at double precision NOT NULL)'
    )
    # Not logged: they are of use for two minutes, and a crash of the server may lose them.
    run(
        'CREATE UNLOGGED TABLE live_events (ident bytea NOT NULL, stream text COLLATE "C" NOT NULL,'
        " number bigint NOT NULL, data bytea NOT NULL, last bigint NOT NULL, at double precision NOT NULL,"
        " PRIMARY KEY (ident, stream, number))"
    )
    run("CREATE INDEX ON live_events (at)")
    run(
        "CREATE UNLOGGED TABLE letters (id bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY, data bytea NOT NULL,"
        " at double precision NOT NULL)"
    )
    run(
        "CREATE FUNCTION tell_replicas() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_notify(''foretool_'' || left(md5(TG_TABLE_SCHEMA), 16), ''changed '' || TG_TABLE_NAME);"
        " RETURN NULL; END'"
    )
    for table in _TOLD:
        run(
            f"CREATE TRIGGER {table}_tells_replicas AFTER INSERT OR UPDATE OR DELETE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION tell_replicas()"
        )


def _index_times(run: Run) -> None:
    # A few bytes for a thousand calls, and nearly nothing for each; a B-tree would cost every call.
    run(f"CREATE INDEX ON calls {_BY_DAY['calls'][0]}")
    ((path,),) = run("SELECT quote_ident(current_schema()) || ', pg_temp'").fetchall()
    run(_COPY_RIGHTS.replace("{path}", path))
    run("REVOKE EXECUTE ON FUNCTION copy_rights(text, text) FROM PUBLIC")


def _create_grants(run: Run) -> None:
    run(create_table("grants", "*server str, *person str, sealed bytes, at float"))
    run(create_table("consents", "*ident bytes, sealed bytes, until float"))


def _create_session_people(run: Run) -> None:
    run(create_table("session_people", "*session str, person str, learns int, at float"))


def _create_catalog_summaries(run: Run) -> None:
    # It stays empty: one row that every saved list counts up would make replicas wait for each other.
    run(create_table("catalog_summaries", "*inputs str, changes int, summary bytes"))


def _create_wordings(run: Run) -> None:
    spec = "*digest bytes, model str, version int, server str, tool str, texts str, tokens int, took_s float, at float"
    run(create_table("wordings", spec))


def _create_profile_usage(run: Run) -> None:
    run(create_table("profile_usage", "*profile str, *tool str, calls int, misses int, last_at float"))
    # Whoever counts the one counts the other in the same transaction.
    run("SELECT copy_rights('usage', 'profile_usage')")
    for table, column in (("calls", "call"), ("misses", "miss")):
        run(
            f"INSERT INTO counters (name, value) SELECT 'profile_usage.{table}', {column} FROM usage_folded"  # noqa: S608
            f" WHERE {column} > 0"
        )


def _create_rated_costs(run: Run) -> None:
    for name in ("tasks", "calls", "hidden", "misses", "discoveries", "read_tokens"):
        run(f"ALTER TABLE costs ADD COLUMN rated_{name} bigint NOT NULL DEFAULT 0")
    for table in ("costs", "costs_marks", "costs_open"):
        run(f"DELETE FROM {table}")  # noqa: S608  # a constant


def _create_failures(run: Run) -> None:
    spec = "*server str, *entry str, code str, reason str, first_at float, last_at float, times int, due_at float"
    run(create_table("failures", spec))
    # Whoever writes the states of servers writes these.
    run("SELECT copy_rights('upstream_states', 'failures')")


def _create_kept_calls(run: Run) -> None:
    spec = (
        "*ident str, owner str, session str, tool str, upstream str, task str, era str, machine str, pid int,"
        "process_at float, started_at float, until float, reply str, record str"
    )
    run(create_table("kept_calls", spec))
    run("SELECT copy_rights('upstream_states', 'kept_calls')")


def _create_code_sessions(run: Run) -> None:
    run("ALTER TABLE clients ADD COLUMN code_sessions bigint NOT NULL DEFAULT 0")


def _join_days(run: Run) -> None:
    """Make one table again of each that an earlier version kept in a partition for each day."""
    if run("SELECT relkind FROM pg_class WHERE oid = 'calls'::regclass").fetchone()[0] != "p":
        return
    # Others may write until now; they wait while all is copied.
    run(f"LOCK TABLE {', '.join(_BY_DAY)} IN ACCESS EXCLUSIVE MODE")
    for table, indexes in _BY_DAY.items():
        run(f"ALTER TABLE {table} RENAME TO {table}_by_day")
        run(f"CREATE TABLE {table} (LIKE {table}_by_day INCLUDING DEFAULTS)")
        run(f"ALTER SEQUENCE {table}_id_seq OWNED BY {table}.id")
        run(f"INSERT INTO {table} SELECT * FROM {table}_by_day ORDER BY id")  # noqa: S608  # a constant
        run("SELECT copy_rights(%s, %s)", (f"{table}_by_day", table))
        run(f"DROP TABLE {table}_by_day")
        run(f"ALTER TABLE {table} ADD PRIMARY KEY (id)")
        for index in indexes:
            run(f"CREATE INDEX ON {table} {index}")
    run("DROP FUNCTION make_days(integer, bigint), drop_day(text), notes_late(), counts_anew(), is_day(text)")
    run("DROP TABLE days")


_TOLD: Final = ("approvals", "artifacts", "working_sets")
"""The tables whose changes replicas are told of: what is approved, which models serve, which lists are given out."""
LIVE: Final = frozenset({"live_sessions", "live_events", "letters"})
"""The tables that SQLite does not have."""
STEPS: Final[tuple[tuple[str, Callable[[Run], None]], ...]] = (
    ("tables", _create_tables), ("audit", _create_audit), ("replicas", _create_replicas),
    ("times", _index_times), ("grants", _create_grants),
    ("session people", _create_session_people), ("catalog summaries", _create_catalog_summaries),
    ("wordings", _create_wordings), ("usage of profiles", _create_profile_usage),
    ("rated costs", _create_rated_costs), ("failures", _create_failures), ("days joined", _join_days),
    ("kept calls", _create_kept_calls), ("code sessions", _create_code_sessions),
)  # fmt: skip
"""The history of the schema. What a released step creates never changes."""


def create_table(table: str, spec: str) -> str:
    """Return the statement that creates a table with these columns."""
    columns, keys = [], []
    for column, kind in (each.split() for each in spec.split(",")):
        name = column.lstrip("*")
        if column.startswith("*"):
            keys.append(name)
        type, _, target = kind.partition(">")
        parts = [f'"{name}"', _TYPES[type.rstrip("?")]]
        if name == "id" and table != "usage_folded":
            parts.append("GENERATED BY DEFAULT AS IDENTITY")
        elif not type.endswith("?"):
            parts.append("NOT NULL")
        if (table, name) in _DEFAULTS:
            parts.append(f"DEFAULT {_DEFAULTS[table, name]}")
        if target:
            parts.append(f"REFERENCES {target} (id)")
        columns.append(" ".join(parts))
    if "id" not in keys:
        columns.append("rowid bigint GENERATED ALWAYS AS IDENTITY UNIQUE")
    quoted = ", ".join(f'"{key}"' for key in keys)
    return f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({quoted}))"


def migrate(run: Run, steps: Sequence[tuple[str, Callable[[Run], None]]] = STEPS) -> None:
    """Apply every missing step; call it inside a transaction that holds `LOCK`, so that one process does it."""
    run("CREATE TABLE IF NOT EXISTS migrations (number bigint PRIMARY KEY, name text, applied_at double precision)")
    done = version(run)
    for number, (name, step) in enumerate(steps[done:], start=done + 1):
        step(run)
        run("INSERT INTO migrations (number, name, applied_at) VALUES (%s, %s, %s)", (number, name, time.time()))


def version(run: Run) -> int:
    """Return the number of the last step applied, 0 for an empty schema."""
    if run("SELECT to_regclass('migrations')").fetchone()[0] is None:
        return 0
    return int(run("SELECT coalesce(max(number), 0) FROM migrations").fetchone()[0])
