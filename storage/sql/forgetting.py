"""Deletes what a user selects, in one transaction, and then every trace of it in the file and its log.

Each table says how it answers each condition of a `Selection`; a table that cannot answer one that is given keeps all
its rows. Names of tools and approvals always stay: without them another server could take a name, or a changed
definition would pass as a new one. The audit log stays too.

Where whose a session was is forgotten, its key stays without a name: the session may go on, and what it still does must
not be learned from if the person opted out, or wanted to be forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from foretool.storage.records import Forgotten, SealedGrant, Selection
from foretool.storage.sql.calls import COUNTED, CallStore
from foretool.storage.sql.costs import forget_sizes, reset_costs
from foretool.storage.sql.database import Subject
from foretool.storage.sql.retention import delete_unused, mend_references
from foretool.storage.sql.sessions import intern_list
from foretool.storage.sql.tables import row_key

_OF_PERSON: Final = "SELECT session FROM session_people WHERE person = :person"
_NEWEST_COUNTED: Final = {"calls": "call", "misses": "miss"}
"""The column of `usage_folded` with the last record of each table that is counted."""
_OF_TOOL: Final = "{column} IN (SELECT name FROM forget_tools)"
_NAMES_TOOL: Final = "EXISTS (SELECT 1 FROM forget_tools WHERE replace({column}, forget_tools.written, '') <> {column})"


class _Table(NamedTuple):
    """How one table answers the conditions; "" where it cannot."""

    name: str
    at: str = ""
    session: str = ""
    tools: str = ""
    """The condition for rows that concern one of the selected tools."""
    texts: tuple[str, ...] = ()
    """Columns with words of users, clients or servers."""
    task: str = ""
    """The column that holds a task in words, whose vectors go with it."""


_TABLES: Final = (
    _Table("calls", "at", "session", _OF_TOOL.format(column="tool"), ("arguments",)),
    _Table(
        "misses", "at", "session",
        f"({_OF_TOOL.format(column='tool')} OR {_NAMES_TOOL.format(column='history')})",
        ("query", "tool", "change", "history"),
    ),
    _Table("discoveries", "at", "session", _NAMES_TOOL.format(column="matches"), ("task", "names"), "task"),
    _Table(
        "exposures", "at", "session",
        f"list IN (SELECT id FROM lists WHERE {_NAMES_TOOL.format(column='lists.tools')})",  # noqa: S608  # a constant
    ),
    _Table("prompts", "at", "session", "", ("text", "cwd", "client"), "text"),
    _Table("steps", "at", "session", _NAMES_TOOL.format(column="tools"), ("task", "error", "fragments"), "task"),
    _Table("sessions", "started_at", "key", "", ("client", "version", "profile")),
    _Table("clients", "last_seen", "", "", ("client", "version")),
    _Table(
        "flows", "last_at", "", f"({_OF_TOOL.format(column='before')} OR {_OF_TOOL.format(column='after')})",
        ("field", "parameter"),
    ),
    _Table("demonstrations", "at", "", _NAMES_TOOL.format(column="episode"), ("episode",), "episode"),
    _Table(
        "working_sets", "", "", f"({_NAMES_TOOL.format(column='tools')} OR {_NAMES_TOOL.format(column='named')})",
        ("listing",),
    ),
    _Table("kept_calls", "started_at", "session", _OF_TOOL.format(column="tool"), ("reply", "record")),
    _Table("upstream_states", "", "", "", ("last_error", "stderr")),
    _Table("failures", "", "", "", ("reason",)),
)  # fmt: skip
_BYTES: Final = frozenset({"listing"})
"""Columns of bytes that hold a text."""
_WHOLE: Final = (
    "grants",
    "consents",
    "usage",
    "profile_usage",
    "usage_folded",
    "vectors",
    "artifacts",
    "tools",
    "upstreams",
    "tool_versions",
    "wordings",
)
"""Tables that are emptied as well when everything is forgotten."""

_ADDED_UP: Final = frozenset({"calls", "misses", "discoveries", "exposures", "sessions", "prompts"})
"""Tables whose records are added up in `costs`."""


class ForgetStore(Subject):
    """What a user wants to have forgotten."""

    def forget(self, selection: Selection, *, dry: bool = False) -> Forgotten:
        """Delete the selected records, all or none, and return what they were; with `dry` only return it.

        Names of tools and approvals stay. Vectors of the returned tasks are left to `VectorStore.forget`.
        """
        database = self._database
        CallStore(database).fold_usage()
        with database.atomic():
            self._select_tools(selection)
            grants: list[SealedGrant] = []
            counts = self._forget_rest(selection, grants, dry=dry)
            tasks: set[str] = set()
            for table in _TABLES:
                if (where := self._condition(table, selection)) is None:
                    continue
                found = self._find(table, *where, tasks)
                others = self._count_other_misses(selection, *where) if table.name == "misses" else 0
                if found and not dry:
                    self._count_down(table.name, found)
                    if table.name == "exposures" and selection.names_tools_alone:
                        self._take_out_of_lists()
                    else:
                        database.run_all(f"DELETE FROM {table.name} WHERE {row_key(table.name)} = ?", found)  # noqa: S608
                if found:
                    counts[table.name] = len(found) - others
                if others:
                    counts["misses_of_others"] = others
            # Last, because the sessions of a person are found by it.
            if people := self._forget_people(selection, dry=dry):
                counts["session_people"] = people
            if not dry:
                if selection.everything or counts.keys() & _ADDED_UP:
                    reset_costs(database)
                if selection.everything:
                    forget_sizes(database)
                mend_references(database)
        if not dry:
            delete_unused(database)
        counts = {kind: count for kind, count in counts.items() if count}
        return Forgotten(counts, tuple(sorted(tasks)), tuple(grants))

    def compact(self) -> bool:
        """Remove every trace of what was deleted from the file and its log; return False if another process still uses
        the log, which then keeps traces until that process has ended."""
        return self._database.compact()

    def _select_tools(self, selection: Selection) -> None:
        """Fill the table `forget_tools` with the exposed names that the selection means."""
        database = self._database
        names = {
            exposed
            for exposed, upstream, own in database.rows("SELECT exposed, upstream, name FROM exposed_names")
            if selection.server in ("", upstream) and selection.tool in ("", exposed, own)
        }
        # A name that no server has is known from misses alone.
        wanted = names | ({selection.tool} if selection.tool and not selection.server else set())
        if selection.server and not selection.tool:
            of_server = "SELECT DISTINCT tool FROM misses WHERE substr(tool, 1, length(:head)) = :head"
            wanted |= {tool for (tool,) in database.rows(of_server, {"head": f"{selection.server}__"})}
        database.run("CREATE TEMP TABLE IF NOT EXISTS forget_tools (name text, written text)")
        database.run("DELETE FROM forget_tools")
        database.run_all(
            "INSERT INTO forget_tools (name, written) VALUES (?, ?)", [(name, f'"{name}"') for name in sorted(wanted)]
        )

    def _find(self, table: _Table, where: str, values: dict[str, Any], tasks: set[str]) -> list[tuple[Any, ...]]:
        """Return the keys of the rows that a condition selects, and add their tasks to `tasks`."""
        task = table.task or "''"
        query = f"SELECT {task}, {row_key(table.name)} FROM {table.name} WHERE {where}"  # noqa: S608  # constants of this file
        rows = self._database.rows(query, values)
        for text, *_ in rows if table.task else ():
            tasks |= set(_tasks_of(table.name, text))
        return [tuple(key) for _, *key in rows]

    def _count_other_misses(self, selection: Selection, where: str, values: dict[str, Any]) -> int:
        """Count the misses that a condition selects because a selected tool was called before."""
        if not (selection.server or selection.tool):
            return 0
        query = f"SELECT count(*) FROM misses WHERE {where} AND NOT {_OF_TOOL.format(column='tool')}"  # noqa: S608
        count: int = self._database.rows(query, values)[0][0]
        return count

    def _take_out_of_lists(self) -> None:
        """Take the selected tools out of the lists that clients were given. That a client was given a list, and how
        many tokens it took, stays: other calls read it."""
        forgotten = {name for (name,) in self._database.rows("SELECT name FROM forget_tools")}
        query = f"SELECT id, tools FROM lists WHERE {_NAMES_TOOL.format(column='lists.tools')}"  # noqa: S608
        for ident, tools in list(self._database.rows(query)):
            left = intern_list(self._database, [tool for tool in json.loads(tools) if tool not in forgotten])
            move = "UPDATE exposures SET list = (SELECT id FROM lists WHERE hash = ?) WHERE list = ?"
            self._database.run(move, (left, ident))

    def _count_down(self, table: str, found: list[tuple[Any, ...]]) -> None:
        """Take calls and misses that are deleted out of the numbers of their tools, as far as they were counted."""
        if (counted := COUNTED.get(table)) is not None:
            # A record that was written a moment ago is not counted yet.
            counted += f" AND {table}.id <= (SELECT {_NEWEST_COUNTED[table]} FROM usage_folded WHERE id = 1)"  # noqa: S608
            where = f"WHERE {row_key(table)} = ? AND {counted}"
            of_row = f"(SELECT tool FROM {table} {where})"  # noqa: S608
            of_profile = (
                f"(SELECT sessions.profile, tool FROM {table} JOIN sessions ON sessions.key = {table}.session"  # noqa: S608
                f" {where})"
            )
            self._database.run_all(
                f"UPDATE usage SET {table} = {table} - 1 WHERE {table} > 0 AND tool = {of_row}",  # noqa: S608
                found,
            )
            self._database.run_all(
                f"UPDATE profile_usage SET {table} = {table} - 1 WHERE {table} > 0 AND (profile, tool) = {of_profile}",  # noqa: S608
                found,
            )
            for counts in ("usage", "profile_usage"):
                self._database.run(f"DELETE FROM {counts} WHERE calls = 0 AND misses = 0")  # noqa: S608

    def _forget_rest(self, selection: Selection, grants: list[SealedGrant], *, dry: bool) -> dict[str, int]:
        """Forget what is selected as a whole: the tables of everything, the tools of a server, the use of a tool. Adds
        the grants that are deleted to `grants`."""
        wheres: list[tuple[str, str, dict[str, Any]]] = []
        if selection.everything:
            wheres += [(table, "1 = 1", {}) for table in _WHOLE]
        elif selection.person and selection == Selection(person=selection.person, server=selection.server):
            of_server = " AND server = :server" if selection.server else ""
            values = {"person": selection.person, "server": selection.server}
            wheres.append(("grants", f"person = :person{of_server}", values))
        elif selection.names_tools_alone:
            wheres += [(table, _OF_TOOL.format(column="tool"), {}) for table in ("usage", "profile_usage")]
            if not selection.tool:
                server = {"server": selection.server}
                of_server = "upstream IN (SELECT id FROM upstreams WHERE name = :server)"
                wheres += [
                    ("upstream_states", "upstream = :server", server), ("tools", of_server, server),
                    ("failures", "server = :server", server),
                    ("grants", "server = :server", server),
                    ("upstreams", "name = :server", server), ("tool_versions", "upstream = :server", server),
                    ("wordings", "server = :server", server),
                ]  # fmt: skip
        counts = {}
        for table, where, values in wheres:
            counts[table] = self._database.rows(f"SELECT count(*) FROM {table} WHERE {where}", values)[0][0]  # noqa: S608
            if table == "grants" and not dry:
                rows = self._database.rows(f"SELECT server, person, sealed FROM grants WHERE {where}", values)  # noqa: S608
                grants += [SealedGrant(server, person, bytes(sealed)) for server, person, sealed in rows]
            if not dry:
                self._database.run(f"DELETE FROM {table} WHERE {where}", values)  # noqa: S608
        for table in ("usage_folded", "profile_usage"):
            counts.pop(table, None)
        return {table: count for table, count in counts.items() if count}

    def _forget_people(self, selection: Selection, *, dry: bool) -> int:
        """Forget whose sessions were of which nothing is left; return of how many."""
        if selection.server or selection.tool or selection.texts or selection == Selection():
            return 0
        where, values = "person <> ''", dict[str, Any]()
        if selection.person:
            where, values["person"] = f"{where} AND person = :person", selection.person
        if selection.session:
            where += " AND substr(session, 1, length(:session)) = :session"
            values["session"] = selection.session
        if selection.since or selection.before is not None:
            values |= {"since": selection.since, "before": 1e18 if selection.before is None else selection.before}
            where += " AND at >= :since AND at < :before AND session IN (SELECT session FROM session_people"
            for table in ("calls", "discoveries"):
                where += f" EXCEPT SELECT session FROM {table} WHERE at < :since OR at >= :before"  # noqa: S608
            where += ")"
        count: int = self._database.rows(f"SELECT count(*) FROM session_people WHERE {where}", values)[0][0]  # noqa: S608
        if count and not dry:
            not_learned = ", learns = 0" if selection.person else ""
            self._database.run(f"UPDATE session_people SET person = ''{not_learned} WHERE {where}", values)  # noqa: S608
        return count

    def _condition(self, table: _Table, selection: Selection) -> tuple[str, dict[str, Any]] | None:
        """Return the rows of a table that a selection means, None if the table cannot answer it."""
        parts: list[str] = []
        values: dict[str, Any] = {}
        if selection.since or selection.before is not None:
            parts.append(f"{table.at} >= :since AND {table.at} < :before" if table.at else "")
            values |= {"since": selection.since, "before": 1e18 if selection.before is None else selection.before}
        if selection.session:
            parts.append(f"substr({table.session}, 1, length(:session)) = :session" if table.session else "")
            values["session"] = selection.session
        if selection.person:
            parts.append(f"{table.session} IN ({_OF_PERSON})" if table.session else "")
            values["person"] = selection.person
        if selection.server or selection.tool:
            parts.append(table.tools)
        for number, text in enumerate(selection.texts):
            columns = [self._database.as_text(each) if each in _BYTES else each for each in table.texts]
            likes = (
                f"lower({column}) LIKE lower(:{kind}{number}) ESCAPE '!'"
                for column in columns
                for kind in ("text", "json")
            )
            parts.append(f"({' OR '.join(likes)})" if table.texts else "")
            values |= {
                f"text{number}": _pattern(text),
                f"json{number}": _pattern(json.dumps(text, ensure_ascii=False)[1:-1]),
            }
        if selection.everything:
            parts.append("1 = 1")
        return (" AND ".join(parts), values) if parts and all(parts) else None


def _pattern(text: str) -> str:
    for each in "!%_":
        text = text.replace(each, f"!{each}")
    return f"%{text}%"


def _tasks_of(table: str, text: str) -> Iterator[str]:
    """Yield the tasks in a column, whole and line by line, as encoders read them."""
    texts = json.loads(text).get("tasks", []) if table == "demonstrations" else [text]
    for each in texts:
        yield from (each, *each.splitlines())
