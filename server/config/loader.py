"""Reads `mcp.json`: the servers in the clients' own format, and foretool's settings in the `foretool` block.

`load` returns a frozen `Config`, checked, with variables expanded and defaults filled in. `settings.py` describes the
file as people write it. Values of variables and headers are secrets: no message, warning or repr here contains one.

Loaded before the first `tools/list`, so nothing heavy is imported at the top (docs/decisions/0001).
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
from msgspec import Struct

from foretool.server.config import jsonc
from foretool.server.config.addresses import parse_address
from foretool.server.config.codes import Code
from foretool.server.config.errors import (
    Coded,
    ConfigError,
    Invalid,
    Source,
    convert,
    dotted,
    guess,
    kind_of,
    lacks_folder,
    printable_line,
    refuse_unknown,
)
from foretool.server.config.files import (
    ConfigPlace,
    NamedBy,
    absolute,
    find_other_writers,
    find_place,
    find_project_file,
    is_own_file,
    read_regular,
)
from foretool.server.config.servers import (
    Server,
    check_rules,
    find_unsealed,
    is_key,
    matches,
    read_prefixes,
    read_servers,
)
from foretool.server.config.settings import (
    FROM_FILE,
    LIST_TOKENS,
    AccessEntry,
    DomainEntry,
    EnrichEntry,
    GrantEntry,
    JudgeEntry,
    Limits,
    PolicyChoice,
    ProfileEntry,
    Settings,
    TokenEntry,
)
from foretool.server.config.tokens import read_access, read_tokens, unmatched_patterns
from foretool.server.config.variables import (
    Expansion,
    Secrets,
    client_names_in,
    collect,
    expand_tilde,
    home_folder,
    variable_names,
)
from foretool.storage.places import StorePlace, find_passwords, find_problem, is_address, read_place

_WEIGHTS = ".gguf"
"""How the name of a file of weights ends that `enrich` runs on this machine."""


class Profile(Struct, frozen=True, kw_only=True):
    """What one group of clients sees: servers, pins, policy and budget. The profile named "" has every server and the
    general settings."""

    name: str
    servers: tuple[str, ...]
    pin: tuple[str, ...]
    """Patterns of exposed names, the general ones first."""
    policy: PolicyChoice
    list_tokens: int
    whole_tokens: int
    """All its tools are listed where they take at most so many: `list_tokens`, or more where nobody has set that."""
    about: str
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    learn: bool = True
    """Whether its sessions may be learned from."""
    person: str = ""
    """Whose list it is, where the tools of some server depend on that; "" where they do not."""
    shows_pages: bool = False
    """Whether it is the list of a client that shows the pages of servers (MCP Apps)."""

    def with_budget(self, tokens: int) -> Self:
        """Return the same profile with `list_tokens` set."""
        return msgspec.structs.replace(self, list_tokens=tokens, whole_tokens=tokens)

    @property
    def key(self) -> str:
        """A key that tells the profile's list from all others."""
        # No config file can hold these characters in a name that it also serves.
        name = f"{self.name}\x1e" if self.shows_pages else self.name
        return f"{name}\x1f{self.person}" if self.person else name

    def admits(self, server: str) -> bool:
        return self.servers == ("*",) or matches(server, self.servers)


Stamp = tuple[int, int, int]
"""Time of the last change (ns), size and inode of a file, to see cheaply whether it may have changed."""


class Config(Struct, frozen=True, kw_only=True):
    """The content of a config file, checked and with variables expanded."""

    path: Path
    stamp: Stamp | None
    """Taken before the file was read; None if the text did not come from a file."""
    servers: dict[str, Server]
    """Enabled and usable servers, in the order of the file."""
    broken: dict[str, str]
    """Server name to one line that says what is wrong. These servers do not run, the others do."""
    disabled: tuple[str, ...]
    prefixes: dict[str, str]
    """The prefix of every server, in the order of the file; broken and disabled servers keep theirs."""
    profiles: dict[str, Profile]
    """Always contains the profile ""."""
    settings: Settings
    warnings: tuple[str, ...]
    secrets: Secrets
    """Secrets of all servers, and foretool's own token and key."""
    names: frozenset[str] = frozenset()
    """Variables that the text of the file reads, and words that only clients know, such as `workspaceFolder`."""
    named_by: NamedBy = "--config"
    ignored: Path | None = None
    """`mcp.json` of the working folder, if it exists and nobody said that it may be read."""

    state_folder: Path = Path()
    """Where foretool keeps what belongs to the user of this machine."""

    @property
    def wrong(self) -> dict[str, str]:
        """The broken servers, without those that only lack an open folder: these work for other clients."""
        return {name: said for name, said in self.broken.items() if not lacks_folder(said)}

    @property
    def storage(self) -> StorePlace:
        """Where the store is. As a text it has no password."""
        return read_place(self.settings.storage, self.state_folder)

    def require_profile(self, name: str) -> Profile:
        """Return the profile of this name. Raises `ConfigError` that lists the existing ones."""
        if name in self.profiles:
            return self.profiles[name]
        known = ", ".join(known for known in self.profiles if known) or "none"
        raise ConfigError(f"{self.path}: no profile {name!r}; it has: {known}", Code.PROFILE_UNKNOWN)

    def __repr__(self) -> str:
        return f"Config({str(self.path)!r}, servers={list(self.servers)!r}, broken={list(self.broken)!r})"


