"""The store as it was at a moment of the past, for an application that plays recorded tasks again.

What exists (tools, approvals, vectors) is read from the store that is kept. What happens (calls, misses, lists, working
sets, searches) goes into a store in memory, which begins with what had happened before the first task that is played.
What was learned counts from the moment at which it was promoted, so no model ranks a task that it was trained on.

Nothing is written to the store that is kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Sequence
from math import inf, nextafter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from foretool.storage.opening import open_past_database
from foretool.storage.records import Artifact, Call, ClientRecord, Event, Miss, Prompt, Statistics, ToolId, Usage
from foretool.storage.sql.artifacts import ArtifactStore
from foretool.storage.sql.calls import FEWEST_FAILED, CallStore
from foretool.storage.sql.sessions import SessionStore
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.storage.sql.database import Database

_MOST_EVENTS: Final = 200_000
"""How many calls are read, the latest ones."""
_LOOKED_BACK: Final = 20_000
"""Calls before the first task among which the last one of each tool is looked for."""
_SEEDED: Final = 1000
"""How many of the calls before the first task are put into the log, so that tools which always failed are known."""
TEXTS: Final = 5
"""How many of the latest tasks before the first one are put into the log: lists are made of them too."""


class Before(Struct, frozen=True):
    """The calls and searches before the first played task, with which each tried config begins."""

    since: float
    """When that task began."""
    calls: tuple[Event, ...]
    """The calls that are put into the log, the oldest first."""
    texts: tuple[Event, ...]
    """The tasks that are put into the log, the oldest first."""
    usage: dict[ToolId, Usage]
    """How often each tool had been called and missed, without `calls`."""


def read_past(kept: Store, since: float) -> Before:
    """Return what had happened before a time. Reads a bounded part of the log."""
    calls = kept.calls.events_before(since, _SEEDED, _MOST_EVENTS)
    until = nextafter(since, -inf)
    texts = kept.discoveries.events(until=until, limit=TEXTS)
    texts += [Event(each.at, "prompt", each.text) for each in kept.tasks.prompts(until=until, limit=TEXTS)]
    texts.sort(key=lambda each: each.at)
    return Before(since, tuple(calls), tuple(texts), _read_usage(kept, since, calls))


class PastStore(Store):
    """An `App`'s store as it was at the moment `time`, which the player moves on."""

    def __init__(self, kept: Store, before: Before) -> None:
        super().__init__(open_past_database())
        self.time = before.since
        self._kept = kept
        self.path = kept.path
        self.approvals, self.catalog, self.vectors, self.flows = kept.approvals, kept.catalog, kept.vectors, kept.flows
        self.forgetting, self.retention, self.browsing = kept.forgetting, kept.retention, kept.browsing
        self.grants, self.wordings = kept.grants, kept.wordings
        self.costs, self.exporting, self.audit = kept.costs, kept.exporting, kept.audit
        self.artifacts = _PastArtifacts(self._database, kept, self.now)
        self.sessions = _PastSessions(self._database, kept.sessions.first_at())
        self.calls = _PastCalls(self._database, before.usage)
        self._seed(before)

    def now(self) -> float:
        """Return the moment of which this is the store, in seconds since 1970."""
        return self.time

    def statistics(self) -> Statistics:
        return self._kept.statistics()

    def _seed(self, before: Before) -> None:
        """Put into the log what an application reads of the time before."""
        self.calls.record([_to_call(each) for each in before.calls])
        for each in before.texts:
            self.tasks.add_prompt(Prompt(each.at, each.text))
        for record in self._kept.clients.all():
            followed = record.recent.count("1") if record.recent else record.relisted
            told = len(record.recent) if record.recent else record.announced
            self.clients.add_relist(
                ClientRecord(
                    record.client, record.version, record.era, told, followed, record.relist_ms, record.last_seen,
                    tries=record.tries,
                )
            )  # fmt: skip


def _to_call(event: Event) -> Call:
    outcome = "ok" if event.ok else "tool_error"
    tool = ToolId(event.text)
    return Call(event.session, event.at, tool, "", "name", False, outcome, 0.0, True, event.arguments)  # type: ignore[arg-type]


