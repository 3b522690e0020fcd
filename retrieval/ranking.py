"""The values of ranking: a query, the evidence for an answer, the ranking, and how the scores of lines become one. This
module imports nothing heavy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import exp, hypot, log, sqrt
from typing import Final, overload

from msgspec import Struct

from foretool.storage.records import ToolId

MAX_LINES = 8
"""Lines of a task beyond these are joined to the last one: each line is ranked on its own."""
MOST_SEARCHED: Final = 4_000
"""How many characters of a task are searched for, half of them at its beginning and half at its end: people say what
they want before or behind what they paste. Whoever else is served waits for each search meanwhile."""
MAX_NEED_WORDS = 40
"""A line with more words is a paragraph; the lines then tell one story."""
_WRAPPED = re.compile(
    r"(?:at|by|for|from|in|into|inside|of|on|onto|to|using|via|with|within|auf|aus|mit|avec|dans|sur|con|en|para)"
    r"(?: \S+){1,2}"
)
"""What is no need of its own: at most three words that begin with where, or with what."""
_SENTENCE_ENDS = (".", "!", "?", ";", ":")
ADDRESS: Final = "this url"
"""Begins what is searched for in place of a web address, whose own words say little of the tool that is needed, and
drown those around it."""
_SHARED_PARTS: Final = frozenset(("www", "co", "ac", "gov"))
"""Parts of the name of a host that do not name its site, beside the last one."""
_WEB_ADDRESS: Final = re.compile(
    r"(?:https?://(?:[^\s/?#@]*@)?|(?<![a-z0-9])www\.(?=[a-z0-9]))([a-z0-9.-]*)[!-~]*", re.IGNORECASE
)
LEARNED: Final = frozenset(("tasks", "history", "new", "graph", "trained"))
"""Parts of a score that models add; the rest is words, meaning, names and usage."""
USED: Final = "used before"
IN_USE: Final = "server in use"
"""The reasons of usage: the tool was called before, and a tool of its server was called lately."""
SERVER_NAMED: Final = "server named"
"""The reason of a tool whose server the task names."""
REPLACES: Final = "replaces a deprecated tool"
"""The reason of a tool that took the place of one that had a better score."""
ALIKE: Final = 0.8
"""Tools of two servers that share this part of their own terms (`words.own_terms`) do the same."""
CLEARLY: Final = 1.2
"""A score that is so many times another one is clearly better: more than usage adds."""
_PATH: Final = re.compile(
    r"(?<![\w<>/.:~\\-])(?:(?:~|\.\.?)?(?<![+$%€£])/(?=[\w.*])|[A-Za-z]:\\"
    r"|(?![\w-]+/[\w.-]*\.(?:js|rs|jl|net|io|dev|nvim|vim|git)\b(?!/))(?:[\w-]+/)+(?=[\w*-]*\.[A-Za-z]))[^\s\"'`,;?()]*",
    re.IGNORECASE,
)
"""A path of a file or folder, no rate (`€/month`), and nothing that may be a repository (`vercel/next.js`). The names
of the folders above it say little of the tool that is needed, as little as those of a web address:
`notes/slack/search/april.md`."""


_REFERENCE: Final = re.compile(
    r"(?<![\w#-])(?<![:=] )(?:[A-Za-z]+ )?"
    r"(?:(?P<issue>#[1-9]\d{0,5}|(?!(?:AES|ASCII|CO|COVID|CVE|DIN|EST|FY|GMT|GPT|GTX|HTTP|IEC|ISO|LATIN|MP|MPEG|PEP|PM|PST"
    r"|RFC|RTX|SARS|SHA|USB|UTC|UTF|WINDOWS)-)[A-Z]{2,10}-[1-9]\d{0,5})"
    r"|(?=[a-f]*\d)(?=\d*[a-f])(?:[0-9a-f]{7,12}|[0-9a-f]{40}))(?![\w-])"
)
"""The number or key of an issue (#12, OPS-7) or the hash of a commit, with the word before it."""
_KINDS: Final = frozenset(
    (
        "bug", "build", "card", "commit", "commits", "hash", "id", "invoice", "issue", "issues", "job", "line", "mr",
        "no", "number", "order", "page", "pr", "prs", "pull", "request", "run", "sha", "step", "story", "task",
        "ticket", "tickets", "version",
    )
)  # fmt: skip
"""Words that say what the reference behind them is."""


class Query(Struct, frozen=True):
    """What is known about the wanted tools; every part may be empty, the words too."""

    lines: tuple[str, ...] = ()
    """The task in words, one need a line."""
    names: tuple[str, ...] = ()
    """Exact names asked for."""
    history: tuple[ToolId, ...] = ()
    """The calls so far, oldest first."""
    servers_in_use: tuple[str, ...] = ()
    profile: str = ""
    """By whose use of tools near ties are settled."""


class Reasons(Sequence[str]):
    """The reasons for one tool's place, computed when they are first read: an answer shows those of few tools."""

    __slots__ = ("_find", "_found", "_slot", "_tool")

    def __init__(self, find: Callable[[int, ToolId], Iterable[str]], slot: int, tool: ToolId) -> None:
        """`find` returns the reasons for the tool in a slot."""
        self._find, self._slot, self._tool = find, slot, tool
        self._found: tuple[str, ...] | None = None

    def _all(self) -> tuple[str, ...]:
        if self._found is None:
            self._found = tuple(self._find(self._slot, self._tool))
        return self._found

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[str, ...]: ...
    def __getitem__(self, at: int | slice) -> str | tuple[str, ...]:
        return self._all()[at]

    def __len__(self) -> int:
        return len(self._all())

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return self._all() == (other._all() if isinstance(other, Reasons) else other)

    def __hash__(self) -> int:
        return hash(self._all())

    def __repr__(self) -> str:
        return repr(self._all())


class ClauseFit(Struct, frozen=True):
    """How well a tool meets a task, in the line or clause that it meets best. Nothing learned changes it."""

    coverage: float
    """The share of the text's idf mass that the tool has, 0 to 1."""
    strength: float
    """Its score by words, as a multiple of what the rarest possible word is worth in this corpus."""
    cosine: float = 0.0
    """Its cosine, the mean over the encoders; 0 where words alone rank."""
    lead: float = 0.0
    """How far the tenth-nearest of the first tools is behind the nearest, in cosine."""
    met: float = 0.0
    """The nearest cosine of a tool to a line or clause of the task, the middle one of all."""
    agreed: float = 1.0
    """One over its place by cosine among the first tools."""
    needs: int = 1
    """How many lines and clauses the task has: each may have its own tool among the first."""
    alike: float = 0.0
    """The nearest cosine of what the tool says to what one of the next four says; 0 where words alone rank."""


class Ranked(Struct, frozen=True):
    tool: ToolId
    score: float
    parts: dict[str, float] = {}
    """What each ranker added to `score`."""
    reasons: Sequence[str] = ()
    """For people: "name", "words: issue, create", `USED`, `IN_USE`."""
    fit: ClauseFit | None = None
    """None for tools further down, and without a task in words."""


class Nearness(Struct, frozen=True):
    """How near encoders find the nearest tool to one line; `confidence` reads it."""

    encoders: str = ""
    """The names of the encoders, joined by `+`."""
    cosines: tuple[float, ...] = ()
    """The best cosine of each encoder."""


class Evidence(Struct, frozen=True):
    """How well one line of a query was met; `confidence` reads it, because the scores of a ranking have no scale."""

    named: bool = False
    """Whether a tool was asked for by its name, or by a name so close that the tool is meant."""
    strength: float = 0.0
    """The best score of the words, as a multiple of what the rarest possible word is worth in this corpus."""
    entropy: float = 0.0
    """The entropy of the softmax over the best 50 scores, in nats: 0 if one tool stands out, 3.9 if 50 are alike."""
    coverage: float = 0.0
    """The share of the line's idf mass that the best tool has, 0 to 1."""
    nearness: Nearness | None = None
    """None while words alone rank."""
    needed: float | None = None
    """How likely the line needs a tool at all (MassTool's detection); None if no model knows."""


class Ranking(Struct, frozen=True):
    """Tools that fit a query at all, best first; empty when none does."""

    ranked: tuple[Ranked, ...] = ()
    total: int = 0
    """How many tools fit, also those beyond the limit of `ranked`."""
    evidence: tuple[Evidence, ...] = ()
    """One for each line that is a need of its own (one for all where they tell a story), then one for each name."""
    is_learned: bool = False
    """Whether learned models took part in the scores."""
    task: str = ""
    """The words of the query."""

    def rank_of(self, tool: ToolId) -> int:
        return next((rank for rank, each in enumerate(self.ranked, 1) if each.tool == tool), 0)


@lru_cache(maxsize=16)
def task_lines(task: str) -> tuple[str, ...]:
    """Return the lines of a task, one need a line. A few words that only say where or with what, as "in git", go on
    with the line before them: whoever wrote them wrapped it. Of a long task both ends are read."""
    lines: list[str] = []
    for line in filter(None, map(str.strip, _ends(task).splitlines())):
        if lines and not lines[-1].endswith(_SENTENCE_ENDS) and _WRAPPED.fullmatch(line):
            lines[-1] += f" {line}"
        else:
            lines.append(line)
    return tuple(lines)


def _ends(task: str) -> str:
    half = MOST_SEARCHED // 2
    return task if len(task) <= MOST_SEARCHED else f"{task[:half]}\n{task[-half:]}"


def split_needs(lines: Sequence[str]) -> list[str]:
    """Split a task into its needs: the lines that say something, at most `MAX_LINES`; one need where a line is a
    paragraph. Of web addresses the name of the site is left (`ADDRESS`), of paths the last name; a reference is said to
    be one."""
    said = [_name_places(line) for line in lines if line.strip()]
    if any(len(line.split()) > MAX_NEED_WORDS for line in said):
        return ["\n".join(said)]
    return [*said[: MAX_LINES - 1], "\n".join(said[MAX_LINES - 1 :])] if len(said) > MAX_LINES else said


@lru_cache(maxsize=64)
def _name_places(line: str) -> str:
    """Return a line with what is read in place of its addresses, paths and references. A search splits its task several
    times, and a call the task that it is for."""
    return _REFERENCE.sub(_name_kind, _PATH.sub(_name_file, _WEB_ADDRESS.sub(_name_site, line)))


def _name_kind(reference: re.Match[str]) -> str:
    """Return what is read in place of a reference: "the issue #12", or "the commit a3f9c21"; as it is where the word
    before it says what it is."""
    before, space, name = reference[0].rpartition(" ")
    if before.lower() in _KINDS:
        return reference[0]
    return f"{before}{space}the {'issue' if reference['issue'] else 'commit'} {name}"


def _name_site(address: re.Match[str]) -> str:
    """Return what is read in place of a web address: "this url github web page" for one of `https://github.com`."""
    parts = [part for part in address[1].split(".") if part not in _SHARED_PARTS] or [""]
    site = parts[-2] if len(parts) > 1 else parts[0]
    return f"{ADDRESS} {'' if site.isdigit() else site} web page"


def _name_file(path: re.Match[str]) -> str:
    """Return what is read in place of a path: "the file april.md", or "the path archive". A line may begin with the
    command of a client, `/review`."""
    names = re.split(r"[\\/]", path[0].rstrip("/\\.:"))
    if not path.start() and path[0].startswith("/") and len(names) == 2:
        return path[0]
    return f"the {'file' if '.' in names[-1] else 'path'} {names[-1]}"


def softmax_entropy(scores: Sequence[float]) -> float:
    """Return the entropy of the softmax over scores, best first, in nats."""
    weights = [exp(score - scores[0]) for score in scores]
    total = sum(weights)
    return log(total) - sum(weight * (score - scores[0]) for weight, score in zip(weights, scores, strict=True)) / total


# The scores of several lines become one list; `score_sum.fuse_sums` does the same for arrays. Hits are scores by slot.
# A slot without a score is left out and counts as 0.


LEVELLING = 0.7
"""How far lines are made equal: at 0 a sharp line takes the head of the list, at 1 the best tools of all lines are
equal and a flat line takes it."""
WHOLE = 1.0
"""What the lines read as one text weigh beside the best single line. Lines may be separate needs, or one story in
paragraphs, and nobody tells which; using both readings is best over sets of both kinds (`docs/benchmarks.md`)."""


def score_deviation(hits: Mapping[int, float], size: int) -> float:
    """Standard deviation over a corpus of this size; slots without a hit count as 0."""
    mean = sum(hits.values()) / size
    return sqrt(max(hypot(*hits.values()) ** 2 / size - mean * mean, 0.0))


def level_scale(deviation: float, top: float) -> float:
    """Return the factor that makes lines comparable; it leaves the best tool its z-score to the power 1 -
    `LEVELLING`."""
    return 1.0 / float(max(deviation, 1e-9) ** (1.0 - LEVELLING) * top**LEVELLING)


def level_hits(hits: Mapping[int, float], size: int) -> dict[int, float]:
    """Return the hits of one line times its `level_scale`."""
    if not hits:
        return {}
    scale = level_scale(score_deviation(hits, size), max(hits.values()))
    return {slot: scale * score for slot, score in hits.items()}


def fuse_lines(
    lines: Sequence[Mapping[int, float]], whole: Mapping[int, float], size: int, name: Callable[[int], str]
) -> dict[int, float]:
    """Return one list for several lines: the best tool of every line first (of equals the first by name), then the
    others. A score is what a tool has in its best line plus what it has in all lines read as one text."""
    fused: dict[int, float] = {}
    levels = [level_hits(hits, size) for hits in lines if hits]
    for hits in levels:
        for slot, score in hits.items():
            if score > fused.get(slot, 0.0):
                fused[slot] = score
    for slot, score in level_hits(whole, size).items():
        fused[slot] = fused.get(slot, 0.0) + WHOLE * score
    first = max(fused.values(), default=0.0)
    tops = [(max(hits.values()), hits) for hits in levels]
    leading = ([slot for slot, score in hits.items() if score == top] for top, hits in tops)
    for slot in {leader(best, fused.__getitem__, name) for best in leading}:
        fused[slot] += first
    return fused


def leader(best: Iterable[int], score: Callable[[int], float], name: Callable[[int], str]) -> int:
    """Of the equally good best slots of a line, the one with the highest fused score; of equals the first by name."""
    return min(best, key=lambda slot: (-score(slot), name(slot)))
