"""Puts other languages into English words: the encoders that come with foretool read English alone.

This is the one place where a text becomes what is read. The glossaries ship with the package and were written for it.
`glossary_zh.txt` has in each line a word in simplified Chinese characters, a tab, and English words, none for words
that say nothing here (particles, measure words); a line with "=" in front of the English has a traditional character
and the simplified one. The other files have the English first, a tab, and the words that mean it, with commas between.
A file is read when a text in its language is met, and its memory is given back by `let_go`.

Texts come from strangers, so the work is bounded. Scripts without spaces (Chinese, Japanese), and Korean, are cut from
left to right, each word the longest one that the glossary has (maximum matching), of at most `LONGEST` characters. In
other languages each word is looked for by itself (`word_glossary`), where small words tell the language
(`languages`). What a glossary lacks stays as it is, and so do names, values, code and whatever is English.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from foretool.retrieval.words import STOP_WORDS, stem

if TYPE_CHECKING:
    from foretool.retrieval.languages import Word
    from foretool.retrieval.word_glossary import WordGlossary

_FOLDER: Final = Path(__file__).parent
FILE: Final = _FOLDER / "glossary_zh.txt"
MOST_READ: Final = 4_000
"""How many characters of a text are put into English; what stands behind them stays as it is."""
LONGEST: Final = 12
"""How many characters a word has at most in a script without spaces."""
_SIMPLIFIED: Final = "="
"""Stands before the simplified form of a traditional character."""
_LEAST_SMALL_WORDS: Final = 3
"""The text of a tool is in another language than English if it has so many small words of that."""
_NOUN_OR_NAME: Final = 0.5
"""What an unknown word with a capital letter counts as unread in German, where nouns have one too."""
_TOLD_BY: Final = 400
"""So many characters of what a tool says tell its language."""
_LEAST_ALONE: Final = 4
"""So many letters a word has at least that tells a language alone."""
_ENGLISH_ENOUGH: Final = 2
"""A text with so many small English words is English, whatever script stands beside them."""
_REMEMBERED: Final = 64
"""How many texts that were read last are remembered: a search reads its task several times."""

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_HIRAGANA = "\u3040-\u309f"
_KANA = "\u3040-\u30ff"
_HANGUL = "\uac00-\ud7af"
_CYRILLIC = "\u0400-\u04ff"
_UNREAD = "\u0370-\u03ff\u0530-\u10ff\u1200-\u137f\u1780-\u17ff"
"""Other scripts, from Greek and Arabic to Khmer, which no glossary has."""
_ENGLISH_ALONE: Final = frozenset(("the", "and", "with", "from", "this", "for"))
"""Words that tell English at once: most tools have one, and none takes long to read."""
_SCRIPTS: Final = (("ko", _HANGUL), ("ja", _KANA), ("zh", _HAN), ("ru", _CYRILLIC))
"""The languages that their script tells, in the order in which it is looked for."""
_MARKS = str.maketrans(dict(zip("，。、；：？！（）「」", ',.,;:?!()""', strict=True)))  # noqa: RUF001 (they are Chinese)
_JOINING: Final = ("'", "’", "-")  # noqa: RUF001 (an apostrophe)
_KEPT_WORDS: Final = 2
"""So many characters a Chinese word has at least that is read in a Japanese text, whose own glossary lacks it."""
_DENIED: Final = re.compile(
    r"(?<!can )(?<!could )\b(?:(?:do|does|did) ?)?(?:not|n['\u2019]t|never|without|no)\b(?! only)(?P<before> \w+)? "
    r"(?:delet|remov|eras|clear|eliminat|overwrit)\w*"
    r"|\b(?:delet|remov|eras|clear|eliminat|overwrit)\w*(?P<after> \w+)? (?:not(?! only)|nothing)\b",
    re.IGNORECASE,
)
"""What is not to be deleted, in the order of English or of the words of another language."""


@cache
def _any(characters: str) -> re.Pattern[str]:
    """Return the pattern of a run of these characters. A start compiles none of them: that takes 2 ms, which a client
    waits for."""
    return re.compile(f"[{characters}]+")


@cache
def _korean() -> re.Pattern[str]:
    """Return the pattern of Korean words with spaces between them."""
    return re.compile(f"[{_HANGUL}{_HAN}]+(?: [{_HANGUL}{_HAN}]+)*")


class Piece(Struct, frozen=True):
    """A part of a text, with its English."""

    text: str
    """As it stands there."""
    english: str | None
    """Its English words, "" if it says nothing; None where the glossary does not know it."""


class Legibility(Struct, frozen=True):
    """Which share of a text's words a search can read, and in which language they are."""

    share: float
    """Which share of its words is read, 0 to 1: as English, or by a glossary. Names and values do not count; 1 without
    any other word."""
    language: str | None
    """The code of its language, `en` for English; None where no word tells it."""


