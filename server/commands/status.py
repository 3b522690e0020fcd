"""`foretool status`: the running proxies and how each of their upstreams is doing."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import click

from foretool.retrieval import encoders
from foretool.server.commands import output
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import Config, load
from foretool.server.config.settings import Record
from foretool.server.recording.calibration import EPS, WITHIN, Assured, assured
from foretool.server.system.processes import is_running
from foretool.server.upstreams.upstream import State
from foretool.storage.discovery_outcomes import discovery_outcomes
from foretool.storage.opening import open_store
from foretool.storage.records import Statistics, UpstreamState
from foretool.storage.stores import Store

STDERR_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Proxy:
    """One process that serves, or that was killed while it did."""

    pid: int
    is_running: bool
    started_at: float
    uptime_s: float
    upstreams: tuple[UpstreamState, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """What is kept, and when something last was."""

    level: Record
    last_call: float
    """0 if there is none."""
    last_discovery: float


@dataclass(frozen=True, slots=True)
class Encoding:
    """What ranks by meaning, by encoder with its licence and source, and how many texts it has embedded."""

    setting: str
    embedded: dict[str, int]
    problem: str
    """Why words alone rank; empty where they do not."""


@dataclass(frozen=True, slots=True)
class Status:
    """What the store and the config tell."""

    config: Path
    storage: Path
    contents: Statistics | None
    """None while there is no file."""
    recording: Recording
    encoder: Encoding
    confidence: Assured
    proxies: tuple[Proxy, ...]
    broken: dict[str, str]
    disabled: tuple[str, ...]
    warnings: tuple[str, ...]

    @property
    def troubled(self) -> list[UpstreamState]:
        """Upstreams of running proxies that are not as they should be."""
        running = [state for proxy in self.proxies if proxy.is_running for state in proxy.upstreams]
        return [state for state in running if state.state in (State.RETRYING.value, State.UNLISTED.value)]

    @property
    def is_well(self) -> bool:
        return not self.broken and not self.troubled


@click.command("status")
@config_option
@json_option
@click.option("-v", "--verbose", is_flag=True, help="Show the last stderr lines of every upstream.")
def command(path: Path | None, as_json: bool, verbose: bool) -> int:
    """Show the running proxies, their upstreams and what is stored.

    Exit status 1 when a server of the config is broken, or an upstream of a running proxy is down or does not list its
    tools.
    """
    status = gather(load(path))
    if as_json:
        output.emit({"is_well": status.is_well, **{name: getattr(status, name) for name in Status.__slots__}})
    else:
        _print(status, verbose)
    return int(not status.is_well)


def gather(config: Config) -> Status:
    contents, states, last_call, last_discovery = None, [], 0.0, 0.0
    encoding, confidence = encoding_of(config, None), assured(())
    if config.storage.exists():
        with open_store(config.storage) as store:
            encoding, confidence = encoding_of(config, store), assured(discovery_outcomes(store.discoveries))
            contents, states = store.statistics(), store.serving.states()
            last_call = max((call.at for call in store.calls.recent(1)), default=0.0)
            last_discovery = max((each.at for each in store.discoveries.recent(1)), default=0.0)
    return Status(
        config=config.path,
        storage=config.storage,
        contents=contents,
        recording=Recording(config.settings.record, last_call, last_discovery),
        encoder=encoding,
        confidence=confidence,
        proxies=tuple(_proxies(states)),
        broken=config.broken,
        disabled=config.disabled,
        warnings=config.warnings,
    )


def encoding_of(config: Config, store: Store | None) -> Encoding:
    """What the setting means on this machine."""
    setting = config.settings.encoder
    try:
        weights = encoders.find(setting, encoders.Endpoint(config.settings.encoder_url))
    except encoders.EncoderError as error:
        return Encoding(setting, {}, str(error))
    known = {each.described: len(store.vectors.known(each.key)) if store else 0 for each in weights}
    missing = "" if weights else "switched off" if setting == "none" else f"none is installed; {encoders.INSTALL}"
    return Encoding(setting, known, missing)


def _proxies(states: list[UpstreamState]) -> list[Proxy]:
    now = time.time()
    found = []
    for (started_at, pid), of_one in groupby(states, lambda state: (state.started_at, state.pid)):
        found.append(Proxy(pid, is_running(pid, started_at), started_at, now - started_at, tuple(of_one)))
    return found


def _print(status: Status, verbose: bool) -> None:
    if not status.proxies:
        output.say("No proxy is running. Clients start one themselves; `foretool connect` prints how.")
    for proxy in status.proxies:
        _print_proxy(proxy, verbose)
    for name, problem in status.broken.items():
        output.say(f"broken    {name}: {problem}", "red")
    if status.disabled:
        output.say(f"disabled  {', '.join(status.disabled)}")
    for warning in status.warnings:
        output.say(f"warning   {warning}", "yellow")
    output.say(f"config    {status.config}")
    output.say(f"storage   {status.storage}: {_contents(status.contents)}")
    recording = status.recording
    last = f"last call {output.ago(recording.last_call)}, last discovery {output.ago(recording.last_discovery)}"
    output.say(f"encoder   {_meaning(status.encoder)}")
    output.say(f"recorder  record: {recording.level}; {last}")
    if status.confidence.verdicts:
        output.say(f"searches  {_confidence(status.confidence)}")


def _confidence(found: Assured) -> str:
    """How answers did, in a line."""
    said = f"{output.plural(found.verdicts, 'answer')} with a known end, in {found.found:.0%} the needed tool came in"
    said += f" the first {WITHIN}; confidence was off by {found.error:.2f}"
    if found.recalibrated_error < found.error:
        said += f", {found.recalibrated_error:.2f} once put right"
    if found.show is not None:
        said += f"; the first {found.show} were to hold {1 - EPS:.0%} and held {found.kept:.0%}"
    return said


def _meaning(encoding: Encoding) -> str:
    if encoding.problem:
        return f"words alone rank: {encoding.problem}"
    return ", ".join(f"{name}: {output.plural(count, 'text')} embedded" for name, count in encoding.embedded.items())


def _contents(contents: Statistics | None) -> str:
    if contents is None:
        return "not there yet; the first proxy makes it"
    counts = ", ".join(
        output.plural(count, noun)
        for count, noun in (
            (contents.tools, "tool"), (contents.sessions, "session"), (contents.calls, "call"),
            (contents.discoveries, "discovery"), (contents.misses, "miss"), (contents.clients, "client"),
        )
    )  # fmt: skip
    return f"{output.size(contents.file_bytes)}, {counts}"


def _print_proxy(proxy: Proxy, verbose: bool) -> None:
    if proxy.is_running:
        title = f"proxy {proxy.pid}, up {output.span(proxy.uptime_s)}"
    else:
        title = f"proxy {proxy.pid}, dead: it was killed and left these last words"
    now = time.time()
    rows = [
        (
            state.upstream, state.state, output.span(now - state.since), state.era or "", state.tools, state.restarts,
            state.skipped_lines, state.last_error,
        )
        for state in proxy.upstreams
    ]  # fmt: skip
    columns = ("upstream", "state", "since", "era", "tools#", "restarts#", "skipped#", "last error…")
    output.table(title, columns, rows)
    for state in proxy.upstreams:
        if state.stderr and (verbose or state.last_error):
            for line in state.stderr if verbose else state.stderr[-STDERR_SHOWN:]:
                output.say(f"  {state.upstream} stderr: {line}", "dim")
