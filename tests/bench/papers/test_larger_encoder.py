"""An encoder in parts, put together and verified."""

from __future__ import annotations

from hashlib import sha256
from io import BytesIO
from pathlib import Path
from zipfile import ZipFile

import pytest

from bench.papers.larger_encoder import MODEL, NAME, PARTS, VARIABLE, NoLarger, find_larger, find_parts, join_parts


def in_parts(folder: Path, model: bytes) -> list[Path]:
    packed = BytesIO()
    with ZipFile(packed, "w") as archive:
        archive.writestr(f"{NAME}/{MODEL}", model)
        archive.writestr(f"{NAME}/vocab.txt", "a\n")
    data = packed.getvalue()
    found = [folder / f"{NAME}.zip.00{number}" for number in (1, 2)]
    for path, part in zip(found, (data[:40], data[40:]), strict=True):
        path.write_bytes(part)
    return found


def test_the_parts_of_a_zip_make_a_folder_once(tmp_path: Path) -> None:
    found = in_parts(tmp_path, b"numbers")
    made = join_parts(found, tmp_path / "made", sha256(b"numbers").hexdigest())
    assert {path.name: path.read_bytes() for path in made.iterdir()} == {MODEL: b"numbers", "vocab.txt": b"a\n"}
    for part in found:
        part.unlink()
    assert join_parts(found, tmp_path / "made") == made
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


def test_another_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        NoLarger, match=r"2 parts of all-mpnet-base-v2 make no model.safetensors with sha256 78c0197b6159"
    ):
        join_parts(in_parts(tmp_path, b"others"), tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_folder_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / MODEL).write_bytes(b"numbers")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    found = find_larger(tmp_path / "cache")
    assert (found.name, found.file, found.kind) == (str(tmp_path), str(tmp_path / MODEL), "sentence-transformers")
    assert found.sha256 == sha256(b"numbers").hexdigest()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(NoLarger, match=r"nowhere/model\.safetensors is not there"):
        find_larger(tmp_path / "cache")


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.papers.larger_encoder.PARTS", ("no-such-package-part-001", *PARTS[1:]))
    with pytest.raises(NoLarger, match="no-such-package-part-001 is not installed"):
        list(find_parts())
