"""Tools that delete: a task that has no word for it hardly ever needs one, and each is a near copy of one that adds.

"Remember that her birthday is on 4 May" has the words of `delete_observations` ("remembered facts") as much as those of
`add_observations`. Of some 200 tasks of public sets that need a tool that deletes, five have none of the words below.

In the same way a tool that only reads is a near copy of the one that writes: a step that begins with "remember" or
"save" needs the second, and a question the first. Of some 2,400 questions of public sets without a word for a deed four
need a tool whose name says that it changes something, and of 1,800 tasks that begin with a word for looking ("show the
latest commits") and join no deed to it, fourteen.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct, field

from foretool.retrieval.glossary import without_denied
from foretool.retrieval.words import in_words, terms

UNASKED: Final = 0.5
"""What the score of a tool that deletes is multiplied by where the task asks for nothing of the kind."""

IDLE: Final = 0.8
"""What the score of a tool that only reads is multiplied by where a need begins with a change."""

RASH: Final = 0.8
"""What the score of a tool that changes something is multiplied by where a need only asks a question."""

NEARLY_NAMED: Final = 0.56
"""From this cosine on a task may name what a tool deletes in other words: "everything you remember" is observations."""

_DELETING: Final = frozenset(("delete", "remove", "erase", "purge", "destroy"))
_FIRST: Final = "clear"
_READING: Final = frozenset(
    ("count", "describe", "fetch", "find", "get", "list", "open", "query", "read", "search", "show", "view")
)
_CHANGES: Final = frozenset(
    (
        "add", "append", "apply", "archive", "assign", "cancel", "change", "checkout", "close", "commit",
        "complete", "copy", "create", "deploy", "disable", "draft", "drop", "edit", "enable", "fill", "fork",
        "format", "import", "insert", "install", "manage", "merge", "modify", "move", "patch", "post", "publish",
        "push", "rename", "replace", "reply", "reschedule", "reset", "resize", "restart", "restore", "save",
        "send", "set", "sort", "start", "stop", "submit", "toggle", "transfer", "uninstall", "update",
        "upgrade", "upload", "write",
    )
)  # fmt: skip
"""Of 1,141 tools of 58 real servers that say they only read, `changes` is true of none."""
_ASKED: Final = re.compile(
    r"\b(?:delet|remov|drop|clear|eras|purg|destroy|forg[eo]t|cancel|clean|discard|undo|trash|wip|uninstall|unset"
    r"|reset|empt|unlink|revok|retract|eliminat|prun|kill|stop|clos|dispos|un(?:subscrib|pin|follow|assign)|detach|strip"
    r"|tear|retir|throw|expung|redundan|duplicat|obsolet|outdat)\w*\b",
    re.IGNORECASE,
)
_MAY_ASK: Final = re.compile(
    r"\b(?:rid|bin|gone|old|stale|unused|off|out|away|without|no|not|cut|take|taking)\b", re.IGNORECASE
)
"""Words that ask for it in "I need no branch of that name", and say nothing of the kind in what is to be kept."""
_BEGINS: Final = r"\W*(?:(?:please|pls|can you|could you|just|now) )*"
"""What may stand before the first word of a task: that word is the deed."""
_KEEPING: Final = re.compile(
    _BEGINS + r"(?:add|append|book|create|draft|insert|jot|note|post|remember|save"
    r"|schedule|send|share|store|submit|write)\b",
    re.IGNORECASE,
)
"""The beginning of a task that asks to keep or to tell what follows: "remember that Anna eats no nuts"."""
_CHANGING: Final = re.compile(
    _BEGINS + r"(?:add(?! \d)|append|apply|book|cancel|change|copy|create|draft|edit"
    r"|enter|fill|insert|install|jot|keep|make|mark|merge|move|name|note|notify|post|publish|push|put|remember|rename"
    r"|replace|reply|reset|save|schedule|send|set|share|start|stop|store|submit|turn|update|upload|write)\b",
    re.IGNORECASE,
)
"""The beginning of a task that asks for a change. Elsewhere "write" may be a question."""
_QUESTION: Final = re.compile(
    r"\W*(?:what|which|who|whom|whose|where|when|why|how|is|are|was|were|does|do|did|has|have|tell me|show me)\b",
    re.IGNORECASE,
)
_REQUEST: Final = re.compile(r"\b(?:can|could|would|will) you\b", re.IGNORECASE)
_DEEDS: Final = (
    r"(?:add|append|appl|book|build|buil[dt]|buy|cancel|chang|clos|commit|convert|cop[iy]|creat|delet|draft|drop|edit"
    r"|enter|fill|generat|insert|install|keep|log|mak|mark|merg|mov|order|pay|post|publish|push|put|record|regist"
    r"|remember|remov|renam|replac|repl[iy]|reset|sav|schedul|send|set|shar|sign|start|stop|stor|submit|turn|updat"
    r"|upload|writ)\w*"
)
_DEED: Final = re.compile(rf"\b{_DEEDS}\b", re.IGNORECASE)
_LOOKING: Final = re.compile(
    _BEGINS + r"(?:browse|check(?! (?:\w+ )?(?:in|out|off)\b)|compare|count|describe|display|explain|fetch"
    r"|find|get(?! rid\b)|list|look up|read|search|show|summari[sz]e|tell (?:me|us)|view"
    r"|what|which|who|whose|where|when|how (?:many|much))\b",
    re.IGNORECASE,
)
"""The beginning of a task that wants to see something; a word for a deed may then be what it wants to see."""
_JOINED: Final = re.compile(
    r"(?:\b(?:and|then|to|so|after|before|or|also|please)\b|[,;.:\n-])\s*"
    r"(?:(?:if|once|when) (?:[\w']+ ){1,4}?)?"
    r"(?:(?:also|then|please|you|i|we|it|me|want|need|would|like|to|can|could) ){0,4}"
    r"(?:(?!(?:check|compar|describ|explain|open|read|show|summari|tell|view)\w* )\w+ (?:it|him|her|them)\b"
    r"|\b(?:answer|approv|assign|comment|e?mail|fix|invit|label|messag|notif|open|respond)"
    r"|" + _DEED.pattern + ")",
    re.IGNORECASE,
)
"""A deed that is asked for besides: "find the file and send it", or what is done with that which was found."""
_FORBIDDEN: Final = re.compile(
    r"(?:(?<!\bi )(?<!\bwe )(?<!you )(?<!they )(?<!why )\b(?:do not|don['\u2019]?t|never)(?! only\b| just\b)"
    rf"|\b(?:without|nothing))(?: \w+)?? (?:touch\w*|modif\w*|archiv\w*|{_DEEDS})(?: (?:or|and|nor) {_DEEDS})*"
    rf"(?: (?:any|anything|it|them|yet)\b)*|\b{_DEEDS} nothing\b|\bno (?:\w+ )?{_DEEDS}(?:s|ing|ion)\b",
    re.IGNORECASE,
)
"""What a task says is not to be done, in the order of English or of the words of another language."""
_PAST: Final = re.compile(
    r"\W*(?:did|was|were|had|who|whose|have (?:i|we|they|you)|has)\b(?:[^.,;:!?\n-]|[.-](?=\w))*+[?!\s]*", re.IGNORECASE
)
"""One clause that asks what was done, whatever word for a deed it has: "was the file deleted in the last commit"."""
_ENGLISH: Final = re.compile(
    r"\b(?:the|my|this|that|these|what|which|and|of|with|from|for|to|is|are|how|when|it|you|only|nothing)\b",
    re.IGNORECASE,
)
"""Words that only English has: of a task in another language nobody knows how it says that something is to go."""


def deletes(name: str) -> bool:
    words = in_words(name).split()
    return words[:1] == [_FIRST] or not _DELETING.isdisjoint(words)


def only_reads(name: str) -> bool:
    """Return whether a tool's name begins with a word for reading."""
    return not _READING.isdisjoint(in_words(name).split()[:1])


