"""Reads which programs a command of a shell ran, with their subcommands and nothing else.

A hook runs this before anything is sent, so arguments, paths, values and the words of unknown programs stay in its
process. It knows as much of a shell's grammar as that takes: quotes, operators, comments, redirections, here-documents,
substitutions, assignments, and programs that run another one (`sudo`, `env`, `bash -c`). It does not know aliases and
functions: what they stand for is nothing that was typed.
"""

from __future__ import annotations

import json

from foretool.retrieval.shell_table import FETCHING, PROGRAMS, Shape, subcommands

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

_TOOLS: Final = frozenset(["Bash", "bash", "shell", "run_shell_command", "local_shell", "exec_command"])
"""What clients call their shell."""
MOST_SHAPES: Final = 8
"""Shapes that are read of one command."""
_MOST_CHARACTERS: Final = 20_000
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
_UNPACKING: Final = frozenset((*_SHELLS, "sudo", "tar", "gunzip", "unzip", "python", "python3", "node"))
"""Programs that run or unpack what they are given: what is fetched for them is no page."""
_ASKS_FOR_HELP: Final = frozenset(("--help", "-help", "--version", "-version", "-V", "-?"))
_NOT_FETCHED: Final = (
    "-X", "--request", "-d", "--data", "--json", "-F", "--form", "-T", "--upload", "-o", "-O", "--output", "--remote",
    "-I", "--head", "-H", "--header", "-u", "--user", "-b", "--cookie", "-r", "--recursive", "-P", "--post", "-i",
)  # fmt: skip
"""Options of `curl` and `wget` with which no tool that reads a page does the same."""


class _Words:
    """One simple command: its words without quotes, and whether its output goes to a file or into which program."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.is_written = False
        self.next_program = ""


def read_event(event: Any) -> list[Shape]:
    """Return the shapes of the commands that a client's hook tells of; none for another tool or an unknown form."""
    if not isinstance(event, dict) or (event.get("tool_name") or event.get("toolName")) not in _TOOLS:
        return []
    given = event.get("tool_input") or event.get("toolArgs")
    if isinstance(given, str):
        given = json.loads(given)
    command = given.get("command") if isinstance(given, dict) else None
    if isinstance(command, list):  # a program with its arguments
        words = _Words()
        words.words = [word for word in command if isinstance(word, str)]
        return list(dict.fromkeys(_shapes_of(words, 0)))[:MOST_SHAPES]
    return read_shapes(command) if isinstance(command, str) else []


def read_shapes(command: str) -> list[Shape]:
    """Return the shapes of the commands in a text, each once, in their order."""
    found = dict.fromkeys(_read(command[:_MOST_CHARACTERS], 0))
    return list(found)[:MOST_SHAPES]


def _read(text: str, depth: int) -> Iterator[Shape]:
    if depth > _DEEPEST:
        return
    reader = _Reader(text)
    for each in reader.read():
        yield from _shapes_of(each, depth)
    for inner in reader.inner:
        yield from _read(inner, depth + 1)


def _shapes_of(command: _Words, depth: int) -> Iterator[Shape]:
    words = _skip_runners(command.words)
    if not words:
        return
    program = _program(words[0])
    if program in _SHELLS:
        for place, word in enumerate(words[1:-1], 1):
            if word.startswith("-") and not word.startswith("--") and "c" in word:
                yield from _read(words[place + 1], depth + 1)
                return
    if program not in PROGRAMS or not _ASKS_FOR_HELP.isdisjoint(words[1:]):
        return
    if program in FETCHING:
        if _fetches(program, words[1:]) and not command.is_written and command.next_program not in _UNPACKING:
            yield (program,)
        return
    known = subcommands(program)
    found = _subcommand(words[1:], known)
    if found in known:
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


