"""Starts new servers once, says how many tools each has, and what is wrong with it."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from foretool.retrieval.tokens import estimate
from foretool.server.checks.settings import explain_entry
from foretool.server.commands import edits, output
from foretool.server.commands.doctor import embed_listed, progress_bar
from foretool.server.config.codes import Code
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import load
from foretool.server.probing import Probe, probe_servers
from foretool.server.protocol import jsonrpc
from foretool.server.system.logs import mute_logging
from foretool.server.upstreams.causes import Cause, last_lines
from foretool.server.upstreams.upstream import LISTS_NONE

_TIMEOUT_S: Final = 120.0
"""How long the first start may take: npx, uvx and docker load the package first."""


class FirstStart(Struct, frozen=True):
    """What one server did when it was started for the first time."""

    name: str
    is_well: bool
    tools: int = 0
    tokens: int = 0
    """Estimated tokens of all its definitions."""
    error: str = ""
    code: Code | None = None
    """Names its paragraph in `docs/errors.md`; None if nothing is wrong."""
    do: str = ""
    """What to do about it."""
    stderr: tuple[str, ...] = ()
    """Its last lines on stderr, without secrets."""


def start(path: Path, names: list[str], as_json: bool) -> list[FirstStart]:
    """Start servers of a config once and print what they did, unless `as_json`."""
    if not as_json:
        what = names[0] if len(names) == 1 else f"{len(names)} servers"
        output.warn(f"Starting {what} once; a first start may load packages.")
    try:
        found = _start(path, names)
    except KeyboardInterrupt:
        remove = edits.typed(f"remove {' '.join(names)}", path)
        output.warn(f"{', '.join(names)} stay{'s' * (len(names) == 1)} in the file. To take out again: {remove}")
        raise click.Abort from None
    for each in () if as_json else found:
        _say(each)
    return found


def _start(path: Path, names: list[str]) -> list[FirstStart]:
    try:
        config = load(path)
    except ConfigError as error:
        return [_failed(name, Cause(error.code, str(error), "correct that line")) for name in names]
    unusable = [
        _failed(name, explain_entry(config.broken[name], config.path)) for name in names if name in config.broken
    ]
    servers = [config.servers[name] for name in names if name in config.servers]
    if not servers:
        return unusable
    with mute_logging(), progress_bar(len(servers)) as on_progress:
        probes = probe_servers(config, servers, _TIMEOUT_S, on_progress)
    if any(probe.definitions for probe in probes):
        refused = embed_listed(config)
        if refused:
            output.warn(f"The storage keeps nothing of it: {refused}")
    return [*unusable, *(_describe(probe) for probe in probes)]


def _describe(probe: Probe) -> FirstStart:
    server = probe.server
    if probe.error:
        return _failed(server.name, probe.explain(), last_lines(probe.stderr))
    definitions = [
        bytes(each).decode() for each in probe.definitions or () if server.offers(jsonrpc.member(each, "name") or "")
    ]
    do = LISTS_NONE if probe.lists_none else ""
    return FirstStart(server.name, True, len(definitions), sum(map(estimate, definitions)), do=do)


def _failed(name: str, cause: Cause, stderr: tuple[str, ...] = ()) -> FirstStart:
    return FirstStart(name, False, error=cause.what, code=cause.code, do=cause.do, stderr=stderr)


def _say(found: FirstStart) -> None:
    if found.is_well:
        output.say(f"{found.name} works: {output.plural(found.tools, 'tool')}, about {found.tokens:,} tokens.", "green")
        if found.do:
            output.say(f"It lists no tools: {found.do}.", "yellow")
        return
    output.say(f"{found.name} does not work yet: {found.error} [{found.code}]", "red")
    for line in found.stderr:
        output.say(f"  {line}", "dim")
    if found.do:
        output.say(f"  -> {found.do}")
    output.say(f"It stays in the file. To take it out: foretool remove {shlex.quote(found.name)}")
