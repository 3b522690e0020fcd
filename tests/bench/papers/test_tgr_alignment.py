"""The figures of bringing the dependency graph up to many tools."""

from __future__ import annotations

import json
from pathlib import Path

from bench.papers.tgr_alignment import catalogue, rows

LOGIN = {
    "name": "login",
    "description": "Log in.",
    "inputSchema": {"type": "object", "properties": {"user": {"type": "string"}}},
    "outputSchema": {"type": "object", "properties": {"token": {"type": "string"}}},
}
POST = {
    "name": "post",
    "description": "Post a text.",
    "inputSchema": {"type": "object", "properties": {"token": {"type": "string"}}, "required": ["token"]},
}


def test_copies_of_real_tools_have_the_edges_of_their_schemas_and_no_matrix(tmp_path: Path) -> None:
    (tmp_path / "board.json").write_text(json.dumps({"server": "board", "tools": [LOGIN, POST]}), "utf-8")
    assert len(catalogue(tmp_path, 600)) == 600
    (row,) = rows(tmp_path, [600])
    # Each copy of the server has its own login before its own post.
    assert row["edges"] == 300
    assert row["of the matrix"] < 0.02
