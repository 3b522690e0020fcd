"""Servers whose answers are no JSON: whoever asked hears of it at once, and nobody waits meanwhile."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from requirements import requirement
from served import Served, write_config

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[1] / "support"

AT_ONCE_S = 4.0
"""On a busy machine; who waits for an answer that never comes waits for 30 s and more."""

BROKEN = [
    '{"jsonrpc":"2.0","id":ID,"result":{"content":[],"n":NaN}}',
    '{"jsonrpc": "2.0", "id": ID, "result": {"content": [], "n": -Infinity}}',
    '{"result":{"content":[],"n":NaN},"jsonrpc":"2.0","id":ID}',
    '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"\xff\xfe"}]}}',
    '\xef\xbb\xbf{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"te',
    '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"te',
    '{"result":{"content":[{"type":"te',
    '{"jsonrpc":"2.0","id":ID,"result":' + "[" * 100_000 + "]" * 100_000 + "}",
    '{"jsonrpc":"2.0","id":ID}',
    '{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"bro\nken"}}',
    '{\n  "jsonrpc": "2.0",\n  "id": ID,\n  "result": {\n    "n": NaN\n  }\n}',
]


@contextmanager
def serving(folder: Path, attack: str) -> Iterator[Served]:
    """A proxy in front of `evil`, whose answers are broken, and `good`, which answers all the while."""
    files = {"good": ["echo_upstream.py"], "evil": ["attacking_upstream.py", attack]}
    servers = {
        name: {"command": sys.executable, "args": [str(SUPPORT / file), *options]}
        for name, (file, *options) in files.items()
    }
    served = Served(write_config(folder, servers), "--alone")
    try:
        served.initialize()
        yield served
        assert served.call("good__echo", {"text": "a"}) == '{"text": "a"}'
    finally:
        served.kill()


def call_verbatim(served: Served, answer: str) -> tuple[str, float]:
    """Let `evil` answer with this text. Returns what the client was told, and after how many seconds."""
    began = time.monotonic()
    refused = served.ask("tools/call", {"name": "evil__go", "arguments": {"answer": answer}})
    assert refused["isError"] is True
    return refused["content"][0]["text"], time.monotonic() - began


@requirement("upstream:almost")
def test_who_gets_an_answer_that_is_no_json_hears_so_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, "verbatim") as served:
        served.call("evil__go", {"answer": '{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}'})
        for answer in BROKEN:
            told, seconds = call_verbatim(served, answer)
            assert "the answer of server 'evil' to 'evil__go' was not read: its answer is not valid" in told, answer
            assert seconds < AT_ONCE_S, answer


@requirement("upstream:almost")
@pytest.mark.parametrize("attack", ["nan-list", "deep-list", "half-list"])
def test_a_list_that_is_no_json_is_a_failure_at_once(attack: str, tmp_path: Path) -> None:
    with serving(tmp_path, attack) as served:
        began = time.monotonic()
        assert not [name for name in served.list_tools() if name.startswith("evil")]
        refused = served.ask("tools/call", {"name": "evil__go", "arguments": {}})
        assert "not valid JSON" in refused["content"][0]["text"]
        assert time.monotonic() - began < AT_ONCE_S
