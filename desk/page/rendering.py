"""How values become HTML: every text is escaped, and invisible characters are taken out of all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct
from rich.text import Text
from starlette.responses import HTMLResponse, Response

from foretool.desk.page.viewers import Viewer
from foretool.server.config.errors import plural
from foretool.server.ledger.conditions import Condition
from foretool.server.ledger.diffs import GONE, NEW
from foretool.server.ledger.effects import Verdict
from foretool.server.ledger.fixes import DOUBTFUL
from foretool.server.ledger.story import A_MISS, UNKNOWN_TOOL, name_miss
from foretool.server.recording.costs import say_calls
from foretool.server.trust.text import clean
from foretool.storage.records import Cause, Noticed

HERE: Final = Path(__file__).parent
_SECTIONS: Final = (
    ("overview", "/", "Overview"),
    ("misses", "/misses", "Misses"),
    ("tools", "/tools", "Tools"),
    ("sessions", "/sessions", "Sessions"),
    ("settings", "/settings", "Settings"),
)
"""Key, path and name of each page in the menu."""
_TAGS: Final = {GONE: "del", NEW: "ins"}


class Words(Struct, frozen=True):
    """The words for causes, events and conditions of servers, the same as in the commands."""

    causes: Mapping[Cause, str]
    noticed: Mapping[Noticed, str]
    conditions: Mapping[Condition, str]
    verdicts: Mapping[Verdict, str]
    """What a replay found."""


class Renderer:
    """Turns templates and values into answers."""

    def __init__(self, words: Words) -> None:
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined,
            trim_blocks=True, lstrip_blocks=True, finalize=_finalize,
        )  # fmt: skip
        self._templates.filters |= {
            "when": say_when,
            "share": say_share,
            "count": lambda count: f"{count:,}",
            "difference": mark_difference,
            "plural": plural,
            "calls": say_calls,
            "missed": name_miss,
        }
        self._templates.globals |= {"words": words, "a_miss": A_MISS, "no_tool": UNKNOWN_TOOL, "doubtful": DOUBTFUL}

    def show(self, template: str, base: str, viewer: Viewer, status: int = 200, **values: Any) -> Response:
        """Return a page. `base`: the relative path from its address to the first page."""
        found = self._templates.get_template(template)
        return HTMLResponse(found.render(base=base, viewer=viewer, sections=_SECTIONS, **values), status)


def _finalize(value: Any) -> Any:
    if isinstance(value, Markup) or not isinstance(value, str):
        return value
    return clean(value)


def say_when(at: float) -> str:
    """Return a time as local date and minute; "never" for 0."""
    return f"{datetime.fromtimestamp(at).astimezone():%Y-%m-%d %H:%M}" if at else "never"


def say_share(share: float | None) -> str:
    """Return a share in per cent; a dash for None."""
    return "-" if share is None else f"{share:.1%}"


def mark_difference(lines: Iterable[Text]) -> Markup:
    """Return the lines of a difference as HTML: what is gone as `del`, what is new as `ins`."""
    return Markup("\n").join(_mark_line(line) for line in lines)


def _mark_line(line: Text) -> Markup:
    if not line.spans:
        return _wrap(line.plain, str(line.style))
    return Markup("").join(_wrap(line.plain[span.start : span.end], str(span.style)) for span in line.spans)


def _wrap(text: str, style: str) -> Markup:
    tag = _TAGS.get(style)
    if tag is not None:
        return Markup("<{0}>{1}</{0}>").format(Markup(tag), clean(text))  # noqa: S704  # a tag of ours
    return Markup("<b>{}</b>").format(clean(text)) if style == "bold" else Markup("{}").format(clean(text))
