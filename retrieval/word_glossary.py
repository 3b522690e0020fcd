"""A glossary of a language that is written with spaces: it finds words in whatever form they stand.

A line of the file has English words, a tab, and the words that mean them, with commas between: `folder` and `Ordner,
Verzeichnis`. Words that say nothing here stand in a line without English. A word of a text is looked for as it is
written, then without the "s" of a plural or genitive, then by its stem (an ending is cut off), and in German and Dutch
as a compound of two known words. Loan words have that "s" too, and no other ending.
"""

# ruff: noqa: RUF001 (Cyrillic letters look like Latin ones)
from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from foretool.retrieval.languages import Word, fold

_LEAST_STEM: Final = 3
"""How many letters are left of a word at least, where an ending is cut off."""
_LONGEST_PHRASE: Final = 4
"""How many words a phrase has at most."""
_LONGEST_WORD: Final = 40
"""A longer word is not looked for."""
_FARTHEST: Final = 14
"""How many words stand at most between a verb and the part of it that comes last."""

_ENDINGS: Final = {
    "de": "ungen ung erinnen ern est et em en er es st te ten tes ter e n s t",
    "fr": """
        issements issement issons issez issent issant issait atrices atrice ations ation ements ement ateurs ateur
        erions erons erez eront erait erai era eras aient ait ais ant ants ante antes ees ee es er ez ir is it ie ies
        ons ont ent ions iez e s x i
    """,
    "es": """
        amientos amiento imientos imiento aciones acion adoras adores adora ador ariamos aremos aran aras are ara
        ieron iendo ando abas aban aba ados adas ado ada idos idas ido ida amos emos imos aste iste aron asen ase
        arlos arlas arlo arla arme arte erlo irlo eme ame ar er ir an en as es os ia a e i o s n
    """,
    "pt": """
        amentos amento imentos imento acoes acao adores adora ador aremos arao aria ando endo indo avam ava ados adas
        ado ada idos idas ido ida amos emos imos aram eram iram asse ei ou eu iu ar er ir am em as es os oes ao ais eis
        a e i o s m
    """,
    "it": """
        amenti amento imenti imento azioni azione atori atrice atore eranno erebbe eremo erai era ando endo avano ava
        evano eva ati ate ata ato iti ite ita ito uti ute uta uto iamo ate ete ite arlo arla armi arti erlo irlo ami imi
        are ere ire ano ono i a e o
    """,
    "nl": "ingen ing eren erende ende end en er es et te ten de den t e s n",
    "pl": """
        owania owanie owaniu owaniem owac aniach aniami aniom aniem ania aniu anie eniach eniami eniem enia eniu enie
        ujesz ujemy ujcie ujac uje uja uj owal owala alem alam ales alas ali aly ala alo al ilem ilam ili ily ila il ac
        ec ic yc ach ami ych ymi ego emu iego iej ie ia iow owi owie om ow ej ym im em a e i o u y c
    """,
    "ru": """
        ированием ирования ирование ировать ироваться ениями ениях ением ения ению ений ение аниями аниях анием ания
        анию аний ание иями иях ием ии ию ия ие ами ями ах ях ого его ому ему ыми ими ые ие ый ий ой ей ая яя ое ее ую
        юю ых их ым им ешь ишь ете ите ете ает яет ует ют ут ат ят ал ала али ло ла ли ил ила или ать ять еть ить уть ти
        ться тся ся сь йте й ов ев ам ям ом ем а я о е у ю ы и ь
    """,
}  # fmt: skip
"""By language, endings without accents."""
_JOINED: Final = {"de": ("", "s", "n", "en", "es", "er", "e"), "nl": ("", "s", "en", "e")}
"""By language that joins words to one, what stands between them."""
_LAST: Final = {
    "de": "an auf aus ein ab um bei vor nach durch zu los her hin weg mit runter herunter hoch rauf raus rein hinzu "
    "zusammen zuruck wieder auseinander fest bereit frei",
    "nl": "aan op uit in af om bij voor na door toe weg mee neer terug samen over",
}
"""By language, the parts of verbs that stand last: "lade die Datei herunter"."""
_BEFORE_PARTICIPLE: Final = "ge"


_BETWEEN: Final = re.compile("[ '’-]")


class Entry(NamedTuple):
    """A word or phrase of a text that the glossary knows, with its English."""

    first: int
    last: int
    """Its words, by their places among those of the text."""
    english: str


