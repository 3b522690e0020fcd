"""The benchmark of the prompt hook, on a catalog of three tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.proxy import prompt_hook, windows


def test_servers_are_repeated_until_there_are_enough_tools(tmp_path: Path) -> None:
    for name in ("a", "b"):
        tools = [{"name": f"{name}{number}", "description": "Sends a letter"} for number in range(3)]
        (tmp_path / f"{name}.json").write_text(json.dumps({"server": name, "tools": tools}))
    found = prompt_hook.servers(tmp_path, 8)
    assert {name: len(tools) for name, tools in found.items()} == {"a-0": 3, "b-0": 3, "a-1": 2}


@pytest.mark.slow
def test_a_run_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tools = [{"name": "send", "description": "Sends a summary of an issue by email", "inputSchema": {}}]
    (tmp_path / "a.json").write_text(json.dumps({"server": "a", "tools": tools}))
    prompt_hook.main(["--catalogs", str(tmp_path), "--tools", "3", "--runs", "2", "--json"])
    proxy, words = map(json.loads, capsys.readouterr().out.splitlines())
    assert (words["asked"], proxy["asked"]) == ("words", "proxy")
    for row in (words, proxy):
        assert (row["tools"], row["runs"]) == (3, 2)
        assert row["processor_p50_ms"] > 0 and 0 < row["p50_ms"] <= row["p95_ms"]


@pytest.mark.slow
def test_the_proxy_that_is_waited_for_is_the_one_that_embeds(tmp_path: Path) -> None:
    path = prompt_hook.prepare(tmp_path, {"a": [{"name": "send", "description": "Sends a letter", "inputSchema": {}}]})
    with prompt_hook.serving(path, tmp_path / "run") as pid:
        # A proxy that windows share would be a second process, and a run could be timed while that one embeds.
        assert windows.processes(str(path)) == [pid]
