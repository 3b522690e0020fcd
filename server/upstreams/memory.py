"""Remembers in the store what is known of upstreams: their tools from run to run, their state for `foretool status`.

`find_running` says which proxies run, by what each has on record of its upstreams; a killed one does not take
that back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.known_lists import find_known
from foretool.server.catalog.snapshot import Snapshot
from foretool.server.config.loader import LiveConfig
from foretool.server.config.servers import Server, fingerprint, likeness
from foretool.server.system.processes import is_running, machine_name
from foretool.server.upstreams.failure_memory import FailureMemory
from foretool.server.upstreams.registry import UpstreamRegistry
from foretool.server.upstreams.upstream import State, Upstream
from foretool.storage.engine import StorageError
from foretool.storage.places import ServerAddress
from foretool.storage.records import Tool, UpstreamRecord, UpstreamState
from foretool.storage.redaction import hide_shapes
from foretool.storage.steps import Steps, finish
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.server.upstreams.causes import Cause


FAILING: Final = frozenset((State.RETRYING.value, State.UNLISTED.value))
"""States in which an upstream needs somebody's help."""
_BEAT_S: Final = 30.0
"""How often a proxy says that it runs, where other machines use the same database."""
_GONE_S: Final = 180.0
"""A proxy of another machine that was silent for so long does not run any more, also if the clocks differ a little."""


class RecordedProxy(Struct, frozen=True):
    """A running proxy, or one that was killed, as its states in the store show it."""

    pid: int
    started_at: float
    is_running: bool
    upstreams: tuple[UpstreamState, ...]
    machine: str = ""
    """The other machine on which it runs; "" for this one."""


def find_proxies(states: Iterable[UpstreamState]) -> list[RecordedProxy]:
    """Return the proxies that these states belong to, the one that started first at the head."""

    here, now = machine_name(), time.time()

    def by_proxy(state: UpstreamState) -> tuple[float, str, int]:
        return state.started_at, "" if state.machine == here else state.machine, state.pid

    found = []
    for (started_at, machine, pid), group in groupby(sorted(states, key=by_proxy), by_proxy):
        own = tuple(group)
        runs = now - max(each.seen_at for each in own) < _GONE_S if machine else is_running(pid, started_at)
        found.append(RecordedProxy(pid, started_at, runs, own, machine))
    return found


def find_running(states: Iterable[UpstreamState]) -> list[RecordedProxy]:
    """Return the proxies that run, the one that started first at the head."""
    return [proxy for proxy in find_proxies(states) if proxy.is_running]


def states_by_upstream(proxies: Iterable[RecordedProxy]) -> dict[str, UpstreamState]:
    """Return one state of each upstream: one that fails if there is one, else that of the last proxy."""
    found: dict[str, UpstreamState] = {}
    for proxy in proxies:
        for state in proxy.upstreams:
            known = found.get(state.upstream)
            if known is None or known.state not in FAILING or state.state in FAILING:
                found[state.upstream] = state
    return found


_SAVE_S: Final = 0.5
"""States are written at most this often."""
REFRESH_S: Final = 86_400.0
"""Tools listed longer ago than this are listed again in the background, to see whether they still hold."""

log = logging.getLogger("foretool.upstreams")


