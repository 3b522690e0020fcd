"""The click group: imports each command when it is asked for, and turns errors into one line and an exit status."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from io import TextIOWrapper
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from foretool._version import __version__
from foretool.server.commands.exit import INTERRUPTED, WRONG, complain
from foretool.server.config.errors import ConfigError, Refusal
from foretool.server.packs import COMMANDS_OF_PACKS, import_from
from foretool.storage.engine import StorageError

FIRST: Final = ("init", "doctor", "list", "add", "status", "misses", "page", "uninstall")
"""What people use first: `foretool --help` shows these, `foretool --help --all` every command."""
SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Set up": {
        "init": "Set everything up: one file for the servers of all your clients.",
        "doctor": "Check everything and say what to do about each problem.",
        "list": "Show the servers of the config, and the state of each.",
        "add": "Add a server, and start it once to see whether it works.",
        "remove": "Take servers out of the config.",
        "enable": "Switch servers on that are disabled.",
        "disable": "Switch servers off without deleting their entries.",
        "pin": "List tools always, whatever the budget, and say what that costs.",
        "login": "Sign in to a remote SERVER (OAuth).",
        "logout": "Sign out of a remote SERVER.",
        "uninstall": "Give your clients their servers back, and uninstall foretool.",
    },
    "Serve": {
        "serve": "Serve MCP clients, on stdio or over HTTP.",
        "connect": "Print the config entry that registers foretool with CLIENT.",
        "call": "Call TOOL as a client does, and print its result as JSON.",
        "token": "Make bearer tokens for clients over HTTP.",
        "hint": "Name likely tools for a prompt: a hook that your client runs.",
    },
    "Look": {
        "status": "Show what runs and is stored; with --stats what models read.",
        "misses": "Show the tools that a client needed but could not see, and why.",
        "page": "Show misses, tools and sessions in a browser; review changes.",
        "tools": "Show every tool, its risk, its tokens, its lists and its use.",
        "search": "Show what discover_tools would answer to TASK, and why.",
        "replay": "Say what other settings would have done to the tasks on record.",
        "bench": "Measure how well tools are found, beside BM25 and one encoder.",
        "export": "Write your records as JSON lines, CSV or Parquet.",
    },
    "Keep": {
        "review": "Show what servers changed since approval; approve or block it.",
        "learn": "Learn from the tasks on record which tools the next ones need.",
        "enrich": "Have a language model word the wishes that your tools serve.",
        "forget": "Delete records for good, from the storage file and from its log.",
    },
}
"""Every command with the first sentence of its help, so that no list of commands has to import them."""
COMMANDS: Final[Mapping[str, str]] = {name: said for each in SECTIONS.values() for name, said in each.items()}
_PLACES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("remove", "enable", "disable"), "foretool.server.commands.edits"),
    "logout": "foretool.server.commands.login",
    "token": "foretool.server.commands.connect",
    **COMMANDS_OF_PACKS,
}
"""The modules of commands that have no module of their name in this package. Such a module names a command like the
command line does if it has several."""
_WITH_PARTS: Final = ("token",)
"""Commands that have commands of their own."""
ALL: Final = "foretool.all"
"""Where the context keeps that every command is to be listed."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_from(_PLACES.get(cmd_name, f"foretool.server.commands.{cmd_name}"), cmd_name)
        found = getattr(module, cmd_name, None)
        command = found if isinstance(found, click.Command) else module.command
        assert isinstance(command, click.Command)
        for each in command.params:
            # An empty profile is all servers.
            if each.default == "" and each.callback is None and each.name != "profile":
                each.callback = _refuse_empty
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        # `--help` is answered before the options that follow it are read.
        own = list(takewhile(lambda each: each.startswith("-"), args))
        if "--all" in own:
            ctx.meta[ALL] = True
            args = args if len(own) < len(args) else [*args, "--help"]
        return super().parse_args(ctx, _move_config(args))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # who read us has read enough, as `head` does: no error
            return 0
        except click.UsageError as error:
            # Where the value of an option is missing, click does not say of which command.
            if error.ctx is None and ctx.invoked_subcommand:
                error.ctx = click.Context(self, ctx, ctx.invoked_subcommand)
            raise

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches  # only a misspelt command needs it

            close = get_close_matches(args[0], COMMANDS, 1, 0.8)
            if not close:
                raise
            raise click.UsageError(f"{error.message} Did you mean '{close[0]}'?", error.ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        widest = max(map(len, COMMANDS))
        sections = SECTIONS if ctx.meta.get(ALL) else {"Commands": {name: COMMANDS[name] for name in FIRST}}
        for title, commands in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), said) for name, said in commands.items()], col_max=widest)
        if not ctx.meta.get(ALL):
            formatter.write_paragraph()
            formatter.write_text(f"The other {len(COMMANDS) - len(FIRST)} commands: foretool --help --all")

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        named = [CompletionItem(name, help=said) for name, said in COMMANDS.items() if name.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]


