"""How each client writes a server in its config, read into an entry of our `mcpServers` and written from one.

A table per client says what becomes of each key of its documentation: a key of ours, a value in other units, or a note
that it is left out. Keys that no table has are noted too; only names, pictures and versions go without a word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from foretool.server.config.errors import Invalid, convert, dotted
from foretool.server.config.settings import ServerEntry
from foretool.server.config.variables import WORKING_FOLDER, input_variable

Entry = dict[str, Any]
"""An entry of `mcpServers`, in our spelling."""


class DialectError(ValueError):
    """A client's entry cannot be read as one of ours; the message says what was found and the way out."""


# Rules of a table

Read = Callable[[Any], Entry | None]
"""Returns what a value adds to our entry; None if it is left out."""


class Left(Struct, frozen=True):
    """A key of a client that our entries do not have, with the reason; `read` may still read some values."""

    why: str = ""
    read: Read | None = None


class Time(Struct, frozen=True):
    """A key of a client that limits how long a call may take, in a unit of its own."""

    per_second: int
    shortest: float = 0.0
    """Shorter times mean nothing to the client, in its unit."""

    def read(self, value: Any) -> Entry | None:
        if not _is_number(value) or value <= self.shortest:
            return None
        return {"timeout_s": _whole(value / self.per_second)}


Rule = str | Left | Time | Read | Mapping[str, Any]
"""Our key of the same meaning, a note, a time, a function, or the table of an object."""
Table = Mapping[str, Rule]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(number: float) -> float:
    return int(number) if number == int(number) else number


def _any_time(value: Any) -> Entry | None:
    """Read a time of an unknown client: those below 1,000 are seconds, others could be either."""
    return {"timeout_s": value} if _is_number(value) and 0 < value < 1000 else None


HANDSHAKE_S: Final = 60
"""How long foretool waits for the first answer of a server, in seconds (`upstreams.connection`)."""
LONG_HANDSHAKE_S: Final = 300
"""The same after a start that failed."""


def _start_time(per_second: int) -> Left:
    """Leave out a longer time to start than every server has here."""
    return Left(
        f"a start has {HANDSHAKE_S} s here, the next {LONG_HANDSHAKE_S}",
        lambda value: {} if _is_number(value) and value <= HANDSHAKE_S * per_second else None,
    )


def _only(value: Any) -> Entry | None:
    """Read a list of the tools that exist; no tool at all is every tool excluded."""
    if not isinstance(value, list):
        return None
    return {} if "*" in value else {"include": list(map(str, value))} if value else {"exclude": ["*"]}


def _available(value: Any) -> Entry | None:
    """Read goose's list of tools, where an empty one means all."""
    return _only(value) if value else {}


def _enabled(value: Any) -> Entry:
    return {"disabled": True} if value is False else {}


def _streamable(value: Any) -> Entry:
    return {"url": value, "type": "http"}


def _bearer(value: Any) -> Entry:
    return {"headers": {"Authorization": f"Bearer {value}"}}


def _bearer_variable(value: Any) -> Entry:
    return _bearer(f"${{{value}}}")


def _header_variables(value: Any) -> Entry:
    return {"headers": {header: f"${{{name}}}" for header, name in value.items()}}


def _inherited(value: Any) -> Entry:
    return {"inherit": [each if isinstance(each, str) else str(each["name"]) for each in value]}


def _of_oauth(key: str) -> Read:
    return lambda value: {"oauth": {key: value}}


def _scopes(value: Any) -> Entry:
    """Read scopes, which some clients write as one text."""
    return {"oauth": {"scopes": value.split() if isinstance(value, str) else list(value)}}


def _redirect(value: Any) -> Entry | None:
    """Read an address that the browser comes back to: only its port can be ours."""
    port = urlsplit(value).port if isinstance(value, str) else None
    return {"oauth": {"redirect_port": port}} if port else None