def changes(name: str) -> bool:
    """Return whether a tool's name begins with a word for a change, or has one behind another that does not read: the
    name of its server or of a thing. `API-post-search` only reads: its verb is the method of HTTP."""
    words = in_words(name).split()[:2]
    return words != ["api", "post"] and _READING.isdisjoint(words[:1]) and not _CHANGES.isdisjoint(words)


def only_asks(task: str) -> bool:
    """Return whether a task is a question in English without any word for a deed, or asks what was done, or begins with
    a word for looking and joins no deed to it. What it forbids does not count."""
    task = _FORBIDDEN.sub(" ", task)
    if _PAST.fullmatch(task) is not None:
        return True
    if _ASKED.search(task) is not None:
        return False
    is_question = _QUESTION.match(task) is not None or ("?" in _behind_words(task) and not _REQUEST.search(task))
    if is_question and _DEED.search(task) is None:
        return True
    return _LOOKING.match(task) is not None and _JOINED.search(task) is None


def _behind_words(task: str) -> str:
    """Return what stands behind the last letter or digit of a task. No pattern: one that looks for an end from every
    place takes seconds for a task of question marks."""
    at = len(task)
    while at and not (task[at - 1].isalnum() or task[at - 1] == "_"):
        at -= 1
    return task[at:]


