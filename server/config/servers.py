"""One server of the config: how it is reached, which of its tools exist, and how its entry is read.

Values of variables and headers are secrets: no message, warning or repr here contains one.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from foretool.server.config import jsonc
from foretool.server.config.addresses import can_be_split, check_address
from foretool.server.config.codes import Code
from foretool.server.config.errors import (
    Coded,
    Invalid,
    Source,
    convert,
    dotted,
    guess,
    kind_of,
    printable_line,
    refuse_unknown,
)
from foretool.server.config.files import absolute
from foretool.server.config.settings import (
    CLASSES,
    OAuthEntry,
    PerUserEntry,
    ProfileEntry,
    ServerEntry,
    Settings,
    ToolEntry,
)
from foretool.server.config.variables import (
    CREDENTIAL,
    WORKING_FOLDER,
    Expansion,
    Secrets,
    collect,
    expand_tilde,
    home_folder,
    inherited_variables,
    own_variables,
    secrets_in_url,
    wrong_name,
)

_ADDRESSES: Final = ("token_endpoint", "authorization_endpoint", "revocation_endpoint")


def read_per_user(
    entry: PerUserEntry | None,
    transport: str,
    headers: Iterable[str],
    found: Expansion,
    folder: Path,
    environ: Mapping[str, str],
) -> PerUserEntry | None:
    """Return `per_user` with its variables expanded. Raises `Invalid` for what no person could use."""
    if entry is None:
        return None
    here: jsonc.Path = found.path
    if transport != "http":
        problem = 'expected a server with "url" over streamable HTTP; a local server runs as one user for everybody'
        raise Invalid(here, problem)
    if any(key.lower() == "authorization" for key in headers):
        raise Invalid(here, "expected no Authorization in headers: each person has a token of their own; remove one")
    texts = {key: found.at(key).text(getattr(entry, key)) for key in (*_ADDRESSES, "client_id", "audience", "resource")}
    for key in [key for key in _ADDRESSES if texts[key] or key == "token_endpoint"]:
        check_address(texts[key], (*here, key), "anybody on the way could take tokens")
    if not texts["client_id"] or bool(entry.client_secret) == bool(entry.private_key):
        problem = "expected client_id beside it, and client_secret or private_key; add what is missing"
        raise Invalid((*here, "client_id"), problem)
    return msgspec.structs.replace(
        entry,
        **texts,
        client_secret=found.at("client_secret").secret(entry.client_secret, "client_secret"),
        private_key=file_path(entry.private_key, found.at("private_key"), folder, environ),
    )


def find_unsealed(entries: Mapping[str, PerUserEntry | None], settings: Settings) -> dict[str, str]:
    """Return the servers that need people's consent and cannot keep or receive it, each with what is missing: a key to
    seal it, or an address to which browsers come back."""
    lacking = [key for key in ("seal_keys", "access") if not getattr(settings, key)]
    wanting = [name for name, entry in entries.items() if entry is not None and entry.kind == "grant" and lacking]
    return {name: f"per_user.authorization_endpoint needs foretool.{lacking[0]}; add it" for name in wanting}


def file_path(written: str, found: Expansion, folder: Path, environ: Mapping[str, str]) -> str:
    """Return the full path of a file that the config names, "" for none."""
    return str(absolute(folder / expand_tilde(found.text(written), home_folder(environ)))) if written else ""


def is_key(written: str) -> bool:
    """Return whether a text is a key of 32 bytes in base64."""
    letters = written.strip().rstrip("=")
    return len(letters) == 43 and bool(re.fullmatch(r"[A-Za-z0-9+/_-]+", letters))


Transport = Literal["stdio", "http", "sse"]


class Server(Struct, frozen=True, kw_only=True):
    """One enabled, usable server: how it is reached and which of its tools clients see."""

    name: str
    type: Transport
    command: str
    args: tuple[str, ...]
    env: dict[str, str]
    inherit: tuple[str, ...]
    """Names and patterns of variables that it gets from our environment."""
    withheld: tuple[str, ...]
    """Variables that hold our own credentials: no pattern of `inherit` means them."""
    cwd: str | None
    url: str
    headers: dict[str, str]
    oauth: OAuthEntry
    """With its variables expanded."""
    per_user: PerUserEntry | None
    """With its variables expanded; None where one token is for everybody."""
    client_cert: str
    client_key: str
    """Full paths of the files for mTLS, "" for none."""
    prefix: str
    secrets: Secrets
    entry: ServerEntry
    """The entry as written, which also holds what needs no expansion: patterns, time-out and description."""

    @property
    def may_sign_in(self) -> bool:
        """Whether `foretool login` can sign in to it: a remote server whose config holds no credentials for it."""
        return (
            self.type != "stdio"
            and self.per_user is None
            and not any(key.lower() == "authorization" for key in self.headers)
        )

    @property
    def address(self) -> str:
        """The program as written, or scheme and host of the url. Contains no secret."""
        if self.entry.command:
            return self.entry.command
        return re.sub(r"(?s)^(\w+://)(?:[^/?#]*@)?([^/?#]*).*", r"\1\2", self.url)

    def offers(self, tool: str) -> bool:
        """Return whether the upstream tool of this name exists for clients."""
        entry = self.entry
        if entry.exclude and matches(tool, entry.exclude):
            return False
        return not entry.include or matches(tool, entry.include)

    def result_tokens(self, tool: str) -> int | None:
        """Return the tokens that a result of an upstream tool may have, None if the entry does not say."""
        written = self.entry.result_tokens
        if not isinstance(written, dict):
            return written
        fitting = {pattern: tokens for pattern, tokens in written.items() if matches(tool, (pattern,))}
        return fitting[max(fitting, key=exactness)] if fitting else None

    def __repr__(self) -> str:
        return f"Server({self.name!r}, {self.type!r})"


def matches(name: str, patterns: Collection[str]) -> bool:
    """Return whether a name matches one of these shell patterns (`*`, `?`, `[ab]`); upper and lower case differ."""
    return "*" in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def pattern_of(name: str) -> str:
    """Return a pattern that matches only this name, in which a server or a model may have put wildcards."""
    return "".join(f"[{each}]" if each in "*?[" else each for each in name)


def exactness(pattern: str) -> int:
    """Return how many letters of a pattern are not wildcards. Of several patterns that fit, the most exact counts."""
    return len(pattern) - sum(map(pattern.count, "*?[]!"))


_CONNECTION: Final = (
    "name", "type", "command", "args", "env", "inherit", "withheld", "cwd", "url", "headers", "oauth",
    "per_user", "client_cert", "client_key",
)  # fmt: skip
"""The fields that say how a server is reached. Variables in them are expanded."""


def same_connection(old: Server, new: Server) -> bool:
    """Return whether a server's process or connection may stay after a change of its entry, because only filters, pins,
    texts or timeouts differ."""
    return all(getattr(old, field) == getattr(new, field) for field in _CONNECTION)


def digest_entry(server: Server) -> str:
    """Return a digest that changes with every edit of how a server is reached, values of variables included.

    It is the fingerprint, and four hex digits for all values: so few that no password can be told from them. Of 65,536
    edits that change nothing but a value, one is overlooked.
    """
    values = msgspec.json.encode((*(getattr(server, field) for field in _CONNECTION), server.entry))
    return f"{fingerprint(server)}{_digest(values, 4)}"


def fingerprint(server: Server) -> str:
    """Return 16 hex digits of SHA-256 over how the server is reached.

    The text counts as written, so that values of variables do not.
    """
    entry = server.entry
    reached = (server.type, entry.command, entry.args, entry.cwd, entry.url, sorted(entry.env), sorted(entry.headers))
    return _digest(msgspec.json.encode(reached))


def likeness(server: Server) -> str:
    """Return 16 hex digits of SHA-256 over what the server runs, with the program by its name alone, or over its
    address.

    It stays the same where a command gets the full path of its program, a variable or another folder. What is known of
    such a server holds until it has listed its tools again.
    """
    entry = server.entry
    program = entry.command.rpartition("/")[2] if entry.command else entry.command
    return _digest(msgspec.json.encode((server.type, program, entry.args, entry.url)))


_SUBCOMMANDS: Final = frozenset({"run", "exec", "dlx", "x", "tool"})
"""What stands before the package or the script where a launcher starts one: `uv run`, `pnpm dlx`."""
_FLAGS: Final = frozenset({"-y", "--yes", "-m", "-u", "-i", "-it", "--rm", "--init"})
"""Options of launchers that take no value, or the package itself."""
_LEADS_ON: Final = re.compile(r"://|\s")
"""A value that may name another server: an address, or a command line."""


def program_of(server: Server) -> tuple[str | None, ...]:
    """Return what a server starts or reaches, equal for entries that differ in variables, headers and options alone, as
    for two accounts. Options before the package count, and values that may name another server."""
    words: list[str] = []
    before, is_found = "", False
    for word in server.args:
        is_option = word.startswith("-")
        is_value = before.startswith("-") and not is_option
        if not is_found or not (is_option or is_value) or _LEADS_ON.search(word):
            words.append(word)
            is_found = is_found or not (is_option or word in _SUBCOMMANDS or (is_value and before not in _FLAGS))
        before = word
    return server.type, server.command, server.cwd, server.url, *words


def _digest(data: bytes, digits: int = 16) -> str:
    from hashlib import sha256  # takes 3 ms to import, and a status command needs none

    return sha256(data).hexdigest()[:digits]


CLIENT_FOLDERS = (f"${{{WORKING_FOLDER}", "${workspaceRoot", "${cwd", "${PWD", "${env:PWD")
"""How a `cwd` says that it is the folder in which the client started foretool."""

# How Windsurf, Gemini CLI and the Python frameworks spell our keys.
_SAME_KEY = {"serverUrl": "url", "httpUrl": "url", "transport": "type"}

# Keys of other clients, each with the advice that names our key, if we have one.
_OTHER_CLIENTS = {
    "alwaysAllow": '; foretool reads "allow"', "autoApprove": '; foretool reads "allow"',
    "dev": "", "gallery": "", "icon": "", "id": "", "metadata": "", "name": "",
    "scope": "", "source": "", "title": "", "version": "",
    "disabledTools": '; foretool reads "exclude"', "excludeTools": '; foretool reads "exclude"',
    "enabledTools": '; foretool reads "include"', "includeTools": '; foretool reads "include"',
    "enabled": '; foretool reads "disabled"', "timeout": '; foretool reads "timeout_s", in seconds',
    "envFile": '; put the variables into "env" or export them',
}  # fmt: skip


def read_servers(
    source: Source, key: str, entries: dict[str, Any], folder: Path, environ: Mapping[str, str], warnings: list[str]
) -> tuple[dict[str, Server], dict[str, str], list[str]]:
    """Return the usable servers, the broken ones with their messages, and the names of disabled ones. `folder` is that
    of the file, where relative paths start."""
    withheld = tuple(sorted(own_variables(source.document.get("foretool"))))
    servers: dict[str, Server] = {}
    broken: dict[str, str] = {}
    disabled: list[str] = []
    for name, written in entries.items():
        if isinstance(written, dict) and written.get("disabled") is True:
            disabled.append(name)
            continue
        try:
            servers[name] = _server(name, written, (key, name), folder, environ, withheld)
        except Invalid as error:
            broken[name] = source.error(error).coded
        else:
            warnings += (
                Coded(f"{source.name}: {warning}", Code.KEY_NOT_READ)
                for warning in _warn_of_other_keys(written, (key, name))
            )
    return servers, broken, disabled


def read_prefixes(entries: dict[str, Any]) -> dict[str, str]:
    """Return the prefix of every entry, also of those that are disabled or broken: it stays theirs."""
    written = {name: entry.get("prefix") if isinstance(entry, dict) else None for name, entry in entries.items()}
    return {name: prefix if isinstance(prefix, str) else name for name, prefix in written.items()}


def _server(
    name: str, written: Any, here: jsonc.Path, folder: Path, environ: Mapping[str, str], withheld: tuple[str, ...]
) -> Server:
    if not isinstance(written, dict):
        problem = f'expected an object, found {kind_of(written)}; write {{"command": "..."}} or {{"url": "..."}}'
        raise Invalid(here, problem, code=Code.SERVER_ENTRY)
    # Some clients write null for a key that is not set.
    known = {_SAME_KEY.get(key, key): value for key, value in written.items() if value is not None}
    if isinstance(known.get("trust"), bool):
        del known["trust"]  # Gemini CLI's, about confirmations
    if isinstance(known.get("tools"), list):
        del known["tools"]  # Copilot's, the names of tools that it may use
    check_tools(known.get("tools"), (*here, "tools"))
    if "oauth" in known:
        known["oauth"] = _read_oauth(known["oauth"], here)
    entry = convert(known, ServerEntry, here)
    check_rules(entry, here)
    transport = _transport(entry, written, here)
    found = Expansion(environ, here)
    command, cwd = _program(entry, found, folder, environ) if transport == "stdio" else ("", None)
    server = Server(
        name=name,
        type=transport,
        command=command,
        args=tuple(found.at("args", index).text(value) for index, value in enumerate(entry.args)),
        env={
            key: found.at("env", key).secret(str(value).lower() if isinstance(value, bool) else str(value), key)
            for key, value in entry.env.items()
            if value is not None
        },
        inherit=entry.inherit,
        withheld=withheld,
        cwd=cwd,
        url=found.at("url").text(entry.url or ""),
        headers={key: found.at("headers", key).secret(value, key) for key, value in entry.headers.items()},
        oauth=_expand_oauth(entry.oauth or OAuthEntry(), found.at("oauth"), folder, environ),
        per_user=read_per_user(entry.per_user, transport, entry.headers, found.at("per_user"), folder, environ),
        client_cert=file_path(entry.client_cert, found.at("client_cert"), folder, environ),
        client_key=file_path(entry.client_key, found.at("client_key"), folder, environ),
        prefix=name if entry.prefix is None else entry.prefix,
        secrets=Secrets(),
        entry=entry,
    )
    _check_reachable(server, here)
    given = inherited_variables(environ, entry.inherit, withheld)
    found.secrets += ((value, key) for key, value in given.items() if CREDENTIAL.search(key))
    return msgspec.structs.replace(server, secrets=collect([*found.secrets, *secrets_in_url(server.url)]))


def _program(entry: ServerEntry, found: Expansion, folder: Path, environ: Mapping[str, str]) -> tuple[str, str | None]:
    """Return the program and the folder in which it starts, both with full paths; a bare program is found on PATH.

    A program starts in the folder of the client only if the user writes so: that may be a cloned repository, and npx,
    `python -m` and others run files of the folder they start in.
    """
    home = home_folder(environ)
    cwd = _full_path(str(folder), expand_tilde(found.at("cwd").text(entry.cwd or ""), home))
    command = expand_tilde(found.at("command").text(entry.command or ""), home)
    if "/" in command:
        # `cwd` may be the folder of the client, and a program of the user is not looked up there.
        chosen = entry.cwd and not any(name in entry.cwd for name in CLIENT_FOLDERS)
        command = _full_path(cwd if chosen else str(folder), command)
    return command, cwd


def _full_path(folder: str, path: str) -> str:
    # Not with pathlib, which takes 20 ms for hundreds of servers.
    return os.path.abspath(os.path.join(folder, path))  # noqa: PTH100, PTH118


def check_tools(written: Any, here: jsonc.Path) -> None:
    """Refuse a misspelt key, which would leave a tool visible, and a name that clients refuse."""
    for tool, entry in written.items() if isinstance(written, dict) else ():
        refuse_unknown(entry, ToolEntry, (*here, tool))
        name = entry.get("name") if isinstance(entry, dict) else None
        if isinstance(name, str) and not re.fullmatch(r"[A-Za-z0-9_-]{0,49}", name):
            problem = (
                f'expected up to 49 letters, digits, "_" or "-", found "{printable_line(name)}"; write a name like this'
            )
            raise Invalid((*here, tool, "name"), problem)


# How Claude Code and Gemini CLI spell our keys.
_SAME_OAUTH_KEY = {"clientId": "client_id", "clientSecret": "client_secret", "callbackPort": "redirect_port"}


def _read_oauth(written: Any, here: jsonc.Path) -> Any:
    """Return `oauth` in our spelling. Other clients write `true` or `{"enabled": true}` where nothing has to be set."""
    if isinstance(written, bool):
        return {}
    if not isinstance(written, dict):
        return written
    return {_SAME_OAUTH_KEY.get(key, key): value for key, value in written.items() if key != "enabled"}


def _expand_oauth(entry: OAuthEntry, found: Expansion, folder: Path, environ: Mapping[str, str]) -> OAuthEntry:
    """Expand the variables of `oauth`. Raises `Invalid` for what no sign-in could use."""
    metadata_url = found.at("client_metadata_url").text(entry.client_metadata_url)
    if metadata_url and not re.match(r"https://[^/?#\s]+/[^?#\s]", metadata_url):
        problem = "expected an address with a path that starts with https://; publish the document there"
        raise Invalid((*found.path, "client_metadata_url"), problem)
    issuer = found.at("issuer").text(entry.issuer)
    shows_one = bool(entry.client_secret) != bool(entry.private_key)
    if entry.grant == "client_credentials" and not (entry.client_id and shows_one and issuer):
        problem = "expected client_id, client_secret (or private_key) and issuer beside it; add what is missing"
        raise Invalid((*found.path, "grant"), problem)
    if entry.private_key and entry.grant != "client_credentials":
        problem = 'expected "grant": "client_credentials" beside it: only a machine signs in with a key; add it'
        raise Invalid((*found.path, "private_key"), problem)
    return msgspec.structs.replace(
        entry,
        client_id=found.at("client_id").text(entry.client_id),
        client_secret=found.at("client_secret").secret(entry.client_secret, "client_secret"),
        client_metadata_url=metadata_url,
        private_key=file_path(entry.private_key, found.at("private_key"), folder, environ),
        issuer=issuer,
    )


def check_rules(entry: ServerEntry | ProfileEntry, here: jsonc.Path) -> None:
    """Refuse a class in `allow` or `deny` that does not exist: a rule that is misspelt would deny nothing."""
    for key in ("allow", "deny"):
        for place, rule in enumerate(getattr(entry, key)):
            if not rule or (rule[0] == "@" and rule not in CLASSES):
                known = " or ".join(f'"{each}"' for each in CLASSES)
                problem = f'expected a pattern of names, {known}, found "{printable_line(rule)}"{guess(rule, CLASSES)}'
                raise Invalid((*here, key, place), problem)


def _transport(entry: ServerEntry, written: dict[str, Any], here: jsonc.Path) -> Transport:
    if entry.command and entry.url:
        problem = 'expected "command" or "url", found both; keep one, or make two servers of it'
        raise Invalid(here, problem, code=Code.SERVER_ENTRY)
    if not entry.command and not entry.url:
        found = ", ".join(f'"{printable_line(key)}"' for key in list(written)[:4])
        problem = f'expected "command" or "url", found {found or "no key"}; say how the server is reached'
        raise Invalid(here, problem, code=Code.SERVER_ENTRY)
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
    """Refuse what would otherwise fail deep inside the start of a process or a request. Never shows a value."""
    if server.url and not re.match(r"https?://[^/?#\s]", server.url):
        raise Invalid((*here, "url"), "expected an address that starts with http:// or https://; write it in full")
    if server.url and not can_be_split(server.url):
        raise Invalid((*here, "url"), "expected a host and a port up to 65535; correct the port or leave it out")
    for key, value in server.headers.items():
        if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", key) or re.search(r"[\0\r\n]", value):
            raise Invalid(
                (*here, "headers", key), "expected a header on one line; remove line breaks and blanks in its name"
            )
    for key, value in server.env.items():
        if not key or "=" in key or "\0" in key + value:
            raise Invalid((*here, "env", key), 'expected a variable\'s name without "=", and no NUL; correct the name')
    for place, wanted in enumerate(server.inherit):
        if problem := wrong_name(wanted):
            raise Invalid((*here, "inherit", place), problem)
    if "\0" in "".join((server.command, *server.args, server.cwd or "")):
        raise Invalid((*here, "command"), "expected text, found a NUL character; remove \\u0000")


def _warn_of_other_keys(written: dict[str, Any], here: jsonc.Path) -> Iterator[str]:
    fields = ServerEntry.__struct_fields__
    without_advice: list[str] = []
    oauth = written.get("oauth")
    for key in oauth if isinstance(oauth, dict) else ():
        if key not in (*OAuthEntry.__struct_fields__, *_SAME_OAUTH_KEY, "enabled"):
            yield f"{dotted((*here, 'oauth', key))}: not read by foretool{guess(key, OAuthEntry.__struct_fields__)}"
    for key in written:
        if key == "trust" and isinstance(written[key], bool):
            yield f'{dotted((*here, key))}: not read by foretool; its own "trust" is "pin", "review" or "auto"'
        if key == "tools" and isinstance(written[key], list):
            yield f'{dotted((*here, key))}: not read by foretool; it reads "include"'
        if key in fields or key in _SAME_KEY:
            continue
        if advice := _OTHER_CLIENTS[key] if key in _OTHER_CLIENTS else guess(key, fields):
            yield f"{dotted((*here, key))}: not read by foretool{advice}"
        else:
            without_advice.append(f'"{printable_line(key)}"')
    if without_advice:
        yield f"{dotted(here)}: not read by foretool: {', '.join(without_advice)}"
