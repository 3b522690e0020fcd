"""Measures how many poisoned definitions have findings, and how many definitions of real servers do.

    python -m bench.trust.findings --half rules|held-out|all [--labelled FILE ...] [--poisoned PATH ...]
        [--benign PATH ...] [--clean FOLDER] [--show] [--json]

A labelled file is JSON: `{"entries": [{"id", "label": "malicious" or "benign", "category", "description" or "tool",
"server", "peers": [{"server", "tool"}]}]}`. Poisoned and benign paths are programs of servers in Python, or folders of
them: each function with a decorator that names `tool` is one definition, its docstring the description. The clean
folder holds catalogs of real servers, one `{"server", "tools"}` a file.

The rules were written with one half of it all, chosen by the SHA-256 of each id (of a catalog: its server); the other
half is held out. A definition counts as flagged where a finding is not low. The intervals are Wilson's, 95 %. Real
servers are looked at one by one (`alone`) and all at once, as if one user had them all (`together`).
"""

from __future__ import annotations

import ast
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from math import sqrt
from pathlib import Path
from statistics import fmean
from typing import Any

from bench import options
from bench.datasets import read_catalogs
from bench.reports import Row, print_row
from foretool.server.trust.findings import TextFinding, find_suspicious
from foretool.server.trust.lookalikes import Names

HALVES = ("rules", "held-out")
Z = 1.96


@dataclass(frozen=True)
class Sample:
    """One definition and what it is."""

    id: str
    server: str
    definition: dict[str, Any]
    is_poisoned: bool
    category: str
    peers: tuple[tuple[str, str, str], ...] = ()
    """Server, name and description of the tools that stand beside it."""

    @property
    def own(self) -> tuple[str, str, str]:
        """Server, name and description of the tool itself."""
        return self.server, str(self.definition["name"]), str(self.definition.get("description") or "")

    def flagged(self, names: Names | None = None) -> list[TextFinding]:
        """The findings that count, beside the tools of `names`, else beside its peers."""
        found = find_suspicious(
            json.dumps(self.definition).encode(), self.server, names or Names([*self.peers, self.own])
        )
        return [each for each in found if each.severity != "low"]


def half_of(id: str) -> str:
    """The half that an id belongs to."""
    return HALVES[int(sha256(id.encode()).hexdigest(), 16) % 2]


def wilson(count: int, total: int) -> list[float]:
    """The 95 % interval of a share, which says something also where all or none are counted."""
    if not total:
        return [0.0, 1.0]
    share, square = count / total, Z * Z
    middle = (share + square / (2 * total)) / (1 + square / total)
    reach = Z * sqrt(share * (1 - share) / total + square / (4 * total * total)) / (1 + square / total)
    return [round(max(0.0, middle - reach), 4), round(min(1.0, middle + reach), 4)]


def read_labelled(path: Path) -> Iterator[Sample]:
    for entry in json.loads(path.read_text("utf-8"))["entries"]:
        tool = entry.get("tool") or {"name": "tool", "description": entry["description"]}
        definition = {"name": tool["name"], "description": tool["description"]}
        definition["inputSchema"] = tool.get("input_schema") or {"type": "object"}
        peers = tuple(
            (peer["server"], peer["tool"]["name"], peer["tool"].get("description", ""))
            for peer in entry.get("peers", ())
        )
        is_poisoned = entry["label"] == "malicious"
        yield Sample(entry["id"], entry.get("server", "evil"), definition, is_poisoned, entry["category"], peers)


def read_programs(path: Path, is_poisoned: bool) -> Iterator[Sample]:
    """The tools that programs define."""
    for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            text = ast.get_docstring(node)
            if text and any("tool" in ast.unparse(each) for each in node.decorator_list):
                definition = {"name": node.name, "description": text, "inputSchema": {"type": "object"}}
                yield Sample(f"{file.name}/{node.name}", file.stem, definition, is_poisoned, file.stem)


OnWrong = Callable[[Sample, Sequence[TextFinding]], None]
"""Hears of each definition that is judged wrongly, with its findings."""