class LiveConfig:
    """Holds the config in force. Collaborators keep this object and read the config through it."""

    def __init__(self, config: Config) -> None:
        self.now = config
        """The config in force; a reload sets another one."""

    @property
    def settings(self) -> Settings:
        return self.now.settings

    @property
    def keeps_text(self) -> bool:
        """Whether tasks and the names of arguments may be recorded."""
        return self.now.settings.record != "off"

    def redact(self, text: str) -> str:
        """Return the text without the secrets of any server."""
        return self.now.secrets.redact(text)

    def profile(self, name: str, person: str = "") -> Profile:
        """Return a profile by name, as this person has it; one that a reload has removed has no servers."""
        found = self.now.profiles.get(name) or msgspec.structs.replace(
            self.now.profiles[""], name=name, servers=(), pin=(), about=""
        )
        differs = person and any(server.per_user and found.admits(server.name) for server in self.now.servers.values())
        return msgspec.structs.replace(found, person=person) if differs else found


class ConfigChanges(NamedTuple):
    """Which servers a reload adds, removes and restarts; names in the order of their file."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]
    settings_changed: bool


def load(path: Path | None = None, environ: Mapping[str, str] | None = None) -> Config:
    """Read and check a file. `path` is that of `--config`; None for `FORETOOL_CONFIG`, or the user's own file.

    The user's own file may hand over to `mcp.json` of the working folder (`project_config`). Raises `ConfigError` only
    if no server can be served; see `Config.broken`.
    """
    environ = os.environ if environ is None else environ
    place = find_place(path, environ)
    try:
        return _load(place, environ)
    except ConfigError as error:
        error.file = place.path
        raise


def _load(place: ConfigPlace, environ: Mapping[str, str]) -> Config:
    config = msgspec.structs.replace(_read(place, environ), named_by=place.named_by, ignored=place.ignored)
    if not config.settings.project_config:
        return config
    if not is_own_file(place.path, environ):
        return _warn(config, "foretool.project_config: only your own file may say this; it is ignored here")
    project = find_project_file(place.path)
    if project is None:
        return config
    if problem := find_other_writers(project):
        return _warn(
            config,
            f"{printable_line(str(project))} is not used: {printable_line(problem)}; change its owner or its mode",
        )
    return _read_project(project, config.settings.storage, environ)


def load_again(config: Config) -> Config:
    """Read the file that this config came from once more. Raises `ConfigError`."""
    if config.named_by == "project_config":
        return _read_project(config.path, config.settings.storage, os.environ)
    read = _read(ConfigPlace(config.path, config.named_by), os.environ)
    return msgspec.structs.replace(read, named_by=config.named_by, ignored=config.ignored)


def _read_project(path: Path, storage: str, environ: Mapping[str, str]) -> Config:
    """Read a project's file, which does not choose where prompts and calls are recorded."""
    config = _read(ConfigPlace(path, "project_config"), environ)
    settings = msgspec.structs.replace(config.settings, storage=storage)
    secrets = collect([*((value, name) for value, name in config.secrets.values), *_storage_secrets(storage)])
    return msgspec.structs.replace(config, settings=settings, secrets=secrets, named_by="project_config")


def _warn(config: Config, warning: str) -> Config:
    coded = Coded(warning, Code.OPTION_WRONG)
    return msgspec.structs.replace(config, warnings=(*config.warnings, coded))


def _read(place: ConfigPlace, environ: Mapping[str, str]) -> Config:
    path = place.path
    name = printable_line(str(path))
    try:
        before = stamp(path)
        data = read_regular(path)
        str(absolute(path)).encode()
    except UnicodeEncodeError:
        problem = f"{name}: the path has bytes that are not UTF-8; move the file, or name a copy with --config"
        raise ConfigError(problem, Code.CONFIG_UNREADABLE) from None
    except FileNotFoundError:
        raise missing_file(place) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        problem = f"{name}: cannot be read ({reason}); check the path and its permissions"
        raise ConfigError(problem, Code.CONFIG_UNREADABLE) from None
    return parse(data, path, environ, before)


