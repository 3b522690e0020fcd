"""The page as a web application: which address shows what, and how values become HTML.

Every value is escaped, because tool texts, tasks and client names are written by others. Invisible characters are taken
out of all of them.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config, LiveConfig, load_again, stamp
from foretool.server.page import content
from foretool.server.trust.text import clean
from foretool.storage.records import Cause, Noticed
from foretool.storage.stores import StorageError

HERE: Final = Path(__file__).parent


class Words(Struct, frozen=True):
    """What causes, events and states mean, as the commands say it too."""

    causes: Mapping[Cause, str]
    noticed: Mapping[Noticed, str]
    states: Mapping[str, str]


class Site:
    """The pages over one config, which is read again when its file changes."""

    def __init__(self, config: Config, words: Words) -> None:
        self._live = LiveConfig(config)
        self._words = words
        self._stamp = config.stamp
        self._templates = Environment(
            loader=FileSystemLoader(HERE / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_finalize,
        )
        self._templates.filters |= {"when": say_when, "share": say_share, "count": lambda count: f"{count:,}"}
        self._templates.globals |= {"words": words, "base": "."}
        self.app = Starlette(
            routes=[
                Route("/", self.overview),
                Route("/misses", self.misses),
                Route("/misses/{id:int}", self.miss),
                Route("/tools", self.tools),
                Route("/tools/{name}", self.tool),
                Mount("/static", StaticFiles(directory=HERE / "static")),
            ],
            exception_handlers={404: self.not_found, StorageError: self.trouble},
        )

    @property
    def _config(self) -> Config:
        """The config as its file is now; the one before it while the file is broken."""
        now = stamp(self._live.now.path)
        if now is not None and now != self._stamp:
            self._stamp = now
            with contextlib.suppress(ConfigError):  # `foretool doctor` says what is wrong
                self._live.now = load_again(self._live.now)
        return self._live.now

    def overview(self, request: Request) -> Response:
        return self._show("overview.html", ".", page=content.read_overview(self._config))

    def misses(self, request: Request) -> Response:
        query = dict(request.query_params)
        wanted = content.read_filter(query, self._words.causes, time.time())
        total, misses, counts = content.read_misses(self._config, wanted)
        servers, clients = content.servers_of(self._config), content.read_clients(self._config)
        return self._show(
            "misses.html", ".", total=total, misses=misses, counts=counts, query=query, servers=servers, clients=clients
        )

    def miss(self, request: Request) -> Response:
        id = request.path_params["id"]
        page = content.read_miss(self._config, id, self._words.noticed) if id < 2**63 else None
        if page is None:
            return self._show("missing.html", "..", 404, what=f"There is no miss {id}.")
        return self._show("miss.html", "..", page=page, miss=page.miss)

    def tools(self, request: Request) -> Response:
        query = dict(request.query_params)
        total, tools = content.read_tools(self._config, query.get("text", ""), query.get("server", ""))
        servers = content.servers_of(self._config)
        return self._show("tools.html", ".", total=total, tools=tools, query=query, servers=servers)

    def tool(self, request: Request) -> Response:
        name = request.path_params["name"]
        page = content.read_tool(self._config, name)
        if page is None:
            return self._show("missing.html", "..", 404, what=f"No server has a tool {name[:100]!r} now.")
        return self._show("tool.html", "..", page=page, tool=page.tool)

    def not_found(self, request: Request, error: Exception) -> Response:
        up = "/".join([".."] * (request.url.path.count("/") - 1)) or "."
        return self._show("missing.html", up, 404, what="There is no such page.")

    def trouble(self, request: Request, error: Exception) -> Response:
        up = "/".join([".."] * (request.url.path.count("/") - 1)) or "."
        return self._show("missing.html", up, 503, what=f"{error}")

    def _show(self, template: str, base: str, status: int = 200, **values: Any) -> Response:
        """`base`: the relative path from the address to the first page."""
        return HTMLResponse(self._templates.get_template(template).render(base=base, **values), status)


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
