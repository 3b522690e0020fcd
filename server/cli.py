"""The command `foretool`: parse, call one function, print."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from foretool import __version__


@click.group()
@click.version_option(__version__)
def main() -> None:
    """One MCP server in front of all your MCP servers."""


@main.command()
@click.option("--config", "path", type=click.Path(path_type=Path), default=None)
@click.option("--profile", default="")
@click.option("--http", default=None)
def serve(path: Path | None, profile: str, http: str | None) -> None:
    """Serve on stdio, or with --http on an address."""
    from foretool.server import app, config

    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="foretool: %(levelname)s: %(message)s")
    loaded = config.load(path or app.default_config())
    app.report(loaded)
    app.run_stdio(loaded, profile)
