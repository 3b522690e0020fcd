"""The records that every folder uses: what exists, what a client saw, what was called, what was missed.

Records are frozen structs; this file imports nothing else of foretool. Times are seconds since the epoch (UTC, float),
durations are milliseconds, and tokens are counted by `retrieval.tokens`. An `id` is 0 until the store has assigned one.
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
PERIOD_S = 900
"""Costs are added up by quarters of an hour, of which the days of every time zone are made."""

Noticed = Literal["call", "bridge", "discovery", "search", "nothing_found", "unknown_name", "shell"]
"""What revealed a miss: a call of a hidden tool by its name (`call`) or through `call_tool` (`bridge`), a call of a
tool that a discovery had found, a discovery that did not show what was needed (`search`: another tool was called, or
the client searched again), a discovery without a match, a name that no upstream has, or a command of the client's shell
that did what the tool does (`shell`)."""

Cause = Literal[
    "rank", "budget", "stale", "gate", "policy", "offline", "preparing", "denied", "gone", "failing", "app", "bypass",
    "unused", "unknown",
]  # fmt: skip
Approval = Literal["approved", "held", "blocked"]
"""`held`: waits for the user's decision; `blocked`: the user has refused it. Only what is approved is served."""

DefinitionKind = Literal[
    "launch", "tool", "instructions", "prompt", "prompt_list", "prompt_text", "resource", "resource_list", "template",
    "template_list", "skill", "skill_list", "shown", "begun", "asked",
]  # fmt: skip
"""`launch`: how the server is reached; `resource`: the words of a resource; `template`: a template of resources;
`skill`: a skill with the digests of its files; `prompt_list` and the like: that it has listed them; `prompt_text`: what
a prompt says; `shown`: which definitions somebody has looked at; `begun`: which first list is being written, by its
digest; `asked`: when a list of this kind was first asked for in vain."""

FirstSight = Literal["kept", "known", "lost"]
"""What came of keeping what was seen first. `known`: another list was seen first; `lost`: another proxy is writing
another list, so nobody knows yet."""

Effect = Literal["new", "kept", "withheld"]
"""What an undecided definition means. `new`: no version of it was approved; `kept`: the approved version is served;
`withheld`: the approved version would not fit any more, so calls are refused."""

Outcome = Literal["ok", "tool_error", "error", "cancelled", "lost", "refused"]
"""`tool_error`: the result said `isError`; `error`: a JSON-RPC error; `lost`: the upstream died or timed out;
`refused`: a rule, the config or the user did not let the call through, its arguments were wrong, or its server was
down, so it never left and counts as no use of the tool."""
FAILED: Final[tuple[Outcome, ...]] = ("tool_error", "error", "lost")
"""The outcomes of calls that ran and came to nothing."""
ListReason = Literal["list", "growth", "epoch"]
ShownIn = Literal["hint", "prompt", "named"]
"""What named hidden tools: a block that foretool appended to an answer, the text of the prompt hook, or the definitions
of our bridges in the list, whose tokens count with the list."""


AuditAction = Literal["call", "decide", "fix", "connect"]
"""`call`: a tool was called, or the call was refused; `decide`: a change of a server was approved or blocked on review;
`fix`: the config was changed on the page to show a missed tool, or that was taken back; `connect`: a person has allowed
access to a server (`per_user`), or that was ended."""


class Person(Struct, frozen=True):
    """Somebody who calls tools or decides."""

    principal: str
    """Never of two people: `bearer:` for a token of the config, `oauth:` for a person of an authorization server,
    `user:` for a user of this machine."""
    name: str
    """In words, as the config, the authorization server or the system says; others may have the same."""

    @property
    def signs_in(self) -> bool:
        """Whether an authorization server says who it is."""
        return self.principal.startswith("oauth:")


