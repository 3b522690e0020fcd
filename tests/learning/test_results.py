"""What comes of a method is written down, stamped with what the run has seen."""

from __future__ import annotations

from foretool.learning.results import Results
from foretool.storage.opening import open_store


def test_a_promoted_model_serves_and_of_a_kept_one_the_report_stays() -> None:
    with open_store(":memory:") as store:
        artifacts = store.artifacts
        results = Results(artifacts, {"episodes": 7}, "minilm", now=5.0)
        promoted = results.begin("dtdr").promote(b"model", "better", {"steps": 2})
        kept = results.begin("dtdr").keep("not better", {"steps": 3})
        skipped = results.begin("dtdr").skip("too few")
        assert [each.outcome for each in (promoted, kept, skipped)] == ["promoted", "kept", "skipped"]
        assert (promoted.number, kept.number, skipped.number) == (1, 2, 0)
        assert promoted.report == {"episodes": 7, "encoders": "minilm", "steps": 2, "took_s": 0.0, "reason": "better"}
        served = artifacts.active("dtdr")
        assert served is not None
        assert (served.number, served.created_at, served.report) == (1, 5.0, promoted.report)
        assert artifacts.history("dtdr")[0].report["steps"] == 3
        assert results.comparable("dtdr") == served
        assert Results(artifacts, {}, "other", now=6.0).comparable("dtdr") is None
