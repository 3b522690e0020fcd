"""The tables in PostgreSQL, with the same columns as in SQLite (`storage.sql.schema`), and later steps.

Text is compared byte by byte (`COLLATE "C"`), as SQLite does. Where a table has no id, `rowid` counts its rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from foretool.storage.sql import schema

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

BASE: Final = 14
"""The number of the tables that `make_tables` makes; databases with a smaller one are of versions before the first
release, and are refused."""


def add_first_probability(run: Run) -> None:
    """Keep the probability that the first match of a search is right, as the gate stated it."""
    run("ALTER TABLE discoveries ADD COLUMN first_probability double precision")


def count_misses_by_kind(run: Run) -> None:
    """Give misses an index by which counting them by kind reads the index alone."""
    run(f"DROP INDEX IF EXISTS misses_{'_'.join(schema.BY_TOOL)}_idx")
    run(f"CREATE INDEX ON misses ({', '.join(schema.BY_KIND)})")


def count_refused_and_failed_calls(run: Run) -> None:
    """Add the numbers of refused and of failed calls to the sums of costs."""
    for name in ("refused", "failed"):
        run(f"ALTER TABLE costs ADD COLUMN {name} bigint NOT NULL DEFAULT 0")


def keep_sizes_of_all_tools(run: Run) -> None:
    """Record how many tokens all tools take at each time, so that past calls are not priced with the tools of today;
    and add a likeness to servers, which stays the same when their command is written otherwise."""
    run(create_table("catalog_sizes", "*period int, most int, last int"))
    run("ALTER TABLE costs ADD COLUMN rated_refused bigint NOT NULL DEFAULT 0")
    run("ALTER TABLE upstreams ADD COLUMN likeness text COLLATE \"C\" NOT NULL DEFAULT ''")


def keep_owners_of_prompts(run: Run) -> None:
    """Record which client's hook a prompt came from, and which session it belongs to."""
    for name in ("client", "owner"):
        run(f"ALTER TABLE prompts ADD COLUMN {name} text COLLATE \"C\" NOT NULL DEFAULT ''")


def price_calls(run: Run) -> None:
    """Record how many tokens all tools take at each change of them, and price each call with that. What is added up
    already keeps the price of its quarter of an hour."""
    run(create_table("catalog_tokens", "*at float, tokens int"))
    for name in schema.PRICED:
        run(f"ALTER TABLE costs ADD COLUMN {name} bigint NOT NULL DEFAULT 0")
    for statement in schema.PRICE_OLD_CALLS:
        run(statement)
    run("DROP TABLE catalog_sizes")


def drop_words_of_tools(run: Run) -> None:
    """Drop the words of all tools, which prompt hooks read."""
    run("DROP TABLE catalog_summaries")


_STEPS: Final[tuple[tuple[str, Callable[[Run], None]], ...]] = (
    ("first_probability", add_first_probability), ("misses_by_kind", count_misses_by_kind),
    ("refused_and_failed_calls", count_refused_and_failed_calls),
    ("sizes_of_all_tools", keep_sizes_of_all_tools), ("owners_of_prompts", keep_owners_of_prompts),
    ("prices_of_calls", price_calls), ("no_words_of_tools", drop_words_of_tools),
)  # fmt: skip
"""The steps after `BASE`, in order. What a released step creates never changes."""
NEWEST: Final = BASE + len(_STEPS)

LIVE: Final = frozenset({"live_sessions", "live_events", "letters"})
"""The tables that SQLite does not have: what replicas share while they run."""
_TOLD: Final = ("approvals", "artifacts", "working_sets")
"""The tables whose changes replicas are told of: what is approved, which models serve, which lists are given out."""


def make_tables(run: Run) -> None:
    """Make every table of the first release, with its indexes and triggers."""
    for table, spec in schema.TABLES.items():
        if table != "migrations":
            run(create_table(table, spec))
    for table, *columns in schema.UNIQUE:
        run(f"CREATE UNIQUE INDEX ON {table} ({', '.join(columns)})")
    for table, *columns in schema.INDEXES:
        run(f"CREATE INDEX ON {table} ({', '.join(columns)})")
    run(f"CREATE INDEX ON {schema.UNDECIDED}")
    # A few bytes for a thousand calls, and nearly nothing for each; a B-tree would cost every call.
    run("CREATE INDEX ON calls USING brin (at) WITH (pages_per_range = 16, autosummarize = on)")
    _protect_audit(run)
    _create_replicas(run)


def _protect_audit(run: Run) -> None:
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


def create_table(table: str, spec: str) -> str:
    """Return the statement that creates a table with these columns."""
    columns, keys = [], []
    for each in schema.columns(spec):
        if each.is_key:
            keys.append(each.name)
        parts = [f'"{each.name}"', _TYPES[each.kind]]
        if each.name == "id" and table != "usage_folded":
            parts.append("GENERATED BY DEFAULT AS IDENTITY")
        elif not each.may_be_null:
            parts.append("NOT NULL")
        if each.default:
            parts.append(f"DEFAULT {each.default}")
        if each.target:
            parts.append(f"REFERENCES {each.target} (id)")
        columns.append(" ".join(parts))
    if "id" not in keys:
        columns.append("rowid bigint GENERATED ALWAYS AS IDENTITY UNIQUE")
    quoted = ", ".join(f'"{key}"' for key in keys)
    return f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({quoted}))"


def migrate(run: Run, steps: Sequence[tuple[str, Callable[[Run], None]]] = _STEPS) -> None:
    """Make the tables of an empty schema, or apply every missing step; call it inside a transaction that holds `LOCK`,
    so that one process does it."""
    run("CREATE TABLE IF NOT EXISTS migrations (number bigint PRIMARY KEY, name text, applied_at double precision)")
    done = version(run)
    missing = steps[done - BASE :] if done else (("tables", make_tables), *steps)
    for number, (name, step) in enumerate(missing, start=done + 1 if done else BASE):
        step(run)
        run("INSERT INTO migrations (number, name, applied_at) VALUES (%s, %s, %s)", (number, name, time.time()))


def version(run: Run) -> int:
    """Return the number of the last step applied, 0 for an empty schema."""
    if run("SELECT to_regclass('migrations')").fetchone()[0] is None:
        return 0
    return int(run("SELECT coalesce(max(number), 0) FROM migrations").fetchone()[0])
