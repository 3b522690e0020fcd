"""Reads from the config by which words a task may name each server: its name, its prefix, and what tells its entry from
another one of the same program, such as an account, a folder, a host or a database.

No word of a secret is read. So a value counts only where what stands before it says that it is a place or an account,
or where it is itself a folder, a file of a database or an address; passwords, user parts and unknown values never do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

from foretool.retrieval.rankers.servers import ServerNames, ServerWords
from foretool.server.config.servers import Server
from foretool.server.config.variables import CREDENTIAL
from foretool.storage.redaction import hide_shapes

_MOST_MARKS: Final = 40
"""Words that are read of one entry."""
_LONGEST: Final = 20
"""Characters of a word; what is longer is more likely an identifier than a name that people say."""

_LONGEST_FOLDER: Final = 80
"""Characters of a folder that is shown."""
_PROGRAM: Final = re.compile(r"\.(?:[cm]?[jt]s|py|jar|sh|rb|exe|dll)$|/bin/|node_modules")
"""What ends a file that is run, or stands in its path."""

_PLACES: Final = re.compile(
    r"(?i)(?:^|[^a-z])(?:account|base|bucket|catalog|cluster|context|database|db|dbname|dir|directory|domain|email|endpoint"
    r"|env|environment|folder|host|hostname|instance|namespace|org|organization|owner|path|profile|project|ref|region|repo"
    r"|repository|root|schema|server|site|space|stage|team|tenant|uri|url|user|username|vault|workspace)(?:[^a-z]|$)"
)
"""Names of variables, options and fields whose values are places or accounts."""
_OF_SYSTEM: Final = re.compile(r"(?:.*_)?(?:LIBRARY_|PYTHON|NODE_)?PATH|NODE_ENV")
"""Variables whose values say how a program runs."""
_JOINED: Final = re.compile(r"(?i)(?:database|dbname|host|project|user|dir)$")
"""The same where they are written without a joint: `PGDATABASE`."""
_OPTION: Final = re.compile(r"-{1,2}(?P<name>[\w.-]+)(?:=(?P<value>.*))?", re.DOTALL)
_ASSIGNED: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_PATH: Final = re.compile(r"(?:~|\.{0,2}|[A-Za-z]:)[/\\].+|[\w.-]+\.(?:db|sqlite3?|duckdb)", re.DOTALL)
_WORD: Final = re.compile(r"[^\W\d_][^\W_]+")


def read_server_names(entries: Sequence[Server], prefix: Callable[[str], str]) -> ServerNames:
    """Return the words by which a task may name the servers of a config. `prefix` returns the prefix of a server."""
    return ServerNames({
        entry.name: ServerWords(
            tuple(name for name in dict.fromkeys((entry.name, prefix(entry.name))) if name),
            tuple(dict.fromkeys(_marks(entry)))[:_MOST_MARKS],
            tuple(_folders(entry)),
        )
        for entry in entries
    })  # fmt: skip


def _folders(server: Server) -> Iterator[str]:
    """Yield the folders and files among the arguments, except what stands behind an option and what a program is in."""
    credentials = [value.lower() for value, name in server.secrets.values if CREDENTIAL.search(name)]
    before = ""
    for argument in server.args:
        is_folder = _PATH.fullmatch(argument) and not before.startswith("-") and not _PROGRAM.search(argument)
        is_secret = hide_shapes(argument) != argument or any(value in argument.lower() for value in credentials)
        if is_folder and not is_secret and len(argument) <= _LONGEST_FOLDER:
            yield argument
        before = argument


def _marks(server: Server) -> Iterator[str]:
    """Yield the words of an entry that no credential of it holds."""
    credentials = [value.lower() for value, name in server.secrets.values if CREDENTIAL.search(name)]
    for text in (server.entry.description, *_texts(server)):
        for word in _WORD.findall(hide_shapes(text).replace("[secret]", " ")):
            lowered = word.lower()
            if len(word) <= _LONGEST and not any(lowered in value for value in credentials):
                yield lowered


def _texts(server: Server) -> Iterator[str]:
    yield from _of_address(server.url)
    yield from _of_arguments(server.args)
    for name, value in server.env.items():
        yield from _of_value(name, value)
    if server.cwd and server.entry.cwd:
        yield server.cwd


def _of_arguments(arguments: Sequence[str]) -> Iterator[str]:
    option = ""
    for argument in arguments:
        found = _OPTION.fullmatch(argument) or _ASSIGNED.fullmatch(argument)
        if found:
            yield from _of_value(found["name"], found["value"] or "")
        elif option:
            yield from _of_value(option, argument)
        elif _PATH.fullmatch(argument):
            yield argument
        else:
            yield from _of_address(argument)
        option = found["name"] if found and found["value"] is None else ""


def _of_value(name: str, value: str) -> Iterator[str]:
    """Yield what a named value says, if its name says that it is a place or an account."""
    if CREDENTIAL.search(name) or _OF_SYSTEM.fullmatch(name):
        return
    if "://" in value:
        yield from _of_address(value)
    elif _PLACES.search(name) or _JOINED.search(name) or _PATH.fullmatch(value):
        yield value


def _of_address(address: str) -> Iterator[str]:
    """Yield the host, the path and the named places of an address; none of its user and password."""
    if "://" not in address:
        return
    try:
        parts = urlsplit(address)
        yield from (parts.hostname or "", unquote(parts.path))
        for name, value in parse_qsl(parts.query):
            yield from _of_value(name, value)
    except ValueError:
        return
