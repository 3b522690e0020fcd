"""What answers show is counted by the text that a model reads."""

from __future__ import annotations

from typing import Any

from bench.datasets import Task
from bench.retrieval.answers import callable_names, figures, shown
from foretool.storage.records import ToolId


def answer(text: str, *cards: dict[str, Any]) -> dict[str, Any]:
    return {
        "content": [{"type": "text", "text": text}],
        "structuredContent": {"matches": list(cards), "confidence": "high"},
    }


def test_a_tool_is_callable_if_the_text_has_its_arguments_or_its_schema() -> None:
    cards = [
        {"name": "s__a", "inputSchema": {}}, {"name": "s__b", "call": "s__b(x: string)", "same": ["t__b"]},
        {"name": "s__c", "call": "s__c()"},
    ]  # fmt: skip
    told = answer("1. s__a: does it\n   {}\n2. s__b(x: string): does it\nfurther matches: s__c", *cards)
    assert callable_names(told) == ["s__a", "s__b"]
    assert shown(told) == [["s__a"], ["s__b", "t__b"], ["s__c"]]


def test_the_first_five_that_are_shown_count_with_those_that_do_the_same() -> None:
    need = frozenset({ToolId("s/b")})
    names = {"s/a": "s__a", "s/b": "t__b"}
    plain = answer("1. s__b(): does it", {"name": "s__b", "call": "s__b()", "same": ["t__b"]})
    whole = answer("", {"name": "s__b"}, {"name": "t__b"})
    row = figures([Task("do it", (need,))] * 2, [(plain, whole), (answer(""), whole)], names)
    assert (row["tasks"], row["ranked_5"], row["shown_5"], row["shown"], row["callable"]) == (2, 1.0, 0.5, 0.5, 0.0)
    assert row["matches"] == 0.5 and row["levels"]["high"][0] == 2
