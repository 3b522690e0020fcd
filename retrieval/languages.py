"""Tells the language of a text by its words, for languages that are written in Latin letters with spaces.

Nobody says which language a task is in, and most tasks are short. So words decide that only one language has ("welche",
"dans"), against those that only English has. A text that quotes another language, or names a street in Madrid, stays
English: quotations do not count, nor small words beside a name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from foretool.retrieval.words import STOP_WORDS

ENGLISH: Final = "en"
NAMES: Final = {
    "de": "German", "fr": "French", "es": "Spanish", "pt": "Portuguese", "it": "Italian", "nl": "Dutch",
    "pl": "Polish", "ru": "Russian", "ja": "Japanese", "ko": "Korean", "zh": "Chinese",
}  # fmt: skip
"""The languages that are read beside English, by their codes."""

MOST_WORDS: Final = 80
"""So many words of a text tell its language."""

_SAID_IN: Final = {
    "de": """
        aber alle allen alles als am anderen auch auf aus bei beim bis bitte dann das dass dein deine dem den der des
        dich die diese diesem diesen dieser dieses dir doch du ein eine einem einen einer eines er es euch falls
        gib gibt hab habe haben hast heute hinzu ich ihm ihn ihr ihre im ist jetzt kann kannst kein keine man mein
        meinem meine meinen meiner mich mir mit mal nach nicht noch nur ob oder ohne sein sich sie sind soll suche uns
        unter vom von vor wann warum welche welchem welchen welcher welches wenn wer werden wie wird wir wo
        zeig zeige zu zum zur über für möchte können würde wurde um und ins
    """,
    "fr": """
        afin ai au aux avec avez avons ce ces cet cette chez combien comment dans de des donne du elle elles est et eu
        fais il ils j je jusqu la le les leur leurs lui ma mes moi mon même n ne nos notre nous ont où par pas peux
        pour pourquoi puis qu quand que quel quelle quelles quels qui quoi sa sais sans se sera ses si son sont suis
        sur ta te tes ton tous tout toute toutes très tu un une veux vos votre vous y à été être ça chaque depuis
    """,
    "es": """
        al algo algún antes aquí así cada como con cual cuando cuanto cuál cuáles cuándo cuánta cuántas cuánto cuántos
        cómo de del desde donde dónde el ella ellos en entre era eres es esa ese eso esta estaba estas este esto estos
        está están hace hacer has hasta hay haz la las le les lo los mi mis muy más me necesito nos para pero por porque
        puede puedes que quiero quién qué se según ser si sin sobre son su sus también te tengo tiene todas todo todos
        tu tus un una unas unos y ya yo él
    """,
    "pt": """
        ao aos aquela aquele as até cada com como da das de dela dele depois desde dessa desse desta deste do dos e ela
        ele eles em entre era essa esse esta estas este estes está estão eu faz fazer foi há isso isto já lá mais mas me
        mesma mesmo meu meus minha minhas muito na nas nessa nesse nesta neste no nos não nós o onde os ou para pela
        pelo por porque pra pro preciso qual quais quando quanto quantos que quem quero se sem ser seu seus sobre sua
        suas são também te tem tenho todas todos tudo um uma umas uns você vocês à às é
    """,
    "it": """
        agli ai al alla alle allo anche che chi ci ciò col come con cosa cui da dai dal dalla dalle dammi degli dei del
        della delle dello deve di dopo dove e ed è era fai fammi fra gli ha hai hanno ho i il io l la le lei lo loro lui
        ma mi mia mie miei mio mostrami ne negli nei nel nella nelle non nostra nostro o ogni per perché però più poi
        puoi qual quale quali quando quanta quante quanto quanti quella quello questa queste questi questo qui se sei
        senza si siamo sia sono sta su sua sue sui sul sulla sulle suo tra tua tue tuo tutte tutti tutto un una uno
        voglio vorrei
    """,
    "nl": """
        aan alle alles als bij dan dat de deze die dit doe door een en er geef ga geen haal heb hebben heeft heel het
        hij hoe hoeveel hun ik in is je jij jouw kan kun laat maak maar me met mij mijn moet na naar niet nog nu of om
        onder ons onze ook op over te toe toon tot tussen u uit uw van vanaf veel voor waar waarom wanneer wat we welk
        welke werd wie wij wil worden wordt zal zet ze zich zien zij zijn zoek zonder zou
    """,
    "pl": """
        aby albo ale bez by być był była było co coś czy czym dla do gdy gdzie go i ich ile im ja jak jaka jaki jakie
        jako jej jest jestem jeśli jeszcze już każdy kiedy kto która które którego której który których lub ma mam masz
        mi mnie moich moja moje mojej mojego moim mój między może można mu na nad nam nas nasz nie nim niż o od on ona
        oraz po pod podaj pokaż przed przez przy się są ta tak także te tego tej ten to tu twój tylko tym u w we
        więcej wszystkie wszystko z za ze zrób że żeby
    """,
}  # fmt: skip
"""Small words that tell one language, or a few, from English."""

_OTHER: Final = re.compile("(?![áàâäãąæçćéèêëęíìîïłñńóòôöõœśúùûüÿźżßа-яё])[ß-\u024f\u0400-\u052f\u1e00-\u1eff]")
"""A letter that none of them has, nor Russian: Latin or Cyrillic, beside a to z."""

_IN_NAMES = """
    al as da das de dei del della der di do dos du e el es i il la las le les lo los o os san und van von y
