"""The counting of the benchmark of addresses and paths, by hand."""

from __future__ import annotations

import json
import re

from bench.datasets import tool_of
from bench.retrieval.addresses import FILE, examine
from bench.retrieval.pool import Pool

TOOLS = [
    tool_of("web", {"name": "fetch", "description": "Fetch a web page", "inputSchema": {}}),
    tool_of("files", {"name": "read_file", "description": "Read a file", "inputSchema": {}}),
]


def test_places_are_counted() -> None:
    tasks = [("fetch https://example.com/read/file", "fetch"), ("read /web/page/a.txt", "fetch"), ("zebra", "fetch")]
    assert examine(Pool(TOOLS, {}).pipeline(), tasks) == {"n": 3, "first": 1, "among five": 1}


def test_the_file_has_what_it_promises() -> None:
    held = json.loads(FILE.read_text("utf-8"))
    assert (len(held["addresses"]), len(held["paths"])) == (57, 34)
    assert all(re.compile(right) for kind in ("addresses", "paths") for _, right in held[kind])
    assert all(re.search(r"https?://", task) for task, _ in held["addresses"])
    assert all(re.search(r"[/\\]", task) for task, _ in held["paths"])
