"""The columns of each table, and the indexes, from which both engines make their tables.

Tables of the log (calls, misses, ...) do not reference each other by foreign keys: a call must be writable even if
its session was never written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

TABLES: Final = {
    "migrations": "*number int, name str, applied_at float",
    "counters": "*name str, value int",
    # What exists: upstreams, their tools, every definition of a tool, and the names given to tools.
    "upstreams": "*id int, name str, fingerprint str, era str?, server_info str, instructions str, capabilities str,"
    "lacks str?, listed_at float",
    "definitions": "*id int, schema_hash str, definition bytes, tokens int?",
    "tools": "*upstream int>upstreams, *name str, position int, exposed str, definition int>definitions",
    # By the upstream's name, not its id: a new command line continues the history of the same server.
    "tool_versions": "*upstream str, *name str, *definition int>definitions, first_seen float",
    "exposed_names": "*exposed str, upstream str, name str",
    # What a start has to know of a large catalog before it reads it.
    "catalog_summaries": "*inputs str, changes int, summary bytes",
    # What happened: sessions, their lists, discoveries, calls, misses, and what clients do.
    "sessions": "*key str, client str, version str, era str, transport str, profile str, started_at float,"
    "ended_at float?, first_call int",
    # Whose a session was, where people share the store, and whether it may be learned from.
    "session_people": "*session str, person str, learns int, at float",
    # Lists repeat (a frozen one in every session) and can be long (`full`), so each is kept once.
    "lists": "*id int, hash bytes, tools str",
    "exposures": "*id int, session str, at float, policy str, epoch int, list int, tokens int, reason str",
    # `handle` is the conversation to which a call or a discovery belongs; `probability` is what the gate predicted.
    "discoveries": "*id int, session str, at float, task str, names str, sufficiency float?, level str, matches str,"
    "tokens int, took_ms float, handle str='', probability float?",
    # SQLite has no index here: each would cost a page of the write-ahead log, and 4 us, per call.
    "calls": "*id int, session str, at float, tool str, upstream str, via str, hidden int, outcome str, took_ms float,"
    "sent int, arguments str, discovery int, handle str=''",
    "misses": "*id int, session str, at float, tool str, noticed str, cause str, rank int, of int, query str,"
    "history str, exposure int, discovery int, change str, recovered str, turns int, tokens int, parts str, call int",
    # What a client did after the latest announcements, and up to how many tokens it is better served by a whole list.
    "clients": "*client str, *version str, *era str, announced int, relisted int, delays str, last_seen float,"
    "recent str='', tries int=0, late int=0, whole_tokens int=0, code_sessions int=0",
    "usage": "*tool str, calls int, misses int, last_at float",
    "usage_folded": "*id int, call int, miss int",
    "profile_usage": "*profile str, *tool str, calls int, misses int, last_at float",
    # Which tools' results came back as arguments of which other tools.
    "flows": "*before str, *after str, *field str, *parameter str, times int, last_at float",
    # What users asked their clients for (`foretool hint`), and what was selected for single steps.
    "prompts": "*id int, at float, session str, cwd str, text str",
    "steps": "*id int, session str, at float, task str, tools str, fragments str, tokens int, budget int,"
    "probability float, sufficiency float?, fallback str, cached int, error str, took_ms float",
    # What the log comes to, so that nobody has to read all of it; `rated_` is what belongs to tasks whose end is known.
    "costs": "*period int, *client str, tasks int, calls int, hidden int, misses int, discoveries int,"
    "list_tokens int, said_tokens int, read_tokens int, rated_tasks int=0, rated_calls int=0, rated_hidden int=0,"
    "rated_misses int=0, rated_discoveries int=0, rated_read_tokens int=0",
    # By table of the log: its records up to `done` are added up, except for those that `costs_open` says belong to a
    # stretch that goes on: of a time since `since`, and with an id of at least the one in the table's column. Of
    # `calls` the number of the records up to `done` is kept as well.
    "costs_marks": "*name str, done int, count int",
    "costs_open": "*session str, since float, calls int, discoveries int, exposures int, misses int",
    # What running proxies share: the list of each profile, the state of their upstreams, why servers could not be used
    # when they were last tried, and the calls that take longer than their clients wait.
    "working_sets": "*key str, epoch int, tools str, listing bytes, created_at float, inputs str, named str='[]'",
    "upstream_states": "*machine str, *pid int, started_at float, *upstream str, state str, since float, era str?,"
    "tools int, restarts int, skipped_lines int, last_error str, stderr str, seen_at float",
    "failures": "*server str, *entry str, code str, reason str, first_at float, last_at float, times int,due_at float",
    "kept_calls": "*ident str, owner str, session str, tool str, upstream str, task str, era str, machine str,"
    "pid int, process_at float, started_at float, until float, reply str, record str",
    # Embeddings by the encoder's key and the hash of the text; `data` is float32.
    "vectors": "*encoder str, *digest bytes, data bytes, used_at float",
    # What was learned, what was imported to learn from, and what language models have answered about tools.
    "artifacts": "*id int, kind str, number int, created_at float, sha256 str, data bytes, active int, previous int,"
    "promoted_at float, report str",
    "demonstrations": "*digest bytes, episode str, at float",
    "wordings": "*digest bytes, model str, version int, server str, tool str, texts str, tokens int, took_s float,"
    "at float",
    # Definitions that were approved, wait for a decision, or were refused. The value is last: it is long, and most
    # questions are about the others.
    "approvals": "*server str, *kind str, *name str, *hash str, state str, seen_at float, exposed str,"
    "fingerprint str, version str, effect str, decision int, value bytes",
    # Who did what; both engines refuse to change or delete a row.
    "audit": "*id int, at float, principal str, name str, client str, profile str, action str, target str,"
    "outcome str, detail str, session str",
    # What people have allowed foretool to do at servers for them, sealed with a key that is not here, and the consents
    # that are under way.
    "grants": "*server str, *person str, sealed bytes, at float",
    "consents": "*ident bytes, sealed bytes, until float",
}
"""The columns of each table: a name and a type. A star marks those of the primary key, a question mark one that may be
NULL, `=` a default, and `>` the table whose ids a column holds."""

UNIQUE: Final = (("upstreams", "name", "fingerprint"), ("definitions", "schema_hash"), ("lists", "hash"))
BY_TOOL: Final = ("tool", "cause", "at", "recovered", "turns", "tokens", "session")
"""The index by which misses were counted in the first tables."""
BY_KIND: Final = ("tool", "cause", "noticed", "call", "at", "recovered", "turns", "tokens", "session")
"""That by which they are counted now, which is all that a count reads."""
INDEXES: Final = (
    ("sessions", "started_at"), ("exposures", "at"), ("exposures", "session"), ("exposures", "list"),
    ("discoveries", "at"), ("misses", "at"),
    ("misses", *BY_TOOL),
    ("prompts", "at"), ("steps", "at"), ("artifacts", "kind", "active"), ("audit", "at"), ("audit", "principal", "at"),
)  # fmt: skip
"""The table and the columns of each index."""
UNDECIDED: Final = "approvals (server, kind) WHERE state != 'approved'"
"""What one index more is on: what waits is asked for all the time, and is a few rows of thousands."""


PRICED: Final = ("full_tokens", "rated_full_tokens", "priced", "rated_priced")
"""The columns of `costs` with the prices of calls."""
_PRICE: Final = (
    "coalesce((SELECT CASE WHEN old.period = costs.period THEN most ELSE last END FROM catalog_sizes AS old"
    " WHERE old.period <= costs.period ORDER BY old.period DESC LIMIT 1),"
    " (SELECT most FROM catalog_sizes AS old ORDER BY old.period LIMIT 1))"
)
PRICE_OLD_CALLS: Final = (
    "INSERT INTO catalog_tokens (at, tokens) SELECT period * 900.0, most FROM catalog_sizes",
    "INSERT INTO catalog_tokens (at, tokens) SELECT (period + 1) * 900.0, last FROM catalog_sizes WHERE last <> most"
    " ON CONFLICT (at) DO NOTHING",
    "UPDATE costs SET priced = calls - refused, rated_priced = rated_calls - rated_refused,"  # noqa: S608  # constants
    f" full_tokens = (calls - refused) * {_PRICE}, rated_full_tokens = (rated_calls - rated_refused) * {_PRICE}"
    " WHERE EXISTS (SELECT 1 FROM catalog_sizes)",
)
"""What takes over the sizes that were kept by quarters of an hour."""


class Column(NamedTuple):
    name: str
    kind: Literal["int", "float", "str", "bytes"]
    is_key: bool
    may_be_null: bool
    default: str
    """As SQL writes it; "" if there is none."""
    target: str
    """The table whose ids it holds, or ""."""


def columns(spec: str) -> Iterator[Column]:
    """Read the columns of a table, as `TABLES` writes them."""
    for name, written in (each.split() for each in spec.split(",")):
        kind, _, default = written.partition("=")
        kind, _, target = kind.partition(">")
        yield Column(name.lstrip("*"), kind.rstrip("?"), name.startswith("*"), kind.endswith("?"), default, target)  # type: ignore[arg-type]
