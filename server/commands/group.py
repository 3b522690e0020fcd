"""The click group: imports each command when it is asked for, and turns errors into one line and an exit status."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

import click

from foretool._version import __version__
from foretool.server.commands.exit import INTERRUPTED, WRONG, complain
from foretool.server.config.errors import ConfigError
from foretool.storage.stores import StorageError

COMMANDS = (
    "init",
    "add",
    "remove",
    "enable",
    "disable",
    "list",
    "pin",
    "unpin",
    "login",
    "logout",
    "serve",
    "status",
    "tools",
    "search",
    "explain",
    "misses",
    "page",
    "stats",
    "graph",
    "learn",
    "clients",
    "forget",
    "doctor",
    "connect",
    "hint",
    "review",
    "token",
    "completion",
    "upgrade",
    "uninstall",
)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"foretool.server.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="foretool")
@click.pass_context
def root(context: click.Context) -> int | None:
    """One MCP server in front of all your MCP servers.

    Without a command, shows the state in a few lines, and what to do next.

    \b
    Exit status: 0 success, 1 something is wrong, 2 wrong command line or config.
    """
    if context.invoked_subcommand is not None:
        return None
    from foretool.server.commands import overview  # most command lines do not need it

    return overview.show()


def run(arguments: Sequence[str]) -> int:
    """Run one command line. Returns the exit status."""
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
        return complain(f"{error} [{error.code}]")
    except click.ClickException as error:
        return complain(error.format_message(), error.exit_code)
    except StorageError as error:
        return complain(str(error), WRONG)
    except click.Abort:
        return INTERRUPTED
