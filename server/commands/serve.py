"""`foretool serve` for click: its help, and the command lines that `window` does not read."""

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
@click.option("--alone", is_flag=True, help="On stdio: share no proxy and no servers with other windows.")
def command(path: Path | None, profile: str, http: str | None, alone: bool) -> int:
    """Serve MCP clients, on stdio or over HTTP.

    On stdio it serves the client that started it; `foretool connect` prints the entry that makes a client do so. Over
    HTTP the endpoint is /mcp, or /mcp/NAME for a profile, and every client sends a token, which `foretool token new`
    makes.

    All windows of your clients with the same config, profile and environment share one proxy and one process of each
    server. It runs in the background from the first window until a few seconds after the last one.
    """
    return serve(ServeOptions(path, profile, http, alone))