def has_han(text: str) -> bool:
    """Return whether a text has Chinese characters, which other languages have too."""
    return not text.isascii() and _any(_HAN).search(text) is not None


def is_unspaced(text: str) -> bool:
    """Return whether a text has characters of Chinese, Japanese or Korean: they are not split into words at spaces, so
    each character is a term."""
    return not text.isascii() and _any(_HAN + _KANA + _HANGUL).search(text) is not None


def put_into_english(text: str, language: str | None = None) -> str:
    """Return a text with English words in place of those that a glossary knows; a text in English as it is. `language`:
    the one that it is known to be in; else its words tell."""
    composed = _composed(text)
    language = language or language_of(composed)
    pieces = _pieces(composed, language) if language is not None else ()
    if not pieces:
        return text
    said = "".join(each.text if each.english is None else f" {each.english} " for each in pieces)
    if language == "ja":
        said = _any(_HIRAGANA).sub(" ", said)  # endings and particles that the glossary lacks
    # Without its grammar "not delete my file , only list" is read as a wish to delete.
    return " ".join(without_denied(" ".join(said.split())).split())


def without_denied(task: str) -> str:
    """Return a task in English words without the deletions that it says are not to be made."""
    return _DENIED.sub(lambda denied: f"{denied['before'] or ''} {denied['after'] or ''}", task)


def translated(text: str, language: str | None = None) -> list[Piece]:
    """Return the parts of a text that its glossary knows, in their order; [] for English. `language` as for
    `put_into_english`."""
    text = _composed(text)
    language = language or language_of(text)
    return [each for each in _pieces(text, language) if each.english is not None] if language is not None else []


def is_put_into_english(text: str) -> bool:
    """Return whether searches read the English of a text in place of its own words."""
    text = _composed(text)
    language = language_of(text)
    return language is not None and bool(_pieces(text, language))


def legibility(text: str) -> Legibility:
    from foretool.retrieval.languages import ENGLISH, fold, words_of

    text = _composed(text[:MOST_READ])
    words, language = words_of(text), language_of(text)
    known = {id(word) for word, is_known in _known_words(words, language) if is_known}
    read, unread = 0.0, float(len(_any(_UNREAD).findall(text)))
    for word in words:
        if is_unspaced(word.text):
            continue
        if id(word) in known or is_english(fold(word.text)):
            read += 1.0
        elif not _is_name(word):
            unread += 1.0
        elif language == "de":
            unread += _NOUN_OR_NAME
    for piece in _pieces(text, language) if language is not None else ():
        if is_unspaced(piece.text):
            read += len(piece.text) if piece.english is not None else 0
            unread += 0 if piece.english is not None else len(_any(_HAN + _KANA + _HANGUL).findall(piece.text))
    share = read / (read + unread) if read + unread else 1.0
    has_english = 2 * share > 1.0 and any(word.text.lower() in STOP_WORDS for word in words)
    return Legibility(share, language or (ENGLISH if has_english else None))


