"""What the tests of learning share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from learning_setting import Setting


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")
    from learning_setting import Setting, Watching, use

    use(monkeypatch, "METHOD")
    Watching.seen.clear()
    setting = Setting(tmp_path)
    yield setting
    setting.store.close()
