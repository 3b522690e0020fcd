"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path

import click

from foretool.server.config.places import find_place


def _tell_of_project_file(context: click.Context, _: click.Parameter, path: Path | None) -> Path | None:
    """Say once that `mcp.json` of the working folder is not read. `serve` logs it, and a hook has no reader."""
    if context.info_name not in ("serve", "hint"):
        place = find_place(path, os.environ)
        if place.notice and place.path.exists():
            click.echo(place.notice, err=True)
    return path


config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    callback=_tell_of_project_file,
    help="The config file.  [default: $FORETOOL_CONFIG, ~/.config/foretool/mcp.json]",
)
"""Arrives as the parameter `path`; `load` accepts None for the default."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
profile_option = click.option("--profile", default="", metavar="NAME", help="Use this profile of the config.")
"""Arrives as "" for all servers."""
