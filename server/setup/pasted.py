"""Reads a new server as people have it at hand: a command line, an address, a line for another client, or JSON.

What comes from a page of the web is checked before anybody sees it: no invisible character may hide what is run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from foretool.server.config import jsonc
from foretool.server.config.variables import CREDENTIAL
from foretool.server.setup import dialects
from foretool.server.setup.dialects import Dialect, DialectError, Entry
from foretool.server.setup.launches import starts_foretool
from foretool.server.setup.masking import is_reference
from foretool.server.setup.registrations import NAME as OWN_NAME
from foretool.server.system.logs import printable

_LONGEST_NAME: Final = 64
_CLIENTS: Final[Mapping[str, Dialect]] = {
    "claude": dialects.CLAUDE_CODE, "codex": dialects.CODEX, "gemini": dialects.GEMINI, "qwen": dialects.GEMINI,
    "copilot": dialects.COPILOT, "opencode": dialects.OPENCODE, "amp": dialects.PLAIN, "droid": dialects.PLAIN,
}  # fmt: skip
"""Programs whose lines `PROGRAM mcp add ...` are understood, and what the values in them mean."""
_TRANSPORTS: Final = {
    "stdio": "stdio",
    "sse": "sse",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
}
_VALUES: Final = {
    "-t": "transport", "--transport": "transport", "-e": "env", "--env": "env", "-H": "header", "--header": "header",
    "-s": "scope", "--scope": "scope", "--url": "url", "--bearer-token-env-var": "bearer", "--type": "transport",
    "--client-id": "clientId", "--callback-port": "callbackPort", "--timeout": "timeout",
    "--description": "description", "--include-tools": "includeTools", "--exclude-tools": "excludeTools",
    "--tools": "includeTools",
}  # fmt: skip
"""Options of such a line that take a value."""
_SWITCHES: Final = ("--client-secret", "--trust", "--force", "-f", "--yes", "-y")
_OF_OAUTH: Final = ("clientId", "callbackPort")
_GENERIC: Final = frozenset({
    "mcp", "api", "www", "remote", "server", "servers", "sse", "gateway", "app", "co", "com", "org", "ac", "gov", "net"
})  # fmt: skip
"""Parts of a host that do not name the service."""
_SERVER_KEYS: Final = (
    (("mcpServers",), None),
    (("servers",), dialects.VSCODE),
    (("mcp", "servers"), None),
    (("context_servers",), dialects.ZED),
    (("mcp",), dialects.OPENCODE),
    (("extensions",), dialects.GOOSE),
)
"""Where servers stand in the JSON of clients, and whose it is if the place says so."""


class PasteError(ValueError):
    """What was typed is not a server; the message says what was expected and found, and the way out."""


class NewServer(Struct, frozen=True):
    name: str
    entry: Entry
    """As our `mcpServers` writes it."""
    notes: tuple[str, ...] = ()
    """What the user should know, one line each."""


def of_command(name: str, words: Sequence[str], env: Sequence[str] = ()) -> NewServer:
    """Return a server that is started. `env`: `NAME=VALUE` texts. Raises `PasteError`."""
    entry: Entry = {"command": words[0]}
    if len(words) > 1:
        entry["args"] = list(words[1:])
    if variables := read_env(env):
        entry["env"] = variables
    return checked(NewServer(name, entry))


def of_url(name: str, url: str, headers: Sequence[str] = (), transport: str = "") -> NewServer:
    """Return a server that is reached by its address; without a name it gets one from the host. Raises `PasteError`."""
    if not re.match(r"https?://[^/?#\s]", url):
        raise PasteError(f"expected an address that starts with http:// or https://, found {printable(url)[:60]!r}")
    kind = read_transport(transport)
    if kind == "stdio":
        raise PasteError('a server with an address is reached over "http" or "sse", found --transport stdio')
    entry: Entry = {"url": url}
    if kind == "sse" or (not kind and urlsplit(url).path.rstrip("/").endswith("/sse")):
        entry["type"] = "sse"
    if found := read_headers(headers):
        entry["headers"] = found
    return checked(NewServer(name or name_of_url(url), entry))


def of_line(words: Sequence[str]) -> list[NewServer]:
    """Read the command line that adds a server to another client. Raises `PasteError`."""
    if words[1:2] == ["--add-mcp"]:
        return of_json(words[2] if len(words) > 2 else "", dialect=dialects.VSCODE)
    dialect = _CLIENTS[_program(words)]
    verb, rest = words[2], list(words[3:])
    given, positional, command = _options(rest)
    notes = [f"--scope {each} means nothing here: foretool has one file" for each in given.get("scope", [])[:1]]
    notes += [
        'its client secret is left out: put it into "oauth"'
        for each in given.get("switch", [])
        if each == "--client-secret"
    ]
    if verb == "add-json":
        if len(positional) != 2:
            raise PasteError(f"expected `{words[0]} mcp add-json NAME JSON`; put the JSON into quotes")
        return [_with_notes(each, notes) for each in of_json(positional[1], positional[0], dialect)]
    if not positional:
        raise PasteError(f"expected a name after `{words[0]} mcp {verb}`")
    name, reached = positional[0], [*positional[1:], *command]
    url = given.get("url", [""])[-1] or (reached[0] if reached and re.match(r"https?://", reached[0]) else "")
    if url:
        headers = list(given.get("header", []))
        headers += [f"Authorization: Bearer ${{{each}}}" for each in given.get("bearer", [])]
        return [_with_values(of_url(name, url, headers, given.get("transport", [""])[-1]), given, dialect, notes)]
    if not reached:
        raise PasteError(f"expected a command or an address after the name {name!r}")
    return [_with_values(of_command(name, reached, given.get("env", [])), given, dialect, notes)]


def _with_values(
    server: NewServer, given: Mapping[str, list[str]], dialect: Dialect, notes: Sequence[str]
) -> NewServer:
    """Return a server with the other values of a line, as the client means them. Raises `PasteError`."""
    values: dict[str, Any] = {}
    for key in (*_OF_OAUTH, "timeout", "description", "includeTools", "excludeTools"):
        if key in given:
            found = given[key][-1]
            value: Any = int(found) if found.isdecimal() else found
            value = [each for part in given[key] for each in part.split(",")] if key.endswith("Tools") else value
            (values.setdefault("oauth", {}) if key in _OF_OAUTH else values)[key] = value
    return _with_notes(_of_entry(server.name, {**server.entry, **values}, dialect), (*server.notes, *notes))


def is_line(words: Sequence[str]) -> bool:
    """Return whether words are the command line that adds a server to another client, such as `claude mcp add ...`."""
    program = _program(words)
    if program in ("code", "code-insiders", "cursor") and list(words[1:2]) == ["--add-mcp"]:
        return True
    return program in _CLIENTS and list(words[1:2]) == ["mcp"] and words[2:3] in (["add"], ["add-json"])


def _program(words: Sequence[str]) -> str:
    return re.split(r"[\\/]", words[0])[-1] if words else ""


def of_json(text: str, name: str = "", dialect: Dialect | None = None) -> list[NewServer]:
    """Read servers from JSON with comments, in the form of any client. `name` is that of a single entry without one.
    `dialect`: None where the text has to say whose it is. Raises `PasteError`."""
    data = _decode(text)
    if "command" in data or any(key in data for key in ("url", "serverUrl", "httpUrl")):
        own = data.get("name")
        chosen = name or (own if isinstance(own, str) else "")
        if not chosen and isinstance(url := data.get("url"), str):
            chosen = name_of_url(url)
        if not chosen:
            raise PasteError("the JSON is one server without a name; type the name before it: foretool add NAME JSON")
        return [_of_entry(chosen, data, dialect)]
    found: Any = data
    for keys, of_keys in _SERVER_KEYS:
        inner: Any = data
        for key in keys:
            inner = inner.get(key) if isinstance(inner, Mapping) else None
        if isinstance(inner, Mapping):
            found, dialect = inner, dialect or of_keys
            break
    entries = {each: entry for each, entry in found.items() if isinstance(entry, Mapping)}
    if not entries:
        raise PasteError('the JSON holds no server; expected {"mcpServers": {"NAME": {"command": ...}}}')
    if name and len(entries) > 1:
        raise PasteError(f"the JSON holds {len(entries)} servers, so it cannot be called {name!r}; leave the name out")
    return [_of_entry(name or each, entry, dialect) for each, entry in entries.items()]


def _decode(text: str) -> Mapping[str, Any]:
    text = text.strip().rstrip(",")
    # Pages often print one member without the braces around it.
    for candidate in (text,) if text.startswith("{") else (text, "{" + text + "}"):
        try:
            found = jsonc.loads(candidate)
        except jsonc.JsonError as error:
            problem = str(error)
            continue
        if isinstance(found, Mapping):
            return found
        problem = "expected an object"
        break
    raise PasteError(f"the text cannot be read as JSON: {problem}")


def _of_entry(name: str, written: Mapping[str, Any], dialect: Dialect | None = None) -> NewServer:
    try:
        entry, notes = (dialect or _guess_dialect(written)).read(written)
    except DialectError as error:
        raise PasteError(f"{printable(name)[:60]}: {error}") from None
    return checked(NewServer(name, entry, tuple(notes)))


def _guess_dialect(written: Mapping[str, Any]) -> Dialect:
    """Return whose entry this is, as far as its keys tell it."""
    if "httpUrl" in written:
        return dialects.GEMINI
    if written.get("type") in ("local", "remote"):
        return (
            dialects.OPENCODE
            if "environment" in written or isinstance(written.get("command"), list)
            else dialects.COPILOT
        )
    if isinstance(written.get("tools"), list):
        return dialects.COPILOT
    is_of_codex = any(key in written for key in ("bearer_token_env_var", "env_vars", "startup_timeout_sec"))
    return dialects.CODEX if is_of_codex else dialects.PLAIN


def _with_notes(server: NewServer, notes: Sequence[str]) -> NewServer:
    return NewServer(server.name, server.entry, (*server.notes, *notes))


def _options(words: list[str]) -> tuple[dict[str, list[str]], list[str], list[str]]:
    """Return the options of a line by name, the other words before `--`, and those behind it."""
    given: dict[str, list[str]] = {}
    positional: list[str] = []
    while words:
        word = words.pop(0)
        if word == "--":
            return given, positional, words
        option, _, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if option in _VALUES:
            kind = _VALUES[option]
            if not value and not words:
                raise PasteError(f"{option} needs a value")
            values = given.setdefault(kind, [])
            values.append(value or words.pop(0))
            # Claude Code takes several values after one of these options.
            while not value and words and _is_value(kind, words[0]):
                values.append(words.pop(0))
        elif option in _SWITCHES and len(positional) < 2:
            given.setdefault("switch", []).append(option)
        elif word.startswith("-") and len(positional) < 2:
            raise PasteError(
                f"the option {printable(word)[:40]!r} is not known; put -- before the command of the server"
            )
        else:
            positional.append(word)
    return given, positional, []


def _is_value(kind: str, word: str) -> bool:
    if kind == "env":
        return re.match(r"[A-Za-z_]\w*=", word) is not None
    return kind == "header" and re.match(r"[\w-]+:(?!//)", word) is not None


def read_env(pairs: Sequence[str]) -> dict[str, str]:
    """Return variables by name. Raises `PasteError`."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][\w.-]*", name):
            # Not shown: it may be a secret.
            raise PasteError("--env: expected NAME=VALUE; for a variable that you export, write 'NAME=${NAME}'")
        found[name] = value
    return found


