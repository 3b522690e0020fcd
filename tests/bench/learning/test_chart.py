"""The plot of several runs."""

from __future__ import annotations

from xml.etree import ElementTree

from bench.learning import chart


def test_the_plot_is_an_svg_with_a_line_a_run() -> None:
    panels = {"one": ([25.0, 50.0], {"frozen, on": [1.0, 0.5], "frozen, off": [1.0, 0.75]})}
    drawn = chart.svg("A <title>", panels, "share", 1.0)
    root = ElementTree.fromstring(drawn)
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2
    height = chart.TOP + chart.HEIGHT
    ends = [line.get("points", "").split()[-1].split(",")[1] for line in lines]
    assert ends == [f"{height - chart.HEIGHT / 2:.1f}", f"{height - 0.75 * chart.HEIGHT:.1f}"]
