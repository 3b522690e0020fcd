"""Where the parts of a drawing stand."""

from __future__ import annotations

from foretool.desk.page.charts import BOX, WIDTH, draw_neighbours, sort_into_bins
from foretool.retrieval.graph import Edge
from foretool.storage.records import ToolId

A, B, C = ToolId("a__a"), ToolId("b__b"), ToolId("c__" + "c" * 60)


def test_what_a_tool_needs_stands_left_and_what_it_feeds_right() -> None:
    drawing = draw_neighbours(A, [Edge(B, A, 0.9, ())], [Edge(A, C, 0.3, ()), Edge(A, B, 0.2, ())])
    assert drawing is not None
    assert [box.name for box in drawing.left] == [B] and [box.name for box in drawing.right] == [C, B]
    assert drawing.left[0].x == 0 and drawing.right[0].x == WIDTH - BOX
    assert len(drawing.right[0].shown) < 40 and drawing.right[0].sure == 0.3
    ys = [box.y for box in drawing.right]
    assert ys == sorted(ys) and ys[-1] < drawing.height
    assert draw_neighbours(A, [], []) is None


def test_promises_are_sorted_into_tenths() -> None:
    bins = sort_into_bins([(0.0, 0.0), (0.05, 1.0), (0.95, 1.0), (1.0, 1.0)])
    assert [(low, high, len(own)) for low, high, own in bins] == [(0.0, 0.1, 2), (0.9, 1.0, 2)]
