"""A tool that deletes stands lower where nobody asks for that, in every part of a task."""

from __future__ import annotations

import time

import pytest

from foretool.retrieval.corpus import Corpus
from foretool.retrieval.glossary import put_into_english
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.deletions import (
    IDLE,
    UNASKED,
    changes,
    deletes,
    deletes_something_else,
    forbidden_deeds,
    is_unasked,
    only_asks,
    only_reads,
    says_nothing_of_deleting,
)
from foretool.retrieval.ranking import Query
from tests.support.tools import tool


@pytest.mark.parametrize("name", ["delete_note", "deleteNote", "notes-remove", "clear_range", "purge"])
def test_a_tool_deletes_by_its_name(name: str) -> None:
    assert deletes(name)


@pytest.mark.parametrize("name", ["create_note", "browser_drop", "nuclear_clear", "undelete", "get_deleted_notes"])
def test_other_tools_do_not_delete(name: str) -> None:
    assert not deletes(name)


@pytest.mark.parametrize(
    "task",
    [
        "remember that her birthday is on 4 May",
        "what do you know about Anna",
        "add the number to the list",
        "remember that Anna eats no nuts",
        "Please note that the old plan is off",
        "save this without my address",
        "do not delete my files, only list them",
        "don't remove anything, show me the files",
        "list my files without deleting anything",
        "delete nothing , show me only file",
    ],
)
def test_a_task_without_a_word_for_it_asks_for_no_deletion(task: str) -> None:
    assert is_unasked(task)


@pytest.mark.parametrize(
    "task",
    [
        "forget about Tom and his address", "take the first one off my watchlist", "the old logs can go", "undo this",
        "I can not delete the file", "not only delete it", "do not keep it, delete it",
        "entferne die Datei", "borra el archivo de notas", "删除文件", "note Anna",
    ],
)  # fmt: skip
def test_a_task_that_may_ask_for_it_is_left_alone(task: str) -> None:
    assert not is_unasked(task)


def test_a_tool_that_deletes_loses_half_its_score_unless_it_is_asked_for_or_named() -> None:
    corpus = Corpus([tool("notes", "delete_note", "Deletes a saved note"), tool("notes", "read", "Reads it")])
    corpus.replace("more", [tool("more", "other", "Nothing")])
    pipeline = Pipeline(corpus)

    def score(task: str) -> float:
        return pipeline.rank(Query((task,))).ranked[0].score

    assert score("where is the saved note") == pytest.approx(UNASKED * score("where is the saved note off"))
    assert pipeline.rank(Query(("use delete_note for the saved note",))).ranked[0].tool == "notes__delete_note"
    corpus.replace("notes", [])
    assert not corpus.deeds.deleting


def test_a_tool_that_only_reads_stands_lower_where_a_step_begins_with_a_change() -> None:
    corpus = Corpus([tool("notes", "search_notes", "Search for a note"), tool("more", "other", "Nothing")])
    pipeline = Pipeline(corpus)
    assert only_reads("search_notes") and only_reads("listFiles") and not only_reads("add_note")

    def score(task: str) -> float:
        return pipeline.rank(Query((task,))).ranked[0].score

    assert score("remember the note") == pytest.approx(IDLE * score("about the note"))
    assert score("add 3 and 5 to the note") == score("about the note"), "a sum is no change"
    corpus.replace("notes", [])
    assert not corpus.deeds.reading


@pytest.mark.parametrize(
    ("task", "lowered"),
    [
        ("what is the name of the note", True),
        ("tell me what I must not forgo in the note", True),
        ("the note is somewhere?", True),
        ("list the latest commits to the note", True),
        ("zeige die letzten Notizen", True),
        ("show the note and then move it", False),
        ("find the note, I want to send it", False),
        ("find the note and comment on it", False),
        ("find the note and explain it to me", True),
        ("look up Anna's note and email her", False),
        ("find the oldest note, then rotate it", False),
        ("tell the team that the note is done", False),
        ("tell me the notes of today", True),
        ("check in my notes", False),
        ("check off the note", False),
        ("get rid of these notes", False),
        ("get the notes of today", True),
        ("can you move the note", False),
        ("how do I get the note deleted", False),
        ("the note", False),
        ("wo ist die Notiz", True),
        ("was the note deleted in the last days?", True),
        ("have I rotated the note yet", True),
        ("did I send the note? if so, send it again", False),
        ("do not touch anything, just show me the note", True),
        ("show me the note, no changes please", True),
        ("can you rotate the note?", False),
    ],
)
def test_a_tool_that_changes_something_stands_lower_where_a_question_asks_for_no_deed(task: str, lowered: bool) -> None:
    made = [tool("jot", "jot_move_note", "Moves a note"), tool("more", "other", "Nothing")]
    plain = [tool("jot", "jot_old_note", "Moves a note"), tool("more", "other", "Nothing")]
    score, same = (Pipeline(Corpus(tools)).rank(Query((task,))).ranked[0].score for tools in (made, plain))
    assert (score < 0.9 * same) is lowered


