"""Vectors by row, compared exactly: in blocks of numpy, and very many in faiss, whose import takes 15 MiB and 0.1 s.

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
"""From this many vectors on faiss holds them. It compares several lines of a task with them side by side."""


class VectorIndex:
    """Inner products of queries with rows; rows are added at the end and never change."""

    def __init__(self, rows: Floats) -> None:
        """`rows` are (rows, dimension)."""
        self._dimension = rows.shape[1]
        self._blocks: list[Floats] = []  # (BLOCK, dimension) each, full but for the last; none once faiss holds them
        self._filled = 0  # rows in the blocks
        self._many: Any = None  # faiss.IndexFlatIP (rows, dimension), exact
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

            self._many = faiss.IndexFlatIP(self._dimension)
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
        if self._many is None:
            all_rows = np.empty((len(queries), self._filled), np.float32)
            for at, block in enumerate(self._parts()):
                for query, products in zip(queries, all_rows[:, at * BLOCK : at * BLOCK + len(block)], strict=True):
                    np.einsum("rd,d->r", block, query, out=products)
            chosen: Floats = all_rows[:, places]
            return chosen
        import faiss

        queries, found = np.ascontiguousarray(queries), np.empty((len(queries), len(places)), np.float32)
        rows = np.ascontiguousarray(np.broadcast_to(places, found.shape))
        # `search` would sort; every row is wanted, in the order of the places.
        self._many.compute_distance_subset(
            len(queries), faiss.swig_ptr(queries), len(places), faiss.swig_ptr(found), faiss.swig_ptr(rows)
        )
        return found
