"""Writes a set of vague wishes over invented web APIs, in the format of the data sets, with a training and a
development part.

    python -m bench.learning.invented_apis OUT
    python -m bench.retrieval.ranking OUT [--queries OUT/dev-situation.jsonl]

`invented_apis.jsonl.gz` has 185 servers with 572 tools such as marketplaces of APIs list. A language model invented
them and their texts for this project, under its licence, and saw no data set. Each tool has four wishes: `everyday` and
`setting` in everyday words, `situation`, which says what somebody wants to achieve, and `search`, a few search words.
`goal` has larger wishes that need several tools. A server is in one part with all of its tools, and every tool is a
candidate for both parts. Many tools do nearly the same, so the figures compare rankings; they are no ceiling.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.datasets import read_rows
from bench.options import make_parser

FILE = Path(__file__).with_name("invented_apis.jsonl.gz")
KINDS = ("everyday", "setting", "situation", "search")
GOAL = "goal"
PARTS = ("train", "dev")
Row = dict[str, Any]


def part_of(server: str) -> str:
    """The part of a server's tasks, by the hash of its name; half of them each."""
    return PARTS[sha256(server.encode()).digest()[0] % 2]


def tool_rows(rows: Sequence[Row]) -> Iterator[Row]:
    """The tools, as `tools.jsonl` has them."""
    for row in rows:
        for tool in row.get("tools", ()) if "server" in row else ():
            schema = {"type": "object", "properties": {name: {} for name in tool["params"]}}
            yield {
                "server": row["server"], "name": tool["name"], "description": tool["description"],
                "input_schema": schema,
            }  # fmt: skip


def task_rows(rows: Sequence[Row]) -> Iterator[tuple[str, str, Row]]:
    """The tasks with their part and their kind. A goal is in the part of its first tool's server."""
    for at, row in enumerate(rows):
        if "goal" in row:
            part = part_of(row["tools"][0].partition("/")[0])
            yield part, GOAL, {"id": f"goal-{at}", "query": row["goal"], "calls": row["tools"]}
            continue
        for tool in row["tools"]:
            gold = f"{row['server']}/{tool['name']}"
            for kind, wish in zip(KINDS, tool["wishes"], strict=True):
                yield part_of(row["server"]), kind, {"id": f"{kind}-{gold}", "query": wish, "calls": [gold]}


def main(argv: Sequence[str] | None = None) -> None:
    """Write the tools, both parts, and the development part by kind."""
    parser = make_parser("bench.learning.invented_apis", __doc__)
    parser.add_argument("out", type=Path, metavar="OUT")
    out: Path = parser.parse_args(argv).out
    rows = read_rows(FILE)
    files: dict[str, list[Row]] = {"tools": list(tool_rows(rows)), **{part: [] for part in PARTS}}
    for part, kind, row in task_rows(rows):
        files[part].append(row)
        files.setdefault(f"{part}-{kind}", []).append(row)
    servers = [{"server": row["server"], "description": row["about"]} for row in rows if row.get("about")]
    files["servers"] = servers
    out.mkdir(parents=True, exist_ok=True)
    for name, found in files.items():
        lines = (json.dumps(row, ensure_ascii=False) for row in found)
        (out / f"{name}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
        print(f"{name}.jsonl: {len(found)}")


if __name__ == "__main__":
    main()
