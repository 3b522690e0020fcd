"""The config file, key by key: every setting with its type, unit, default and meaning.

`docs/configuration.md` is generated from these structs (`python docs/generate.py`). They hold the file as people
write it; `loader.py` checks it and expands its variables.
"""

from typing import Annotated, ClassVar, Final, Literal

from msgspec import Meta, Struct

from foretool.storage.places import read_place

# What no user has to choose: times, sizes and habits of the proxy that are the same for all, each with its reason.
#
# Code reads them like settings (`config.settings.hold_ms`). A file sets them only for tests and measurements: under
# `foretool.limits`, where the environment has `FORETOOL_LIMITS`.


FROM_FILE: Final = "FORETOOL_LIMITS"
"""The variable of this process that lets a file set limits."""


class Limits(Struct, frozen=True, kw_only=True):
    """Settings that are the same for all profiles and people; `Settings` adds the others."""

    hold_ms: int = 500
    """How long a result waits for a client to list its tools again: clients that do so need 20 to 200 ms."""
    cold_list_s: float = 2.0
    """How long the first list of a client waits for servers whose tools are not known yet; some clients give up after
    five seconds."""
    cold_search_s: float = 10.0
    """How long a search waits for servers that are starting and whose tools are not known yet, and a call by name for a
    server that is known to fail: a model waits gladly for an answer that has them."""
    epoch_s: float = 86_400.0
    """How often a list may change while it is in use: a prompt cache lives for minutes, habits for days. 0: only when
    the catalog does, or after learning."""
    list_whole: bool = True
    """Whether every tool is listed where all of them fit: nothing has to be discovered then."""
    list_whole_tokens: int = 10_000
    """All tools are listed up to so many tokens where `list_tokens` is not set: with all tools of a small catalog a
    model does more than with a search (`docs/agents.md`)."""
    list_fill: bool = True
    """Whether what is left of `list_tokens` is filled with tools that are probably needed."""
    list_names: bool = True
    """Whether a list names tools that it does not define: without that, a search must find them."""
    hint_threshold: float = 0.1
    """How probable a next call has to be for an answer to name its hidden tool."""
    shipped_wordings: bool = True
    """Whether tools of well-known servers are also found by the wordings that come with foretool."""
    share_words: int = 3
    """People who must have used a word over HTTP before it enters what is learned for all: one cannot be told from two
    others."""
    linger_s: float = 10.0
    """How long a shared proxy stays after its last window has gone: a client that restarts finds it."""
    unused_stop_s: float = 600.0
    """How long a local server runs after its last call once every client that called it has gone."""
    session_idle_s: float = 1800.0
    """How long an HTTP session lives without a request; 0: for ever."""
    header_s: float = 10.0
    """How long an HTTP connection may take until the header lines of a request are complete: slower is an attack."""
    max_bodies_mib: float = 64.0
    """How much all HTTP messages together may hold while they are received and answered, besides 64 KiB of each."""


PolicyChoice = Literal["auto", "frozen", "growing", "full"]
Trust = Literal["pin", "review", "auto"]
Record = Literal["off", "shape", "full"]
Commit = Literal["before", "behind"]
Telemetry = Literal["off", "on", "full"]
Bridges = Literal["by_risk", "one"]
Confirm = Literal["never", "destructive", "write", "all"]
LogLevel = Literal["debug", "info", "warning", "error"]
Risk = Literal["read", "write", "destructive"]
CLASSES = ("@write", "@destructive")
"""What `allow` and `deny` may hold besides patterns of names."""

# The upper bounds only prevent overflows of clocks and memory.
Tokens = Annotated[int, Meta(ge=0, le=100_000_000, extra={"unit": "tokens"})]
Seconds = Annotated[float, Meta(ge=0, le=31_536_000, extra={"unit": "s"})]
Days = Annotated[float, Meta(ge=0, le=36_500, extra={"unit": "days"})]


