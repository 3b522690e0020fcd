from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bench.retrieval.merge_sets import main as merge
from bench.retrieval.ranking import main, read_tasks, read_tools


def write(path: Path, *rows: object) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    schema = {"properties": {"repo": {"description": "Owner and name"}}}
    write(
        tmp_path / "tools.jsonl",
        {"server": "github", "name": "create_issue", "description": "Open an issue", "input_schema": schema},
        {"server": "gitlab", "name": "create_issue", "description": "Open an issue", "input_schema": {}},
        {"server": None, "name": "whois", "description": "Look up a domain"},
    )
    write(
        tmp_path / "dev.jsonl.gz",
        {"id": "1", "query": "open an issue on github", "calls": ["github/create_issue"]},
        {"id": "2", "query": "who owns this domain", "calls": ["whois"], "accept": [["whois", "unknown"]]},
        {"id": "3", "query": "no tool has this", "calls": ["unknown"]},
    )
    return tmp_path


def test_queries_without_a_known_tool_are_left_out(folder: Path) -> None:
    tasks = read_tasks(folder / "dev.jsonl", read_tools(folder))
    assert [task.gold for task in tasks] == [(frozenset({"github/create_issue"}),), (frozenset({"whois"}),)]


def test_one_json_object_a_line_per_method(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(folder), "--json"])
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["set"], each["method"], each["n"]) for each in results] == [
        (folder.name, method, 2) for method in ("bm25", "lexical", "served", "gate")
    ]
    assert all(each["r@1"] == 1.0 and each["r@1_interval"] == [1.0, 1.0] for each in results[:3])


def test_a_table_with_distractors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalogs = folder / "catalogs"
    catalogs.mkdir()
    (catalogs / "web.json").write_text(json.dumps({"server": "web", "tools": [{"name": "fetch"}]}))
    main([str(folder), "--pool", str(catalogs), "--methods", "served", "--limit", "1"])
    assert "served   n=1 " in capsys.readouterr().out


def test_latency_over_a_repeated_catalog(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(folder), "--latency", "30", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert (result["tools"], result["words_1-25"]["n"]) == (30, 2)


def test_an_unknown_method_is_refused(folder: Path) -> None:
    with pytest.raises(SystemExit, match="--methods: encoder 'magic': expected"):
        main([str(folder), "--methods", "magic"])
    with pytest.raises(SystemExit, match="hybrid needs an encoder"):
        main([str(folder), "--methods", "hybrid", "--encoder", "none"])


def encoder_in(folder: Path) -> Path:
    """A small encoder of a fixed vocabulary."""
    pytest.importorskip("faiss", reason="the encoders' libraries are not installed")
    from tiny_model import write_model

    return write_model(folder / "tiny")


def test_encoders_and_combinations_run_by_name(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = encoder_in(tmp_path)
    main([str(folder), "--methods", f"{model},lexical+{model},lexical", "--encoder", "none", "--head-to-head"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["peer"], row["recall@1"], row["recall@10"]) for row in rows] == [
        (f"foretool {model}", 0.5, 1.0), (f"foretool lexical+{model}", 1.0, 1.0), ("foretool lexical", 1.0, 1.0)
    ]  # fmt: skip
    assert set(rows[0]) == {
        "test", "data", "peer", "queries", "recall@1", "recall@5", "recall@10", "hit@1", "p50_ms", "p95_ms", "tools"
    }  # fmt: skip


def test_what_is_served_is_compared_with_itself_by_other_encoders(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = f"served,served+{encoder_in(tmp_path)}"
    main([str(folder), "--methods", methods, "--over", "served", "--encoder", "none", "--json"])
    before, after, _ = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert "over_served" not in before
    assert after["over_served"] == {"r@1": [0.0, 0.0, 0.0], "r@5": [0.0, 0.0, 0.0], "r@10": [0.0, 0.0, 0.0]}


def test_only_needs_of_some_tools_can_be_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(folder), "--methods", "lexical", "--needing", "domain$", "--json"])
    row = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (row["n"], row["tools"], row["r@1"]) == (1, 3, 1.0)


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
    merge([str(out), str(one), str(other), "--pool", str(tmp_path / "pool"), "--size", "4", "--each", "1"])
    found = json.loads(out.read_text())
    assert {server: [tool["name"] for tool in tools] for server, tools in found["servers"].items()} == {
        "git": ["open", "close"], "": ["whois"], "web": ["fetch"]
    }  # fmt: skip
    assert [each["query"] for each in found["queries"]] == ["open it", "who is it"]
    assert "4 tools of 3 servers, 2 queries" in capsys.readouterr().out
