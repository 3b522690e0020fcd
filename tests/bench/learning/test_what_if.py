"""A prediction holds where what came differs from it by less than the half width of its interval."""

from bench.learning.what_if import compare, read_change


def predicted(mean: float, half: float) -> dict[str, object]:
    ends = {"low": mean - half, "mean": mean, "high": mean + half}
    return {
        "now": {"hidden": 2.0, "discoveries": 1.0, "tokens": 900.0},
        "then": {"hidden": 1.0, "discoveries": 1.0 + mean, "tokens": 900.0 + mean},
        "discoveries": ends,
        "tokens": ends,
    }


def test_a_prediction_is_compared_with_what_came() -> None:
    before, after = [(2, 1, 900), (2, 1, 900)], [(1, 0, 900), (1, 1, 899)]
    found = compare(predicted(-0.4, 0.2), before, after)
    assert found["discoveries"]["difference"] == -0.5 and found["discoveries"]["holds"]
    assert not compare(predicted(-0.1, 0.2), before, after)["discoveries"]["holds"]
    assert (found["hidden"]["now"], found["hidden"]["came"], "holds" in found["hidden"]) == (2.0, 1.0, False)


def test_a_change_is_read_as_replay_reads_it() -> None:
    assert read_change("list_tokens=3500") == ("list_tokens", 3500)
    assert read_change("policy=growing") == ("policy", "growing")
    assert read_change("list_fill=false") == ("list_fill", False)