def missing_file(place: ConfigPlace) -> ConfigError:
    """Return what every command says where there is no config."""
    do = "run foretool init or foretool add, or name your client's file with --config"
    problem = f"{printable_line(str(place.path))}: no such file; {do}"
    if place.ignored is not None:
        problem += "; mcp.json of this folder is read only with --config mcp.json"
    error = ConfigError(problem, Code.CONFIG_MISSING)
    error.file = place.path
    return error


def parse(data: bytes, path: Path, environ: Mapping[str, str] | None = None, read_at: Stamp | None = None) -> Config:
    """Do what `load` does, without the file system. `environ` defaults to the environment of this process."""
    environ = os.environ if environ is None else environ
    source = Source(data, str(path))
    try:
        key, entries, warnings = _read_top_level(source)
        settings = _read_settings(source, path, environ, warnings)
    except Invalid as error:
        raise source.error(error) from None
    folder = absolute(path).parent
    servers, broken, disabled = read_servers(source, key, entries, folder, environ, warnings)
    for name, problem in find_unsealed({name: each.per_user for name, each in servers.items()}, settings).items():
        del servers[name]
        broken[name] = source.error(Invalid((key, name), problem)).coded
    if broken and not servers:
        more = f" ({len(broken)} servers, none usable)" if len(broken) > 1 else ""
        first = next(iter(broken.values()))
        raise ConfigError(first + more, first.code if isinstance(first, Coded) else Code.SERVER_ENTRY, broken)
    if not servers:
        nothing = f"{source.name}: {key}: no server is enabled; clients will only see discover_tools"
        warnings.append(Coded(nothing, Code.NO_SERVERS))
    secrets = [pair for server in servers.values() for pair in server.secrets.values]
    return Config(
        path=path,
        stamp=read_at,
        servers=servers,
        broken=broken,
        disabled=tuple(disabled),
        prefixes=read_prefixes(entries),
        profiles={
            name: _read_profile(name, entry, settings)
            for name, entry in {"": ProfileEntry(), **settings.profiles}.items()
        },
        settings=settings,
        warnings=tuple(warnings),
        state_folder=_state_folder(environ),
        names=variable_names(source.text) | client_names_in(source.text),
        secrets=collect(
            [
                *secrets,
                (settings.token, "token"),
                (settings.encoder_key, "encoder_key"),
                (settings.enrich.key if settings.enrich else "", "enrich.key"),
                (settings.judge.key if settings.judge else "", "judge.key"),
                *((each, "seal_keys") for each in settings.seal_keys),
                (settings.access.client_secret if settings.access else "", "client_secret"),
                *_storage_secrets(settings.storage),
                *((entry.token, f"token {entry.name}") for entry in settings.tokens),
            ]
        ),
    )


def _read_profile(name: str, entry: ProfileEntry, settings: Settings) -> Profile:
    """Return a profile with the general settings where its entry has none."""
    written = settings.list_tokens if entry.list_tokens is None else entry.list_tokens
    return Profile(
        name=name,
        servers=entry.servers,
        pin=settings.pin + entry.pin,
        policy=settings.policy if entry.policy is None else entry.policy,
        list_tokens=LIST_TOKENS if written is None else written,
        whole_tokens=settings.list_whole_tokens if written is None else written,
        about=entry.about,
        allow=entry.allow,
        deny=entry.deny,
        learn=entry.learn,
    )


def stamp(path: Path) -> Stamp | None:
    """Return the stamp of a file, None while it does not exist: some editors delete it for a moment when they save."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def diff(old: Config, new: Config) -> ConfigChanges:
    """Compare two readings by server; a server that became broken or disabled counts as removed."""
    return ConfigChanges(
        added=tuple(name for name in new.servers if name not in old.servers),
        removed=tuple(name for name in old.servers if name not in new.servers),
        changed=tuple(name for name, server in new.servers.items() if old.servers.get(name, server) != server),
        settings_changed=old.settings != new.settings,
    )


def find_server_key(document: Mapping[str, Any]) -> str:
    """Return the key that holds the servers: `mcpServers`, or VS Code's `servers`."""
    return "servers" if "servers" in document and "mcpServers" not in document else "mcpServers"


