"""The benchmark of many servers at its smallest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.proxy import many_servers


@pytest.mark.slow
def test_replayed_catalogues_are_listed_searched_and_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_servers, "SETTLE_S", 0.5)
    for server, name, description in (("web", "fetch", "Fetch a page."), ("a.b", "do it", "Do what is asked for.")):
        tool = {"name": name, "description": description, "inputSchema": {"type": "object"}}
        (tmp_path / f"{server}.json").write_text(json.dumps({"server": server, "tools": [tool]}))
    (tmp_path / "set").mkdir()
    (tmp_path / "set/tools.jsonl").write_text(json.dumps({"server": "db", "name": "query", "description": "Ask it."}))
    many_servers.main([str(tmp_path), "--add", str(tmp_path / "set")])
    found = json.loads(capsys.readouterr().out)
    assert (found["servers"], found["tools"], found["missing"]) == (3, 3, 0)
    assert found["full"]["listed"] == 6
    assert found["frozen"]["search"]["own_words"]["nothing_found"] == 0
    assert (found["called"]["answered"], found["called"]["wrong"]) == (3, [])
