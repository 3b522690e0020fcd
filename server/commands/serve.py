"""`foretool serve` for click: its help, and the command lines that `plain_serve` does not read."""

from __future__ import annotations

from pathlib import Path

import click

from foretool.server.commands.options import config_option
from foretool.server.commands.serving import ServeOptions, serve


@click.command("serve")
@config_option
@click.option("--profile", default="", metavar="NAME", help="Serve this profile of the config.")
@click.option(
    "--http",
    is_flag=False,
    flag_value="",
    metavar="[ADDRESS]",
    help='Serve over HTTP instead of stdio, at this address (HOST:PORT or unix:PATH) or at the setting "bind".',
)
def command(path: Path | None, profile: str, http: str | None) -> int:
    """Serve MCP clients, on stdio or over HTTP.

    On stdio it serves the client that started it; `foretool connect` prints the entry that makes a client do so. Over
    HTTP the endpoint is /mcp, or /mcp/NAME for a profile, and every client sends a token, which `foretool token new`
    makes.
    """
    return serve(ServeOptions(path, profile, http))