def _discovered(value: Any) -> Entry | None:
    return {} if value == "dynamic_discovery" else None


def _with_code(value: Any) -> Entry | None:
    return {} if value == "authorization_code" else None


def _public(value: Any) -> Entry | None:
    return {} if value is True else None


def _source(value: Any) -> Entry | None:
    return {} if value != "extension" else None


def _nothing(value: Any) -> Entry:
    return {}


# Tables

_TIMEOUT: Final = Left('seconds or milliseconds? Write "timeout_s"', _any_time)
_APPROVALS: Final = Left("clients ask themselves")
_ENV_FILE: Final = Left('put its variables into "env", or export them')
_OAUTH: Final[Table] = {
    "clientId": _of_oauth("client_id"), "client_id": _of_oauth("client_id"), "CLIENT_ID": _of_oauth("client_id"),
    "clientSecret": _of_oauth("client_secret"), "client_secret": _of_oauth("client_secret"),
    "CLIENT_SECRET": _of_oauth("client_secret"), "callbackPort": _of_oauth("redirect_port"),
    "callback_port": _of_oauth("redirect_port"), "redirect_port": _of_oauth("redirect_port"),
    "redirectPort": _of_oauth("redirect_port"), "redirectUri": _redirect, "redirect_uri": _redirect,
    "callback_url": _redirect, "scope": _scopes, "scopes": _scopes, "issuer": _of_oauth("issuer"), "enabled": _nothing,
}  # fmt: skip
_ANY: Final[Table] = {
    "command": "command", "cmd": "command", "args": "args", "env": "env", "envs": "env", "environment": "env",
    "cwd": "cwd", "url": "url", "serverUrl": "url", "uri": "url", "httpUrl": _streamable, "headers": "headers",
    "http_headers": "headers", "type": "type", "transport": "type", "transportType": "type",
    "description": "description", "disabled": "disabled", "enabled": _enabled, "timeout": _TIMEOUT,
    "timeout_s": "timeout_s", "tool_timeout_sec": Time(1), "envFile": _ENV_FILE, "oauth": _OAUTH, "auth": _OAUTH,
    "includeTools": _only, "enabledTools": _only, "enabled_tools": _only, "available_tools": _available,
    "excludeTools": "exclude", "disabledTools": "exclude", "disabled_tools": "exclude",
    "alwaysAllow": _APPROVALS, "autoApprove": _APPROVALS, "auto_approve": _APPROVALS, "trust": _APPROVALS,
    "$schema": _nothing, "display_name": _nothing, "displayName": _nothing, "gallery": _nothing, "icon": _nothing,
    "id": _nothing, "name": _nothing, "note": _nothing, "version": _nothing,
}  # fmt: skip
"""What most clients write alike."""

_OURS: Final[Table] = {
    key: key for key in (
        "include", "exclude", "deny", "prefix", "pin", "keep_alive", "result_tokens", "approve_new", "client_cert",
        "client_key",
    )
}  # fmt: skip
"""Keys of our own that a pasted entry may have: none of them opens anything."""

