"""The tables `discoveries`, `prompts` and `steps`: what was asked for in words, and what was offered for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from foretool.storage.records import Discovery, Event, Match, Need, Prompt, StepRecord, ToolId
from foretool.storage.sqlite.database import Database, encode_json, insert_into, quote_columns

_DISCOVERY = (
    "session", "at", "task", "names", "sufficiency", "level", "matches", "tokens", "took_ms", "handle", "probability",
)  # fmt: skip
_PROMPT = ("at", "text", "session", "cwd")
_STEP_FIGURES = ("tokens", "budget", "probability", "sufficiency", "fallback", "cached", "error", "took_ms")
_STEP = ("session", "at", "task", "tools", "fragments", *_STEP_FIGURES)

_prompt_row = attrgetter(*_PROMPT)
_step_figures = attrgetter(*_STEP_FIGURES)

_strings = msgspec.json.Decoder(tuple[str, ...])
_tool_ids = msgspec.json.Decoder(tuple[ToolId, ...])
_matches = msgspec.json.Decoder(tuple[Match, ...])

_ADD_DISCOVERY = insert_into("discoveries", _DISCOVERY)
_ADD_PROMPT = insert_into("prompts", _PROMPT)
_ADD_STEP = insert_into("steps", _STEP)
_GET_DISCOVERIES = (
    "SELECT session, at, task, names, sufficiency, level, matches, tokens, took_ms, id, handle, probability"
    " FROM discoveries"
)
_GET_PROMPTS = f"SELECT {quote_columns(_PROMPT)}, id FROM prompts"  # noqa: S608  # names are constants of this file
_GET_STEPS = f"SELECT {quote_columns(_STEP)}, id FROM steps"  # noqa: S608  # as above

# A prompt belongs to no profile: its client may be connected to any.
_TASKS = """
    SELECT task FROM (
        SELECT task, at FROM discoveries WHERE at >= :since AND task != ''
            AND (:profile IS NULL OR session IN (SELECT key FROM sessions WHERE profile = :profile))
        UNION ALL
        SELECT text, at FROM prompts WHERE :profile IS NULL AND at >= :since AND text != ''
    ) GROUP BY task ORDER BY max(at) DESC LIMIT :limit
"""
# Of each group SQLite takes the other columns from the row with the least id.
_FIRST_CALLS = "SELECT discovery, tool, min(id) FROM calls WHERE discovery >= ? AND at >= ? GROUP BY discovery"
_NEEDS = """
    SELECT session, handle, at FROM discoveries WHERE at >= ? AND names = '[]'
    UNION ALL SELECT session, handle, at FROM calls WHERE at >= ? AND hidden = 1 AND discovery = 0
"""


class Discoveries:
    """Implements `DiscoveryStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, discovery: Discovery) -> int:
        row = (
            discovery.session, discovery.at, discovery.task, encode_json(discovery.names), discovery.sufficiency,
            discovery.level, encode_json(discovery.matches), discovery.tokens, discovery.took_ms, discovery.handle,
            discovery.probability,
        )  # fmt: skip
        with self._database.atomic():
            self._database.run(_ADD_DISCOVERY, row)
            return self._database.last_id()

    def set_handle(self, id: int, handle: str) -> None:
        self._database.run("UPDATE discoveries SET handle = ? WHERE id = ?", (handle, id))

    def get(self, id: int) -> Discovery | None:
        row = self._database.row(f"{_GET_DISCOVERIES} WHERE id = ?", (id,))
        return _read_discovery(row) if row else None

    def recent(self, limit: int) -> list[Discovery]:
        rows = self._database.rows(f"{_GET_DISCOVERIES} ORDER BY id DESC LIMIT ?", (limit,))
        return [_read_discovery(row) for row in rows]

    def events(self, since: float) -> list[Event]:
        sql = "SELECT at, task, handle, session FROM discoveries WHERE at >= ? AND task != '' ORDER BY id"
        rows = self._database.rows(sql, (since,))
        return [Event(at, "task", task, handle=handle, session=session) for at, task, handle, session in rows]

    def answered(self, since: float, limit: int) -> list[Discovery]:
        sql = f"{_GET_DISCOVERIES} WHERE at >= ? AND names = '[]' AND matches != '[]' ORDER BY id DESC LIMIT ?"
        return [_read_discovery(row) for row in self._database.rows(sql, (since, limit))]

    def first_calls(self, id: int, since: float) -> dict[int, ToolId]:
        return {found: tool for found, tool, _ in self._database.rows(_FIRST_CALLS, (id, since))}

    def needs(self, since: float) -> Iterator[Need]:
        return map(Need._make, self._database.each_row(_NEEDS, (since, since)))


class Tasks:
    """Implements `TaskStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def texts(self, since: float = 0.0, limit: int = -1, profile: str | None = None) -> list[str]:
        rows = self._database.rows(_TASKS, {"since": since, "limit": limit, "profile": profile})
        return [task for (task,) in rows]

    def add_prompt(self, prompt: Prompt) -> int:
        with self._database.atomic():
            self._database.run(_ADD_PROMPT, _prompt_row(prompt))
            return self._database.last_id()

    def prompts(self, since: float = 0.0, limit: int = -1) -> list[Prompt]:
        sql = f"{_GET_PROMPTS} WHERE at >= ? ORDER BY at DESC, id DESC LIMIT ?"
        return [Prompt(*row) for row in self._database.rows(sql, (since, limit))]

    def add_step(self, step: StepRecord) -> int:
        head = (step.session, step.at, step.task, encode_json(step.tools), encode_json(step.fragments))
        with self._database.atomic():
            self._database.run(_ADD_STEP, (*head, *_step_figures(step)))
            return self._database.last_id()

    def steps(self, since: float = 0.0, limit: int = -1) -> list[StepRecord]:
        sql = f"{_GET_STEPS} WHERE at >= ? ORDER BY at DESC, id DESC LIMIT ?"
        return [_read_step(row) for row in self._database.rows(sql, (since, limit))]


def _read_discovery(row: Sequence[Any]) -> Discovery:
    session, at, task, names, sufficiency, level, matches, *rest = row
    return Discovery(session, at, task, _strings.decode(names), sufficiency, level, _matches.decode(matches), *rest)


def _read_step(row: Sequence[Any]) -> StepRecord:
    *head, tools, fragments, tokens, budget, probability, sufficiency, fallback, cached, error, took_ms, id = row
    lists = (_tool_ids.decode(tools), _strings.decode(fragments))
    figures = (tokens, budget, probability, sufficiency, fallback, bool(cached), error, took_ms)
    return StepRecord(*[*head, *lists, *figures, id])
