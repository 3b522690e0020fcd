"""MassTool as published (arXiv 2507.00487): equations 2 to 14, and their training with torch.

The equations are written once, on numpy and on torch alike (`xp` is either module): numpy in the tests and for scoring,
torch where a gradient is needed. Only `train` imports torch.

The choices where the paper's text and its code (github.com/wxydada/MassTool) differ, or a formula is misprinted:

- eq. 3 lacks its minus sign, and eq. 11 the logarithm that makes it the InfoNCE it is called; both are added here.
- eq. 11 calls sim a dot product; the code scales both vectors to length 1 first, and so it is here.
- eq. 14 sums the layers plainly; the code divides layer l by l + 2 and scales it to length 1 first. Plain here.
- eq. 4 adds the two views of a query; the code keeps them apart and adds six cosines. One sum here, as in eq. 6.
- eq. 12 takes query and tool vectors from a frozen encoder, and then nothing of them could be learned; the code makes
  them free parameters that begin there. So it is here, by `Settings.free`; scenes stay the mean of the first tool
  vectors, and a query that was not trained on has its encoder's vector and no links. Detection reads the frozen
  vectors (4.1, C.3): from free ones it would learn which queries were trained on.
- the paper fine-tunes its encoder on each set beforehand and does not say so in its text; here the vectors are given,
  so the caller decides which encoder they come from.
- detection ends in one sigmoid (eq. 2); the code has two softmaxes in a row.
- the code chooses its epoch on the test queries; here the number of epochs is fixed beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

Array = Any
"""An array of numpy or torch; the docstrings give shapes."""
Floats = NDArray[np.float32]
TINY = 1e-12


Variant = Literal["AdaKT", "SUIM", "DF", "CL"]
"""A part of the model: the transfer of detective knowledge together with detection, the search for similar queries
(`AdaKT` then reads the graph's vector), the dynamic filter of that search, or the contrastive loss."""
Transfer = Literal["gating", "attention", "concatenation", "addition"]
"""How detective knowledge and the search-enhanced query become the joint one (4.2.3; the others are appendix B.2)."""
KEEP_ALL = -2.0
"""A threshold that every cosine passes."""


class Settings(Struct, frozen=True):
    """Appendix C.3, and the code's defaults where the paper gives a grid or nothing."""

    layers: int = 1
    neighbours: int = 20
    """K of the semantic search."""
    threshold: float = 0.6
    """epsilon: a neighbour's cosine must be above."""
    negatives: int = 10
    """M - |T_q| of eq. 8."""
    detection: float = 0.08
    """lambda."""
    contrastive: float = 0.04
    """beta."""
    temperature: float = 0.1
    """tau of eq. 11."""
    hidden: int = 384
    """Dimension of h."""
    batch: int = 2048
    rate: float = 1e-3
    epochs: int = 40
    free: tuple[Literal["queries", "tools"], ...] = ("queries", "tools")
    without: tuple[Variant, ...] = ()
    """The parts that are left out, as in the ablation of section 6.5 (appendix C.4)."""
    transfer: Transfer = "gating"
    seed: int = 7


# QC-GCN (4.2.1, appendix B.1)


def links(pairs: Sequence[tuple[int, int]], shape: tuple[int, int]) -> Floats:
    """Return (left, right): 1 / sqrt(|N_left| |N_right|) for each linked pair (eq. 13), dense; for small graphs."""
    found = np.zeros(shape, np.float32)
    for left, right in pairs:
        found[left, right] = 1.0
    degrees = np.sqrt(np.outer(found.sum(1), found.sum(0)))
    return np.divide(found, degrees, out=np.zeros_like(found), where=degrees > 0)


def propagate(linked: Array, left: Array, right: Array, layers: int) -> tuple[Array, Array]:
    """Return both sides after `layers` rounds, all rounds summed (eq. 13, 14); `linked` (left, right), vectors (nodes,
    d)."""
    left_sum, right_sum = left, right
    for _ in range(layers):
        left, right = linked @ right, linked.T @ left
        left_sum, right_sum = left_sum + left, right_sum + right
    return left_sum, right_sum


# SUIM (4.2.2)


def nearest(cosines: Floats, count: int, threshold: float) -> tuple[NDArray[np.int64], Floats]:
    """Return the K nearest of each row, best first, and 1 if one passes the dynamic filter, else 0; both (queries,
    K)."""
    # A full sort of 17,000 queries against each other would take minutes.
    count = min(count, cosines.shape[1])
    best = np.sort(np.argpartition(-cosines, count - 1, axis=1)[:, :count], axis=1)
    order = np.argsort(-np.take_along_axis(cosines, best, axis=1), axis=1, kind="stable")
    places = np.take_along_axis(best, order, axis=1)
    return places, (np.take_along_axis(cosines, places, axis=1) > threshold).astype(np.float32)


def filter_of(settings: Settings) -> float:
    """Return the cosine that a neighbour must exceed; every neighbour does where the filter is left out."""
    return KEEP_ALL if "DF" in settings.without else settings.threshold


def attend(xp: Any, queries: Array, weight: Array, found: Array, kept: Array) -> Array:
    """Intent attention (eq. 5): (queries, d), zeros where no neighbour passed the filter.

    queries (queries, d), weight (d, d), found (queries, K, d) the neighbours' graph vectors, kept (queries, K) 1 or 0.
    """
    # Products of matrices take a tenth of the time of element-wise sums.
    logits = (found @ (queries @ weight)[:, :, None])[:, :, 0] - (1.0 - kept) * 1e9
    powers = xp.exp(logits - xp.amax(logits, -1)[:, None]) * kept
    shares = powers / (powers.sum(-1)[:, None] + TINY)
    return (shares[:, None, :] @ found)[:, 0, :]


# Detection (section 4.1) and AdaKT (section 4.2.3)


def knowledge(xp: Any, queries: Array, weight: Array, bias: Array) -> Array:
    """h = ReLU(Linear(PLM(q))): (queries, hidden)."""
    return xp.clip(queries @ weight + bias, 0.0, None)


def sigmoid(xp: Any, logits: Array) -> Array:
    """Element-wise."""
    return 1.0 / (1.0 + xp.exp(-logits))


def gate(xp: Any, detective: Array, weight: Array, bias: Array, search: Array) -> Array:
    """e_joint = sigmoid(Linear(h)) x e_search, element-wise: (queries, d)."""
    return sigmoid(xp, detective @ weight + bias) * search


def attention(xp: Any, detective: Array, search: Array, held: Mapping[str, Array]) -> Array:
    """e_joint: self-attention (one head) over the two vectors h and e_search, and the sum of what both become (B.2);
    (queries, d) each, the matrices of `held` (d, d)."""
    both = detective, search
    asks, keys, values = ([each @ held[name] for each in both] for name in ("asks", "keys", "values"))
    joint = search * 0.0
    for ask in asks:
        # Of two logits the softmax is a sigmoid of their difference.
        apart = ((ask * keys[0]).sum(-1) - (ask * keys[1]).sum(-1)) / search.shape[-1] ** 0.5
        share = sigmoid(xp, apart)[:, None]
        joint = joint + share * values[0] + (1.0 - share) * values[1]
    return joint


def concatenation(xp: Any, detective: Array, search: Array, held: Mapping[str, Array]) -> Array:
    """e_joint: a perceptron with one hidden layer over h and e_search, one after the other (B.2). The matrix over both
    is held as the two halves that it has."""
    mixed = detective @ held["mix_knowledge"] + search @ held["mix_search"] + held["mix_bias"]
    return xp.clip(mixed, 0.0, None) @ held["joint"] + held["joint_bias"]


def transferred(xp: Any, kind: Transfer, held: Mapping[str, Array], detective: Array, search: Array) -> Array:
    """e_joint by the transfer function of this name: (queries, d)."""
    if kind == "attention":
        return attention(xp, detective, search, held)
    if kind == "concatenation":
        return concatenation(xp, detective, search, held)
    return detective + search if kind == "addition" else gate(xp, detective, held["gate"], held["gate_bias"], search)


# Matching (equations 6 and 7)


def unit(xp: Any, rows: Array) -> Array:
    """Return each row at length 1; a row of zeros stays."""
    return rows / xp.sqrt((rows * rows).sum(-1) + TINY)[:, None]


def match(xp: Any, graph: Array, search: Array, joint: Array, tools: Array) -> Array:
    """s(q, t) = (e_graph + e_search + e_joint, each of length 1) . e_t of length 1: (queries, tools)."""
    return (unit(xp, graph) + unit(xp, search) + unit(xp, joint)) @ unit(xp, tools).T


def fuse(
    xp: Any, settings: Settings, held: Mapping[str, Array], graph: Array, search: Array, detective: Array
) -> tuple[Array, Array]:
    """Return e_search and e_joint, zeros for what the settings leave out; all (queries, d) but `detective` (queries,
    hidden)."""
    without = settings.without
    joint = transferred(xp, settings.transfer, held, detective, graph if "SUIM" in without else search)
    return search * 0.0 if "SUIM" in without else search, joint * 0.0 if "AdaKT" in without else joint


# Learning (section 4.3)


def retrieval_loss(xp: Any, scores: Array, golds: Array) -> Array:
    """Eq. 8 to 10, mean over queries; scores (queries, M), golds (queries, M) 1 for a golden tool, else 0."""
    wanted = golds / golds.sum(-1)[:, None]
    powers = xp.exp(scores - xp.amax(scores, -1)[:, None])
    found = powers / powers.sum(-1)[:, None]
    loss = wanted * xp.log(found + TINY) + (1.0 - wanted) * xp.log(1.0 - found + TINY)
    return -loss.sum(-1).mean()


def detection_loss(xp: Any, found: Array, needed: Array) -> Array:
    """Eq. 3, mean over queries; found (queries,) probabilities, needed (queries,) 1 or 0."""
    return -(needed * xp.log(found + TINY) + (1.0 - needed) * xp.log(1.0 - found + TINY)).mean()


def contrastive_loss(xp: Any, ones: Array, others: Array, temperature: float) -> Array:
    """Return one of the two terms of eq. 11, mean over pairs: row i of `ones` against all of `others`; (pairs, d)
    each, of any length."""
    ones, others = unit(xp, ones), unit(xp, others)
    logits = ones @ others.T / temperature
    highest = xp.amax(logits, -1)
    sums = xp.log(xp.exp(logits - highest[:, None]).sum(-1)) + highest
    return (sums - (ones * others).sum(-1) / temperature).mean()


# The whole


class Published(Struct, frozen=True):
    """A trained model, which scores queries that it has not seen."""

    settings: Settings
    pool: Floats
    """(trained queries, d): their vectors as the encoder has them, for the search."""
    pool_graph: Floats
    """(trained queries, d): what QC-GCN makes of them."""
    tools_graph: Floats
    """(tools, d)"""
    weights: dict[str, Floats]

    def __call__(self, queries: Floats) -> Floats:
        """Return an array (queries, tools); queries (queries, d) of the encoder."""
        return np.concatenate([self._scores(queries[at : at + 256]) for at in range(0, len(queries), 256)])

    def _scores(self, queries: Floats) -> Floats:
        held, settings = self.weights, self.settings
        # A new query has no links, so it stays what it was in both views (eq. 14), which eq. 4 adds.
        graph = 2.0 * queries
        places, kept = nearest(queries @ self.pool.T, settings.neighbours, filter_of(settings))
        search = attend(np, graph, held["attention"], self.pool_graph[places], kept)
        detective = knowledge(np, queries, held["hidden"], held["hidden_bias"])
        search, joint = fuse(np, settings, held, graph, search, detective)
        found: Floats = match(np, graph, search, joint, self.tools_graph)
        return found

    def needs_tool(self, queries: Floats) -> Floats:
        """Return (queries,): probabilities (eq. 2)."""
        held = self.weights
        detective = knowledge(np, queries, held["hidden"], held["hidden_bias"])
        found: Floats = sigmoid(np, detective @ held["answer"] + held["answer_bias"])[:, 0]
        return found


class TrainingSet(Struct, frozen=True):
    """The vectors and golden tools that a model is trained on."""

    queries: Floats
    """(queries, d): PLM(q)."""
    tools: Floats
    """(tools, d): PLM(t)."""
    golds: tuple[tuple[int, ...], ...]
    """The golden tools by query, as rows of `tools`."""
    without: Floats
    """(others, d): PLM(q) of queries that need no tool."""


Progress = Callable[[int, float], None]
"""Gets each epoch and its mean loss."""


def train(task: TrainingSet, settings: Settings, progress: Progress = lambda epoch, loss: None) -> Published:
    """Minimise L_ret + lambda L_det + beta L_con with Adam; repeatable for a seed."""
    return _Training(task, settings).run(progress)


class _Training:
    """The graphs, the parameters and the training loop."""

    def __init__(self, task: TrainingSet, settings: Settings) -> None:
        import torch  # type: ignore[import-not-found, unused-ignore]

        torch.manual_seed(settings.seed)
        self.torch, self.task, self.settings = torch, task, settings
        self.draw = np.random.default_rng(settings.seed)
        self.scenes = {scene: at for at, scene in enumerate(sorted({tuple(sorted(each)) for each in task.golds}))}
        self.scene_of = np.asarray([self.scenes[tuple(sorted(each))] for each in task.golds])
        pairs = [(query, tool) for query, golds in enumerate(task.golds) for tool in golds]
        self.tool_links = self._linked(pairs, (len(task.queries), len(task.tools)))
        self.scene_links = self._linked(list(enumerate(self.scene_of.tolist())), (len(task.queries), len(self.scenes)))
        members = np.zeros((len(self.scenes), len(task.tools)), np.float32)
        for scene, at in self.scenes.items():
            members[at, list(scene)] = 1.0 / len(scene)
        self.members = torch.from_numpy(members)
        self.first_scenes = self.members @ torch.from_numpy(task.tools)
        self.golden = np.zeros((len(task.queries), len(task.tools)), np.bool_)
        for query, golds in enumerate(task.golds):
            self.golden[query, list(golds)] = True
        self.places, self.kept = self._neighbours()
        self.held = self._parameters()

    def _linked(self, pairs: Sequence[tuple[int, int]], shape: tuple[int, int]) -> Array:
        """Return `links` as a sparse tensor."""
        places = np.asarray(pairs, np.int64).T
        degrees = [np.bincount(side, minlength=size) for side, size in zip(places, shape, strict=True)]
        torch, values = self.torch, 1.0 / np.sqrt(degrees[0][places[0]] * degrees[1][places[1]])
        values = torch.from_numpy(values.astype(np.float32))
        return torch.sparse_coo_tensor(torch.from_numpy(places), values, shape, check_invariants=True).coalesce()

    def _neighbours(self) -> tuple[NDArray[np.int64], Floats]:
        """Return the nearest neighbours of every trained query among the others."""
        queries, settings = self.task.queries, self.settings
        found = []
        for start in range(0, len(queries), 1024):
            cosines = queries[start : start + 1024] @ queries.T
            cosines[np.arange(len(cosines)), start + np.arange(len(cosines))] = -1.0
            found.append(nearest(cosines, settings.neighbours, filter_of(settings)))
        return np.concatenate([each[0] for each in found]), np.concatenate([each[1] for each in found])

    def _parameters(self) -> dict[str, Array]:
        torch, settings, size = self.torch, self.settings, self.task.queries.shape[1]

        def linear(inputs: int, outputs: int) -> tuple[Array, Array]:
            layer = torch.nn.Linear(inputs, outputs)
            return layer.weight.detach().T.clone(), layer.bias.detach().clone()

        held = {"attention": torch.eye(size)}
        held["hidden"], held["hidden_bias"] = linear(size, settings.hidden)
        held["answer"], held["answer_bias"] = linear(settings.hidden, 1)
        if settings.transfer == "gating":
            held["gate"], held["gate_bias"] = linear(settings.hidden, size)
        elif settings.transfer == "attention":
            held |= {name: linear(size, size)[0] for name in ("asks", "keys", "values")}
        elif settings.transfer == "concatenation":
            mix, held["mix_bias"] = linear(settings.hidden + size, settings.hidden)
            held["mix_knowledge"], held["mix_search"] = mix[: settings.hidden].clone(), mix[settings.hidden :].clone()
            held["joint"], held["joint_bias"] = linear(settings.hidden, size)
        if "queries" in settings.free:
            held["queries"] = torch.from_numpy(self.task.queries.copy())
        if "tools" in settings.free:
            held["tools"] = torch.from_numpy(self.task.tools.copy())
        return {name: value.requires_grad_() for name, value in held.items()}

    def run(self, progress: Progress) -> Published:
        settings = self.settings
        optimizer = self.torch.optim.Adam(list(self.held.values()), lr=settings.rate)
        for epoch in range(settings.epochs):
            losses = []
            order = self.draw.permutation(len(self.task.queries))
            for start in range(0, len(order), settings.batch):
                optimizer.zero_grad()
                loss = self._loss(order[start : start + settings.batch])
                loss.backward()
                optimizer.step()
                losses.append(float(loss.detach()))
            progress(epoch, float(np.mean(losses)))
        return self._published()

    def _views(self) -> tuple[Array, ...]:
        """Return queries and tools of the query-tool graph, queries and scenes of the query-scene graph."""
        torch, layers = self.torch, self.settings.layers
        queries = self.held.get("queries", torch.from_numpy(self.task.queries))
        tools = self.held.get("tools", torch.from_numpy(self.task.tools))
        by_tool = propagate(self.tool_links, queries, tools, layers)
        return *by_tool, *propagate(self.scene_links, queries, self.first_scenes, layers)

    def _loss(self, batch: NDArray[np.int64]) -> Array:
        torch, settings, held = self.torch, self.settings, self.held
        queries_qt, tools, queries_qs, scenes_qs = self._views()
        graph = queries_qt + queries_qs
        own = graph[batch]
        kept = torch.from_numpy(self.kept[batch])
        # The gradient of `graph[...]` would be far slower to add up.
        found = torch.nn.functional.embedding(torch.from_numpy(self.places[batch]), graph)
        search = attend(torch, own, held["attention"], found, kept)
        frozen = torch.from_numpy(self.task.queries[batch])
        detective = knowledge(torch, frozen, held["hidden"], held["hidden_bias"])
        search, joint = fuse(torch, settings, held, own, search, detective)
        scores = match(torch, own, search, joint, tools)
        candidates, golds = self._candidates(batch)
        retrieval = retrieval_loss(torch, torch.gather(scores, 1, candidates), golds)
        scene = torch.from_numpy(np.unique(self.scene_of[batch]))
        contrast = contrastive_loss(torch, queries_qs[batch], queries_qt[batch], settings.temperature)
        contrast = contrast + contrastive_loss(
            torch, scenes_qs[scene], (self.members @ tools)[scene], settings.temperature
        )
        without = settings.without
        detection = 0.0 if "AdaKT" in without else settings.detection * self._detection(detective)
        return retrieval + detection + (0.0 if "CL" in without else settings.contrastive) * contrast

    def _candidates(self, batch: NDArray[np.int64]) -> tuple[Array, Array]:
        """S of eq. 8, the golden tools and as many drawn others as make M; and which of them are golden."""
        golden = self.golden[batch]
        width = int(golden.sum(1).max()) + self.settings.negatives
        # Golden ones first, the others in the order drawn.
        keys = np.where(golden, -1.0, self.draw.random(golden.shape))
        places = np.argpartition(keys, min(width, golden.shape[1]) - 1, axis=1)[:, :width]
        found = np.take_along_axis(golden, places, axis=1)
        return self.torch.from_numpy(places), self.torch.from_numpy(found.astype(np.float32))

    def _detection(self, detective: Array) -> Array:
        """Return the detection loss of the batch, which needs tools, and of an equal share of the queries that need
        none."""
        torch, held, others = self.torch, self.held, self.task.without
        if not len(others):
            return torch.zeros(())
        drawn = self.draw.integers(0, len(others), max(1, len(detective) * len(others) // len(self.task.queries)))
        none = knowledge(torch, torch.from_numpy(others[drawn]), held["hidden"], held["hidden_bias"])
        answers = sigmoid(torch, torch.cat([detective, none]) @ held["answer"] + held["answer_bias"])[:, 0]
        needed = torch.cat([torch.ones(len(detective)), torch.zeros(len(none))])
        return detection_loss(torch, answers, needed)

    def _published(self) -> Published:
        with self.torch.no_grad():
            queries_qt, tools, queries_qs, _ = self._views()
        weights = {
            name: value.detach().numpy() for name, value in self.held.items() if name not in ("queries", "tools")
        }
        return Published(self.settings, self.task.queries, (queries_qt + queries_qs).numpy(), tools.numpy(), weights)
