"""`mcp.json` to frozen values: the clients' own format plus one `foretool` block, read once at the edge.

`Config`, `Server` and `Profile` are what the rest of the program sees: checked, variables expanded, defaults filled in;
`settings.py` has the file as it is written.
Values of variables and headers are secrets: no message, warning or repr here contains one.

Imported on the way to the first `tools/list`, so nothing heavy at the top (docs/decisions/0001).
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import msgspec
from msgspec import Struct

from foretool.server.config import jsonc
from foretool.server.config.errors import Invalid, convert, dotted, guess, kind_of, one_line, refuse_unknown
from foretool.server.config.settings import DomainEntry, PolicyChoice, ProfileEntry, ServerEntry, Settings
from foretool.server.config.variables import Expansion, Secrets, collect, secrets_in_url

Transport = Literal["stdio", "http", "sse"]

KEYS_NAMED = 5
"""Of a file's keys that are none of ours."""


class ConfigError(Exception):
    """The file cannot be used at all. One line: file, line, column, key, what was found, the way out."""


# What the rest of the program sees.


class Server(Struct, frozen=True, kw_only=True):
    """One enabled, usable server: how it is reached and what of it is shown."""

    name: str
    type: Transport
    command: str
    args: tuple[str, ...]
    env: dict[str, str]
    cwd: str | None
    url: str
    headers: dict[str, str]
    prefix: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    pin: tuple[str, ...]
    timeout_s: float
    """Per call; 0 is none."""
    description: str
    secrets: Secrets
    entry: ServerEntry
    """As written. `entry.type` is None where the user left the transport of a `url` open."""

    @property
    def address(self) -> str:
        """The program as written, or scheme and host: enough to tell servers apart and free of secrets."""
        if self.entry.command:
            return self.entry.command
        return re.sub(r"(?s)^(\w+://)(?:[^/?#]*@)?([^/?#]*).*", r"\1\2", self.url)

    def offers(self, tool: str) -> bool:
        """Whether the upstream tool of this name exists for our clients."""
        return matches(tool, self.include) and not matches(tool, self.exclude)

    def __repr__(self) -> str:
        return f"Server({self.name!r}, {self.type!r})"


class Profile(Struct, frozen=True, kw_only=True):
    """What one group of clients is shown. The profile named "" is everything, under the general settings."""

    name: str
    servers: tuple[str, ...]
    pin: tuple[str, ...]
    """Patterns of exposed names, the general ones first."""
    policy: PolicyChoice
    list_tokens: int
    about: str

    def admits(self, server: str) -> bool:
        return matches(server, self.servers)


class Stamp(NamedTuple):
    """Tells cheaply whether a file may have changed."""

    mtime_ns: int
    size: int
    inode: int


class Config(Struct, frozen=True, kw_only=True):
    """One reading of the file."""

    path: Path
    stamp: Stamp | None
    """Taken before the file was read; None if it came from elsewhere."""
    servers: dict[str, Server]
    """Enabled and usable, in the order of the file."""
    broken: dict[str, str]
    """Server name to one line that says what is wrong; these do not run, the others do."""
    disabled: tuple[str, ...]
    profiles: dict[str, Profile]
    """Always holds ""."""
    settings: Settings
    warnings: tuple[str, ...]
    secrets: Secrets
    """Of all servers, and our own token."""

    @property
    def storage(self) -> Path:
        return Path(self.settings.storage)

    def redact(self, text: str) -> str:
        return self.secrets.redact(text)

    def __repr__(self) -> str:
        return f"Config({str(self.path)!r}, servers={list(self.servers)!r}, broken={list(self.broken)!r})"


class Changes(NamedTuple):
    """What a reload has to do; names in the order of the file they stand in."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    settings_changed: bool

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.settings_changed)


def default_config() -> Path:
    """Where the config is looked for: `FORETOOL_CONFIG`, `mcp.json` here, then the user's own."""
    if named := os.environ.get("FORETOOL_CONFIG"):
        return Path(named).expanduser()
    here = Path("mcp.json")
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return here if here.is_file() else Path(base).expanduser() / "foretool" / "mcp.json"


def load(path: Path, environ: Mapping[str, str] | None = None) -> Config:
    """Read and check the file. Raises `ConfigError` only if nothing can be served with it; see `Config.broken`."""
    try:
        before = stamp(path)
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"{one_line(str(path))}: no such file; copy mcp.json.example there or name another file"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(
            f"{one_line(str(path))}: cannot be read ({reason}); check the path and its permissions"
        ) from None
    return parse(data, path, environ, before)