_CLAUDE_CODE: Final[Table] = {
    "timeout": Time(1000, shortest=999), "oauth": {**_OAUTH, "authServerMetadataUrl": Left()},
    "headersHelper": Left('write what that program prints into "headers"'),
    "alwaysLoad": Left('"pin": ["*"] lists its tools always'),
}  # fmt: skip
_CLINE: Final[Table] = {
    "timeout": Time(1), "transport": _ANY, "oauthClient": _OAUTH, "oauth": Left("sign in again: foretool login"),
    "metadata": _nothing, "remoteConfigured": _nothing,
}  # fmt: skip
_CODEX: Final[Table] = {
    "http_headers": "headers", "bearer_token_env_var": _bearer_variable, "bearer_token": _bearer,
    "env_http_headers": _header_variables, "env_vars": _inherited, "tool_timeout_sec": Time(1),
    "startup_timeout_sec": _start_time(1), "startup_timeout_ms": _start_time(1000), "enabled_tools": _only,
    "disabled_tools": "exclude", "scopes": _scopes, "tools": _APPROVALS, "default_tools_approval_mode": _APPROVALS,
}  # fmt: skip
_CONTINUE: Final[Table] = {
    "requestOptions": {
        "headers": "headers", "clientCertificate": {"cert": "client_cert", "key": "client_key", "passphrase": Left()},
        "verifySsl": Left("certificates are checked here", lambda value: {} if value else None),
    },
    "apiKey": _bearer, "connectionTimeout": _start_time(1000), "serverName": _nothing, "faviconUrl": _nothing,
    "sourceFile": _nothing, "sourceSlug": _nothing,
}  # fmt: skip
_COPILOT: Final[Table] = {
    "timeout": Time(1000), "tools": _only, "oauthClientId": _of_oauth("client_id"), "oauthPublicClient": _public,
    "oauthGrantType": _with_code, "isDefaultServer": _nothing, "source": _nothing, "sourcePath": _nothing,
}  # fmt: skip
_GEMINI: Final[Table] = {
    "timeout": Time(1000), "includeTools": _only, "excludeTools": "exclude", "authProviderType": _discovered,
}  # fmt: skip
_GOOSE: Final[Table] = {
    "cmd": "command", "envs": "env", "uri": "url", "timeout": Time(1), "available_tools": _available,
    "bundled": _nothing,
}  # fmt: skip
_OPENCODE: Final[Table] = {
    "environment": "env", "timeout": Time(1000), "oauth": {**_OAUTH, "authorizationEndpoint": Left()},
}  # fmt: skip
_VSCODE: Final[Table] = {
    "sandboxEnabled": Left("it runs without that sandbox"), "sandbox": Left("it runs without that sandbox"),
}  # fmt: skip
_ZED: Final[Table] = {"timeout": Time(1), "source": _source, "settings": Left()}
_OTHER_PROXY: Final[Table] = {
    "working_dir": "cwd", "bearerToken": _bearer, "quarantined": _nothing, "created": _nothing, "updated": _nothing,
}  # fmt: skip


# Reading

_PLACES: Final = ("command", "args", "env", "cwd", "url", "headers", "type", "disabled", "description")
"""Keys of ours in the order in which an entry has them; others follow."""
_TYPES: Final = {"local": "stdio", "remote": "http", "streamable_http": "http", "streamablehttp": "http",
                 "streamable-http": "http", "websocket": "ws", "tcp": "ws"}  # fmt: skip
_BRACES: Final = re.compile(
    r"\$?\{(?P<kind>file|env):(?P<named>[^}]+)\}|\$\{input:(?P<asked>[^}]*)\}"
    r"|\$\{\{\s*(?:secrets|inputs)\.(?P<secret>\w+)\s*\}\}"
)
"""Variables as VS Code, Cursor, Windsurf, opencode and Continue write them."""
_DOLLAR: Final = re.compile(r"(?<![$\\])\$([A-Za-z_]\w*)\b(?!\{)")
_FOLDER: Final = re.compile(r"\$\{(?:workspaceRoot|CLAUDE_PROJECT_DIR(?::-[^}]*)?)\}")
"""How entries spell `${workspaceFolder}`."""
_FOLDERS: Final = re.compile(rf"\$\{{(?:{WORKING_FOLDER}|cwd|PWD)\}}")
"""How an entry says which folder its client works in."""


