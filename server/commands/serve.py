"""`foretool serve`, as click sees it: for its help, and for command lines that `cli.plain_serve` leaves alone."""

from __future__ import annotations

from pathlib import Path

import click

from foretool.server.commands.options import config_option
from foretool.server.commands.serving import ServeOptions, serve


@click.command("serve")
@config_option
@click.option("--profile", default="", metavar="NAME", help="Serve a profile of the config.")
@click.option(
    "--http",
    is_flag=False,
    flag_value="",
    metavar="[HOST:PORT]",
    help='Serve over HTTP instead of stdio; without an address on that of the setting "bind".',
)
def command(path: Path | None, profile: str, http: str | None) -> int:
    """Serve MCP clients, on stdio or over HTTP.

    On stdio it serves the one client that started it; clients do so themselves, and `foretool connect` prints the
    lines that make them. Over HTTP the endpoint is /mcp, and /mcp/NAME for a profile; an address that other machines
    can reach needs the setting "token".
    """
    return serve(ServeOptions(path, profile, http))