def read_headers(pairs: Sequence[str]) -> dict[str, str]:
    """Return headers by name; `Name: value` and `Name=value` are read. Raises `PasteError`."""
    found = {}
    for pair in pairs:
        match = re.match(r"([A-Za-z0-9!#$%&'*+.^_`|~-]+)\s*[:=]\s*(.*)\Z", pair, re.DOTALL)
        if match is None or re.search(r"[\r\n\0]", match[2]):
            raise PasteError("--header: expected 'Name: value' on one line")
        found[match[1]] = match[2]
    return found


def read_transport(written: str) -> str:
    """Return `stdio`, `http`, `sse`, or "" for none. Raises `PasteError`."""
    if written and written not in _TRANSPORTS:
        raise PasteError(f"--transport: expected stdio, http or sse, found {printable(written)[:20]!r}")
    return _TRANSPORTS.get(written, "")


def name_of_url(url: str) -> str:
    """Return a name for the server at an address: the part of the host that names the service."""
    host = urlsplit(url).hostname or ""
    parts = host.split(".")
    if len(parts) < 2 or re.fullmatch(r"[\d.]+", host):
        return slug(host)
    telling = [part for part in parts[:-1] if part not in _GENERIC]
    return slug(telling[-1] if telling else parts[-2])


def slug(text: str) -> str:
    """Return a text as a name of a server: letters, digits, `.`, `_` and `-`."""
    found = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")
    return re.sub(r"__+", "_", found)[:_LONGEST_NAME].rstrip("-._") or "server"


