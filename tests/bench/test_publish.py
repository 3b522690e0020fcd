"""The page of figures is made from result files, and says which figures are older than their code."""

from __future__ import annotations

import pytest

from bench import publish
from bench.publish import Result, digest_of, read_results

RESULT = Result(
    claim="It is fast", measured="A call.", mode="`--alone`", command="python -m bench.a; python -m bench.b",
    commit="abc", date="2026-11-28", code=["bench/options.py"], columns=["proxy", "ms"], rows=[["foretool", "1"]],
)  # fmt: skip


def test_a_figure_says_how_it_was_measured_and_whether_its_code_has_changed() -> None:
    assert RESULT.write() == (
        "## It is fast\n\nA call. **Mode:** `--alone`.\n\n| proxy | ms |\n|---|---|\n| foretool | 1 |\n\n"
        "`python -m bench.a`, `python -m bench.b`, 2026-11-28, abc †\n"
    )
    RESULT.digest = digest_of(RESULT.code)
    assert RESULT.write().endswith("2026-11-28, abc\n")
    RESULT.digest = ""


def test_each_result_names_code_that_exists_and_rows_as_wide_as_its_columns() -> None:
    for path, result in read_results().items():
        assert all((publish.ROOT / name).exists() for name in result.code), path.name
        assert {len(row) for row in result.rows} == {len(result.columns)}, path.name


def test_a_page_that_is_not_what_the_results_make_of_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(publish, "PAGE", tmp_path / "benchmarks.md")
    assert publish.main([]) == 0 == publish.main(["--check"])
    publish.PAGE.write_text("# Benchmarks\n")
    assert publish.main(["--check"]) == 1
    assert "python -m bench.publish" in capsys.readouterr().err