class AuditEntry(Struct, frozen=True):
    """Who did what. Never changed and never deleted by foretool."""

    at: float
    principal: str
    name: str
    client: str
    """The program, as it calls itself; "" for a command or the page."""
    profile: str
    action: AuditAction
    target: str
    """The tool that was called, the server that was decided about, or the miss."""
    outcome: str
    """`Outcome` of a call; `approved` or `blocked`; `connected` or `disconnected`; what was done."""
    detail: str = ""
    """What was decided about, in words."""
    session: str = ""
    id: int = 0


class AuditFilter(Struct, frozen=True, kw_only=True):
    """Which entries of the audit log are wanted; "" stands for all."""

    since: float = 0.0
    until: float = 1e12
    principal: str = ""
    """A principal, or a name."""
    subject: str = ""
    """The principal of the person whom `principal` is the `sub` of; "" for none."""
    action: str = ""
    target: str = ""


class Tool(Struct, frozen=True):
    """One tool of one upstream, as the upstream sent it."""

    id: ToolId
    upstream: str
    name: str
    definition: bytes
    """The tool object from the upstream's `tools/list`, as compact JSON with its unknown fields."""
    schema_hash: str
    """Hex SHA-256 of `definition`; a new hash is a new version of the tool."""
    tokens: int | None = None
    """Tokens of the definition as a client sees it; None until they are counted."""


class Definition(Struct, frozen=True):
    """One version of one text of a server, and what was decided about it."""

    server: str
    kind: DefinitionKind
    name: str
    """The tool's or the prompt's own name; "" for a kind of which a server has one."""
    hash: str
    """Hex SHA-256 of `value`, whatever its spelling. Four fields name a definition: server, kind, name and hash."""
    value: bytes
    state: Approval = "held"
    seen_at: float = 0.0
    """When it was first seen, or decided on."""
    exposed: str = ""
    """The name under which clients would see it."""
    fingerprint: str = ""
    """`UpstreamRecord.fingerprint` of the server that listed it."""
    version: str = ""
    """What the server said its version was."""
    effect: Effect = "new"


class DefinitionHead(Struct, frozen=True):
    """A definition without its value, for those who only compare hashes."""

    name: str
    hash: str
    state: Approval


class HeldHead(Struct, frozen=True):
    """A held definition without its value."""

    server: str
    kind: DefinitionKind
    name: str
    hash: str
    effect: Effect


class UpstreamRecord(Struct, frozen=True):
    """What is known about an upstream between runs."""

    name: str
    fingerprint: str
    """Hash of how to reach it (command, arguments, URL, names of variables; never their values)."""
    era: Era | None
    """The era of the last conversation with it."""
    server_info: str
    """JSON of `serverInfo`, or ""."""
    instructions: str
    capabilities: str
    """JSON of the server's capabilities, or ""."""
    listed_at: float
    """When it last answered `tools/list`; 0 if never."""
    lacks: Era | None = None
    """The era that it is known not to support."""
    likeness: str = ""
    """Hash of what it runs, with the program by its name alone, or of its address; "" of one that an earlier foretool
    saved."""


SHELL_CLIENT: Final = "foretool call"
"""The client of calls from a shell. It reads no list, so sums of what lists cost and save leave it out."""


class SessionRecord(Struct, frozen=True):
    """One client's connection: a stdio process, a legacy HTTP session, or a modern caller."""

    key: str
    """128 random bits in hex; the primary key."""
    client: str
    version: str
    era: Era
    transport: Literal["stdio", "http"]
    profile: str
    started_at: float
    ended_at: float | None = None
    """None while it runs, and for good if its process was killed."""


class SessionSum(Struct, frozen=True):
    session: SessionRecord
    calls: int
    hidden: int
    """Calls that ran, of tools that its list lacked."""
    misses: int
    last_at: float
    """When it called last; 0 if it never did."""
    refused: int = 0
    failed: int = 0


class Exposure(Struct, frozen=True):
    """One tool list that a client received, or the tools that another text of foretool put before its model.

    The text of a prompt hook that reached no running proxy has the client's own id of its conversation as `session`.
    """

    session: str
    at: float
    policy: Policy
    epoch: int
    tools: tuple[ToolId, ...]
    tokens: int
    reason: ListReason | ShownIn
    id: int = 0


