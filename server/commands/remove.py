"""`foretool remove`: takes servers out of the config."""

from __future__ import annotations

from pathlib import Path

import click

from foretool.server.commands import edits
from foretool.server.commands.options import config_option, json_option
from foretool.server.setup.own_servers import OwnServers


@click.command("remove")
@click.argument("names", nargs=-1, metavar="NAME...")
@edits.dry_run_option
@edits.undo_option
@config_option
@json_option
def command(path: Path | None, as_json: bool, names: tuple[str, ...], dry_run: bool, wanted_undo: bool) -> int:
    """Take servers out of the config.

    What is on record of their tools stays; `foretool forget` deletes it. To keep the entry, use `foretool disable`.
    """
    return edits.edit_servers(
        path, names, OwnServers.remove_server, "remove", "removed",
        wanted_undo=wanted_undo, dry_run=dry_run, as_json=as_json,
    )  # fmt: skip
