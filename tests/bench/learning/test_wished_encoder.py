"""Which servers take part in the training on wishes, and what long tasks are made of, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from bench.datasets import tool_of  # noqa: E402
from bench.learning.known_tools import read_known  # noqa: E402
from bench.learning.wished_encoder import ServersApart, long_tasks, occurring, read_servers  # noqa: E402
from foretool.storage.records import Tool  # noqa: E402


def listed(server: str, name: str, description: str = "") -> Tool:
    return tool_of(server, {"name": name, "description": description})


def test_a_server_of_which_a_tool_is_measured_takes_no_part() -> None:
    said = "Tells the weather of the next days for a place on earth."
    measured = [listed("sky", "get_forecast", said), listed("books", "search", "Search books by title")]
    servers = {
        "same text": [listed("other", "forecast", said.upper())],
        "same name and words": [listed("other", "getForecast", "Tells the weather of a place")],
        "same name and server": [listed("books", "Search", "Looks for pages")],
        "same name alone": [listed("shop", "search", "Finds goods in all departments")],
        "nothing": [listed("shop", "buy", "Buys what is in the cart")],
    }
    assert occurring(servers, measured) == {"same text", "same name and words", "same name and server"}


def test_every_tenth_server_is_held_out_and_each_wish_is_of_its_tool(tmp_path: Path) -> None:
    known = read_known()
    names = sorted({each.server for each in known})[:12]
    for server in names:
        tools = [{"name": each.name} for each in known if each.server == server]
        (tmp_path / f"{server}.json").write_text(json.dumps({"server": server.upper(), "tools": tools}))
    found = read_servers(tmp_path, [listed(names[0], next(each.name for each in known if each.server == names[0]))])
    assert found.left_out == {names[0]}
    assert {each.tool.upstream for each in found.held_out} == {names[5].upper()}, "the fifth of those that take part"
    assert {each.tool.upstream for each in found.trained} == {name.upper() for name in (*names[1:5], *names[6:])}
    wishes = {(each.server.upper(), each.name): each.wishes for each in known}
    for each in (*found.trained, *found.held_out):
        assert each.wishes == wishes[each.tool.upstream, each.tool.name]


def test_long_tasks_need_the_tools_of_their_wishes() -> None:
    wished = [((f"everyday {at}", f"other {at}", f"situation {at}?", f"words {at}"), at) for at in range(9)]
    found = long_tasks(wished, 40, 1)
    assert len(found) == 40 and found == long_tasks(wished, 40, 1)
    for task in found:
        right = {task.tool, *task.also}
        assert 2 <= len(right) <= 4
        assert {at for at in range(9) if str(at) in task.query} == right
        assert "words" not in task.query, "words of a search are no sentence"
    assert any(task.query.endswith((".", "?")) for task in found)


def test_what_another_server_says_alike_is_no_negative_of_any_right_tool() -> None:
    trainer = ServersApart.__new__(ServersApart)
    trainer._vectors = np.asarray([[1, 0], [0.8, 0.6], [0.8, 0.6], [0, 1], [0, 1]], np.float32)
    trainer.sets = np.asarray([0, 0, 1, 1, 2])
    # Tool 1 is of the same server as 0 and stands against it; 2 is like 0, and 4 like 3, of other servers.
    assert trainer._alike([0]).tolist() == [False, False, True, False, False]
    assert trainer._alike([0, 3]).tolist() == [False, False, True, False, True]
