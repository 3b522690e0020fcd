"""The page as a web application: which address shows what, and what its buttons do."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from msgspec import Struct
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from foretool.desk.page import (
    events,
    fixing,
    history,
    learning,
    one_tool,
    overview,
    replays,
    reviews,
)
from foretool.desk.page import settings as in_force
from foretool.desk.page import tools as tool_list
from foretool.desk.page.access import Form, FormError, first, read_form
from foretool.desk.page.background import Background, BackgroundCommand
from foretool.desk.page.rendering import HERE, Renderer, Words
from foretool.desk.page.viewers import Viewer, viewer_of
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config, LiveConfig, load_again, stamp
from foretool.server.ledger.story import say_counts
from foretool.server.recording.costs import add_everything
from foretool.storage.engine import StorageError
from foretool.storage.opening import find_change_mark, open_existing_store
from foretool.storage.records import AuditEntry

_NOTES: Final = 100
"""How many notes of buttons are kept."""

Show = Callable[[Request, Viewer], Response]


class Later(Struct, frozen=True):
    """An answer to a form whose command takes seconds: the command, and the address that will show its result, relative
    to that of the form."""

    arguments: tuple[str, ...]
    address: str


Act = Callable[[Request, Viewer, Form], Response | Later]


class Notes:
    """Keeps the messages that buttons leave for the next page. An address names a message by its key, so that a link
    cannot make up one."""

    def __init__(self) -> None:
        self._notes: OrderedDict[str, str] = OrderedDict()

    def add(self, said: str) -> str:
        """Keep a note; return its name."""
        name = secrets.token_urlsafe(6)
        self._notes[name] = said
        while len(self._notes) > _NOTES:
            self._notes.popitem(last=False)
        return name

    def get(self, name: str) -> str:
        return self._notes.get(name, "")


class Site:
    """The pages over one config, which is read again when its file changes."""

    def __init__(self, config: Config, words: Words) -> None:
        self._live = LiveConfig(config)
        self._words = words
        self._stamp = config.stamp
        self._renderer = Renderer(words)
        self._graphs = one_tool.Graphs()
        self._background = Background()
        self._notes = Notes()
        self._diagnoses = fixing.Diagnoses()
        self._changes = events.FileChanges(self._files, lambda: find_change_mark(self._live.now.storage))
        self._adding: threading.Thread | None = None
        """Adds up a log that no proxy has added up."""
        self.app = Starlette(
            routes=[
                self._page("/", self.overview),
                self._page("/misses", self.misses),
                self._page("/misses/{id:int}", self.miss),
                self._button("/misses/{id:int}/try", self.try_fixes, decides=False),
                self._button("/misses/{id:int}/fix", self.fix),
                self._button("/misses/{id:int}/undo", self.undo),
                self._page("/tools", self.tools),
                self._page("/tools/{name}", self.tool),
                self._page("/review/{server}", self.review, of_profiles=False),
                self._button("/review/{server}", self.decide),
                self._page("/sessions", self.sessions),
                self._page("/sessions/{key}", self.session),
                self._page("/settings", self.settings),
                self._button("/replay", self.begin_replay, decides=False),
                Route("/events", self.follow),
                Mount("/static", StaticFiles(directory=HERE / "static")),
            ],
            exception_handlers={404: self.not_found, StorageError: self.trouble, FormError: self.refused},
        )

    # How an address is answered

    def _page(self, path: str, show: Show, *, of_profiles: bool = True) -> Route:
        """An address that shows something. `of_profiles`: it is there for somebody who may see one profile alone, and
        shows nothing of others then."""

        def answer(request: Request) -> Response:
            viewer = viewer_of(request)
            if not viewer.sees_all and not of_profiles:
                return self._missing(request, "There is no such page.")
            return show(request, viewer)

        return Route(path, answer, methods=["GET"])

    def _button(self, path: str, act: Act, *, decides: bool = True) -> Route:
        """An address that does something, for a form of ours alone. `decides`: only for those who may change
        something."""

        async def answer(request: Request) -> Response:
            form = await read_form(request)
            viewer = viewer_of(request)
            if not viewer.sees_all or (decides and not viewer.may_decide):
                raise FormError("Your token only reads this page.")
            done = await run_in_threadpool(act, request, viewer, form)
            return self._begin(done) if isinstance(done, Later) else done

        return Route(path, answer, methods=["POST"])

    @property
    def _config(self) -> Config:
        """The config as its file is now; the one before it while the file is broken."""
        now = stamp(self._live.now.path)
        if now is not None and now != self._stamp:
            self._stamp = now
            with contextlib.suppress(ConfigError):  # `foretool doctor` says what is wrong
                self._live.now = load_again(self._live.now)
        return self._live.now

    def _files(self) -> list[Path]:
        return events.files_of(self._live.now.path, self._live.now.storage)

    def _begin(self, asked: Later) -> Response:
        """Start work in the background, and lead to where its answer will be."""
        number = self._background.begin(asked.arguments)
        if number is None:
            raise FormError("Too much waits already; try again in a minute.")
        return RedirectResponse(f"{asked.address}?work={number}", 303)

    def _work(self, request: Request) -> tuple[int, BackgroundCommand | None]:
        """Return the work that an address names, and its number."""
        text = request.query_params.get("work", "")
        number = int(text) if text.isdecimal() and len(text) < 9 else 0
        return number, self._background.get(number)

    # What each address shows

    def overview(self, request: Request, viewer: Viewer) -> Response:
        mark = self._changes.mark()  # before anything is read: of what changes from here on the browser is told
        is_month = request.query_params.get("days") == str(overview.MONTH)
        page = overview.read_overview(self._config, viewer, overview.MONTH if is_month else overview.DAYS)
        if page.waiting:
            self._add_up(self._config)
        return self._renderer.show("overview.html", ".", viewer, page=page, mark=mark)

    def _add_up(self, config: Config) -> None:
        """Add up the log in a thread, which a proxy does as well, but perhaps none runs."""
        if self._adding is None or not self._adding.is_alive():
            self._adding = threading.Thread(target=add_everything, args=(config.storage, 0.05), daemon=True)
            self._adding.start()

    def misses(self, request: Request, viewer: Viewer) -> Response:
        query = dict(request.query_params)
        wanted = history.read_filter(query, self._words.causes, time.time(), viewer)
        total, found, counts = history.read_misses(self._config, viewer, wanted)
        servers, clients = history.servers_of(self._config, viewer), history.read_clients(self._config, viewer)
        return self._renderer.show(
            "misses.html", ".", viewer, total=total, kinds=say_counts(counts), misses=found, counts=counts,
            query=query, servers=servers, clients=clients,
            older={**query, "before": found[-1].at} if total > len(found) else None,
        )  # fmt: skip

    def miss(self, request: Request, viewer: Viewer) -> Response:
        id = request.path_params["id"]
        page = history.read_miss(self._config, viewer, id) if id < 2**63 else None
        if page is None:
            return self._missing(request, f"There is no miss {id}.")
        number, work = self._work(request)
        work = work if work is not None and work.what == fixing.try_fixes(self._config, id) else None
        fixes = fixing.read_fixes(self._config, id, work, self._diagnoses) if viewer.sees_all else None
        said = self._notes.get(request.query_params.get("note", ""))
        return self._renderer.show(
            "miss.html", "..", viewer, page=page, miss=page.miss, fixes=fixes, number=number, said=said
        )

    def tools(self, request: Request, viewer: Viewer) -> Response:
        query = dict(request.query_params)
        page = tool_list.matching_tools(
            self._config, viewer, *(query.get(key, "") for key in ("text", "server", "use"))
        )
        servers = history.servers_of(self._config, viewer)
        batches = reviews.read_all(self._config) if viewer.sees_all else ()
        return self._renderer.show("tools.html", ".", viewer, page=page, query=query, servers=servers, batches=batches)

    def tool(self, request: Request, viewer: Viewer) -> Response:
        name = request.path_params["name"]
        page = one_tool.read_tool(self._config, viewer, name, self._graphs)
        if page is None:
            return self._missing(request, f"No server has a tool {name[:100]!r} now.")
        return self._renderer.show("tool.html", "..", viewer, page=page, tool=page.tool)

    def sessions(self, request: Request, viewer: Viewer) -> Response:
        query = dict(request.query_params)
        found = history.read_sessions(self._config, viewer, query.get("client", ""), history.time_before(query))
        more = found[-1].session.started_at if len(found) == history.MOST_SESSIONS else 0.0
        clients = history.read_clients(self._config, viewer)
        return self._renderer.show(
            "sessions.html", ".", viewer, sessions=found, query=query, clients=clients, more=more
        )

    def session(self, request: Request, viewer: Viewer) -> Response:
        key = request.path_params["key"]
        page = history.read_session(self._config, viewer, key)
        if page is None:
            return self._missing(request, "There is no such session.")
        return self._renderer.show("session.html", "..", viewer, page=page)

    def settings(self, request: Request, viewer: Viewer) -> Response:
        page = in_force.read_settings(self._config, viewer)
        if not viewer.sees_all:
            return self._renderer.show("settings.html", ".", viewer, page=page)
        number, work = self._work(request)
        return self._renderer.show(
            "settings.html", ".", viewer, page=page, number=number, now=self._config.settings, times=replays.TIMES,
            list_tokens=self._config.profiles[""].list_tokens,
            replay=replays.read_replay(work) if work is not None and work.what[0] == "replay" else None,
            runs=learning.read_runs(self._config), confidence=learning.read_confidence(self._config),
        )  # fmt: skip

    def review(self, request: Request, viewer: Viewer) -> Response:
        server = request.path_params["server"]
        page = reviews.read_one(self._config, server)
        if page is None:
            return self._missing(request, f"The config has no server {server[:100]!r}.")
        said = reviews.say_done(dict(request.query_params))
        return self._renderer.show("review.html", "..", viewer, page=page, batch=page.batch, said=said)

    # What the buttons do

    def try_fixes(self, request: Request, viewer: Viewer, form: Form) -> Later:
        id = request.path_params["id"]
        return Later(fixing.try_fixes(self._config, id), f"../{id}")

    def fix(self, request: Request, viewer: Viewer, form: Form) -> Response:
        id = request.path_params["id"]
        done = fixing.make_fix(self._config, id, first(form, "fix"))
        self._note_fix(viewer, id, done)
        return self._back_to_miss(id, f"Done: {done}.")

    def undo(self, request: Request, viewer: Viewer, form: Form) -> Response:
        id = request.path_params["id"]
        done = f"taken back: {fixing.take_edit_back(self._config)}"
        self._note_fix(viewer, id, done)
        return self._back_to_miss(id, f"{done[0].upper()}{done[1:]}.")

    def _note_fix(self, viewer: Viewer, id: int, done: str) -> None:
        person = viewer.person
        entry = AuditEntry(time.time(), person.principal, person.name, "", "", "fix", f"miss {id}", "done", done)
        with open_existing_store(self._config.storage) as store:
            store.audit.add([entry])

    def _back_to_miss(self, id: int, said: str) -> Response:
        return RedirectResponse(f"../{id}?note={self._notes.add(said)}", 303)

    def decide(self, request: Request, viewer: Viewer, form: Form) -> Response:
        server = request.path_params["server"]
        done = reviews.decide_by_form(self._config, server, form, viewer.person)
        return RedirectResponse(f"{quote(server, safe='')}?{done}", 303)

    def begin_replay(self, request: Request, viewer: Viewer, form: Form) -> Later:
        return Later(replays.replay_arguments(self._config, form), "settings")

    # Events and errors

    async def follow(self, request: Request) -> Response:
        viewer_of(request)
        if self._changes.is_full:
            return PlainTextResponse("Too many pages are open; this one is not told of changes.\n", 503)
        since = request.headers.get("last-event-id") or request.query_params.get("since", "")
        return StreamingResponse(self._changes.follow(since), media_type="text/event-stream")

    def not_found(self, request: Request, error: Exception) -> Response:
        return self._missing(request, "There is no such page.")

    def trouble(self, request: Request, error: Exception) -> Response:
        return self._missing(request, f"{error}", 503)

    def refused(self, request: Request, error: Exception) -> Response:
        return self._missing(request, f"{error}", 403)

    def _missing(self, request: Request, what: str, status: int = 404) -> Response:
        up = "/".join([".."] * (request.url.path.count("/") - 1)) or "."
        return self._renderer.show("missing.html", up, viewer_of(request), status, what=what)
