"""Tables of growth: exponents, and the long steps of a loop."""

import pytest

from bench.growth import tables


def test_an_exponent_says_how_a_figure_grows() -> None:
    assert tables.exponent([(10, 3.0), (100, 30.0), (1000, 300.0)]) == pytest.approx(1.0)
    assert tables.exponent([(10, 5.0), (1000, 5.0)]) == pytest.approx(0.0)
    assert tables.exponent([(10, 5.0), (1000, 0.0)]) is None


def test_a_table_has_a_row_for_each_figure_and_a_dash_where_nothing_grows() -> None:
    rows: list[tuple[int, tables.Row]] = [(1000, {"ms": 1.0, "in": "a"}), (4000, {"ms": 2.0, "in": "b"})]
    assert tables.table("calls", rows).splitlines() == [
        "| calls | 1,000 | 4,000 | ~n |",
        "|---|---|---|---|",
        "| ms | 1 | 2 | 0.5 |",
        "| in | a | b | - |",
    ]
