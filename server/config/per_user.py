"""`per_user` of a server as the config writes it, read and checked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from foretool.server.config import jsonc
from foretool.server.config.addresses import check_address
from foretool.server.config.errors import Invalid
from foretool.server.config.places import absolute, home_folder
from foretool.server.config.settings import PerUserEntry, Settings
from foretool.server.config.variables import Expansion, expand_tilde

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
    """Return the servers whose grants nothing could seal, or bring home, each with what is lacking."""
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
