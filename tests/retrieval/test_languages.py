"""The language of a text is told by its words, and its words are put into English; English stays as it is."""

from __future__ import annotations

import re
import unicodedata

import pytest

from foretool.retrieval.clauses import parts
from foretool.retrieval.corpus import Corpus, digest, digest_query
from foretool.retrieval.document import document, with_english
from foretool.retrieval.glossary import (
    LONGEST,
    Legibility,
    language_of,
    language_of_tool,
    legibility,
    put_into_english,
    read_lines,
)
from foretool.retrieval.languages import NAMES, fold
from foretool.retrieval.near_words import near_terms
from foretool.retrieval.pipeline import Pipeline
from foretool.retrieval.rankers.bm25 import weigh_terms
from foretool.retrieval.ranking import Query
from foretool.retrieval.word_glossary import WordGlossary
from tests.support.tools import tool

SPACED = ("de", "fr", "es", "pt", "it", "nl", "pl", "ru")
OTHERS = (*SPACED, "ja", "ko")


@pytest.mark.parametrize(
    ("text", "english"),
    [
        ("welche Dateien liegen in diesem Ordner", "which file lie in this folder"),
        ("lade die Datei notes.txt herunter", "download file notes.txt"),
        ("Benenn das Blatt um", "rename sheet"),
        ("Schalte auf den Zweig main um", "switch on branch main"),
        ("mach mir einen commit mit message fix login", "create commit with message fix login"),
        ("zeige die letzten Commits des Repositorys", "show last commit repository"),
        ("zeige die Events des Kalenders", "show event calendar"),
        ("ändere den Teil des Dateinamens", "change share file name"),
        ("lösche die Tags des Projekts", "delete tag project"),
        ("pokaż logi projektu", "show log project"),
        ("montre les boutons des formulaires", "show button form"),
        ("Wetter in Berlin", "weather in Berlin"),
        ("lösche den Urlaubsordner", "delete holiday folder"),
        ("quels fichiers y a-t-il dans ce dossier", "which file in folder"),
        ("fais une capture d'écran", "create screenshot"),
        ("borra los archivos de la carpeta useEffect", "delete file of folder useEffect"),
        ("apaga o arquivo notes.txt e a pasta old_files", "delete file notes.txt and folder old_files"),
        ("elimina i file della cartella", "delete file of folder"),
        ("verwijder het bestand `het.py`", "delete file `het.py`"),
        ("usuń plik z folderu", "delete file with folder"),
        ("удали файл из папки", "delete file from folder"),
        ("このフォルダのファイルを削除して", "this folder file delete"),
        ("이 폴더의 파일을 삭제해줘", "folder file delete"),
    ],
)
def test_words_of_a_language_become_english_and_names_stay(text: str, english: str) -> None:
    assert put_into_english(text).replace(" of of ", " of ") == english


@pytest.mark.parametrize("language", ["de", "fr", "es", "pt", "nl"])
def test_a_known_word_is_known_with_the_s_of_a_plural_or_genitive(language: str) -> None:
    lines = read_lines(language)
    glossary = WordGlossary(language, lines)
    parted = (line.partition("\t") for line in lines)
    words = [word for english, _, written in parted if english for word in written.split(", ")]
    assert [
        each for each in words if each.isalpha() and len(each) > 3 and glossary.find(fold(f"{each}s")) is None
    ] == []


@pytest.mark.parametrize(
    "text",
    [
        "read the file in\n the folder",
        "create issue",
        "send a card to Ludwig van der Rohe and to Jose de la Cruz",
        'translate "wo ist der Bahnhof" into English',
        "what is the meaning of ありがとう in Japanese",
        "list van models",
        "play Johnny Johnny Yes papa",
        "run `die(mit, dem)` here",
        "",
        "42 v1.2 README.md",
    ],
)
def test_a_text_in_english_is_returned_as_it_is(text: str) -> None:
    assert put_into_english(text) is text and digest_query(text) == digest(text)


def test_how_much_of_a_text_is_read() -> None:
    assert legibility("which files are in this folder") == Legibility(1.0, "en")
    assert legibility("welche Dateien liegen in diesem Ordner") == Legibility(1.0, "de")
    assert legibility("查询天气").language == "zh"
    assert legibility("hitta tåget till jobbet").share < 0.5, "Swedish is not read"
    assert legibility("พรุ่งนี้อากาศเป็นยังไง").share < 0.5, "nor is Thai"
    assert legibility("42 v1.2") == Legibility(1.0, None)


@pytest.mark.parametrize(
    "text",
    [
        "Tôi cần một chuyến xe từ địa chỉ này",  # Vietnamese, whose "cần" is "can" and whose "là" is French
        "bu klasördeki dosyaları listele",  # noqa: RUF001 (it is Turkish)
        "opret en ny note om mødet",
        "creează o notiță nouă",
        "küldj egy e-mailt a főnökömnek",
        "надішли лист моєму начальнику",
        "kapan ready stok ukuran L sama M",
    ],
)
def test_a_language_that_is_not_read_is_not_taken_for_a_neighbour_of_it(text: str) -> None:
    assert put_into_english(text) is text and language_of(text) is None
    assert legibility(text).share <= 0.5


