"""The arguments that several benchmarks share."""

from __future__ import annotations

import pytest

from bench.options import make_parser, split_names


def test_a_name_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    parser = make_parser("bench.some", "Measures.")
    assert split_names(parser, "--kinds", "a,b", ("a", "b")) == ["a", "b"]
    with pytest.raises(SystemExit):
        split_names(parser, "--kinds", "a,c", ("a", "b"))
    assert "--kinds: c is not known; choose from a, b" in capsys.readouterr().err
