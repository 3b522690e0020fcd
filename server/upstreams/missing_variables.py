"""Finds out which variable a server that failed has probably missed, from what it wrote to stderr.

The text is that of a stranger, so the advice names what the user would give away, and never a variable of our own.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from foretool.server.config.errors import it_or_them
from foretool.server.config.servers import Server
from foretool.server.config.variables import server_environment

_WORD: Final = re.compile(r"(?<![A-Za-z0-9_])[A-Z][A-Z0-9_]{2,63}(?![A-Za-z0-9_])")
_NAME: Final = r"(?!ERR_)(?=[A-Z0-9]{1,62}_)[A-Z][A-Z0-9_]{2,63}"
"""A variable that a text asks for: with an underscore, because a level (ERROR, DEBUG) often begins the line."""
_ASKED: Final = re.compile(
    r"(?:(?i:\b(?:set|missing|requires?|needs?|provide|export|define|specify|pass)\b)[^\n]{0,60}?"
    r"|\bin __getitem__\n(?:\s+raise KeyError[^\n]*\n)?KeyError: ')"  # of os.environ
    rf"\b(?P<after>{_NAME})\b"
    rf"|\b(?P<before>{_NAME})\b[^\n]{{0,60}}?(?i:not set|unset|missing|required|must be|undefined|not defined"
    r"|not found|not provided|environment variable|env(?:ironment)? var)"
)
_OPTIONAL: Final = re.compile(r"(?i)\boptional|\bto (?:use a custom|customi[sz]e|override|change)\b[^\n]*$")
"""Stands on a line before a variable that a server does without."""
_NETWORK: Final = re.compile(
    r"(?i)proxy|certificate|self[- ]signed|\bSSL\b|\bTLS\b|ENOTFOUND|ECONNREFUSED|ECONNRESET|ETIMEDOUT|EAI_AGAIN"
    r"|getaddrinfo|dns error|network|registry|could not connect|cannot connect|failed to fetch|no matching distribution"
)
_OF_NETWORK: Final = re.compile(
    r"(?i)(?:https?|all|no|ftp)_proxy|.*_CA_BUNDLE|.*_CA_CERTS|SSL_CERT_.*|PIP_.*|UV_.*|NPM_CONFIG_.*|DOCKER_.*"
)
_CERTIFICATES: Final = {"node": ("NODE_EXTRA_CA_CERTS",), "": ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE")}
"""Variables that name the certificates of a network: what Node reads, and what Python, uv and most others read."""
CERTIFICATE_FILES: Final = frozenset(name for names in _CERTIFICATES.values() for name in names)
_NODE: Final = frozenset({"node", "npx", "npm", "pnpm", "yarn", "bunx", "bun"})
_CERTIFICATE: Final = re.compile(r"(?i)certificate|self[- ]signed|SELF_SIGNED_CERT|UNABLE_TO_VERIFY|\bissuer\b")
_DOWNLOADS: Final = _NODE - {"node"} | {"uv", "uvx", "pipx"}
"""Programs that ask a registry of packages before the server starts; without an answer they ask again for minutes."""
_MOST_NAMES: Final = 4


def advise_server(server: Server, stderr: Sequence[str], error: str) -> str:
    """Return what to add to the entry of a server that failed, or "".

    It is for the user alone: a model that may write files could follow it, and give a secret to a hostile server.
    """
    if server.type != "stdio":
        return ""
    given = server_environment(os.environ, server.inherit, server.withheld, server.env)
    return advise((*stderr, error), os.environ, given, server.withheld, _program(server))


def network_variables(server: Server) -> str:
    """Return what to add to the entry of a server that waits for a download, perhaps in vain; "" where nothing is set
    here that its network may need."""
    given = server_environment(os.environ, server.inherit, server.withheld, server.env)
    program = _program(server)
    known = frozenset((*given, *server.withheld))
    near = _of_network("", os.environ, known, program) if program in _DOWNLOADS else []
    return (
        f"{_list(near)} set here but not given to it; if downloads need {it_or_them(near)}, {_add(near)}"
        if near
        else ""
    )


def _program(server: Server) -> str:
    return Path(server.entry.command or server.command).stem


def held_back(server: Server, stderr: Sequence[str], error: str) -> tuple[str, ...]:
    """Return the variables that are set here, that a server names in what it wrote, and that it does not get.

    It may name any variable, to be given its value, so nobody but the user decides. Where it trusts no certificate,
    these are the variables that name the certificates of this network.
    """
    given = server_environment(os.environ, server.inherit, server.withheld, server.env)
    text, known = "\n".join((*stderr, error)), frozenset((*given, *server.withheld))
    if (back := _held_back(text, os.environ, known)) or not (_NETWORK.search(text) and _CERTIFICATE.search(text)):
        return back
    near = _of_network(text, os.environ, known, _program(server))
    return tuple(near) if CERTIFICATE_FILES.issuperset(near) else ()


def _held_back(text: str, environ: Mapping[str, str], known: frozenset[str]) -> tuple[str, ...]:
    return tuple(name for name in _unique(_WORD.findall(text)) if environ.get(name) and _may_be_given(name, known))


def advise(
    lines: Sequence[str],
    environ: Mapping[str, str],
    given: Iterable[str],
    withheld: Iterable[str] = (),
    program: str = "",
) -> str:
    """Return what to add to the entry of a server, or "".

    `lines`: its stderr. `given`: the names of the variables that it got. `withheld`: those that hold our credentials.
    `program`: the name of the program that starts it.
    """
    text, known = "\n".join(lines), frozenset((*given, *withheld))
    if back := _held_back(text, environ, known):
        return f"{_list(back)} set here but not given to it; if it may have {it_or_them(back)}, {_add(back)}"
    absent = [name for name in asked_variables(text) if not environ.get(name) and _may_be_given(name, known)]
    if absent:
        return f"{_list(absent)} not set here; set {it_or_them(absent)} where foretool starts and {_add(absent)}"
    if _NETWORK.search(text) and (near := _of_network(text, environ, known, program)):
        return f"{_list(near)} set here but not given to it; if it needs {it_or_them(near)}, {_add(near)}"
    return ""


def _of_network(text: str, environ: Mapping[str, str], known: frozenset[str], program: str) -> list[str]:
    """Return the variables that may help a program over its network, likeliest first; where a certificate is wrong,
    only those with certificates that this program reads, if any is set."""
    certificates = _CERTIFICATES["node" if program in _NODE else ""]
    settings = [name for name in sorted(environ) if _OF_NETWORK.fullmatch(name) and _may_be_given(name, known)]
    read = [name for name in certificates if name in settings]
    if read and _CERTIFICATE.search(text):
        return read
    proxies = [name for name in settings if name.lower().endswith("_proxy")]
    return list(dict.fromkeys((*proxies, *read, *(settings if text else ()))))


def asked_variables(text: str) -> list[str]:
    """Return the names of variables that a text asks for, the first one first."""
    asked = (match for match in _ASKED.finditer(text) if not _OPTIONAL.search(_line_before(text, match.start())))
    return _unique(match["after"] or match["before"] for match in asked)


def _line_before(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 : at]


def _may_be_given(name: str, known: frozenset[str]) -> bool:
    return name not in known and not name.startswith("FORETOOL_")


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))[: 4 * _MOST_NAMES]


def _list(names: Sequence[str]) -> str:
    return f"{', '.join(names[:_MOST_NAMES])} {'is' if len(names) == 1 else 'are'}"


def _add(names: Sequence[str]) -> str:
    quoted = ", ".join(f'"{name}"' for name in names[:_MOST_NAMES])
    return f'add "inherit": [{quoted}] to its entry'
