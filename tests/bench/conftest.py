"""What the tests of the benchmarks share."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest


def write(path: Path, *rows: object) -> None:
    text = "".join(json.dumps(row) + "\n" for row in rows)
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small data set as it is published."""
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
