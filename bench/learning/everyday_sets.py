"""Writes sets of everyday wishes, each with the tool it wants, from public repositories.

    python -m bench.learning.everyday_sets CHECKOUTS OUT

CHECKOUTS holds the checkouts by the names of `SOURCES`; OUT gets a folder a set, in the form of other data sets. The
wishes are other people's under the licences beside their sources; what each intent or command is called as a tool, and
what the tool says of itself, was written for this (`everyday_tools.json`). Small talk is left out, and of nl2bash every
line that is more than one command. Nothing of them is in this repository but the weights that were trained on them.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.options import make_parser

Json = dict[str, Any]
Wish = tuple[str, list[str]]
"""A wish and the tools it needs."""

SOURCES = {
    "clinc": "github.com/clinc/oos-eval, CC BY 3.0: data/data_full.json, its training part",
    "hwu": "github.com/xliuhw/NLU-Evaluation-Data, CC BY 4.0: the training part of its first fold",
    "nl2bash": "github.com/TellinaTool/nl2bash, data/bash, MIT",
    "callnavi": "github.com/Etamin/CallNavi, MIT",
    "nestful": "github.com/IBM/NESTFUL, the Glaive part, Apache-2.0",
}
EACH = {"clinc": 30, "hwu": 45, "nl2bash": 45}
"""Wishes kept of one tool."""
HWU_TRAINING = "CrossValidation/autoGeneFromRealAnno/*/CrossValidation/KFold_1/trainset"
MORE_THAN_ONE = ("|", "$(", "-exec", "-delete", ";")
"""What a line of the shell has that runs more than one command."""
FEWEST_WORDS = 3
FILE = Path(__file__).with_name("everyday_tools.json")


def described(name: str) -> dict[str, Json]:
    """The tools of a set by intent or command."""
    rows = json.loads(FILE.read_text("utf-8"))[name]
    return {key: tool(server, own, text, params.split(",")) for key, (server, own, text, params) in rows.items()}


def tool(server: str, name: str, text: str, params: Iterable[str]) -> Json:
    """A row of `tools.jsonl`."""
    schema = {"type": "object", "properties": {each: {"type": "string"} for each in params if each}}
    return {"server": server, "name": name, "description": text, "input_schema": schema}


def known_as(row: Json) -> str:
    """What `calls` names a tool."""
    return f"{row['server']}/{row['name']}" if row["server"] else str(row["name"])


def capped(wishes: Iterable[tuple[str, str]], most: int) -> list[Wish]:
    """At most so many different wishes of each tool, drawn with a fixed seed."""
    draw = random.Random(5)
    by_tool: dict[str, dict[str, None]] = {}
    for text, wanted in wishes:
        by_tool.setdefault(wanted, {})[text] = None
    found: list[Wish] = []
    for wanted, texts in by_tool.items():
        shuffled = list(texts)
        draw.shuffle(shuffled)
        found += [(text, [wanted]) for text in shuffled[:most]]
    draw.shuffle(found)
    return found


def clinc(folder: Path, tools: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """The wishes of CLINC150."""
    for text, intent in json.loads((folder / "data/data_full.json").read_text("utf-8"))["train"]:
        if intent in tools:
            yield text, known_as(tools[intent])


def hwu(folder: Path, tools: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """The wishes of HWU64, as people wrote them where that is known."""
    (part,) = folder.glob(HWU_TRAINING)
    for intent, row in tools.items():
        with (part / f"{intent}.csv").open(encoding="utf-8", newline="") as file:
            for cells in csv.reader(file, delimiter=";"):
                if len(cells) > 4 and cells[0] != "answerid":
                    yield cells[4] if cells[5:6] in ([], ["null"]) else cells[5], known_as(row)


def nl2bash(folder: Path, tools: Mapping[str, Json]) -> Iterator[tuple[str, str]]:
    """What people ask of one command of the shell."""
    texts, lines = ((folder / f"data/bash/all.{end}").read_text("utf-8", "replace").split("\n") for end in ("nl", "cm"))
    for text, line in zip(texts, lines, strict=False):
        words = line.split()
        words = words[1:] if words[:1] == ["sudo"] else words
        if any(mark in line for mark in MORE_THAN_ONE) or not words or words[0] not in tools:
            continue
        if len(text.split()) >= FEWEST_WORDS:
            yield text, known_as(tools[words[0]])


def callnavi(folder: Path) -> tuple[list[Json], list[Wish]]:
    """The tools of CallNavi, a domain as a server, and its questions."""
    rows: list[Json] = []
    wishes: list[Wish] = []
    for path in sorted((folder / "Dataset/APIs").glob("*.json")):
        domain, held = path.stem, json.loads(path.read_text("utf-8"))
        listed = held if isinstance(held, list) else next(iter(held.values()))
        apis = {each["name"]: each for each in reversed(listed)}
        own = [apis[name] for name in dict.fromkeys(each["name"] for each in listed)]
        rows += [tool(domain, each["name"], each.get("description", ""), each.get("parameters") or {}) for each in own]
        for asked in json.loads((folder / f"Dataset/Questions/{domain}.json").read_text("utf-8")):
            said = asked["question"]
            text = (
                " ".join(each["content"] for each in said if each["role"] == "user")
                if isinstance(said, list)
                else str(said)
            )
            truth = asked["ground_truth"]["API"]
            named = [truth] if isinstance(truth, str) else truth
            calls = [f"{domain}/{each}" for each in named if isinstance(each, str) and each in apis]
            wishes += [(text, calls)] if calls else []
    return rows, wishes


def nestful(folder: Path) -> tuple[list[Json], list[Wish]]:
    """The tools and tasks of NESTFUL's Glaive part."""
    part = folder / "data/non-executable"
    specs = {each["name"]: each for each in json.loads((part / "non-executable-glaive-spec.json").read_text("utf-8"))}
    rows = [
        tool("", name, each.get("description", ""), each.get("query_parameters") or {}) for name, each in specs.items()
    ]
    tasks = json.loads((part / "non-executable-glaive-data.json").read_text("utf-8"))
    found = ((each["input"], [call["name"] for call in each["output"] if call.get("name") in specs]) for each in tasks)
    return rows, [(text, calls) for text, calls in found if calls]


def write(out: Path, name: str, rows: Sequence[Json], wishes: Sequence[Wish]) -> None:
    """Write one set."""
    folder = out / name
    folder.mkdir(parents=True, exist_ok=True)
    asked = [{"id": f"{name}-{at}", "query": text, "calls": calls} for at, (text, calls) in enumerate(wishes)]
    for file, held in (("tools.jsonl", rows), ("train.jsonl", asked)):
        (folder / file).write_text("".join(f"{json.dumps(each)}\n" for each in held), "utf-8")
    print(f"{name}: {len(rows)} tools, {len(wishes)} wishes")


def write_all(checkouts: Path, out: Path) -> None:
    """Write every set."""
    for name, read in (("clinc", clinc), ("hwu", hwu), ("nl2bash", nl2bash)):
        tools = described(name)
        write(out, name, list(tools.values()), capped(read(checkouts / name, tools), EACH[name]))
    write(out, "callnavi", *callnavi(checkouts / "callnavi"))
    write(out, "nestful", *nestful(checkouts / "nestful"))


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and write the sets."""
    parser: argparse.ArgumentParser = make_parser("bench.learning.everyday_sets", __doc__)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args(argv)
    write_all(arguments.checkouts, arguments.out)


if __name__ == "__main__":
    main()
