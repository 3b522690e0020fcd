"""Writes what happened into the store before the client gets its answer, and reads what serving needs to remember.

Records gather while answers are made and are committed in one transaction before those answers are sent. A store that
cannot take them (locked, full) never makes a client wait, fail or lose a record: they stay here, in order, and are
written again about once a second. A question that the store cannot answer gets the answer of an empty store.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from msgspec.structs import replace

from foretool.server.config.loader import LiveConfig
from foretool.server.protocol import translate
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.recording.spool import Spool, Spooled, find_left
from foretool.storage.engine import StorageError
from foretool.storage.places import local_file
from foretool.storage.records import (
    AuditEntry,
    Call,
    ClientRecord,
    Discovery,
    Era,
    Exposure,
    FlowKey,
    Miss,
    Person,
    Prompt,
    SessionRecord,
    StepRecord,
    ToolId,
    Usage,
    WorkingSet,
)
from foretool.storage.redaction import hide_shapes
from foretool.storage.store import Store

KEEP: Final = 20_000
"""Records kept while the store refuses them; the oldest go first beyond that, and are counted."""

_MOST_BEHIND: Final = 2_000
"""Records that wait at most for the next second with `commit: "behind"`."""

_JUDGED: Final = 1000
"""How many of the latest calls say whether a tool works at all."""

_UNKNOWN: Final[tuple[Person, SessionRecord | None]] = (Person("", ""), None)
_MOST_PEOPLE: Final = 20_000
"""Sessions of which it is kept whose they are; far more than may be open at once."""

_MOST_ARGUMENTS: Final = 262_144
"""Bytes of arguments whose values may be recorded; of larger ones only names and types are: looking for secrets in
megabytes would hold up other calls."""

_ENOUGH: Final = 200
"""A profile goes by its own calls once so many are counted: fewer say less than those of all profiles."""

T = TypeVar("T")

log = logging.getLogger("foretool.recorder")


class Backlog:
    """Records that wait until the store takes them."""

    def __init__(self, store: Store, config: LiveConfig) -> None:
        self._store = store
        self._config = config
        self._calls: list[Call] = []
        self._misses: list[Miss] = []
        self._entries: list[AuditEntry | None] = []
        """One for each of `_calls`, in their order; None where the setting `audit` was off."""
        self._late: list[Callable[[], object]] = []
        """Other writes that were refused, oldest first; they go before the calls, which may refer to them."""
        self._promised = 0
        """The last id given out for a refused record; such ids are negative."""
        self._ids: dict[int, int] = {}
        """By those ids: the ids that the records got in the end."""
        self.dropped = self.failures = 0
        """How many records were lost, and how often the store refused."""
        self.is_failing = False
        """The store refused what was written last."""
        self._spool = Spool(spool_folder(store)) if store.replicas is not None else None
        """Keeps what waits while the database is away; a file needs none, because it is on this machine itself."""
        self._spooled = 0
        """How many of `_calls` the spool has."""
        self.refusal = ""
        """What the store said when it last refused a record, until it takes records again."""

    def add(self, call: Call, entry: AuditEntry | None, misses: Sequence[Miss]) -> None:
        """Take a call and the misses it revealed; `commit` writes them."""
        self._calls.append(call)
        self._entries.append(entry)
        if misses:
            self._misses.extend(replace(miss, call=len(self._calls)) for miss in misses)

    def add_miss(self, miss: Miss) -> None:
        """Take a miss that no call has revealed."""
        self._misses.append(miss)

    def spool_session(self, session: SessionRecord, principal: str, *, learns: bool) -> None:
        """Keep a session in the spool too while the store refuses it."""
        if self.is_failing and self._spool is not None:
            self._spool.add([Spooled(session=session, person=principal, learns=learns)])

    def revise(self, before: Miss, after: Miss | None) -> bool:
        """Change a miss that waits to be written; return False if none of these is the one."""
        key = _identity(before)
        for place, waiting in enumerate(self._misses):
            if _identity(waiting) == key:
                self._misses[place : place + 1] = [replace(after, call=waiting.call)] if after is not None else []
                return True
        return False

    def refer(self, miss: Miss) -> Miss:
        return replace(miss, exposure=self.id_of(miss.exposure), discovery=self.id_of(miss.discovery))

    def commit(self) -> None:
        """Write what has gathered; called before answers are sent. Never raises.

        While the store refuses, only `retry` asks it again: each refusal may take as long as a lock is waited for.
        With `commit: "behind"` only `retry` writes, and this where very much has gathered.
        """
        if not (self._calls or self._misses):
            return
        if not self.is_failing and (not self._is_behind or self.waiting >= _MOST_BEHIND):
            self.retry()
        if self.is_failing and self._spool is not None:
            self._spool_new(self._spool)

    def _spool_new(self, spool: Spool) -> None:
        """Keep the calls that wait in the spool too, before their answers are sent."""
        misses: dict[int, list[Miss]] = {}
        for miss in self._misses:
            misses.setdefault(miss.call, []).append(replace(miss, call=1))
        due = range(self._spooled, len(self._calls))
        if spool.add([Spooled(self._calls[at], misses.get(at + 1, ()), self._entries[at]) for at in due]):
            self._spooled = len(self._calls)

    def retry(self) -> None:
        """Write what has gathered and what was refused; called about once a second, and at the end."""
        if not (self._calls or self._misses or self._late):
            return
        if self._late and not self._write_late():
            self._trim()
            return
        if self._promised:
            self._calls = [replace(call, discovery=self.id_of(call.discovery)) for call in self._calls]
            self._misses = list(map(self.refer, self._misses))
        try:
            self._record(self._calls, self._misses, self._entries)
        except StorageError as error:
            self._refused(error)
            if error.temporary:
                self._trim()
                return
            self._write_singly()
        self._calls, self._misses, self._entries = [], [], []
        if self._spool is not None and self._spooled:
            self._spool.clear()
            self._spooled = 0
        self.is_failing, self.refusal = False, ""

    async def take_over(self) -> None:
        """Write what proxies of this machine had to keep that were killed while the database was away."""
        if self._spool is None or self.is_failing or self._store.trouble:
            return
        while (left := find_left(spool_folder(self._store))) is not None:
            try:
                count = 0
                for spooled in left.read():
                    count += self._take_over_one(spooled)
                    await asyncio.sleep(0)
                left.remove()
                log.warning("storage: %d records of a proxy that was killed are written", count)
            except StorageError:
                return  # another time
            finally:
                left.close()

    def _take_over_one(self, spooled: Spooled) -> int:
        """Write a record of another proxy, unless that proxy could still write it; return how many were written."""
        if spooled.session is not None:
            session = spooled.session
            self._store.sessions.begin(session)
            if spooled.person:
                self._store.sessions.name_person(
                    session.key, spooled.person, learns=spooled.learns, at=session.started_at
                )
        call = spooled.call
        if call is None:
            return 0
        if any(each.took_ms == call.took_ms for each in self._store.calls.of_session(call.session, call.at, call.at)):
            return 0
        known = replace(call, discovery=max(call.discovery, 0))
        misses = [replace(each, exposure=max(each.exposure, 0), discovery=max(each.discovery, 0))
                  for each in spooled.misses]  # fmt: skip
        self._record([known], misses, [spooled.entry])
        return 1

    def close(self) -> None:
        """Close the spool, because this proxy ends."""
        if self._spool is not None:
            self._spool.close()

    def _record(self, calls: list[Call], misses: list[Miss], entries: list[AuditEntry | None]) -> None:
        if not any(entries):
            self._store.calls.record(calls, misses)
            return
        with self._store.atomic():
            self._store.calls.record(calls, misses)
            self._store.audit.add([entry for entry in entries if entry is not None])

    @property
    def _is_behind(self) -> bool:
        return self._config.settings.commit == "behind"

    @property
    def has_room(self) -> bool:
        """Whether more records can wait, so that none is lost."""
        return self.waiting < KEEP - _MOST_BEHIND and not (self._spool is not None and self._spool.is_full)

    @property
    def waiting(self) -> int:
        """How many records the store does not have yet."""
        return len(self._calls) + len(self._misses) + len(self._late)

    def identified(self, write: Callable[[], int]) -> int:
        """Write a record to which others refer; return its id. While the store refuses it, the id is a negative one
        that `id_of` resolves later."""
        promised = self._promised - 1

        def late() -> None:
            self._ids[promised] = write()

        id = self.write(write, promised, late)
        self._promised = min(self._promised, id)
        return id

    def id_of(self, id: int) -> int:
        """Return the id in the store for an id that `identified` returned; 0 if the record is not written yet."""
        return id if id >= 0 else self._ids.get(id, 0)

    def write(self, write: Callable[[], T], instead: T, late: Callable[[], object] | None = None) -> T:
        """Write now and return the result. While the store refuses, return `instead`, and call `late` (else `write`) at
        the next `retry`."""
        if not self.is_failing and not self._is_behind:
            try:
                return write()
            except StorageError as error:
                if not error.temporary:
                    self._drop(error)
                    return instead
                self._refused(error)
        self._late.append(late or write)
        return instead

    def _write_late(self) -> bool:
        """Write what was refused before; return whether nothing of it is left."""
        while self._late:
            try:
                self._late[0]()
            except StorageError as error:
                if error.temporary:
                    self._refused(error)
                    return False
                self._drop(error)
            del self._late[0]
        return True

    def _drop(self, error: StorageError) -> None:
        """Give up a record that can never be written."""
        self.failures += 1
        self.dropped += 1
        log.error("%s; one record is lost", error)

    def _write_singly(self) -> None:
        """Write the records one by one, so that one that can never be written does not hold up the others."""
        batches: list[tuple[list[Call], list[Miss]]] = [
            ([call], [replace(miss, call=1) for miss in self._misses if miss.call == place])
            for place, call in enumerate(self._calls, 1)
        ]
        batches += [([], [miss]) for miss in self._misses if not miss.call]
        for place, (calls, misses) in enumerate(batches):
            try:
                self._record(calls, misses, self._entries[place : place + 1] if calls else [])
            except StorageError:
                self.dropped += len(calls) + len(misses)

    def _refused(self, error: StorageError) -> None:
        # `StoreWatch` says it, once.
        self.failures += 1
        self.refusal, self.is_failing = str(error), True

    def _trim(self) -> None:
        over = len(self._calls) - KEEP
        if over > 0:
            kept = [replace(miss, call=max(miss.call - over, 0)) for miss in self._misses]
            self._calls, self._misses = self._calls[over:], kept[-KEEP:]
            self._entries = self._entries[over:]
            self._spooled = max(0, self._spooled - over)
            self.dropped += over
        over = len(self._late) - KEEP
        if over > 0:
            del self._late[:over]
            self.dropped += over


class Recorder:
    """Writes records, now or once the store takes them, and leaves out what the setting `record` excludes."""

    def __init__(self, store: Store, config: LiveConfig, clock: Callable[[], float]) -> None:
        self._store = store
        self._config = config
        self._clock = clock
        self.backlog = backlog = Backlog(store, config)
        self.commit, self.retry, self.take_over, self.close = (
            backlog.commit,
            backlog.retry,
            backlog.take_over,
            backlog.close,
        )
        self._people: OrderedDict[str, tuple[Person, SessionRecord | None]] = OrderedDict()
        """By session: who it is of, and what is on record of it."""
        self._active: dict[str, float] = {}
        """By session that did something since `name_forgotten` looked: when the first of it began."""
        self._asks_in_vain = False

    def now(self) -> float:
        """Return the time that records bear, in seconds since 1970."""
        return self._clock()

    def keep_text(self, text: str) -> str:
        """Return what may be kept of a task in words: all of it or nothing."""
        return text if self._config.keeps_text else ""

    def without_secrets(self, text: str) -> str:
        """Return a text without the secrets of the config, and without what looks like one. A text has to pass here
        before it is cut into words, in which nobody finds a secret any more."""
        return hide_shapes(self._config.redact(text))

    def describe_arguments(self, arguments: Raw | None) -> str:
        """Return what may be kept of a call's arguments: nothing, names and types, or values without secrets."""
        record = self._config.settings.record
        if record == "off":
            return ""
        if record == "full" and memoryview(arguments or b"").nbytes <= _MOST_ARGUMENTS:
            return self._config.redact(bytes(arguments or b"{}").decode(errors="replace"))
        return translate.argument_shape(arguments)

    def call(self, call: Call, misses: Sequence[Miss] = ()) -> None:
        self._active.setdefault(call.session, call.at)
        self.backlog.add(call, self._audit(call) if self._config.settings.audit else None, misses)

    def audit(self, call: Call) -> None:
        """Write a call to the audit log alone, if that is on."""
        if self._config.settings.audit:
            self.backlog.write(partial(self._store.audit.add, [self._audit(call)]), None)

    def _audit(self, call: Call) -> AuditEntry:
        person, session = self._people.get(call.session, _UNKNOWN)
        client, profile = (session.client, session.profile) if session is not None else ("", "")
        if call.session in self._people:
            self._people.move_to_end(call.session)
        return AuditEntry(
            call.at, person.principal, person.name, client, profile, "call", call.tool, call.outcome,
            session=call.session,
        )  # fmt: skip

    def miss(self, miss: Miss) -> None:
        self._active.setdefault(miss.session, miss.at)
        self.backlog.add_miss(miss)

    def settle(self, new: Sequence[Miss], changed: Sequence[tuple[Miss, Miss | None]]) -> None:
        """Record misses that no call has revealed, and bring others up to date."""
        for miss in new:
            self.miss(miss)
        if changed:
            self.revise(changed)

    def revise(self, changed: Sequence[tuple[Miss, Miss | None]]) -> None:
        """Bring misses that were recorded up to date, as `CallStore.revise` does."""
        stored = [pair for pair in changed if not self.backlog.revise(*pair)]
        if stored:
            self.backlog.write(lambda: self._store.calls.revise([self._with_ids(*pair) for pair in stored]), None)

    def _with_ids(self, before: Miss, after: Miss | None) -> tuple[Miss, Miss | None]:
        """Return both with the ids that the store has given to what they refer to."""
        return self.backlog.refer(before), self.backlog.refer(after) if after is not None else None

    def exposure(self, exposure: Exposure) -> int:
        """Record a list; return its id, or while the store refuses it, an id that only this recorder knows."""
        return self.backlog.identified(partial(self._store.sessions.add_exposure, exposure))

    def discovery(self, discovery: Discovery) -> int:
        """Record a discovery; return its id as `exposure` does."""
        self._active.setdefault(discovery.session, discovery.at)
        return self.backlog.identified(partial(self._store.discoveries.add, discovery))

    def name_discovery(self, id: int, handle: str) -> None:
        """Record which conversation a discovery belongs to, which is known once its handle comes back."""
        self.backlog.write(lambda: self._store.discoveries.set_handle(self.backlog.id_of(id), handle), None)

    def recount_discovery(self, id: int, tokens: int) -> None:
        """Record how many tokens an answer takes, which was recorded with an estimate."""
        self.backlog.write(lambda: self._store.discoveries.set_tokens(self.backlog.id_of(id), tokens), None)

    def step(self, step: StepRecord) -> int:
        """Record a step; return its id, 0 while the store refuses it."""
        return self.backlog.write(partial(self._store.tasks.add_step, step), 0)

    def begin_session(self, session: SessionRecord, person: Person | None = None) -> None:
        """Record a session. `person`: whose it is; None for one that was recorded before."""
        if person is not None:
            self.know_session(session, person)
        self.backlog.write(partial(self._store.sessions.begin, session), None)
        learns = self._config.profile(session.profile).learn
        principal = person.principal if person is not None and (not learns or session.transport == "http") else ""
        if principal:
            name = partial(self._store.sessions.name_person, learns=learns, at=session.started_at)
            self.backlog.write(partial(name, session.key, principal), None)
        self.backlog.spool_session(session, principal, learns=learns)

    def know_session(self, session: SessionRecord, person: Person) -> None:
        """Remember whose session this is, of one that is already on record."""
        self._people[session.key] = (person, session)
        while len(self._people) > _MOST_PEOPLE:
            self._people.popitem(last=False)

    def name_forgotten(self) -> None:
        """Record again whose a session is that was forgotten and goes on: what it does now can be forgotten as well.
        Raises `StorageError`."""
        if not self._active or self.backlog.is_failing:
            return
        for key in self._store.sessions.unnamed(self._active):
            person, session = self._people.get(key, _UNKNOWN)
            # What it did may have been forgotten too.
            if session is not None and any(self.latest_of_session(key, self._clock() - self._active[key] + 1.0)):
                self._store.sessions.name_again(session, person.principal)
        self._active.clear()

    def reopen_session(self, session: SessionRecord, person: Person) -> None:
        """Record that a session goes on here which another proxy has recorded, and perhaps ended."""
        self.know_session(session, person)
        self.backlog.write(partial(self._store.sessions.reopen, session.key), None)

    def end_session(self, key: str) -> None:
        self.backlog.write(partial(self._store.sessions.end, key, self._clock()), None)

    def add_client_relist(self, seen: ClientRecord) -> None:
        self.backlog.write(partial(self._store.clients.add_relist, seen), None)

    def set_code_sessions(self, client: str, sessions: int) -> None:
        self.backlog.write(partial(self._store.clients.set_code_sessions, client, sessions), None)

    def spend_code_session(self, client: str) -> None:
        self.backlog.write(partial(self._store.clients.spend_code_session, client), None)

    def add_prompt(self, prompt: Prompt) -> None:
        self.backlog.write(partial(self._store.tasks.add_prompt, prompt), None)

    def hand_over(self, prompt: Prompt, session: str) -> None:
        """Record that the user of a session wrote a prompt that is on record as nobody's."""
        self.backlog.write(partial(self._store.tasks.hand_over, prompt, session), None)

    def add_flows(self, seen: Mapping[FlowKey, int]) -> None:
        self.backlog.write(partial(self._store.flows.add, seen, self._clock()), None)

    def save_working_set(self, working_set: WorkingSet) -> bool:
        """Return False if another proxy was first. A refused one is not kept: the next epoch brings another."""
        return self._asked(partial(self._store.serving.save_working_set, working_set), True)

    # -- what is remembered

    def exposed(self, id: int) -> Exposure | None:
        """Return the exposure with this id: a list as a client got it. None if it is not on record."""
        return self._asked(partial(self._store.sessions.exposure, id), None)

    def exposures(self, session: str) -> list[Exposure]:
        return self._asked(partial(self._store.sessions.exposures, session), [])

    def recent_sessions(self, most: int) -> list[SessionRecord]:
        """Return the latest sessions, the latest first."""
        return self._asked(partial(self._store.sessions.recent, most), [])

    def latest_prompt(self, since: float, until: float) -> Prompt | None:
        """Return the latest prompt of this time, None if there is none."""
        found: list[Prompt] = self._asked(partial(self._store.tasks.prompts, since, 1, until), [])
        return found[0] if found else None

    def missed_with(self, given: Exposure) -> set[ToolId]:
        return self._asked(partial(self._store.calls.missed_with, given), set())

    def latest_of_session(self, session: str, within_s: float) -> tuple[list[Discovery], list[Call], list[Miss]]:
        """Return what a session has searched for and called of late, and its misses of that time, the oldest first."""
        now = self._clock()
        since = now - within_s
        searches: list[Discovery] = self._asked(partial(self._store.discoveries.of_session, session, since, now), [])
        calls: list[Call] = self._asked(partial(self._store.calls.of_session, session, since, now), [])
        misses: list[Miss] = self._asked(partial(self._store.calls.misses_of, session, since), [])
        return searches, calls, misses

    def sessions_of_window(self, window: str) -> list[SessionRecord]:
        """Return the sessions of a window that are on record, the latest first."""
        return self._asked(partial(self._store.sessions.beginning_with, window), [])

    def client(self, name: str, version: str, era: Era) -> ClientRecord | None:
        return self._asked(partial(self._store.clients.get, name, version, era), None)

    def usage(self) -> list[Usage]:
        """Return how often each tool was used, without what was recorded in the last moments."""
        return self._asked(self._count_usage, [])

    def usage_of(self, profile: str) -> list[Usage]:
        """Return how often each tool was used in one profile. Returns `usage` if there is only one profile, or if this
        one has fewer than `_ENOUGH` calls."""
        if len(self._config.now.profiles) > 1:
            own: list[Usage] = self._asked(partial(self._store.calls.counted_usage_of, profile), [])
            if sum(each.calls for each in own) >= _ENOUGH:
                return own
        return self.usage()

    def _count_usage(self) -> list[Usage]:
        self._store.calls.fold_some()
        return self._store.calls.counted_usage()

    def failing(self) -> set[ToolId]:
        return self._asked(partial(self._store.calls.failing, _JUDGED), set())

    def first_session_at(self) -> float:
        return self._asked(self._store.sessions.first_at, None) or self._clock()

    def tasks(self, limit: int, profile: str) -> list[str]:
        """Return the latest tasks in words: those of a profile where it has as many, else those of all."""
        if len(self._config.now.profiles) > 1:
            own: list[str] = self._asked(partial(self._store.tasks.latest, limit, profile), [])
            if len(own) == limit:
                return own
        return self._asked(partial(self._store.tasks.latest, limit), [])

    def working_set(self, key: str) -> WorkingSet | None:
        return self._asked(partial(self._store.serving.working_set, key), None)

    def _asked(self, question: Callable[[], T], instead: T) -> T:
        try:
            answer = question()
        except StorageError as error:
            self.backlog.failures += 1
            if not (self.backlog.is_failing or self._store.trouble or self._asks_in_vain):
                log.warning("%s", error)
            self._asks_in_vain = True
            return instead
        self._asks_in_vain = False
        return answer


def _identity(miss: Miss) -> tuple[object, ...]:
    return miss.at, miss.session, miss.tool, miss.discovery, miss.noticed


def spool_folder(store: Store) -> Path:
    """Return the folder of this machine for what belongs to a database."""
    file = local_file(store.path)
    return file.parent if file is not None else Path()
