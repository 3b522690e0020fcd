"""`foretool tools --needs`: what is known of who needs whom."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_fakes import write_config
from requirements import requirement

from foretool.learning.rankers.tgr import dumps
from foretool.retrieval.graph import Edge
from foretool.server.commands.group import run
from foretool.server.config import loader as configs
from foretool.server.config.servers import fingerprint
from foretool.storage.opening import open_store
from foretool.storage.records import Tool, ToolId, UpstreamRecord
from foretool.storage.steps import finish
from foretool.storage.store import Store

LOGIN, POST, READ = (ToolId(f"calc__{name}") for name in ("login", "post", "read"))


def filled(path: Path) -> Store:
    """A server whose tools need each other: `post` the token of `login`; `read` an id, as calls have shown."""
    config = configs.load(path)
    store = open_store(config.storage)
    shapes = {"login": ("user", "token"), "post": ("token", "post_id"), "read": ("page", "text")}
    tools = []
    for name, (takes, gives) in shapes.items():
        schemas = {
            "inputSchema": {"type": "object", "properties": {takes: {}}, "required": [takes]},
            "outputSchema": {"type": "object", "properties": {gives: {}}},
        }
        raw = json.dumps({"name": name, "description": name, **schemas}).encode()
        tools.append(Tool(ToolId(f"calc__{name}"), "calc", name, raw, f"calc-{name}", 40))
    record = UpstreamRecord("calc", fingerprint(config.servers["calc"]), "legacy", "", "", '{"tools": {}}', 1.0)
    finish(store.catalog.save_upstream(record, tools))
    store.flows.add({(POST, READ, "post_id", "page"): 2}, 10.0)
    return store


def told(path: Path, capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> str:
    assert run(["tools", *words, "--needs", "--config", str(path)]) == status
    captured = capsys.readouterr()
    return captured.out + captured.err


@requirement("graph:shown")
def test_a_tool_is_shown_with_what_it_needs_and_what_it_feeds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path)
    filled(path).close()
    shown = json.loads(told(path, capsys, "post", "--json"))
    assert shown["tool"] == POST
    assert [(edge["before"], edge["confidence"], edge["evidence"]) for edge in shown["needs"]] == [
        (LOGIN, 0.9, ["schema: calc__post requires 'token', calc__login gives it"])
    ]
    assert [(edge["after"], edge["confidence"], edge["evidence"]) for edge in shown["feeds"]] == [
        (READ, 0.5, ["calls: its 'post_id' came back 2 times as 'page'"])
    ]
    page = told(path, capsys, "post")
    assert "calc__post needs" in page and "calc__post feeds" in page and "foretool learn" in page


def test_without_a_tool_the_whole_graph_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    filled(path).close()
    page = told(path, capsys)
    assert page.index(LOGIN) < page.index(READ) and "0.90" in page
    assert [edge["after"] for edge in json.loads(told(path, capsys, "--json"))] == [POST, READ]


def test_the_graph_in_use_comes_first_and_a_broken_one_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path)
    with filled(path) as store:
        learned = [Edge(LOGIN, POST, 0.75, ("discriminator: 0.99",)), Edge(LOGIN, ToolId("gone__x"), 0.9, ())]
        store.artifacts.add("tgr", dumps(learned), {}, promote=True)
    shown = json.loads(told(path, capsys, "post", "--json"))
    assert ([edge["evidence"] for edge in shown["needs"]], shown["served"]) == ([["discriminator: 0.99"]], True)
    assert "gone__x" not in told(path, capsys)
    with open_store(configs.load(path).storage) as store:
        store.artifacts.add("tgr", b"not a model", {}, promote=True)
    assert json.loads(told(path, capsys, "post", "--json"))["served"] is True


def test_an_unknown_tool_is_refused_with_what_may_be_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path)
    filled(path).close()
    page = told(path, capsys, "calc__pots", status=1)
    assert "no tool is called 'calc__pots' (unknown); did you mean calc__post?" in page
    assert "no tool is called 'xyz' (unknown); foretool tools lists them" in told(path, capsys, "xyz", status=1)


def test_before_anything_is_known_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No dependencies between tools are known yet" in told(write_config(tmp_path), capsys)
