"""Starts new servers once, says how many tools each has, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from foretool.retrieval.tokens import estimate
from foretool.server.commands import output
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import load
from foretool.server.config.servers import Server
from foretool.server.probing import Probe, probe_servers
from foretool.server.system.logs import mute_logging
from foretool.server.upstreams.missing_variables import advise_server

TIMEOUT_S: Final = 120.0
"""How long the first start may take: npx, uvx and docker load the package first."""
STDERR_SHOWN: Final = 5


class FirstStart(Struct, frozen=True):
    """What one server did when it was started for the first time."""

    name: str
    is_well: bool
    tools: int = 0
    tokens: int = 0
    """Estimated tokens of all its definitions."""
    error: str = ""
    do: str = ""
    """What to do about it."""
    stderr: tuple[str, ...] = ()
    """Its last lines on stderr, without secrets."""


def start(path: Path, names: list[str], as_json: bool) -> list[FirstStart]:
    """Start servers of a config once and print what they did, unless `as_json`."""
    if not as_json:
        what = names[0] if len(names) == 1 else f"{len(names)} servers"
        output.warn(f"Starting {what} once; a first start may load packages.")
    found = _start(path, names)
    for each in () if as_json else found:
        _say(each)
    return found


def _start(path: Path, names: list[str]) -> list[FirstStart]:
    try:
        config = load(path)
    except ConfigError as error:
        return [FirstStart(name, False, error=str(error), do="correct that line") for name in names]
    unusable = [FirstStart(name, False, error=config.broken[name]) for name in names if name in config.broken]
    servers = [config.servers[name] for name in names if name in config.servers]
    if not servers:
        return unusable
    with mute_logging():
        probes = probe_servers(config, servers, TIMEOUT_S, lambda name: None)
    return [*unusable, *(_describe(probe) for probe in probes)]


def _describe(probe: Probe) -> FirstStart:
    server, redact = probe.server, probe.server.secrets.redact
    stderr = tuple(redact(line) for line in probe.upstream.stderr)
    if probe.error:
        error = redact(probe.error)
        return FirstStart(
            server.name, False, error=error, do=_advise(server, stderr, error), stderr=stderr[-STDERR_SHOWN:]
        )
    definitions = [bytes(each).decode() for each in probe.definitions or () if server.offers(_name(bytes(each)))]
    return FirstStart(server.name, True, len(definitions), sum(map(estimate, definitions)))


def _advise(server: Server, stderr: tuple[str, ...], error: str) -> str:
    if advice := advise_server(server, stderr, error):
        return advice
    if "was not found" in error:
        return ""  # the error says what to do
    if server.type == "stdio":
        return f"start it by hand to see more, then correct the entry: {server.address}"
    if "401" in error or "authoris" in error:
        return f'sign in: foretool login {server.name}; or give it a token in "headers" of its entry'
    return "check the address, and that this machine can reach it"


def _name(definition: bytes) -> str:
    found = msgspec.json.decode(definition).get("name")
    return found if isinstance(found, str) else ""


def _say(found: FirstStart) -> None:
    if found.is_well:
        output.say(f"{found.name} works: {output.plural(found.tools, 'tool')}, {found.tokens:,} tokens.", "green")
        if not found.tools:
            output.say("It lists no tools, so your clients get nothing from it.", "yellow")
        return
    output.say(f"{found.name} does not work yet: {found.error}", "red")
    for line in found.stderr:
        output.say(f"  {line}", "dim")
    if found.do:
        output.say(f"  -> {found.do}")
    output.say(f"It stays in the file. To take it out: foretool remove {found.name}")
