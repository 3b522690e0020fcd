"""The nouns every folder speaks: what exists, what a client saw, what was called, what was missed.

Frozen structs that import nothing of ours; `msgspec.structs` replaces or unpacks them. Times are seconds since the
epoch (UTC, float); durations are milliseconds; tokens are counted by `retrieval.tokens`; `id` is 0 until the store has
given one.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NewType

from msgspec import Struct

ToolId = NewType("ToolId", str)
"""A tool's exposed name: unique in the catalog, at most 49 characters, stable across restarts."""

Era = Literal["legacy", "modern"]
"""`legacy`: protocol versions with an `initialize` handshake (to 2025-11-25); `modern`: 2026-07-28 and later."""

Policy = Literal["frozen", "growing", "full"]
Level = Literal["high", "medium", "low", "none"]
Noticed = Literal["call", "bridge", "discovery", "nothing_found", "unknown_name"]
"""How a miss came to light: a hidden tool called by its name, or through `call_tool`; a tool that a discovery found and
that was then called; a discovery without a match; a name that no upstream has."""

Cause = Literal["rank", "budget", "gate", "policy", "offline", "denied", "name_limit", "unknown"]
Outcome = Literal["ok", "tool_error", "error", "cancelled", "lost"]
"""`tool_error`: the result said `isError`; `error`: a JSON-RPC error; `lost`: the upstream died or timed out."""


class Tool(Struct, frozen=True):
    """One tool of one upstream, as the upstream sent it."""

    id: ToolId
    upstream: str
    name: str
    definition: bytes
    """The tool object of the upstream's `tools/list`, as compact JSON, unknown fields kept."""
    schema_hash: str
    """Hex SHA-256 of `definition`; a new hash is a new version of the tool."""
    tokens: int | None = None
    """Tokens of the definition as a client sees it; None until counted."""


class UpstreamRecord(Struct, frozen=True):
    """What we remember of an upstream between runs."""

    name: str
    fingerprint: str
    """Hash of how it is reached (command, arguments, URL, names of variables; never their values)."""
    era: Era | None
    """The era it was last spoken to in."""
    server_info: str
    """JSON of `serverInfo`, or ""."""
    instructions: str
    capabilities: str
    """JSON of the server's capabilities, or ""."""
    listed_at: float
    """When `tools/list` was last answered; 0 if never."""
    lacks: Era | None = None
    """The era it is known not to speak."""


class SessionRecord(Struct, frozen=True):
    """One client's conversation: a stdio process, a legacy HTTP session, or a modern caller."""

    key: str
    """128 random bits in hex; the primary key."""
    client: str
    version: str
    era: Era
    transport: Literal["stdio", "http"]
    profile: str
    started_at: float
    ended_at: float | None = None
    """None while it runs, and for ever if its process was killed."""


class Exposure(Struct, frozen=True):
    """One tool list as a client was given it."""

    session: str
    at: float
    policy: Policy
    epoch: int
    tools: tuple[ToolId, ...]
    tokens: int
    reason: Literal["list", "growth", "epoch"]
    id: int = 0


class Match(Struct, frozen=True):
    """A tool in the answer of a discovery."""

    tool: ToolId
    rank: int
    """1 is best."""
    score: float
    parts: dict[str, float] = {}
    """Contribution of each ranker to `score`."""


class Discovery(Struct, frozen=True):
    """One call of `discover_tools` and what it found."""

    session: str
    at: float
    task: str
    names: tuple[str, ...]
    sufficiency: float | None
    level: Level
    matches: tuple[Match, ...]
    tokens: int
    """Tokens of the answer."""
    took_ms: float
    id: int = 0
    handle: str = ""
    """Which of the session's conversations it belongs to; "" where nobody said."""
    probability: float | None = None
    """That a needed tool was among the first five, as the gate said it then; None where it had nothing to say."""


class DiscoveryOutcome(Struct, frozen=True):
    """Whether the tool that was needed stood in the answer of a discovery."""

    at: float
    """When the discovery was made."""
    probability: float | None
    """As in its `Discovery`."""
    rank: int | None
    """Rank of the tool that was called first; None if another tool was needed, or the client searched again."""


class Need(Struct, frozen=True):
    """A moment at which a conversation needed a tool that was not in its list."""

    session: str
    handle: str
    at: float


class Event(Struct, frozen=True):
    """Something that happened in one conversation."""

    at: float
    kind: Literal["prompt", "task", "call"]
    text: str
    """The words of the prompt or the task, or the tool that was called."""
    ok: bool = True
    """False for a call that failed."""
    handle: str = ""
    """The conversation within the session, where that is known."""
    session: str = ""


class Prompt(Struct, frozen=True):
    """What a user asked a client for, as a prompt hook told us; see `foretool hint`."""

    at: float
    text: str
    session: str = ""
    """The client's own name for its conversation; none of our sessions."""
    cwd: str = ""
    """The folder the client works in."""
    id: int = 0


class StepRecord(Struct, frozen=True):
    """What was put together for one step: the telemetry of ITR (section 12)."""

    session: str
    at: float
    task: str
    tools: tuple[ToolId, ...]
    fragments: tuple[str, ...]
    """Ids of instruction fragments, the overlay's included."""
    tokens: int
    budget: int
    probability: float
    """Of a needed tool being among those shown, as the gate saw it."""
    sufficiency: float | None
    """The model's own rating that asked for this selection; None for the first of a step."""
    fallback: Literal["none", "expand", "discover"]
    cached: bool
    error: str
    took_ms: float
    id: int = 0


