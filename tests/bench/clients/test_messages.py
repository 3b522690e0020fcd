"""What a reply says."""

from __future__ import annotations

import pytest

from bench.clients import messages


def test_a_failed_call_is_no_answer() -> None:
    with pytest.raises(messages.Failed, match="gone"):
        messages.said({"content": [{"type": "text", "text": "gone"}], "isError": True})
    with pytest.raises(messages.Failed, match="no such tool"):
        messages.result_of({"id": 1, "error": {"code": -32602, "message": "no such tool"}})
