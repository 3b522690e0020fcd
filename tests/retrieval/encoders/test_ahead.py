"""Slow encoders are asked ahead; what was not asked is near to nothing."""

from __future__ import annotations

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from tiny_model import HashEncoder  # noqa: E402

from foretool.retrieval.encoders import ahead  # noqa: E402
from foretool.retrieval.encoders.ahead import Ahead  # noqa: E402


def test_what_was_fetched_is_known_and_the_rest_is_zero() -> None:
    slow = HashEncoder("slow")
    encoder = Ahead(slow)
    encoder.fetch(["open issue", "report bug"])
    encoder.fetch(["open issue"])
    found = encoder.queries(["report bug", "weather"])
    np.testing.assert_allclose(found[0], slow.queries(["report bug"])[0])
    assert not found[1].any() and found.shape == (2, 64)
    assert slow.asked == ["open issue", "report bug", "report bug"]
    assert encoder.name == "slow"
    np.testing.assert_allclose(encoder.documents(["weather"]), slow.documents(["weather"]))


def test_the_oldest_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "KEPT", 2)
    encoder = Ahead(HashEncoder("slow"))
    for text in ("open", "report", "weather"):
        encoder.fetch([text])
    assert [bool(row.any()) for row in encoder.queries(["open", "report", "weather"])] == [False, True, True]