def measure_labelled(name: str, samples: Sequence[Sample], on_wrong: OnWrong) -> Row:
    """Recall, false alarms and precision of a labelled set."""
    hits, misses, alarms, quiet = 0, 0, 0, 0
    for each in samples:
        found = each.flagged()
        hits += each.is_poisoned and bool(found)
        misses += each.is_poisoned and not found
        alarms += not each.is_poisoned and bool(found)
        quiet += not each.is_poisoned and not found
        if bool(found) != each.is_poisoned:
            on_wrong(each, found)
    row: Row = {"set": name, "method": "findings", "n": len(samples)}
    shares = {"recall": (hits, hits + misses), "alarms": (alarms, alarms + quiet), "precision": (hits, hits + alarms)}
    for key, (count, total) in shares.items():
        if total:
            row |= {key: round(count / total, 4), f"{key}_interval": wilson(count, total)}
    return row


def names_of(samples: Iterable[Sample]) -> Names:
    """The names of all these tools."""
    return Names(each.own for each in samples)


def measure_clean(
    name: str, by_server: Mapping[str, Sequence[Sample]], everyone: Names | None, on_wrong: OnWrong
) -> Row:
    """How many tools of real servers, and how many servers, have findings. `everyone`: the tools of all servers; None
    to look at each server by itself."""
    kinds: Counter[str] = Counter()
    tools: list[bool] = []
    servers: list[bool] = []
    for own in by_server.values():
        names = everyone or names_of(own)
        alarms = [each.flagged(names) for each in own]
        for each, found in zip(own, alarms, strict=True):
            kinds.update({finding.kind for finding in found})
            if found:
                on_wrong(each, found)
        tools += map(bool, alarms)
        servers.append(any(alarms))
    return {
        "set": name, "method": "findings", "n": len(tools),
        "tools": round(fmean(tools), 4), "tools_interval": wilson(sum(tools), len(tools)),
        "servers": round(fmean(servers), 4), "servers_interval": wilson(sum(servers), len(servers)),
        "kinds": dict(kinds),
    }  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    parser = options.make_parser("bench.trust.findings", __doc__)
    for option in ("labelled", "poisoned", "benign"):
        parser.add_argument(f"--{option}", nargs="*", type=Path, default=[])
    parser.add_argument("--clean", type=Path)
    parser.add_argument("--half", choices=(*HALVES, "all"), default="rules")
    parser.add_argument("--show", action="store_true", help="print each definition that is judged wrongly")
    options.add_json(parser)
    given = parser.parse_args(arguments)

    def chosen(samples: Iterable[Sample]) -> list[Sample]:
        return [each for each in samples if given.half in ("all", half_of(each.id))]

    def show(sample: Sample, found: Sequence[TextFinding]) -> None:
        if given.show:
            said = [f"{each.kind} in {each.where}: {each.excerpt}" for each in found]
            text = "; ".join(said) or f"missed: {' '.join(sample.own[2].split())}"
            print(f"  {sample.id} ({sample.category}) {text}")

    for path in given.labelled:
        print_row(measure_labelled(path.stem, chosen(read_labelled(path)), show), given.json)
    programs = [each for path in given.poisoned for each in read_programs(path, is_poisoned=True)]
    programs += [each for path in given.benign for each in read_programs(path, is_poisoned=False)]
    if programs and (samples := chosen(programs)):
        print_row(measure_labelled("programs", samples, show), given.json)
    if given.clean:
        everything: dict[str, list[Sample]] = {}
        for server, tools in read_catalogs(given.clean):
            own = [Sample(f"{server}/{tool['name']}", server, tool, False, "real") for tool in tools]
            everything.setdefault(server, []).extend(own)
        by_server = {server: own for server, own in everything.items() if given.half in ("all", half_of(server))}
        print_row(measure_clean("alone", by_server, None, show), given.json)
        everyone = names_of(each for own in everything.values() for each in own)
        print_row(measure_clean("together", by_server, everyone, show), given.json)


if __name__ == "__main__":
    main()
