"""Options that several commands share."""

import click
import pytest

from foretool.server.commands.group import COMMANDS, root


@pytest.mark.parametrize("name", [each for each in COMMANDS if each not in ("serve", "hint")])
def test_every_command_for_people_can_print_json(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None and "as_json" in {each.name for each in command.params}
