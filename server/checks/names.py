"""Checks the names of tools, and the patterns that rules and pins are written with."""

from __future__ import annotations

from collections.abc import Iterator

from foretool.server.catalog import names
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.namespaces import OTHER_PREFIX
from foretool.server.config.codes import Code
from foretool.server.config.loader import Config, LiveConfig
from foretool.server.config.servers import matches
from foretool.server.config.settings import CLASSES
from foretool.server.diagnosis import Finding, note, warning
from foretool.server.trust.policy import TrustPolicy
from foretool.storage.records import ToolId


def check_names(catalog: Catalog, config: Config) -> Iterator[Finding]:
    """Report names that are not simply `prefix__tool`, and why."""
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
        where = f"{tool.upstream}: {tool.name}"
        if tool.id == full or own != tool.name:  # what the user renames is reported with its server
            continue
        if tool.id == wanted:
            why = f"over {names.LIMIT} characters" if len(full) > names.LIMIT else "characters that clients refuse"
            yield note("names", Code.NAME_CHANGED, f"{where} is shown as {tool.id}: {why}", server=tool.upstream)
        elif (other := taken.get(ToolId(wanted))) is not None or wanted in names.OWN:
            owner = f"the {other.name} of {other.upstream}" if other else "a tool of foretool's own"
            what = f"{where} is shown as {tool.id}: {owner} has the name {wanted}"
            yield warning("names", Code.NAME_TAKEN, what, 'give one of the servers another "prefix"', tool.upstream)
        else:
            why = "its earlier name" if prefix else f"another server has, or had, a tool {tool.name!r}"
            yield note("names", Code.NAME_CHANGED, f"{where} is shown as {tool.id}: {why}", server=tool.upstream)


def check_pages(catalog: Catalog, config: Config) -> Iterator[Finding]:
    """Report profiles in which several servers have pages (MCP Apps), which can call nothing then."""
    policy = TrustPolicy(LiveConfig(config), pages=catalog.page_servers)
    for profile in config.profiles.values():
        paged = policy.reach(profile).page_servers
        if len(servers := [name for name in config.servers if name in paged]) > 1:
            where = f"profile {profile.name!r}" if profile.name else "the list of all servers"
            what = f"{where}: {', '.join(servers)} have pages (MCP Apps), which can call no tools beside each other"
            yield note("names", Code.PAGES_TOGETHER, what, "if a page does not work, give its server its own profile")


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
            yield warning("names", Code.PATTERN_WITHOUT_TOOL, f"{where}: {pattern!r} matches no tool", do)
    pinned = catalog.pins(config.settings.pin)
    cost = sum(catalog.tokens(tool) for tool in pinned)
    if cost > config.settings.list_tokens:
        what = (
            f"{len(pinned)} pinned tools take {cost:,} tokens, more than list_tokens ({config.settings.list_tokens:,})"
        )
        yield warning("names", Code.PINS_TOO_LARGE, what, "raise list_tokens, or pin fewer")
