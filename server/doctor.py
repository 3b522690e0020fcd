"""Examines everything for `foretool doctor`: config, clients, programs, storage, upstreams, names and texts.

Each upstream is started once, asked for its tools, and ended again. What it listed is kept, so that the next proxy
knows its tools from the start; nothing else is written. The checks are in `server/checks/`.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from foretool.server.app import App
from foretool.server.catalog.catalog import Catalog
from foretool.server.checks.clients import Registered, check_clients
from foretool.server.checks.programs import check_held, check_programs, check_upstreams
from foretool.server.checks.settings import check_config, check_names, check_pages, check_patterns
from foretool.server.checks.storage import CHECK_S, check_jobs, check_storage, say_refused
from foretool.server.config.codes import Code
from foretool.server.config.loader import Config
from foretool.server.diagnosis import Diagnosis, Finding, TokenSummary, UpstreamCheck
from foretool.server.inspection import inspect, report
from foretool.server.probing import OnProgress, Probe, ignore, is_foretool, probe_servers
from foretool.server.recording.notes import find_failing_jobs
from foretool.server.system import interrupts
from foretool.storage.engine import StorageError
from foretool.storage.opening import examine_store, open_existing_store, open_store, store_exists
from foretool.storage.records import ToolId

TIMEOUT_S: Final = 30.0
"""How long one upstream may take to start and list its tools."""


def diagnose(
    config: Config,
    timeout_s: float = TIMEOUT_S,
    on_progress: OnProgress = ignore,
    *,
    registered: Sequence[Registered] = (),
    only: Collection[str] = (),
) -> Diagnosis:
    """Run every check. `registered`: the entries of clients that start foretool with this config. `only`: the servers
    to start, and to say anything of; all if it is empty. One upstream takes at most twice `timeout_s` and the time of
    its first download, and a few start at a time."""
    servers = [
        server for server in config.servers.values() if not is_foretool(server) and (not only or server.name in only)
    ]
    is_new = isinstance(config.storage, Path) and not config.storage.exists()
    storage = list(check_storage(config.storage))
    is_usable = all(each.severity != "error" for each in storage)
    probes = probe_servers(config, servers, timeout_s, on_progress, keeps=is_usable)
    if refused := next((each.not_kept for each in probes if each.not_kept), ""):
        storage.append(say_refused(refused))
    elif is_new and is_usable:
        storage = list(check_storage(config.storage))  # it has what the servers listed
    catalog = Catalog(list(config.servers.values()), _given_names(config), prefixes=config.prefixes)
    for probe in probes:
        if probe.definitions is not None:
            text, cut = probe.upstream.server_info.instructions, probe.upstream.list_problem
            catalog.replace(probe.server.name, probe.definitions, text, cut=cut)
    catalog.set_token_counts(_count_tokens(config))
    upstreams = tuple(_describe_upstream(probe, catalog) for probe in probes)
    listed = {each.server.name: each.definitions or () for each in probes}
    texts = inspect(catalog, listed, blocked=_find_blocked(config))
    failing = find_failing_jobs(config.storage)
    programs = list(check_programs(replace(config, servers={each.name: each for each in servers})))
    findings = [
        *programs,
        *check_config(config),
        *check_clients(config, registered, os.environ),
        *storage,
        *check_jobs(failing),
        *check_upstreams(upstreams, config, timeout_s),
        *check_held(config),
        *check_names(catalog, config),
        *check_pages(catalog, config),
        *check_patterns(catalog, config, complete=all(each.is_well for each in upstreams)),
        *(
            Finding("text", severity, what, do, Code.TEXT_SUSPICIOUS if severity != "ok" else None, server)
            for server, severity, what, do in report(texts)
        ),
    ]
    if only:
        lasting = [each for each in programs if each.severity != "ok"]
        lasting += [each for each in storage if each.severity == "error"]
        findings = [each for each in findings if each.server in only or each in lasting]
    return Diagnosis(tuple(findings), upstreams, _summarize(config, catalog, upstreams, only), failing)


def _summarize(
    config: Config, catalog: Catalog, upstreams: Sequence[UpstreamCheck], only: Collection[str]
) -> TokenSummary:
    tools = catalog.tools()
    listed = names = None
    lists_all = False
    with suppress(StorageError), open_existing_store(config.storage) as store:
        profile = config.profiles[""]
        app = App(config, store)
        view = app.lists.foresee(profile, "frozen" if profile.policy == "auto" else profile.policy)
        listed, names = view.tokens, len(view.tools)
        lists_all = all(tool.id in view.shown for tool in tools)
    return TokenSummary(
        servers=len(upstreams) + sum(not only or name in only for name in config.broken),
        well=sum(each.is_well for each in upstreams),
        tools=len(tools),
        tokens=sum(catalog.tokens(tool.id) for tool in tools),
        listed_tools=names,
        listed_tokens=listed,
        lists_all=lists_all,
    )


def _describe_upstream(probe: Probe, catalog: Catalog) -> UpstreamCheck:
    upstream, server, server_info = probe.upstream, probe.server, probe.upstream.server_info
    prefixes = catalog.namespaces.problems.get(server.name, ())
    info = server_info.implementation
    return UpstreamCheck(
        upstream=server.name,
        address=server.address,
        is_well=not probe.error,
        era=upstream.lines.spoken_era(),
        version=server_info.version,
        server=f"{info.get('name', '')} {info.get('version', '')}".strip(),
        tools=len(catalog.of(server.name)),
        lists_none=probe.lists_none,
        tokens=sum(catalog.tokens(tool.id) for tool in catalog.of(server.name)),
        dropped=tuple(each for each in catalog.problems_of(server.name) if each not in prefixes),
        ready_ms=probe.ready_s * 1000,
        listed_ms=probe.listed_s * 1000,
        skipped_lines=upstream.invalid_lines,
        error=server.secrets.redact(probe.error),
        stderr=probe.stderr,
        starts=probe.starts,
    )


def _count_tokens(config: Config) -> dict[str, int]:
    """Return the tokens of definitions, by schema hash, and count those that no proxy has counted yet: figures are the
    same then before and after one runs."""
    with suppress(StorageError), open_existing_store(config.storage) as store:
        app = App(config, store)
        interrupts.run(app.known.tokens.count())
        return {tool.schema_hash: tool.tokens for tool in app.catalog.tools() if tool.tokens is not None}
    return {}


def _find_blocked(config: Config) -> set[str]:
    """Return the hashes of the definitions that the user has blocked."""
    with suppress(StorageError), open_existing_store(config.storage) as store:
        return {each.hash for each in store.approvals.undecided() if each.state == "blocked"}
    return set()


def _given_names(config: Config) -> dict[ToolId, tuple[str, str]]:
    """Return the names that clients got before, which stay; none from a file that `check_storage` reports."""
    try:
        if not store_exists(config.storage):
            return {}
        health = examine_store(config.storage, CHECK_S)
        if health.version != health.newest or health.is_foreign:
            return {}
        with open_store(config.storage) as store:
            return store.catalog.exposed_names()
    except StorageError:
        return {}