def _read_top_level(source: Source) -> tuple[str, dict[str, Any], list[str]]:
    """Return the key that holds the servers, its value, and the first warnings. Raises `Invalid`."""
    document = source.document
    if not isinstance(document, dict):
        problem = f'expected an object, found {kind_of(document)}; write {{"mcpServers": {{...}}}}'
        raise Invalid((), problem, code=Code.CONFIG_SHAPE)
    key = find_server_key(document)
    entries = document.get(key)
    if key not in document:
        found = ", ".join(f'"{printable_line(name)}"' for name in list(document)[:4]) or "no key at all"
        problem = f'expected "mcpServers" (or VS Code\'s "servers"), found {found}; put the servers under that key'
        raise Invalid((), problem, code=Code.CONFIG_SHAPE)
    if not isinstance(entries, dict):
        problem = f'expected an object of servers by name, found {kind_of(entries)}; write {{"name": {{...}}}}'
        raise Invalid((key,), problem, code=Code.CONFIG_SHAPE)
    known = (
        key,
        "foretool",
        "inputs",
        "$schema",
        *(("projects",) if _unread_projects(document.get("projects")) else ()),
    )
    ignored = [name for name in document if name not in known]
    meant = {name: advice for name in ignored if (advice := guess(name, ["foretool"]))}
    warnings: list[str] = [
        Coded(f"{source.name}: {dotted((name,))}: not read by foretool{advice}", Code.KEY_NOT_READ)
        for name, advice in meant.items()
    ]
    # Claude Code's own file has dozens of other keys.
    if others := [dotted((name,)) for name in ignored if name not in meant]:
        more = f" and {len(others) - 5} more" if len(others) > 5 else ""
        unread = f"{source.name}: not read by foretool: {', '.join(others[:5])}{more}"
        warnings.append(Coded(unread, Code.KEY_NOT_READ))
    if unread := _unread_projects(document.get("projects")):
        warnings.append(Coded(f"{source.name}: {unread}", Code.PROJECTS_NOT_READ))
    return key, entries, warnings


def _unread_projects(projects: Any) -> str:
    """Say which servers Claude Code has for single folders in its own file, or ""."""
    found = [
        str(name)
        for project in (projects.values() if isinstance(projects, dict) else ())
        if isinstance(project, dict) and isinstance(project.get("mcpServers"), dict)
        for name in project["mcpServers"]
    ]
    if not found:
        return ""
    shown = ", ".join(printable_line(name) for name in found[:5]) + (f" and {len(found) - 5} more" if found[5:] else "")
    return f"projects: servers that Claude Code has for one folder each are not read: {shown}; foretool init takes them"


def _read_settings(source: Source, path: Path, environ: Mapping[str, str], warnings: list[str]) -> Settings:
    block = source.document.get("foretool", {})
    here: jsonc.Path = ("foretool",)
    limits = None
    if isinstance(block, dict) and "limits" in block and os.environ.get(FROM_FILE):
        limits = convert(block["limits"], Limits, (*here, "limits"))
        block = {key: value for key, value in block.items() if key != "limits"}
    _refuse_unknown_settings(block, here)
    settings = convert(block, Settings, here)
    if limits is not None:
        settings = msgspec.structs.replace(settings, **msgspec.structs.asdict(limits))
    for name, profile in settings.profiles.items():
        check_rules(profile, (*here, "profiles", name))
    settings = _expand_settings(settings, here, path, environ)
    for at, pattern in unmatched_patterns(settings):
        nothing = Invalid((*here, *at), f"{pattern!r} matches no profile")
        warnings.append(Coded(str(source.error(nothing)), Code.PROFILE_UNKNOWN))
    return settings


def _refuse_unknown_settings(block: Any, here: jsonc.Path) -> None:
    if not isinstance(block, dict):
        return  # `convert` refuses what is not an object, here and below
    refuse_unknown(block, Settings, here)
    for key, kind in (("profiles", ProfileEntry), ("domains", DomainEntry)):
        entries = block.get(key)
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            if key == "profiles" and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
                problem = "expected letters, digits, '.', '_' or '-' in a profile's name; it becomes part of an address"
                raise Invalid((*here, key, name), problem, at_key=True)
            refuse_unknown(entry, kind, (*here, key, name))
    tokens = block.get("tokens")
    for at, entry in enumerate(tokens if isinstance(tokens, list) else ()):
        refuse_unknown(entry, TokenEntry, (*here, "tokens", at))
    for key, one in (("enrich", EnrichEntry), ("judge", JudgeEntry), ("access", AccessEntry)):
        refuse_unknown(block.get(key), one, (*here, key))
    access = block.get("access")
    grants = access.get("grants") if isinstance(access, dict) else None
    for at, entry in enumerate(grants if isinstance(grants, list) else ()):
        refuse_unknown(entry, GrantEntry, (*here, "access", "grants", at))


