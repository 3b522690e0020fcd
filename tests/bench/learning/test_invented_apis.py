from __future__ import annotations

from pathlib import Path

from bench.datasets import read_rows, read_tasks, read_tools
from bench.learning.invented_apis import GOAL, KINDS, PARTS, main


def test_every_task_has_its_tools_and_no_server_is_in_both_parts(tmp_path: Path) -> None:
    main([str(tmp_path)])
    tools = read_tools(tmp_path)
    assert len(tools) == len({tool.id for tool in tools}) == 572
    servers = {}
    for part in PARTS:
        rows = read_rows(tmp_path / f"{part}.jsonl")
        tasks = read_tasks(tmp_path / f"{part}.jsonl", tools)
        assert [sum(map(len, task.gold)) for task in tasks] == [len(row["calls"]) for row in rows]
        kinds = [read_rows(tmp_path / f"{part}-{kind}.jsonl") for kind in (*KINDS, GOAL)]
        assert sum(map(len, kinds)) == len(rows)
        servers[part] = {row["calls"][0].partition("/")[0] for row in rows}
    assert not servers["train"] & servers["dev"]
    assert min(map(len, servers.values())) > 80