LIST_TOKENS = 2000
"""The budget of a list where `list_tokens` is not set."""


class ToolEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of a server's `tools`: what clients see of one tool in place of what the server says."""

    name: Annotated[str, Meta(max_length=49)] = ""
    """Clients see the tool as `<prefix>__<name>`; letters, digits, `_` and `-`. Calls of the earlier name still reach
    it. A name that another tool has, or ever had, is not taken from it: `foretool doctor` says so."""
    description: str = ""
    """What the tool does. Models and searches read it in place of the server's text."""


class OAuthEntry(Struct, frozen=True, kw_only=True):
    """`oauth` of a server: what `foretool login` tells the authorization server. Most servers need none of it."""

    client_id: str = ""
    """The client that you registered with the authorization server. Without it, foretool registers itself."""
    client_secret: str = ""
    """The secret of that client, as `${NOTION_SECRET}`."""
    client_metadata_url: str = ""
    """An `https://` address where you publish a client ID metadata document. It is the client's name at authorization
    servers that read such documents."""
    redirect_port: Annotated[int, Meta(ge=0, le=65_535, extra={"unit": "port"})] = 0
    """The port of `http://127.0.0.1:PORT/callback`, where the browser comes back to; `0` takes a free one."""
    scopes: tuple[str, ...] = ()
    """Scopes to ask for, in addition to those that the server names."""
    grant: Literal["authorization_code", "client_credentials"] = "authorization_code"
    """`client_credentials` signs a machine in with `client_id` and `client_secret` or `private_key`, without a
    browser."""
    private_key: str = ""
    """File with the private key in PEM form with which a machine signs in (`private_key_jwt`), in place of
    `client_secret`."""
    issuer: str = ""
    """The only authorization server that may get the client's id and secret. `client_credentials` needs it."""

    def __repr__(self) -> str:
        return f"OAuthEntry({self.client_id!r}, {self.grant!r})"


class PerUserEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`per_user` of a remote server: each person reaches it with a token and over a connection of their own.

    With `authorization_endpoint` it uses what the caller has allowed once, in a browser; else it trades the access
    token that the caller shows to foretool for one for this server (RFC 8693). Both need `access`.
    """

    token_endpoint: str = ""
    """Where tokens are given out."""
    authorization_endpoint: str = ""
    """Where a browser asks each person once. Without it, the access token that the caller shows to foretool is traded
    (RFC 8693)."""
    revocation_endpoint: str = ""
    """Where the tokens of a person who disconnects are ended."""
    client_id: str = ""
    """The client that you registered there for foretool."""
    client_secret: str = ""
    """The secret of that client, as `${NOTION_SECRET}`."""
    private_key: str = ""
    """File with the private key in PEM form with which foretool shows that it is that client (`private_key_jwt`), in
    place of `client_secret`."""
    audience: str = ""
    """For whom the token is, as the authorization server names this server."""
    resource: str = ""
    """For whom the token is, as an address (RFC 8707); without it and `audience`, the `url` of the server."""
    scopes: tuple[str, ...] = ()
    """Scopes to ask for. All programs of one person get the same, so name no more than the least of them may have."""

    @property
    def kind(self) -> Literal["exchange", "grant"]:
        """Whether the caller's token is traded, or what the caller has allowed in a browser is used."""
        return "grant" if self.authorization_endpoint else "exchange"

    def __repr__(self) -> str:
        return f"PerUserEntry({self.kind!r}, {self.client_id!r})"