class Call(Struct, frozen=True):
    """One tool call with its outcome; written before the result is sent."""

    session: str
    at: float
    tool: ToolId
    upstream: str
    via: Literal["name", "bridge"]
    hidden: bool
    """The tool was not in the client's list when it was called."""
    outcome: Outcome
    took_ms: float
    sent: bool
    """The request had left for the upstream."""
    arguments: str
    """"" (record off), JSON of argument names and types (shape), or the arguments themselves (full)."""
    discovery: int = 0
    """Id of the discovery that had found the tool, or 0."""
    id: int = 0
    handle: str = ""
    """As that of a `Discovery`."""


class Miss(Struct, frozen=True):
    """A needed tool that the client did not see."""

    session: str
    at: float
    tool: str
    """Exposed name; for an unknown name what was asked for; "" when a discovery found nothing."""
    noticed: Noticed
    cause: Cause
    rank: int
    """The tool's rank for the list's query, or in the discovery that found it; 0 if it had none."""
    of: int
    """How many tools were ranked."""
    query: str
    """The task in words, if one is known."""
    history: tuple[ToolId, ...]
    """The tools called before, oldest first, at most the last 20."""
    exposure: int
    """Id of the list the client had, or 0."""
    discovery: int
    change: str
    """The cheapest change that would have shown the tool, in words."""
    recovered: Literal["called", "discovered", "suggested", "no"]
    turns: int
    """Extra turns it cost."""
    tokens: int
    """Extra tokens it cost."""
    parts: dict[str, float] = {}
    id: int = 0
    call: int = 0
    """Id of the call that revealed it, or 0. Until it is written: the place of that call in its batch, 1 the first."""


class ClientRecord(Struct, frozen=True):
    """What we measured about one client name and version (the client ledger)."""

    client: str
    version: str
    era: Era
    announced: int
    """`list_changed` notifications sent to it."""
    relisted: int
    """How many of them it answered with a `tools/list` in time."""
    relist_ms: float
    """Median delay of those; 0 if none."""
    last_seen: float


class Usage(Struct, frozen=True):
    """How often and how lately a tool was called, for the working set."""

    tool: ToolId
    calls: int
    misses: int
    last_at: float


class Episode(Struct, frozen=True):
    """One task and the calls it took, as training reads it."""

    calls: tuple[ToolId, ...]
    """In order; none for a task that needed no tool."""
    tasks: tuple[str, ...] = ()
    """The task in words, the first known first; none where nobody said it."""
    edges: tuple[tuple[int, int], ...] | None = None
    """Places in `calls` of which the first must come before the second; None where only the order is known."""
    ended: bool = True
    """The task was done after the last call; False for one that may have gone on unseen."""
    source: Literal["log", "import"] = "log"
    at: float = 0.0
    """When it began; 0 for an imported one."""
    key: str = ""
    """Where it comes from: session and number in the log, the id in a file."""


class Flow(Struct, frozen=True):
    """A value of one tool's result that came back as an argument of another; only where, never which."""

    before: ToolId
    after: ToolId
    field: str
    """Where it stood in the result; "" where that is not known."""
    parameter: str
    times: int
    last_at: float


FlowKey = tuple[ToolId, ToolId, str, str]
"""The tool whose result had the value, the tool that received it, the field ("" if not known), and the parameter."""


class ToolVersion(Struct, frozen=True):
    """One definition that a tool of an upstream has had."""

    schema_hash: str
    definition: bytes
    tokens: int | None
    first_seen: float


class WorkingSet(Struct, frozen=True):
    """The list of a profile, as it is served until the next epoch."""

    key: str
    """Whatever decides the list besides the catalogue: the profile, and the policy where it matters."""
    epoch: int
    """Counts up from 1."""
    tools: tuple[ToolId, ...]
    listing: bytes
    """The `tools` array of the answer, byte for byte."""
    created_at: float
    inputs: str = ""
    """What it was worked out from, as its maker spells it; tells whether it still holds."""


class UpstreamState(Struct, frozen=True):
    """How one upstream of one running proxy is doing; written by the proxy, shown by `foretool status`."""

    pid: int
    """Of the proxy."""
    started_at: float
    """When the proxy started."""
    upstream: str
    state: str
    since: float
    era: Era | None
    tools: int
    restarts: int
    skipped_lines: int
    """Lines on its stdout that were not messages."""
    last_error: str
    stderr: tuple[str, ...]
    """Its last lines, oldest first."""


class Statistics(Struct, frozen=True):
    """What one storage file holds; counts of rows."""

    upstreams: int
    tools: int
    versions: int
    sessions: int
    exposures: int
    discoveries: int
    calls: int
    misses: int
    clients: int
    file_bytes: int
    """Without the write-ahead log."""


KEPT_MODELS: Final = 3
"""Models of a kind whose bytes are kept: the one that is served, and those it can be rolled back to."""


class Artifact(Struct, frozen=True):
    """One trained model, without its bytes."""

    id: int
    kind: str
    """The method, as `Method.name` spells it."""
    number: int
    """Counts up from 1 within its kind."""
    created_at: float
    sha256: str
    """Hex SHA-256 of its bytes."""
    size: int
    """Number of bytes that are kept; 0 if it was never served, or is too old."""
    active: bool
    """Whether it is served."""
    previous: int
    """Id of the model that it replaced, or 0."""
    promoted_at: float
    """When it was first served; 0 if it never was."""
    report: dict[str, Any]
    """What it was trained on, and how it compared with the model served then."""


class Health(Struct, frozen=True):
    """What an examination of a store found."""

    version: int
    """Schema of the store."""
    newest: int
    """Schema that this program knows."""
    is_foreign: bool
    """Another program made the file."""
    is_writable: bool
    """The file can be written, and so can its directory, for the log beside it."""
    problems: tuple[str, ...]
    """What the engine's own check complains about."""
    is_complete: bool
    """The check ended in time."""
