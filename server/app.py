"""Builds everything once and keeps it running: the only file that knows all parts.

One event loop, one store, one task per upstream, one housekeeping task. `serve_stdio` and `serve_http` return when the
client has gone or the process is asked to end, with every upstream ended and every record written.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final

from foretool.retrieval.tokens import estimate
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.embedding import Embedder
from foretool.server.catalog.models import ModelLoader, read_base, read_prior
from foretool.server.catalog.search import Search
from foretool.server.clients.exposure import Exposures
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config, diff, host_and_port, load, stamp
from foretool.server.config.servers import Server, fingerprint, same_connection
from foretool.server.learning.schedule import Schedule
from foretool.server.methods.prompt_hook import Prompts
from foretool.server.protocol import jsonrpc
from foretool.server.proxy import Proxy
from foretool.server.recording.calibration import Assurance
from foretool.server.recording.recorder import Recorder
from foretool.server.system import logs
from foretool.server.system.malloc import TRIM_S, trim_heap
from foretool.server.system.processes import is_running
from foretool.server.transports.client.stdio import StdioServer
from foretool.server.transports.pipes import Turn
from foretool.server.transports.upstream.base import Link, Receiver
from foretool.server.transports.upstream.stdio import ChildWatcher, open_stdio
from foretool.server.upstreams.upstream import OpenLink, State, Upstream
from foretool.storage.opening import open_store
from foretool.storage.records import Era, Tool, ToolId, UpstreamRecord, UpstreamState
from foretool.storage.stores import StorageError, Store

REFRESH_S: Final = 86_400.0
"""An upstream whose tools were last listed longer ago is started in the background, to see whether they still hold."""

REFRESH_AFTER_S: Final = 2.0
"""How long after the first client such refreshes begin: not while it waits for its first answers."""

COUNTED_AT_ONCE: Final = 2000
"""Tools whose tokens are counted in one go: what is sent to the counter is put together on the loop, in some 40 ms."""

TICK_S: Final = 1.0
GRACE_S: Final = 2.0
"""A client that closes our input still gets the answers that come within this time."""

SAVE_S: Final = 0.5
"""Upstream states are written for `foretool status` at most this often."""

log = logging.getLogger("foretool.app")


class App:
    """See the module."""

    def __init__(self, config: Config, store: Store) -> None:
        self.config = config
        self.store = store
        self.flows = store.flows
        self.assurance = Assurance(store)
        self.recorder = Recorder(store)
        entries = list(config.servers.values())
        kept = {key: tool for tool, key in store.catalog.exposed_names().items()}
        self.catalog = Catalog(entries, kept, self._keep_names)
        self.search = Search(self.catalog, self.recorder.usage, time.time)
        self.exposures = Exposures(
            self.catalog,
            self.search.rank_for_list,
            self.recorder,
            config.settings.pin,
            config.settings.epoch_s,
            time.time,
        )
        self.proxy = Proxy(config, self.catalog, self.search, self.exposures, self.recorder, self)
        self.embedding = Embedder(config.settings, self.catalog, store, self.search)
        self.models = ModelLoader(self.search, store, self._learned)
        self.schedule = Schedule(store, config.path)
        self.prompts = Prompts(self.proxy, store, time.time)
        self.exposures.prior = lambda: read_prior(store)
        self.exposures.base = lambda: read_base(store)
        self.started_at = time.time()
        self._watcher = ChildWatcher()
        self._fingerprints: dict[str, str] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._dirty_states: set[str] = set()
        self._unsaved_names: dict[ToolId, tuple[str, str]] = {}
        self._saving: asyncio.TimerHandle | None = None
        self._listed_at: dict[str, float] = {}
        self._counting = False
        self._gave_back_at = time.monotonic()
        self._stamp = config.stamp
        self._load(entries)

    def _load(self, entries: Sequence[Server]) -> None:
        """Take in what the store remembers of these servers, and make their upstreams."""
        self._fingerprints |= {server.name: fingerprint(server) for server in entries}
        known = self.store.catalog.load([(server.name, self._fingerprints[server.name]) for server in entries])
        remembered = {record.name: record for record, _ in known}
        for record, tools in known:
            self.catalog.load(record.name, tools, record.instructions)
            self.proxy.capabilities_known[record.name] = json.loads(record.capabilities or "{}")
            self._listed_at[record.name] = record.listed_at
        self.catalog.settle()
        for server in entries:
            upstream = self._upstream(server)
            if (found := remembered.get(server.name)) is not None:
                upstream.speaks = {era: True for era in (found.era,) if era} | {
                    era: False for era in (found.lacks,) if era
                }
            self.proxy.upstreams[server.name] = upstream
        self.proxy.upstreams = {name: self.proxy.upstreams[name] for name in self.config.servers}
        self.proxy.known([record.name for record, _ in known])

    def _upstream(self, server: Server) -> Upstream:
        opener = link_opener(server, message_limit(self.config), self._watcher, self.proxy.turn)
        proxy = self.proxy
        return Upstream(
            server.name, proxy, opener, server.timeout_s, server.secrets.redact, capabilities=proxy.capabilities
        )

    def yield_to(self, has_unread_output: Callable[[], bool]) -> None:
        """Start no upstream while the client on stdio has not read its answers."""
        self._watcher.has_unread_output = has_unread_output

    # -- running

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Upstreams and housekeeping, until the block ends; then everything is ended in order."""
        self.store.serving.clear_states(os.getpid())
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            for upstream in self.proxy.upstreams.values():
                tasks.create_task(upstream.run())
                self.state_changed(upstream)  # so that those not started yet are shown as well
            keeper = tasks.create_task(self._housekeeping())
            reader = tasks.create_task(self.prompts.watch())
            try:
                yield
            finally:
                keeper.cancel()
                reader.cancel()
                await self._stop()

    async def _stop(self) -> None:
        await self.search.stop()
        await self.embedding.stop()
        await self.schedule.stop()
        await self.models.stop()
        await self.assurance.finished()
        await asyncio.gather(*(upstream.stop() for upstream in self.proxy.upstreams.values()))
        self.proxy.outbox.flush()
        self.recorder.retry()
        self._save_names()
        self._watcher.close()
        if self._saving is not None:
            self._saving.cancel()
        with contextlib.suppress(StorageError):
            self.store.serving.clear_states(os.getpid())

    def _forget_the_dead(self) -> None:
        """Proxies that were killed could not take their last words back."""
        with contextlib.suppress(StorageError):
            for pid, started_at in {(state.pid, state.started_at) for state in self.store.serving.states()}:
                if not is_running(pid, started_at):
                    self.store.serving.clear_states(pid, started_at=started_at)

    async def _housekeeping(self) -> None:
        await asyncio.sleep(TICK_S)
        self._forget_the_dead()
        while True:
            self.proxy.tick()
            self._save_names()
            is_indexed = await self.search.index(TICK_S)
            while self.proxy.flows.look():
                await asyncio.sleep(0)
            self._keep_flows()
            self.assurance.tick()
            self.search.install_calibration(self.assurance.calibrate)
            if is_indexed:
                self.embedding.tick()
            self.models.tick(has_listed=bool(self.exposures.views()))
            self.schedule.tick(self.config.settings.learn_s)
            await self._reload_if_changed()
            self._refresh_stale()
            self._give_back_memory()
            if self.store.is_checkpoint_due:
                # In a thread: a checkpoint writes megabytes, and no call should wait for that.
                await asyncio.to_thread(self.store.checkpoint)
            if (self.catalog.find_uncounted() or self.proxy.uncounted_fragments()) and not self._counting:
                await self._count_tokens()
            await asyncio.sleep(TICK_S)

    def _learned(self) -> None:
        """Other models serve than before, or a learning run has ended: lists begin a new epoch."""
        self.exposures.forget()
        self.proxy.announce_soon()

    def _keep_flows(self) -> None:
        if seen := self.proxy.flows.fetch():
            # What the store refuses is not tried again: a flow that matters is seen again.
            with contextlib.suppress(StorageError):
                self.flows.add(seen, time.time())

    def _give_back_memory(self) -> None:
        if time.monotonic() - self._gave_back_at > TRIM_S:
            self._gave_back_at = time.monotonic()
            trim_heap()

    def _refresh_stale(self) -> None:
        now = time.time()
        if not self.proxy.clients or now - self.started_at < REFRESH_AFTER_S:
            return
        for name, upstream in self.proxy.upstreams.items():
            if upstream.state is State.KNOWN and now - self._listed_at.get(name, now) > REFRESH_S:
                upstream.start(self.proxy.clients[0].era)

    async def _count_tokens(self) -> None:
        """Have a short-lived process count the tokens of new definitions: the tokenizer is too big to keep."""
        self._counting = True
        tools, fragments = self.catalog.find_uncounted()[:COUNTED_AT_ONCE], self.proxy.uncounted_fragments()
        texts = [bytes(self.catalog.definition(tool)).decode() for tool in tools] + list(fragments.values())
        lines = b"".join(json.dumps(text).encode() + b"\n" for text in texts)
        try:
            command = (sys.executable, "-m", "foretool.server.catalog.count_worker")
            pipe = asyncio.subprocess.PIPE
            counter = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
            output, _ = await counter.communicate(lines)
            counts = [int(line) for line in output.split()]
        except (OSError, ValueError, RuntimeError) as error:
            log.warning("tokens are estimated: the counter did not run (%s)", type(error).__name__)
            counts = [estimate(text) for text in texts]
        tokens = {tool.schema_hash: count for tool, count in zip(tools, counts, strict=False)}
        if fragments:
            self.proxy.instructions.count(dict(zip(fragments, counts[len(tools) :], strict=False)))
        self.catalog.set_token_counts(tokens)
        with contextlib.suppress(StorageError):
            self.store.catalog.save_token_counts(tokens)
        self._counting = False

    # -- Watcher: news of upstreams

    def tools_changed(self, upstream: Upstream) -> None:
        server = self.config.servers.get(upstream.name)
        if server is None:
            return
        server_info = upstream.server_info
        spoken: list[Era] = [era for era, does in upstream.speaks.items() if does]
        lacking: list[Era] = [era for era, does in upstream.speaks.items() if not does]
        record = UpstreamRecord(
            name=upstream.name,
            fingerprint=self._fingerprints[upstream.name],
            era=spoken[-1] if spoken else None,
            server_info=json.dumps(server_info.implementation),
            instructions=server_info.instructions,
            capabilities=json.dumps(server_info.capabilities),
            listed_at=time.time(),
            lacks=lacking[-1] if lacking else None,
        )
        self._listed_at[upstream.name] = record.listed_at
        tools: list[Tool] = self.catalog.of(upstream.name)
        try:
            with self.store.atomic():
                self.store.catalog.save_upstream(record, tools)
        except StorageError as error:
            log.warning("%s; the tools of %r are not remembered this time", error, upstream.name)
        self.state_changed(upstream)

    def _keep_names(self, names: Mapping[ToolId, tuple[str, str]]) -> None:
        self._unsaved_names.update(names)
        asyncio.get_running_loop().call_soon(self._save_names)  # after the answer that waits for us

    def _save_names(self) -> None:
        if self._unsaved_names:
            with contextlib.suppress(StorageError):  # tried again about once a second
                self.store.catalog.save_exposed_names(self._unsaved_names)
                self._unsaved_names.clear()

    def state_changed(self, upstream: Upstream) -> None:
        self._dirty_states.add(upstream.name)
        if self._saving is None:
            self._saving = asyncio.get_running_loop().call_later(SAVE_S, self._save_states)

    def _save_states(self) -> None:
        self._saving = None
        names, self._dirty_states = self._dirty_states, set()
        try:
            with self.store.atomic():
                for name in names:
                    if (upstream := self.proxy.upstreams.get(name)) is not None:
                        self.store.serving.save_state(self._state(upstream))
        except StorageError:
            self._dirty_states |= names  # written with the next change

    def _state(self, upstream: Upstream) -> UpstreamState:
        redact = self.config.redact
        spoken = [era for era, does in upstream.speaks.items() if does]
        problems = "; ".join(self.catalog.problems.get(upstream.name, ()))
        return UpstreamState(
            pid=os.getpid(),
            started_at=self.started_at,
            upstream=upstream.name,
            state=upstream.state.value,
            since=upstream.since,
            era=spoken[-1] if spoken else None,
            tools=len(self.catalog.of(upstream.name)),
            restarts=max(upstream.starts - 1, 0),
            skipped_lines=upstream.invalid_lines,
            last_error=redact(upstream.error or problems),
            stderr=tuple(redact(line) for line in upstream.stderr),
        )

    def annotated_schema(self, profile: str, tool: str) -> Any:
        """The input schema of a tool that wants arguments repeated in headers (`x-mcp-header`), else None."""
        found = self.catalog.find(tool)
        if found is None or b"x-mcp-header" not in found.definition:
            return None
        return jsonrpc.plain(jsonrpc.fields(found.definition)["inputSchema"])

    # -- config changes

    async def _reload_if_changed(self) -> None:
        now = stamp(self.config.path)
        if now is None or now == self._stamp:
            return
        self._stamp = now
        try:
            new = load(self.config.path)
        except ConfigError as error:
            log.error("%s; the config before it stays in force", error)
            return
        await self.reconfigure(new)

    async def reconfigure(self, new: Config) -> None:
        """Add, remove and restart only the servers whose entries changed."""
        changes = diff(self.config, new)
        old, self.config, self.proxy.config = self.config, new, new
        logs.reload_logging(new)
        report(new)
        if changes.settings_changed:
            self.exposures.pins, self.exposures.epoch_s = new.settings.pin, new.settings.epoch_s
            self.proxy.profiles_changed()
            self.embedding.configure(new.settings)
        restarted = [
            name
            for name in changes.changed
            if name in old.servers and name in new.servers and not same_connection(old.servers[name], new.servers[name])
        ]
        for name in (*changes.removed, *restarted):
            if (upstream := self.proxy.upstreams.pop(name, None)) is not None:
                await upstream.stop()
                with contextlib.suppress(StorageError):
                    self.store.serving.clear_states(os.getpid(), name)
        for name in set(changes.changed) - set(restarted):
            if (kept := self.proxy.upstreams.get(name)) is not None:
                kept.timeout_s = new.servers[name].timeout_s
        self.catalog.configure(list(new.servers.values()))
        added = [new.servers[name] for name in (*changes.added, *restarted) if name in new.servers]
        self._load(added)
        for server in added:
            upstream = self.proxy.upstreams[server.name]
            if self._tasks is not None:
                self._tasks.create_task(upstream.run())
            if self.proxy.clients:
                upstream.start(self.proxy.clients[0].era)
        for name in changes.changed:
            if name not in restarted and (kept := self.proxy.upstreams.get(name)) is not None:
                kept.relist_all()
        log.info(
            "config reloaded: %d added, %d removed, %d changed",
            len(changes.added), len(changes.removed), len(changes.changed),
        )  # fmt: skip
        self.proxy.announce_soon()


