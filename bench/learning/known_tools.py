"""Writes the wordings of wishes for tools of well-known servers (`retrieval/known_tools.tsv`).

    python -m bench.learning.known_tools CATALOGS [--wishes FOLDER] [--out FILE]

CATALOGS has what each server lists (SERVER.json with `tools`). The wishes are those of the file as it is, or those of a
folder: `keys.tsv` has a number, a server and a tool's name in each line, and `out/*.tsv` the number and its wishes: a
plain request, a question, a vague wish, and search words. Of what a server's author wrote only hashes are kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench.options import make_parser
from foretool.retrieval.document import Document, document
from foretool.retrieval.known_tools import FILE, KnownTool, read_line, sketch_definition, write_line
from foretool.retrieval.words import in_words
from foretool.storage.records import Tool, ToolId

WISHES = 4
Key = tuple[str, str]
"""A server, and the words of a tool's name."""


def read_known(file: Path = FILE) -> list[KnownTool]:
    """The tools of the file."""
    lines = (line.partition(b"\t") for line in file.read_bytes().splitlines())
    return [read_line(name.decode(), rest) for name, _, rest in lines]


def read_documents(catalogs: Path, servers: Sequence[str]) -> Iterator[tuple[Key, Document]]:
    """What these servers list."""
    for server in servers:
        for each in json.loads((catalogs / f"{server}.json").read_text("utf-8"))["tools"]:
            name: str = each["name"]
            tool = Tool(ToolId(f"{server}__{name}"), server, name, json.dumps(each).encode(), "")
            yield (server, in_words(name)), document(tool)


def read_wishes(folder: Path) -> dict[Key, tuple[str, ...]]:
    """The wishes of a folder, by tool."""
    rows = (line.split("\t") for line in (folder / "keys.tsv").read_text("utf-8").splitlines())
    keys = {number: (server, in_words(name)) for number, server, name in rows}
    found: dict[Key, tuple[str, ...]] = {}
    for file in sorted((folder / "out").glob("*.tsv")):
        for at, line in enumerate(file.read_text("utf-8").splitlines(), 1):
            number, *wishes = line.split("\t")
            if len(wishes) != WISHES or not all(each.strip() for each in wishes):
                raise SystemExit(f"{file}:{at}: expected a number and {WISHES} wishes, found {line[:80]!r}")
            found[keys[number]] = tuple(" ".join(each.split()) for each in wishes)
    return found


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and write the file."""
    parser = make_parser("bench.learning.known_tools", __doc__)
    parser.add_argument("catalogs", type=Path, metavar="CATALOGS")
    parser.add_argument("--wishes", type=Path, help="folder of wishes; default: those of the file as it is")
    parser.add_argument("--out", type=Path, default=FILE, help="default: the file of this package")
    arguments = parser.parse_args(argv)
    if arguments.wishes:
        wishes = read_wishes(arguments.wishes)
    else:
        wishes = {(each.server, each.name): each.wishes for each in read_known()}
    servers = sorted({server for server, _ in wishes})
    # Of a tool that says nothing no copy could be told.
    found = {
        write_line(KnownTool(key[1], key[0], sketch, wishes[key]))
        for key, read in read_documents(arguments.catalogs, servers)
        if key in wishes and (sketch := sketch_definition(read))
    }
    out: Path = arguments.out
    out.write_bytes("".join(sorted(found, key=str.encode)).encode())
    print(f"{len(found)} of {len(wishes)} tools of {len(servers)} servers, {out.stat().st_size} bytes")


if __name__ == "__main__":
    main()
