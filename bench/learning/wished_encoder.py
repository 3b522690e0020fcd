"""Trains the queries of the shipped encoder further on the wishes that come with foretool: tried, not shipped.

    python -m bench.learning.wished_encoder train --data FOLDER --everyday SETS --head-to-head FILE
        --start FILE --out FILE --cache FOLDER
    python -m bench.learning.wished_encoder report --data FOLDER --head-to-head FILE
        --start FILE --out FILE --cache FOLDER [--apart FILE]

A language model wrote the wishes for this project (`retrieval/known_tools.tsv`): four for each tool of real servers, of
which it saw name, description and parameters. DATA/mcp_catalogs has what these servers list, and all of their tools are
candidates. To the wishes, and to two to four of them as one task, come the tasks of `shipped_encoder continue`. Tools
keep the vectors of the untrained encoder. A tool of another server or set that says nearly the same is no negative.

Servers of which a tool occurs in `MEASURED` or in the file --head-to-head take no part: a tool occurs where the first
letters of its description do, or its name with enough words of its description in common or under the same server. Of
the other servers every tenth is held out. The report has recall at 1, 5 and 10 as served, before and after, on training
parts of sets that took no part and on the wishes of the servers held out.
"""

from __future__ import annotations

import json
import random
import re
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bench.datasets import Task, read_search_file, read_tasks, read_tools, tool_of
from bench.kept_encoder import KeptEncoder, open_kept, open_vectors
from bench.learning.known_tools import read_known
from bench.learning.shipped_encoder import (
    ALIKE,
    EVERYDAY,
    EVERYDAY_STRUNG,
    Material,
    QueriesOnly,
    SetsApart,
    base,
    material,
    train_further,
)
from bench.metrics import recall
from bench.options import add_json, make_parser
from bench.reports import Row, difference, print_row, rounded
from bench.retrieval.pool import Pool
from bench.retrieval.ranking_methods import build_method
from foretool.learning.training.ports_trainer import Example
from foretool.retrieval import adapters
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders import adapted
from foretool.retrieval.model_format import Floats
from foretool.retrieval.words import in_words
from foretool.storage.records import Tool

WISHED = 1200
"""Long tasks made of wishes."""
LEAST_COMMON = 0.3
"""How many of the words of two descriptions are in both, where a tool of the same name is the same tool."""
SAME_START = 120
"""So many letters of two descriptions tell that they are the same."""
HELD_OUT = slice(4, None, 10)
"""Of the servers in order."""
DRAW = 17
JOINTS = (". ", "; ", " and ", ", then ", ". Also, ", ". Then ", ", and ", " and after that ", "\n")
"""What stands between two wishes of a long task."""
CALM = ("toollens", "mcptoolbenchpp", "bfcl_ports", "bfcl_multi_turn", "taskbench_multimedia")
"""Sets of which no part is trained on; recipes are chosen on their training parts."""
MOST = 400
"""Tasks of a set that are measured."""
CATALOGS = "mcp_catalogs"
MEASURED = ("livemcpbench", "mcpbench", "mcptoolbenchpp")
BLEND = 0.5
"""The largest share of 1, .75 and .5 that lost nothing served beyond its error on what took no part."""


class Wished(NamedTuple):
    """A tool with its wishes."""

    tool: Tool
    wishes: tuple[str, ...]
    """A plain request, a question, a vague wish, and search words; before decision 48 two everyday wishes, a situation,
    and search words."""


class Servers(NamedTuple):
    """The real servers, by the names of their files, and what each takes part in."""

    tools: dict[str, list[Tool]]
    trained: list[Wished]
    held_out: list[Wished]
    left_out: set[str]
    """Servers that occur in what is measured."""

    @property
    def all_tools(self) -> list[Tool]:
        return [tool for own in self.tools.values() for tool in own]


def read_servers(catalogs: Path, measured: Sequence[Tool]) -> Servers:
    """The servers with their wishes, split by what takes part; `measured`: the tools of the sets that are reported."""
    tools: dict[str, list[Tool]] = {}
    for path in sorted(catalogs.glob("*.json")):
        held = json.loads(path.read_text("utf-8"))
        tools[path.stem] = [tool_of(held["server"], each) for each in held["tools"]]
    wishes = {(each.server, each.name): each.wishes for each in read_known()}
    with_wishes = sorted({server for server, _ in wishes} & tools.keys())
    left_out = occurring({server: tools[server] for server in with_wishes}, measured)
    takes_part = [server for server in with_wishes if server not in left_out]
    apart = set(takes_part[HELD_OUT])
    trained: list[Wished] = []
    held_out: list[Wished] = []
    for server in takes_part:
        for tool in tools[server]:
            if found := wishes.get((server, in_words(tool.name))):
                (held_out if server in apart else trained).append(Wished(tool, found))
    return Servers(tools, trained, held_out, left_out)


