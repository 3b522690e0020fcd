from __future__ import annotations

from pathlib import Path

from bench.retrieval.token_ranks import write_ranks
from foretool.retrieval.tokens import FILE


def test_the_file_of_ranks_is_the_one_that_comes_with_foretool(tmp_path: Path) -> None:
    write_ranks(tmp_path / FILE.name)
    assert (tmp_path / FILE.name).read_bytes() == FILE.read_bytes()
