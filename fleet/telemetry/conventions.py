"""Names of spans, attributes and metrics: those of the GenAI and MCP semantic conventions of OpenTelemetry, and ours.

The conventions are in development, so every name stands here and nowhere else. `SPANS`, `ATTRIBUTES`,
`METRICS` and `SCRAPED` say what each is for, and `docs/observability.md` shows that.
"""

from __future__ import annotations

from typing import Final

# MCP: docs/gen-ai/mcp.md of open-telemetry/semantic-conventions-genai
METHOD: Final = "mcp.method.name"
SESSION: Final = "mcp.session.id"
PROTOCOL: Final = "mcp.protocol.version"
RESOURCE: Final = "mcp.resource.uri"
SERVER_DURATION: Final = "mcp.server.operation.duration"
CLIENT_DURATION: Final = "mcp.client.operation.duration"
SESSION_DURATION: Final = "mcp.server.session.duration"
BUCKETS_S: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""Bounds of the durations, in seconds, which the conventions give."""

# GenAI
OPERATION: Final = "gen_ai.operation.name"
EXECUTE_TOOL: Final = "execute_tool"
RETRIEVAL: Final = "retrieval"
TOOL: Final = "gen_ai.tool.name"
PROMPT: Final = "gen_ai.prompt.name"
ARGUMENTS: Final = "gen_ai.tool.call.arguments"
RESULT: Final = "gen_ai.tool.call.result"
SOURCE: Final = "gen_ai.data_source.id"
QUERY: Final = "gen_ai.retrieval.query.text"

# General
REQUEST_ID: Final = "jsonrpc.request.id"
STATUS_CODE: Final = "rpc.response.status_code"
ERROR: Final = "error.type"
TRANSPORT: Final = "network.transport"
HTTP: Final = "network.protocol.name"
ADDRESS: Final = "server.address"
PORT: Final = "server.port"
SERVICE: Final = "service.name"
VERSION: Final = "service.version"

# Ours
UPSTREAM: Final = "foretool.server"
PROFILE: Final = "foretool.profile"
CLIENT: Final = "foretool.client.name"
CALLED: Final = "foretool.tool"
VIA: Final = "foretool.via"
HIDDEN: Final = "foretool.hidden"
MISS: Final = "foretool.miss"
CAUSE: Final = "foretool.miss.cause"
NOTICED: Final = "foretool.miss.noticed"
RECOVERED: Final = "foretool.miss.recovered"
LEVEL: Final = "foretool.search.level"
MATCHES: Final = "foretool.search.matches"
TOKENS: Final = "foretool.tokens"
TOOLS: Final = "foretool.list.tools"
REASON: Final = "foretool.list.reason"
LISTED: Final = "foretool.list"
MISSES: Final = "foretool.misses"
SEARCHES: Final = "foretool.searches"
LIST_TOKENS: Final = "foretool.list.tokens"

OTHER: Final = "_OTHER"
"""Stands for a value that is not one of a known few."""
OTHER_TOOL: Final = "_other"
"""Stands for tools beyond those that get a series of their own."""
TOOL_ERROR: Final = "tool_error"
CANCELLED: Final = "cancelled"
LOST: Final = "lost"

ERRORS: Final = frozenset(
    {
        TOOL_ERROR, CANCELLED, LOST, "-32700", "-32600", "-32601", "-32602", "-32603", "-32000", "-32001", "-32002",
        "-32020", "-32021", "-32022", "-32042",
    }
)  # fmt: skip
"""Values of `error.type` that get a series of their own in metrics; a server may send any code."""

METHODS: Final = frozenset(
    {
        "completion/complete", "initialize", "logging/setLevel", "ping", "prompts/get", "prompts/list",
        "resources/list", "resources/read", "resources/subscribe", "resources/templates/list",
        "resources/unsubscribe", "server/discover", "subscriptions/listen", "tools/call", "tools/list",
    }
)  # fmt: skip
"""Methods that get a name of their own in span names and metrics."""

Row = tuple[str, str, str]

SPANS: Final[tuple[Row, ...]] = (
    (
        f"`{{{METHOD}}} {{target}}`",
        "SERVER",
        "A request of a client, until it is answered. `target`: the tool or prompt",
    ),
    (f"`{{{METHOD}}} {{target}}`", "CLIENT", "A request that foretool sends to a server for it"),
    (
        f"`{{{METHOD}}}`",
        "CLIENT",
        "A request of foretool's own to a server: `initialize`, `server/discover`, `tools/list`; a trace by itself",
    ),
    (f"`{RETRIEVAL} foretool`", "INTERNAL", "The search within a call of `discover_tools`"),
    (f"`{MISS}`", "event", "A tool was needed that the client did not see, on the span of the request that showed it"),
    (f"`{LISTED}`", "event", "A list was sent, on the span of its `tools/list`"),
)

ATTRIBUTES: Final[tuple[Row, ...]] = (
    (METHOD, "both", "The method, or `_OTHER` for one that MCP does not have"),
    (TOOL, "both", "The tool as its client names it, or as its server does"),
    (PROMPT, "both", "The prompt"),
    (RESOURCE, "both", "The resource that is read, without what follows a `?` or `#`"),
    (OPERATION, "both", "`execute_tool` for calls, `retrieval` for searches"),
    (REQUEST_ID, "both", "The id of the request on that side"),
    (SESSION, "SERVER", "foretool's own id of the session, as in the ledger; never the `Mcp-Session-Id` of a client"),
    (PROTOCOL, "both", "The version of MCP on that side"),
    (TRANSPORT, "both", "`pipe`, `tcp` or `unix`"),
    (HTTP, "both", "`http` where MCP goes over HTTP"),
    (ADDRESS, "CLIENT", "The host of a remote server, with `server.port`"),
    (
        ERROR,
        "both",
        "Why it failed: a JSON-RPC code, `tool_error`, `cancelled`, or `lost` where the server gave no reply",
    ),
    (STATUS_CODE, "both", "The JSON-RPC code of an error"),
    (CLIENT, "SERVER", "What the client calls itself"),
    (PROFILE, "SERVER", "The profile of the client, if it has one"),
    (CALLED, "SERVER", "The tool that ran, by its exposed name, also behind `call_tool`"),
    (UPSTREAM, "both", "The server of that tool, by its name in the config"),
    (VIA, "SERVER", "`name`, or `bridge` for `call_tool` and `call_tool_write`"),
    (HIDDEN, "SERVER", "Whether the client's list lacked the tool"),
    (
        CAUSE,
        MISS,
        "Why it was missed, as `foretool misses` says it; with `foretool.miss.noticed` and `foretool.miss.recovered`",
    ),
    (SOURCE, RETRIEVAL, "`foretool`"),
    (LEVEL, RETRIEVAL, "How sure the search was: as in the answer of `discover_tools`"),
    (MATCHES, RETRIEVAL, "How many tools it found"),
    (TOKENS, f"{RETRIEVAL}, {LISTED}", "Tokens of the answer, or of the list"),
    (TOOLS, LISTED, "How many tools were listed; `foretool.list.reason` says why a list was made"),
    (ARGUMENTS, "CLIENT", "The arguments of a call, without secrets; only with `telemetry: full`"),
    (RESULT, "CLIENT", "The result of a call, without secrets; only with `telemetry: full`"),
    (QUERY, RETRIEVAL, "The task of a search; only with `telemetry: full`"),
)

METRICS: Final[tuple[Row, ...]] = (
    (SERVER_DURATION, "s", "How long requests of clients took, by method, tool and error"),
    (CLIENT_DURATION, "s", "How long servers took to answer, by method, server, tool and error"),
    (SESSION_DURATION, "s", "How long sessions of clients lasted"),
    (SEARCHES, "searches", "Answers of `discover_tools`, by level"),
    (MISSES, "misses", "Tools that were needed and not seen, by cause"),
    (LIST_TOKENS, "tokens", "Tokens of the lists that clients got"),
)

SCRAPED: Final[tuple[Row, ...]] = (
    ("foretool_calls", "counter; server, outcome", "Calls of tools"),
    ("foretool_call_seconds", "histogram; server", "How long calls took that were sent to a server"),
    ("foretool_discoveries", "counter; level", "Answers of discover_tools"),
    ("foretool_discovery_seconds", "histogram", "How long searches took"),
    ("foretool_misses", "counter; cause", "Tools that were needed and not seen"),
    ("foretool_lists", "counter; reason", "Lists that were made for clients"),
    ("foretool_list_tokens", "histogram", "Tokens of these lists"),
    ("foretool_list_tools", "histogram", "Tools of these lists"),
    ("foretool_server_state", "gauge; server, state", "1 for the state that a server is in, 0 for the others"),
    ("foretool_server_starts", "counter; server", "How often a server was started"),
    ("foretool_server_in_flight", "gauge; server", "Requests to a server that are not answered"),
    ("foretool_tools", "gauge", "Tools of all servers"),
    ("foretool_clients", "gauge", "Clients that are connected"),
    ("foretool_sessions", "gauge", "Their sessions"),
    ("foretool_requests_in_flight", "gauge", "Requests of clients that are not answered"),
    ("foretool_records_waiting", "gauge", "Records that the store does not have yet"),
    ("foretool_records_lost", "counter", "Records that were given up"),
    ("foretool_store_failures", "counter", "How often the store refused something"),
    ("foretool_build", "info; version, python", "Which foretool runs"),
)
"""What `/metrics` tells, by the names that Prometheus gives to a family."""
