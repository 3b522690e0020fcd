"""Moves secrets out of entries: into the keyring, or behind the variables that hold them already."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from msgspec import Struct

from foretool.server.config.risks import is_secret
from foretool.server.setup.dialects import Entry

Place = Literal["keep", "keyring", "env"]
"""Where secrets are to stand: in the file, in the keyring of the system, or in variables of the environment."""

_SCHEME: Final = re.compile(r"(?i)((?:bearer|basic|token)\s+)?(.+)", re.DOTALL)


class Moved(Struct):
    """What was moved."""

    values: dict[str, str] = {}
    """By the name in the keyring, the values that it has to keep."""
    written: list[tuple[str, str, str, str]] = []
    """Server, `env` or `headers`, the key there, and what stands there now."""
    left: list[str] = []
    """Places whose secret stays, each with the reason."""

    def __repr__(self) -> str:
        return f"Moved({len(self.values)} values)"


def move_secrets(entries: Mapping[str, Entry], place: Place, environ: Mapping[str, str]) -> Moved:
    """Replace the secrets in `env` and `headers` of entries, which are changed, and say what was replaced."""
    moved = Moved()
    for server, entry in entries.items():
        for part, key, prefix, value in list(_secrets(entry)):
            name = f"{server}/{key}" if place == "keyring" else key
            if place == "env" and environ.get(name) != value:
                moved.left.append(f"{server}: {key} stays in the file: this shell has no variable {key} of that value")
                continue
            if place == "keyring":
                moved.values[name] = value
            new = f"{prefix}${{{'keyring:' if place == 'keyring' else ''}{name}}}"
            entry[part] = {**entry[part], key: new}
            moved.written.append((server, part, key, new))
    return moved


def _secrets(entry: Entry) -> Iterator[tuple[str, str, str, str]]:
    """Yield part, key, what stands before the secret, and the secret. A value that names a variable is none."""
    for part in ("env", "headers"):
        values: Any = entry.get(part)
        for key, written in values.items() if isinstance(values, Mapping) else ():
            if not isinstance(written, str) or "${" in written or "}" in key:
                continue
            match = _SCHEME.fullmatch(written.strip()) if part == "headers" else None
            prefix, value = (match[1] or "", match[2]) if match else ("", written)
            if is_secret(key, value):
                yield part, key, prefix, value
