"""`foretool status`: the running proxies with their upstreams, what is stored, and the known clients."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from msgspec import Struct
from msgspec.structs import asdict

from foretool.retrieval import encoders
from foretool.server import packs
from foretool.server.checks.clients import UNREGISTERED, find_registered
from foretool.server.commands import edits, output
from foretool.server.commands.login import say_until
from foretool.server.commands.misses import read_duration
from foretool.server.commands.options import config_option, json_option, refuse_together
from foretool.server.commands.running import (
    OpenProxy,
    SharedWindow,
    ask_proxies,
    find_unrecorded,
    say_older_config,
    say_proxy_troubles,
)
from foretool.server.config.errors import RefusedConfig
from foretool.server.config.files import NamedBy
from foretool.server.config.loader import Config, load
from foretool.server.config.servers import digest_entry
from foretool.server.config.settings import PolicyChoice, Record, Telemetry
from foretool.server.inspection import inspect_store
from foretool.server.lists.policy import choose_policy, explain_policy
from foretool.server.recording.calibration import (
    EPS,
    RECENT,
    WITHIN,
    Confidence,
    discovery_outcomes,
    rate_confidence,
)
from foretool.server.recording.costs import FEWEST, count_shell_calls
from foretool.server.recording.notes import ProxyJob, find_failing_jobs
from foretool.server.recording.store_watch import TroubleNote, find_trouble, say_full_disk
from foretool.server.signin.vault import KnownSignIn, Vault
from foretool.server.trust.approvals import say_waiting
from foretool.server.trust.phrases import Severity
from foretool.server.upstreams.failure_memory import known_failures
from foretool.server.upstreams.memory import FAILING, find_proxies, find_running, states_by_upstream
from foretool.server.upstreams.upstream import State
from foretool.storage.engine import StorageError
from foretool.storage.opening import exposure, open_existing_store, open_store
from foretool.storage.places import MEMORY
from foretool.storage.records import ClientRecord, Statistics, UpstreamState
from foretool.storage.store import Store

_STDERR_SHOWN = 3
"""How many stderr lines of a failing upstream are shown without `--verbose`."""
_STATES: Final[dict[str, str]] = {
    State.KNOWN.value: "idle",
    State.STARTING.value: "starting",
    State.READY.value: "running",
    State.UNLISTED.value: "running, tools unknown",
    State.RETRYING.value: "down",
    State.STOPPED.value: "stopped",
}
"""The states of an upstream for people."""
_RARE: Final = ("restarts#", "skipped#", "last error…")
"""Columns of servers that are shown where they say something."""
_SENT: Final[dict[Telemetry, str]] = {
    "on": "names, durations and codes of errors",
    "full": "names, durations, tasks, and what calls are given and return",
}
"""What leaves the machine, for people; `docs/observability.md` has the whole list."""
_LEAST_RATED = FEWEST
"""Fewer searches whose outcome is known say nothing about the quality of search."""


class Proxy(Struct, frozen=True):
    """One process that serves, or that was killed while serving."""

    pid: int
    is_running: bool
    started_at: float
    uptime_s: float
    upstreams: tuple[UpstreamState, ...]
    machine: str = ""
    """The other machine on which it runs; "" for this one."""
    windows: tuple[SharedWindow, ...] = ()
    """The windows that share it, the oldest first; none where the client has started the proxy itself."""
    address: str = ""
    """Where it serves over HTTP; "" where it does not, or on another machine."""
    sessions: dict[str, int] = {}
    """By the name of a token or a person, how many clients are connected over HTTP now."""
    roots: str = ""
    """Which servers are not told in which folders their clients work, and why; "" if none lacks that."""
    refused: RefusedConfig | None = None
    """None if it serves with the config as it is now."""


class Recording(Struct, frozen=True):
    """What the log keeps, and when it last grew."""

    level: Record
    last_call: float
    """0 if there was none."""
    last_discovery: float


class Encoding(Struct, frozen=True):
    """How many texts each encoder, described with licence and source, has embedded."""

    setting: str
    embedded: dict[str, int]
    problem: str
    """Why only words rank, or "" if encoders do too."""


class Status(Struct, frozen=True):
    """What the store and the config say."""

    config: Path
    config_named_by: NamedBy
    storage: str
    """The file, or the address of the database without its password."""
    contents: Statistics | None
    """None while there is no store."""
    shell_calls: int
    """Those of its calls that `foretool call` made, which no other figure counts."""
    recording: Recording
    telemetry: Telemetry
    """What is sent to a collector: `off`, `on`, or `full` with the contents of calls."""
    encoder: Encoding
    confidence: Confidence | None
    """How well confidence has matched what followed; null while too few searches have a known outcome."""
    proxies: tuple[Proxy, ...]
    failing: dict[str, str]
    """Servers that no proxy runs now and that could not be used when they were last tried, and why."""
    broken: dict[str, str]
    disabled: tuple[str, ...]
    warnings: tuple[str, ...]
    findings: dict[str, dict[Severity, int]]
    """By server, how many texts look wrong, by severity; servers without any are left out."""
    disk_full: str
    """That the disk of the storage file is full or the file cannot be written, and the way out; "" where it can."""
    storage_trouble: str
    """Why the storage file cannot be read, or ""."""
    held: dict[str, str]
    """What servers have changed and nobody has approved, in words, by server."""
    without_storage: tuple[TroubleNote, ...]
    """Running proxies that cannot write the storage file, and why."""
    failing_jobs: tuple[ProxyJob, ...]
    """What running proxies cannot do in the background at present; everything else goes on."""
    signed_in: dict[str, KnownSignIn]
    """By server, the sign-ins that are kept here."""
    unrecorded: tuple[int, ...]
    """The processes of proxies that run and have no state in the storage: just started, or the disk is full."""

    @property
    def is_well(self) -> bool:
        """Whether no server is broken, none failed when it was last tried, no upstream of a running proxy is down or
        lists no tools, each proxy can use the config, no background job fails, and all is stored."""
        states = {state.state for proxy in self.proxies if proxy.is_running for state in proxy.upstreams}
        is_stored = not (self.storage_trouble or self.disk_full or self.without_storage)
        is_served = not any(proxy.refused for proxy in self.proxies) and states.isdisjoint(FAILING)
        return is_stored and is_served and not (self.failing_jobs or self.broken or self.failing)


@click.command("status")
@config_option
@json_option
@click.option(
    "-v",
    "--verbose",
    is_flag=True,
    help="Also show stderr lines of every server, and how well confidence is calibrated.",
)
@click.option("--stats", "wants_stats", is_flag=True, help="Show misses, searches and tokens, by day and client.")
@click.option(
    "--since", type=read_duration, metavar="TIME", default="14d", show_default=True,
    help="With --stats, only the last 7d, 12h, 30min, ...",
)  # fmt: skip
@click.option("--clients", "wants_clients", is_flag=True, help="Show each client, and how foretool treats it.")
def command(
    path: Path | None, as_json: bool, verbose: bool, wants_stats: bool, since: float, wants_clients: bool
) -> int:
    """Show what runs and is stored; with --stats what models read.

    Exits with 1 if a server is broken, down, lists no tools, or failed when last tried, a proxy cannot use the config,
    a background job fails, or the storage cannot be used.

    Statistics: a miss is a needed tool that neither the list nor a hint had shown. "read" is what the model read of
    foretool per task: the list at every turn, and each answer and hint from then on. "full list" is what listing every
    tool would have cost instead. "own search" is an estimate of what a client reads that defers all tools behind a
    search of its own: the names of all tools at every turn, one search for each task, and five definitions from then
    on. Rates are formed from tasks whose end is known, once there are fifty.

    Clients: whether and how fast a client lists its tools again when told that they changed, and which policy "auto"
    therefore chooses.
    """
    refuse_together(stats=wants_stats, clients=wants_clients)
    config = load(path)
    if wants_stats:
        return int(packs.require(packs.SHOW_STATS, "status --stats")(config, since, as_json=as_json))
    if wants_clients:
        return _show_clients(config, as_json=as_json)
    status = read_status(config)
    if as_json:
        output.emit({"is_well": status.is_well, **asdict(status)})
    else:
        _print(status, verbose)
    return int(not status.is_well)


def read_status(config: Config) -> Status:
    now = time.time()
    trouble = ""
    try:
        opened = open_existing_store(config.storage)
    except StorageError as error:
        opened, trouble = open_store(":memory:"), str(error)
    opened_by = ask_proxies(config)
    without_storage = tuple(find_trouble(config.storage))
    with opened as store:
        states = store.serving.states()
        last_call = max((call.at for call in store.calls.recent(1)), default=0.0)
        last_discovery = max((each.at for each in store.discoveries.recent(1)), default=0.0)
        outcomes = discovery_outcomes(store.discoveries)
        return Status(
            config=config.path,
            config_named_by=config.named_by,
            storage=str(config.storage),
            contents=store.statistics() if store.path != MEMORY else None,
            shell_calls=count_shell_calls(store, now),
            recording=Recording(config.settings.record, last_call, last_discovery),
            telemetry=config.settings.telemetry,
            encoder=_describe_encoders(config, store),
            confidence=rate_confidence(outcomes) if len(outcomes) >= _LEAST_RATED else None,
            proxies=tuple(
                Proxy(
                    each.pid,
                    each.is_running,
                    each.started_at,
                    now - each.started_at,
                    each.upstreams,
                    each.machine,
                    used.windows,
                    used.address,
                    used.sessions,
                    used.roots,
                    used.refused,
                )
                for each in find_proxies(states)
                for used in (opened_by.get(each.pid, OpenProxy()) if not each.machine else OpenProxy(),)
            ),
            failing=_find_failing(config, store, states),
            broken=config.wrong,
            disabled=config.disabled,
            warnings=(*config.warnings, *exposure(config.storage)),
            findings=inspect_store(config, store).counts(),
            disk_full=say_full_disk(config.storage) or store.notice,
            storage_trouble=trouble,
            held={name: text for name, (_, text) in say_waiting(store.approvals.held(), config.servers).items()},
            without_storage=without_storage,
            failing_jobs=find_failing_jobs(config.storage),
            signed_in=_find_sign_ins(config),
            unrecorded=tuple(find_unrecorded(opened_by, states, without_storage)),
        )


def _find_failing(config: Config, store: Store, states: Sequence[UpstreamState]) -> dict[str, str]:
    running = states_by_upstream(find_running(states))
    known = known_failures(store, {name: digest_entry(server) for name, server in config.servers.items()})
    return {each.server: each.reason for each in known if each.server not in running}


def _find_sign_ins(config: Config) -> dict[str, KnownSignIn]:
    remote = [server for server in config.servers.values() if server.may_sign_in]
    vault = Vault.own()
    return {server.name: known for server in remote if (known := vault.describe(server)) is not None}


def _describe_encoders(config: Config, store: Store) -> Encoding:
    """Return what the setting `encoder` means on this machine."""
    setting = config.settings.encoder
    try:
        weights = encoders.resolve_weights(setting, encoders.Endpoint(config.settings.encoder_url))
    except encoders.EncoderError as error:
        return Encoding(setting, {}, str(error))
    known = {each.described: len(store.vectors.known(each.key)) for each in weights}
    missing = "switched off" if setting == "none" else f"none is installed; {encoders.INSTALL}"
    return Encoding(setting, known, "" if weights else missing)


def _print(status: Status, verbose: bool) -> None:
    _print_proxies(status, verbose)
    for alike in output.put_together(status.failing.items(), lambda each: each[1]):
        output.say_fact("failing", f"{', '.join(name for name, _ in alike)}: {alike[0][1]}", "red")
    for name, problem in status.broken.items():
        output.say_fact("wrong", f"{name}: {problem}", "red")
    if status.disabled:
        output.say_fact("disabled", ", ".join(status.disabled))
    for name, known in status.signed_in.items():
        allowed = f"; it may: {known.scope}" if known.scope else ""
        output.say_fact("signed in", f"{name} ({known.issuer}), {say_until(known)}{allowed}")
    for text in status.held.values():
        output.say_fact("held", text, "yellow")
    for warning in status.warnings:
        output.say_fact("warning", warning, "yellow")
    _print_findings(status.findings)
    output.say_fact("config", f"{status.config} ({status.config_named_by})")
    if status.storage_trouble:
        output.say_fact("storage", status.storage_trouble, "red")
    elif status.contents is not None or not status.disk_full:
        output.say_fact("storage", f"{status.storage}: {_say_contents(status.contents, status.shell_calls)}")
    if status.disk_full:
        output.say_fact("storage", status.disk_full, "red")
    encoding, recording = status.encoder, status.recording
    # Nothing is known of what is in a storage file that cannot be read.
    said = {
        name: "" if status.storage_trouble else f": {output.plural(count, 'text')} embedded"
        for name, count in encoding.embedded.items()
    }
    ranks = ", ".join(map("".join, said.items()))
    output.say_fact("encoder", f"only words rank: {encoding.problem}" if encoding.problem else ranks)
    last = f"; last call {output.ago(recording.last_call)}, last search {output.ago(recording.last_discovery)}"
    output.say_fact("recorder", f"record: {recording.level}{'' if status.storage_trouble else last}")
    if status.telemetry != "off":
        output.say_fact("telemetry", f"{status.telemetry}: {_SENT[status.telemetry]} go to a collector")
    if status.confidence is not None:
        output.say(f"Search quality {_say_quality(status.confidence, verbose)}")


def _print_proxies(status: Status, verbose: bool) -> None:
    say_proxy_troubles(status.without_storage, status.failing_jobs)
    for pid in status.unrecorded:
        output.say(f"proxy {pid} runs, and has written no state of its servers into the storage.", "yellow")
    if status.storage_trouble and not (status.without_storage or status.unrecorded):
        output.say("Which proxies run is noted in the storage, which cannot be used now.")
    elif not (status.proxies or status.without_storage or status.unrecorded):
        if find_registered(status.config):
            output.say("No proxy is running. Clients start one themselves; `foretool connect` shows how.")
        else:
            output.say(f"No proxy is running, and {UNREGISTERED}: {edits.typed('init', status.config)}")
    for proxy in status.proxies:
        _print_proxy(proxy, verbose)


def _print_findings(findings: Mapping[str, Mapping[Severity, int]]) -> None:
    """Say which servers have text that looks wrong; what tells little is not mentioned."""
    said = [
        f"{server}: {', '.join(f'{counts[each]} {each}' for each in ('high', 'medium') if each in counts)}"
        for server, counts in findings.items()
        if counts.keys() - {"low"}
    ]
    if said:
        output.say_fact(
            "findings", f"{'; '.join(said)} (suspicious text; `foretool tools --findings` shows it)", "yellow"
        )


def _say_quality(found: Confidence, verbose: bool) -> str:
    said = f"({found.verdicts} searches with a known outcome): right tool in the top {WITHIN}: {found.found:.0%}."
    if found.state == "drifted":
        said += (
            f" Answers differ from what they promised: of the last {RECENT} searches {found.said:.0%} should have shown"
            f" the needed tool, {found.came_true:.0%} did. Until these agree again, confidence is read from these"
            " searches alone."
        )
    if not verbose:
        return said
    said += f" What answers promise differs from what comes true by {found.error:.0%} on average"
    if found.recalibrated_error < found.error:
        said += f", by {found.recalibrated_error:.0%} with what was learned from your searches"
    if found.show is not None:
        said += f". The first {found.show} should contain {1 - EPS:.0%} of needed tools and contained {found.kept:.0%}"
    return f"{said}."


def _say_contents(held: Statistics | None, by_shell: int) -> str:
    if held is None:
        return "does not exist yet; the first proxy creates it"
    calls = output.plural(held.calls - by_shell, "call") + (f" and {by_shell:,} by foretool call" if by_shell else "")
    counted = [output.plural(held.tools, "tool"), output.plural(held.sessions, "session"), calls]
    counted += [output.plural(held.discoveries, "search"), output.plural(held.misses, "miss")]
    counted.append(output.plural(held.clients, "client"))
    return f"{', '.join([output.size(held.file_bytes), *counted])} (all on record)"


def _print_proxy(proxy: Proxy, verbose: bool) -> None:
    if proxy.is_running:
        where = f" on {proxy.machine}" if proxy.machine else ""
        title = f"proxy {proxy.pid}{where}, up {output.span(proxy.uptime_s)}"
    else:
        title = f"proxy {proxy.pid}, dead: it was killed, and this is its last known state"
    now = time.time()
    rows = [
        (
            state.upstream, _STATES.get(state.state, state.state), output.span(now - state.since), state.era or "",
            state.tools, state.restarts, state.skipped_lines, state.last_error,
        )
        for state in proxy.upstreams
    ]  # fmt: skip
    columns = ("server…", "state…", "for", "protocol", "tools#", "restarts#", "skipped#", "last error…")
    # What nothing has happened of is left out: restarts, lines that were no message, errors.
    shown = [
        place for place, name in enumerate(columns)
        if name not in _RARE or verbose or any(row[place] for row in rows)
    ]  # fmt: skip
    output.table([columns[at] for at in shown], [[row[at] for at in shown] for row in rows], title)
    if proxy.address:
        connected = ", ".join(f"{name or '(unnamed)'} ({count})" for name, count in proxy.sessions.items())
        output.say(f"  serves on {proxy.address}; connected: {connected or 'nobody'}")
    for window in proxy.windows:
        client = window.client or "a client that has said nothing yet"
        output.say(f"  window {window.pid}: {client} in {window.folder}, for {output.span(now - window.since)}")
    if proxy.roots:
        output.say(f"  {proxy.roots}")
    if proxy.refused is not None:
        output.say(f"  {say_older_config(proxy.refused)} [{proxy.refused.code}]", "red")
    for state in proxy.upstreams:
        if state.stderr and (verbose or state.last_error):
            for line in state.stderr if verbose else state.stderr[-_STDERR_SHOWN:]:
                output.say(f"  {state.upstream} stderr: {line}", "dim")


def _show_clients(config: Config, *, as_json: bool) -> int:
    with open_existing_store(config.storage) as store:
        found = [describe_client(record) for record in store.clients.all()]
    return output.show(found, as_json, lambda clients: _print_clients(clients, config.settings.policy))


def describe_client(record: ClientRecord) -> dict[str, Any]:
    """Return the record, with the policy that `auto` chooses and why."""
    policy = choose_policy("auto", record.era, record.client, record)
    return {**asdict(record), "auto": policy, "why": explain_policy(record)}


def _print_clients(clients: list[dict[str, Any]], policy: PolicyChoice) -> None:
    if not clients:
        output.say("No client has connected yet. `foretool connect` shows how to register foretool with one.")
        return
    rows = [
        (
            f"{each['client'] or '(unnamed)'} {each['version']}".rstrip(), each["era"], each["announced"],
            each["relisted"], f"{each['relist_ms']:.0f}" if each["relist_ms"] else "-", each["auto"], each["why"],
        )
        for each in clients
    ]  # fmt: skip
    output.table(("client…", "era", "told#", "listed#", "ms#", "auto", "because…"), rows)
    output.say("told: how often it was told that its list has changed. listed: how often it then listed within 2 s.")
    if policy != "auto":
        output.say(f'The setting "policy" is {policy}, so `auto` is not used.')
