"""What is asked where the task or the tool is Chinese, and by which rows it is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench.datasets import tool_of
from bench.retrieval import chinese
from foretool.retrieval import line
from foretool.retrieval.glossary import has_han

CITY = {"type": "object", "properties": {"city": {"type": "string", "description": "要查询天气的城市的名称"}}}


def listed(server: str, name: str, description: str, schema: dict[str, Any] | None = None) -> Any:
    return tool_of(server, {"name": name, "description": description, "inputSchema": schema or {"type": "object"}})


TOOLS = [
    listed("sky", "maps_weather", "查询指定城市的天气", CITY),
    listed("other", "maps_weather", "天气", CITY),
    listed("ref-slack", "slack_list_channels", "List the channels of the workspace"),
    listed("ref-slack", "slack_post_message", "Post a message"),
]


def test_a_parameter_asks_for_every_tool_of_the_name_and_no_tool_has_its_text_then() -> None:
    [(text, right)] = chinese.by_parameters(TOOLS)
    assert text == "要查询天气的城市的名称" and right == {"sky/maps_weather", "other/maps_weather"}
    bare = chinese.without_parameter_texts(TOOLS[0])
    assert bare.id == TOOLS[0].id and "名称" not in bare.definition.decode() and "指定城市" in bare.definition.decode()


def test_every_task_is_chinese_and_the_words_of_the_file_are_told_apart() -> None:
    held = json.loads(chinese.FILE.read_text("utf-8"))
    assert len(held["tasks"]) == 68 and len(held["talk"]) == 20
    assert all(has_han(each["task"]) and each["tools"] for each in held["tasks"])
    assert all(map(has_han, held["talk"]))


@pytest.mark.parametrize(("more", "first"), [((), 1.0), (("--without-glossary",), 0.0)])
def test_the_glossary_can_be_left_out(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    more: tuple[str, ...],
    first: float,
) -> None:
    tasks = {
        "servers": ["ref-slack"],
        "tasks": [{"task": "列出所有频道", "tools": ["slack_list_channels"]}],
        "talk": ["你好"],
    }
    (tmp_path / "tasks").write_text(json.dumps(tasks), "utf-8")
    line._read.cache_clear()  # it keeps what it read in the other run
    monkeypatch.setattr(chinese, "FILE", tmp_path / "tasks")
    monkeypatch.setattr(chinese, "shipped_wordings", lambda read: ("is it cold",) if "weather" in read.name else ())
    for tool in TOOLS:
        catalog = tmp_path / "catalogs" / f"{tool.upstream}.json"
        catalog.parent.mkdir(exist_ok=True)
        theirs = [json.loads(each.definition) for each in TOOLS if each.upstream == tool.upstream]
        catalog.write_text(json.dumps({"server": tool.upstream, "tools": theirs}), "utf-8")
    chinese.main([str(tmp_path / "catalogs"), "--encoder", "none", "--json", *more])
    wishes, parameters, asked = map(json.loads, capsys.readouterr().out.splitlines())
    assert (wishes["n"], parameters["n"], asked["n"]) == (2, 1, 1)
    assert parameters["r@1"] == 1.0 and asked["r@1"] == first
    assert sum(asked["levels of small talk"].values()) == 1
