"""Changes as they are typed: which keys there are, what values mean, and what a wrong one is told."""

from pathlib import Path
from typing import Any

import pytest
from recorded_tasks import write_recorded

from foretool.desk.replay.changes import ChangeProblem, read_changes
from foretool.server.config import loader
from foretool.server.config.errors import ConfigError
from foretool.server.setup.own_servers import change_config, read_own_servers


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = write_recorded(tmp_path, [], profiles={"work.day": {"servers": ["sky"]}})
    path.write_text(path.read_text().replace('"mail":', '"old.mail": {"command": "x", "disabled": true}, "mail":', 1))
    return path


@pytest.mark.parametrize(
    ("text", "keys", "value"),
    [
        ("list_tokens=3000", ("foretool", "list_tokens"), 3000),
        ("foretool.policy=growing", ("foretool", "policy"), "growing"),
        ("pin=a, b", ("foretool", "pin"), ["a", "b"]),
        ("pin=[]", ("foretool", "pin"), []),
        ("profiles.work.day.list_tokens=9", ("foretool", "profiles", "work.day", "list_tokens"), 9),
        ("servers.old.mail.disabled=false", ("servers", "old.mail", "disabled"), False),
        ("mcpServers.sky.pin=moon", ("servers", "sky", "pin"), ["moon"]),
        ("servers.sky.tools.a.b.name=moon", ("servers", "sky", "tools", "a.b", "name"), "moon"),
        ("servers.sky.tools.moon.description=9=x", ("servers", "sky", "tools", "moon", "description"), "9=x"),
    ],
)
def test_a_change_names_a_key_and_a_value(path: Path, text: str, keys: tuple[str, ...], value: Any) -> None:
    (change,) = read_changes([text], loader.load(path))
    assert (change.keys, change.value, change.adds) == (keys, value, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("list_tokens", "expected KEY=VALUE"),
        ("list_token=3", 'did you mean "list_tokens"?'),
        ("storage=x", "these can be tried: policy"),
        ("servers.nobody.disabled=true", "no such server; it has: calc, sky, mail, old.mail"),
        ("profiles.home.pin=x", "no such profile; it has: work.day"),
        ("servers.sky.command=rm", "no setting of this name decides what a client sees"),
        ("servers.sky.tools.moon=x", "expected servers.sky.tools.TOOL.KEY"),
        ("list_tokens+=3", "list_tokens is not a list"),
        ("pin=" + "[" * 50_000, "pin: brackets are nested too deeply"),
    ],
)
def test_a_wrong_change_is_told_what_there_is(path: Path, text: str, said: str) -> None:
    with pytest.raises(ChangeProblem) as problem:
        read_changes([text], loader.load(path))
    assert said in str(problem.value)


def test_changes_are_read_as_the_file_would_be(path: Path) -> None:
    config, own = loader.load(path), read_own_servers(path)
    texts = ["pin+=calc__add", "pin+=sky__moon", "servers.sky.tools.moon.name=phase", "list_tokens=77"]
    changes = read_changes(texts, config)
    changed = change_config(config, own, changes)
    assert changed.settings.pin == ("calc__add", "sky__moon") and changed.settings.list_tokens == 77
    assert changed.servers["sky"].entry.tools["moon"].name == "phase"
    assert changed.storage == config.storage
    assert [each.text for each in changes] == texts
    assert read_own_servers(path).text() == path.read_text()


def test_a_value_of_the_wrong_kind_is_refused_as_in_the_file(path: Path) -> None:
    config = loader.load(path)
    with pytest.raises(ConfigError, match="list_tokens"):
        change_config(config, read_own_servers(path), read_changes(["list_tokens=many"], config))