class Match(Struct, frozen=True):
    """A tool in the answer of a search."""

    tool: ToolId
    rank: int
    """1 is best."""
    score: float
    parts: dict[str, float] = {}
    """The contribution of each ranker to `score`."""


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
    """The conversation within the session; "" if not known."""
    probability: float | None = None
    """The gate's prediction that the first five matches, or all if they are fewer, contain a needed tool; None if it
    made none."""
    first_probability: float | None = None
    """The gate's prediction that the first match is a right one; None if it made none of this match."""


class DiscoveryOutcome(Struct, frozen=True):
    """Whether the tool that was needed stood in the answer of a discovery."""

    at: float
    """When the discovery was made."""
    probability: float | None
    """As in its `Discovery`."""
    rank: int | None
    """Rank of the tool that was called first; None if another tool was needed, or the client searched again."""
    first: ToolId
    """The first match."""
    first_probability: float | None
    """As in its `Discovery`."""


class Event(Struct, frozen=True):
    """A prompt, a search or a call in one conversation."""

    at: float
    kind: Literal["prompt", "task", "call"]
    text: str
    """The words of the prompt or the task, or the tool that was called."""
    ok: bool = True
    """False for a call that failed."""
    handle: str = ""
    """The conversation within the session, where that is known."""
    session: str = ""
    arguments: str = ""
    """Of a call, as in `Call`."""
    discovery: int = 0
    """Of a call, as in `Call`, where that is asked for."""


class Retry(Struct, frozen=True):
    """A call that failed, and the next one of its conversation, of another tool, which worked."""

    session: str
    handle: str
    """The conversation within the session, where that is known."""
    failed_at: float
    failed: ToolId
    at: float
    tool: ToolId


class AnswerSummary(Struct, frozen=True):
    """The task of a search and the tools that it found, without the rest of its `Discovery`."""

    id: int
    at: float
    task: str
    tools: tuple[ToolId, ...]
    """The best first."""


class CostEvent(Struct, frozen=True):
    """A list, hint, search, call or miss of a session, with the tokens that it put before the model."""

    session: str
    at: float
    kind: Literal["list", "hint", "discovery", "call", "miss"]
    """`hint`: a text that named tools, of a prompt hook too; `miss`: a needed tool that the client did not see."""
    tokens: int = 0
    """Tokens of the list, the text or the answer that was put before the model."""
    hidden: bool = False
    """The called tool was not in the list; of a miss: a call revealed it."""
    id: int = 0
    """Of its record; ids of calls, discoveries, lists and misses count apart."""
    outcome: Outcome | Literal[""] = ""
    """Of a call."""


class LogPart(Struct, frozen=True):
    """What sessions were shown and did, in a part of the log whose costs are not added up yet."""

    turns: list[CostEvent]
    """In no fixed order."""
    events: list[Event]
    """The calls and tasks of that time, also those of turns that are added up."""
    prompts: list[Prompt]
    """The prompts of that time, the oldest first."""
    until: float | None
    """The part ends here because it is long enough; None if it goes to the end of the log."""
    finished: float
    """What ended before this time was added up as finished."""
    ids: dict[str, tuple[int, int]]
    """By table: the last record that was added up before, and the last one of this part."""


class CatalogSize(Struct, frozen=True):
    """What the definitions of all tools take from a time on."""

    at: float
    tokens: int


VSCODE_BUILDS: Final = frozenset({"visual studio code", "code - oss", "code-server", "vscodium"})
"""How VS Code and the builds of its source call themselves, in lower case; all run the hooks of VS Code."""


def is_called(called: str, hook: str) -> bool:
    """Return whether a client that calls itself `called` may be the one whose hook names it `hook`, in lower case: with
    a part of that name, or with that of another build of the same client."""
    names = VSCODE_BUILDS if hook in VSCODE_BUILDS else (hook,)
    return any(each in called.lower() for each in names)


