"""A payload is measured whole below the limit, and as refused above it."""

from bench.growth import payloads


def test_an_answer_is_whole_below_the_limit_and_refused_above_it() -> None:
    ((_, whole),) = payloads.rows([1], 2.0, [])
    ((_, refused),) = payloads.rows([3], 2.0, [])
    assert (whole["answered"], refused["answered"]) == ("whole", "refused")
