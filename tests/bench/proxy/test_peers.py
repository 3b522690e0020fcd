from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.proxy import peers

LATENCY = {"upstreams": 1, "p99_ms": 1.0, "rss_mib": 30.0, "errors": 0}
CALLS = [
    {"test": "calls", "peer": "direct", "p50_ms": 0.04, "rps": 20000.0, **LATENCY},
    {"test": "calls", "peer": "ours", "p50_ms": 0.14, "rps": 8000.0, **LATENCY},
    {"test": "calls", "peer": "other", "p50_ms": 0.44, "rps": 2000.0, **LATENCY},
    {"test": "calls", "peer": "absent", "error": "no such file"},
]
START = {"test": "startup", "upstreams": 30, "tools_listed": 2, "rss_mib": 30.0, "err": None}
STARTS = [
    {**START, "peer": "ours", "first_s": 0.5, "list_s": [0.5, 0.1, 0.12, 0.11], "call_s_median": 0.2},
    {**START, "peer": "other", "first_s": 1.0, "list_s": [1.0, 0.5, 0.6, 0.55], "call_s_median": 0.6},
    {**START, "peer": "dead", "first_s": [], "list_s": [], "call_s_median": [], "rss_mib": [], "err": "exit 1"},
]


def test_the_cost_of_a_call_is_told_over_direct_and_as_a_multiple_of_ours() -> None:
    lines = peers.tables(peers.KINDS["calls"], CALLS)
    assert lines[0].startswith("| peer, 1 upstreams | p50 ms |")
    assert lines[3] == "| ours | 0.140 | 1.00 | +0.100 | 1.00 | 8000 | 1.00 | 30.0 | 0 |"
    assert lines[4] == "| other | 0.440 | 1.00 | +0.400 | 4.00 | 2000 | 0.25 | 30.0 | 0 |"
    assert lines[-1] == "failed: absent: no such file"


def test_the_first_start_is_cold_and_the_median_of_the_others_warm() -> None:
    lines = peers.tables(peers.KINDS["startup"], STARTS)
    assert lines[2] == "| ours | 0.500 | 0.110 | 1.00 | 0.200 | 1.00 | 2 | 30.0 | 1.00 |"
    assert lines[3] == "| other | 1.000 | 0.550 | 5.00 | 0.600 | 3.00 | 2 | 30.0 | 1.00 |"
    assert lines[4:] == ["", "failed: dead: exit 1"]


def test_a_list_is_compared_with_what_the_upstreams_list() -> None:
    rows = [
        {"test": "tokens", "peer": "(all upstreams, no proxy)", "tools": 400, "servers": 20, "list_tokens": 100_000},
        {"test": "tokens", "peer": "ours", "listed": 2, "list_tokens": 300, "again_list_s": 0.1, "rss_mib": 30.0},
    ]
    lines = peers.tables(peers.KINDS["tokens"], rows)
    assert lines[3] == "| ours | 2 | 300 | 99.70 % | 0.100 | 30.000 |"


def test_the_script_is_run_with_ours_among_the_peers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script = (
        "import json,os,sys; print(json.dumps({'test': 'tokens', 'peer': os.environ['OURS'], 'args': sys.argv[1:]}))"
    )
    (tmp_path / "tokens.py").write_text(script)
    peers.main(["tokens", "--peerbench", str(tmp_path), "--foretool", "ft", "--peers", "ours", "--", "--more"])
    out, err = capsys.readouterr()
    assert json.loads(err)["args"] == ["--peers", "ours", "--more"]
    # What is measured is the proxy, and not a window before it.
    assert json.loads(json.loads(err)["peer"]) == ["ft", "serve", "--config", "{config}", "--alone"]
    assert "load average" in out
    peers.main(["tokens", "--peerbench", str(tmp_path), "--foretool", "ft", "--joined"])
    assert json.loads(json.loads(capsys.readouterr().err)["peer"]) == ["ft", "serve", "--config", "{config}"]


def test_a_folder_without_the_script_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        peers.main(["calls", "--peerbench", str(tmp_path)])
    assert "has no bench.py" in capsys.readouterr().err