class UpstreamMemory:
    """Loads from the store what earlier runs knew of upstreams, and saves what they list now."""

    def __init__(self, store: Store, catalog: Catalog, upstreams: UpstreamRegistry, config: LiveConfig) -> None:
        self._store = store
        self.failures = FailureMemory(store, upstreams)
        self._catalog = catalog
        self._upstreams = upstreams
        self._config = config
        self.started_at = time.time()
        self._machine = machine_name()
        self._beat_at = time.monotonic()
        self._fingerprints: dict[str, str] = {}
        self._known_as: dict[str, str] = {}
        """Under which fingerprint the store has what is known of each server: that of an earlier entry, until the
        present one has listed its tools."""
        self._listed_at: dict[str, float] = {}
        self._records: dict[str, UpstreamRecord] = {}
        """What the store has, or is to have, about each upstream."""
        self._changed: set[str] = set()
        """Upstreams whose state is to be written."""
        self._unsaved: set[str] = set()
        """Upstreams whose tools the store has refused."""
        self._sized: Snapshot | None = None
        """The state of the catalog of which the store has the size."""
        self._timer: asyncio.TimerHandle | None = None

    def load(self, servers: Sequence[Server]) -> dict[str, UpstreamRecord]:
        """Take what the store knows of these servers into catalog and registry; return the records by name. A store
        that cannot be read knows none. What an earlier entry of a server listed that ran the same counts as listed too
        long ago."""
        own = {server.name: fingerprint(server) for server in servers}
        self._fingerprints |= own
        self._known_as |= own
        self.failures.load(servers)
        known: list[tuple[UpstreamRecord, list[Tool]]] = []
        with contextlib.suppress(StorageError):
            found = find_known(self._store, servers)
            known = self._store.catalog.load(list(found.items()))
            self._known_as |= found
        for record, tools in known:
            self._catalog.load(record.name, tools, record.instructions)
            self._upstreams.remember(record.name, json.loads(record.capabilities or "{}"), len(tools))
            self._listed_at[record.name] = record.listed_at if record.fingerprint == own[record.name] else 0.0
            self._records[record.name] = record
        self._catalog.settle()
        return {record.name: record for record, _ in known}

    def take_up(self, names: Iterable[str]) -> None:
        """Load the tools of these servers from the store again, because somebody has decided about them."""
        keys = [(name, self._known_as[name]) for name in names if name in self._known_as]
        for record, tools in self._store.catalog.load(keys):
            self._catalog.load(record.name, tools, record.instructions)
        self._catalog.settle()

    def take_up_listed(self) -> list[str]:
        """Add to the catalog what other proxies have listed since; return the names of these servers. May raise
        `StorageError`."""
        stale = [name for name in self._fingerprints if self.is_stale(name)]
        found = []
        for record, tools in self._store.catalog.load([(name, self._fingerprints[name]) for name in stale]):
            if record.listed_at > self._listed_at.get(record.name, 0.0):
                self._catalog.load(record.name, tools, record.instructions)
                self._listed_at[record.name] = record.listed_at
                self._records[record.name] = record
                self._known_as[record.name] = record.fingerprint
                found.append(record.name)
        if found:
            self._catalog.settle()
        return found

    def is_stale(self, name: str) -> bool:
        """Return whether the tools of an upstream were listed too long ago."""
        now = time.time()
        return now - self._listed_at.get(name, now) > REFRESH_S

    def note_size(self) -> Steps[None]:
        """Record how many tokens all tools take, in steps, if that may have changed. May raise `StorageError`."""
        now = self._catalog.now
        if now is self._sized:
            return
        tokens = 0
        for name in now.servers:
            yield
            tokens += sum(self._catalog.tokens(tool.id) for tool in self._catalog.of(name))
        if tokens:
            self._store.costs.add_size(time.time(), tokens)
        self._sized = now

    # -- what upstreams tell

    def save_tools(self, upstream: Upstream, served_at: float) -> Steps[None]:
        """Keep what is known of an upstream that has listed its tools, in steps. `served_at`: since when lists may have
        these; a list that is made while they are saved is no older than they are."""
        if upstream.name not in self._config.now.servers:
            return
        info = upstream.server_info
        capabilities = json.dumps(info.capabilities).encode()
        record = UpstreamRecord(
            name=upstream.name,
            fingerprint=self._fingerprints[upstream.name],
            era=upstream.lines.spoken_era(),
            server_info=json.dumps(info.implementation),
            instructions=self._catalog.texts.instructions(upstream.name),
            # Not word by word: a value of the config may be the name of a capability.
            capabilities=hide_shapes(self._config.now.secrets.hide_credentials(capabilities).decode()),
            listed_at=served_at,
            lacks=upstream.lines.spoken_era(lacking=True),
            likeness=likeness(self._config.now.servers[upstream.name]),
        )
        self._known_as[upstream.name] = record.fingerprint
        self._listed_at[upstream.name] = record.listed_at
        self._records[upstream.name] = record
        self.failures.clear(upstream.name)
        try:
            yield from self._save_listed(record)
        except StorageError:
            self._unsaved.add(upstream.name)

    def save_refused(self) -> Steps[None]:
        """Save what the store has refused, in steps. May raise `StorageError`."""
        for name in tuple(self._unsaved):
            if self._upstreams.get(name) is not None and (record := self._records.get(name)) is not None:
                yield from self._save_listed(record)
            self._unsaved.discard(name)
        if self._changed and self._timer is None:
            self._write_states()

    def _save_listed(self, record: UpstreamRecord) -> Steps[None]:
        yield from self._store.catalog.save_upstream(record, self._catalog.listed(record.name))

    def save_all(self) -> None:
        """Bring a store that was away, or is another one now, up to date. May raise `StorageError`."""
        for upstream in self._upstreams:
            if (record := self._records.get(upstream.name)) is not None:
                finish(self._save_listed(replace(record, instructions=self._catalog.texts.instructions(upstream.name))))
            self.save_state(upstream)

    def save_state(self, upstream: Upstream) -> None:
        self._changed.add(upstream.name)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SAVE_S, self._write_states)

    def _write_states(self) -> None:
        self._timer = None
        names, self._changed = self._changed, set()
        try:
            with self._store.atomic():
                for name in names:
                    if (upstream := self._upstreams.get(name)) is not None:
                        self._store.serving.save_state(self._describe(upstream))
                self.failures.write()
        except StorageError:
            self._changed |= names  # written by `save_refused`

    def _describe(self, upstream: Upstream) -> UpstreamState:
        redact = self._config.redact
        problems = "; ".join(self._catalog.problems_of(upstream.name))
        cause = self.explain(upstream)
        # One that rests after a failure in an earlier run is as down as one that has failed in this one.
        failure = self._upstreams.failure(upstream.name) if upstream.state is State.KNOWN else None
        return UpstreamState(
            pid=os.getpid(),
            started_at=self.started_at,
            upstream=upstream.name,
            state=(State.RETRYING if failure else upstream.state).value,
            since=upstream.since,
            era=upstream.lines.spoken_era(),
            tools=len(self._catalog.listed(upstream.name)),
            restarts=max(upstream.starts - 1, 0),
            skipped_lines=upstream.invalid_lines,
            last_error=redact(cause.line if cause else failure.reason if failure else problems),
            stderr=tuple(redact(line) for line in upstream.stderr),
            machine=self._machine,
            seen_at=time.time(),
        )

    def note_failure(self, upstream: Upstream) -> Cause | None:
        """Return why a server fails, and record it, unless the server may recover at once or only one person's
        connection fails."""
        cause = self.explain(upstream)
        fails = upstream.has_failed or upstream.state is State.UNLISTED
        if cause is not None and fails and not upstream.is_personal:
            self.failures.note(upstream.name, cause)
        return cause

    def explain(self, upstream: Upstream) -> Cause | None:
        """Return why a server fails, in words without secrets; None while it does not."""
        server = self._config.now.servers.get(upstream.name)
        if not upstream.error or server is None:
            return None
        from foretool.server.upstreams.failures import explain_failure  # only a server that fails needs it

        stderr = [self._config.redact(line) for line in upstream.stderr]
        return explain_failure(server, upstream.error, stderr, skipped_lines=upstream.invalid_lines)

    # -- states of this and other proxies

    def open(self) -> None:
        """Delete the states of a dead process that had our process id."""
        with contextlib.suppress(StorageError):
            self._store.serving.clear_states(os.getpid(), machine=self._machine)

    def close(self) -> None:
        """Delete the states of this proxy, which ends."""
        if self._timer is not None:
            self._timer.cancel()
        with contextlib.suppress(StorageError):
            self._store.serving.clear_states(os.getpid(), machine=self._machine)

    def beat(self) -> None:
        """Tell other machines, now and then, that this proxy runs."""
        now = time.monotonic()
        if isinstance(self._store.path, ServerAddress) and now - self._beat_at >= _BEAT_S:
            self._beat_at = now
            with contextlib.suppress(StorageError):
                self._store.serving.note_seen(self._machine, os.getpid(), time.time())

    def forget_upstream(self, name: str) -> None:
        """Delete our state of an upstream that the config no longer has."""
        with contextlib.suppress(StorageError):
            self._store.serving.clear_states(os.getpid(), name, machine=self._machine)

    def forget_dead(self) -> None:
        """Delete the states of proxies that were killed."""
        with contextlib.suppress(StorageError):
            for proxy in find_proxies(self._store.serving.states()):
                if not proxy.is_running:
                    machine = proxy.upstreams[0].machine
                    self._store.serving.clear_states(proxy.pid, started_at=proxy.started_at, machine=machine)