class Prompt(Struct, frozen=True):
    """What a user asked a client for, as a prompt hook reported it; see `foretool hint`."""

    at: float
    text: str
    session: str = ""
    """The client's own id of its conversation; not the key of a `SessionRecord`."""
    cwd: str = ""
    """The folder the client works in."""
    client: str = ""
    """The client whose hook it came from, as `is_called` takes it."""
    owner: str = ""
    """The key of the `SessionRecord` whose user wrote it, where only one can be meant; else ""."""
    id: int = 0

    def may_be_of(self, session: str, client: str) -> bool:
        """Return whether it may be what the user of this session asked; `client`: what that session's client calls
        itself. Records of older versions name no client, so they may be anyone's."""
        if self.owner:
            return self.owner == session
        return is_called(client, self.client)


class StepRecord(Struct, frozen=True):
    """What was selected for one step of an agent: the telemetry of ITR (section 12)."""

    session: str
    at: float
    task: str
    tools: tuple[ToolId, ...]
    fragments: tuple[str, ...]
    """Ids of instruction fragments, the overlay's included."""
    tokens: int
    budget: int
    probability: float
    """The gate's prediction that the selected tools contain a needed one."""
    sufficiency: float | None
    """The model's rating that led to this selection; None for the first selection of a step."""
    fallback: Literal["none", "expand", "discover"]
    cached: bool
    error: str
    took_ms: float
    id: int = 0


class Call(Struct, frozen=True):
    """One tool call with its outcome, written before the result is sent."""

    session: str
    at: float
    tool: ToolId
    upstream: str
    via: Literal["name", "bridge"]
    hidden: bool
    """Whether the tool was missing from the client's list when it was called."""
    outcome: Outcome
    took_ms: float
    sent: bool
    """Whether the request was sent to the upstream."""
    arguments: str
    """"" (record off), JSON of argument names and types (shape), or the arguments themselves (full)."""
    discovery: int = 0
    """Id of the discovery that found the tool, or 0."""
    id: int = 0
    handle: str = ""
    """As in `Discovery`."""


class KeptCall(Struct, frozen=True):
    """A call that takes longer than its client waits."""

    ident: str
    """Hard to guess; the client asks for the result with it."""
    owner: str
    """Who may ask: credential and profile of the client that called."""
    session: str
    tool: ToolId
    upstream: str
    task: str
    """The id of the upstream's task that carries it out, "" if it is a plain request."""
    era: Era
    """Of the client that called."""
    machine: str
    pid: int
    process_at: float
    """The proxy that waits for the upstream: its machine, its process, and when that began."""
    started_at: float
    until: float
    """When it is forgotten."""
    reply: str
    """The members of the reply as JSON, `result` or `error`; "" while it runs."""
    record: str
    """The `Call` to record once it is over, as JSON."""


Recovered = Literal["called", "discovered", "suggested", "shell", "no"]
"""What came of a miss; `foretool misses` says each in words."""
MissKind = Literal["tool", "search", "name"]
"""What was missed: a tool that the client did not see or went round, what a search was for after which no tool was
called, or a name that no server has."""


def kind_of_miss(noticed: Noticed, cause: Cause, *, is_of_call: bool) -> MissKind:
    """Return what was missed. `is_of_call`: whether a call revealed it."""
    if noticed in ("search", "nothing_found") and not is_of_call:
        return "search"
    # A name that is denied is that of a tool whose server the profile leaves out.
    return "name" if noticed == "unknown_name" and cause != "denied" else "tool"


UNSERVED: Final = "add a server that has such a tool: probably none of yours does"
"""The change that would have helped a search whose answer doubted that any tool of it serves."""
UNNAMED: Final = "add the server that has it, or correct the name"
"""The change that would have helped a client that gave a name which no server has."""


