"""Finds what servers say of themselves: does an answer show the instructions of the server that a wish needs?

    python -m bench.retrieval.instructions CATALOGS [--servers 62] [--encoder minilm-tools] [--json]

`instructions.json` has one wish in everyday words for each of the 62 servers on file in CATALOGS (their `tools/list`
answers and `instructions`) that send `instructions`; it was written after what their tools do, and before their
instructions were read. `--servers` puts so many servers before the same proxy, those with instructions first.

  shown     wishes whose answer shows a fragment of the needed server's instructions
  greeted   those whose server stands in our own `instructions`, which a client has read before
  others    fragments of other servers, a wish
  best      wishes whose best tool is of the needed server
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Final

from bench import options
from bench.clients.messages import Json
from bench.reports import Row, print_row
from foretool.learning.encoded_texts import EncodedTexts
from foretool.retrieval.ranking import Query
from foretool.server.app import App
from foretool.server.config.loader import load
from foretool.server.discovery.arguments import Arguments
from foretool.server.protocol import jsonrpc
from foretool.storage.opening import open_store

WISHES: Final = Path(__file__).with_name("instructions.json")
DEPTH: Final = 50


def read_servers(folder: Path, wishes: Mapping[str, str], count: int) -> dict[str, Json]:
    """The answers of so many servers, those with a wish first."""
    others = sorted(path.stem for path in folder.glob("*.json") if path.stem not in wishes)
    names = [*wishes, *others][:count]
    return {name: json.loads((folder / f"{name}.json").read_text("utf-8")) for name in names}


async def results(catalogs: Path, count: int, encoder: str) -> Row:
    """Ask for every wish and count."""
    wishes: dict[str, str] = json.loads(WISHES.read_text("utf-8"))
    servers = read_servers(catalogs, wishes, count)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "mcp.json"
        entries = {name: {"command": "true"} for name in servers}
        path.write_text(json.dumps({"mcpServers": entries, "foretool": {"storage": "s", "encoder": encoder}}), "utf-8")
        config = load(path)
        with open_store(config.storage) as store:
            app = App(config, store)
            for name, said in servers.items():
                tools = [jsonrpc.raw(tool) for tool in said["tools"]]
                app.catalog.replace(name, tools, said.get("instructions") or "")
            app.catalog.fix_names()
            corpus = app.search.update_corpus(inf)
            texts = EncodedTexts.open(app.live.now.settings, store)
            if texts is not None:
                app.search.install_encoders(texts.meaning(app.catalog, corpus))
            return count_shown(app, {name: wishes[name] for name in servers if name in wishes})


def count_shown(app: App, wishes: Mapping[str, str]) -> Row:
    """Count what the answers show, and name the wishes whose server is not among it."""
    profile = app.live.profile("")
    reach, (_, greeted) = app.policy.reach(profile), app.answering.offering.greeting.instructions(profile)
    shown, best, others, missed = 0, 0, list[int](), dict[str, str]()
    for name, wish in wishes.items():
        query = Query((wish,))
        ranking = app.search.rank(query, reach.finds, DEPTH)
        tool = app.catalog.get(ranking.ranked[0].tool) if ranking.ranked else None
        best += tool is not None and tool.upstream == name
        answer, _ = app.answering.answers.write(
            Arguments(task=wish), query, ranking, lambda tool: False, reach, told_servers=greeted
        )
        beside = answer.structured.get("instructions", ())
        found = [each["source"].removeprefix("server ") for each in beside]
        shown += name in found
        others.append(sum(each != name for each in found))
        if name not in found and name not in greeted:
            missed[name] = f"{tool.id if tool else 'nothing'}, {answer.level}: {', '.join(found)}"
    return {
        "servers": len(app.live.now.servers), "wishes": len(wishes), "shown": shown,
        "greeted": len(greeted & {*wishes}), "shown_or_greeted": len(wishes) - len(missed),
        "others": round(fmean(others), 2), "best": best, "missed": missed,
    }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the row."""
    parser = options.make_parser("bench.retrieval.instructions", __doc__)
    parser.add_argument("catalogs", type=Path, help="the folder of tools/list answers of real servers")
    parser.add_argument("--servers", type=int, default=62, help="default %(default)s")
    parser.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    options.add_json(parser)
    arguments = parser.parse_args(argv)
    print_row(asyncio.run(results(arguments.catalogs, arguments.servers, arguments.encoder)), arguments.json)


if __name__ == "__main__":
    main()
