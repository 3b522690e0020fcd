"""Measures what the glossary brings where the task or the tool is Chinese (`retrieval/glossary.py`).

    python -m bench.retrieval.chinese CATALOGS [SET ...] [--encoder minilm-tools] [--without-glossary] [--json]

CATALOGS has what real servers list, and the tools of each SET join them; no task of a set is read. Three rows:

- `wishes`: tools described in Chinese that foretool knows (`retrieval/known_tools.tsv`), asked for by their English
  wishes, which are not read.
- `parameters`: tools described in Chinese, asked for by the longest text of a parameter in Chinese; no tool described
  in Chinese has texts of parameters then.
- `tasks`: tasks of `chinese.json` for tools of English servers, with the wishes that ship, and how many remarks of
  small talk have each level.

`chinese.json` was written for this while the glossary was, and weights were chosen by these rows.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from statistics import fmean
from typing import Any
from unittest.mock import patch

from bench import options
from bench.datasets import catalog_tools, read_tools, tool_of
from bench.kept_encoder import KeptEncoder
from bench.reports import Row, print_row
from bench.retrieval.pool import Pool
from foretool.retrieval import glossary
from foretool.retrieval.confidence import level
from foretool.retrieval.document import document
from foretool.retrieval.encoders import resolve_weights
from foretool.retrieval.known_tools import shipped_wordings
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.ranking import Query
from foretool.server.catalog.encoders import open_any_encoder
from foretool.storage.opening import open_store
from foretool.storage.records import Tool, ToolId

FILE = Path(__file__).with_name("chinese.json")
CUTS = (1, 5, 10)
DEPTH = 50
LEAST_HAN, MOST_ASKED = 6, 60
"""A text of a parameter asks for a tool if it has so many Chinese characters, by its first characters."""
_HAN = re.compile("[\u3400-\u9fff]")

Asked = list[tuple[str, frozenset[ToolId]]]
"""What is asked, and the right tools."""


def is_chinese(tool: Tool) -> bool:
    """Whether a tool is described in Chinese."""
    return _HAN.search(document(tool).description) is not None


def same_tools(tools: Sequence[Tool]) -> dict[ToolId, frozenset[ToolId]]:
    """By tool described in Chinese, those of its name: some servers are in two catalogs."""
    by_name: dict[str, set[ToolId]] = {}
    chinese = [tool for tool in tools if is_chinese(tool)]
    for tool in chinese:
        by_name.setdefault(tool.name, set()).add(tool.id)
    return {tool.id: frozenset(by_name[tool.name]) for tool in chinese}


def by_wishes(tools: Sequence[Tool]) -> Asked:
    """The wishes of known tools that are described in Chinese."""
    same = same_tools(tools)
    return [(wish, same[tool.id]) for tool in tools if tool.id in same for wish in shipped_wordings(document(tool))]


def by_parameters(tools: Sequence[Tool]) -> Asked:
    """The longest Chinese text of a parameter of each tool that is described in Chinese."""
    same, asked = same_tools(tools), dict[str, frozenset[ToolId]]()
    for tool in tools:
        texts = [text for text in document(tool).parameter_texts if len(_HAN.findall(text)) >= LEAST_HAN]
        if tool.id in same and texts:
            text = max(texts, key=len)[:MOST_ASKED]
            asked[text] = asked.get(text, frozenset()) | same[tool.id]
    return list(asked.items())


def without_parameter_texts(tool: Tool) -> Tool:
    """A tool whose parameters have no descriptions."""
    definition = json.loads(tool.definition)
    schema = definition.get("inputSchema")
    return tool_of(tool.upstream, {**definition, "inputSchema": without_descriptions(schema)})


def without_descriptions(value: Any) -> Any:
    """A value of JSON without texts under `description`."""
    if isinstance(value, dict):
        kept = ((key, each) for key, each in value.items() if key != "description" or not isinstance(each, str))
        return {key: without_descriptions(each) for key, each in kept}
    return [without_descriptions(each) for each in value] if isinstance(value, list) else value


def row_of(method: str, pipeline: Pipeline, asked: Asked) -> Row:
    """How well the tools are found, and at which levels."""
    rankings = [pipeline.rank(Query((text,)), limit=DEPTH) for text, _ in asked]
    places = [
        next((place for place, each in enumerate(ranking.ranked, 1) if each.tool in right), 0)
        for ranking, (_, right) in zip(rankings, asked, strict=True)
    ]
    row: Row = {"set": "chinese", "method": method, "n": len(asked), "tools": len(pipeline.corpus)}
    row |= {f"r@{cut}": round(fmean(0 < place <= cut for place in places), 3) for cut in CUTS}
    return row | {"levels": count_levels([level(each) for each in rankings])}


def count_levels(found: Sequence[str]) -> dict[str, int]:
    """How often each level was said."""
    return {name: found.count(name) for name in ("high", "medium", "low", "none")}


def measure(tools: Sequence[Tool], encoders: Sequence[KeptEncoder]) -> Iterator[Row]:
    """The rows."""
    yield row_of("wishes", Pool(tools, {}, encoders).pipeline(), by_wishes(tools))
    chinese = same_tools(tools).keys()
    bare = [without_parameter_texts(tool) if tool.id in chinese else tool for tool in tools]
    yield row_of("parameters", Pool(bare, {}, encoders).pipeline(), by_parameters(tools))
    held = json.loads(FILE.read_text("utf-8"))
    english = [tool for tool in tools if tool.upstream in held["servers"]]
    pipeline = Pool(english, {}, encoders, shipped=shipped_wordings).pipeline()
    talk = [level(pipeline.rank(Query((text,)), limit=DEPTH)) for text in held["talk"]]
    yield {**row_of("tasks", pipeline, by_tasks(held, english)), "levels of small talk": count_levels(talk)}


def by_tasks(held: Mapping[str, Any], tools: Sequence[Tool]) -> Asked:
    """The tasks of the file, each with all tools that have one of its names."""
    return [
        (each["task"], frozenset(tool.id for tool in tools if tool.name in each["tools"])) for each in held["tasks"]
    ]


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the rows."""
    parser = options.make_parser("bench.retrieval.chinese", __doc__)
    parser.add_argument("catalogs", type=Path, metavar="CATALOGS")
    parser.add_argument("sets", type=Path, nargs="*", metavar="SET")
    parser.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    parser.add_argument("--vectors", type=Path, help="SQLite file that keeps embeddings between runs")
    parser.add_argument("--without-glossary", action="store_true", help="read Chinese as it is written")
    options.add_json(parser)
    given = parser.parse_args(argv)
    found = {tool.id: tool for each in given.sets for tool in read_tools(each)}
    found |= {tool.id: tool for tool in catalog_tools(given.catalogs)}
    empty = patch.object(glossary, "_chinese", lambda: glossary.Glossary(()))
    glossary.let_go()
    with (
        empty if given.without_glossary else nullcontext(),
        tempfile.TemporaryDirectory() as folder,
        open_store(given.vectors or Path(folder) / "vectors.sqlite3") as store,
    ):
        encoders = [
            KeptEncoder(open_any_encoder(each, Path(folder)), store.vectors, each.key)
            for each in resolve_weights(given.encoder)
        ]
        for row in measure(list(found.values()), encoders):
            print_row(row, given.json)


if __name__ == "__main__":
    main()
