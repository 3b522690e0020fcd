"""Several data sets are merged into a big one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.retrieval.merge_sets import main


def test_sets_are_merged_into_a_big_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def a_set(name: str, servers: dict[str, list[str]], *queries: str) -> Path:
        tools = {server: [{"name": each, "description": each} for each in theirs] for server, theirs in servers.items()}
        path = tmp_path / name
        path.write_text(json.dumps({"servers": tools, "queries": [{"query": q, "gold": ["open"]} for q in queries]}))
        return path

    one = a_set("one.json", {"git": ["open", "close"]}, "open it", "twice")
    other = a_set("other.json", {"b07": ["open", "whois"]}, "who is it")
    (tmp_path / "pool").mkdir()
    catalog = {"server": "web", "tools": [{"name": "close"}, {"name": "fetch"}, {"name": "beyond"}]}
    (tmp_path / "pool" / "web.json").write_text(json.dumps(catalog))
    out = tmp_path / "big.json"
    main([str(out), str(one), str(other), "--pool", str(tmp_path / "pool"), "--size", "4", "--each", "1"])
    found = json.loads(out.read_text())
    assert {server: [tool["name"] for tool in tools] for server, tools in found["servers"].items()} == {
        "git": ["open", "close"], "": ["whois"], "web": ["fetch"]
    }  # fmt: skip
    assert [each["query"] for each in found["queries"]] == ["open it", "who is it"]
    assert "4 tools of 3 servers, 2 queries" in capsys.readouterr().out
