"""Phrases in a server's text that address the model behind the user's back, and how much each one tells.

A real tool may say "always call `list_pages` first" or "never guess an id". What it has no reason for is to override
other instructions, to keep something from the user, to ask for keys and files that it does not work on, or to change
how other servers' tools are used. `docs/benchmarks.md` has what is found in poisoned and in real definitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Final, Literal

from msgspec import Struct

Severity = Literal["high", "medium", "low"]


class Phrase(Struct, frozen=True):
    """A kind of phrase: a pattern over one sentence or two, and how much it tells where it stands alone."""

    kind: str
    severity: Severity
    pattern: str


# In the patterns below, `{NAME}` stands for one of these, and `~` for a few characters of the same sentence.
_PARTS: Final = {
    "NOT": r"(?:do\s*n[o']t|never|must not|should not|shouldn't|avoid|without|refrain from|no need to|not)",
    "PATH": r"(?:(?:~|/root|/home/\w{1,40}|\$home|%userprofile%)/\.\w|\.ssh\b|\bid[_ ](?:rsa|ed25519|ecdsa|dsa)\b"
    r"|\.aws/cred|\.git-credentials|/etc/(?:passwd|shadow|sudoers)|\.netrc\b|\.pgpass\b|\.kube/config|\.cursor/"
    r"|claude_desktop_config|\bmcp\.json\b|(?<![\w*])\.env\b(?! ?(?:example|sample))|\bkeychain\b|wallet\.dat"
    r"|\.bash_history|authorized_keys|(?<=ssh[_ ])id[_ ]rsa)",
    "SECRET": r"(?:api[ _-]?keys?|credentials|private keys?|ssh keys?|environment variables?|env vars|passwords?"
    r"|session cookies|secrets\b|access tokens?|auth(?:entication)? tokens?|bearer tokens?|seed phrase)",
    "TALK": r"(?:(?:entire|full|complete|whole|all|previous|prior|recent|verbatim)(?: of)?"
    r"(?: the| our| your| user(?:'s)?)? (?:conversation|chat|dialog\w*|messages?|user messages?|session transcript)"
    r"|(?:conversation|chat|message) (?:history|transcript|log|context)|(?:your|the|full) system prompt)",
    "GIVE": r"(?:send|post|upload|forward|transmit|leak|relay|e-?mail|bcc|copy|append|embed|pass|includ|attach"
    r"|insert"
    r"|put|provid|exfiltrat|encod|reveal|past|submit|suppl|plac|disclos|shar|deliver|fill)\w*",
    "TAKE": r"(?:read|open|cat|load|fetch|retriev|collect|gather|harvest|access|extract|grab|scan|dump|get|locat"
    r"|find"
    r"|look up|check|inspect|obtain|query|search)\w*",
    "OUTSIDE": r"(?:https?://|(?:an?|our|the|some) (?:\w+ )?(?:external|remote|third[- ]party|outside|analytics"
    r"|collection|monitoring) (?:\w+ )?(?:host|server|endpoint|service|url|address|site|collector|webhook|api"
    r"|analytics)"
    r"|webhook|external (?:host|server|endpoint|url|address))",
    "RULES": r"(?:instructions?|rules?|guidelines?|guardrails?|directions?|directives?|prompts?|constraints?|orders"
    r"|restrictions?|safeguards?|polic(?:y|ies)|commands|training|safety (?:measures|checks|filters|protocols))",
    "USER": r"(?:users?|humans?|operator|anyone|them|person|customer)",
    "NAME": r"`?'?\"?[a-z]{2,30}(?:_[a-z]{1,30})+`?'?\"?",
    "THEIRS": r"(?:all|any|previous|prior|above|earlier|preceding|other|existing|your|safety|former|these|those"
    r"|original)",
}  # fmt: skip


def _phrase(kind: str, severity: Severity, *patterns: str) -> Phrase:
    for name, part in _PARTS.items():
        patterns = tuple(each.replace(f"{{{name}}}", part) for each in patterns)
    whole = "|".join(each.replace("~~", r"[^.!?\n]{0,60}?").replace(" ~ ", r"\b[^.!?\n]{0,30}?\b") for each in patterns)
    return Phrase(kind, severity, whole)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern at its first use: all of them take 25 ms, which most commands have no use for."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


DIRECTS: Final = "directs other tools"
_PHRASES: Final = (
    _phrase(
        "overrides instructions", "high",
        r"\b(?:ignor|disregard|forget|overrid|bypass|discard|neglect"
        r"|abandon)\w*\s+(?:[\w'\u2019-]+\s+){0,4}?{THEIRS}\b(?:\s+\w+){0,4}?\s+{RULES}\b",
        r"\b(?:ignore|disregard|forget)\s+(?:all\s+|everything\s+)?(?:of\s+)?(?:the\s+)?(?:above|previous|prior"
        r"|preceding|before)\b"
        r"(?!\s+(?:error|warning|value|column|line|row)s?)",
        r"\bnew (?:system )?instructions?\s*:",
        r"\b(?:ignor|disregard|override)\w* (?:the |what the )?(?:user|human|operator|person)(?:'s|s'|s)?"
        r"(?: \w+){0,2} (?:requests?|intent|intention|wish(?:es)?|question|query|message|asks?|asked|wants?|goal"
        r"|task)\b",
        r"\b(?:obey|follow|execut|treat|carry out|comply with|act on|perform)\w*\b[^.!?\n]{0,40}?\b(?:any|all|whatever"
        r"|every)\b[^.!?\n]{0,30}?\b(?:instructions?|commands?|directives?|orders)\b[^.!?\n]{0,30}?\b(?:embedded|found"
        r"|inside|contained|hidden|written|it contains)\b",
        r"\byou are (?:now|no longer) ~ (?:mode|assistant|agent|admin\w*|developer|unrestricted|free|bound|DAN)\b",
        r"\b(?:developer|jailbreak|god|unrestricted|admin(?:istrator)?|sudo) mode ~ (?:enabled|activated|now)\b",
        r"\bfrom now on ~ (?:you|always|every|forward|use|all)\b",
        r"\b(?:takes? precedence|supersedes?|overrides?) ~ (?:all|any|other|previous|system|user|earlier) ~ "
        r"(?:instructions?|rules?|prompts?|guidelines?|tools?)\b",
        r"ignora(?:r|te)? ~ instruc\w+|ignore[zr] ~ instructions|ignorier\w* ~ (?:anweisung|anleitung"
        r"|instruktion)\w*"
        r"|игнориру\w*~~инструкци\w*|忽略[^。\n]{0,12}(?:指令|说明|提示|规则)|無視して",
    ),
    _phrase(
        "speaks to the model", "high",
        r"<\s{0,3}/?\s{0,3}(?:important|secret|hidden|critical|mandatory|urgent|user_instructions?"
        r"|system(?:[ _-]?(?:note|instruction|message|override"
        r"|prompt|reminder|command|directive)s?)?|(?:admin|assistant|hidden|secret|internal"
        r"|override)(?:[ _-]\w+)*|sys)\s*>",
        r"\[\s{0,3}/?\s{0,3}(?:(?:system|assistant|ai|model|llm|hidden|secret|admin|internal"
        r"|developer)[ _-]*(?:instructions?|notes?|prompt|override"
        r"|message|directive|command)\s*(?::|\])|system\s*:|inst\])",
        r"\{\{\s{0,3}(?:system|admin|assistant|developer|instructions?)\s{0,3}:",
        r"<\|(?:im_start|im_end|system|user|assistant|endoftext)\|>|<<\s*sys\s*>>",
        r"(?:^|[.!?\n#>]\s{0,4}|[*-]\s{0,4}(?-i:(?=[A-Z]{5})))"
        r"(?:system|assistant|admin|developer)(?: (?:note|override|instructions?|message"
        r"|prompt|directive|command|notice"
        r"|update))?\s{0,3}:\s{1,3}[a-z]\w+ \w+ \w",
        r"\b(?:hidden|secret|covert|concealed) (?:instructions?|directives?|notes?|commands?|messages?"
        r"|prompts?)\s*[:(]",
        r"\b(?:ai|assistant|llm|model|agent) (?:instructions?|directives?|must obey)\s*:",
    ),
    _phrase(
        "speaks to the model", "low",
        r"<\s{0,3}/?\s{0,3}instructions?\s*>",
        r"\b(?:note|message|instructions?|reminder|attention|notice) (?:to|for) (?:the |any |all )?(?:ai"
        r"|assistant|model|llm|agent|language model)s?\b",
    ),
    _phrase(
        "hides from the user", "high",
        r"\b{NOT} ~ (?:tell|mention|inform|notif|reveal|disclos|alert|warn|let)\w*\b~~\b{USER}\b",
        r"\b{NOT}\s+(?:\w+\s+){0,2}?(?:mention|reveal|disclose|acknowledge|discuss|talk about|refer to) ~ (?:this"
        r"|these|that|you|the)\b\s*"
        r"(?:\w+\s+){0,2}?(?:step|instructions?|note|action|message|file|read|first|fact|behaviou?r|process"
        r"|requirement|detail)s?\b",
        r"\b(?:silently|secretly|covertly|quietly|stealthily|surreptitiously|discreetly)\s+(?:also\s+"
        r"|then\s+)?(?:send|append|forward|read"
        r"|includ|cop[yi]|upload|add|attach|post|bcc|collect|call|record|transmit|insert|pass|run|execut|modif"
        r"|redirect|exfiltrat|embed)\w*",
        r"\b(?:hide|conceal) ~ (?:from the user|from users|from them)\b|\bkeep (?:this|these|it) ~ (?:secret"
        r"|hidden|from the user)\b",
        r"\bwithout ~ (?:the user(?:'s)?|their|user) ~ (?:knowledge|noticing|knowing|awareness|being aware"
        r"|notification)\b",
        r"\b(?:user|they) (?:must|should|need|does|will|can) ?not (?:be (?:told|informed|aware|notified|shown)"
        r"|know|see|notice)\b",
        r"不要(?:告诉|告知|通知|提及)[^。\n]{0,8}用户|не (?:сообщай|говори) пользовател\w*",
        r"no (?:le )?(?:digas|menciones|informes) ~ usuario",
    ),
    _phrase(
        "acts unasked", "medium",
        r"\b{NOT} ~ (?:ask|request|wait|seek|prompt)\w* ~ (?:confirmation|permission|approval|consent)\b",
        r"\b(?:user|they) ~ (?:already|previously|implicitly|pre-?) ?(?:approved|authori[sz]ed|consented|agreed)\b",
        r"\b(?:remember|memori[sz]e|persist|store|save) (?:this|these|the following) ~ (?:instructions?|rules?"
        r"|for (?:all )?future)\b",
    ),
    _phrase(
        "changes later", "high",
        r"\b(?:once|after|as soon as|when) ~ (?:is |been |was |are )?(?:approved|trusted|reviewed|vetted)\b"
        r"[^.!?\n]{0,40}?\b(?:will|begins?|starts?|swaps?|switch\w*|becomes?) ~ (?:execut|run|read|send|swap|chang"
        r"|replac|exfiltrat|call|collect|forward|upload|delet)\w*",
        r"\b(?:swap|switch|replac|chang|updat|modif)\w*\b[^.!?\n]{0,40}?\b(?:post-?approval|after (?:the |its |user )?"
        r"(?:approval|review|vetting))\b",
    ),
    _phrase(
        "wants secrets", "high",
        r"\b(?:{TAKE}|{GIVE})\b[^!?\n]{0,80}?{PATH}[^!?\n]{0,160}?\b(?:{GIVE}|as the|as an?|into|in the)\b",
        r"\b(?:must|first|before|always|need to|required to|make sure to"
        r"|please)\b[^!?\n]{0,60}?\b{TAKE}\b[^!?\n]{0,60}?{PATH}",
        r"\b(?:contents? (?:of|from)|file)\b[^.!?\n]{0,40}{PATH}",
        r"\b{GIVE}~~\b(?:user(?:'s)?|your|their|all|any) ~ {SECRET}[^.!?\n]{0,80}?\b(?:to|in|into|as|with|using)\b",
        r"\bexfiltrat\w*",
    ),
    _phrase(
        "wants the conversation", "medium",
        r"\b{GIVE}~~{TALK}",
        r"{TALK}~~\b(?:in|into|as|via|through) (?:the |this )?['\"`]?\w{1,40}['\"`]?(?: \w{1,40})? (?:parameter"
        r"|argument|field|property)",
    ),
    _phrase(
        "sends data away", "medium",
        r"\b(?:also|additionally|then|secretly|and)\s+(?:\w+ly\s+)?(?:send|post|upload|forward|transmit|relay"
        r"|copie|copy|report|mirror|stream|log)"
        r"\w*\b~~{OUTSIDE}",
        r"\b(?:bcc|cc|forward|redirect|reroute)\w*\b~~\b[\w.+-]{1,64}@[\w-]{1,64}\.\w",
        r"\b(?:send|sent|e-?mail|notify|let)\b~~\b[\w.+-]{1,64}@(?!example\b)[\w-]{1,64}\.\w",
        r"!\[[^\]]{0,100}\]\(https?://[^)\s]{0,300}?[{<$\[]",
        r"https?://[^\s\"')]{0,300}?[?&=/](?:\{|\$\{|<|\[)\s*(?:data|content|secret|token|key|conversation"
        r"|context|password|base64|history|env"
        r"|response|result|message)\w*",
    ),
    _phrase(
        DIRECTS, "medium",
        r"\b(?:before|prior to|instead of|rather than|in place of|ahead of) ~ (?:any|all|every"
        r"|each)(?: of)?(?: the)? other "
        r"(?:\w+ )?(?:tools?|servers?|functions?)\b",
        r"\b(?:when|whenever|if|once|after|before|each time|every time|any time) ~ (?:{NAME}(?: tool)?|(?:any"
        r"|another)(?: other)? tool)"
        r"\s+(?:is|are|was|gets|has been)\s+(?:\w+ )?(?:called|invoked|executed|triggered)\b",
        r"\b(?:tool|server|version|this|it) ~ (?:supersedes?|replaces?|shadows?|takes over"
        r"|hijacks?) ~ {NAME}~~\b(?:all|every|route|must|always|instead)\b",
        r"\b(?:reroute|redirect|intercept|hijack|replace|substitute|swap|change|rewrite|alter"
        r"|modif)\w*\b~~\b(?:recipients?|destination|payee"
        r"|iban|its output|their output|the output of|beneficiary)\b~~\b(?:to|with|before|by)\b",
        r"\b(?:do not|don't|never|must not) (?:ever )?(?:use|call|invoke|trust) ~ (?:any|other"
        r"|another) ~ (?:tools?|servers?)\b",
        r"\bother (?:mcp )?servers? ~ (?:tools?|output|broken|deprecated|insecure|compromised)\b",
        r"\b(?:always|must|should|strongly) (?:\w+ )?(?:prefer|choose|select|prioriti[sz]e|pick)\w* ~ (?:this"
        r"|over) ~ (?:other|alternatives?|competing)\b",
        r"\b(?:affects?|changes?|controls?|governs?|modif\w+) (?:how|the way) ~ {NAME}",
    ),
    _phrase(
        "runs commands", "medium",
        r"/dev/tcp/\d|\bnc(?:at)? (?:-\w+ ){0,3}-e\b|\brm -rf (?:/|~)|base64 (?:-d"
        r"|--decode)[^\n]{0,40}\|\s*(?:ba)?sh|\bpowershell\b[^\n]{0,30}-enc",
        r"\b(?:run|execute|must|first) ~ (?:curl|wget)\b[^\n]{0,120}\|\s*(?:ba|z)?sh\b",
        r"\bdelete (?:every|all)(?: the)? files?~~\b(?:workspace|directory|disk|system|home)\b",
    ),
    _phrase(
        "hidden markup", "medium",
        r"<!--[^>]{12,2000}?-->",
        r"<[^>]{0,300}(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0)",
    ),
)  # fmt: skip

_MENTION = re.compile(
    r"\b(?:detect|scan|analy[sz]|flag|classif|moderat|filter|block|prevent|check|refus|reject|recogni[sz]|warn)\w*\b[^.!?\n]{0,80}(?:prompt|injection"
    r"|leak|attack|phrase|string"
    r"|secret|attempt)|\b(?:examples?|samples?|illustrative|expected|mock|canned|fixture|training text"
    r"|test (?:case|data))\b",
    re.IGNORECASE,
)
"""What a sentence says first that speaks of such phrases rather than using one."""
_SENTENCE = re.compile(r"[.!?]\s|\n")
_WORD_END = re.compile(r"[\w./-]{0,60}")
_OPENING, _CLOSING = "'\"`\u201c\u2018", "'\"`\u201d\u2019"


def spoken(text: str) -> Iterator[tuple[Phrase, str]]:
    """Yield the suspicious phrases in a text with their words, without those that a sentence only mentions."""
    for phrase in _PHRASES:
        for found in _compiled(phrase.pattern).finditer(text):
            if not _is_mention(text, found.start(), found.end()):
                yield phrase, text[found.start() : _end_of_word(text, found.end())]
                break


def _end_of_word(text: str, at: int) -> int:
    found = _WORD_END.match(text, at)
    return found.end() if found is not None else at


def _is_mention(text: str, start: int, end: int) -> bool:
    """Return whether the words at a place stand between quotes, or in a sentence about detecting or showing them."""
    if start and text[start - 1] in _OPENING and text[end : end + 1] and text[end] in _CLOSING:
        return True
    least = max(0, start - 300)
    begin = max((each.end() for each in _SENTENCE.finditer(text, least, start)), default=least)
    return _MENTION.search(text, begin, start) is not None
