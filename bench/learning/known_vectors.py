"""Writes the vectors of tools of well-known servers (`retrieval/known_vectors.bin`).

    python -m bench.learning.known_vectors CATALOGS [--out FILE]

CATALOGS has what each server lists (SERVER.json with `tools`). The encoder that comes with foretool embeds each tool of
`known_tools.tsv` as it does in a proxy, under the name that people give to its server. Takes two minutes.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from bench.learning.known_tools import read_documents
from bench.options import make_parser
from foretool.retrieval.document import MAX_SERVER_TEXT, Document, embedded_text, with_english
from foretool.retrieval.encoders import MANIFEST, open_encoder
from foretool.retrieval.known_tools import KnownTool, known_tools
from foretool.retrieval.known_vectors import FILE, Head, hash_of


def usual_name(server: str) -> str:
    """The name under which people have a server, given that of its package."""
    name = re.sub(r"^(.*-)?mcp-server-", "", server.removeprefix("ref-"))
    return re.sub(r"^mcp-|-mcp(-.*)?$|-server$", "", name)


def read_known(catalogs: Path) -> Iterator[tuple[KnownTool, Document]]:
    """The known tools and what their servers say of them, each once."""
    seen: set[KnownTool] = set()
    for file in sorted(catalogs.glob("*.json")):
        said = str(json.loads(file.read_text("utf-8")).get("instructions") or "")
        for _, read in read_documents(catalogs, [file.stem]):
            known = known_tools().find(read)
            if known is not None and known.server == file.stem and known not in seen:
                seen.add(known)
                named = replace(read, server=usual_name(file.stem), server_text=said[:MAX_SERVER_TEXT])
                yield known, with_english(replace(named, wordings=known.wishes))


def encode_vectors(encoder: str, dimension: int, vectors: Iterable[tuple[KnownTool, Iterable[float]]]) -> bytes:
    """The bytes of a file with these vectors."""
    rows = sorted(hash_of(tool) + pack(vector) for tool, vector in vectors)
    return msgspec.json.encode(Head(encoder, dimension)) + b"\n" + b"".join(rows)


def pack(vector: Iterable[float]) -> bytes:
    """The numbers in 8 bits, the largest as 127."""
    numbers = list(vector)
    scale = 127 / max(map(abs, numbers))
    return array("b", (round(scale * each) for each in numbers)).tobytes()


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and write the file."""
    parser = make_parser("bench.learning.known_vectors", __doc__)
    parser.add_argument("catalogs", type=Path, metavar="CATALOGS")
    parser.add_argument("--out", type=Path, default=FILE, help="default: the file of this package")
    arguments = parser.parse_args(argv)
    # Texts of about the same length run at once.
    found = sorted(read_known(arguments.catalogs), key=lambda each: len(embedded_text(each[1])))
    encoder = open_encoder(MANIFEST[0].for_tools, in_bulk=True)
    vectors = encoder.documents([embedded_text(read) for _, read in found])
    rows = ((known, vector.tolist()) for (known, _), vector in zip(found, vectors, strict=True))
    out: Path = arguments.out
    out.write_bytes(encode_vectors(MANIFEST[0].key, vectors.shape[1], rows))
    print(f"{len(found)} tools, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