class ServerEntry(Struct, frozen=True, kw_only=True):
    """One entry of `mcpServers`, before variables are expanded. Keys that it does not have belong to other clients."""

    command: str | None = None
    """Program to start: a name that is looked up on `PATH`, or a path. `~` and `${VAR}` are expanded; a relative path
    starts in `cwd` if you set one, else in the folder of this file, never in the folder of the client."""
    args: tuple[str, ...] = ()
    """Arguments of the program."""
    env: dict[str, str | int | bool | None] = {}
    """Environment variables of the program. Values are secrets; a variable that is `null` is left out."""
    inherit: tuple[str, ...] = ()
    """Names and patterns of variables that the program gets from the environment of foretool, besides the basic six;
    see [below](#what-a-server-gets-of-your-environment)."""
    cwd: str | None = None
    """Folder in which the program starts; without it, the folder of this file. `${workspaceFolder}` is the folder in
    which your client started foretool."""
    url: Annotated[str | None, Meta(extra={"empty": "none"})] = None
    """Address of a remote server."""
    headers: dict[str, str] = {}
    """HTTP headers sent with every request. Values are secrets."""
    oauth: OAuthEntry | None = None
    """How `foretool login` signs in to a remote server; see [below](#a-sign-in)."""
    per_user: PerUserEntry | None = None
    """Each person reaches a remote server with a token of their own; see [below](#a-token-for-each-person)."""
    client_cert: str = ""
    """File with a client certificate in PEM form, which a remote server asks for (mTLS)."""
    client_key: str = ""
    """File with the private key of `client_cert`, if it is not in the same file."""
    type: Literal["stdio", "http", "sse", "streamable-http", "streamableHttp", "streamable_http"] | None = None
    """Transport. All three spellings of streamable HTTP mean `http`."""
    prefix: str | None = None
    """Clients see the tools as `<prefix>__<tool>`; with `""` under their own names. A prefix belongs to one server
    ([names](security.md#names-and-resources))."""
    include: tuple[str, ...] = ("*",)
    """Patterns of tool names. No client sees the tools that match none of them."""
    exclude: tuple[str, ...] = ()
    """Patterns of tool names that no client sees, even if `include` matches them."""
    pin: tuple[str, ...] = ()
    """Patterns of tool names that are always listed, whatever the budget."""
    tools: dict[str, ToolEntry] = {}
    """What clients see of single tools, by the server's own names for them; see [below](#a-tool)."""
    allow: tuple[str, ...] = ()
    """Patterns of tool names, `@write` or `@destructive`: tools that you trust; see [below](#which-calls-run). It adds
    no tool and takes none away."""
    deny: tuple[str, ...] = ()
    """Patterns of tool names, `@write` or `@destructive`: these tools are neither listed nor found, and no call of them
    runs."""
    risk: dict[str, Risk] = {}
    """What tools really do, by patterns of their names: `{"get_*": "read", "drop_*": "destructive"}`. Your word beats
    the server's own annotations. If several patterns fit, the most exact one counts."""
    disabled: bool = False
    """Ignores the server without deleting its entry."""
    timeout_s: Seconds = 60
    """Longest wait for one call, and for each further sign that it goes on; `0` means no limit."""
    keep_alive: bool = False
    """Never stops the server while the proxy runs (`idle_stop_s`): it does work, or holds state, that
    has to outlive the clients that have called it."""
    description: str = ""
    """What the server is for. Search reads this text as well."""
    result_tokens: Tokens | dict[str, Tokens] | None = None
    """Longest result of its tools, as `foretool.result_tokens`. Or by patterns of tool names: `{"read_*": 4000}`; the
    most exact pattern counts."""
    trust: Trust = "pin"
    """What happens when the server changes a text that a model reads: `pin` serves the approved one until `foretool
    review` approves the new one, `review` also holds what the server says first, `auto` serves every change at once
    ([more](security.md#what-servers-may-change))."""

    @property
    def approve_new(self) -> bool:
        """Whether also what is seen for the first time waits for approval."""
        return self.trust == "review"


class ProfileEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `foretool.profiles`: a separate list, at `/mcp/<name>` or with `--profile <name>`."""

    servers: tuple[str, ...] = ("*",)
    """Patterns of the server names that belong to the profile."""
    pin: tuple[str, ...] = ()
    """Patterns of exposed names that are always in its list, in addition to `foretool.pin`."""
    allow: tuple[str, ...] = ()
    """Patterns of exposed names, `@write` or `@destructive`, as `allow` of a server, for this profile alone."""
    deny: tuple[str, ...] = ()
    """Patterns of exposed names, `@write` or `@destructive`, as `deny` of a server, for this profile alone. A profile
    cannot allow what its server denies."""
    policy: PolicyChoice | None = None
    """Policy of its list."""
    list_tokens: Tokens | None = None
    """Budget of its list."""
    about: str = ""
    """What the profile is used for. This text chooses the first list, while nothing has been called yet."""
    learn: bool = True
    """Whether what its people do is learned from, and counts in what others are shown; `false` for people who do not
    want that."""


class DomainEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `foretool.domains`: a kind of task, recognised by examples."""

    examples: tuple[str, ...] = ()
    """Tasks of this kind. More examples make it easier to recognise."""
    pin: tuple[str, ...] = ()
    """Patterns of exposed names that every step of such a task gets, whatever its budget."""


class TokenEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `foretool.tokens`: a bearer token of an HTTP client, and the profiles that it opens."""

    name: str = ""
    """Tells tokens apart, for example by the client that has it. Messages and logs show the name, never the token."""
    sha256: str = ""
    """SHA-256 of the token, as `foretool token new` prints it. Nobody who reads the file learns the token."""
    token: str = ""
    """The token itself, in place of `sha256`. It is a secret, so write `${WORK_TOKEN}`."""
    profiles: tuple[str, ...] = ()
    """Patterns of the profiles that it opens. `default` is the list at `/mcp`, which has every server; `*` opens all.
    A token without profiles is an error."""
    may_decide: bool = False
    """Lets its holder approve, block and fix on [the page](page.md#over-http), if it opens every profile. Say so for a
    token that a person keeps, never for one that an agent has."""

    def __repr__(self) -> str:
        return f"TokenEntry({self.name!r}, profiles={self.profiles!r})"


class GrantEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `access.grants`: what tokens that say this may use. All entries that fit count together."""

    claim: str = ""
    """A claim of the token, such as `groups`, `scope` or `sub`; `realm_access.roles` is a claim within a claim."""
    values: tuple[str, ...] = ()
    """Patterns of the claim's value, or of one of its values; `*` fits whatever it is."""
    profiles: tuple[str, ...] = ()
    """Patterns of the profiles that it opens, as in `tokens`."""
    may_decide: bool = False
    """Lets the holder approve, block and fix on [the page](page.md#over-http), if all entries together open every
    profile. Agents hold tokens of their users, so name a scope here that only a person asks for."""


class AccessEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`access`: clients show tokens of your authorization server, which foretool checks as an OAuth resource server."""

    leeway_s: ClassVar[float] = 30
    """How far the clocks of issuer and proxy may differ, in seconds."""
    algorithms: ClassVar[tuple[str, ...]] = (
        "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"
    )  # fmt: skip
    """How tokens may be signed: by no key that the proxy would have to share with the issuer."""

    issuer: str = ""
    """The authorization server, letter by letter as its metadata and its tokens (`iss`) name it."""
    resource: str = ""
    """The address of `/mcp` as clients reach it, such as `https://tools.example.com/mcp`. Clients ask for tokens for
    it."""
    audience: tuple[str, ...] = ()
    """What a token's `aud` has to name, one of these; without it, `resource`."""
    jwks_url: str = ""
    """Where the public keys of the issuer are; without it, the address in its metadata."""
    introspection_endpoint: str = ""
    """Where the issuer is asked about each token (RFC 7662), for tokens that are no JWTs or have to end at once when
    they are revoked; no keys are read then."""
    introspection_s: Annotated[float, Meta(ge=1, le=3600, extra={"unit": "s"})] = 30
    """How long such an answer counts: a token that was revoked is refused after this time at the latest, and streams
    that only listen end with it."""
    client_id: str = ""
    """The client as which foretool asks there."""
    client_secret: str = ""
    """The secret of that client, as `${ACCESS_SECRET}`."""
    scopes: tuple[str, ...] = ()
    """Scopes that every token needs. Clients are told of them."""
    grants: tuple[GrantEntry, ...] = ()
    """Which claims open which profiles. A token that no entry fits opens nothing."""

    def __repr__(self) -> str:
        return f"AccessEntry({self.issuer!r})"


class EnrichEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`enrich`: the language model that `foretool enrich` asks how people word wishes that a tool serves."""

    url: Annotated[str, Meta(extra={"empty": "none: this machine"})] = ""
    """Address of an OpenAI-compatible API, up to but without `/chat/completions`. `foretool enrich` sends the texts of
    your tools there, and nothing else. Without it `model` runs on this machine."""
    model: str = ""
    """What the API calls the model. Without `url` a file of weights (`~/models/qwen.gguf`), which llama.cpp of
    `foretool[llm]` runs."""
    key: str = ""
    """Bearer token for `url`, as `${OPENAI_API_KEY}`."""

    @property
    def name(self) -> str:
        """The name under which the model's wordings are shown; a local model is named by its file."""
        return self.model if self.url else self.model.replace("\\", "/").rpartition("/")[2]

    def __repr__(self) -> str:
        return f"EnrichEntry({self.name!r})"


class JudgeEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`judge`: a model that chooses among the first tools of a search, or says that none fits."""

    url: str = ""
    """Address of a decision API that ends with `/systemone`, or of an OpenAI-compatible API up to but without
    `/chat/completions`. foretool sends it the words of a task and the names and first sentences of at most 20 tools,
    for each search that is in doubt."""
    model: str = ""
    """What the API calls the model."""
    key: str = ""
    """Bearer token for `url`, as `${JUDGE_KEY}`."""
    timeout_ms: Annotated[int, Meta(ge=50, le=30_000)] = 1500
    """How long a search waits for the answer, in milliseconds; after that it goes on without."""

    @property
    def decides(self) -> bool:
        """Whether the endpoint is a decision API and not a chat."""
        return self.url.rstrip("/").endswith("/systemone")

    @property
    def address(self) -> str:
        """Where requests go."""
        base = self.url.rstrip("/")
        return base if self.decides else f"{base}/chat/completions"

    def __repr__(self) -> str:
        return f"JudgeEntry({self.model!r})"


class Settings(Limits, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `foretool` block. After `load`, variables are expanded and `storage` is an absolute path."""

    policy: PolicyChoice = "auto"
    """When the tool list may change: `frozen` once a day, `growing` also after a discovery, `full` lists everything,
    `auto` chooses per client ([clients](clients.md))."""
    list_tokens: Annotated[Tokens | None, Meta(extra={"empty": "`2000`"})] = None
    """Budget of the tool list. Where it is not set, up to 100 tools of at most 10,000 tokens are all listed, as models
    do best with all tools of a small catalog. Sizes are estimated until they are counted in the background, so a first
    list may be a few percent larger."""
    answer_tokens: Tokens = 1500
    """Budget of one `discover_tools` answer."""
    result_tokens: Tokens = 0
    """Longest result of a tool; the rest is read in parts, see [below](#long-results). `0` cuts nothing."""
    call_wait_s: Seconds = 50
    """How long a client waits for a call before it is told how to ask for the result later; see [below](#long-calls).
    `0` lets it wait as long as the call takes."""
    pin: tuple[str, ...] = ()
    """Patterns of exposed names that are always listed."""
    profiles: dict[str, ProfileEntry] = {}
    """Lists for different uses, by name; see [below](#a-profile)."""
    instructions: tuple[str, ...] = ()
    """Patterns of text files with your own instructions; see [below](#instructions). `**` matches any folders."""
    skills: tuple[str, ...] = (
        "~/.claude/skills", "~/.agents/skills", "~/.codex/skills", "~/.copilot/skills", "~/.cursor/skills",
        "~/.gemini/skills", "~/.config/opencode/skills",
    )  # fmt: skip
    """Folders with your skills (`NAME/SKILL.md`); see [below](#skills). `[]` for none."""
    skill_projects: tuple[str, ...] = ()
    """Projects whose own skills (`.claude/skills`, `.agents/skills` and the like) are served to clients that work in
    them, such as `~/work/shop` or `~/work/*`. They are instructions to your model, so name projects that you trust."""
    domains: dict[str, DomainEntry] = {}
    """Kinds of task, by name, with tools that their steps always get; see [below](#a-domain)."""
    storage: str = ""
    """The storage file, or the address of a PostgreSQL database, such as `postgresql://me:${DB_PASSWORD}@host/foretool`
    ([PostgreSQL](postgres.md)). The environment variable `FORETOOL_STORAGE` overrides it."""
    encoder: Annotated[str, Meta(min_length=1)] = "auto"
    """Which models rank by meaning, in addition to words: `auto` uses what comes with foretool, `none` uses none,
    others have [names](retrieval.md#which-encoder)."""
    encoder_url: str = ""
    """Address of an OpenAI-compatible API, up to but without `/embeddings`; `encoder` then names its model. foretool
    sends the texts of tools and tasks there."""
    encoder_key: str = ""
    """Bearer token for `encoder_url`, as `${OPENAI_API_KEY}`."""
    enrich: EnrichEntry | None = None
    """The language model that `foretool enrich` asks, when you run it; see [below](#enrich)."""
    judge: JudgeEntry | None = None
    """A model that is asked where a search is in doubt; see [below](#judge). Nobody is asked by default."""
    record: Record = "shape"
    """What is kept of a call: `off` no content, `shape` the task and the names of arguments, `full` the values
    of arguments as well."""
    audit: bool = False
    """Keeps who called which tool when, with which outcome, for good ([the audit log](fleet.md#the-audit-log))."""
    commit: Commit = "before"
    """When records are written: `before` the answer that they are about, or `behind` it, about once a second ([what may
    be lost then](postgres.md#what-a-call-costs-and-what-may-be-lost))."""
    bind: Annotated[str, Meta(extra={"unit": "host:port"})] = "127.0.0.1:8399"
    """Address that `serve --http` listens on, or `unix:/path/of/a.sock`, a socket for the programs of your own user.
    A change takes effect at the next start."""
    tokens: tuple[TokenEntry, ...] = ()
    """Bearer tokens of HTTP clients, each with the profiles that it opens; see [below](#a-token)."""
    token: str = ""
    """One bearer token that opens every profile. It is a secret, so write `${FORETOOL_TOKEN}`. With `tokens` each
    client gets its own."""
    access: AccessEntry | None = None
    """People show tokens of your own authorization server (OAuth), beside `tokens`; see
    [below](#people-of-an-authorization-server)."""
    requests_per_minute: Annotated[int, Meta(ge=0, le=1_000_000, extra={"unit": "requests"})] = 0
    """How many HTTP requests one token, or one person of an authorization server, may send; `0` means no limit. More
    get the status 429 and are told when to come back."""
    seal_keys: tuple[str, ...] = ()
    """Keys that seal what people have allowed with `per_user` in the database: 32 bytes each, in base64. The first one
    seals, every one opens. They are secrets, so write `${FORETOOL_SEAL_KEY}`."""
    insecure_loopback: bool = False
    """Serves HTTP on this machine without a token: every program and every user of the machine can then call every
    tool."""
    allowed_origins: tuple[str, ...] = ()
    """`Origin` headers accepted over HTTP, in addition to loopback."""
    allowed_hosts: tuple[str, ...] = ()
    """`Host` headers accepted over HTTP, in addition to `bind` and loopback."""
    learn_s: Seconds = 86_400
    """How often `serve` learns from its records, in a separate process of low priority. With `0` only `foretool learn`
    learns."""
    bridges: Bridges = "by_risk"
    """How hidden tools are called. `by_risk`: `call_tool` runs tools that are read-only or that a rule allows, and
    `call_tool_write` the others, so that your client can ask about these alone. `one`: `call_tool` runs all of them."""
    call_tools: bool = False
    """Whether the list has `call_tools` as well; see [below](#several-calls-in-one-turn)."""
    confirm: Confirm = "never"
    """Which calls foretool asks you about itself, once per tool and session, also where the client does not ask:
    `destructive`, `write` (all that are not read-only) or `all`; see [below](#which-calls-run)."""
    max_message_mib: Annotated[float, Meta(gt=0, le=4096, extra={"unit": "MiB"})] = 32
    """Largest message that a client or a server may send."""
    max_tools: Annotated[int, Meta(ge=1, le=1_000_000, extra={"unit": "tools"})] = 1000
    """How many tools of one server are used, and how many prompts, resources and resource templates. A longer list is
    cut, and `status` and `doctor` say so."""
    max_sessions: Annotated[int, Meta(ge=1, le=1_000_000, extra={"unit": "sessions"})] = 1000
    """How many HTTP sessions may exist at once. Each token has an equal share of them."""
    retention_days: Days = 90
    """How long records are kept; older ones are deleted about once an hour while a proxy runs. `0` means for ever.
    Numbers of calls and misses, names of tools, models and imported demonstrations stay."""
    idle_stop_s: Seconds = 0
    """Stops a local server that was not called for this long, also while clients that have called it are there; what it
    keeps in memory is lost. `0` means never. Ten minutes after its last client has gone, it stops anyway, unless it has
    `keep_alive`."""
    share: bool = True
    """Lets the windows of your clients share one proxy and one process of each server
    ([clients](clients.md#what-a-list-holds-and-when-it-changes)); `foretool serve --alone` leaves one window out."""
    log_level: LogLevel = "info"
    """The least severe messages to write to stderr."""
    log_format: Literal["text", "json"] = "text"
    """`json` writes each message as an object with `time` (UTC), `level`, `logger` and `message`, one to a line."""
    telemetry: Telemetry = "off"
    """Sends traces and metrics to an OpenTelemetry collector: `on` without what calls are given and return, `full` with
    it, less the secrets ([observability](observability.md)). A change takes effect at the next start."""
    metrics: bool = False
    """Answers `/metrics` of `serve --http` for Prometheus ([observability](observability.md)). A change takes effect at
    the next start."""
    project_config: bool = False
    """Lets `mcp.json` of the folder in which foretool starts be used in place of this file. Only your own file may say
    this; see [above](#which-file-and-which-folder)."""

    @property
    def tool_tokens(self) -> int:
        """Budget of one tool in an answer; a larger schema is trimmed. Five whole tools fit an answer."""
        return self.answer_tokens // 5

    @property
    def max_tools_mib(self) -> float:
        """How large one server's tools may be together: 4 KiB each of many, and 4 MiB of a few that are long."""
        return max(4.0, self.max_tools / 256)

    @property
    def max_connections(self) -> int:
        """How many HTTP connections may be open at once: a session has one at a time, and half of them rest."""
        return max(512, self.max_sessions // 2)

    def __repr__(self) -> str:
        return f"Settings(policy={self.policy!r}, bind={self.bind!r}, storage={str(read_place(self.storage))!r}, ...)"


def keys_of(kind: type[Struct]) -> tuple[str, ...]:
    """Return the keys that a file may have for a struct."""
    fields = kind.__struct_fields__
    return tuple(each for each in fields if each not in Limits.__struct_fields__) if kind is Settings else fields
