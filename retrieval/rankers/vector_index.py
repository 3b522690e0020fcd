"""Vectors by row, compared with queries: in blocks of numpy, and very many in faiss, which keeps them in half the
memory (16 bits a number) and takes 15 MiB and 0.1 s to import.

numpy's matrix product and faiss share the work with a second thread and wait for it in a busy loop. While anything else
runs that takes ten times as long as the products themselves (`docs/benchmarks.md`), so blocks go through `einsum`,
which one thread works out.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.model_format import Floats

BLOCK: Final = 4_096
"""Rows of a block. New rows fill the last one, so that no others are copied for them."""
MANY: Final = 32_768
"""From this many vectors on faiss holds them: 25 MiB in place of 50 at this size, 38 in place of 77 at 50,000, at twice
the time (17 in place of 9 ms a line) and the same first ten of each search (decision 10)."""


class VectorIndex:
    """Inner products of queries with rows; rows are added at the end and never change."""

    def __init__(self, rows: Floats) -> None:
        """`rows` are (rows, dimension)."""
        self._dimension = rows.shape[1]
        self._blocks: list[Floats] = []  # (BLOCK, dimension) each, full but for the last; none once faiss holds them
        self._filled = 0  # rows in the blocks
        self._many: Any = None  # faiss.IndexScalarQuantizer (rows, dimension), in 16 bits
        self.add(rows)

    def __len__(self) -> int:
        return self._filled if self._many is None else int(self._many.ntotal)

    def add(self, rows: Floats) -> None:
        """Add rows after those that are there; (rows, dimension)."""
        if self._many is None and self._filled + len(rows) < MANY:
            self._fill(rows)
            return
        if self._many is None:
            import faiss

            half = faiss.ScalarQuantizer.QT_fp16
            self._many = faiss.IndexScalarQuantizer(self._dimension, half, faiss.METRIC_INNER_PRODUCT)
            for block in self._parts():
                self._many.add(block)
            self._blocks.clear()
        self._many.add(np.ascontiguousarray(rows))

    def _fill(self, rows: Floats) -> None:
        """Copy rows into the blocks."""
        while len(rows):
            place = self._filled % BLOCK
            if not place:
                self._blocks.append(np.empty((BLOCK, self._dimension), np.float32))
            part, rows = rows[: BLOCK - place], rows[BLOCK - place :]
            self._blocks[-1][place : place + len(part)] = part
            self._filled += len(part)

    def _parts(self) -> list[Floats]:
        """Return the blocks without the rows that are not filled."""
        return [block[: self._filled - at * BLOCK] for at, block in enumerate(self._blocks)]

    def take(self, places: NDArray[np.int64]) -> Floats:
        """Return a copy of these rows; (places, dimension)."""
        if self._many is not None:
            there: Floats = self._many.reconstruct_batch(places)
            return there
        found = np.empty((len(places), self._dimension), np.float32)
        for at, block in enumerate(self._blocks):
            here = places // BLOCK == at
            found[here] = block[places[here] - at * BLOCK]
        return found

    def products(self, queries: Floats, places: NDArray[np.int64]) -> Floats:
        """Return the inner product of each of (queries, dimension) with each of these rows; (queries, places)."""
        all_rows = np.empty((len(queries), len(self)), np.float32)
        if self._many is not None:
            # Every row is wanted: `search` gives them all, sorted, with their numbers.
            products, rows = self._many.search(np.ascontiguousarray(queries), len(self))
            np.put_along_axis(all_rows, rows, products, axis=1)
        for at, block in enumerate(self._parts()):
            for query, products in zip(queries, all_rows[:, at * BLOCK : at * BLOCK + len(block)], strict=True):
                np.einsum("rd,d->r", block, query, out=products)
        chosen: Floats = all_rows[:, places]
        return chosen
