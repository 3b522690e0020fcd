"""Models as bytes: what goes in comes out, and anything else is refused with a word about why."""

from __future__ import annotations

import io
import zipfile

import numpy as np
import pytest

from foretool.retrieval.model_format import ModelError, pack, unpack

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
    with pytest.raises(ModelError, match="bytes that are not a model"):
        unpack(model[: int(share * len(model))], "dtdr", 1)


def test_pickled_content_is_refused() -> None:
    out = io.BytesIO()
    np.savez(out, header=np.asarray([{"method": "dtdr"}], dtype=object))
    with pytest.raises(ModelError, match="not a model"):
        unpack(out.getvalue(), "dtdr", 1)


def zipped(name: str, data: bytes, **changes: int) -> bytes:
    """An archive of one part; `changes` to what it says of itself."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, data)
        for key, value in changes.items():
            setattr(archive.infolist()[0], key, value)
    return out.getvalue()


def array(value: bytes) -> bytes:
    out = io.BytesIO()
    np.save(out, np.frombuffer(value, np.uint8))
    return out.getvalue()


HEADER = array(b"{}" * 40)
FOUND = {
    "encrypted": zipped("header.npy", HEADER, flag_bits=1),
    "patched": zipped("header.npy", HEADER, flag_bits=0x20),
    "of another version": zipped("header.npy", HEADER, extract_version=99),
    "of another compression": zipped("header.npy", HEADER, compress_type=97),
    "damaged within": zipped("header.npy", HEADER).replace(HEADER[-8:], b"\xff" * 8)[:60] + b"\xff" * 40,
    "a header that is a list": zipped("header.npy", array(b"[]")),
    "a header of brackets": zipped("header.npy", array(b"[" * 100_000)),
    "a header that is no array": zipped("header", b"{}"),
    "larger than any model": zipped("header.npy", HEADER, file_size=2**40),
    "an array alone": HEADER,
    "a header of numpy's that ends early": b"\x93NUMPY\x01\x00\t\x00\t$\x01&)>\t\xf8\xf6",
    "an array larger than memory": zipped("header.npy", HEADER.replace(b"(80,)", b"(8000000000000000000,)", 1)),
}


@pytest.mark.parametrize("model", FOUND.values(), ids=FOUND)
def test_what_fuzzing_found_is_refused(model: bytes) -> None:
    """Zip, zlib and numpy raise a dozen kinds of errors for bytes that are none of theirs; see `bench/fuzz`."""
    with pytest.raises(ModelError, match="bytes that are not a model"):
        unpack(model, "dtdr", 1)
