"""`foretool disable`: switches servers of the config off."""

from __future__ import annotations

from pathlib import Path

import click

from foretool.server.commands import edits
from foretool.server.commands.options import config_option, json_option


@click.command("disable")
@click.argument("names", nargs=-1, metavar="NAME...")
@edits.dry_run_option
@edits.undo_option
@config_option
@json_option
def command(path: Path | None, as_json: bool, names: tuple[str, ...], dry_run: bool, wanted_undo: bool) -> int:
    """Switch servers off without deleting their entries.

    Their entries get "disabled": true. Running proxies stop them at once.
    """
    return edits.edit_servers(
        path, names, lambda own, name: own.switch(name, on=False), "disable", "disabled",
        wanted_undo=wanted_undo, dry_run=dry_run, as_json=as_json,
    )  # fmt: skip
