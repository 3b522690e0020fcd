"""The benchmarks that start a proxy, each at its smallest."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from requirements import requirement

from bench.proxy import many_servers, soak, startup

pytestmark = pytest.mark.slow


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_startup_of_quick_and_slow_upstreams(capsys: pytest.CaptureFixture[str]) -> None:
    startup.main(["--upstreams", "2", "--repeat", "1", "--slow-s", "0.5", "--kinds", "quick,slow"])
    quick, slow = printed(capsys)
    assert (quick["kind"], slow["kind"]) == ("quick", "slow")
    assert slow["warm_list_s"]["median"] < slow["upstream_alone_s"]["median"] + 0.5
    assert slow["call_s"]["median"] > 0.5


@requirement("http:concurrent")
def test_fifty_sessions_get_every_answer_once_while_calls_are_cancelled_and_connections_dropped(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The small version of the soak; `python -m bench.proxy.soak` makes 100,000 calls."""
    options = ["--upstreams", "2", "--connections", "1", "--limit-s", "90", "--settle-s", "1"]
    soak.main(
        ["--calls", "1500", "--sessions", "50", "--cancels", "0.1", "--drops", "0.1", "--watches", "0.1", *options]
    )
    (found,) = printed(capsys)
    assert (found["calls"], found["exit_status"]) == (1500, 0)
    trouble = ("wrong", "lost", "twice", "streams_that_ended")
    assert {key: found[key] for key in trouble} == dict.fromkeys(trouble, 0), (
        found["wrong_first"],
        found["lost_first"],
    )
    assert found["answered"] + found["resumed"] + found["cancelled"] + found["dropped"] == 1500
    assert min(found["resumed"], found["cancelled"], found["dropped"]) > 10
    kept = found["records"]
    assert (kept["called"], kept["kept"], kept["missing"], kept["twice"], kept["unknown"]) == (1500, 1500, 0, 0, 0)
    assert found["notifications"]["notifications/progress"] > 200
    assert (found["lists"], found["searches"]) == (3, 3)
    assert found["sessions"] == {"legacy": 25, "modern": 25}
    assert found["log_lines"] == 1
    assert {"rss_mib", "open_files", "threads", "tasks", "objects"} <= set(found["growth"])


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
    (found,) = printed(capsys)
    assert (found["servers"], found["tools"], found["missing"]) == (3, 3, 0)
    assert found["full"]["listed"] == 5
    assert found["frozen"]["search"]["own_words"]["nothing_found"] == 0
    assert (found["called"]["answered"], found["called"]["wrong"]) == (3, [])