@pytest.mark.parametrize(
    "task",
    [
        "?" * 20_000 + "x",
        "x" + "?" * 20_000,
        " " * 20_000,
        "what " * 4_000,
        "show and " * 4_000,
        "list and also " * 4_000,
        "." * 20_000 + "?x",
        "without " * 2_500,
        "no edit " * 2_500,
        "did " + "a." * 10_000 + "!",
        "was it" + " " * 20_000 + "x,",
        "and if " + "a " * 10_000,
    ],
)
def test_no_task_takes_long_to_be_read(task: str) -> None:
    begun = time.process_time()
    only_asks(task), forbidden_deeds(task), says_nothing_of_deleting(task), is_unasked(task)
    assert time.process_time() - begun < 0.5


@pytest.mark.parametrize(
    ("task", "asks"),
    [
        ("the note is where?", True),
        ('"is it there?")', True),
        ("where? here", True),
        ("here? there", False),
        ("???", True),
    ],
)
def test_a_question_begins_or_ends_as_one(task: str, asks: bool) -> None:
    assert only_asks(task) is asks


@pytest.mark.parametrize(
    ("name", "does"),
    [
        ("create_issue", True), ("linear_create_issue", True), ("slack-post", True), ("kubectl_apply", True),
        ("API-patch-page", True), ("API-post-search", False), ("get_update", False), ("linear_search", False),
        ("", False),
    ],
)  # fmt: skip
def test_a_tool_changes_something_by_its_first_word_or_the_one_behind_a_thing(name: str, does: bool) -> None:
    assert changes(name) is does


def test_what_tools_do_is_known_by_their_new_places_once_gaps_are_closed() -> None:
    corpus = Corpus()
    corpus.replace("old", [tool("old", f"t{n}", "Old") for n in range(300)])
    corpus.replace("notes", [tool("notes", name, "A note") for name in ("read_note", "delete_note", "move_note")])
    corpus.replace("old", [])
    corpus.replace("old", [])
    assert len(corpus.ids) < 300, "it was compacted"

    def names(slots: set[int]) -> set[str]:
        return {str(corpus.ids[slot]) for slot in slots}

    assert names(corpus.deeds.reading) == {"notes__read_note"}
    assert names(corpus.deeds.changing) == {"notes__delete_note", "notes__move_note"}
    assert names(corpus.copy().deeds.deleting) == {"notes__delete_note"}


@pytest.mark.parametrize(
    ("task", "name", "said", "is_else"),
    [
        ("delete a file", "delete_worksheet", "excel Delete worksheet from workbook.", True),
        ("delete my last email", "delete_entities", "memory Delete entities of the knowledge graph", True),
        ("delete rows 5 to 9", "delete_sheet_rows", "excel Delete one or more rows.", False),
        ("drop Dave from memory", "delete_entities", "memory Delete entities of the knowledge graph", False),
        ("delete it", "delete_entities", "memory Delete entities", False),
        ("read a file", "read_worksheet", "excel Reads a worksheet", False),
    ],
)
def test_a_tool_may_delete_something_else_than_what_the_task_names(
    task: str, name: str, said: str, is_else: bool
) -> None:
    assert deletes_something_else(task, name, said) is is_else


@pytest.mark.parametrize(
    "task",
    [
        "ne pas effacer mes fichiers, seulement les lister",
        "meine Dateien nicht löschen, nur auflisten",
        "no borres mis archivos, solo haz una lista",
        "geen bestanden verwijderen, alleen een lijst maken",
        "不要删除文件 只列出来",
    ],
)
def test_a_deletion_that_a_task_in_another_language_denies_is_not_read_as_a_wish(task: str) -> None:
    corpus = Corpus([tool("files", "delete_files", "Delete files"), tool("files", "list_files", "List and show files")])
    assert "delete" not in put_into_english(task)
    assert Pipeline(corpus).rank(Query((task,))).ranked[0].tool == "files__list_files"
