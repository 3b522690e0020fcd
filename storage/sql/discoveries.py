"""The tables `discoveries`, `prompts` and `steps`: what was asked for in words, and what was offered for it."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from msgspec import Struct
from msgspec.json import Decoder

from foretool.storage.records import AnswerSummary, Discovery, Event, Match, Prompt, StepRecord, ToolId
from foretool.storage.sql.calls import first_call
from foretool.storage.sql.database import Database, Said, Subject
from foretool.storage.sql.tables import MAY_COUNT, STRINGS, TOOL_IDS, Repeats, Table

_DISCOVERIES = Table(
    "discoveries",
    Discovery,
    {"names": STRINGS, "matches": Decoder(tuple[Match, ...])},
    said=("task", "names", "handle"),
)
PROMPTS = Table("prompts", Prompt, said=("text", "session", "cwd", "client"))
_STEPS = Table(
    "steps",
    StepRecord,
    {"tools": TOOL_IDS, "fragments": STRINGS},
    flags=("cached",),
    said=("task", "fragments", "error"),
)

# Of the latest rows alone, which the indexes on `at` find. Rows without a text count among them: a log that
# keeps no texts would be read to its end.
_LATEST_TASKS = f"""
    SELECT task FROM (
        SELECT * FROM (
            SELECT task, at FROM (
                SELECT task, at, session FROM discoveries ORDER BY at DESC LIMIT :rows
            ) AS newest WHERE {MAY_COUNT.format(table="newest")}
        ) AS searched
        UNION ALL SELECT * FROM (SELECT text, at FROM prompts ORDER BY at DESC LIMIT :rows) AS asked
    ) AS said WHERE task != '' GROUP BY task ORDER BY max(at) DESC LIMIT :limit
"""  # noqa: S608
_LATEST_OF_PROFILE = f"""
    SELECT task FROM (
        SELECT task, at, session FROM discoveries ORDER BY at DESC LIMIT :rows
    ) AS newest
    WHERE task != '' AND {MAY_COUNT.format(table="newest")}
    AND EXISTS (SELECT 1 FROM sessions WHERE sessions.key = newest.session AND sessions.profile = :profile)
    GROUP BY task ORDER BY max(at) DESC LIMIT :limit
"""  # noqa: S608
_FIRST_CALLS = """
    SELECT calls.discovery, calls.tool FROM calls JOIN (
        SELECT min(id) AS id FROM calls
        WHERE id >= ? AND discovery >= ? AND at >= ? AND outcome <> 'refused' GROUP BY discovery
    ) AS firsts ON firsts.id = calls.id WHERE calls.at >= ?
"""
_NEEDS = """
    SELECT at, 'task', task, handle, session, 0 FROM discoveries WHERE at >= ? AND names = '[]'
    UNION ALL SELECT at, 'call', tool, handle, session, discovery FROM calls
    WHERE id >= ? AND at >= ? AND (hidden = 1 OR discovery > 0) AND outcome <> 'refused'