def checked(server: NewServer) -> NewServer:
    """Return the server with a usable name. Raises `PasteError` for what must not be added."""
    name = server.name if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", server.name) else slug(server.name)
    name = name[:_LONGEST_NAME]
    if "__" in name:
        name = slug(name)
    notes = server.notes
    if name != server.name:
        notes = (
            *notes,
            f"{printable(server.name)[:60]!r} is called {name} here: letters, digits and . _ - make a name",
        )
    if name.lower() in (OWN_NAME, "discover_tools", "call_tool"):
        raise PasteError(f"{name!r} is a name of foretool's own; choose another one with --name")
    if starts_foretool(server.entry):
        raise PasteError(f"{name} starts foretool, which would then start itself; add the servers behind it instead")
    for where, text in _texts(server.entry):
        if hidden := next((each for each in text if not each.isprintable() and each not in "\n\t"), None):
            raise PasteError(f"{name}: {where} holds an invisible character (U+{ord(hidden):04X}); type it by hand")
    return NewServer(name, server.entry, notes)


def _texts(value: Any, where: str = "the entry") -> Iterator[tuple[str, str]]:
    """Yield every text of an entry, keys too, with the key that it stands under."""
    if isinstance(value, str):
        yield where, value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield where, str(key)
            yield from _texts(each, printable(str(key)))
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each, where)


def plain_secrets(entry: Mapping[str, Any]) -> list[str]:
    """Return the names of variables and headers whose values are secrets that stand in the entry as they are."""
    found = []
    for key in ("env", "headers"):
        for name, value in (entry.get(key) or {}).items():
            if CREDENTIAL.search(name) and isinstance(value, str) and value and not is_reference(value):
                found.append(name)
    return found


def split_line(text: str) -> list[str]:
    """Return the words of a pasted line, as a shell splits them. Raises `PasteError`."""
    try:
        # A line that is continued on the next one ends in a backslash.
        return shlex.split(text.replace("\\\n", " "))
    except ValueError:
        raise PasteError("the line has a quote that is not closed") from None
