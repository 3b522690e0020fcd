"""Commands that list tools prepare the search by meaning, so that the first search of a client ranks by it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from command_fakes import echo, write_config
from requirements import requirement
from tiny_model import write_model

from foretool.server import offline, preparing
from foretool.server.catalog.embedding import install_encoders
from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.server.discovery import arguments as discovery_arguments
from foretool.server.discovery.arguments import Arguments


def search_parts(path: Path) -> set[str]:
    """The parts of the score that the first search over the store of a config has."""
    config = load(path)
    with offline.read(config) as app:
        assert install_encoders(config.settings, app.search, app.store, app.catalog) == {}, "a tool had no vector"
        profile = config.profiles[""]
        query = discovery_arguments.query(Arguments(task="echo"), (), (), profile.name)
        return set(app.search.find_now(query, app.policy.reach(profile).finds, 5).ranked[0].parts)


@requirement("meaning:first-search")
@pytest.mark.parametrize("command", [["doctor"], ["add"]], ids=lambda words: words[0])
def test_after_a_command_that_lists_tools_the_first_search_ranks_by_meaning(command: list[str], tmp_path: Path) -> None:
    model = write_model(tmp_path / "tiny")
    path = write_config(tmp_path, {"one": echo()}, encoder=str(model))
    added = ["two", "--", sys.executable, *echo()["args"], "--tools", "3"] if command == ["add"] else []
    assert run([*command, "--config", str(path), *added]) in (0, 1)
    assert "tiny" in search_parts(path)


@requirement("meaning:first-search")
def test_where_meaning_cannot_be_prepared_the_command_goes_on_and_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, {"one": echo()}, encoder="word2vec")
    run(["doctor", "--config", str(path)])
    out, err = capsys.readouterr()
    assert "1 server that works" in out
    assert "the search by meaning is not prepared" in err and "word2vec" in err


def test_how_many_tools_are_embedded_is_told_and_none_twice(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"one": echo()})
    run(["doctor", "--config", str(path)])  # lists the tools, and embeds none: its config has no encoder
    path = write_config(tmp_path, {"one": echo()}, encoder=str(write_model(tmp_path / "tiny")))
    config = load(path)
    with offline.read(config) as app:
        tools = len(app.catalog)
    told: list[tuple[int, int]] = []
    for _ in range(2):
        assert preparing.prepare_meaning(config, lambda done, total: told.append((done, total))) == ""
    assert told == [(done, tools) for done in range(1, tools + 1)] and tools