class Deeds(Struct):
    """Slots of tools by what their names say that they do: delete, read or change."""

    deleting: set[int] = field(default_factory=set)
    reading: set[int] = field(default_factory=set)
    """They only read."""
    changing: set[int] = field(default_factory=set)
    """They change something; those that delete are among them."""

    def add(self, slot: int, name: str) -> None:
        if deletes(name):
            self.deleting.add(slot)
        elif only_reads(name):
            self.reading.add(slot)
        if changes(name) or slot in self.deleting:
            self.changing.add(slot)

    def drop(self, slot: int) -> None:
        for slots in (self.deleting, self.reading, self.changing):
            slots.discard(slot)

    def copy(self) -> Deeds:
        return Deeds(set(self.deleting), set(self.reading), set(self.changing))


def asks_to_delete(task: str) -> bool:
    """Return whether a task has an English word that asks for something to be deleted."""
    if _ASKED.search(task) is not None:
        return True
    return _KEEPING.match(task) is None and _MAY_ASK.search(task) is not None


def asks_to_change(task: str) -> bool:
    """Return whether a task begins with an English word for something that is to be made, changed or sent."""
    return _CHANGING.match(task) is not None


def is_unasked(task: str) -> bool:
    """Return whether a task in English clearly asks for no deletion."""
    asked = without_denied(task)
    return (asked != task or _ENGLISH.search(task) is not None) and not asks_to_delete(asked)


def forbidden_deeds(task: str) -> frozenset[str]:
    """Return the terms of what a task says is not to be done."""
    return frozenset(terms(" ".join(found[0] for found in _FORBIDDEN.finditer(task))))


def says_nothing_of_deleting(task: str) -> bool:
    """Return whether a task in English has no word for deleting that is not denied. Of 72 tasks of public sets that
    need a tool that deletes 69 have one, and 4 of 100 others."""
    asked = without_denied(task)
    return (asked != task or _ENGLISH.search(task) is not None) and _ASKED.search(asked) is None


def deletes_something_else(task: str, name: str, said: str) -> bool:
    """Return whether a tool deletes, and nothing in the task names what: "delete a file" and a tool that deletes
    worksheets. `task`: in English; `said`: the name of the server, and what the tool says of itself."""
    if not deletes(name):
        return False
    wanted = terms(_ASKED.sub(" ", task))
    return bool(wanted) and set(wanted).isdisjoint(terms(f"{in_words(name)} {said}"))