def _expand_settings(settings: Settings, here: jsonc.Path, path: Path, environ: Mapping[str, str]) -> Settings:
    with_variables = ("storage", "bind", "token", "encoder_url", "encoder_key")
    expanded = {key: Expansion(environ, (*here, key)).text(getattr(settings, key)) for key in with_variables}
    try:
        parse_address(expanded["bind"])
    except ValueError as error:
        raise Invalid((*here, "bind"), f"{error}, found {settings.bind[:60]!r}") from None
    expanded["storage"] = _find_storage(expanded["storage"], here, path, environ)
    if settings.encoder.startswith((".", "~")) and not expanded["encoder_url"]:
        folder = path.parent / expand_tilde(settings.encoder, home_folder(environ))
        expanded["encoder"] = str(absolute(folder))
    keys = tuple(Expansion(environ, (*here, "seal_keys", at)).text(key) for at, key in enumerate(settings.seal_keys))
    for at, written in enumerate(keys):
        if not is_key(written):
            problem = (
                "expected 32 bytes in base64, as `openssl rand -base64 32` prints them; write ${FORETOOL_SEAL_KEY}"
            )
            raise Invalid((*here, "seal_keys", at), problem)
    return msgspec.structs.replace(
        settings,
        seal_keys=keys,
        tokens=read_tokens(settings, here, environ),
        access=read_access(settings, here, environ),
        enrich=_read_enrich(settings.enrich, (*here, "enrich"), path, environ),
        judge=_read_judge(settings.judge, (*here, "judge"), environ),
        **expanded,
    )


def _read_enrich(
    entry: EnrichEntry | None, here: jsonc.Path, path: Path, environ: Mapping[str, str]
) -> EnrichEntry | None:
    if entry is None:
        return None
    expanded = {key: Expansion(environ, (*here, key)).text(getattr(entry, key)) for key in ("url", "model", "key")}
    if not entry.url and expanded["model"].endswith(_WEIGHTS):
        file = path.parent / expand_tilde(expanded["model"], home_folder(environ))
        return msgspec.structs.replace(entry, **{**expanded, "model": str(absolute(file))})
    problem = 'expected the address of an OpenAI-compatible API, like "http://127.0.0.1:11434/v1"'
    _check_model(entry, expanded, here, f"{problem}, or none and a file of weights ({_WEIGHTS}) as `model`")
    return msgspec.structs.replace(entry, **expanded)


def _read_judge(entry: JudgeEntry | None, here: jsonc.Path, environ: Mapping[str, str]) -> JudgeEntry | None:
    if entry is None:
        return None
    expanded = {key: Expansion(environ, (*here, key)).text(getattr(entry, key)) for key in ("url", "model", "key")}
    problem = 'expected the address of an API, like "http://127.0.0.1:11434/v1" or one that ends with "/systemone"'
    _check_model(entry, expanded, here, problem)
    return msgspec.structs.replace(entry, **expanded)


def _check_model(entry: EnrichEntry | JudgeEntry, expanded: Mapping[str, str], here: jsonc.Path, problem: str) -> None:
    """Raise `Invalid` for a model that is no API's. `problem`: what its address should be."""
    if not expanded["url"].startswith(("http://", "https://")):
        # As it is written: the value of a variable may be a secret.
        raise Invalid((*here, "url"), f"{problem}; found {printable_line(entry.url[:60])!r}")
    if not expanded["model"]:
        raise Invalid((*here, "model"), "expected the name of a model, found none; write what the API calls it")


def _find_storage(written: str, here: jsonc.Path, path: Path, environ: Mapping[str, str]) -> str:
    """Return the address or the full path of the store. Raises `Invalid`, without the value: it may hold a password."""
    chosen = environ.get("FORETOOL_STORAGE") or written or str(_state_folder(environ) / "foretool.sqlite3")
    if problem := find_problem(chosen):
        named = " (in FORETOOL_STORAGE)" if environ.get("FORETOOL_STORAGE") else ""
        raise Invalid((*here, "storage"), f"{problem}{named}", code=Code.STORAGE_ADDRESS)
    if is_address(chosen):
        return chosen
    # Not relative to the working folder: every client starts foretool in another one.
    return str(absolute(path.parent / expand_tilde(chosen, home_folder(environ))))


def _state_folder(environ: Mapping[str, str]) -> Path:
    state = environ.get("XDG_STATE_HOME", "")
    base = state if state.startswith("/") else f"{home_folder(environ)}/.local/state"
    return Path(base) / "foretool"


def _storage_secrets(storage: str) -> list[tuple[str, str]]:
    return [(password, "storage") for password in find_passwords(storage)]
