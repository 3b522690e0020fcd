"""How values become HTML."""

from __future__ import annotations

from rich.text import Text

from foretool.desk.page.rendering import mark_difference, say_share, say_when
from foretool.server.ledger.diffs import diff_texts


def test_a_difference_is_marked_as_gone_and_new_and_stays_text() -> None:
    shown = mark_difference(
        [Text("description:", "bold"), *diff_texts("Reads a <b>file</b>.", "Reads <script>x</script> a file.")]
    )
    assert "<b>description:</b>" in shown
    assert "<del>[-a &lt;b&gt;file&lt;/b&gt;.-] </del>" in shown or "<del>" in shown
    assert "<ins>" in shown and "<script>" not in shown and "&lt;script&gt;" in shown


def test_counts_shares_and_times_are_written_for_people() -> None:
    assert (say_share(None), say_share(0.1234), say_when(0)) == ("-", "12.3%", "never")