class Miss(Struct, frozen=True):
    """A needed tool that the client did not see, or that it went round (`bypass`)."""

    session: str
    at: float
    tool: str
    """The exposed name; the requested name if no tool has it; "" if a discovery found nothing."""
    noticed: Noticed
    cause: Cause
    rank: int
    """The tool's rank for the list's query, or in the discovery that found it; 0 without a rank."""
    of: int
    """How many tools were ranked."""
    query: str
    """The task in words, if it is known."""
    history: tuple[ToolId, ...]
    """The tools called before, the oldest first; at most the last 20."""
    exposure: int
    """Id of the list that the client had, or 0."""
    discovery: int
    change: str
    """The cheapest change that would have exposed the tool, in words."""
    recovered: Recovered
    turns: int
    """Extra turns that the miss cost."""
    tokens: int
    """Extra tokens that the miss cost."""
    parts: dict[str, float] = {}
    id: int = 0
    call: int = 0
    """Id of the call that revealed it, or 0. Before it is written: the place of that call in its batch, from 1."""

    @property
    def kind(self) -> MissKind:
        return kind_of_miss(self.noticed, self.cause, is_of_call=self.call > 0)


class MissFilter(Struct, frozen=True):
    """Which misses are wanted; a miss has to fit every condition that is given."""

    since: float = 0.0
    until: float | None = None
    server: str = ""
    """Only misses of tools of this upstream."""
    tool: str = ""
    """A part of the name in upper or lower case, or a shell pattern."""
    cause: Cause | None = None
    client: str = ""
    """The client's name, in upper or lower case."""
    profile: str | None = None
    """"" is the list without a profile; None is every list."""
    recovered: bool | None = None


class MissCount(Struct, frozen=True):
    """How often one tool was missed for one cause."""

    tool: str
    """"" for searches after which no tool was called."""
    cause: Cause
    count: int
    recovered: int
    """How many of them the client recovered from."""
    turns: int
    tokens: int
    last_at: float
    last_id: int
    kind: MissKind = "tool"

    def with_more(self, more: MissCount) -> MissCount:
        sums = (self.count + more.count, self.recovered + more.recovered, self.turns + more.turns,
                self.tokens + more.tokens)  # fmt: skip
        last = (max(self.last_at, more.last_at), max(self.last_id, more.last_id))
        return MissCount(self.tool, self.cause, *sums, *last, self.kind)


class MissedNeed(Struct, frozen=True):
    """A miss as training reads it: a search, and the hidden tool that it was for."""

    at: float
    task: str
    """The words that the client searched with."""
    tool: ToolId
    """The hidden tool that it then called."""
    shown: tuple[ToolId, ...] = ()
    """Tools that stood above it in the answer."""


class ClientRecord(Struct, frozen=True):
    """What was measured about one client name and version."""

    client: str
    version: str
    era: Era
    announced: int
    """How many `list_changed` notifications it received."""
    relisted: int
    """How many of them it followed with a `tools/list` in time."""
    relist_ms: float
    """Median delay of those `tools/list` requests; 0 if there were none."""
    last_seen: float
    recent: str = ""
    """The latest announcements, the newest last: `1` for each that it followed in time, else `0`."""
    tries: int = 0
    """How often its list grew only to see what it does."""
    late: int = 0
    """How many of the notifications that it did not follow in time it followed within half a minute."""
    whole_tokens: int = 0
    """Up to how many tokens a list of all tools was measured to cost it less than discoveries; 0 if not measured."""
    code_sessions: int = 0
    """In how many more sessions it gets all tools, because code of its model made its latest calls."""


class ConversationCost(Struct, frozen=True):
    """What discovery cost one session: the tokens of its list, and how often it searched. Only sessions whose list hid
    tools, and that called or searched something."""

    client: str
    list_tokens: int
    """Of its longest list."""
    discoveries: int


class Usage(Struct, frozen=True):
    """How often a tool was called and missed, and when it was called last."""

    tool: ToolId
    calls: int
    misses: int
    last_at: float


