"""What the tests of learning share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from foretool.server.catalog import models

if TYPE_CHECKING:
    from learning_setting import Setting


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    pytest.importorskip("numpy", reason="numpy is not installed: pip install 'foretool[models]'")
    from learning_setting import Setting, Watching, use

    monkeypatch.setattr(models, "CLASSES", {"dtdr": "learned_fakes:Counted"})
    use(monkeypatch, "METHOD")
    Watching.seen.clear()
    setting = Setting(tmp_path)
    yield setting
    setting.store.close()
