"""Models as bytes: what goes in comes out, and anything else is refused with a word about why."""

from __future__ import annotations

import numpy as np
import pytest

from foretool.retrieval.learned import ModelError, pack, unpack

ARRAYS = {"weights": np.arange(6, dtype=np.float32).reshape(2, 3), "rows": np.asarray([1, 2], np.int64)}


def test_what_is_packed_comes_back() -> None:
    header, arrays = unpack(pack("dtdr", 2, {"tools": ["a__b", "ü"]}, ARRAYS), "dtdr", 2)
    assert header == {"method": "dtdr", "version": 2, "tools": ["a__b", "ü"]}
    assert arrays.keys() == ARRAYS.keys()
    assert all(
        np.array_equal(arrays[name], ARRAYS[name]) and arrays[name].dtype == ARRAYS[name].dtype for name in arrays
    )


def test_another_method_or_version_is_refused() -> None:
    model = pack("dtdr", 2, {}, ARRAYS)
    with pytest.raises(ModelError, match="tgr: expected version 2 of tgr, found version 2 of dtdr"):
        unpack(model, "tgr", 2)
    with pytest.raises(ModelError, match="expected version 3 of dtdr, found version 2"):
        unpack(model, "dtdr", 3)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_half_written_model_is_refused(share: float) -> None:
    model = pack("dtdr", 1, {}, ARRAYS)
    with pytest.raises(ModelError, match="bytes that are no model"):
        unpack(model[: int(share * len(model))], "dtdr", 1)


def test_pickled_content_is_refused() -> None:
    import io

    out = io.BytesIO()
    np.savez(out, header=np.asarray([{"method": "dtdr"}], dtype=object))
    with pytest.raises(ModelError, match="no model"):
        unpack(out.getvalue(), "dtdr", 1)
