"""`foretool upgrade`: brings a newer version, the way this copy was installed."""

from __future__ import annotations

import shlex
import subprocess
import sys
from collections.abc import Sequence

import click

from foretool._version import __version__
from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import json_option
from foretool.server.setup.installation import Command, this_installation


@click.command("upgrade")
@click.option("--dry-run", is_flag=True, help="Show the commands, and run none.")
@click.option("--yes", "-y", "agreed", is_flag=True, help="Run them without asking.")
@json_option
def command(as_json: bool, dry_run: bool, agreed: bool) -> int:
    """Bring a newer version, the way this copy was installed.

    Finds out whether that was uv, pipx, pip, Homebrew or a checkout, shows the commands, and runs them after a yes.
    """
    found = this_installation()
    if as_json:
        output.emit(found)
        return 0
    source = f" from {found.source}" if found.source else ""
    how = f"a {found.method}" if found.method == "checkout" else f"installed by {found.method}"
    output.say(f"foretool {__version__}, {how}{source} in {found.place}", "bold")
    status = run_commands(found.upgrade, "Run this?", agreed=agreed, dry_run=dry_run)
    if status == 0 and not dry_run:
        output.say("Proxies that run now stay as they are until their clients restart.")
    return status


def run_commands(commands: Sequence[Command], question: str, *, agreed: bool, dry_run: bool) -> int:
    """Show commands and run them in order after a yes; stop at the first that fails. Returns the exit status."""
    for each in commands:
        click.echo(f"  {shlex.join(each)}")
    if dry_run or not (agreed or sys.stdin.isatty()):
        output.say("Nothing was run." if dry_run else "Nothing was run: there is nobody to ask. Run it, or add --yes.")
        return 0
    if not agreed and not click.confirm(question, default=False):
        output.say("Nothing was run.")
        return WRONG
    for each in commands:
        try:
            done = subprocess.run(each, check=False)
        except OSError as error:
            return complain(f"{each[0]}: cannot be started ({error.strerror}); run the command by hand", WRONG)
        if done.returncode:
            return complain(f"{shlex.join(each)}: ended with status {done.returncode}; see above", WRONG)
    return 0