class ProfileCount(Struct, frozen=True):
    """What one client did within one hour, in sessions of one profile."""

    at: float
    """When the hour began."""
    client: str
    calls: int
    hidden: int
    misses: int
    discoveries: int
    refused: int = 0
    failed: int = 0


class Neighbour(Struct, frozen=True):
    """How often one client called another tool right before, or right after, a given one."""

    client: str
    tool: ToolId
    """"" stands for the beginning, or the end, of a session."""
    is_before: bool
    times: int


class Episode(Struct, frozen=True):
    """One task and its calls, as training reads them."""

    calls: tuple[ToolId, ...]
    """The calls in order; empty for a task that needed no tool."""
    tasks: tuple[str, ...] = ()
    """Descriptions of the task, the first one first; empty if none is known."""
    edges: tuple[tuple[int, int], ...] | None = None
    """Pairs of places in `calls`: the first must come before the second. None if only the order is known."""
    ended: bool = True
    """Whether the last call finished the task; False if the task may have continued unseen."""
    source: Literal["log", "import"] = "log"
    at: float = 0.0
    """When it began; 0 if it was imported."""
    key: str = ""
    """Its origin: session and number in the log, or the id in a file."""
    arguments: tuple[str, ...] = ()
    """For each call its arguments as JSON, values or types as in `Call`; empty if none of them are known."""
    failed: tuple[ToolId, ...] = ()
    """Tools that were called for the task and failed, and no call of theirs succeeded."""


class Flow(Struct, frozen=True):
    """A value of one tool's result came back as an argument of another; only the names of the fields are kept."""

    before: ToolId
    after: ToolId
    field: str
    """The field of the result; "" if not known."""
    parameter: str
    times: int
    last_at: float


FlowKey = tuple[ToolId, ToolId, str, str]
"""The tool whose result had the value, the tool that received it, the field of the result, and the parameter."""


class ToolVersion(Struct, frozen=True):
    """One definition that a tool of an upstream had."""

    schema_hash: str
    definition: bytes
    tokens: int | None
    first_seen: float


class WorkingSet(Struct, frozen=True):
    """The list of a profile, which is served unchanged until the next epoch."""

    key: str
    """The profile and the policy (`working_set_key`)."""
    epoch: int
    """Counts up from 1."""
    tools: tuple[ToolId, ...]
    listing: bytes
    """The `tools` array of the answer, byte for byte."""
    created_at: float
    inputs: str = ""
    """What the list was computed from, as a digest (`server.lists.maker`); a difference makes a new list."""
    named: tuple[ToolId, ...] = ()
    """The tools that the definitions of our bridges name, the most needed first."""


def working_set_key(profile: str, policy: Policy) -> str:
    """Return the key under which the list of a profile (`Profile.key`) is stored."""
    return f"{profile}/{policy}"


class UpstreamState(Struct, frozen=True):
    """The state of one upstream of one running proxy, which `foretool status` shows."""

    pid: int
    """Process id of the proxy."""
    started_at: float
    """When the proxy started."""
    upstream: str
    state: str
    since: float
    era: Era | None
    tools: int
    restarts: int
    skipped_lines: int
    """Lines on its stdout that were not JSON-RPC messages."""
    last_error: str
    stderr: tuple[str, ...]
    """Its last lines on stderr, the oldest first."""
    machine: str = ""
    """The name of the machine on which the proxy runs; "" for this one."""
    seen_at: float = 0.0
    """When the proxy last said that it runs."""


class Failure(Struct, frozen=True):
    """Why a server could not be used when it was last tried. It is kept until the server works."""

    server: str
    entry: str
    """Digest of its entry in the config: what was seen of one entry says nothing of an edited one."""
    code: str
    reason: str
    """What happened, its code, and what the user can do, in one line."""
    first_at: float
    last_at: float
    times: int
    """How often it has failed since `first_at`."""
    due_at: float
    """Until then, nobody waits for it."""


