"""Finds what other users or machines could read or change: the config file, credentials on the wire and in arguments.

No text here contains a value of the config.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from foretool.server.config import jsonc
from foretool.server.config.addresses import Address, is_loopback, parse_address
from foretool.server.config.codes import Code
from foretool.server.config.errors import printable_line
from foretool.server.config.files import (
    find_other_writers,
    is_own_and_writable_by_others,
    is_readable_by_others,
    read_regular,
)
from foretool.server.config.loader import Config
from foretool.server.config.servers import Server
from foretool.server.config.settings import Settings
from foretool.server.config.tokens import WAY_OUT, find_problems, needs_token
from foretool.server.config.variables import CREDENTIAL, VARIABLE, secrets_in_url
from foretool.storage.places import find_passwords, local_folder

_MOST_SHOWN = 5


class Risk(NamedTuple):
    """One thing that other users or machines could read or change."""

    severity: Literal["note", "warning"]
    what: str
    do: str
    code: Code
    path: Path | None = None
    """The file whose permissions are to blame, if it is the user's own; nobody else has to reach it."""


def find_risks(config: Config) -> Iterator[Risk]:
    """Return every risk of a config and of the file that it came from."""
    yield from _risks_of_file(config.path)
    folder = local_folder(config.storage)
    if folder is not None and (problem := find_other_writers(folder.parent)):
        do = "keep the database in a folder that only you may write"
        yield Risk(
            "warning",
            f"{config.storage}: {printable_line(problem)}, and could replace its folder",
            do,
            Code.FILE_OPEN_TO_OTHERS,
        )
    for server in config.servers.values():
        yield from _risks_of_server(server)
    settings = config.settings
    if settings.encoder_key and (host := open_host(settings.encoder_url)):
        what = f"foretool.encoder_key is sent over http:// to {host}"
        yield Risk("warning", what, "use https:// in encoder_url", Code.SENT_IN_CLEAR)
    for name, model, sent in (("enrich", settings.enrich, "the texts of tools"), ("judge", settings.judge, "tasks")):
        if model and (host := open_host(model.url)):
            what = f"foretool.{name} sends {sent}{' and its key' if model.key else ''} over http:// to {host}"
            yield Risk("warning", what, f"use https:// in {name}.url", Code.SENT_IN_CLEAR)
    yield from _risks_of_serving(settings)


def _risks_of_serving(settings: Settings) -> Iterator[Risk]:
    for _, problem in find_problems(settings):
        what, _, do = problem.partition("; ")
        yield Risk("warning", f"foretool: {what}; serve --http does not accept it", do, Code.TOKEN_WEAK)
    if settings.insecure_loopback and not needs_token(settings):
        what = "insecure_loopback: with serve --http, every program and user of this machine can call every tool"
        yield Risk("note", what, f"delete it, and {WAY_OUT}", Code.SERVED_OPENLY)
    address = parse_address(settings.bind)
    yield from find_open_address(address, "bind ")
    if is_open(address) and not needs_token(settings):
        what = f"bind {address}: open to other machines, and no token is set; serve --http does not start like this"
        yield Risk("warning", what, WAY_OUT, Code.SERVED_OPENLY)


def find_open_address(address: Address, setting: str = "") -> Iterator[Risk]:
    """Return the risk of serving at an address that other machines reach. `setting`: what names it."""
    if is_open(address):
        what = f"{setting}{address}: serve --http does not encrypt, so tokens and answers can be read on the way"
        yield Risk("warning", what, "bind 127.0.0.1 behind a proxy with TLS, or use a tunnel", Code.SERVED_OPENLY)


def is_open(address: Address) -> bool:
    """Return whether other machines reach an address."""
    return not address.path and not is_loopback(address.host)


def _risks_of_file(path: Path) -> Iterator[Risk]:
    shown = printable_line(str(path))
    if problem := find_other_writers(path):
        what = f"{shown}: {printable_line(problem)}, and what a config says runs as you"
        do = "let only you write it: chown to yourself, chmod go-w"
        yield Risk("warning", what, do, Code.FILE_OPEN_TO_OTHERS, path if is_own_and_writable_by_others(path) else None)
    if is_readable_by_others(path) and (held := find_written_secrets(path)):
        more = f" and {len(held) - _MOST_SHOWN} more" if len(held) > _MOST_SHOWN else ""
        secrets = f"{', '.join(held[:_MOST_SHOWN])}{more}"
        what = f"{shown}: other users of this machine may read it, and it holds {secrets}"
        own = path if path.stat().st_uid == os.geteuid() else None
        yield Risk("warning", what, f"run: chmod 600 {shown}", Code.FILE_OPEN_TO_OTHERS, own)


def _risks_of_server(server: Server) -> Iterator[Risk]:
    if (host := open_host(server.url)) and _has_credentials(server):
        do = "use https://, or a tunnel that ends on this machine"
        what = f"{server.name}: credentials are sent over http:// to {host}, open to all on the way"
        yield Risk("warning", what, do, Code.SENT_IN_CLEAR)
    written = [VARIABLE.sub(_stand_in, argument) for argument in server.entry.args]
    for place in _secret_arguments(written):
        do = 'move it to "env" if the server reads it there'
        what = f"{server.name}: args[{place}] is a secret, and every user of this machine may see arguments"
        yield Risk("note", what, do, Code.FILE_OPEN_TO_OTHERS)


