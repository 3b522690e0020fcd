"""The click group: which commands there are, each imported when it is asked for, and how errors leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import ParamSpec, TypeVar

import click

from foretool._version import __version__
from foretool.server.cli import INTERRUPTED, WRONG, complain, existing
from foretool.server.config import loader as configs
from foretool.server.config.loader import Config, ConfigError
from foretool.storage.store import StorageError

COMMANDS = ("serve", "status", "tools", "search", "misses", "graph", "learn", "clients", "doctor", "connect", "hint")

P = ParamSpec("P")
R = TypeVar("R")


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"foretool.server.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="foretool")
def root() -> None:
    """One MCP server in front of all your MCP servers.

    \b
    Exit status: 0 all is well, 1 something is wrong, 2 wrong command line or config.
    """


def run(arguments: Sequence[str]) -> int:
    """Carry out one command line; returns the exit status."""
    try:
        return int(root.main(args=list(arguments), prog_name="foretool", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.message, err=True)
        return error.exit_code
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "foretool"
        return complain(
            f"{path.removeprefix('foretool').strip()}: {error.format_message()} See {path} --help".lstrip(": ")
        )
    except ConfigError as error:
        return complain(str(error))
    except StorageError as error:
        return complain(str(error), WRONG)
    except click.Abort:
        return INTERRUPTED


def config_option(function: Callable[P, R]) -> Callable[P, R]:
    """`--config`, which arrives as the parameter `path`; see `load`."""
    return click.option(
        "--config",
        "path",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="The config.  [default: $FORETOOL_CONFIG, ./mcp.json, ~/.config/foretool/mcp.json]",
    )(function)


def json_option(function: Callable[P, R]) -> Callable[P, R]:
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)


def profile_option(function: Callable[P, R]) -> Callable[P, R]:
    return click.option("--profile", default="", metavar="NAME", help="A profile of the config.")(function)


def load(path: Path | None) -> Config:
    """Raises `ConfigError`, the way out included."""
    return configs.load(existing(path or configs.default_config()))
