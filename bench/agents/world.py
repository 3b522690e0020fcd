"""The small world in which tasks run: files, a git repository, a database, a memory, a page; and its real servers.

Each task begins with the same world. The servers are those of their packages, installed into one folder:

    python -m venv FOLDER/python
    FOLDER/python/bin/pip install mcp-server-time mcp-server-git mcp-server-fetch
    python -m venv FOLDER/older
    FOLDER/older/bin/pip install "mcp<2" mcp-server-calculator mcp-server-sqlite mcp-text-editor
    npm install --prefix FOLDER @modelcontextprotocol/server-filesystem @modelcontextprotocol/server-memory
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

from bench.servers import loopback

PAGE: Final = (
    "<html><head><title>Museum</title></head><body><h1>Museum of clocks</h1><p>The museum opens at 9:45 and closes at"
    " 17:30. On Mondays it is closed. Tickets are sold at the door and cost 14 euros for grown-ups and 6 euros for"
    " children. The code word of this week is marigold.</p></body></html>"
)
FILES: Final = {
    "notes.txt": "Call the plumber\nWater the plants\n",
    "draft.txt": "Dear Ms Miller,\nthank you for the tea.\n",
    "settings.ini": "[server]\nport = 8080\nhost = localhost\n",
    "reports/january.txt": "Sales: 310\n",
    "reports/february.txt": "Sales: 275\n",
    "reports/march.txt": "Sales: 402\n",
    "letters/2024/invoice-0815.txt": "Invoice 0815 over 99 euros\n",
    "letters/2024/thanks.txt": "Thanks!\n",
    "prices/contract.txt": "The price is 1200 euros.\n",
    "prices/annex.txt": "The price is 1350 euros.\n",
    "data.bin": "x" * 1234,
}
MEMORY: Final = (
    {
        "type": "entity", "name": "Carol", "entityType": "person",
        "observations": ["lives in Rome", "is allergic to peanuts"],
    },
    {"type": "entity", "name": "Acme", "entityType": "company", "observations": ["sells ladders"]},
    {"type": "entity", "name": "Dave", "entityType": "person", "observations": ["plays chess"]},
    {"type": "relation", "from": "Carol", "to": "Acme", "relationType": "works_at"},
)  # fmt: skip
WHEN: Final = "2025-03-04T05:06:07Z"
"""The time of the commits, so that every world has the same."""
TABLES: Final = """
create table customers (id integer primary key, name text, city text);
create table orders (id integer primary key, customer_id integer, total real);
insert into customers values (1, 'Smith', 'Leeds'), (2, 'Okafor', 'Lagos'), (3, 'Tanaka', 'Kyoto');
insert into orders values (1, 1, 20.5), (2, 2, 310), (3, 2, 45), (4, 3, 99.5), (5, 1, 12);
"""


class World:
    """The folder that tasks read and change."""

    def __init__(self, root: Path, page: str = "") -> None:
        """`page`: the address of the page."""
        self.root = root.resolve()
        self.page = page
        self.files = self.root / "files"
        self.repository = self.root / "repository"
        self.database = self.root / "shop.db"
        self.memory = self.root / "memory.jsonl"

    def words(self) -> dict[str, str]:
        """What tasks say of the world, by name."""
        return {
            "files": str(self.files), "repository": str(self.repository), "page": self.page,
        }  # fmt: skip

    def reset(self) -> None:
        """Put everything back to what each task begins with."""
        for folder in (self.files, self.repository):
            shutil.rmtree(folder, ignore_errors=True)
        for name, text in FILES.items():
            self._write(self.files / name, text)
        self._make_repository()
        self.database.parent.mkdir(parents=True, exist_ok=True)
        self.database.unlink(missing_ok=True)
        with closing(sqlite3.connect(self.database)) as database:
            database.executescript(TABLES)
        self.memory.write_text("\n".join(map(json.dumps, MEMORY)), "utf-8")

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")

    def _make_repository(self) -> None:
        def write(name: str, text: str) -> None:
            self._write(self.repository / name, text)

        write("app.py", "print('hello')\n")
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("config", "user.name", "Ada")
        self.git("config", "user.email", "ada@localhost")
        self.git("config", "commit.gpgsign", "false")
        self._commit("First version", "Ada")
        write("port.txt", "9000\n")
        self._commit("Listen on port 9000", "Grace")
        self.git("branch", "stable")
        write("colours.txt", "blue\n")
        self._commit("Paint it blue", "Linus")
        write("greeting.txt", "good morning\n")
        self.git("add", "greeting.txt")
        write("app.py", "print('hello world')\n")
        write("new.txt", "not added yet\n")

    def _commit(self, subject: str, author: str) -> None:
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", subject, "--author", f"{author} <{author.lower()}@localhost>")

    # -- what there is now

    def git(self, *arguments: str) -> str:
        """The output of a git command in the repository."""
        clean = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
        clean |= {"GIT_AUTHOR_DATE": WHEN, "GIT_COMMITTER_DATE": WHEN}
        command = ["git", "-C", str(self.repository), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=clean).stdout.strip()

    def text(self, name: str) -> str:
        """The text of a file, "" if there is none."""
        path = self.files / name
        return path.read_text("utf-8", "replace") if path.is_file() else ""

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """The rows of a query, none if it fails."""
        with closing(sqlite3.connect(self.database)) as database:
            try:
                return database.execute(query).fetchall()
            except sqlite3.Error:
                return []

    def remembered(self) -> list[dict[str, Any]]:
        """The entities and relations of the memory."""
        return [json.loads(line) for line in self.memory.read_text("utf-8").splitlines() if line.strip()]

    def observations(self, name: str) -> list[str]:
        """What is remembered of one entity."""
        found = (
            each for each in self.remembered() if each["type"] == "entity" and each["name"].lower() == name.lower()
        )
        return [said for each in found for said in each["observations"]]

    def state(self) -> tuple[Any, ...]:
        """Everything that a task may change, to be compared."""
        files = sorted((str(path), path.read_bytes()) for path in self.files.rglob("*") if path.is_file())
        return files, self.git("status", "--porcelain"), self.git("log", "--all", "--oneline"), [
            self.rows(f"select * from {table}") for table in ("customers", "orders")
        ], self.remembered()  # fmt: skip

    # -- its servers

    def servers(self, folder: Path) -> dict[str, dict[str, Any]]:
        """The config entries of the real servers, whose packages `folder` holds."""
        node = folder.resolve() / "node_modules" / "@modelcontextprotocol"

        def python(package: str, *arguments: str, under: str = "python") -> dict[str, Any]:
            return {"command": str(folder.resolve() / under / "bin" / package), "args": list(arguments)}

        return {
            "files": {"command": "node", "args": [str(node / "server-filesystem/dist/index.js"), str(self.files)]},
            "git": python("mcp-server-git"),
            "sqlite": python("mcp-server-sqlite", "--db-path", str(self.database), under="older"),
            "memory": {
                "command": "node",
                "args": [str(node / "server-memory/dist/index.js")],
                "env": {"MEMORY_FILE_PATH": str(self.memory)},
            },
            "time": python("mcp-server-time", "--local-timezone", "UTC"),
            "calculator": python("mcp-server-calculator", under="older"),
            "editor": python("mcp-text-editor", under="older"),
            "fetch": python("mcp-server-fetch", "--ignore-robots-txt", "--allow-private-ips"),
        }


def has_words(text: str, words: Sequence[str]) -> bool:
    """Whether a text has all of these words, in any case."""
    return all(word.lower() in text.lower() for word in words)


@contextmanager
def serve_page() -> Iterator[str]:
    """Serve the page on loopback; yields its address."""

    class Page(loopback.Handler):
        def do_GET(self) -> None:
            self.say(PAGE.encode(), "text/html")

    with loopback.serve(Page) as url:
        yield f"{url}/museum"