class _Reader:
    """Cuts a text into simple commands. `inner`: the texts of substitutions, which are commands as well."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self.inner: list[str] = []
        self._ends: list[str] = []
        """The last words of here-documents whose lines are still to come."""

    def read(self) -> list[_Words]:
        found = [_Words()]
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r":
                self._at += 1
            elif self._text.startswith("\\\n", self._at):
                self._at += 2
            elif char == "#":
                self._skip_to_line_end()
            elif char in ";&|\n()":
                self._at += 1
                if char == "\n":
                    self._skip_documents()
                is_pipe = char == "|" and self._text[self._at : self._at + 1] not in "|&"
                found.append(_Words())
                if is_pipe and len(found) > 1:
                    found[-1].next_program = "|"
            elif char in "<>" or (char.isdigit() and self._text[self._at + 1 : self._at + 2] in ("<", ">")):
                self._redirect(found[-1])
            else:
                found[-1].words.append(self._word())
        for place, each in enumerate(found[:-1]):
            after = found[place + 1]
            each.next_program = _program(after.words[0]) if after.next_program == "|" and after.words else ""
        return [each for each in found if each.words and each.words[0] not in ("for", "case", "function")]

    def _redirect(self, command: _Words) -> None:
        operator = ""
        while self._at < len(self._text) and self._text[self._at] in "<>0123456789-&|":
            operator += self._text[self._at]
            self._at += 1
        if "<(" in operator + self._text[self._at : self._at + 1]:
            return  # a process substitution: the bracket begins a command of its own
        while self._text[self._at : self._at + 1] in (" ", "\t"):
            self._at += 1
        target = self._word() if "&" not in operator or operator.endswith("&") else ""
        if "<<" in operator and "<<<" not in operator:
            self._ends.append(target)
        command.is_written |= ">" in operator and not operator.startswith("2") and target != "/dev/null"

    def _skip_documents(self) -> None:
        for end in self._ends:
            while self._at < len(self._text):
                begin = self._at
                self._skip_to_line_end()
                self._at += 1
                if self._text[begin : self._at - 1].strip("\t ") == end:
                    break
        self._ends = []

    def _skip_to_line_end(self) -> None:
        found = self._text.find("\n", self._at)
        self._at = found if found >= 0 else len(self._text)

    def _word(self) -> str:
        """Read one word, without its quotes."""
        found: list[str] = []
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in " \t\r\n;&|()<>":
                break
            self._at += 1
            if char == "'":
                found.append(self._until("'"))
            elif char == '"':
                found.append(self._double())
            elif char == "`":
                self.inner.append(self._until("`"))
            elif char == "$" and self._text[self._at : self._at + 1] == "(":
                self._substitute()
                found.append("$")
            elif char == "\\":
                found.append(self._text[self._at : self._at + 1].replace("\n", ""))
                self._at += 1
            else:
                found.append(char)
        return "".join(found)

    def _until(self, end: str) -> str:
        found = self._text.find(end, self._at)
        stop = found if found >= 0 else len(self._text)
        text, self._at = self._text[self._at : stop], stop + 1
        return text

    def _double(self) -> str:
        found: list[str] = []
        while self._at < len(self._text) and (char := self._text[self._at]) != '"':
            self._at += 1
            if char == "$" and self._text[self._at : self._at + 1] == "(":
                self._substitute()
            elif char == "`":
                self.inner.append(self._until("`"))
            elif char == "\\":
                found.append(self._text[self._at : self._at + 1])
                self._at += 1
            else:
                found.append(char)
        self._at += 1
        return "".join(found)

    def _substitute(self) -> None:
        """Keep the text of a substitution, up to its bracket."""
        begin, depth = self._at + 1, 0
        while self._at < len(self._text):
            char = self._text[self._at]
            depth += {"(": 1, ")": -1}.get(char, 0)
            self._at += 1
            if char in "'\"" and (end := self._text.find(char, self._at)) >= 0:
                self._at = end + 1
            if depth == 0:
                break
        self.inner.append(self._text[begin : self._at - 1])
