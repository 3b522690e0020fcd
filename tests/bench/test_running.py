"""The benchmarks that start a proxy, each at its smallest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bench import replay, soak, startup

pytestmark = pytest.mark.slow


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_startup_of_quick_and_slow_upstreams(capsys: pytest.CaptureFixture[str]) -> None:
    startup.main(["--upstreams", "2", "--repeat", "1", "--slow-s", "0.5", "--kinds", "quick,slow"])
    quick, slow = printed(capsys)
    assert (quick["kind"], slow["kind"]) == ("quick", "slow")
    assert slow["warm_list_s"]["median"] < slow["upstream_alone_s"]["median"] + 0.5
    assert slow["call_s"]["median"] > 0.5


def test_a_soak_checks_every_answer_and_ends_the_proxy(capsys: pytest.CaptureFixture[str]) -> None:
    soak.main(["--calls", "600", "--sessions", "2", "--upstreams", "2", "--limit-s", "60"])
    (found,) = printed(capsys)
    assert (found["calls"], found["wrong"], found["exit_status"]) == (600, 0, 0)
    assert (found["lists"], found["searches"]) == (1, 1)
    assert found["sessions"] == {"legacy": 1, "modern": 1}
    assert {"rss_mib", "open_files", "threads", "tasks", "objects"} <= set(found["growth"])


def test_replayed_catalogues_are_listed_searched_and_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "SETTLE_S", 0.5)
    for server, name, description in (("web", "fetch", "Fetch a page."), ("a.b", "do it", "Do what is asked for.")):
        tool = {"name": name, "description": description, "inputSchema": {"type": "object"}}
        (tmp_path / f"{server}.json").write_text(json.dumps({"server": server, "tools": [tool]}))
    (tmp_path / "set").mkdir()
    (tmp_path / "set/tools.jsonl").write_text(json.dumps({"server": "db", "name": "query", "description": "Ask it."}))
    replay.main([str(tmp_path), "--add", str(tmp_path / "set")])
    (found,) = printed(capsys)
    assert (found["servers"], found["tools"], found["missing"]) == (3, 3, 0)
    assert found["full"]["listed"] == 5
    assert found["frozen"]["search"]["own_words"]["nothing_found"] == 0
    assert (found["called"]["answered"], found["called"]["wrong"]) == (3, [])