class Dialect(Struct, frozen=True):
    """How one client writes a server that it starts or reaches."""

    write: Callable[[str, tuple[str, ...]], Entry]
    """Returns the client's entry for a program and its arguments."""
    own: Table = {}
    """Its keys that mean something else than those of most clients, or that only it has."""
    has_dollar: bool = False
    """`$NAME` stands for a variable."""
    prepare: Callable[[Mapping[str, Any], list[str]], Mapping[str, Any]] = lambda written, notes: written
    """Returns an entry without what no table can say; adds notes."""
    otherwise: str = 'it has neither "command" nor "url"'
    """What is wrong with an entry that says neither what is started nor what is reached."""

    def read(self, written: Mapping[str, Any], folder: str = "") -> tuple[Entry, list[str]]:
        """Return our entry, and notes on what was left out or has to be done. `folder` is that of the project that the
        entry belongs to. Raises `DialectError`."""
        try:
            return self._read(written, folder)
        except DialectError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError):
            raise DialectError("its values are of other types than expected") from None

    def _read(self, written: Mapping[str, Any], folder: str) -> tuple[Entry, list[str]]:
        notes: list[str] = []
        reading = _Reading()
        reading.read({**_ANY, **self.own}, self.prepare(written, notes))
        entry = reading.entry
        _read_command(entry, self.otherwise)
        _read_type(entry, reading)
        _read_values(entry, reading)
        if entry.get("disabled") is not True:
            entry.pop("disabled", None)
        entry = _with_our_variables(entry, notes, has_dollar=self.has_dollar)
        _read_folder(entry, folder, notes)
        if entry.get("oauth", {}).get("client_id") and (port := entry["oauth"].get("redirect_port")):
            notes.append(f"oauth: its client has to allow the redirect address http://127.0.0.1:{port}/callback")
        try:
            convert(entry, ServerEntry, ())
        except Invalid as error:
            raise DialectError(f"{dotted(error.path)}: {error}") from None
        return {key: entry[key] for key in sorted(entry, key=_place)}, [*reading.notes(), *notes]

    def name_of(self, key: str) -> str:
        """Return how the client spells a key of ours."""
        return next((name for name, rule in self.own.items() if rule == key), key)


class _Reading(Struct):
    """Our entry, as far as the keys of a client have been read."""

    entry: Entry = {}
    left: dict[str, list[str]] = {}
    """Keys that were left out, by the reason."""

    def read(self, table: Table, written: Mapping[str, Any], above: str = "") -> None:
        for key, value in written.items():
            rule = table.get(key, Left())
            if isinstance(rule, Mapping) and isinstance(value, Mapping):
                self.read(rule, value, f"{above}{key}.")
            elif value is not None and (value not in (False, "", [], {}) or callable(getattr(rule, "read", rule))):
                self._read_one(rule, value, above + key)

    def _read_one(self, rule: Rule, value: Any, key: str) -> None:
        read = rule.read if isinstance(rule, Left | Time) else rule
        if isinstance(read, str):
            found: Entry | None = {read: value}
        elif callable(read):
            found = read(value)
        else:  # `"oauth": true` asks for nothing that is not done anyway
            found = {} if isinstance(rule, Mapping) and value is True else None
        if found is None:
            self.leave(key, rule.why if isinstance(rule, Left) else "")
            return
        for name, each in found.items():
            known = self.entry.get(name)
            self.entry[name] = {**known, **each} if isinstance(known, Mapping) and isinstance(each, Mapping) else each

    def leave(self, key: str, why: str) -> None:
        self.left.setdefault(why, []).append(f'"{key}"')

    def notes(self) -> list[str]:
        """Return what was left out, in one line."""
        parts = [f"{', '.join(keys)} ({why})" if why else ", ".join(keys) for why, keys in self.left.items()]
        return [f"left out: {', '.join(parts)}"] if parts else []


def _place(key: str) -> int:
    return _PLACES.index(key) if key in _PLACES else len(_PLACES)


