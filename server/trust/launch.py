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


def of_launch(definition: Definition, launch: Definition) -> Definition:
    """Return a definition with what was known of its server when it listed it."""
    return replace(definition, fingerprint=launch.fingerprint, version=launch.version)
