"""Vectors by row, compared with queries: in an array of numpy, and very many in faiss, which keeps them in half the
memory (16 bits a number) and takes 15 MiB and 0.1 s to import.

numpy's matrix product and faiss share the work with a second thread and wait for it in a busy loop. While anything else
runs that takes ten times as long as the products themselves (`docs/benchmarks.md`), so arrays go through `einsum`,
which one thread works out.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.model_format import Floats

MANY: Final = 32_768
"""From this many vectors on faiss holds them: 25 MiB in place of 50 at this size, 38 in place of 77 at 50,000, at twice
the time (17 in place of 9 ms a line) and the same first ten of each search (decision 10)."""


class VectorIndex:
    """Inner products of queries with rows; rows are added at the end and never change."""

    def __init__(self, rows: Floats) -> None:
        """`rows` are (rows, dimension)."""
        self._rows: Floats = np.empty((0, rows.shape[1]), np.float32)  # none once faiss holds them
        self._many: Any = None  # faiss.IndexScalarQuantizer (rows, dimension), in 16 bits
        self.add(rows)

    def __len__(self) -> int:
        return len(self._rows) if self._many is None else int(self._many.ntotal)

    def add(self, rows: Floats) -> None:
        """Add rows after those that are there; (rows, dimension)."""
        if self._many is None:
            rows = np.concatenate([self._rows, rows])
            if len(rows) < MANY:
                self._rows = rows
                return
            import faiss

            half = faiss.ScalarQuantizer.QT_fp16
            self._many = faiss.IndexScalarQuantizer(rows.shape[1], half, faiss.METRIC_INNER_PRODUCT)
            self._rows = np.empty((0, rows.shape[1]), np.float32)
        self._many.add(np.ascontiguousarray(rows))

    def take(self, places: NDArray[np.int64]) -> Floats:
        """Return a copy of these rows; (places, dimension)."""
        found: Floats = self._rows[places] if self._many is None else self._many.reconstruct_batch(places)
        return found

    def products(self, queries: Floats, places: NDArray[np.int64]) -> Floats:
        """Return the inner product of each of (queries, dimension) with each of these rows; (queries, places)."""
        all_rows = np.empty((len(queries), len(self)), np.float32)
        if self._many is None:
            for query, products in zip(queries, all_rows, strict=True):
                np.einsum("rd,d->r", self._rows, query, out=products)
        else:
            # Every row is wanted: `search` gives them all, sorted, with their numbers.
            found, rows = self._many.search(np.ascontiguousarray(queries), len(self))
            np.put_along_axis(all_rows, rows, found, axis=1)
        chosen: Floats = all_rows[:, places]
        return chosen
