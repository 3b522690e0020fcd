"""`foretool completion`: prints what makes a shell complete commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_FORETOOL_COMPLETE"
"""The variable by which the shell asks for completions; click reads it from the name of the program."""


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the completions of a shell.

    \b
    bash (4.4 or newer): add to ~/.bashrc:  source <(foretool completion bash)
    zsh: add to ~/.zshrc:                   source <(foretool completion zsh)
    fish: foretool completion fish > ~/.config/fish/completions/foretool.fish

    Writes no file.
    """
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(click.get_current_context().find_root().command, {}, "foretool", VARIABLE).source())
