"""What looks wrong in the text of all servers, for the commands that show it to people.

It looks at what a catalog holds, so what was held or excluded is not in it, and at the servers' instructions.
"""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct

from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.known_lists import find_known
from foretool.server.config.loader import Config
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw
from foretool.server.trust.findings import TextFinding, find_in_text, find_suspicious
from foretool.server.trust.lookalikes import Names
from foretool.server.trust.phrases import Severity
from foretool.storage.records import Tool, ToolId
from foretool.storage.store import Store

_LIMIT_S: Final = 5.0
"""A server with thousands of long definitions must not make a command wait."""
_SHOWN: Final = 3
"""How many findings on one server `foretool doctor` prints."""
INSTRUCTIONS: Final = ToolId("")
"""Stands for a server's instructions where findings are kept by tool."""


class Inspection(Struct, frozen=True):
    """The findings on all servers."""

    by_server: dict[str, dict[ToolId, tuple[TextFinding, ...]]]
    """By server and tool, where there are any; `INSTRUCTIONS` is the key of a server's instructions."""

    def of(self, tool: Tool) -> tuple[TextFinding, ...]:
        """Return the findings on one tool."""
        return self.by_server.get(tool.upstream, {}).get(tool.id, ())

    def counts(self) -> dict[str, dict[Severity, int]]:
        """Return how many findings of each severity a server has, for servers that have any."""
        return {
            server: dict(Counter(each.severity for findings in found.values() for each in findings))
            for server, found in self.by_server.items()
        }

    def grave(self) -> Iterator[tuple[str, ToolId, TextFinding]]:
        """Yield the findings of medium and high severity, each with its server and its tool."""
        for server, found in self.by_server.items():
            for tool, findings in found.items():
                yield from ((server, tool, each) for each in findings if each.severity != "low")


def inspect(
    catalog: Catalog,
    listed: Mapping[str, Sequence[Raw]] | None = None,
    limit_s: float = _LIMIT_S,
    *,
    blocked: Collection[str] = (),
) -> Inspection:
    """Look at all tools and instructions, for at most `limit_s` a server. `listed`: what servers sent, where invisible
    characters are still in it; the catalog has removed them. `blocked`: hashes of definitions that no client gets."""
    names = Names(
        ((tool.upstream, tool.name, _member(tool.definition, "description")) for tool in catalog.tools()),
        catalog.programs(),
    )
    raw = {server: {_member(each, "name"): bytes(each) for each in sent} for server, sent in (listed or {}).items()}
    by_server: dict[str, dict[ToolId, tuple[TextFinding, ...]]] = {}
    for server in catalog.upstreams():
        sent = raw.get(server, {})
        deadline = time.monotonic() + limit_s
        found = {INSTRUCTIONS: find_in_text(catalog.texts.instructions(server), server, names)}
        for place, tool in enumerate(catalog.of(server)):
            if tool.schema_hash in blocked:
                continue
            if time.monotonic() > deadline:
                late = f"{len(catalog.of(server)) - place} tools were not looked at within {limit_s:g} s"
                found[tool.id] = (TextFinding("too much text", "medium", "definition", late),)
                break
            found[tool.id] = find_suspicious(tool.definition, server, names, sent.get(tool.name, b""))
        if kept := {tool: findings for tool, findings in found.items() if findings}:
            by_server[server] = kept
    return Inspection(by_server)


def report(inspection: Inspection) -> Iterator[tuple[str, Literal["ok", "warning"], str, str]]:
    """Yield what `foretool doctor` says of the findings: the server, how grave it is, what was found, what to do."""
    for server in inspection.by_server:
        found = [(tool, each) for name, tool, each in inspection.grave() if name == server]
        for tool, each in found[:_SHOWN]:
            what = f"{tool or server}: {each.kind} ({each.severity}) in {each.where}: {each.excerpt}"
            yield server, "warning", what, "read it; if it should not be there, exclude the tool or disable the server"
        if len(found) > _SHOWN:
            more = f"{server}: and {len(found) - _SHOWN} more"
            yield server, "warning", more, f"`foretool tools --findings -u {shlex.quote(server)}` shows them"
    if next(inspection.grave(), None) is None:
        yield "", "ok", "nothing looks wrong in the texts of the tools", ""


def inspect_store(config: Config, store: Store) -> Inspection:
    """Look at what the store remembers of the servers of a config, without starting them."""
    catalog = Catalog(list(config.servers.values()), store.catalog.exposed_names(), prefixes=config.prefixes)
    known = store.catalog.load(list(find_known(store, config.servers.values()).items()))
    for record, tools in known:
        catalog.load(record.name, tools, record.instructions)
    catalog.settle()
    return inspect(catalog)


def _member(definition: bytes, key: str) -> str:
    return jsonrpc.member(Raw(definition), key) or ""
