"""Options that several commands share."""

import click
import pytest

from foretool.server.commands.group import COMMANDS, root

TALKING = ("serve", "hint", "login", "page", "export", "call")
"""Commands that have no one answer: they serve, talk with a user, or write what is not
an answer; `call` prints JSON anyway."""


@pytest.mark.parametrize("name", [each for each in COMMANDS if each not in TALKING])
def test_every_command_for_people_can_print_json(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    # The commands of a group print, the group itself does not.
    printing = list(command.commands.values()) if isinstance(command, click.Group) else [command]
    assert printing and all("as_json" in {one.name for one in each.params} for each in printing)
