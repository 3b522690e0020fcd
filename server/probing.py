"""Starts servers once for a command, asks them for their tools, and keeps what they list.

What is kept passes the approvals of the store as it does in a proxy. No client is told of anything.

`prepare_meaning` prepares the search by meaning once tools were listed, for commands that have a progress bar. A proxy
does the same in the background, so whatever goes wrong here is tried again there.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from foretool.server.app import App
from foretool.server.catalog import models
from foretool.server.catalog.embedding import OnEmbedded
from foretool.server.config.codes import Code
from foretool.server.config.loader import Config, Profile
from foretool.server.config.servers import Server
from foretool.server.protocol import jsonrpc, translate
from foretool.server.protocol.jsonrpc import Message, Raw
from foretool.server.protocol.lists import ListKind
from foretool.server.setup.launches import starts_foretool
from foretool.server.system import interrupts
from foretool.server.transports.upstream.loading import LOADING_S, LOOK_S, Loading, is_launcher
from foretool.server.transports.upstream.stdio import ChildWatcher
from foretool.server.upstreams.connection import Request, answer_error
from foretool.server.upstreams.launcher import link_opener, make_bearer, message_limit
from foretool.server.upstreams.upstream import State, Upstream
from foretool.storage.engine import StorageError
from foretool.storage.opening import open_existing_store, open_store
from foretool.storage.records import Era, Failure

if TYPE_CHECKING:
    from foretool.server.upstreams.causes import Cause


def prepare_meaning(config: Config, on_embedded: OnEmbedded) -> str:
    """Embed the tools that the store knows and has no vector of. Returns what went wrong, in words; "" for nothing.
    Raises `StorageError`."""
    with open_store(config.storage) as store:
        app = App(config, store)
        models.install_wordings(app.search, store)
        interrupts.run(app.known.embedding.embed_all(on_embedded))
        return app.known.embedding.problem


_STOP_S: Final = 15.0
"""How long a child that ignores closed input and SIGTERM may take to end, with time to spare."""
_FIRST_RUN_S: Final = 15.0
"""A server that has just been downloaded has at least so long: none of it was ever read from the disk or compiled."""

_AT_ONCE: Final = max(2, min(4, os.cpu_count() or 1))
"""Servers that start at a time: 14 at once on two cores made half of the failures that were not true."""
_IDLE_S: Final = 3.0
"""A start whose processes have not worked for so long gives its place to the next: one that only waits slows nobody."""
_ALONE_S: Final = 10.0
"""A server that did not answer in time, and beside which no start worked for so long, is not slowed by any: another
start would take as long."""
_AGAIN_S: Final = 1.0
"""How long a search waits for servers that have failed before and are due again; a doctor and a proxy give them more.
Those that were silent are left to these, and launchers as well: a download that is broken off harms."""
STILL_LOADING: Final = "was still downloading"
"""Part of the error of a server whose download did not end in time."""
Stage = Literal["started", "silent", "loading", "again", "ended"]
"""What happens to one server: it was started, it only waits and has not answered, its launcher loads for longer than a
start may take, it is started once more, or its probe has ended."""
OnProgress = Callable[[str, Stage], None]
"""Receives the name of a server and what happens to it."""


def ignore(name: str, stage: Stage) -> None:
    """Take progress that nobody watches."""


class Probe:
    """Starts one upstream outside a proxy and notes what it lists, or why it failed."""

    def __init__(self, server: Server, limit: int, watcher: ChildWatcher, config: Path) -> None:
        bearer = make_bearer(server, config)
        opener = link_opener(server, limit, watcher, authorizer=bearer)
        self.server = server
        self.upstream = Upstream(
            server.name, self, opener, server.entry.timeout_s, server.secrets.redact,
            capabilities=lambda era: translate.ANY_CLIENT, bearer=bearer,
        )  # fmt: skip
        self.definitions: Sequence[Raw] | None = None
        """Its tools; None while they are not known."""
        self.error = ""
        self.not_kept = ""
        """Why the storage file did not take what it listed, or how it failed."""
        self.starts = 1
        """How often the server was started: twice if it failed beside others."""
        self.rests = asyncio.Event()
        """Set once its processes only wait, or it has ended."""
        self.worked_at = 0.0
        """When its processes were last seen at work, or it answered."""
        self.late_at = 0.0
        """When it was given up because it did not answer in time; 0 if it was not."""
        self.ready_s = self.listed_s = self._started = self._patience_s = 0.0
        self._settled = asyncio.Event()
        """Set once its tools are known or it has failed."""

    @property
    def lists_none(self) -> bool:
        """Whether it works, declares tools and lists none."""
        return not self.error and not self.definitions and "tools" in self.upstream.server_info.capabilities

    @property
    def cause(self) -> Cause | None:
        """Why it failed, if a pattern fits."""
        if not self.error:
            return None
        from foretool.server.upstreams.causes import find_cause  # its patterns take 5 ms, which no search needs

        return find_cause(self.upstream.stderr, self.error)

    @property
    def may_be_retried(self) -> bool:
        """Whether another start may end better: a program that is missing is not found at the second try."""
        final = ("was not found", STILL_LOADING)
        if not self.error or self.server.type != "stdio" or any(words in self.error for words in final):
            return False
        return (cause := self.cause) is None or not cause.certain

    @property
    def failure(self) -> Cause | None:
        """What is to be remembered against the server; None where it works, was still being downloaded, or serves each
        person alone."""
        if not self.error or STILL_LOADING in self.error or self.server.per_user is not None:
            return None
        return self.explain()

    def explain(self) -> Cause:
        """Return what is wrong with a server that failed, and what to do, without secrets."""
        from foretool.server.upstreams.failures import explain_failure

        lines = self.upstream.invalid_lines
        error = self.server.secrets.redact(self.error)
        return explain_failure(self.server, error, self.stderr, skipped_lines=lines, timeout_s=self._patience_s)

    @property
    def stderr(self) -> tuple[str, ...]:
        """What its processes wrote last, without secrets."""
        return tuple(map(self.server.secrets.redact, self.upstream.stderr))

    async def run(self, timeout_s: float, on_progress: OnProgress = ignore, *, may_load: bool = True) -> None:
        """Start the upstream, wait for its tools, and end it. The time in which a launcher downloads it does not count,
        if it `may_load`."""
        self._started, self._patience_s = time.perf_counter(), timeout_s
        self.worked_at = time.monotonic()
        on_progress(self.server.name, "started")
        running = asyncio.create_task(self.upstream.run())
        watching = asyncio.create_task(self._watch_work(on_progress))
        self.upstream.start("legacy")
        try:
            is_settled = await self._settles_within(timeout_s)
            if not is_settled and may_load:
                is_settled = await self._outlasts_download(timeout_s, on_progress)
            if is_settled:
                self.worked_at = time.monotonic()
            else:
                self.error, self.late_at = self._say_late(), time.monotonic()
        finally:
            self._settled.set()  # what it says while it is being ended is not a finding
            watching.cancel()
            with suppress(TimeoutError):
                async with asyncio.timeout(_STOP_S):
                    await self.upstream.stop()
            running.cancel()
            await asyncio.gather(running, watching, return_exceptions=True)
            self.rests.set()

    async def _watch_work(self, on_progress: OnProgress) -> None:
        """Look again and again whether its processes work, until this is cancelled."""
        trees: dict[int, Loading] = {}
        while True:
            await asyncio.sleep(LOOK_S)
            for pid in self.upstream.pids:
                tree = trees.setdefault(pid, Loading(pid))
                await tree.look()
                self.worked_at = max(self.worked_at, tree.worked_at)
            if not self.rests.is_set() and time.monotonic() - self.worked_at > _IDLE_S:
                self.rests.set()
                on_progress(self.server.name, "silent")

    @property
    def _took_s(self) -> float:
        return time.perf_counter() - self._started

    async def _settles_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._settled.wait()
        return self._settled.is_set()

    async def _outlasts_download(self, timeout_s: float, on_progress: OnProgress) -> bool:
        """Wait while a launcher loads, and then for as long as a start may take."""
        was_loading = False
        while self.upstream.is_loading:
            was_loading = True
            on_progress(self.server.name, "loading")
            if await self._settles_within(LOOK_S):
                return True
        on_progress(self.server.name, "started")
        if not was_loading or self._took_s > LOADING_S:
            return False
        self._patience_s = max(timeout_s, _FIRST_RUN_S)
        return await self._settles_within(self._patience_s)

    def _say_late(self) -> str:
        if self.upstream.is_loading or self._took_s > LOADING_S:
            return f"{Path(self.server.command).name} {STILL_LOADING} it after {self._took_s:.0f} s"
        asked = "tools/list" if self.ready_s else "initialize"
        return f"no answer to {asked} within {self._patience_s:g} s{self.upstream.lines.noise}"

    async def on_listed(self, upstream: Upstream, kind: ListKind, tools: Sequence[Raw]) -> None:
        if not self._settled.is_set():
            self.definitions, self.listed_s = tools, self._took_s
            self._settled.set()

    def on_unlisted(self, upstream: Upstream, kind: ListKind, reason: str) -> None:
        pass  # tools alone are asked for

    def on_state(self, upstream: Upstream) -> None:
        if self._settled.is_set():
            return
        if upstream.state is State.READY and not self.ready_s:
            self.ready_s = self._took_s
        if upstream.error:
            self.error = upstream.error
            self._settled.set()

    def on_notification(self, upstream: Upstream, message: Message, era: Era) -> None:
        pass

    def on_request(
        self, upstream: Upstream, message: Message, request: Request | None, answer: Callable[[Message], None]
    ) -> None:
        ident = message.id if isinstance(message.id, int | str) else None
        answer(answer_error(ident, jsonrpc.METHOD_NOT_FOUND, "foretool doctor answers no requests"))


async def probe_all(
    servers: Sequence[Server],
    limit: int,
    timeout_s: float,
    config: Path,
    on_progress: OnProgress = ignore,
    on_end: Callable[[Probe], None] = lambda probe: None,
    *,
    may_load: bool = True,
    may_repeat: bool = True,
) -> list[Probe]:
    """Start servers, a few at a time, for at most `timeout_s` each; all have ended on return. Those that failed beside
    others are started once more, if they `may_repeat`: a crowd makes servers slow and takes ports. Those that only
    waited are so at the same time, each of the others alone. `limit`: bytes of a message. `config`: the file that names
    the servers. `on_end` hears what each did in the end, at once. `may_load`: the time of a download does not count."""
    watcher = ChildWatcher()
    places = asyncio.Semaphore(_AT_ONCE)
    crowd = len(servers) > 1 and may_repeat
    first: list[Probe] = []
    probes: dict[str, Probe] = {}

    async def start(probe: Probe, on_progress: OnProgress) -> None:
        # A server elsewhere takes nothing of this machine.
        async with asyncio.TaskGroup() as running, nullcontext() if probe.server.type != "stdio" else places:
            running.create_task(probe.run(timeout_s, on_progress, may_load=may_load))
            await probe.rests.wait()

    def end(probe: Probe) -> None:
        probes[probe.server.name] = probe
        on_end(probe)
        on_progress(probe.server.name, "ended")

    async def start_first(server: Server) -> None:
        first.append(probe := Probe(server, limit, watcher, config))
        await start(probe, on_progress)
        if not (crowd and probe.may_be_retried) or (probe.late_at and not _seen_at_work(first, probe.late_at)):
            end(probe)

    async def start_again(server: Server) -> None:
        on_progress(server.name, "again")
        probe = Probe(server, limit, watcher, config)
        probe.starts = 2
        await start(probe, ignore)
        end(probe)

    try:
        async with asyncio.TaskGroup() as group:
            for server in sorted(servers, key=_is_quick):
                group.create_task(start_first(server))
        failed = [probe for probe in first if probe.server.name not in probes]
        waited = [probe for probe in failed if probe.late_at and not _seen_at_work([probe], probe.late_at)]
        async with asyncio.TaskGroup() as group:
            for probe in waited:
                group.create_task(start_again(probe.server))
        for probe in failed:
            if probe not in waited:
                await start_again(probe.server)
    finally:
        watcher.close()
    return [probes[server.name] for server in servers]


def _seen_at_work(probes: Iterable[Probe], until: float) -> bool:
    """Return whether the processes of one of these worked in the last `_ALONE_S` before a time."""
    return any(until - probe.worked_at < _ALONE_S for probe in probes)


def _is_quick(server: Server) -> bool:
    """Return whether a start takes no download; the others begin first, because they take longest."""
    return not is_launcher(server.command, server.args)


def probe_servers(
    config: Config,
    servers: Sequence[Server],
    timeout_s: float,
    on_progress: OnProgress = ignore,
    *,
    keeps: bool = True,
    may_load: bool = True,
    may_repeat: bool = True,
) -> list[Probe]:
    """Start servers of a config, for at most `timeout_s` each, and once more where they failed beside others, if they
    `may_repeat`. With `keeps`, keep what each lists or why it failed as soon as that is known, in the storage file,
    which is made if it is missing; `not_kept` says why one cannot be used. `may_load`: the time of a download does
    not count."""

    def keep(probe: Probe) -> None:
        if keeps:
            try:
                keep_found(config, probe)
            except StorageError as error:
                probe.not_kept = str(error)

    return interrupts.run(
        probe_all(
            servers, message_limit(config), timeout_s, config.path, on_progress, keep, may_load=may_load,
            may_repeat=may_repeat,
        )
    )  # fmt: skip


def list_unknown(
    config: Config, profile: Profile, timeout_s: float, on_start: Callable[[list[str]], None]
) -> list[str]:
    """Start the servers of a profile whose tools the store does not know, and keep what they list. One that is known to
    fail is left alone until it is due again, and then gets `_AGAIN_S` at most. `on_start` hears their names first.
    Returns the names of those whose tools are not known after that. Raises `StorageError`."""
    with open_existing_store(config.storage) as store:
        upstreams = App(config, store).upstreams
        names = [each.name for each in upstreams.admitted(profile) if each.name in upstreams.unlisted()]
        failures = {name: upstreams.failure(name) for name in names if not is_foretool(config.servers[name])}

    def is_due(server: Server, failure: Failure | None) -> bool:
        if failure is None:
            return True
        return failure.due_at <= time.time() and failure.code != Code.SERVER_SLOW and _is_quick(server)

    due = [name for name, failure in failures.items() if is_due(config.servers[name], failure)]
    if not due:
        return list(failures)
    on_start(due)
    is_new = any(failures[name] is None for name in due)
    probes = probe_servers(
        config, [config.servers[name] for name in due], timeout_s if is_new else min(timeout_s, _AGAIN_S),
        may_load=False, may_repeat=is_new,
    )  # fmt: skip
    listed = {probe.server.name for probe in probes if probe.definitions is not None}
    return [name for name in failures if name not in listed]


def keep_found(config: Config, probe: Probe) -> None:
    """Keep what a server has listed, as far as it is approved, or why it cannot be used. Raises `StorageError`."""
    cause = probe.failure
    if cause is None and probe.definitions is None:
        return
    with open_store(config.storage) as store:
        app = App(config, store)
        if probe.definitions is not None:
            app.keep_listed(probe.upstream, probe.definitions)
        if cause is not None:
            app.memory.failures.note(probe.server.name, cause)
        app.memory.failures.write()


def is_foretool(server: Server) -> bool:
    """Return whether the command line of a server starts foretool."""
    return starts_foretool({"command": server.command, "args": server.args})
