"""Options that several commands share."""

import click
import pytest

from foretool.server.commands.exit import USAGE
from foretool.server.commands.group import COMMANDS, root, run

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


@pytest.mark.parametrize(
    "words",
    [
        "hint --install --remove", "hint --remove --install", "review calc --approve --block", "enrich --show --remove",
        "learn --rollback --report", "status --stats --clients", "pin x --remove --undo", "misses 1 --fix --undo",
        "doctor --fix --undo", "doctor --explain FT316 --undo",
    ],
)  # fmt: skip
def test_options_of_which_one_alone_can_be_meant_are_refused(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words.split()) == USAGE
    *_, one, other = sorted(word for word in words.split() if word.startswith("--"))
    said = capsys.readouterr().err
    assert "do not go together" in said and one in said and other in said
