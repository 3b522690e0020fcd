"""Tells a prompt that names no task, "yes, go on" or "thanks!": whatever its words are near to, no tool is meant.

A hint behind it would tempt the model ("stop" is near to a tool that closes a page), and a record of it would end the
task that goes on. Of 55,458 queries of public sets 52 are made of such words, and none of these needs a tool. Words
that make a task with others here are none: "let him know that I agree", "what do I have next?", "help with my resume".
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes longer to import than the rest of this file
    from typing import Final

_MOST_CHARACTERS: Final = 80
_WORD: Final = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_SIGN: Final = re.compile(r"[^\w\s.,:;!?'()。！？、，…-]")  # noqa: RUF001 (full-width marks end Chinese sentences)
"""What a task may have and talk has not: 2 * 3, #12, a path, an address."""
_WORDS: Final = """
a agree ahead all alright also an and any anyway are as at awesome b be because better both bro but can carry continue
cool correct could d did didn't do does doesn't don't done easier else enough everything exactly explain fine first for
four from go going good got great h had has he hello help here hey hi hm hmm how however i i'm if in instead is isn't it
it's its just k keep know last leave less let's like longer looking looks makes many maybe me mean means mine more most
much my nah never next nice no nope not nothing now of off oh ok okay on one ones only or other others our ours out over
own perfect please pls proceed quick quite ready really redo repeat retry right same second see seems shall she shorter
should simpler so some something sorry sounds stop such super sure thank thanks that that's the their then there these
they thing things think third this those though three thx to too try two u ugh undo understand understood until up us
very wait was wasn't way we well were what what's when where which who whole why will with works would wow wrong x y
yeah yep yes yet you you're your yours yup again another one's nevermind aber alles auch bitte dann danke das dasselbe
der die doch du eben ein es falsch fertig gut genau ich ist ja jetzt klar los mach mache machs mal meinst nein nicht
nochmal noch passt prima richtig schon sicher stimmt tu und versuch versuche von vorne warte warum weiter wie wieder
wirklich zu adelante ahora así bien bueno claro como correcto de eso espera esto gracias hazlo lo más mismo muy otra
otro para perfecto por porque qué si sigue sí también vale ya alors attends avec bon c'est cela ce continuez ça comme
d'accord encore et exact fais faites faux je juste la le les mais maintenant merci non oui ouais parfait pas plus
poursuis pourquoi quoi s'il suite très va vas voilà vous agora certo continua novo e então faz faça isso mas muito não
obrigada obrigado outra outro perfeito que sim siga tá adesso ancora avanti bene così esatto fallo fare grazie perché
perfetto poi prego quello questo sì bedankt dank doe door dit en ga goed graag maar mooi nee nog nu oké precies verder
waarom wacht wel ale dalej dlaczego dobra dobrze dziękuję dzięki jeszcze nie raz tak teraz да дальше давай ещё и нет не
ну ок окей почему понятно продолжай раз спасибо так хорошо это
好 好的 好吧 可以 可以的 是 是的 对 对的 不 不是 不对 继续 请继续 继续吧 谢谢 再来 再试一次 再试试 为什么 停
停止 行 嗯 没错 下一个 はい いいえ うん 続けて 続けてください お願いします ありがとう ありがとうございます
もう一度 なぜ そう そうです 違う 違います 次 네 예 아니요 아니 계속 계속해 계속해줘 계속하세요 고마워 고마워요
감사합니다 다시 왜 좋아 좋아요 맞아 맞아요 다음
"""
_TALK: Final = frozenset(_WORDS.split())


def is_talk(prompt: str) -> bool:
    """Return whether a prompt is made of such words alone, and of figures for a choice among what was offered."""
    text = prompt.strip().lower().replace("\u2019", "'")  # the apostrophe that phones write
    if len(text) > _MOST_CHARACTERS or _SIGN.search(text):
        return False
    return all(word in _TALK or (word.isdigit() and len(word) == 1) for word in _WORD.findall(text))