def _read_command(entry: Entry, otherwise: str) -> None:
    """Take apart a command that holds its arguments, and say what is missing."""
    command = entry.get("command")
    if isinstance(command, Mapping):  # Zed, before 2025
        entry["args"], entry["env"] = list(command.get("args") or []), dict(command.get("env") or {})
        entry["command"] = command = command.get("path")
    if isinstance(command, list) and command:  # opencode
        entry["command"], entry["args"] = command[0], [*command[1:], *(entry.get("args") or [])]
    if not isinstance(entry.get("command") or entry.get("url"), str):
        raise DialectError(otherwise)
    url = entry.get("url", "")
    if re.match(r"(?:unix|pipe):", url):
        raise DialectError("it is reached over a socket file, which foretool does not do")
    if url and not re.match(r"(?:https?|wss?)://", url) and "$" not in url:
        raise DialectError("url: expected an address that starts with http:// or https://")


def _read_type(entry: Entry, reading: _Reading) -> None:
    written = entry.pop("type", "")
    kind = _TYPES.get(written.lower(), written.lower()) if isinstance(written, str) else ""
    if kind == "ws" or re.match("wss?:", entry.get("url", "")):
        raise DialectError("it is reached over WebSocket, which foretool does not speak")
    if "command" in entry and "url" in entry:
        unused = "command" if kind in ("http", "sse") else "url"
        entry.pop(unused)
        reading.leave(unused, "one of both is used")
    if not kind and urlsplit(entry.get("url", "")).path.rstrip("/").endswith("/sse"):
        kind = "sse"
    if kind in ("http", "sse") and "url" in entry:
        entry["type"] = kind


def _read_values(entry: Entry, reading: _Reading) -> None:
    """Write numbers and truth values as the texts that a program gets, and drop what is empty."""
    if "args" in entry:
        if not isinstance(entry["args"], list):
            raise DialectError("args: expected a list")
        entry["args"] = [_text_of(each) for each in entry["args"] if each is not None]
    if entry.get("env") and "url" in entry:
        reading.leave("env", "a remote server gets no variables")
        entry.pop("env")
    for key in ("env", "headers"):
        if isinstance(found := entry.get(key), Mapping):
            entry[key] = {name: _text_of(each) for name, each in found.items() if each is not None}
        elif key in entry:
            reading.leave(key, "it is no object")
            entry.pop(key)
    for key in ("args", "env", "headers", "oauth"):
        if not entry.get(key, True):
            entry.pop(key)


def _text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _with_our_variables(entry: Entry, notes: list[str], *, has_dollar: bool) -> Entry:
    """Write variables of the environment as `${NAME}`."""
    asked: dict[str, str] = {}

    def variable(match: re.Match[str]) -> str:
        if match["kind"] == "env":
            return match[0] if match[0].startswith("$") else f"${{{match['named']}}}"
        if match["kind"] == "file":
            name = input_variable(re.split(r"[/\\]", match["named"])[-1])
            asked[name] = f"your client read {match['named']}: put what that file holds into a variable {name}"
        elif match["secret"]:
            name = match["secret"]
            asked[name] = f"your client kept {name}; foretool reads the variable of this name"
        else:
            name = input_variable(match["asked"])
            asked[name] = f"your client asked you for {name}; foretool reads the variable of this name"
        return f"${{{name}}}"

    def change(value: Any) -> Any:
        if isinstance(value, str):
            found = _BRACES.sub(variable, value).replace("${userHome}", "${HOME}")
            found = _FOLDER.sub(f"${{{WORKING_FOLDER}}}", found)
            return _DOLLAR.sub(r"${\1}", found) if has_dollar else found
        if isinstance(value, Mapping):
            return {name: change(each) for name, each in value.items()}
        return [change(each) for each in value] if isinstance(value, list) else value

    changed: Entry = change(entry)
    notes += (asked[name] for name in sorted(asked))
    return changed


