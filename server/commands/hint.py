"""`foretool hint` for click: its help, and adding or removing the hook in the settings of a client.

The commands that entries and hooks of clients run are worked out here too.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

import click
from click import ClickException

from foretool.server import hint
from foretool.server.commands import edits, output
from foretool.server.commands.options import config_option, profile_option, refuse_together
from foretool.server.config.files import find_place
from foretool.server.config.loader import load
from foretool.server.setup import changes, client_hooks, leaving
from foretool.server.setup.client_hooks import HOOKS, SHELL_HOOKS
from foretool.server.setup.documents import DocumentError


@click.command("hint")
@profile_option
@config_option
@click.option("--install", is_flag=True, help="Add the hook to the settings of a client.")
@click.option("--remove", is_flag=True, help="Remove the hook again.")
@click.option(
    "--client",
    type=click.Choice(list(HOOKS)),
    default="claude-code",
    metavar="NAME",
    help=f"The client: {', '.join(HOOKS)}.  [default: claude-code]",
)
@click.option(
    "--shell", "is_shell", is_flag=True,
    help="The hook behind a command of the client's shell: it reports program and subcommand, and nothing else.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show what would change and write nothing.")
@click.option(
    "--settings",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The settings file.  [default: the client's own]",
)
def command(
    path: Path | None, profile: str, install: bool, remove: bool, client: str, is_shell: bool, dry_run: bool,
    settings: Path | None,
) -> int:  # fmt: skip
    """Name likely tools for a prompt: a hook that your client runs.

    Reads the hook's JSON from stdin, stores the prompt (unless the setting "record" is "off"), and prints at most 300
    tokens that name the tools it may need, or nothing. Mostly takes a tenth of a second; ends within 1.3 s, always with
    exit status 0.
    """
    refuse_together(install=install, remove=remove)
    if not (install or remove):
        return hint.main(hint.HintOptions(path, profile, client, is_shell))
    hook = (SHELL_HOOKS if is_shell else HOOKS)[client]
    file = (settings or Path(hook.file)).expanduser()
    place = find_place(path, os.environ).path
    typed = hook_command(place, profile, client, is_shell=is_shell)
    if install and profile:
        load(place).require_profile(profile)
    try:
        backups = place.parent / changes.FOLDER
        before = leaving.text_before_hooks(file, backups)
        changed = client_hooks.change(hook, file, typed if install else "", without=before)
        if changed is not None and remove:
            changed = leaving.as_before(changed, backups)
        if changed is not None and not dry_run:
            changes.write_changes([changed], backups)
    except DocumentError as error:
        raise ClickException(f"{file}: {error}") from None
    except OSError as error:
        raise ClickException(f"{file}: cannot be read ({error.strerror}); check its permissions") from None
    shown = edits.short(file)
    if changed is None:
        output.say(f"{shown}: nothing to change")
    elif dry_run:
        output.say(f"{shown} would change:")
        click.echo("\n".join(map(output.printable_text, changes.difference(changed))))
        output.say("Nothing was written.")
    elif install:
        undo = "foretool hint --remove" + " --shell" * is_shell
        undo += f" --client {client}" if client != "claude-code" else ""
        when = "after every command of its shell" if is_shell else "at every prompt"
        output.say(f"{shown}: {hook.title} now runs this {when}:")
        click.echo(f"  {output.printable_text(typed)}")
        output.say(f"To remove it: {undo}")
        if hook.after:
            output.say(hook.after)
        if not place.exists():
            warn_of_no_config(place)
    else:
        output.say(f"{shown}: removed the hook")
    return 0


def warn_of_no_config(place: Path) -> None:
    output.warn(f"{edits.short(place)}: no such file yet; foretool init makes it out of the servers of your clients")


def launcher() -> list[str]:
    """Return the command with its full path, because clients rarely have the PATH of this shell."""
    started = Path(sys.argv[0])
    if started.name == "foretool" and started.is_file() and os.access(started, os.X_OK):
        return [str(started.absolute())]
    beside = Path(sys.executable).with_name("foretool")
    if beside.is_file():
        return [str(beside)]
    installed = shutil.which("foretool")
    if installed and Path(installed).is_absolute():
        return [installed]
    # Without -P, Python would import from the working folder first, which may be a cloned repository.
    return [sys.executable, "-P", "-m", "foretool"]


def hook_command(config: Path, profile: str = "", client: str = "claude-code", *, is_shell: bool = False) -> str:
    """Return the command line that the client runs."""
    of_profile = ["--profile", profile] if profile else []
    of_client = ["--client", client] if client != "claude-code" else []
    of_shell = ["--shell"] if is_shell else []
    return shlex.join([*launcher(), "hint", *of_shell, "--config", str(config), *of_profile, *of_client])
