"""The tasks: what a user says, which tools serve, and a check of the end by what there is then or by the exact answer.

Tasks name no tool. `plain` says what to do, `vague` what is wanted, `steps` takes several tools, and no tool serves
`none`: there the world must be as it was, and the model must end with an answer. A seeded draw puts half of the tasks
aside; texts and settings are chosen on the working half, and the other half is opened once.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, Literal
from zoneinfo import ZoneInfo

from msgspec import Struct

from bench.agents.world import World, has_words

Kind = Literal["plain", "vague", "steps", "none"]
Half = Literal["working", "closed", "later"]
SEED: Final = 20
Check = Callable[[World, str], bool]


class Task(Struct, frozen=True):
    """One task."""

    name: str
    kind: Kind
    text: str
    """With the places of the world in braces."""
    needs: tuple[tuple[str, ...], ...]
    """By step, the tools any of which serves."""
    check: Check
    """Whether the world and the answer are right in the end."""


def says(*words: str) -> Check:
    """The answer has these words."""
    return lambda world, answer: has_words(answer, words)


def says_any(*words: str) -> Check:
    """The answer has one of these words."""
    return lambda world, answer: any(has_words(answer, [word]) for word in words)


def says_number(number: str) -> Check:
    """The answer has this number and no longer one, with or without separators of thousands."""
    whole = re.compile(rf"(?<![\d.]){re.escape(number)}(?!\d)")
    return lambda world, answer: whole.search(answer.replace(",", "").replace("'", "")) is not None


def says_time(zone: str) -> Check:
    """The answer has the time that it is in a zone, within five minutes; with 24 hours or 12."""

    def check(world: World, answer: str) -> bool:
        now = datetime.now(ZoneInfo(zone))
        times = [now - timedelta(minutes=minute) for minute in range(6)]
        return any(form.lstrip("0") in answer for each in times for form in (f"{each:%H:%M}", f"{each:%I:%M}"))

    return check


def says_converted(hour: int, minute: int, source: str, target: str) -> Check:
    """The answer has a time of today in one zone as it is in another."""

    def check(world: World, answer: str) -> bool:
        there = datetime.now(UTC).astimezone(ZoneInfo(source)).replace(hour=hour, minute=minute)
        here = there.astimezone(ZoneInfo(target))
        return any(form.lstrip("0") in answer for form in (f"{here:%H:%M}", f"{here:%I:%M}"))

    return check


READ: Final = (
    "files__read_text_file", "files__read_file", "files__read_multiple_files", "editor__get_text_file_contents",
)  # fmt: skip
WRITE: Final = ("files__write_file", "editor__edit_text_file_contents")
EDIT: Final = ("files__edit_file", "files__write_file", "editor__edit_text_file_contents")
FOLDER: Final = (
    "files__list_directory", "files__list_directory_with_sizes", "files__directory_tree", "files__search_files",
)  # fmt: skip
LOG: Final = ("git__git_log", "git__git_show")
QUERY: Final = ("sqlite__read_query",)
KNOW: Final = ("memory__search_nodes", "memory__open_nodes", "memory__read_graph")
FETCH: Final = ("fetch__fetch",)

TASKS: Final = (
    # files
    Task("write-file", "plain", "Write a new file {files}/todo.txt with the text: buy milk", (WRITE,),
         lambda world, answer: world.text("todo.txt").strip() == "buy milk"),
    Task("list-folder", "plain", "Which files are in the folder {files}/reports?", (FOLDER,),
         says("january", "february", "march")),
    Task("make-folder", "plain", "Make a folder {files}/archive", (("files__create_directory",),),
         lambda world, answer: (world.files / "archive").is_dir()),
    Task("rename-file", "plain", "Rename {files}/draft.txt to {files}/final.txt", (("files__move_file",),),
         lambda world, answer: "Miller" in world.text("final.txt") and not world.text("draft.txt")),
    Task("file-size", "plain", "How many bytes does {files}/data.bin have?",
         (("files__get_file_info", "files__list_directory_with_sizes"),), says_number("1234")),
    Task("edit-file", "plain", "In {files}/settings.ini replace the port 8080 by 9090", (EDIT,),
         lambda world, answer: world.text("settings.ini").strip() == "[server]\nport = 9090\nhost = localhost"),
    Task("read-file", "plain", "What does {files}/notes.txt say?", (READ,), says("plumber", "plants")),
    Task("find-file", "vague", "Somewhere below {files} there is an invoice. What is the name of its file?",
         (("files__search_files", "files__directory_tree"),), says("invoice-0815")),
    Task("compare-files", "vague",
         "Which one names the higher price, {files}/prices/contract.txt or {files}/prices/annex.txt?", (READ,),
         lambda world, answer: has_words(answer, ["annex"]) and not has_words(answer, ["contract.txt is higher"])),
    Task("copy-line", "steps", "Put the first line of {files}/notes.txt into a new file {files}/first.txt",
         (READ, WRITE), lambda world, answer: world.text("first.txt").strip() == "Call the plumber"),
    Task("move-to-folder", "steps", "Make a folder {files}/old and move {files}/draft.txt into it",
         (("files__create_directory",), ("files__move_file",)),
         lambda world, answer: "Miller" in world.text("old/draft.txt")),
    Task("sum-reports", "steps",
         "Add up the sales of {files}/reports/january.txt and {files}/reports/february.txt. What is the sum?", (READ,),
         says_number("585")),
    # git
    Task("git-status", "plain", "Which files of the git repository {repository} are not tracked yet?",
         (("git__git_status",),), says("new.txt")),
    Task("git-commit", "plain", "Commit what is staged in the repository {repository} with the message: Add greeting",
         (("git__git_commit",),),
         lambda world, answer: world.git("log", "-1", "--format=%s") == "Add greeting"
         and world.git("show", "--format=", "--name-only") == "greeting.txt"),
    Task("git-add", "plain", "Stage the file new.txt in the repository {repository}", (("git__git_add",),),
         lambda world, answer: "new.txt" in world.git("diff", "--cached", "--name-only")),
    Task("git-branch", "plain", "Create a branch named feature in the repository {repository}",
         (("git__git_create_branch",),), lambda world, answer: "feature" in world.git("branch", "--list", "feature")),
    Task("git-branches", "plain", "Which branches does the repository {repository} have?", (("git__git_branch",),),
         says("main", "stable")),
    Task("git-unstage", "plain", "Unstage everything in the repository {repository}, and keep the changes",
         (("git__git_reset",),), lambda world, answer: not world.git("diff", "--cached", "--name-only")
         and (world.repository / "greeting.txt").is_file()),
    Task("git-author", "vague", "Who made the latest commit in {repository}?", (LOG,), says("linus")),
    Task("git-change", "vague", "I changed app.py in {repository} and forgot how. What does it print now?",
         (("git__git_diff_unstaged", "git__git_diff"),), says("hello world")),
    Task("git-add-commit", "steps", "In {repository} stage new.txt, then commit with the message: Add two files",
         (("git__git_add",), ("git__git_commit",)),
         lambda world, answer: world.git("log", "-1", "--format=%s") == "Add two files"
         and "new.txt" in world.git("show", "--format=", "--name-only")),
    Task("git-grace", "steps", "What did Grace's commit in {repository} write into port.txt?",
         (LOG,), says_number("9000")),
    # the database
    Task("tables", "plain", "Which tables are in my database?", (("sqlite__list_tables",),),
         says("customers", "orders")),
    Task("insert-row", "plain", "Add a customer named Jones from Oslo to the customers table of my database",
         (("sqlite__write_query",),),
         lambda world, answer: world.rows("select count(*) from customers where name = 'Jones' and city = 'Oslo'")
         == [(1,)]),
    Task("update-row", "plain", "In the customers table of my database change the city of Tanaka to Osaka",
         (("sqlite__write_query",),),
         lambda world, answer: world.rows("select city from customers where name = 'Tanaka'") == [("Osaka",)]),
    Task("columns", "plain", "Which columns does the orders table of my database have?", (("sqlite__describe_table",),),
         says("customer_id", "total")),
    Task("make-table", "plain", "Make a table named visits with the columns id and day in my database",
         (("sqlite__create_table",),),
         lambda world, answer: [row[1] for row in world.rows("pragma table_info(visits)")] == ["id", "day"]),
    Task("best-customer", "vague", "Who is my best customer? The orders are in my database.", (QUERY,), says("okafor")),
    Task("count-orders", "vague", "How many orders do I have in my database?", (QUERY,), says_any("5", "five")),
    # the memory
    Task("remember", "plain", "Remember that Bob likes coffee",
         (("memory__create_entities", "memory__add_observations"),),
         lambda world, answer: has_words(" ".join(world.observations("Bob")), ["coffee"])),
    Task("know", "vague", "What must I not cook when Carol visits me? You know her.", (KNOW,), says("peanut")),
    Task("add-fact", "plain", "Add to what you remember of Dave that he moved to Lima",
         (("memory__add_observations",),),
         lambda world, answer: has_words(" ".join(world.observations("Dave")), ["Lima"])),
    Task("forget", "plain", "Delete Dave from your memory", (("memory__delete_entities",),),
         lambda world, answer: not world.observations("Dave") and bool(world.observations("Carol"))),
    Task("relate", "plain", "Remember that Dave is a friend of Carol", (("memory__create_relations",),),
         lambda world, answer: any(
             each["type"] == "relation" and {each["from"], each["to"]} == {"Dave", "Carol"}
             for each in world.remembered())),
    # time, calculations, a page
    Task("time", "plain", "What time is it in Tokyo?", (("time__get_current_time",),), says_time("Asia/Tokyo")),
    Task("convert-time", "plain", "When it is 9:30 in New York today, what time is it in Berlin?",
         (("time__convert_time",),), says_converted(9, 30, "America/New_York", "Europe/Berlin")),
    Task("multiply", "plain", "What is 4837 times 2916?", (("calculator__calculate",),), says_number("14104692")),
    Task("wages", "vague", "I pay 17 people 1943.75 euros each, and 812.5 euros of rent. How much is that together?",
         (("calculator__calculate",),), says_number("33856.25")),
    Task("page", "plain", "What does a ticket for children cost according to {page}?", (FETCH,), says_any("6", "six")),
    Task("page-to-file", "steps", "Write the code word of this week that {page} names into a file {files}/code.txt",
         (FETCH, WRITE), lambda world, answer: world.text("code.txt").strip().lower() == "marigold"),
    # what no tool serves
    Task("print", "none", "Print two copies of {files}/draft.txt on the printer in the hall", (),
         lambda world, answer: bool(answer)),
    Task("lights", "none", "Turn off the lights in the kitchen", (), lambda world, answer: bool(answer)),
)  # fmt: skip


def draw(half: Half, tasks: Sequence[Task] = TASKS) -> list[Task]:
    """The tasks of one half, in their order; each kind is halved by itself."""
    chosen = set[str]()
    for kind in ("plain", "vague", "steps", "none"):
        names = sorted(task.name for task in tasks if task.kind == kind)
        random.Random(f"{SEED} {kind}").shuffle(names)
        chosen.update(names[::2])
    return [task for task in tasks if (task.name in chosen) == (half == "working")]