"""
_NAME_WORDS: Final = frozenset(_IN_NAMES.split())
"""Small words that also stand in names, such as "Rio de Janeiro"; they tell nothing beside a capital letter."""

_QUOTED: Final = re.compile('"[^"\n]*"|“[^“”\n]*”|„[^„“”\n]*[“”]|«[^«»\n]*»|`[^`\n]*`|「[^「」\n]*」|『[^『』\n]*』')
_CHUNK: Final = re.compile(r"\S+")
_WORDS: Final = re.compile(r"[^\W\d_]+(?:['’-]+[^\W\d_]+)*")  # noqa: RUF001 (an apostrophe)
_PART: Final = re.compile(r"[^\W\d_]+")
_EDGES: Final = ".,;:!?()[]{}<>…\"'“”„«»¿¡·*|=/"
_HUMP: Final = re.compile(r"[a-z][A-Z]")


class Word(Struct, frozen=True):
    text: str
    start: int
    end: int


def words_of(text: str) -> list[Word]:
    """Return the words of a text in their order, without those in quotation marks, names of files, code and
    identifiers, and abbreviations in capital letters."""
    quoted = [(found.start(), found.end()) for found in _QUOTED.finditer(text)]
    found = list(_outside(text, quoted))
    return found or (list(_outside(text, [])) if quoted else [])


def _outside(text: str, quoted: Sequence[tuple[int, int]]) -> Iterator[Word]:
    for chunk in _CHUNK.finditer(text):
        inside = chunk[0].strip(_EDGES)
        if not inside or not _WORDS.fullmatch(inside):
            continue
        if len(inside) == 1 and inside.isupper() and inside != "I" and chunk.start():
            continue  # a size or a mark, such as that of a table's column
        start = chunk.start() + chunk[0].index(inside)
        if any(begin <= start < end for begin, end in quoted):
            continue
        for part in _PART.finditer(inside):
            if not (len(part[0]) > 1 and part[0].isupper()) and not _HUMP.search(part[0]):
                yield Word(part[0], start + part.start(), start + part.end())


def has_other_letters(words: Sequence[Word]) -> bool:
    """Return whether a word has Latin or Cyrillic letters that no language has which is read here, such as those of
    Vietnamese, Turkish, Czech, Danish or Ukrainian. A word with a capital letter may be a name from anywhere."""
    lower = (word.text for word in words if not word.text.isascii() and word.text[0].islower())
    return any(_OTHER.search(word) is not None for word in lower)


def fold(word: str) -> str:
    """Return a word in small letters without accents, which people leave out when they type."""
    if word.isascii():
        return word.lower()
    word = word.lower().replace("ß", "ss").replace("ł", "l").replace("ё", "е")  # noqa: RUF001 (they are Cyrillic)
    if "\u0400" <= word[0] <= "\u04ff":
        return word
    return "".join(each for each in unicodedata.normalize("NFKD", word) if not unicodedata.combining(each))


_SMALL: Final = {language: frozenset(map(fold, words.split())) for language, words in _SAID_IN.items()}
MARKS: Final = {language: words - STOP_WORDS for language, words in _SMALL.items()}
"""By language, the small words that English does not have, without accents."""


class Tally(Struct):
    """How many small words of a text speak for one language, and how many for English instead."""

    own: int = 0
    """Words that English does not have."""
    english: int = 0
    """Words of English that the language does not have."""


def tally(words: Sequence[Word]) -> dict[str, Tally]:
    """Count the small words of a text for each language."""
    found = {language: Tally() for language in MARKS}
    read = words[:MOST_WORDS]
    for at, word in enumerate(read):
        small = fold(word.text)
        if small in STOP_WORDS:
            for language, known in _SMALL.items():
                found[language].english += small not in known
        elif small not in _NAME_WORDS or not _is_in_name(read, at):
            for language, marks in MARKS.items():
                found[language].own += small in marks
    return found


def _is_in_name(words: Sequence[Word], at: int) -> bool:
    """Return whether a small word stands between names, or others such as itself and names."""
    before = next((word.text for word in reversed(words[:at]) if fold(word.text) not in _NAME_WORDS), "")
    after = next((word.text for word in words[at + 1 :] if fold(word.text) not in _NAME_WORDS), "")
    return before[:1].isupper() and after[:1].isupper()