class Statistics(Struct, frozen=True):
    upstreams: int
    tools: int
    versions: int
    sessions: int
    exposures: int
    discoveries: int
    calls: int
    misses: int
    clients: int
    """By name, without `foretool call`."""
    file_bytes: int
    """Size of the file without its write-ahead log."""


class Selection(Struct, frozen=True):
    """Which records a user wants to have forgotten: those that fit every condition that is given."""

    since: float = 0.0
    before: float | None = None
    server: str = ""
    session: str = ""
    """The key of a session, or its first characters."""
    person: str = ""
    """Whose sessions and grants, as `AuditEntry.principal` says it."""
    tool: str = ""
    """A tool's exposed name, or its own."""
    texts: tuple[str, ...] = ()
    """Words that occur in a task, a prompt, an argument or another text."""
    everything: bool = False

    @property
    def names_tools_alone(self) -> bool:
        """Whether a server or a tool is given and nothing else, so that all that is known of it is meant."""
        is_narrowed = self.since or self.before is not None or self.session or self.person or self.texts
        return bool(self.server or self.tool) and not is_narrowed


class SealedGrant(Struct, frozen=True):
    """What one person has allowed foretool to do at one server, sealed."""

    server: str
    person: str
    sealed: bytes


class Forgotten(Struct, frozen=True):
    """What was deleted for a user, or would be."""

    counts: dict[str, int]
    """By kind of record; kinds without one are left out."""
    tasks: tuple[str, ...]
    """The tasks in words among them."""
    grants: tuple[SealedGrant, ...] = ()
    """What people had allowed, and was deleted: their tokens still count at the authorization servers."""


class Wording(Struct, frozen=True):
    """What a language model answered for one tool: how people word wishes that the tool serves."""

    digest: bytes
    """The hash of the text that the model was given (`retrieval.corpus.digest`)."""
    model: str
    version: int
    """The version of the question; another question may get other answers."""
    server: str
    tool: str
    """Its exposed name when the model was asked."""
    texts: tuple[str, ...]
    """() if none of the answer could be used."""
    tokens: int
    """Read and written by the model."""
    took_s: float
    at: float


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


class Holder(Struct, frozen=True):
    """Which process has a lead, and what it was last seen doing."""

    pid: int
    since: float
    """In seconds of the system clock, like `at`."""
    at: float
    doing: str = ""
    machine: str = ""
    """The machine of the process; "" for this one."""


class Health(Struct, frozen=True):
    """What an examination of a store found."""

    version: int
    """Schema of the store."""
    oldest: int
    """The first schema that was released."""
    newest: int
    """Schema that this program knows."""
    is_foreign: bool
    """Another program made the file."""
    is_writable: bool
    """The file and its directory are writable; the log is created beside the file."""
    problems: tuple[str, ...]
    """What the engine's own check complains about."""
    is_complete: bool
    """The check ended in time."""
    engine: str = ""
    """What a server says of itself; "" for a file."""


class LiveSession(Struct, frozen=True):
    """A session of a client that any replica may go on with."""

    ident: bytes
    """Digest of its id, which nobody can find out from it."""
    session: str
    """Key of its `SessionRecord`."""
    principal: str
    profile: str
    memo: bytes
    """What a replica needs to know to go on with it, sealed."""
    reader: str
    """The replica that has its stream for what belongs to no request, "" for none."""
    used_at: float
    revision: int = 0


class LiveEvent(Struct, frozen=True):
    """One event of a stream, sealed."""

    ident: bytes
    """The session."""
    stream: str
    number: int
    data: bytes
    last: int
    """1 for the last event of its stream, else 0."""
    at: float


class Letter(Struct, frozen=True):
    """A message from one replica to one or all others."""

    kind: str
    sender: str
    to: str = ""
    """The replica it is for, "" for all."""
    session: bytes = b""
    """The session that it is about."""
    data: bytes = b""
    """Sealed."""
