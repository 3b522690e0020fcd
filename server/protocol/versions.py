"""Versions and names of the protocol, both eras (specification revisions 2024-11-05 to 2026-07-28)."""

from __future__ import annotations

from typing import Any, Final

from foretool._version import __version__
from foretool.server.protocol.general_greeting import LATEST_LEGACY as LATEST_LEGACY
from foretool.server.protocol.general_greeting import LEGACY_VERSIONS as LEGACY_VERSIONS
from foretool.server.protocol.general_greeting import META_CAPABILITIES as META_CAPABILITIES
from foretool.server.protocol.general_greeting import META_VERSION as META_VERSION
from foretool.server.protocol.general_greeting import MODERN_VERSIONS as MODERN_VERSIONS
from foretool.server.protocol.jsonrpc import Raw, raw
from foretool.storage.records import Era

ERAS: Final[tuple[Era, Era]] = ("legacy", "modern")

LATEST_MODERN: Final = MODERN_VERSIONS[0]

META_CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
META_LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
META_SUBSCRIPTION: Final = "io.modelcontextprotocol/subscriptionId"
META_SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
CONNECTION_META: Final = frozenset({META_VERSION, META_CLIENT_INFO, META_CAPABILITIES, META_LOG_LEVEL})
"""`_meta` keys that describe one hop and are not passed on."""

UI: Final = "io.modelcontextprotocol/ui"
"""The extension MCP Apps: servers have pages for some of their tools, and clients that declare it show them."""

TASKS: Final = "io.modelcontextprotocol/tasks"
"""The extension for tasks: a server may answer a call with a task, which is asked for its result (SEP-2663)."""

ALWAYS_LOAD: Final = "anthropic/alwaysLoad"
"""`_meta` key that keeps a tool out of a client's own deferred loading."""

IDENTITY: Final[dict[str, Any]] = {"name": "foretool", "title": "foretool", "version": __version__}
"""How we name ourselves, as a server and as a client (`Implementation`)."""

IDENTITY_RAW: Final = raw(IDENTITY)
COMPLETE: Final = Raw(b'"complete"')

MAY_ASK: Final = frozenset({"tools/call", "prompts/get", "resources/read", "tasks/result"})
"""Requests whose result may be `input_required`, or during which a legacy upstream may ask the client."""


def other_era(era: Era) -> Era:
    return "modern" if era == "legacy" else "legacy"