@pytest.mark.parametrize(
    "said",
    [
        "24hkhoedep.com là trang bán lẻ trực tuyến trực thuộc Công Ty Chăm Sóc Khoẻ",
        "Afișează fișierele din acest dosar și creează o notiță",
        "Показує файли в цій папці і є дуже зручний",  # noqa: RUF001 (it is Ukrainian)
    ],
)
def test_nor_is_what_a_tool_says_in_it(said: str) -> None:
    assert language_of_tool(said, []) is None


def test_what_a_tool_says_is_told_with_accents_apart_too() -> None:
    said = "Löscht eine Datei für immer, auch wenn sie nicht leer ist"
    assert language_of_tool(unicodedata.normalize("NFD", said), []) == language_of_tool(said, []) == "de"


def test_a_letter_and_its_accent_are_read_as_one_character_or_as_two() -> None:
    for text in ("lösche die Datei notes.txt", "supprime la pièce jointe", "이 폴더의 파일을 보여줘"):
        apart = unicodedata.normalize("NFD", text)
        assert apart != text
        assert put_into_english(apart) == put_into_english(text) != text
        assert legibility(apart) == legibility(text)


@pytest.mark.parametrize("language", OTHERS)
def test_each_line_of_a_file_has_english_words_and_those_that_mean_them(language: str) -> None:
    lines = read_lines(language)
    assert lines == sorted(lines) and len(lines) > 300 and language in NAMES
    words = [word for line in lines for word in line.partition("\t")[2].split(", ")]
    assert len(words) == len(set(words)) and all(words)
    for line in lines:
        english = line.partition("\t")[0]
        assert english.isascii() and english == " ".join(english.split()), line
    if language in ("ja", "ko"):
        assert max(map(len, words)) <= LONGEST


def test_a_word_is_found_in_any_form_and_as_a_part_of_a_compound() -> None:
    german = WordGlossary("de", ["delete\tlöschen", "folder\tOrdner", "old\talt", "shopping\tEinkauf", "list\tListe"])
    for word in ("löschen", "lösche", "löscht", "gelöscht", "loeschen".replace("oe", "o")):
        assert german.find(fold(word)) == "delete"
    assert german.find(fold("Ordnern")) == "folder"
    assert german.find(fold("Einkaufsliste")) == "shopping list"
    assert german.find(fold("Donaudampfschiff")) is None
    assert german.find("x" * 10_000) is None


def test_an_accent_tells_two_words_apart() -> None:
    spanish = WordGlossary("es", ["give\tdé", "of\tde"])
    assert (spanish.find("de", "dé"), spanish.find("de", "de"), spanish.find("de")) == ("give", "of", "of")


def test_work_on_a_long_text_is_bounded() -> None:
    text = "lösche die Datei " * 50_000
    assert put_into_english(text).startswith("delete file delete file") and language_of(text) == "de"


def test_clauses_near_words_and_deletions_read_the_english_of_a_task() -> None:
    assert parts("öffne die Datei notes.txt und schick sie meinem Chef", by_words=False) == [
        "open file notes.txt", "send you my boss",
    ]  # fmt: skip
    assert near_terms(weigh_terms("zeig mir die Fotos")) == near_terms(weigh_terms("zeig mir die Fotos"))
    assert "imag" in near_terms(weigh_terms("zeig mir die Fotos"))
    notes = Corpus([tool("notes", "create_note", "Create a note."), tool("notes", "delete_note", "Delete a note.")])
    assert Pipeline(notes).rank(Query(("lösche meine Notiz",))).ranked[0].tool == "notes__delete_note"


def test_of_a_tool_small_words_tell_the_language_and_its_names_are_read_too() -> None:
    german = with_english(document(tool("lager", "artikel_entfernen", "Löscht einen Artikel aus dem Sortiment.")))
    assert german.language == "de" and german.english is not None
    assert german.english.name == "article delete" and german.english.description == "delete article from product ."
    english = document(tool("a", "list_van_models", "Lists all models of a van."))
    assert with_english(english) is english


def test_a_reason_says_which_words_were_translated() -> None:
    files = Corpus([tool("files", "delete_file", "Delete a file.")])
    [ranked] = Pipeline(files).rank(Query(("lösch die Datei",))).ranked
    assert set(ranked.reasons) == {"words translated: lösch (delete), Datei (file)"}


def test_every_language_has_small_words_that_are_no_english_ones() -> None:
    for language in SPACED[:-1]:
        assert all(re.fullmatch(r"[a-z]+", word) for word in glossary_marks(language))


def glossary_marks(language: str) -> frozenset[str]:
    from foretool.retrieval.languages import MARKS

    return MARKS[language]
