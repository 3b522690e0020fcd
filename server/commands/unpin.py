"""`foretool unpin`: takes pins back."""

from __future__ import annotations

from pathlib import Path

import click

from foretool.server import offline
from foretool.server.app import App
from foretool.server.commands import edits, pin
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.server.config.servers import matches
from foretool.server.setup.own_servers import OwnServers
from foretool.storage.records import ToolId


@click.command("unpin")
@click.argument("patterns", nargs=-1, required=False, metavar="TOOL...")
@edits.dry_run_option
@edits.undo_option
@config_option
@json_option
def command(path: Path | None, as_json: bool, patterns: tuple[str, ...], dry_run: bool, wanted_undo: bool) -> int:
    """Take pins back: TOOL is the name or the pattern that was pinned.

    Finds it in the setting "pin" and in "pin" of the servers. `foretool pin` shows what is pinned.
    """
    if wanted_undo:
        return edits.undo(path, as_json)
    if not patterns:
        raise click.UsageError("name at least one tool or pattern; foretool pin shows what is pinned")
    own = edits.open_file(path)
    config = load(path)
    with offline.read(config) as app:
        for pattern in patterns:
            if places := _places(own, app, pattern):
                for server, written in places:
                    own.unpin(written, server)
            else:
                return complain(f"unpin: {_explain(own, app, pattern)}", WRONG)
    return pin.finish(own, f"{', '.join(patterns)} unpinned", "unpin", config, dry_run=dry_run, as_json=as_json)


def _places(own: OwnServers, app: App, pattern: str) -> list[tuple[str, str]]:
    """Return where exactly this is pinned: the server ("" for our own setting), and the pattern as written there."""
    tool = app.catalog.get(ToolId(pattern))
    found = []
    for server, pins in own.pins().items():
        for each in pins:
            exposed = f"{app.config.prefixes.get(server) or server}__{each}"
            is_meant = tool is not None and tool.upstream == server and tool.name == each
            if (not server and each == pattern) or (server and (exposed == pattern or is_meant)):
                found.append((server, each))
    return found


def _explain(own: OwnServers, app: App, name: str) -> str:
    """Say why a pin cannot be taken back by this name."""
    tool = app.catalog.get(ToolId(name))
    for server, pins in own.pins().items():
        for each in pins:
            exposed = f"{app.config.prefixes.get(server) or server}__{each}" if server else each
            fits = tool is not None and matches(tool.name if server else tool.id, (each,))
            if tool is not None and fits and server in ("", tool.upstream):
                return f"{name} is pinned by the pattern {exposed!r}; take that back: foretool unpin '{exposed}'"
    return f"{name!r} is not pinned; foretool pin shows what is"
