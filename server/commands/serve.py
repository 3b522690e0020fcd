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
    metavar="[HOST:PORT]",
    help='Serve over HTTP instead of stdio, at this address or at that of the setting "bind".',
)
def command(path: Path | None, profile: str, http: str | None) -> int:
    """Serve MCP clients, on stdio or over HTTP.

    On stdio it serves the client that started it; `foretool connect` prints the entry that makes a client do so. Over
    HTTP the endpoint is /mcp, or /mcp/NAME for a profile. An address that other machines can reach requires the
    setting "token".
    """
    return serve(ServeOptions(path, profile, http))
