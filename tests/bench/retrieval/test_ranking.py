from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.retrieval.ranking import main


@pytest.mark.slow
def test_one_json_object_a_line_per_method(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(folder), "--json"])
    results = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["set"], each["method"], each["n"]) for each in results] == [
        (folder.name, method, 2) for method in ("bm25", "lexical", "served", "gate")
    ]
    assert all(each["r@1"] == 1.0 and each["r@1_interval"] == [1.0, 1.0] for each in results[:3])


@pytest.mark.slow
def test_a_table_with_distractors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalogs = folder / "catalogs"
    catalogs.mkdir()
    (catalogs / "web.json").write_text(json.dumps({"server": "web", "tools": [{"name": "fetch"}]}))
    main([str(folder), "--pool", str(catalogs), "--methods", "served", "--limit", "1"])
    assert "served   n=1 " in capsys.readouterr().out


@pytest.mark.slow
def test_latency_over_a_repeated_catalog(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(folder), "--latency", "30", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert (result["tools"], result["words_1-25"]["n"]) == (30, 2)


@pytest.mark.slow
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
    assert before["possible@1"] == before["possible@10"] == 1.0, "each task needs one tool"
    assert "over_served" not in before
    assert after["over_served"] == {"r@1": [0.0, 0.0, 0.0], "r@5": [0.0, 0.0, 0.0], "r@10": [0.0, 0.0, 0.0]}


@pytest.mark.slow
def test_wordings_of_a_file_are_read_in_place_of_those_that_ship(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tools = [json.loads(line) for line in (folder / "tools.jsonl").read_text("utf-8").splitlines()]
    queries = tmp_path / "wishes.jsonl"
    first = tools[0]
    call = f"{first['server']}/{first['name']}"
    queries.write_text(json.dumps({"id": "1", "query": "a zebra crossing", "calls": [call]}) + "\n")
    file = tmp_path / "wordings.tsv"
    file.write_text(f"{first['server']}\t{first['name']}\twhere is a zebra\tcrossing a street\n")
    found = []
    for more in ((), ("--wordings", str(file))):
        main(
            [
                str(folder),
                "--queries",
                str(queries),
                "--methods",
                "lexical,served",
                "--encoder",
                "none",
                "--json",
                *more,
            ]
        )
        found.append([json.loads(line)["r@1"] for line in capsys.readouterr().out.splitlines()[:2]])
    assert found[0] == [0.0, 0.0] and found[1][1] == 1.0
    file.write_text("calc add sum up\n")
    with pytest.raises(SystemExit, match=r"wordings\.tsv:1: expected server, tool and wishes"):
        main([str(folder), "--wordings", str(file)])


@pytest.mark.slow
def test_only_needs_of_some_tools_can_be_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(folder), "--methods", "lexical", "--needing", "domain$", "--json"])
    row = json.loads(capsys.readouterr().out.splitlines()[0])
    assert (row["n"], row["tools"], row["r@1"]) == (1, 3, 1.0)


def test_encoders_take_part_in_the_benchmark(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    from tiny_model import write_model

    tools = [{"name": f"{verb}_{noun}", "description": "", "inputSchema": {"type": "object"}}
             for verb in ("open", "report") for noun in ("issue", "page", "bug")]  # fmt: skip
    data = {"servers": {"s0": tools}, "queries": [{"query": "open a page", "gold": ["open_page"]}]}
    (tmp_path / "set.json").write_text(json.dumps(data))
    folder = write_model(tmp_path / "tiny")
    main([
        str(tmp_path / "set.json"), "--no-servers", "--encoder", str(folder), "--vectors", str(tmp_path / "v.sqlite3"),
        "--methods", "bm25,dense,light,hybrid,served", "--json",
    ])  # fmt: skip
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["method"] for row in rows] == ["bm25", "dense", "light", "hybrid", "served", "gate"]
    assert all(row["encoders"] == "tiny" for row in rows)
    assert rows[3]["r@1"] == rows[4]["r@1"] == 1.0
    assert rows[3]["over_bm25"]["r@1"] == [0.0, 0.0, 0.0] and "over_light" in rows[3]
    with pytest.raises(SystemExit, match="dense needs an encoder"):
        main([str(tmp_path / "set.json"), "--encoder", "none", "--methods", "dense"])