def _read_folder(entry: Entry, folder: str, notes: list[str]) -> None:
    """Say in which folder a program starts: that of its project, or that of the client where the entry means it."""
    if "command" not in entry:
        entry.pop("cwd", None)
        return
    cwd = entry.get("cwd", "")
    if folder:
        for key in ("command", "args", "env", "cwd"):
            if key in entry:
                entry[key] = _in_folder(entry[key], folder)
        entry["cwd"] = entry["cwd"] if cwd and _is_full(entry["cwd"]) else _below(folder, cwd)
    elif cwd and not _is_full(cwd):
        entry["cwd"] = _below(f"${{{WORKING_FOLDER}}}", cwd)
    elif not cwd and any(word == "." or word.startswith(_BELOW) for word in (entry["command"], *entry.get("args", ()))):
        notes.append(
            f'its paths begin in the folder of your client: write them in full, or add "cwd": "${{{WORKING_FOLDER}}}"'
        )


_BELOW: Final = ("./", "../", ".\\", "..\\")


def _below(folder: str, path: str) -> str:
    below = path.removeprefix("./").strip("/")
    return f"{folder}/{below}" if below not in ("", ".") else folder


def _is_full(path: str) -> bool:
    return path.startswith(("/", "~", "$", "\\")) or re.match(r"[A-Za-z]:", path) is not None


def _in_folder(value: Any, folder: str) -> Any:
    """Return a value that names the folder of a project where it named that of the client."""
    if isinstance(value, str):
        return _FOLDERS.sub(lambda _: folder, value).replace("${workspaceFolderBasename}", folder.rpartition("/")[2])
    if isinstance(value, Mapping):
        return {name: _in_folder(each, folder) for name, each in value.items()}
    return [_in_folder(each, folder) for each in value]


# Clients whose entries a table alone cannot read


def _prepare_goose(written: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any]:
    """goose: `env_keys` name secrets in its own keyring; those of a remote server stand in its headers."""
    inner = written.get("config")
    merged = {**written, **inner} if isinstance(inner, Mapping) else dict(written)
    merged.pop("config", None)
    keys, given = merged.pop("env_keys", None) or [], merged.get("envs") or {}
    missing = [key for key in keys if key not in given]
    notes += (f"goose keeps {key} in its keyring; foretool reads the variable of this name" for key in missing)
    if merged.get("uri"):
        merged.pop("envs", None)
        for name, value in given.items():
            pattern = re.compile(rf"\$(?:\{{{re.escape(name)}\}}|{re.escape(name)}\b)")
            merged["headers"] = {
                header: pattern.sub(str(value).replace("\\", r"\\"), str(each))
                for header, each in (merged.get("headers") or {}).items()
            }
    elif missing:
        merged["envs"] = {**given, **{key: f"${{{key}}}" for key in missing}}
    return merged


def _prepare_opencode(written: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any]:
    """opencode 2: a time-out for each kind of request."""
    times = written.get("timeout")
    if not isinstance(times, Mapping):
        return written
    longest = [times[key] for key in ("execution", "request") if _is_number(times.get(key))]
    return {**written, "timeout": max(longest, default=None)}


def _prepare_proxy(written: Mapping[str, Any], notes: list[str]) -> Mapping[str, Any]:
    """Other proxies: mcpproxy-go has `protocol` and `working_dir`, MetaMCP capitals in `type` and `bearerToken`."""
    rest = {key: value for key, value in written.items() if key not in ("protocol", "transport")}
    kind = written.get("type") or written.get("transport") or written.get("protocol")
    rest["type"] = kind.lower() if isinstance(kind, str) else ""
    if written.get("command") and written.get("url"):
        # mcpproxy-go starts the program and then reaches the address, unless the protocol is stdio.
        rest.pop("url" if rest["type"] in ("", "auto", "stdio") else "command")
        if "command" not in rest:
            notes.append("its program has to be started by hand, because foretool starts none for an address")
    if written.get("quarantined") is True:
        rest["disabled"] = True
        notes.append("it was quarantined, so it is switched off: foretool enable switches it on")
    return rest


# Writing


def _plain(command: str, args: tuple[str, ...]) -> Entry:
    return {"command": command, "args": list(args)}


