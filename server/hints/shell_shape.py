"""Reads which programs a command of a shell ran, with their subcommands and nothing else.

A hook runs this before anything is sent, so arguments, paths, values and the words of unknown programs stay in its
process. It knows as much of a shell's grammar as that takes: quotes, operators, comments, redirections, here-documents,
substitutions, assignments, and programs that run another one (`sudo`, `env`, `bash -c`). It does not know aliases and
functions: what they stand for is nothing that was typed.
"""

from __future__ import annotations

import json
import re
from contextlib import suppress

from foretool.retrieval.shell_table import FETCHING, PROGRAMS, Shape, subcommands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

_TOOLS: Final = frozenset(
    ["Bash", "bash", "shell", "run_shell_command", "run_in_terminal", "local_shell", "exec_command"]
)
"""What clients call their shell."""
MOST_SHAPES: Final = 8
"""Shapes that are read of one command."""
_MOST_CHARACTERS: Final = 8_000
"""Characters of a command that are read; what follows is mostly a file that a here-document writes."""
_DEEPEST: Final = 3
"""How deep commands within commands are read."""
_MOST_WORDS: Final = 3
"""Words of the longest subcommand."""

_RUNNERS: Final = frozenset(
    [
        "sudo",
        "doas",
        "env",
        "time",
        "nohup",
        "exec",
        "nice",
        "ionice",
        "timeout",
        "xargs",
        "watch",
        "stdbuf",
        "builtin",
        "command",
    ]
)
"""Programs that run the program behind them."""
_SHELLS: Final = frozenset(["sh", "bash", "zsh", "dash", "ksh"])
_KEYWORDS: Final = frozenset(["if", "then", "elif", "else", "do", "while", "until", "!", "{"])
"""Words of the shell that a command may follow."""
_LOOPS: Final = frozenset(("for", "case", "function"))
_UNPACKING: Final = frozenset((*_SHELLS, "sudo", "tar", "gunzip", "unzip", "python", "python3", "node"))
"""Programs that run or unpack what they are given: what is fetched for them is no page."""
_ASKS_FOR_HELP: Final = frozenset(("--help", "-help", "--version", "-version", "-V", "-?"))
_NOT_FETCHED: Final = (
    "-X", "--request", "-d", "--data", "--json", "-F", "--form", "-T", "--upload", "-o", "-O", "--output", "--remote",
    "-I", "--head", "-H", "--header", "-u", "--user", "-b", "--cookie", "-r", "--recursive", "-P", "--post", "-i",
)  # fmt: skip
"""Options of `curl` and `wget` with which no tool that reads a page does the same."""


_HERE_DOCUMENT: Final = re.compile(r"(?<!<)<<-?\s*['\"]?(\w+)['\"]?([^\n]*)\n")
"""How a here-document begins; the rest of its line belongs to the command."""
_SUBSTITUTION: Final = re.compile(r"\$\(([^()]*)\)|`([^`]*)`")
"""A command within a word. One within another one is not looked for."""
_OPERATORS: Final = ";&|()<>\n"


def read_event(event: Any) -> list[Shape]:
    """Return the shapes of the commands that a client's hook tells of; none for another tool or an unknown form."""
    if not isinstance(event, dict):
        return []
    if event.get("hook_event_name") == "afterShellExecution":  # Cursor's, which comes behind its shell alone
        given: Any = event
    elif (event.get("tool_name") or event.get("toolName")) in _TOOLS:
        given = event.get("tool_input") or event.get("toolArgs")
    else:
        return []
    if isinstance(given, str):
        given = json.loads(given)
    command = given.get("command") if isinstance(given, dict) else None
    if isinstance(command, list):  # a program with its arguments
        words = [word for word in command if isinstance(word, str)]
        return list(dict.fromkeys(_shapes_of(words, "", 0)))[:MOST_SHAPES]
    return read_shapes(command) if isinstance(command, str) else []


def read_shapes(command: str) -> list[Shape]:
    """Return the shapes of the commands in a text, each once, in their order."""
    found = dict.fromkeys(_read(command[:_MOST_CHARACTERS], 0))
    return list(found)[:MOST_SHAPES]


def _read(text: str, depth: int) -> Iterator[Shape]:
    if depth > _DEEPEST:
        return
    commands = list(_split(text))
    for place, (words, _) in enumerate(commands):
        after, is_pipe = commands[place + 1] if place + 1 < len(commands) else ([], False)
        yield from _shapes_of(words, _program(after[0]) if is_pipe and after else "", depth)
        for word in words:
            for unquoted, ticked in _SUBSTITUTION.findall(word):
                yield from _read(unquoted or ticked, depth + 1)