"""
_EVENTS = """
SELECT at, task, handle, session FROM discoveries WHERE at >= ? AND at <= ? AND task != ''
ORDER BY at DESC, id DESC LIMIT ?
"""
_ANSWERED = "names = '[]' AND matches != '[]'"
_ANSWERS = f"SELECT id, at, task, matches FROM discoveries WHERE {_ANSWERED} ORDER BY id DESC LIMIT ?"  # noqa: S608
_LATEST = 250
"""Discoveries, and prompts, among which the latest tasks are looked for; reading them takes under a millisecond."""


class _Ranked(Struct):
    """A match, of which the tool alone is read."""

    tool: ToolId


_RANKED = Decoder(tuple[_Ranked, ...])


class DiscoveryStore(Subject):
    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._repeated = Repeats(database, _discovery_key, self._find)

    def _find(self, discovery: Discovery) -> int:
        query = "SELECT id FROM discoveries WHERE at = ? AND session = ? AND took_ms = ? ORDER BY id DESC LIMIT 1"
        row = self._database.row(query, _discovery_key(discovery))
        return int(row[0]) if row else 0

    def add(self, discovery: Discovery) -> int:
        if not self._repeated.leave_out([discovery]):
            return self._find(discovery)
        return self._database.insert(_DISCOVERIES.insert, _DISCOVERIES.row(discovery))

    def set_handle(self, id: int, handle: str) -> None:
        """Keep which conversation a discovery belongs to: the handle that its answer gave out has come back."""
        self._database.run("UPDATE discoveries SET handle = ? WHERE id = ?", (Said(handle), id))

    def set_tokens(self, id: int, tokens: int) -> None:
        """Keep how many tokens the answer of a discovery takes, which was recorded with an estimate."""
        self._database.run("UPDATE discoveries SET tokens = ? WHERE id = ?", (tokens, id))

    def get(self, id: int) -> Discovery | None:
        return _DISCOVERIES.find(self._database, "WHERE id = ?", (id,))

    def recent(self, limit: int) -> list[Discovery]:
        return _DISCOVERIES.find_all(self._database, "ORDER BY id DESC LIMIT ?", (limit,))

    def count_by_session(self, since: float) -> dict[str, int]:
        """Return how many discoveries each session has made since a time."""
        return dict(
            self._database.rows("SELECT session, count(*) FROM discoveries WHERE at >= ? GROUP BY session", (since,))
        )

    def of_session(self, session: str, since: float, until: float) -> list[Discovery]:
        """Return the discoveries of a session in a time, the oldest first."""
        rest = "WHERE session = ? AND at >= ? AND at <= ? ORDER BY id"
        return _DISCOVERIES.find_all(self._database, rest, (session, since, until))

    def events(self, since: float = 0.0, until: float = inf, limit: int = -1) -> list[Event]:
        """Return the latest discoveries of a time that have a task as events, the oldest first."""
        rows = self._database.rows(_EVENTS, (since, until, limit))[::-1]
        return [Event(at, "task", task, handle=handle, session=session) for at, task, handle, session in rows]

    def answered(self, limit: int) -> list[Discovery]:
        """Return the latest discoveries that searched by task and found something, the newest first, without those of
        people who opted out of learning."""
        rest = f"WHERE {_ANSWERED} AND {MAY_COUNT.format(table='discoveries')} ORDER BY id DESC LIMIT ?"
        return _DISCOVERIES.find_all(self._database, rest, (limit,))

    def answers(self, limit: int, since: float) -> list[AnswerSummary]:
        """Return in short what `answered` returns, of searches made `since` a time or later; cheaper to read. `limit`
        counts before that."""
        rows = self._database.rows(_ANSWERS, (limit,))
        decode = _RANKED.decode
        return [
            AnswerSummary(id, at, task, tuple([each.tool for each in decode(matches)]))
            for id, at, task, matches in rows
            if at >= since
        ]

    def first_calls(self, id: int, since: float) -> dict[int, ToolId]:
        """Return the tool called first on behalf of each discovery from `id` on."""
        values = (first_call(self._database, since), id, since, since)
        return {found: tool for found, tool in self._database.rows(_FIRST_CALLS, values)}

    def needs(self, since: float) -> Iterator[Event]:
        """Yield each need of a hidden tool, in no fixed order: searches by task, and calls of what a discovery found or
        the list lacked."""
        values = (since, first_call(self._database, since), since)
        for at, kind, text, handle, session, discovery in self._database.each_row(_NEEDS, values):
            yield Event(at, kind, text, handle=handle, session=session, discovery=discovery)


class TaskStore(Subject):
    """Tasks in words: what users asked their clients for, and what was selected for single steps."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self._repeated = Repeats(database, _step_key, self._find_step)

    def latest(self, limit: int, profile: str | None = None) -> list[str]:
        """Return the `limit` latest tasks of discoveries and prompts, each text once, the latest first; fewer if the
        same ones come all the time; fast however long the log is. Without those of people who opted out of learning.
        With `profile` only searches of its sessions."""
        values = {"rows": _LATEST, "limit": limit}
        if profile is None:
            return [task for (task,) in self._database.rows(_LATEST_TASKS, values)]
        rows = self._database.rows(_LATEST_OF_PROFILE, values | {"profile": profile})
        return [task for (task,) in rows]

    def add_prompt(self, prompt: Prompt) -> int:
        # A hook that got no answer in time records its prompt itself; the proxy that it asked may have done so too.
        same = self._database.row(
            "SELECT id FROM prompts WHERE at = ? AND session = ? AND text = ?", (prompt.at, prompt.session, prompt.text)
        )
        if same is not None:
            return int(same[0])
        return self._database.insert(PROMPTS.insert, PROMPTS.row(prompt))

    def hand_over(self, prompt: Prompt, session: str) -> None:
        """Note that the user of a session wrote a prompt, and that its client read the hint behind it."""
        with self._database.atomic():
            self._database.run("UPDATE prompts SET owner = ? WHERE id = ?", (session, prompt.id))
            self._database.run(
                "UPDATE exposures SET session = ? WHERE session = ? AND at = ? AND reason = 'prompt'",
                (session, prompt.session, prompt.at),
            )

    def prompts(self, since: float = 0.0, limit: int = -1, until: float = inf) -> list[Prompt]:
        rest = "WHERE at >= ? AND at <= ? ORDER BY at DESC, id DESC LIMIT ?"
        return PROMPTS.find_all(self._database, rest, (since, until, limit))

    def _find_step(self, step: StepRecord) -> int:
        query = "SELECT id FROM steps WHERE at = ? AND session = ? AND took_ms = ? ORDER BY id DESC LIMIT 1"
        row = self._database.row(query, _step_key(step))
        return int(row[0]) if row else 0

    def add_step(self, step: StepRecord) -> int:
        if not self._repeated.leave_out([step]):
            return self._find_step(step)
        return self._database.insert(_STEPS.insert, _STEPS.row(step))

    def steps(self) -> list[StepRecord]:
        return _STEPS.find_all(self._database, "ORDER BY at DESC, id DESC")


def _discovery_key(discovery: Discovery) -> tuple[float | str, ...]:
    return discovery.at, discovery.session, discovery.took_ms


def _step_key(step: StepRecord) -> tuple[float | str, ...]:
    return step.at, step.session, step.took_ms