class WordGlossary:
    """The words and phrases of one language with their English, from one file."""

    def __init__(self, language: str, lines: Iterable[str]) -> None:
        self._endings = frozenset(_ENDINGS[language].split())
        self._longest_ending = max(map(len, self._endings))
        self._joints = _JOINED.get(language, ())
        self._last = frozenset(_LAST.get(language, "").split())
        self._accented: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self._stems: dict[str, str] = {}
        self._phrases: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        parted = (line.partition("\t") for line in lines)
        entries = [(written, english) for english, _, words in parted for written in words.split(", ")]
        # Where an accent tells two words apart, the one without it is what people type without thinking.
        for written, english in sorted(entries, key=lambda each: not each[0].isascii()):
            self._add(written, english)
        for phrases in self._phrases.values():
            phrases.sort(key=lambda each: len(each[0]), reverse=True)

    def _add(self, written: str, english: str) -> None:
        words = _BETWEEN.split(fold(written))
        if len(words) > 1:
            stems = tuple(map(self.stem, words))
            self._phrases.setdefault(stems[0], []).append((stems, english))
            return
        self._accented.setdefault(written.lower(), english)
        self._written.setdefault(words[0], english)
        self._stems.setdefault(self.stem(words[0]), english)

    def stem(self, word: str) -> str:
        """Cut the longest ending off a word without accents."""
        size = len(word)
        for at in range(max(size - self._longest_ending, _LEAST_STEM), size):
            if word[at:] in self._endings:
                return word[:at]
        return word

    def has(self, word: str) -> bool:
        """Return whether a word without accents stands in the file as it is."""
        return word in self._written

    def find(self, word: str, written: str = "") -> str | None:
        """Return the English of a word; None for an unknown one. `word` is without accents, `written` the same word in
        small letters with them."""
        if len(word) > _LONGEST_WORD:
            return None
        if (found := self._accented.get(written)) is not None:
            return found
        if (found := self._written.get(word)) is not None:
            return found
        singulars = self._singulars(word)
        if (found := next(filter(None, map(self._written.get, singulars)), None)) is not None:
            return found
        if (found := self._find_stem(word)) is not None:
            return found
        if not self._joints:
            return None
        if word.startswith(_BEFORE_PARTICIPLE) and (found := self._stems.get(self.stem(word[2:]))) is not None:
            return found
        return next(filter(None, map(self._find_compound, (word, *singulars))), None)

    def _singulars(self, word: str) -> list[str]:
        """Return a word without the ending "s", or "es", that a plural or genitive has, if it may have one. A stem is
        shorter than that where the word itself looks as if it had an ending: "Ordner", "Konflikt", "bouton"."""
        endings = (each for each in ("s", "es") if each in self._endings and word.endswith(each))
        return [word.removesuffix(each) for each in endings if len(word) - len(each) >= _LEAST_STEM]

    def _find_stem(self, word: str) -> str | None:
        """Return the English of a form of a known word. A German order has no ending ("benenn"), and may look as if it
        had one."""
        return self._stems.get(self.stem(word)) or self._stems.get(word)

    def _find_compound(self, word: str) -> str | None:
        """Return the English of a compound of known words, the longest last one first."""
        for at in range(_LEAST_STEM, len(word) - _LEAST_STEM):
            last = self._written.get(word[at:]) or self._stems.get(self.stem(word[at:]))
            if not last:
                continue
            for joint in self._joints:
                first = word[: at - len(joint)] if word[:at].endswith(joint) else ""
                if len(first) >= _LEAST_STEM and (
                    known := self._written.get(first) or self._stems.get(first) or self._stems.get(self.stem(first))
                ):
                    return f"{known} {last}"
        return None

    def read(self, words: Sequence[Word]) -> Iterator[Entry]:
        """Yield the known words of a text, in their order."""
        folded = [fold(word.text) for word in words]
        verbs, parts = self._join_verbs(words, folded)
        at = 0
        while at < len(folded):
            if at in parts:
                yield Entry(at, at, "")
            elif at in verbs:
                yield Entry(at, at, verbs[at])
            elif (phrase := self._find_phrase(folded, at)) is not None:
                yield phrase
                at = phrase.last
            elif (english := self.find(folded[at], words[at].text.lower())) is not None:
                yield Entry(at, at, english)
            at += 1

    def _find_phrase(self, folded: Sequence[str], at: int) -> Entry | None:
        phrases = self._phrases.get(self.stem(folded[at]))
        if phrases is None:
            return None
        ahead = [self.stem(word) for word in folded[at : at + _LONGEST_PHRASE]]
        for stems, english in phrases:
            if tuple(ahead[: len(stems)]) == stems:
                return Entry(at, at + len(stems) - 1, english)
        return None

    def _join_verbs(self, words: Sequence[Word], folded: Sequence[str]) -> tuple[dict[int, str], set[int]]:
        """Return the English of verbs whose other part comes later, by place, and the places of those parts."""
        verbs, parts = dict[int, str](), set[int]()
        for at, word in enumerate(folded):
            if word not in self._last:
                continue
            for before in range(at - 1, max(at - _FARTHEST, 0) - 1, -1):
                joined = f"{word}{folded[before]}"
                english = self._written.get(joined) or self._find_stem(joined)
                if english and before not in verbs and folded[before] not in self._last:
                    verbs[before] = english
                    parts.add(at)
                    break
        return verbs, parts
