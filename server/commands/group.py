"""The click group: imports each command when it is asked for, and turns errors into one line and an exit status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Final

import click
from click.shell_completion import CompletionItem

from foretool._version import __version__
from foretool.server.commands.exit import INTERRUPTED, WRONG, complain
from foretool.server.config.errors import ConfigError
from foretool.server.packs import COMMANDS_OF_PACKS
from foretool.storage.stores import StorageError

_SECTIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "Set up": {
        "init": "Set everything up: one file for the servers of all your clients.",
        "add": "Add a server, and start it once to see whether it works.",
        "remove": "Take servers out of the config.",
        "enable": "Switch servers on that are disabled.",
        "disable": "Switch servers off without deleting their entries.",
        "list": "Show the servers of the config, and the state of each.",
        "pin": "List tools always, whatever the budget, and say what that costs.",
        "unpin": "Take pins back: TOOL is the name or the pattern that was pinned.",
        "login": "Sign in to a remote SERVER (OAuth).",
        "logout": "Sign out of a remote SERVER.",
        "doctor": "Check everything and say what to do about each problem.",
    },
    "Serve": {
        "serve": "Serve MCP clients, on stdio or over HTTP.",
        "connect": "Print the config entry that registers foretool with CLIENT.",
        "token": "Make bearer tokens for clients over HTTP.",
        "service": "Start foretool over HTTP at login: systemd, launchd or Windows.",
        "hint": "Name likely tools for a prompt: a hook that your client runs.",
    },
    "Look": {
        "status": "Show the running proxies, their upstreams and what is stored.",
        "tools": "Show every tool, its risk, its tokens, its lists and its use.",
        "search": "Show what discover_tools would answer to TASK, and why.",
        "explain": "Say why a search for TASK shows these tools and not another one.",
        "misses": "Show the tools that a client needed but could not see, and why.",
        "confusions": "Show tools taken for each other, and what tells them apart.",
        "replay": "Say what other settings would have done to the tasks on record.",
        "bench": "Measure how well tools are found, beside BM25 and one encoder.",
        "page": "Show misses, tools and sessions in a browser; review changes.",
        "stats": "Show misses, discovery turns and tokens, by day and client.",
        "export": "Write your records as JSON lines, CSV or Parquet.",
        "open": "Open a copy of your records in Datasette, to query them.",
        "graph": "Show which tools need the results of other tools.",
        "clients": "Show each client's capabilities and how foretool treats it.",
        "audit": "Show who called what and who decided what, as kept for good.",
    },
    "Keep": {
        "learn": "Learn from the tasks on record which tools the next ones need.",
        "enrich": "Have a language model word the wishes that your tools serve.",
        "export-priors": "Write what was learned into FILE, for another machine.",
        "import-priors": "Take over what another store has learned, from a FILE.",
        "review": "Show what servers changed since approval; approve or block it.",
        "forget": "Delete records for good, from the storage file and from its log.",
        "completion": "Print the completions of a shell.",
        "upgrade": "Bring a newer version, the way this copy was installed.",
        "uninstall": "Give your clients their servers back, and uninstall foretool.",
    },
}
"""Every command with the first sentence of its help, so that no list of commands has to import them."""
COMMANDS: Final[Mapping[str, str]] = {name: said for each in _SECTIONS.values() for name, said in each.items()}

WIDEST: Final = 10
"""The longest name that has its text beside it in the list of commands."""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        room = COMMANDS_OF_PACKS.get(cmd_name, "foretool.server.commands")
        command = import_module(f"{room}.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

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
        # What a longer name does stands below it.
        widest = max(len(name) for name in COMMANDS if len(name) <= WIDEST)
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(widest), said) for name, said in commands.items()], col_max=widest)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        named = [CompletionItem(name, help=said) for name, said in COMMANDS.items() if name.startswith(incomplete)]
        return [*named, *click.Command.shell_complete(self, ctx, incomplete)]


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
            f"{path.removeprefix('foretool').strip()}: {_sentence(error.format_message())} See {path} --help".lstrip(
                ": "
            )
        )
    except ConfigError as error:
        return complain(f"{error} [{error.code}]")
    except click.ClickException as error:
        return complain(error.format_message(), error.exit_code)
    except StorageError as error:
        from foretool.server.setup.install_hints import fit_hint

        return complain(fit_hint(str(error)), WRONG)
    except click.Abort:
        return INTERRUPTED


def _sentence(text: str) -> str:
    """End a message with a full stop, unless it ends with a mark already: more is said behind it."""
    return text if text.endswith((".", "!", "?", ":")) else f"{text}."