def _refuse_empty(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """Refuse an empty text where one would mean all, as a variable of a shell that is not set."""
    is_given = context.get_parameter_source(parameter.name or "") is ParameterSource.COMMANDLINE
    if is_given and not value.strip():
        raise click.BadParameter("expected a value, found an empty text.")
    return value


def _move_config(args: list[str]) -> list[str]:
    """Write a `--config FILE` that stands in front of a command behind its name: each command has that option."""
    given = args[:1] if args and args[0].startswith("--config=") else args[:2] if args[:1] == ["--config"] else []
    names = list(takewhile(lambda each: not each.startswith("-"), args[len(given) : len(given) + 2]))
    if not given or not names:
        return args
    behind = len(given) + (2 if names[0] in _WITH_PARTS and len(names) > 1 else 1)
    return [*args[len(given) : behind], *given, *args[behind:]]


@click.group(
    cls=_LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="foretool")
@click.option("--all", "shows_all", is_flag=True, help="Show every command.")
@click.option(
    "--config",
    "path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The config file; may stand behind the command too.",
)
@click.pass_context
def root(context: click.Context, shows_all: bool, path: Path | None) -> int | None:
    """One MCP server in front of all your MCP servers.

    Without a command, shows the state in a few lines, and what to do next.

    \b
    Exit status: 0 success, 1 something is wrong, 2 wrong command line or config.
    """
    if context.invoked_subcommand is not None:
        return None
    from foretool.server.commands.list import show_overview  # most command lines do not need it

    return show_overview(path)


def run(arguments: Sequence[str]) -> int:
    """Run one command line. Returns the exit status."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal may lack characters of ours, and of servers
    try:
        return int(root.main(args=list(arguments), prog_name="foretool", standalone_mode=False) or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.message, err=True)
        return error.exit_code
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "foretool"
        said = _sentence(_name_range(error).format_message())
        return complain(f"{path.removeprefix('foretool').strip()}: {said} See {path} --help".lstrip(": "))
    except ConfigError as error:
        return refuse_config(error)
    except click.ClickException as error:
        return complain(error.format_message(), error.exit_code)
    except Refusal as error:
        return complain(str(error), WRONG)
    except StorageError as error:
        from foretool.server.setup.installation import fit_hint

        return complain(fit_hint(str(error)), WRONG)
    except click.Abort as abort:
        return _say_interrupted(abort.__cause__)


def refuse_config(error: ConfigError) -> int:
    """Say on stderr that the config cannot be used. Returns the exit status."""
    from foretool.server.commands.edits import explain_refused_config  # most commands get to their end

    return max(map(complain, explain_refused_config(error)))


def _name_range(error: click.UsageError) -> click.UsageError:
    """Return an error about a number with which numbers are expected, in place of click's "valid integer range"."""
    kind = error.param.type if isinstance(error, click.BadParameter) and error.param is not None else None
    if not isinstance(error, click.BadParameter) or not isinstance(kind, click.IntRange | click.FloatRange):
        return error
    if (found := re.match(r"(.*) is not (?:a valid|in the range) ", error.message, re.DOTALL)) is None:
        return error
    noun = "a whole number" if isinstance(kind, click.IntRange) else "a number"
    limits = f"of at least {kind.min}" if kind.max is None else f"from {kind.min} to {kind.max}"
    return click.BadParameter(f"expected {noun} {limits}, found {found[1]}.", error.ctx, error.param, error.param_hint)


def _say_interrupted(cause: BaseException | None) -> int:
    """Say what holds where files were written when the user ended the command. Returns the exit status."""
    from foretool.server.system.interrupts import Interrupted  # most commands get to their end

    if isinstance(cause, Interrupted):
        return complain(str(cause), 128 + cause.number)
    return INTERRUPTED


def _sentence(text: str) -> str:
    """End a message with a full stop, unless it ends with a mark already: more is said behind it."""
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."
