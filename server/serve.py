"""Serves clients on stdio or over HTTP until the client has gone or the process is asked to end.

Both return with every upstream ended and every record written.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from foretool.server import packs, reload
from foretool.server.app import App
from foretool.server.config.addresses import Address, parse_address
from foretool.server.config.codes import Code
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config
from foretool.server.local.frames import SERVICE, STATUS
from foretool.server.local.joined import Windows
from foretool.server.local.opening import Opening
from foretool.server.local.places import ProxyIdentity
from foretool.server.local.server import LocalServer, QuestionTalk, Service
from foretool.server.local.sharing import Sharing
from foretool.server.recording.store_watch import say_full_disk
from foretool.server.setup.installation import fit_hint
from foretool.server.transports.client.stdio import StdioServer
from foretool.server.upstreams.launcher import message_limit
from foretool.storage.engine import StorageError
from foretool.storage.opening import exposure, open_serving_store
from foretool.storage.store import Store

if TYPE_CHECKING:
    from foretool.server.transports.client.base import SessionCarrier

_GRACE_S: Final = 2.0
"""A client that closes our input still gets the answers that come within this time, and so do windows on SIGTERM."""

_DRAIN_S: Final = 8.0
"""On SIGTERM calls over HTTP have so long to be answered. Docker kills a container after 10 s."""

_REPORT_S: Final = 0.5
"""How long after the start the risks of the config are looked for, which takes some milliseconds."""

log = logging.getLogger("foretool.app")


async def serve_stdio(config: Config, profile: str = "", opening: Opening | None = None) -> None:
    """Serve the client that started this process, until it closes our input or we are asked to end. `opening`: what was
    read of it before."""
    with watching(config) as watch, _open(config) as store:
        app = watch.make(config, store)
        transport = StdioServer(app.router, profile, message_limit(config), app.turn, opening)
        app.yield_to(transport.has_unread_output)
        ended = _stop_on_signals()
        async with app.running(), _reporting_risks(config), _answering_locally(app, profile):
            _collect_garbage()
            await transport.start()
            await _wait_for_first(transport.closed, ended)
            if not ended.is_set():
                await app.clients.wait_for_answers(_GRACE_S)
            app.clients.is_ending = ended.was_asked
            await transport.close()


async def serve_windows(config: Config, profile: str, first: socket.socket, when_ready: Callable[[], None]) -> None:
    """Serve the window that started this process and all that join it, until `linger_s` after the last one has gone, or
    until we are asked to end. `when_ready` is called as soon as windows find us."""
    with watching(config) as watch, _open(config) as store:
        app = watch.make(config, store)
        identity = ProxyIdentity.own(config.path, profile, is_project=config.named_by == "project_config")
        sharing = Sharing(app.live, identity.folder, lambda: sorted(app.answering.server_requests.working_in_roots))
        windows = Windows(
            app.router,
            profile,
            message_limit(config),
            app.turn,
            lambda: app.config.settings.linger_s,
            sharing.refuse,
            app.reloader,
            lambda: _say_unknown_roots(app),
        )
        ended = _stop_on_signals()
        async with app.running(), _reporting_risks(config), _answering_locally(app, profile, windows) as local:
            _collect_garbage()
            when_ready()
            windows.expect_first()
            await local.adopt(first)
            await _wait_for_first(windows.gone, ended)
            await local.stop_listening()
            if ended.is_set():
                await _drain(app, ended, _GRACE_S)
            app.clients.is_ending = ended.was_asked
            await windows.close()


class Page(Protocol):
    """The page for browsers below `/ui`."""

    async def __call__(self, door: Any, request: Any) -> None: ...
    async def close(self) -> None: ...


async def serve_http(config: Config, written: str = "", page: Page | None = None) -> None:
    """Serve any number of clients on an address ("" is the setting `bind`), until we are asked to end. `page`: what
    browsers get below `/ui`.

    Raises `BindError` when the address cannot be had, or needs a token that is not set.
    """
    from foretool.server.transports.client.http import HttpServer
    from foretool.server.transports.client.http_rules import BindError, list_problems, read_rules

    address = parse_address(written or config.settings.bind)
    for problem in list_problems(config.settings, address):
        raise BindError(problem)
    with watching(config, http=True) as watch, _open(config) as store:
        app = watch.make(config, store)
        app.clients.serves_http = True
        transport = HttpServer(
            app.router,
            read_rules(config, address, app.issuer(config)),
            address,
            app.answering.annotated_schema,
            page,
            app.is_ready,
            **watch.http,
            sharing=_share(app, store),
            come_back=app.come_back,
            guard=app.guard,
        )

        def follow_config() -> None:
            for problem in list_problems(app.config.settings, address):
                log.error("%s", problem)
            transport.follow(read_rules(app.config, address, app.issuer(app.config)))

        app.reloader.add_follower(follow_config)
        app.reloader.add_follower(lambda: _report_open(app))

        def answer(_: dict[str, Any], reply: Callable[[dict[str, Any]], None]) -> None:
            at = transport.address
            names = Counter(client.person.name for client in app.clients if client.transport == "http")
            written = str(at) if at.path else f"http://{at}/mcp"
            sessions = dict(sorted(names.items()))
            refused = msgspec.to_builtins(app.reloader.refused)
            told = {"address": written, "sessions": sessions, "roots": _say_unknown_roots(app), "refused": refused}
            reply({"pid": os.getpid(), "windows": [], **told})

        status = Service(lambda link, hello: QuestionTalk(link, answer), is_of_all_profiles=True)
        ended = _stop_on_signals()
        async with app.running(), _reporting_risks(config), _answering_locally(app, None, status=status):
            _collect_garbage()
            serving = asyncio.create_task(transport.serve())
            # Nobody started this process to ask it something at once, so there is time to know every tool by then.
            app.upstreams.wake_unlisted("modern")
            await _wait_for_first(ended, transport.ready, serving)
            if transport.ready.is_set():
                shown = transport.address
                log.info("serving on %s", f"{shown} (endpoint /mcp)" if shown.path else f"http://{shown}/mcp")
                _report_open(app, address if written else None)
                await _wait_for_first(ended, serving)
                if ended.is_set() and not serving.done():
                    await _drain(app, ended, _DRAIN_S, transport.drain)
            app.clients.is_ending = ended.was_asked
            await transport.stop()
            await asyncio.wait([serving])
            if page is not None:
                await page.close()
        # Only here: the task group inside `running` would wrap the error.
        serving.result()


def _say_unknown_roots(app: App) -> str:
    """Say which servers are not told in which folders their clients work, and why; "" if none lacks that."""
    names, clients = sorted(app.answering.server_requests.without_roots), app.clients
    if clients.keeps_back_roots():
        return "no server is told in which folders a client works (roots), as several people may use it"
    if not (names and clients.are_apart()):
        return ""
    return (
        f"not told in which folders a client works (roots): {', '.join(names)}, as windows of several folders share it;"
        ' with "share": false each window starts servers of its own'
    )


def _report_open(app: App, address: Address | None = None) -> None:
    """Log what `foretool doctor` says of rules and profiles that let more through than was meant, once all servers have
    listed their tools, and of an address on the command line that other machines reach."""
    from foretool.server.checks.settings import check_patterns, check_profiles
    from foretool.server.config.risks import find_open_address

    def report() -> None:
        found = check_patterns(app.catalog, app.config, complete=not app.upstreams.unlisted())
        for each in (*check_profiles(app.config), *found):
            log.warning("%s; %s [%s]", each.what, each.do, each.code)

    for risk in find_open_address(address) if address is not None else ():
        log.warning("%s; %s [%s]", risk.what, risk.do, risk.code)
    app.upstreams.when_listed(report, app.config.profiles[""])


def _share(app: App, store: Store) -> SessionCarrier | None:
    """Return what carries sessions over to other processes; None where one machine alone can have the store."""
    if store.replicas is None or (share := packs.load_part(packs.SHARE_SESSIONS)) is None:
        return None

    def follow(table: str) -> None:
        app.guard.insist("other replicas", lambda: app.follow_others(table))

    carrier: SessionCarrier | None = share(store, follow)
    return carrier


class Watcher:
    """Makes the proxy. This one watches nothing; the one of `fleet/telemetry/` records traces and metrics."""

    http: Mapping[str, Any] = MappingProxyType({})
    """What an `HttpServer` gets in addition."""

    def make(self, config: Config, store: Store) -> App:
        """Make the proxy that is watched."""
        return App(config, store)

    def end(self) -> None:
        """Send what telemetry has not sent yet."""


@contextlib.contextmanager
def watching(config: Config, *, http: bool = False) -> Iterator[Watcher]:
    """Yield the watcher that the config asks for, and end it; without telemetry nothing of it is imported."""
    watch = Watcher()
    is_wanted = config.settings.telemetry != "off" or (config.settings.metrics and http)
    if is_wanted:
        try:
            watch = packs.require(packs.WATCH, "telemetry, metrics")(config, http=http)
        except packs.MissingPack as error:
            log.warning("%s", error)
    try:
        yield watch
    finally:
        watch.end()


def _collect_garbage() -> None:
    """Look for garbage from now on, and leave out what the start has made, which stays."""
    gc.freeze()
    gc.enable()


def _open(config: Config) -> Store:
    """Open the store, if it can be had, and log who else could read it."""
    try:
        store = open_serving_store(config.storage)
    except StorageError as error:  # a package is missing
        raise ConfigError(fit_hint(str(error)), Code.STORAGE_UNUSABLE) from None
    for line in (*exposure(config.storage), say_full_disk(config.storage)):
        if line:
            log.warning("%s", line)
    with contextlib.suppress(StorageError):
        # A store without sessions belongs to a new user, for whom nothing has changed.
        if store.serving.tell_once("small environment") and store.sessions.first_at() is not None:
            reload.report_small_environment(config, os.environ)
    return store


@contextlib.asynccontextmanager
async def _reporting_risks(config: Config) -> AsyncIterator[None]:
    """Log what others could read or change, soon after the first answers, which need not wait for it, or at the end."""
    is_told = False

    def report() -> None:
        nonlocal is_told
        is_told = True
        reload.report_risks(config)

    timer = asyncio.get_running_loop().call_later(_REPORT_S, report)
    try:
        yield
    finally:
        timer.cancel()
        if not is_told:
            report()


@contextlib.asynccontextmanager
async def _answering_locally(
    app: App, profile: str | None, windows: Windows | None = None, status: Service | None = None
) -> AsyncIterator[LocalServer]:
    """Let other processes of our user find this proxy. `profile`: None for every profile. `windows`: those that share
    it, if any may; `status`: says who uses it."""
    config = app.config
    identity = ProxyIdentity.own(config.path, profile, is_project=config.named_by == "project_config")
    answering = app.answering
    services = {"hint": answering.prompt_answers.service(), "shell": answering.shell_reports.service()}
    if windows is not None:
        services |= {SERVICE: windows.service(), STATUS: windows.status()}
    elif status is not None:
        services |= {STATUS: status}
    local = LocalServer(identity, str(config.storage), services)
    local.start()
    try:
        yield local
    finally:
        await local.stop()


async def _drain(app: App, ended: EndSignal, patience_s: float, announce: Callable[[], None] = lambda: None) -> None:
    """Let calls be answered before the end: for `patience_s` at most, and only until somebody asks once more. A person
    who presses Ctrl-C waits for nobody. `announce` lets clients know."""
    if ended.has_time:
        announce()
        ended.clear()
        answers = asyncio.create_task(app.clients.wait_for_answers(patience_s))
        await _wait_for_first(ended, answers)
        answers.cancel()


class EndSignal(asyncio.Event):
    """An event that is set when the process gets a signal to end, and cleared while calls are awaited."""

    was_asked = False
    has_time = False
    """Whether it was asked by SIGTERM, as supervisors do before they take more than words."""

    def ask(self, number: int) -> None:
        self.was_asked, self.has_time = True, number == signal.SIGTERM
        self.set()


def _stop_on_signals() -> EndSignal:
    """Return an event that is set when the process is asked to end."""
    ended = EndSignal()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, ended.ask, number)
    return ended


async def _wait_for_first(*events: asyncio.Event | asyncio.Task[None]) -> None:
    """Wait until one of the events is set, or one of the tasks has ended in any way."""
    waits = [asyncio.ensure_future(event.wait()) if isinstance(event, asyncio.Event) else event for event in events]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for event, wait in zip(events, waits, strict=True):
        if isinstance(event, asyncio.Event):
            wait.cancel()
