"""How each client writes a server in its config, read into an entry of our `mcpServers` and written from one.

An entry keeps what we have a key for; of the rest a note says what it was. The formats are those of the clients' own
documentation, as `docs/clients.md` lists them with the versions that were tried.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from msgspec import Struct

Entry = dict[str, Any]
"""An entry of `mcpServers`, in our spelling."""


class DialectError(ValueError):
    """An entry cannot be taken over; the message says what was found and the way out."""


class Dialect(Struct, frozen=True):
    """How one client writes a server that it starts or reaches."""

    read: Callable[[Mapping[str, Any]], tuple[Entry, list[str]]]
    """Returns our entry, and notes on what was left out. Raises `DialectError`."""
    write: Callable[[str, tuple[str, ...]], Entry]
    """Returns the client's entry for a program and its arguments."""


_SAME: Final = ("command", "args", "env", "cwd", "url", "headers", "type", "disabled", "description")
"""Keys that we read as most clients write them."""
_SPELLINGS: Final = {
    "serverUrl": "url", "uri": "url", "cmd": "command", "envs": "env", "environment": "env", "transport": "type",
    "http_headers": "headers", "requestOptions": "headers", "includeTools": "include", "excludeTools": "exclude",
    "enabledTools": "include", "disabledTools": "exclude", "enabled_tools": "include", "disabled_tools": "exclude",
    "available_tools": "include",
}  # fmt: skip
_IDLE: Final = frozenset({
    "$schema", "alwaysAllow", "always_load", "autoApprove", "auto_approve", "available", "bundled", "cacheable",
    "display_name", "gallery", "icon", "id", "metadata", "name", "note", "oauth", "remote_configure", "required",
    "source", "supports_parallel_tool_calls", "tools", "trust", "version",
})  # fmt: skip
"""Keys that say nothing of how a server is reached; the user gives approvals again, in the client or with `allow`."""
_TYPES: Final = {"local": "stdio", "remote": "http", "streamable_http": "http", "streamableHttp": "http",
                 "streamable-http": "http", "custom": "", "ws": "ws", "websocket": "ws"}  # fmt: skip
_OF_PROXIES: Final = frozenset({"protocol", "working_dir", "bearerToken", "quarantined", "created", "updated", "tags"})
_OTHER_VARIABLE: Final = re.compile(r"(?<!\$)\{env:([A-Za-z_]\w*)\}|(?<![$\\])\$([A-Za-z_]\w*)\b(?!\{)")
_INPUT: Final = re.compile(r"\$\{input:([^}]*)\}")


def _read(written: Mapping[str, Any]) -> tuple[Entry, list[str]]:
    """Read an entry in the spelling of Claude, Cursor and most others."""
    entry: Entry = {}
    notes: list[str] = []
    for key, value in written.items():
        if key in _SAME or key in _SPELLINGS:
            entry[_SPELLINGS.get(key, key)] = value
        elif key == "httpUrl":
            entry |= {"url": value, "type": "http"}
        elif key == "enabled":
            entry["disabled"] = not value
        elif key in ("timeout", "tool_timeout_sec"):
            entry["timeout_s"] = value // 1000 if key == "timeout" and value > 1000 else value
        elif key not in _IDLE and not key.startswith("startup_"):
            notes.append(f'"{key}" is left out')
    if not isinstance(entry.get("disabled", False), bool) or entry.get("disabled") is False:
        entry.pop("disabled", None)
    _read_command(entry)
    _read_type(entry)
    for key in ("env", "headers"):
        if key in entry and (not isinstance(entry[key], Mapping) or not entry[key]):
            entry.pop(key)
    if not entry.get("args", True):
        entry.pop("args")
    return _ordered(_with_our_variables(entry, notes)), notes


def _ordered(entry: Entry) -> Entry:
    return {key: entry[key] for key in sorted(entry, key=_place)}


def _place(key: str) -> int:
    """Return where a key stands in our entries: how the server is reached comes first."""
    return _SAME.index(key) if key in _SAME else len(_SAME)


def _read_command(entry: Entry) -> None:
    """Take apart a command that holds its arguments, and say what is missing."""
    command = entry.get("command")
    if isinstance(command, Mapping):  # Zed, before 2025
        entry["args"], entry["env"] = list(command.get("args") or []), dict(command.get("env") or {})
        entry["command"] = command = command.get("path")
    if isinstance(command, list) and command:  # opencode
        entry["command"], entry["args"] = command[0], [*command[1:], *(entry.get("args") or [])]
    if not isinstance(entry.get("command") or entry.get("url"), str):
        raise DialectError('it has neither "command" nor "url"')