def message_limit(config: Config) -> int:
    """Bytes of one message, from either side."""
    return int(config.settings.max_message_mib * 1024 * 1024)


def link_opener(server: Server, limit: int, watcher: ChildWatcher, turn: Turn | None = None) -> OpenLink:
    """How the server is reached. `limit`: bytes of one message. `turn`: the one that all pipes of a proxy share."""

    async def opened(receiver: Receiver, era: Era) -> Link:
        if server.type == "stdio":
            return await open_stdio(server.command, server.args, server.env, server.cwd, receiver, watcher, limit, turn)
        # The HTTP client is a tenth of a second to import; only who has such an upstream waits for it.
        if server.type == "sse":
            from foretool.server.transports.upstream.sse import open_sse

            return await open_sse(server.url, server.headers, receiver, limit)
        from foretool.server.transports.upstream.http import open_http

        return await open_http(server.url, server.headers, era, receiver, limit, fall_back=server.entry.type is None)

    return opened


def report(config: Config) -> None:
    """What is wrong with single servers and what was not understood, to stderr."""
    for warning in config.warnings:
        log.warning("%s", warning)
    for problem in config.broken.values():
        log.error("%s; the other servers are served", problem)


async def serve_stdio(config: Config, profile: str = "") -> None:
    """Serve the client that started this process, until it closes our input or we are asked to end."""
    with open_store(config.storage) as store:
        app = App(config, store)
        edge = StdioServer(app.proxy, profile, message_limit(config), app.proxy.turn)
        app.yield_to(edge.has_unread_output)
        ended = asyncio.Event()
        _on_signals(ended.set)
        async with app.running():
            await edge.start()
            await _first(edge.closed, ended)
            if not ended.is_set():
                await app.proxy.finished(GRACE_S)
            await edge.close()


