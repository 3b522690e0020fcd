"""Options that several commands share."""

from pathlib import Path

import click

config_option = click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The config file.  [default: $FORETOOL_CONFIG, ./mcp.json, ~/.config/foretool/mcp.json]",
)
"""Arrives as the parameter `path`; `load` accepts None for the default."""
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
profile_option = click.option("--profile", default="", metavar="NAME", help="Use this profile of the config.")
"""Arrives as "" for all servers."""