def _read_type(entry: Entry) -> None:
    written = entry.pop("type", "")
    kind = _TYPES.get(written, written) if isinstance(written, str) else ""
    if kind == "ws":
        raise DialectError("it is reached over WebSocket, which foretool does not speak")
    if kind in ("http", "sse") and "url" in entry:
        entry["type"] = kind


def _with_our_variables(entry: Entry, notes: list[str]) -> Entry:
    """Write variables of the environment as `${NAME}`."""
    asked: set[str] = set()

    def variable(match: re.Match[str]) -> str:
        return f"${{{match[1] or match[2]}}}"

    def question(match: re.Match[str]) -> str:
        name = re.sub(r"\W+", "_", match[1]).strip("_").upper() or "INPUT"
        asked.add(name)
        return f"${{{name}}}"

    def change(value: Any, key: str = "") -> Any:
        if isinstance(value, str):
            found = _INPUT.sub(question, value)
            found = found.replace("${userHome}", "${HOME}").replace("${workspaceRoot}", "${workspaceFolder}")
            return _OTHER_VARIABLE.sub(variable, found) if key in ("env", "headers", "url") else found
        if isinstance(value, Mapping):
            return {name: change(each, key) for name, each in value.items()}
        if isinstance(value, list):
            return [change(each, key) for each in value]
        return value

    changed = {key: change(value, key) for key, value in entry.items()}
    notes += (f"your client asked you for {name}: export a variable of this name" for name in sorted(asked))
    return changed


def _read_gemini(written: Mapping[str, Any]) -> tuple[Entry, list[str]]:
    """Gemini CLI and Qwen Code: `url` alone means SSE, `httpUrl` streamable HTTP; times are in milliseconds."""
    entry, notes = _read(written)
    if "url" in written and "httpUrl" not in written and "type" not in entry:
        entry["type"] = "sse"
    return _ordered(entry), notes


def _read_codex(written: Mapping[str, Any]) -> tuple[Entry, list[str]]:
    """Codex: a token comes from a variable, and `env_vars` names what the server inherits."""
    known = ("bearer_token_env_var", "env_http_headers", "env_vars")
    entry, notes = _read({key: value for key, value in written.items() if key not in known})
    headers = dict(entry.get("headers") or {})
    if name := written.get("bearer_token_env_var"):
        headers["Authorization"] = f"Bearer ${{{name}}}"
    headers |= {header: f"${{{name}}}" for header, name in (written.get("env_http_headers") or {}).items()}
    if headers:
        entry["headers"] = headers
    names = [each if isinstance(each, str) else each.get("name", "") for each in written.get("env_vars") or []]
    if names:
        entry["inherit"] = names
    return _ordered(entry), notes


def _read_proxy(written: Mapping[str, Any]) -> tuple[Entry, list[str]]:
    """Other proxies: mcpproxy-go has `protocol` and `working_dir`, MetaMCP capitals in `type` and `bearerToken`."""
    rest = {key: value for key, value in written.items() if key not in _OF_PROXIES}
    if "cwd" not in rest and (folder := written.get("working_dir")):
        rest["cwd"] = folder
    kind = written.get("type") or written.get("transport") or written.get("protocol")
    rest.pop("transport", None)
    rest["type"] = kind.lower() if isinstance(kind, str) else ""
    if written.get("command") and written.get("url"):
        # mcpproxy-go starts the program and then reaches the address, unless the protocol is stdio.
        rest.pop("url" if rest["type"] in ("", "auto", "stdio") else "command")
    entry, notes = _read(rest)
    if token := written.get("bearerToken"):
        entry["headers"] = {"Authorization": f"Bearer {token}", **entry.get("headers", {})}
    if written.get("quarantined") is True:
        entry["disabled"] = True
        notes.append("it was quarantined, so it is switched off: foretool enable switches it on")
    if written.get("command") and written.get("url") and "command" not in entry:
        notes.append("its program has to be started by hand, because foretool starts none for an address")
    return _ordered(entry), notes