def parse(data: bytes, path: Path, environ: Mapping[str, str] | None = None, read_at: Stamp | None = None) -> Config:
    """`load` without the file system. `environ` is this process's environment unless given."""
    environ = os.environ if environ is None else environ
    source = _Source.read(data, str(path))
    key, entries, warnings = _top_level(source)
    settings = _settings(source, path, environ)
    servers, broken, disabled = _servers(source, key, entries, environ, warnings)
    if broken and not servers:
        more = f" ({len(broken)} servers, none usable)" if len(broken) > 1 else ""
        raise ConfigError(next(iter(broken.values())) + more)
    if not servers:
        warnings.append(f"{source.name}: {key}: no server is enabled; nothing but discover_tools will be listed")
    secrets = [pair for server in servers.values() for pair in server.secrets.values]
    return Config(
        path=path,
        stamp=read_at,
        servers=servers,
        broken=broken,
        disabled=tuple(disabled),
        profiles={"": _profile("", ProfileEntry(), settings)}
        | {name: _profile(name, entry, settings) for name, entry in settings.profiles.items()},
        settings=settings,
        warnings=tuple(warnings),
        secrets=collect([*secrets, (settings.token, "token"), (settings.encoder_key, "encoder_key")]),
    )


def stamp(path: Path) -> Stamp | None:
    """None while the file does not exist: some editors delete it for a moment when they save."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return Stamp(status.st_mtime_ns, status.st_size, status.st_ino)


def diff(old: Config, new: Config) -> Changes:
    """By server; a server that became broken or disabled counts as removed."""
    return Changes(
        added=tuple(name for name in new.servers if name not in old.servers),
        removed=tuple(name for name in old.servers if name not in new.servers),
        changed=tuple(name for name, server in new.servers.items() if old.servers.get(name, server) != server),
        settings_changed=old.settings != new.settings,
    )


def same_connection(old: Server, new: Server) -> bool:
    """Whether a running upstream may stay: only names, filters, pins, texts or timeouts differ."""
    return all(
        getattr(old, field) == getattr(new, field)
        for field in ("name", "type", "command", "args", "env", "cwd", "url", "headers")
    )


def fingerprint(server: Server) -> str:
    """16 hex digits of SHA-256 over how the upstream is reached: text as written, names but no values of variables."""
    from hashlib import sha256  # 3 ms, and a status command needs none

    entry = server.entry
    reached = (server.type, entry.command, entry.args, entry.cwd, entry.url, sorted(entry.env), sorted(entry.headers))
    return sha256(msgspec.json.encode(reached)).hexdigest()[:16]


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Shell patterns (`*`, `?`, `[ab]`), upper and lower case distinct."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def host_and_port(bind: str) -> tuple[str, int]:
    """`127.0.0.1:8399`, `[::1]:8399`, `localhost:0`. Raises `ValueError`."""
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})", bind)
    if match is None or int(match[3]) > 65_535:
        raise ValueError('expected host:port, like "127.0.0.1:8399" or "[::1]:8399"')
    return match[1] or match[2], int(match[3])


# Reading: the text and where things stand in it.


class _Source:
    """The text of the file, able to say where a value stands."""

    def __init__(self, name: str, text: str) -> None:
        self.name = one_line(name)
        self.text = text
        try:
            self.document = jsonc.loads(text)
        except jsonc.JsonError as error:
            self.fail(error.offset, str(error))

    @classmethod
    def read(cls, data: bytes, name: str) -> "_Source":
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise ConfigError(f"{one_line(name)}:1:1: expected UTF-8, found UTF-16; save the file as UTF-8")
        try:
            return cls(name, data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            before = data[: error.start].decode("utf-8-sig", "replace")
            line, column = jsonc.line_and_column(before, len(before))
            found = f"byte 0x{data[error.start]:02x}"
        raise ConfigError(f"{one_line(name)}:{line}:{column}: expected UTF-8, found {found}; save the file as UTF-8")

    @cached_property
    def places(self) -> jsonc.Places:
        try:
            return jsonc.places(self.text)
        except jsonc.JsonError:
            return jsonc.Places(
                {}, {}
            )  # brackets deeper than the scanner goes, and still read: it is said without a place

    def describe(self, error: Invalid) -> str:
        offset = self.places.of_key(error.path) if error.at_key else self.places.of(error.path)
        line, column = jsonc.line_and_column(self.text, offset)
        key = f" {dotted(error.path)}:" if error.path else ""
        return f"{self.name}:{line}:{column}:{key} {error}"

    def fail(self, offset: int, problem: str) -> NoReturn:
        line, column = jsonc.line_and_column(self.text, offset)
        raise ConfigError(f"{self.name}:{line}:{column}: {problem}")


def _top_level(source: _Source) -> tuple[str, dict[str, Any], list[str]]:
    """The key that holds the servers, what it holds, and the first warnings."""
    document = source.document
    if not isinstance(document, dict):
        raise ConfigError(
            source.describe(
                Invalid((), f'expected an object, found {kind_of(document)}; write {{"mcpServers": {{...}}}}')
            )
        )
    key = "servers" if "servers" in document and "mcpServers" not in document else "mcpServers"
    entries = document.get(key)
    if key not in document:
        found = ", ".join(f'"{one_line(name)}"' for name in list(document)[:4]) or "no key at all"
        problem = (
            f'expected "mcpServers" (or "servers", as VS Code writes it), found {found}; put the servers under that key'
        )
        raise ConfigError(source.describe(Invalid((), problem)))
    if not isinstance(entries, dict):
        problem = f'expected an object of servers by name, found {kind_of(entries)}; write {{"name": {{...}}}}'
        raise ConfigError(source.describe(Invalid((key,), problem)))
    ignored = [name for name in document if name not in (key, "foretool", "inputs", "$schema")]
    meant = {name: advice for name in ignored if (advice := guess(name, ["foretool"]))}
    warnings = [f"{source.name}: {dotted((name,))}: not read by foretool{advice}" for name, advice in meant.items()]
    # Claude Code's own file has dozens.
    if others := [dotted((name,)) for name in ignored if name not in meant]:
        more = f" and {len(others) - KEYS_NAMED} more" if len(others) > KEYS_NAMED else ""
        warnings.append(f"{source.name}: not read by foretool: {', '.join(others[:KEYS_NAMED])}{more}")
    return key, entries, warnings


def _settings(source: _Source, path: Path, environ: Mapping[str, str]) -> Settings:
    try:
        return _read_settings(source.document.get("foretool", {}), path, environ)
    except Invalid as error:
        raise ConfigError(source.describe(error)) from None


def _read_settings(block: Any, path: Path, environ: Mapping[str, str]) -> Settings:
    here: jsonc.Path = ("foretool",)
    refuse_unknown(block, Settings, here)
    profiles = block.get("profiles") if isinstance(block, dict) else None
    for name, profile in profiles.items() if isinstance(profiles, dict) else ():
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            problem = "expected letters, digits, '.', '_' or '-' in a profile's name; it becomes part of an address"
            raise Invalid((*here, "profiles", name), problem, at_key=True)
        refuse_unknown(profile, ProfileEntry, (*here, "profiles", name))
    domains = block.get("domains") if isinstance(block, dict) else None
    for name, domain in domains.items() if isinstance(domains, dict) else ():
        refuse_unknown(domain, DomainEntry, (*here, "domains", name))
    settings = convert(block, Settings, here)
    told = ("storage", "bind", "token", "encoder_url", "encoder_key")
    expanded = {key: Expansion(environ, (*here, key)).text(getattr(settings, key)) for key in told}
    try:
        host_and_port(expanded["bind"])
    except ValueError as error:
        raise Invalid((*here, "bind"), f"{error}, found {settings.bind[:60]!r}") from None
    expanded["storage"] = _storage(expanded["storage"], path, environ)
    return msgspec.structs.replace(settings, **expanded)


def _storage(written: str, path: Path, environ: Mapping[str, str]) -> str:
    home = environ.get("HOME") or os.path.expanduser("~")  # noqa: PTH111 -- Path.home() raises where there is none
    state = environ.get("XDG_STATE_HOME", "")
    base = state if state.startswith("/") else f"{home}/.local/state"
    chosen = environ.get("FORETOOL_STORAGE") or written or f"{base}/foretool/foretool.sqlite3"
    # Not relative to the working folder: every client starts us in another one.
    return os.path.abspath(path.parent / _tilde(chosen, home))  # noqa: PTH100 -- resolve() would follow links


def _tilde(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path


def _profile(name: str, entry: ProfileEntry, settings: Settings) -> Profile:
    return Profile(
        name=name,
        servers=entry.servers,
        pin=settings.pin + entry.pin,
        policy=settings.policy if entry.policy is None else entry.policy,
        list_tokens=settings.list_tokens if entry.list_tokens is None else entry.list_tokens,
        about=entry.about,
    )


# Reading servers.

# As Windsurf, Gemini CLI and the Python frameworks write it.
_SAME_KEY = {"serverUrl": "url", "httpUrl": "url", "transport": "type"}

# Keys of other clients, with what to write for foretool where it has the like.
_OTHER_CLIENTS = {
    "alwaysAllow": "", "autoApprove": "", "dev": "", "gallery": "", "icon": "", "id": "", "metadata": "", "name": "",
    "oauth": "", "scope": "", "source": "", "title": "", "trust": "", "version": "",
    "disabledTools": 'foretool reads "exclude"', "excludeTools": 'foretool reads "exclude"',
    "enabledTools": 'foretool reads "include"', "includeTools": 'foretool reads "include"',
    "enabled": 'foretool reads "disabled"', "timeout": 'foretool reads "timeout_s", in seconds',
    "envFile": 'put the variables into "env" or export them',
}  # fmt: skip


def _servers(
    source: _Source, key: str, entries: dict[str, Any], environ: Mapping[str, str], warnings: list[str]
) -> tuple[dict[str, Server], dict[str, str], list[str]]:
    """Usable servers, broken ones with their message, and names of disabled ones."""
    servers: dict[str, Server] = {}
    broken: dict[str, str] = {}
    disabled: list[str] = []
    for name, written in entries.items():
        if isinstance(written, dict) and written.get("disabled") is True:
            disabled.append(name)
            continue
        try:
            servers[name] = _server(name, written, (key, name), environ)
        except Invalid as error:
            broken[name] = source.describe(error)
        else:
            warnings += (f"{source.name}: {warning}" for warning in _foreign_keys(written, (key, name)))
    return servers, broken, disabled


def _server(name: str, written: Any, here: jsonc.Path, environ: Mapping[str, str]) -> Server:
    if not isinstance(written, dict):
        raise Invalid(
            here, f'expected an object, found {kind_of(written)}; write {{"command": "..."}} or {{"url": "..."}}'
        )
    # Some clients write null for what is not set.
    known = {_SAME_KEY.get(key, key): value for key, value in written.items() if value is not None}
    entry = convert(known, ServerEntry, here)
    transport = _transport(entry, written, here)
    found = Expansion(environ, here)
    server = Server(
        name=name,
        type=transport,
        command=found.at("command").text(entry.command or ""),
        args=tuple(found.at("args", index).text(value) for index, value in enumerate(entry.args)),
        env={
            key: found.at("env", key).secret(_plain(value), key)
            for key, value in entry.env.items()
            if value is not None
        },
        cwd=_tilde(found.at("cwd").text(entry.cwd), environ.get("HOME", "~")) if entry.cwd else None,
        url=found.at("url").text(entry.url or ""),
        headers={key: found.at("headers", key).secret(value, key) for key, value in entry.headers.items()},
        prefix=name if entry.prefix is None else entry.prefix,
        include=entry.include,
        exclude=entry.exclude,
        pin=entry.pin,
        timeout_s=entry.timeout_s,
        description=entry.description,
        secrets=Secrets(),
        entry=entry,
    )
    _check_reachable(server, here)
    return msgspec.structs.replace(server, secrets=collect([*found.secrets, *secrets_in_url(server.url)]))


def _transport(entry: ServerEntry, written: dict[str, Any], here: jsonc.Path) -> Transport:
    if entry.command and entry.url:
        raise Invalid(here, 'expected "command" or "url", found both; keep one, or make two servers of it')
    if not entry.command and not entry.url:
        found = ", ".join(f'"{one_line(key)}"' for key in list(written)[:4])
        raise Invalid(here, f'expected "command" or "url", found {found or "no key"}; say how the server is reached')
    if entry.type is None:
        return "stdio" if entry.command else "http"
    transport: Transport = entry.type if entry.type in ("stdio", "sse") else "http"
    if (transport == "stdio") != bool(entry.command):
        has, needs = ('"url"', '"http" or "sse"') if entry.url else ('"command"', '"stdio"')
        raise Invalid(
            (*here, "type"), f'expected {needs} beside {has}, found "{entry.type}"; correct it or leave it out'
        )
    return transport


def _check_reachable(server: Server, here: jsonc.Path) -> None:
    """What would otherwise fail deep inside the start of a process or a request; never shows a value."""
    if server.url and not re.match(r"https?://[^/?#\s]", server.url):
        raise Invalid((*here, "url"), "expected an address that starts with http:// or https://; write it in full")
    for key, value in server.headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", key) or re.search(r"[\0\r\n]", value):
            raise Invalid(
                (*here, "headers", key), "expected a header on one line; remove line breaks and blanks in its name"
            )
    for key, value in server.env.items():
        if not key or "=" in key or "\0" in key + value:
            raise Invalid((*here, "env", key), 'expected a variable\'s name without "=", and no NUL; correct the name')
    if "\0" in "".join((server.command, *server.args, server.cwd or "")):
        raise Invalid((*here, "command"), "expected text, found a NUL character; remove \\u0000")


def _plain(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _foreign_keys(written: dict[str, Any], here: jsonc.Path) -> Iterator[str]:
    fields = ServerEntry.__struct_fields__
    silent: list[str] = []
    for key in written:
        if key in fields or key in _SAME_KEY:
            continue
        advice = _OTHER_CLIENTS.get(key)
        if advice is None:
            advice = guess(key, fields)
        elif advice:
            advice = f"; {advice}"
        if advice:
            yield f"{dotted((*here, key))}: not read by foretool{advice}"
        else:
            silent.append(f'"{one_line(key)}"')
    if silent:
        yield f"{dotted(here)}: not read by foretool: {', '.join(silent)}"