def _stdio(command: str, args: tuple[str, ...]) -> Entry:
    return {"type": "stdio", **_plain(command, args)}


def _copilot(command: str, args: tuple[str, ...]) -> Entry:
    return {"type": "local", **_plain(command, args), "tools": ["*"]}


def _opencode(command: str, args: tuple[str, ...]) -> Entry:
    return {"type": "local", "command": [command, *args]}  # version 2 has no "enabled"


def _goose(command: str, args: tuple[str, ...]) -> Entry:
    return {"name": "foretool", "type": "stdio", "cmd": command, "args": list(args), "enabled": True, "timeout": 300}


def _zed(command: str, args: tuple[str, ...]) -> Entry:
    return {"source": "custom", **_plain(command, args), "env": {}}


PLAIN: Final = Dialect(_plain, _OURS)
CLAUDE_CODE: Final = Dialect(_stdio, _CLAUDE_CODE)
CLINE: Final = Dialect(_plain, _CLINE)
CODEX: Final = Dialect(_plain, _CODEX)
CONTINUE: Final = Dialect(_plain, _CONTINUE)
COPILOT: Final = Dialect(_copilot, _COPILOT, has_dollar=True)
GEMINI: Final = Dialect(_plain, _GEMINI, has_dollar=True)
GOOSE: Final = Dialect(
    _goose, _GOOSE, has_dollar=True, prepare=_prepare_goose, otherwise="it is a part of goose itself"
)
OPENCODE: Final = Dialect(_opencode, _OPENCODE, prepare=_prepare_opencode)
VSCODE: Final = Dialect(_stdio, _VSCODE)
ZED: Final = Dialect(_zed, _ZED, otherwise="it is an extension of Zed")
PROXY: Final = Dialect(_plain, _OTHER_PROXY, prepare=_prepare_proxy)


def write_entry(dialect: Dialect, entry: Mapping[str, Any]) -> Entry:
    """Return one of our entries as a client writes it: how the server is reached, and what restricts it."""
    command, url = entry.get("command"), entry.get("url")
    args = [str(each) for each in entry.get("args") or ()]
    kind = "sse" if entry.get("type") == "sse" else "http"
    found: Entry
    if dialect is OPENCODE:
        found = {"type": "remote", "url": url} if url else {"type": "local", "command": [command, *args]}
    elif dialect is GOOSE:
        found = {"type": "streamable_http" if kind == "http" else "sse", "uri": url} if url else {}
        found = found or {"type": "stdio", "cmd": command, "args": args}
    elif dialect is GEMINI and url and kind == "http":
        found = {"httpUrl": url}
    else:
        found = {"url": url} if url else {"command": command, "args": args}
        if dialect in (CLAUDE_CODE, VSCODE, COPILOT) or (dialect in (PLAIN, CLINE) and url and kind == "sse"):
            found = {"type": kind if url else "local" if dialect is COPILOT else "stdio", **found}
    given = {key: entry[key] for key in ("env", "cwd", "headers") if entry.get(key)}
    if dialect is CONTINUE and "headers" in given:
        found["requestOptions"] = {"headers": dict(given.pop("headers"))}
    found |= {dialect.name_of(key): dict(each) if isinstance(each, Mapping) else each for key, each in given.items()}
    for key, rule in dialect.own.items():
        if isinstance(rule, Time) and entry.get("timeout_s"):
            found[key] = _whole(entry["timeout_s"] * rule.per_second)
        elif rule == "exclude" and entry.get("exclude"):
            found[key] = list(entry["exclude"])
        elif rule in (_only, _available) and entry.get("include"):
            found[key] = list(entry["include"])
    is_off = bool(entry.get("disabled"))
    if dialect is GOOSE or (is_off and dialect in (CODEX, OPENCODE, ZED)):
        return {**found, "enabled": not is_off}
    return {**found, "disabled": True} if is_off else found
