"""How a server is reached, as a definition that a person can compare."""

from __future__ import annotations

import re
from typing import Final

import msgspec
from msgspec.structs import replace

from foretool.server.config.servers import Server, fingerprint
from foretool.storage.records import Definition
from foretool.storage.redaction import hide_shapes

_WORDS: Final = "(?:key|token|secret|passw|credential)"
_SECRET: Final = re.compile(rf"(?i)((?<!\S)--?[\w-]*{_WORDS}[\w-]*[=:\s]|\b\w*{_WORDS}\w*[=:])\S+")
"""The value of an option or a variable whose name says that it is secret."""


def launch_of(server: Server) -> Definition:
    """Return how a server is reached as a definition. Its text has no secrets that we know of."""
    entry = server.entry
    parts = {
        "command": _SECRET.sub(r"\1[...]", " ".join((entry.command or "", *entry.args))),
        "cwd": entry.cwd,
        "url": re.sub(r"//[^/?#]*@|[?#].*", lambda match: "//" if match[0][:2] == "//" else "", entry.url or ""),
        "env": sorted(entry.env),
        "headers": sorted(entry.headers),
    }
    text = hide_shapes(
        server.secrets.redact(msgspec.json.encode({key: part for key, part in parts.items() if part}).decode())
    )
    return Definition(server.name, "launch", "", fingerprint(server), text.encode(), fingerprint=fingerprint(server))


def starts_same(one: Definition, other: Definition) -> bool:
    """Tell whether two command lines start the same program, or two entries reach the same address; other options and
    variables make no difference."""
    return _program_of(one) == _program_of(other)


def _program_of(launch: Definition) -> tuple[str, ...]:
    """Return the address, or the program and its first argument that is no option: the package, module or script."""
    try:
        parts = msgspec.json.decode(launch.value)
    except ValueError:  # what was hidden in it was part of its syntax
        return (launch.value.decode(),)
    words = str(parts.get("command", "")).split()
    first = next((word for word in words[1:] if not word.startswith("-")), "")
    return (str(parts.get("url", "")), *words[:1], first)


def of_launch(definition: Definition, launch: Definition) -> Definition:
    """Return a definition with what was known of its server when it listed it."""
    return replace(definition, fingerprint=launch.fingerprint, version=launch.version)
