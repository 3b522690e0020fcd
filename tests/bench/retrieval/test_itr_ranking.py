"""The published ranking of ITR on a small set."""

from __future__ import annotations

from requirements import requirement

from bench.datasets import tool_of
from bench.retrieval.pool import Pool
from bench.retrieval.ranking_methods import build_method


@requirement("itr:scores")
def test_the_published_form_runs_by_name_without_encoders_on_bm25_alone() -> None:
    about = {"send": "Sends a letter", "read": "Reads a letter", "add": "Adds two numbers"}
    tools = [tool_of("s", {"name": name, "description": text}) for name, text in about.items()]
    found = build_method("itr_hybrid", Pool(tools, {}))("send the letter")
    assert found[:2] == ["s/send", "s/read"]