def _read_usage(kept: Store, since: float, seeded: Sequence[Event]) -> dict[ToolId, Usage]:
    """Return how often each tool had been called and missed before a time, without the calls that are seeded."""
    later = {each.tool: each for each in kept.calls.used_since(since, _MOST_EVENTS)}
    # Of a tool that was called later too, the usage does not say when it was called before.
    among = min(sum(each.calls for each in later.values()) + _LOOKED_BACK, _MOST_EVENTS)
    last = kept.calls.last_used(since, among)
    put_in = Counter(each.text for each in seeded)
    found = {}
    for each in kept.calls.usage():
        after = later.get(each.tool, Usage(each.tool, 0, 0, 0.0))
        calls, misses = each.calls - after.calls - put_in[each.tool], each.misses - after.misses
        if calls > 0 or misses > 0:
            at = last.get(each.tool, min(each.last_at, since))
            found[each.tool] = Usage(each.tool, max(calls, 0), max(misses, 0), at)
    return found


class _PastCalls(CallStore):
    """The calls of the log, and the usage of the time before it."""

    def __init__(self, log: Database, before: dict[ToolId, Usage]) -> None:
        super().__init__(log)
        self._before = before
        self._outcomes: list[tuple[ToolId, str]] = []
        """The latest calls, the oldest first."""

    def record(self, calls: Sequence[Call], misses: Sequence[Miss] = ()) -> None:
        super().record(calls, misses)
        self._outcomes += [(each.tool, each.outcome) for each in calls]

    def failing(self, limit: int) -> set[ToolId]:
        """As the store says it, from what was recorded here: a list is made for each task, and a query among a thousand
        calls each time took a fifth of the time of playing."""
        latest = self._outcomes[-limit:]
        self._outcomes = latest
        judged = [(tool, outcome) for tool, outcome in latest if outcome not in ("refused", "cancelled")]
        calls = Counter(tool for tool, _ in judged)
        tried = {tool for tool in calls if calls[tool] >= FEWEST_FAILED}
        return tried - {tool for tool, outcome in judged if outcome == "ok"}

    def counted_usage(self) -> list[Usage]:
        return self._add_before(super().counted_usage())

    def counted_usage_of(self, profile: str) -> list[Usage]:
        # Not known of the time before: played tasks go by the use of all profiles.
        return []

    def _add_before(self, counted: Sequence[Usage]) -> list[Usage]:
        found = dict(self._before)
        for each in counted:
            if (old := found.get(each.tool)) is not None:
                at = max(old.last_at, each.last_at)
                found[each.tool] = Usage(each.tool, old.calls + each.calls, old.misses + each.misses, at)
            else:
                found[each.tool] = each
        return sorted(found.values(), key=lambda each: (-each.calls, -each.last_at, each.tool))


class _PastSessions(SessionStore):
    """The sessions of the log; the first one is that of the store that is kept."""

    def __init__(self, log: Database, first: float | None) -> None:
        super().__init__(log)
        self._first = first

    def first_at(self) -> float | None:
        return self._first


class _PastArtifacts(ArtifactStore):
    """What had been learned by a moment."""

    def __init__(self, log: Database, kept: Store, now: Callable[[], float]) -> None:
        super().__init__(log)
        self._kept = kept.artifacts
        self._now = now
        history = sorted(kept.artifacts.history(), key=lambda each: each.created_at)
        self._times = [each.created_at for each in history]
        self._chains = {kind: kept.artifacts.load_intact(kind) for kind in kept.artifacts.served()}

    @property
    def version(self) -> int:
        # A run that promotes nothing begins an epoch too.
        return bisect_right(self._times, self._now())

    def load_intact(self, kind: str) -> list[tuple[Artifact, bytes]]:
        return [each for each in self._chains.get(kind, ()) if each[0].promoted_at <= self._now()]

    def served(self) -> dict[str, Artifact]:
        return {kind: found[0][0] for kind in self._chains if (found := self.load_intact(kind))}

    def active(self, kind: str) -> Artifact | None:
        return self.served().get(kind)

    def history(self, kind: str | None = None, limit: int = -1) -> list[Artifact]:
        found = [each for each in self._kept.history(kind) if each.created_at <= self._now()]
        return found if limit < 0 else found[:limit]