def _split(text: str) -> Iterator[tuple[list[str], bool]]:
    """Yield the words of each simple command, and whether it reads the output of the one before. Where output goes to a
    file, the word `>` stands. Nothing follows a quote that is not closed."""
    from shlex import shlex

    lexer = shlex(_without_documents(text.replace("\\\n", " ")), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    words: list[str] = []
    is_piped = is_comment = is_target = False
    with suppress(ValueError):
        for piece in lexer:
            is_operator = all(char in _OPERATORS for char in piece)
            is_comment = (is_comment or piece.startswith("#")) and not (is_operator and "\n" in piece)
            if is_comment:
                continue
            if is_operator and ("<" in piece or ">" in piece) and not piece.endswith(("(", "\n")):
                is_target = True
                words += [">"] if ">" in piece and words[-1:] != ["2"] else []
            elif is_operator:
                yield words, is_piped
                words, is_piped, is_target = [], piece == "|", False
            elif is_target:
                is_target = False
            else:
                words.append(piece)
    yield words, is_piped


def _without_documents(text: str) -> str:
    """Return a text without its here-documents."""
    kept, at = "", 0
    while (found := _HERE_DOCUMENT.search(text, at)) is not None:
        kept += f"{text[at : found.start()]}{found[2]}\n"
        end = re.compile(rf"^[ \t]*{found[1]}$", re.MULTILINE).search(text, found.end())
        at = end.end() if end is not None else len(text)
    return kept + text[at:]


def _shapes_of(given: Sequence[str], piped_into: str, depth: int) -> Iterator[Shape]:
    words = _skip_runners(given)
    program = _program(words[0]) if words and words[0] not in _LOOPS else ""
    if program in _SHELLS:
        for place, word in enumerate(words[1:-1], 1):
            if word.startswith("-") and not word.startswith("--") and "c" in word:
                yield from _read(words[place + 1], depth + 1)
                return
    if program not in PROGRAMS or not _ASKS_FOR_HELP.isdisjoint(words[1:]):
        return
    known = subcommands(program)
    if program in FETCHING:
        if _fetches(program, words[1:]) and piped_into not in _UNPACKING:
            yield (program,)
    elif (found := _subcommand(words[1:], known)) in known:
        yield (program, *found)


def _skip_runners(words: Sequence[str]) -> Sequence[str]:
    """Return the words from the program on that does the work; () where only its place is asked for."""
    place, is_run = 0, False
    while place < len(words):
        word = words[place]
        if _program(word) in _RUNNERS:
            is_run = True
            if word == "command" and words[place + 1 : place + 2] in (["-v"], ["-V"]):
                return ()
        # Behind a runner stand its options with their values: the first known program is the one it runs.
        elif not (_is_assignment(word) or word in _KEYWORDS) and (
            not is_run or _program(word) in PROGRAMS or _program(word) in _SHELLS
        ):
            return words[place:]
        place += 1
    return ()


def _program(word: str) -> str:
    """Return the name of a program; "" for a script of the working folder."""
    folder, slash, name = word.rpartition("/")
    if slash and not (folder.startswith("/") or folder == "" or folder.endswith("bin")):
        return ""
    return name.removesuffix(".exe")


def _is_assignment(word: str) -> bool:
    name, equals, _ = word.partition("=")
    return bool(equals) and name.isidentifier()


def _subcommand(words: Sequence[str], known: frozenset[Shape]) -> Shape:
    """Return the subcommand at the beginning of the arguments. Before its first word, the values of options are passed
    over: which options have one differs from program to program."""
    found: Shape = ()
    was_option = False
    starts = {each[: size + 1] for each in known for size in range(len(each))}
    dotted = {each for each in known if each and each[0].startswith(".")}
    for word in words:
        if word == "--":
            break
        if word.startswith("-"):
            if found:
                break
            was_option = "=" not in word
        elif (*found, word) in starts:
            found = (*found, word)
        elif (first := word.partition(" ")[:1]) in dotted:
            return first
        elif found or not (was_option or dotted or () in known):
            break
        else:
            was_option = False
        if len(found) == _MOST_WORDS:
            break
    return found


def _fetches(program: str, words: Sequence[str]) -> bool:
    """Return whether `curl` or `wget` prints one page of a public host, and does no more."""
    if ">" in words:
        return False
    if program == "wget":
        if not (printed := [word for word in words if word.endswith("O-")] or "-O -" in " ".join(words)):
            return False
        words = [word for word in words if not (printed and word.endswith(("O-", "-O")))]
    hosts = [word for word in words if not word.startswith("-") and ("://" in word or "." in word.partition("/")[0])]
    if len(hosts) != 1 or not _is_public(hosts[0]):
        return False
    options = (word for word in words if word.startswith("-") and len(word) > 1)
    return not any(_changes_fetch(word) for word in options)


def _changes_fetch(option: str) -> bool:
    if option.startswith("--"):
        return option.startswith(tuple(each for each in _NOT_FETCHED if each.startswith("--")))
    return any(each[1] in option for each in _NOT_FETCHED if not each.startswith("--"))


def _is_public(address: str) -> bool:
    """Return whether an address is of a host that is not in this machine or its network."""
    scheme, colons, rest = address.partition("://")
    host = (rest if colons else scheme).partition("/")[0].rpartition("@")[2].partition(":")[0].lower()
    if colons and scheme not in ("http", "https"):
        return False
    is_number = host.replace(".", "").isdigit()
    return "." in host and "$" not in address and not is_number and not host.endswith((".local", ".internal", ".lan"))