def _read_goose(written: Mapping[str, Any]) -> tuple[Entry, list[str]]:
    """goose: extensions of other kinds are part of goose; `env_keys` name secrets in its own keyring."""
    inner = written.get("config")
    merged = {**written, **inner} if isinstance(inner, Mapping) else dict(written)
    merged.pop("config", None)
    if merged.get("type") not in ("stdio", "sse", "streamable_http"):
        raise DialectError("it is a part of goose itself")
    keys = merged.pop("env_keys", None) or []
    entry, notes = _read(merged)
    missing = [key for key in keys if key not in (entry.get("env") or {})]
    if missing:
        entry["env"] = {**(entry.get("env") or {}), **{key: f"${{{key}}}" for key in missing}}
        notes += (f"goose keeps {key} in its keyring: export a variable of this name" for key in missing)
    return _ordered(entry), notes


def _read_continue(written: Mapping[str, Any]) -> tuple[Entry, list[str]]:
    """Continue: headers stand in `requestOptions`."""
    options = written.get("requestOptions")
    entry, notes = _read({key: value for key, value in written.items() if key != "requestOptions"})
    if isinstance(options, Mapping) and isinstance(options.get("headers"), Mapping):
        entry["headers"] = dict(options["headers"])
    return _ordered(entry), notes


def _plain(command: str, args: tuple[str, ...]) -> Entry:
    return {"command": command, "args": list(args)}


def _stdio(command: str, args: tuple[str, ...]) -> Entry:
    return {"type": "stdio", **_plain(command, args)}


def _copilot(command: str, args: tuple[str, ...]) -> Entry:
    return {"type": "local", **_plain(command, args), "tools": ["*"]}


def _opencode(command: str, args: tuple[str, ...]) -> Entry:
    return {"type": "local", "command": [command, *args], "enabled": True}


def _goose(command: str, args: tuple[str, ...]) -> Entry:
    return {"name": "foretool", "type": "stdio", "cmd": command, "args": list(args), "enabled": True, "timeout": 300}


def _zed(command: str, args: tuple[str, ...]) -> Entry:
    return {"source": "custom", **_plain(command, args), "env": {}}


PLAIN: Final = Dialect(_read, _plain)
STDIO: Final = Dialect(_read, _stdio)
GEMINI: Final = Dialect(_read_gemini, _plain)
CODEX: Final = Dialect(_read_codex, _plain)
COPILOT: Final = Dialect(_read, _copilot)
OPENCODE: Final = Dialect(_read, _opencode)
PROXY: Final = Dialect(_read_proxy, _plain)
GOOSE: Final = Dialect(_read_goose, _goose)
ZED: Final = Dialect(_read, _zed)
CONTINUE: Final = Dialect(_read_continue, _plain)


def write_entry(dialect: Dialect, entry: Mapping[str, Any]) -> Entry:
    """Return one of our entries as a client writes it: how the server is reached, and what it is given."""
    command, url, headers, env = (entry.get(key) for key in ("command", "url", "headers", "env"))
    args = [str(each) for each in entry.get("args") or ()]
    kind = "sse" if entry.get("type") == "sse" else "http"
    if dialect is OPENCODE:
        found = {"type": "remote", "url": url} if url else {"type": "local", "command": [command, *args]}
        return {**found, **_given(environment=env, headers=headers), "enabled": True}
    if dialect is GOOSE:
        found = {"type": "streamable_http" if kind == "http" else "sse", "uri": url} if url else {}
        found = found or {"type": "stdio", "cmd": command, "args": args}
        return {**found, **_given(envs=env, headers=headers), "enabled": True}
    found = {"url": url} if url else {"command": command, "args": args}
    if dialect is GEMINI and url and kind == "http":
        found = {"httpUrl": url}
    elif dialect in (STDIO, COPILOT) or (dialect is PLAIN and url and kind == "sse"):
        found = {"type": kind if url else "local" if dialect is COPILOT else "stdio", **found}
    if dialect is CONTINUE and headers:
        return {**found, **_given(env=env), "requestOptions": {"headers": dict(headers)}}
    named = "http_headers" if dialect is CODEX else "headers"
    return {**found, **_given(env=env, cwd=entry.get("cwd")), **({named: dict(headers)} if headers else {})}


def _given(**values: Any) -> Entry:
    return {key: dict(value) if isinstance(value, Mapping) else value for key, value in values.items() if value}