def _stand_in(match: re.Match[str]) -> str:
    """Write a variable as something that is a secret or not, like its value."""
    return "ghp_" + "0" * 20 if match["name"] and CREDENTIAL.search(match["name"]) else "value"


def _has_credentials(server: Server) -> bool:
    named = any(CREDENTIAL.search(name) or looks_secret(value) for name, value in server.headers.items())
    return named or any(secrets_in_url(server.url))


def open_host(url: str) -> str:
    """Return the host of an address that is reached without encryption and is not this machine, else ""."""
    match = re.match(r"(?i)http://(?:[^/?#]*@)?(\[[^\]/?#]*\]|[^/:?#]*)", url)
    if match is None:
        return ""
    host = match[1].lower().rstrip(".")
    is_here = host in ("localhost", "[::1]") or host.endswith(".localhost")
    return "" if is_here or re.fullmatch(r"127(?:\.\d{1,3}){3}", host) else printable_line(host)


def find_written_secrets(path: Path) -> list[str]:
    """Return the places of a file where a secret stands in clear, and not as `${VAR}`."""
    try:
        document = jsonc.loads(read_regular(path).decode("utf-8-sig", "replace"))
    except (OSError, jsonc.JsonError):
        return []
    if not isinstance(document, dict):
        return []
    entries = document.get("mcpServers", document.get("servers"))
    found = [f"foretool.{place}" for place in _secrets_of_settings(document.get("foretool"))]
    for name, entry in entries.items() if isinstance(entries, dict) else ():
        if isinstance(entry, dict):
            found += (f"{printable_line(name)}: {place}" for place in _secrets_of_entry(entry))
    return found


def _secrets_of_settings(block: Any) -> Iterator[str]:
    if not isinstance(block, dict):
        return
    yield from (key for key in ("token", "encoder_key") if _literal(block.get(key)))
    for name, key in (("enrich", "key"), ("judge", "key"), ("access", "client_secret")):
        if isinstance(entry := block.get(name), dict) and _literal(entry.get(key)):
            yield f"{name}.{key}"
    keys = block.get("seal_keys")
    if isinstance(keys, list) and any(map(_literal, keys)):
        yield "seal_keys"
    if any(find_passwords(_literal(block.get("storage")))):
        yield "storage"
    tokens = block.get("tokens")
    for place, entry in enumerate(tokens if isinstance(tokens, list) else ()):
        if isinstance(entry, dict) and _literal(entry.get("token")):
            yield f"tokens[{place}]"


def _secrets_of_entry(entry: Mapping[str, Any]) -> Iterator[str]:
    for key in ("env", "headers"):
        values = entry.get(key)
        for name, written in values.items() if isinstance(values, dict) else ():
            if is_secret(name, _literal(written)):
                yield f"{key}.{printable_line(name)}"
    args = entry.get("args")
    written = [_literal(each) for each in args] if isinstance(args, list) else []
    yield from (f"args[{place}]" for place in _secret_arguments(written))
    for key in ("url", "serverUrl", "httpUrl"):
        if any(secrets_in_url(_literal(entry.get(key)))):
            yield key


def _literal(written: Any) -> str:
    """Return what is left of a text without its variables and the words around them."""
    if not isinstance(written, str):
        return ""
    return re.sub(r"(?i)^\s*(?:bearer|basic|token)\b", "", VARIABLE.sub("", written)).strip()


def _secret_arguments(args: Sequence[str]) -> Iterator[int]:
    for place, argument in enumerate(args):
        option, equals, value = argument.partition("=")
        before = args[place - 1] if place else ""
        if equals and option.startswith("-"):
            named, value = option, value
        else:
            named, value = (before if before.startswith("-") and "=" not in before else ""), argument
        if not value.startswith("-") and (is_secret(named, value) or any(secrets_in_url(value))):
            yield place


def is_secret(name: str, value: str) -> bool:
    """Return whether a value is probably a secret, by its name or by how it looks."""
    if looks_secret(value):
        return True
    is_plain = len(value) < 4 or value.isdecimal() or value.lower() in ("true", "false", "none", "null", "auto")
    is_place = value.startswith(("/", "~", "./", "../")) or "://" in value
    return bool(CREDENTIAL.search(name)) and not is_plain and not is_place


def looks_secret(value: str) -> bool:
    """Return whether a value looks like a token of a known service, or has a password in an address."""
    return bool(_TOKEN.search(value)) or bool(re.match(r"\w+://[^/?#@\s]*:[^/?#\s]+@", value))


def tokens_in(text: str) -> Iterator[tuple[int, str]]:
    """Yield what looks like a token of a known service, and where it begins."""
    yield from ((match.start(), match[0]) for match in _TOKEN.finditer(text))


_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|sk-|sk_live_|sk_test_|rk_live_|pk_live_|AKIA|ASIA|AIza"
    r"|ya29\.|hf_|npm_|pypi-|dop_v1_|shpat_|lin_api_|secret_|ntn_|tvly-|eyJ)[A-Za-z0-9_\-./+=]{12,}"
)
