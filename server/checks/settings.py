"""Checks the config file: what is broken, what others could change, and servers that cannot mean what they say.

It also checks the names of tools, and the patterns that rules and pins are written with.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from foretool.server.catalog import names
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.namespaces import OTHER_PREFIX
from foretool.server.config import jsonc
from foretool.server.config.codes import Code
from foretool.server.config.errors import Coded, dotted, lacks_folder, plural, printable_line
from foretool.server.config.files import read_regular
from foretool.server.config.loader import Config, LiveConfig
from foretool.server.config.risks import find_risks
from foretool.server.config.servers import CLIENT_FOLDERS, Server, matches
from foretool.server.config.settings import CLASSES
from foretool.server.diagnosis import Finding, Repair, note, ok, problem, warning
from foretool.server.probing import is_foretool
from foretool.server.trust.policy import TrustPolicy
from foretool.server.upstreams.causes import Cause
from foretool.storage.records import Tool, ToolId


def check_names(catalog: Catalog, config: Config) -> Iterator[Finding]:
    """Report names that are not simply `prefix__tool`, and why; in one line where it is the same for several tools of a
    server."""
    changed: dict[tuple[str, str], list[Tool]] = {}
    for upstream, problems in catalog.namespaces.problems.items():
        for each in problems:
            what = f"{upstream}: {each.removesuffix(f'; {OTHER_PREFIX}')}"
            yield warning("names", Code.NAME_TAKEN, what, OTHER_PREFIX, upstream)
    taken = {tool.id: tool for tool in catalog.tools()}
    for tool in catalog.tools():
        prefix = catalog.namespaces.prefix(tool.upstream)
        wanted = catalog.overrides.plain_name(tool.upstream, tool.name)
        own = catalog.overrides.names.get((tool.upstream, tool.name), tool.name)
        full = f"{prefix}{names.SEPARATOR}{own}" if prefix else own
        if tool.id == full or own != tool.name:  # what the user renames is reported with its server
            continue
        if tool.id == wanted:
            why = f"over {names.LIMIT} characters" if len(full) > names.LIMIT else "characters that clients refuse"
            changed.setdefault((tool.upstream, why), []).append(tool)
        elif (other := taken.get(ToolId(wanted))) is not None or wanted in names.OWN:
            owner = f"the {other.name} of {other.upstream}" if other else "a tool of foretool's own"
            what = f"{tool.upstream}: {tool.name} is shown as {tool.id}: {owner} has the name {wanted}"
            yield warning("names", Code.NAME_TAKEN, what, 'give one of the servers another "prefix"', tool.upstream)
        else:
            why = "its earlier name" if prefix else f"another server has, or had, a tool {tool.name!r}"
            changed.setdefault((tool.upstream, why), []).append(tool)
    for (upstream, why), tools in changed.items():
        one, shown = tools[0].name, tools[0].id
        many = f"{len(tools)} tools are shown under other names, {one} as {shown}"
        what = many if len(tools) > 1 else f"{one} is shown as {shown}"
        yield note("names", Code.NAME_CHANGED, f"{upstream}: {what}: {why}", server=upstream)


def check_pages(catalog: Catalog, config: Config) -> Iterator[Finding]:
    """Report profiles in which several servers have pages (MCP Apps), which can call nothing then."""
    policy = TrustPolicy(LiveConfig(config), pages=lambda: catalog.now.page_servers)
    for profile in config.profiles.values():
        paged = policy.reach(profile).page_servers
        if len(servers := [name for name in config.servers if name in paged]) > 1:
            where = f"profile {profile.name!r}" if profile.name else "the list of all servers"
            what = f"{where}: {', '.join(servers)} have pages (MCP Apps), which can call no tools beside each other"
            yield note("names", Code.PAGES_TOGETHER, what, "if a page does not work, give its server its own profile")


def check_patterns(catalog: Catalog, config: Config, *, complete: bool) -> Iterator[Finding]:
    """Report patterns of pins and rules that match nothing, and pins that exceed the budget. `complete`: all tools are
    known."""
    wanted = [("foretool.pin", pattern, _is_meant(catalog, pattern)) for pattern in config.settings.pin]
    keys = ("pin", "allow", "deny", "risk")
    for server in config.servers.values():
        own = [tool.name for tool in catalog.of(server.name)]
        wanted += [
            (f"{server.name}: {key}", each, any(matches(name, (each,)) for name in own))
            for key in keys
            for each in getattr(server.entry, key)
            if own
        ]
    for name, profile in config.settings.profiles.items():
        # What lets a call through counts for the present name alone.
        rules = [
            (key, fits, each)
            for key, fits in (("allow", _is_shown), ("deny", _is_meant))
            for each in getattr(profile, key)
        ]
        wanted += [(f"profile {name}: {key}", each, fits(catalog, each)) for key, fits, each in rules]
    for where, pattern, is_meant in wanted:
        if complete and pattern not in CLASSES and not is_meant:
            do = "`foretool tools` shows the names; patterns in a server's own entry have no prefix"
            yield warning("names", Code.PATTERN_WITHOUT_TOOL, f"{where}: {pattern!r} matches no tool", do)
    pinned = catalog.pins(config.settings.pin)
    cost = sum(catalog.tokens(tool) for tool in pinned)
    budget = config.profiles[""].list_tokens
    if cost > budget:
        what = f"{len(pinned)} pinned tools take {cost:,} tokens, more than list_tokens ({budget:,})"
        yield warning("names", Code.PINS_TOO_LARGE, what, "raise list_tokens, or pin fewer")


def _is_meant(catalog: Catalog, pattern: str) -> bool:
    return any(catalog.is_meant(tool, (pattern,)) for tool in catalog.tools())


def _is_shown(catalog: Catalog, pattern: str) -> bool:
    return any(matches(tool.id, (pattern,)) for tool in catalog.tools())


_DO: Final = {
    Code.KEY_NOT_READ: "nothing has to be done if another program reads it; else correct its name",
    Code.PROJECTS_NOT_READ: "run foretool init, or copy them by hand",
    Code.NO_SERVERS: "add one: foretool add, or foretool init to take over those of your clients",
}


def check_config(config: Config) -> Iterator[Finding]:
    """Check what the config file says."""
    profiles = ", ".join(name for name in config.profiles if name)
    also = f", profiles: {profiles}" if profiles else ""
    off = f" and {len(config.disabled)} disabled" if config.disabled else ""
    servers = f"{plural(len(config.servers) + len(config.broken), 'server')}{off}"
    yield ok("config", f"config: {config.path} ({config.named_by}), {servers}{also}")
    for name, said in config.broken.items():
        cause = explain_entry(said, config.path)
        # Started in a folder that a client has open, the entry is as it should be.
        found = note if lacks_folder(said) else problem
        yield found("config", cause.code, f"{name}: {cause.what}", cause.do, name)
    for said in config.warnings:
        code = said.code if isinstance(said, Coded) else Code.KEY_NOT_READ
        do = _DO.get(code, "correct or remove it")
        meant = code is Code.KEY_NOT_READ and "; " not in said
        yield (note if meant else warning)("config", code, said, do)
    if (judge := config.settings.judge) is not None:
        yield ok(
            "config",
            f"judge: where a search is in doubt, {judge.address} is sent the task and the names and first sentences of"
            f" at most 20 tools, some 1,000 tokens; waited for {judge.timeout_ms} ms at most",
        )
    for risk in find_risks(config):
        repair = Repair("protect", path=str(risk.path), mode=0o600) if risk.path is not None else None
        yield Finding("config", risk.severity, risk.what, risk.do, risk.code, repair=repair)
    if config.disabled:
        yield note("config", Code.SERVER_DISABLED, f"disabled: {', '.join(config.disabled)}")
    for server in config.servers.values():
        yield from _check_relative_arguments(server)
        yield from _check_client_folder(server)
        if is_foretool(server):
            what = f"{server.name}: starts foretool, which would then start itself"
            do = "remove it from this file, or give it a --config of its own"
            repair = Repair("disable", (server.name,))
            yield problem("config", Code.STARTS_ITSELF, what, do, server.name, repair=repair)
    yield from _check_twins(config)
    yield from _check_names_written_twice(config)
    yield from check_profiles(config)


def check_profiles(config: Config) -> Iterator[Finding]:
    """Report patterns of profiles that no server has."""
    known = (*config.servers, *config.disabled, *config.broken)  # without any, what is wrong was said above
    for name, profile in config.profiles.items():
        for pattern in profile.servers:
            if known and not any(matches(server, (pattern,)) for server in known):
                what = f"profile {name}: servers: {pattern!r} matches no server"
                do = f"the servers are: {', '.join(config.servers)}"
                yield warning("config", Code.PATTERN_WITHOUT_SERVER, what, do)


def explain_entry(said: str, path: Path) -> Cause:
    """Return what is wrong with an entry that cannot be used. `said`: the message of the config `path`."""
    code = said.code if isinstance(said, Coded) else Code.SERVER_ENTRY
    if lacks_folder(said):
        return Cause(code, said, "nothing, if it is for windows with an open folder alone")
    return Cause(
        code, said, f"correct that line of {printable_line(str(path))}; until then this server alone is left out"
    )


def _check_relative_arguments(server: Server) -> Iterator[Finding]:
    """Note arguments that mean another folder for a server that expects to start in the folder of the client."""
    relative = [arg for arg in server.args if arg in (".", "..") or arg.startswith(("./", "../"))]
    if relative and server.type == "stdio" and not server.entry.cwd:
        what = f"{server.name}: the argument {relative[0]!r} starts in {server.cwd}, the folder of the config"
        do = 'write a full path, or "${workspaceFolder}" for the folder of the client'
        yield note("config", Code.FOLDER_OF_CLIENT, what, do, server.name)


def _check_client_folder(server: Server) -> Iterator[Finding]:
    """Note a server whose program or folder is that of the client."""
    written = (server.entry.command or "", server.entry.cwd or "")
    if server.type == "stdio" and any(folder in each for each in written for folder in CLIENT_FOLDERS):
        what = f"{server.name}: runs in the folder of the client, which may be a repository that you cloned"
        do = "npx, uvx and python -m run files of that folder; leave out ${workspaceFolder} if it works without"
        yield note("config", Code.FOLDER_OF_CLIENT, what, do, server.name)


def _check_twins(config: Config) -> Iterator[Finding]:
    """Report servers that start or reach the same thing with the same words: their tools are there twice."""
    seen: dict[str, str] = {}
    for server in config.servers.values():
        reached = (server.type, server.command, server.args, sorted(server.env.items()), server.cwd, server.url,
                   sorted(server.headers.items()), server.inherit)  # fmt: skip
        first = seen.setdefault(json.dumps(reached), server.name)
        if first != server.name:
            what = f"{server.name}: is the same server as {first}, so each of its tools is there twice"
            do = f"delete one: foretool remove {shlex.quote(server.name)}"
            repair = Repair("disable", (server.name,))
            yield warning("config", Code.SERVER_TWICE, what, do, server.name, repair=repair)


def _check_names_written_twice(config: Config) -> Iterator[Finding]:
    """Report names that the file writes twice: JSON then keeps the last one and says nothing."""
    with suppress(OSError, UnicodeDecodeError, jsonc.JsonError):
        text = read_regular(config.path).decode("utf-8-sig")
        for path, offset in jsonc.repeated_keys(text):
            if path[:1] in (("mcpServers",), ("servers",), ("foretool",)):
                line, column = jsonc.line_and_column(text, offset)
                where = f"{printable_line(str(config.path))}:{line}:{column}"
                what = f"{where}: {dotted(path)}: stands in the file twice; only the last one counts"
                named = str(path[1]) if len(path) > 1 and path[0] != "foretool" else ""
                yield warning("config", Code.NAME_TWICE, what, "rename one of them, or delete it", named)