async def serve_http(config: Config, address: str = "") -> None:
    """Serve any number of clients on `address` ("" is the setting `bind`), until we are asked to end.

    Raises `BindError` when the address cannot be had, or needs a token that is not set.
    """
    from foretool.server.transports.client.http import HttpServer

    settings = config.settings
    host, port = host_and_port(address or settings.bind)
    with open_store(config.storage) as store:
        app = App(config, store)
        edge = HttpServer(
            app.proxy,
            host=host,
            port=port,
            token=settings.token,
            allowed_hosts=settings.allowed_hosts,
            allowed_origins=settings.allowed_origins,
            max_sessions=settings.max_sessions,
            session_idle_s=settings.session_idle_s,
            max_body=message_limit(config),
            profiles=lambda name: name in app.config.profiles,
            input_schema=app.annotated_schema,
        )
        ended = asyncio.Event()
        _on_signals(ended.set)
        async with app.running():
            serving = asyncio.create_task(edge.serve())
            await _first(ended, edge.ready, serving)
            if edge.ready.is_set():
                log.info("serving on http://%s:%d/mcp", host, edge.port)
                await _first(ended, serving)
            await edge.stop()
            await asyncio.wait([serving])
        # Only here: the task group inside `running` would wrap the error.
        serving.result()


def _on_signals(stop: Any) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)


async def _first(*events: asyncio.Event | asyncio.Task[None]) -> None:
    """Until one of the events is set, or one of the tasks has ended, in whatever way."""
    waits = [asyncio.ensure_future(event.wait()) if isinstance(event, asyncio.Event) else event for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for event, wait in zip(events, waits, strict=True):
        if isinstance(event, asyncio.Event):
            wait.cancel()


def run_stdio(config: Config, profile: str = "") -> None:
    asyncio.run(serve_stdio(config, profile))


def run_http(config: Config, address: str = "") -> None:
    asyncio.run(serve_http(config, address))