def _composed(text: str) -> str:
    """Return a text with each letter and its accent as one character, as glossaries have them; names of files that a
    Mac gives have two."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def language_of(text: str) -> str | None:
    """Return the code of the language of a text other than English; None for English and for an unknown one."""
    return _language_of(_composed(text[:MOST_READ]))


def language_of_tool(said: str, named: Sequence[str]) -> str | None:
    """Return the code of the language in which a tool is described; None for English and for an unknown one. Decides by
    the script, that of its names too, or by small words, without opening a glossary. `said`: its texts; `named`: its
    names."""
    from foretool.retrieval.languages import has_other_letters, tally, words_of

    if not all(map(str.isascii, (said, *named))):
        text = "\n".join((said, *named))
        if (found := _script_language(text)) is not None:
            return found
    said = _composed(said[:_TOLD_BY])
    if said.isascii() and not _ENGLISH_ALONE.isdisjoint(said.lower().split()):
        return None
    words = words_of(said)
    if has_other_letters(words):
        return None
    small = tally(words)
    best = max(small, key=lambda each: small[each].own - small[each].english)
    own, english = small[best].own, small[best].english
    return best if own >= _LEAST_SMALL_WORDS + 2 * english or (own == 2 and not english) else None


def is_english(word: str) -> bool:
    """Return whether a word in small letters is an English one that is known."""
    from foretool.retrieval.near_words import is_known

    return word in STOP_WORDS or is_known(word) or stem(word) in _english_words()


def let_go() -> None:
    """Give back the memory of the glossaries. The next use reads them again, which takes milliseconds."""
    _chinese.cache_clear()
    _runs_of.cache_clear()
    _words_of.cache_clear()
    _english_words.cache_clear()
    _remembered_pieces.cache_clear()
    _language_of.cache_clear()


class Glossary:
    """The words of a file, for a script without spaces."""

    def __init__(self, lines: Iterable[str]) -> None:
        """`lines` as in `glossary_zh.txt`."""
        self._english: dict[str, str] = {}
        self._simplified: dict[int, str] = {}
        for line in lines:
            word, _, english = line.partition("\t")
            if english.startswith(_SIMPLIFIED):
                self._simplified[ord(word)] = english[1:]
            else:
                self._english[word] = english
        self._longest: dict[str, int] = {}  # by first character, the length of the longest word
        for word in self._english:
            self._longest[word[0]] = max(len(word), self._longest.get(word[0], 0))

    def cut(self, run: str) -> Iterator[Piece]:
        """Cut a run of characters into known words and what stands between them."""
        words = run.translate(self._simplified)
        at = unknown = 0
        while at < len(words):
            size = self._size_of_word(words, at)
            if size:
                if unknown < at:
                    yield Piece(run[unknown:at], None)
                yield Piece(run[at : at + size], self._english[words[at : at + size]])
                unknown = at + size
            at += size or 1
        if unknown < at:
            yield Piece(run[unknown:], None)

    def _size_of_word(self, words: str, at: int) -> int:
        """Return the length of the longest word that begins here, 0 if none does."""
        longest = min(self._longest.get(words[at], 0), len(words) - at)
        return next((size for size in range(longest, 0, -1) if words[at : at + size] in self._english), 0)


def read_lines(language: str) -> list[str]:
    return (_FOLDER / f"glossary_{language}.txt").read_text("utf-8").splitlines()


@lru_cache(maxsize=1)
def _chinese() -> Glossary:
    return Glossary(FILE.read_text("utf-8").splitlines())


@lru_cache(maxsize=2)
def _runs_of(language: str) -> Glossary:
    """Return the glossary of Japanese or Korean."""
    lines = (line.partition("\t") for line in read_lines(language))
    return Glossary(f"{word}\t{english}" for english, _, words in lines for word in words.split(", "))


@lru_cache(maxsize=16)
def _words_of(language: str) -> WordGlossary:
    from foretool.retrieval.word_glossary import WordGlossary

    return WordGlossary(language, read_lines(language))


@lru_cache(maxsize=1)
def _english_words() -> frozenset[str]:
    """The English words that Chinese is put into, as terms: words that people use for what tools do."""
    words = (word for line in FILE.read_text("utf-8").splitlines() for word in line.partition("\t")[2].split())
    return frozenset(map(stem, {word.lower() for word in words if word.isalpha()}))


# Which language a text is in


@lru_cache(maxsize=_REMEMBERED)
def _language_of(text: str) -> str | None:
    if not text.isascii() and (found := _script_language(text)) is not None:
        return found
    return _spaced_language(text)


def _script_language(text: str) -> str | None:
    """Return the language that the script of a text tells. English that quotes a word in another script stays English;
    Chinese stands beside English words everywhere."""
    from foretool.retrieval.languages import NAMES, has_other_letters, words_of

    found = next((each for each, script in _SCRIPTS if each in NAMES and _any(script).search(text)), None)
    if found is None:
        return None
    if found == "zh":
        return found
    words = words_of(text[:MOST_READ])
    if found == "ru" and has_other_letters(words):
        return None
    english = sum(word.text.lower() in STOP_WORDS for word in words)
    return found if english < _ENGLISH_ENOUGH else None


def _spaced_language(text: str) -> str | None:
    """Return the language of a text in Latin letters; None for English and for an unknown one.

    A language is told by its small words, and in short texts by words of its glossary that are no English ones. Words
    that only English has must be fewer."""
    from foretool.retrieval.languages import MARKS, MOST_WORDS, fold, has_other_letters, tally, words_of

    words = words_of(text[:MOST_READ])[:MOST_WORDS]
    small = tally(words)
    if has_other_letters(words) or all(each.english > 1 and each.english >= each.own for each in small.values()):
        return None
    most = max(each.own for each in small.values())
    if not most and all(is_english(fold(word.text)) or _is_name(word) for word in words):
        return None
    best: tuple[int, int, str] | None = None
    for language in MARKS:
        if most > 1 and not small[language].own:
            continue
        own, found = _count_own(words, language)
        if own and (best is None or (found, own) > best[:2]):
            best = found, own, language
    return best[2] if best is not None else None


def _count_own(words: Sequence[Word], language: str) -> tuple[int, int]:
    """Return how many words tell that a text is in a language, 0 where it is not, and how many are read by its
    glossary. One word alone tells it if it stands in the glossary as it is and most of the text is that word."""
    from foretool.retrieval.languages import MARKS, fold

    own, read, against, counted = set[str](), 0, 0, 0
    for word, is_read in _known_words(words, language):
        folded = fold(word.text)
        is_small = folded in STOP_WORDS
        if is_read and (folded in MARKS[language] or not (is_small or is_english(folded))):
            own.add(folded)
        read += is_read
        against += is_small and not is_read
        counted += is_read != is_small and (is_read or not _is_name(word))
    if len(own) <= against or 2 * read < counted:
        return 0, read
    if len(own) == 1:
        (alone,) = own
        if len(alone) < _LEAST_ALONE or counted > 2 or not _words_of(language).has(alone):
            return 0, read
    return len(own), read


def _is_name(word: Word) -> bool:
    return word.start > 0 and word.text[0].isupper()


def _known_words(words: Sequence[Word], language: str | None) -> list[tuple[Word, bool]]:
    """Return the words of a text, each with whether the glossary of a language with spaces knows it."""
    from foretool.retrieval.languages import MARKS, fold

    if language not in (*MARKS, "ru"):
        return [(word, False) for word in words]
    marks = MARKS.get(language, frozenset[str]())
    known = {at for entry in _words_of(language).read(words) for at in range(entry.first, entry.last + 1)}
    return [(word, at in known or fold(word.text) in marks) for at, word in enumerate(words)]


# What is read


def _pieces(text: str, language: str) -> tuple[Piece, ...]:
    """Return all parts of a text; () where nothing is read in other words. A long text is not remembered, because it
    may have a megabyte."""
    return _remembered_pieces(text, language) if len(text) <= MOST_READ else _part(text, language)


@lru_cache(maxsize=_REMEMBERED)
def _remembered_pieces(text: str, language: str) -> tuple[Piece, ...]:
    return _part(text, language)


def _part(text: str, language: str) -> tuple[Piece, ...]:
    if language in ("ja", "ko", "zh") and not is_unspaced(text):
        return ()
    if language in ("ja", "ko", "zh"):
        return tuple(_read_runs(text, language))
    pieces = tuple(_read_words(text, language))
    return pieces if len(pieces) > 1 else ()


def _read_words(text: str, language: str) -> Iterator[Piece]:
    from foretool.retrieval.languages import words_of

    words, at = words_of(text[:MOST_READ]), 0
    for entry in _words_of(language).read(words):
        start, end = words[entry.first].start, words[entry.last].end
        yield Piece(" " if text[at:start] in _JOINING else text[at:start], None)
        yield Piece(text[start:end], entry.english)
        at = end
    yield Piece(text[at:], None)


def _read_runs(text: str, language: str) -> Iterator[Piece]:
    at = 0
    # Korean words of one meaning may stand apart, such as those of a pull request.
    runs = _any(_HAN + _KANA + _HANGUL) if language != "ko" else _korean()
    for run in runs.finditer(text, 0, MOST_READ):
        yield Piece(text[at : run.start()].translate(_MARKS), None)
        at = run.end()
        if language != "zh":
            yield from _read_run(run[0], language)
        elif _any(_KANA + _HANGUL).search(run[0]):
            yield Piece(run[0], None)
        else:
            yield from _chinese().cut(run[0])
    yield Piece(text[at:].translate(_MARKS), None)


def _read_run(run: str, language: str) -> Iterator[Piece]:
    """Read a run of a Japanese or Korean text; longer Chinese words that its glossary lacks are mostly the same."""
    for piece in _runs_of(language).cut(run):
        if piece.english is None and has_han(piece.text):
            for part in _chinese().cut(piece.text):
                yield part if len(part.text) >= _KEPT_WORDS else Piece(part.text, None)
        else:
            yield piece
