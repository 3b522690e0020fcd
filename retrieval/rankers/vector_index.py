"""Vectors by row, searched exactly: few in one array, many in faiss, whose import alone takes 15 MiB and 0.1 s."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from foretool.retrieval.model_format import Floats

MANY: Final = 4_096
"""From this many vectors on faiss holds them. Up to there an array answers as fast (`docs/benchmarks.md`)."""


class VectorIndex:
    """Inner products of queries with rows; rows are added at the end and never change."""

    def __init__(self, rows: Floats) -> None:
        """`rows` are (rows, dimension)."""
        self._few: Floats | None = np.empty((0, rows.shape[1]), np.float32)
        self._many: Any = None  # faiss.IndexFlatIP (rows, dimension), exact
        self.add(rows)

    def __len__(self) -> int:
        return len(self._few) if self._few is not None else int(self._many.ntotal)

    def add(self, rows: Floats) -> None:
        """Add rows after those that are there; (rows, dimension)."""
        if self._few is not None:
            self._few = np.concatenate((self._few, rows))
            if len(self._few) < MANY:
                return
            import faiss

            rows, self._few = self._few, None
            self._many = faiss.IndexFlatIP(rows.shape[1])
        self._many.add(rows)

    def take(self, places: NDArray[np.int64]) -> Floats:
        """Return a copy of these rows; (places, dimension)."""
        found: Floats = self._few[places] if self._few is not None else self._many.reconstruct_batch(places)
        return found

    def products(self, queries: Floats, places: NDArray[np.int64]) -> Floats:
        """Return the inner product of each of (queries, dimension) with each of these rows; (queries, places)."""
        if self._few is not None:
            products: Floats = (queries @ self._few.T)[:, places]
            return products
        import faiss

        queries, found = np.ascontiguousarray(queries), np.empty((len(queries), len(places)), np.float32)
        rows = np.ascontiguousarray(np.broadcast_to(places, found.shape))
        # `search` would sort; every row is wanted, in the order of the places.
        self._many.compute_distance_subset(
            len(queries), faiss.swig_ptr(queries), len(places), faiss.swig_ptr(found), faiss.swig_ptr(rows)
        )
        return found