def occurring(servers: Mapping[str, Sequence[Tool]], measured: Sequence[Tool]) -> set[str]:
    """The servers of which a tool is among the measured ones."""
    by_name: dict[str, list[tuple[str, set[str]]]] = defaultdict(list)
    starts = set()
    for tool in measured:
        said = document(tool).description
        by_name[_letters(tool.name)].append((_letters(tool.upstream), _words(said)))
        starts |= {_letters(said)[:SAME_START]} if len(said) > 30 else set()
    found = set()
    for server, tools in servers.items():
        for tool in tools:
            said = document(tool).description
            names = {_letters(server), _letters(tool.upstream)}
            if (len(said) > 30 and _letters(said)[:SAME_START] in starts) or any(
                own in names or _in_common(words, _words(said)) >= LEAST_COMMON
                for own, words in by_name.get(_letters(tool.name), ())
            ):
                found.add(server)
    return found


def _letters(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def _words(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def _in_common(one: set[str], other: set[str]) -> float:
    return len(one & other) / max(len(one | other), 1)


def as_sentence(wish: str) -> str:
    """A wish that begins and ends like a sentence."""
    return f"{wish[:1].upper()}{wish[1:]}" + ("" if wish.endswith(("?", "!", ".")) else ".")


def long_tasks(wished: Sequence[tuple[tuple[str, ...], int]], count: int, seed: int) -> list[Example]:
    """Long tasks: two to four wishes of any tools as sentences, or joined to one. `wished`: wishes, and the number of
    the tool's document."""
    draw = random.Random(seed)
    found = []
    for _ in range(count):
        parts = draw.sample(wished, draw.randint(2, 4))
        said = [wishes[draw.choice((0, 1, 1, 2, 2))] for wishes, _ in parts]
        if draw.random() < 0.5:
            query = " ".join(map(as_sentence, said))
        else:
            query = said[0] + "".join(draw.choice(JOINTS) + each for each in said[1:])
        right = list(dict.fromkeys(at for _, at in parts))
        found.append(Example(query, right[0], tuple(right[1:])))
    return found


def with_wishes(former: Material, servers: Servers, encoder: KeptEncoder) -> Material:
    """The former tasks and the wishes among the tools of all; each server is a set of its own."""
    tools = servers.all_tools
    texts = [embedded_text(document(tool)) for tool in tools]
    first = len(former.texts)
    place = {tool.id: first + at for at, tool in enumerate(tools)}
    numbers = {name: int(former.sets.max(initial=-1)) + 1 + at for at, name in enumerate(servers.tools)}
    sets = [numbers[name] for name, own in servers.tools.items() for _ in own]
    wished = [(each.wishes, place[each.tool.id]) for each in servers.trained]
    examples = [Example(wish, at) for wishes, at in wished for wish in wishes]
    return Material(
        former.texts + texts,
        np.concatenate([former.vectors, encoder.documents(texts)]),
        np.concatenate([former.sets, np.asarray(sets)]),
        former.examples + examples + long_tasks(wished, WISHED, DRAW),
    )


class ServersApart(SetsApart):
    """Of each right tool, what says nearly the same in another set or server is no negative."""

    def _alike(self, places: Sequence[int]) -> NDArray[np.bool_]:
        return self._near(self.vectors, places)

    def _near(self, vectors: Floats, places: Sequence[int]) -> NDArray[np.bool_]:
        """The same by these vectors; (documents, dimension)."""
        near: NDArray[np.bool_] = vectors @ vectors[list(places)].T > ALIKE
        near &= self.sets[:, None] != self.sets[list(places)]
        found: NDArray[np.bool_] = np.any(near, axis=1)
        return found


def train(
    folders: Sequence[Path], servers: Servers, start: Path, cache: Path, encoder: KeptEncoder
) -> adapters.Adapter:
    """Train the adapter `start` further, and return the blend of both."""
    made = with_wishes(material(folders, EVERYDAY, EVERYDAY_STRUNG, encoder), servers, encoder)
    report = {"sets": dict(EVERYDAY), "wished": len(servers.trained), "tasks": len(made.examples)}
    return train_further(ServersApart, made, start, cache, "wished", report, BLEND)


def apart_from(
    measured: Iterable[tuple[str, list[Tool], list[Task]]], asked: Collection[str]
) -> Iterator[tuple[str, list[Tool], list[Task]]]:
    """The same parts without the tasks that are among `asked`, however they are written."""
    known = {_said(each) for each in asked}
    for name, tools, tasks in measured:
        yield name, tools, [task for task in tasks if _said(task.query) not in known]


def _said(query: str) -> str:
    return " ".join(query.lower().split())


def parts(data: Path, servers: Servers) -> Iterator[tuple[str, list[Tool], list[Task]]]:
    """What took no part: a name, the tools and the tasks."""
    for name in CALM:
        tools = read_tools(data / name)
        yield name, tools, read_tasks(data / name / "train.jsonl", tools)
    own = {each.tool.upstream for each in servers.held_out}
    tools = [tool for tool in servers.all_tools if tool.upstream in own]
    wishes = [Task(wish, (frozenset((each.tool.id,)),)) for each in servers.held_out for wish in each.wishes]
    yield "wishes held out", tools, wishes


def with_queries_of(models: Sequence[bytes], first: KeptEncoder) -> list[KeptEncoder]:
    """Encoders whose queries are read with each of these adapters; tools keep the vectors of the untrained encoder."""
    weights = base()
    return [
        KeptEncoder(
            QueriesOnly(adapted.AdaptedEncoder(weights, model), first.encoder),
            first.vectors, first.key, f"queries {weights.key} {sha256(model).hexdigest()[:16]}",
        )
        for model in models
    ]  # fmt: skip


def report(measured: Iterable[tuple[str, list[Tool], list[Task]]], have: Sequence[KeptEncoder]) -> Iterator[Row]:
    """A row for each part: recalls with the first encoder, and what the second adds. `measured`: as of `parts`."""
    for name, tools, all_tasks in measured:
        tasks = random.Random(7).sample(all_tasks, MOST) if len(all_tasks) > MOST else all_tasks
        before, after = (
            [build_method("served", Pool(tools, {}, [each]))(task.query) for task in tasks] for each in have
        )
        row: Row = {"set": name, "method": "served", "n": len(tasks)}
        for k in (1, 5, 10):
            was, now = ([recall(r, t.gold, k) for r, t in zip(each, tasks, strict=True)] for each in (before, after))
            row |= {f"r@{k}": rounded([fmean(was), fmean(now)]), f"r@{k}_gain": difference(now, was)[1:]}
        yield row


def make_wished_parser(name: str, said: str | None) -> ArgumentParser:
    """The arguments of a training on wishes."""
    parser = make_parser(name, said)
    parser.add_argument("what", choices=("train", "report"))
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--everyday", type=Path, metavar="SETS", help="what `bench.learning.everyday_sets` wrote")
    parser.add_argument("--head-to-head", type=Path, metavar="FILE", help="a set whose servers take no part either")
    parser.add_argument("--start", type=Path, required=True, metavar="FILE", help="the adapter that is trained further")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="what training made of it")
    add_apart(parser)
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER", help="keeps vectors and checkpoints")
    add_json(parser)
    return parser


def add_apart(parser: ArgumentParser) -> None:
    """Add `--apart`, files of queries."""
    parser.add_argument(
        "--apart", type=Path, action="append", default=[], metavar="FILE",
        help="a set whose queries are not reported as training parts, such as the BFCL of the head-to-head",
    )  # fmt: skip


def queries_of(files: Iterable[Path]) -> list[str]:
    """The queries of these sets."""
    return [task.query for file in files for task in read_search_file(file, servers=True)[1]]


def servers_of(arguments: Namespace) -> Servers:
    """The servers that these arguments name; says how many take part."""
    measured = [tool for name in MEASURED for tool in read_tools(arguments.data / name)]
    measured += read_search_file(arguments.head_to_head, servers=True)[0] if arguments.head_to_head else []
    servers = read_servers(arguments.data / CATALOGS, measured)
    count = f"{len(servers.trained)} tools trained on, {len(servers.held_out)} held out"
    print(f"{count}, {len(servers.left_out)} servers left out")
    return servers


def folders_of(arguments: Namespace) -> list[Path]:
    """The folders with training parts."""
    return [arguments.everyday, arguments.data] if arguments.everyday else [arguments.data]


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments; train, or print the report."""
    arguments = make_wished_parser("bench.learning.wished_encoder", __doc__).parse_args(argv)
    data, cache, start, out = arguments.data, arguments.cache, arguments.start, arguments.out
    servers = servers_of(arguments)
    with open_vectors(cache) as vectors:
        encoder = open_kept(base(), vectors)
        if arguments.what == "train":
            out.write_bytes(train(folders_of(arguments), servers, start, cache, encoder).dumps())
            return
        measured = apart_from(parts(data, servers), queries_of(arguments.apart))
        have = with_queries_of([start.read_bytes(), out.read_bytes()], encoder)
        for row in report(measured, have):
            print_row(row, arguments.json, width=14)


if __name__ == "__main__":
    main()
