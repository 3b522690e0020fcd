"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

P = ParamSpec("P")
R = TypeVar("R")


def config_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add `--config`, which arrives as the parameter `path`; `load` accepts None for the default."""
    return click.option(
        "--config",
        "path",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The config file.  [default: $FORETOOL_CONFIG, ./mcp.json, ~/.config/foretool/mcp.json]",
    )(function)


def json_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add `--json`, which arrives as the parameter `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(function)


def profile_option(function: Callable[P, R]) -> Callable[P, R]:
    """Add `--profile`; "" means all servers."""
    return click.option("--profile", default="", metavar="NAME", help="Use this profile of the config.")(function)
