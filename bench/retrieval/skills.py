"""Finds skills: is the right one among those that an answer names, and what do these lines cost?

    python -m bench.retrieval.skills [--short] [--encoder minilm-tools] [--json]

`skills.json` has 300 skills, whose descriptions say what each does and when to use it, as the Agent Skills
specification advises, and 60 tasks in everyday words. The tasks were written after what the skills do and before when
to use them; `--short` leaves the latter out. `--encoder none` ranks by words alone. `beside` counts the tasks of
`everyday.json`, for which tools exist, that are shown a skill as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from bench import options
from bench.reports import Row, print_row
from foretool.retrieval.encoders import Encoder, resolve_weights
from foretool.retrieval.fragments import SkillRanking
from foretool.retrieval.model_format import Floats
from foretool.retrieval.tokens import count_tokens
from foretool.server.catalog.encoders import open_any_encoder
from foretool.server.catalog.skill_folders import OWN
from foretool.server.discovery.answer_shape import SHARE
from foretool.server.discovery.skill_search import describe_offer, fit_offers
from foretool.server.methods.skills import SkillOffer

FILE = Path(__file__).with_name("skills.json")
EVERYDAY = Path(__file__).with_name("everyday.json")
ANSWER_TOKENS = 1500
"""The default of the setting `answer_tokens`."""
WHEN = " Use when "


def shorten(description: str) -> str:
    """What a skill does, without when to use it."""
    return description.partition(WHEN)[0]


def shown(offers: Sequence[SkillOffer], tasks: Sequence[str], encoder: Encoder | None) -> list[list[SkillOffer]]:
    """The skills that an answer to each task names."""
    ranking = SkillRanking([(each.name, each.description) for each in offers])
    vectors: Mapping[str, Floats] = {}
    if encoder is not None:
        vectors = dict(zip(ranking.texts, encoder.documents(ranking.texts), strict=True))
    found = []
    for task in tasks:
        queries = list(encoder.queries([task])) if encoder is not None else []
        fitting = [offers[place] for place in ranking.find([task], queries, vectors)]
        found.append(fit_offers(fitting, ANSWER_TOKENS // SHARE)[0])
    return found


def results(setting: str, *, short: bool) -> Row:
    """Rank the skills for all tasks and count."""
    held = json.loads(FILE.read_text("utf-8"))
    offers = [
        SkillOffer(f"{OWN}claude/{name}/SKILL.md", name, shorten(said) if short else said, "")
        for name, said in held["skills"].items()
    ]
    encoder = open_any_encoder(resolve_weights(setting)[0]) if setting != "none" else None
    found = shown(offers, list(held["tasks"]), encoder)
    right = list(held["tasks"].values())
    places = [[each.name for each in one].index(skill) + 1 if skill in {each.name for each in one} else 0
              for one, skill in zip(found, right, strict=True)]  # fmt: skip
    everyday = json.loads(EVERYDAY.read_text("utf-8"))
    others = shown(offers, [each["task"] for key in ("tasks", "check") for each in everyday[key]], encoder)
    lines = ["\n".join(map(describe_offer, one)) for one in found]
    return {
        "skills": len(offers),
        "tasks": len(places),
        "first": sum(place == 1 for place in places),
        "shown": sum(place > 0 for place in places),
        "named_mean": round(fmean(map(len, found)), 2),
        "tokens_mean": round(fmean(count_tokens(lines))),
        "beside": f"{sum(map(bool, others))} of {len(others)}",
        "missed": {task: right[at] for at, task in enumerate(held["tasks"]) if not places[at]},
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the row."""
    parser = options.make_parser("bench.retrieval.skills", __doc__)
    parser.add_argument("--short", action="store_true", help="descriptions do not say when to use a skill")
    parser.add_argument("--encoder", default="auto", help="as the setting `encoder`; default %(default)s")
    options.add_json(parser)
    arguments = parser.parse_args(argv)
    print_row(results(arguments.encoder, short=arguments.short), arguments.json)


if __name__ == "__main__":
    main()
