"""The language of a text is told by its words, and its words are put into English; English stays as it is."""

from __future__ import annotations

import pytest

from foretool.retrieval.glossary import Legibility, legibility, put_into_english


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("welche Dateien liegen in diesem Ordner", "which file lie in this folder"),
        ("lade die Datei notes.txt herunter", "download file notes.txt"),
        ("mach mir einen commit mit message fix login", "create commit with message fix login"),
        ("Wetter in Berlin", "weather in Berlin"),
        ("lösche den Urlaubsordner", "delete holiday folder"),
    ],
)
def test_words_of_a_language_become_english_and_names_stay(text: str, english: str) -> None:
    assert put_into_english(text) == english


@pytest.mark.parametrize(
    "text",
    [
        "read the file in\n the folder",
        "create issue",
        "send a card to Ludwig van der Rohe",
        'translate "wo ist der Bahnhof" into English',
        "list van models",
        "run `die(mit, dem)` here",
    ],
)
def test_a_text_in_english_is_returned_as_it_is(text: str) -> None:
    assert put_into_english(text) is text


def test_how_much_of_a_text_is_read() -> None:
    assert legibility("which files are in this folder") == Legibility(1.0, "en")
    assert legibility("welche Dateien liegen in diesem Ordner") == Legibility(1.0, "de")
    assert legibility("查询天气").language == "zh"
    assert legibility("hitta tåget till jobbet").share < 0.5, "Swedish is not read"
    assert legibility("42 v1.2") == Legibility(1.0, None)
