"""What stands in an export beside the parts that corral shares with it: networks of NumPy, and the
``Decider`` that reads them. NumPy alone."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.masks import greedy
from corral.loads.export.core import NodeDecider

__all__ = ["ABOUT", "WEIGHTS", "Decider", "NetworkActor"]

ABOUT, WEIGHTS = "about.json", "weights.npz"


class Decider(NodeDecider):
    """Decides by the files beside this one, or in another ``folder``."""

    def __init__(self, folder: str | Path | None = None) -> None:
        place = Path(__file__).parent if folder is None else Path(folder)
        about = json.loads((place / ABOUT).read_text(encoding="utf-8"))
        actor = None
        if about["networks"]:
            with np.load(place / WEIGHTS, allow_pickle=False) as weights:
                actor = NetworkActor(about["networks"], dict(weights))
        super().__init__(about, actor)


class NetworkActor:
    """Networks that choose greedily, each for the nodes that play by it.

    Network i of ``networks`` plays "nodes" (their numbers), has so many hidden "layers" with an
    "activation" (tanh or relu) and a GRU of "memory" units, or 0. Of ``weights``, all float32, are
    its: "i.input" [nodes, inputs], whose columns from "at" on make room for the features, the rest
    tell which node it is; "i.weight0" [inputs, units], "i.bias0", ..., "i.head", "i.head_bias".
    """

    def __init__(self, networks: Sequence[Mapping[str, Any]], weights: Mapping[str, Array]) -> None:
        self.parts = [_Network(each, weights, f"{i}.") for i, each in enumerate(networks)]
        self.memory = any(part.memory for part in self.parts)

    def initial(self) -> list[Array] | None:
        """Return the hidden states before the first decision: [nodes, memory] of each network."""
        if not self.memory:
            return None
        return [np.zeros((len(part.rows), part.memory), np.float32) for part in self.parts]

    def act(
        self, features: Array, masks: Array, hidden: list[Array] | None, rng: Any
    ) -> tuple[Array, list[Array] | None]:
        """Return the likeliest legal actions int64 [N], and the next hidden states."""
        logits, after = self.logits(features, hidden)
        return greedy(logits, masks), after

    def logits(
        self, features: Array, hidden: list[Array] | None
    ) -> tuple[Array, list[Array] | None]:
        """Return logits float32 [N, A] and the next hidden states for features [N, F]."""
        before: Sequence[Array | None] = hidden or [None] * len(self.parts)
        found, after = [], []
        for part, state in zip(self.parts, before, strict=True):
            outputs, new = part.run(features, state)
            found.append(outputs)
            after.append(new)
        if len(found) == 1 and self.parts[0].all:
            return found[0], after if self.memory else None
        logits = np.empty((len(features), found[0].shape[1]), dtype=np.float32)
        for part, outputs in zip(self.parts, found, strict=True):
            logits[part.rows] = outputs
        return logits, after if self.memory else None


class _Network:
    def __init__(self, about: Mapping[str, Any], weights: Mapping[str, Array], name: str) -> None:
        self.rows = np.array(about["nodes"])
        self.all = bool((self.rows == np.arange(len(self.rows))).all())
        self.at, self.memory = about["at"], about["memory"]
        self.tanh = about["activation"] == "tanh"
        self.input = weights[f"{name}input"]
        numbers = range(about["layers"])
        self.layers = [(weights[f"{name}weight{i}"], weights[f"{name}bias{i}"]) for i in numbers]
        self.head, self.head_bias = weights[f"{name}head"], weights[f"{name}head_bias"]
        if self.memory:
            gru = [weights[f"{name}gru_{part}"] for part in ("input", "state")]
            self.gru = gru, [weights[f"{name}gru_{part}_bias"] for part in ("input", "state")]

    def run(self, features: Array, state: Array | None) -> tuple[Array, Array]:
        """Return logits [R, A] of its R nodes and their next hidden states [R, memory]."""
        x = features[self.rows]
        if self.input.shape[1] > x.shape[1]:
            given, x = x, self.input.copy()
            x[:, self.at : self.at + given.shape[1]] = given
        for weight, bias in self.layers:
            x = x @ weight
            x += bias
            if self.tanh:
                np.tanh(x, out=x)
            else:
                np.maximum(x, 0, out=x)
        if self.memory:
            x = self._remember(x, state)
        return x @ self.head + self.head_bias, x

    def _remember(self, x: Array, state: Array | None) -> Array:
        """Return the next hidden state of a GRU, as torch defines it."""
        h = np.zeros((len(x), self.memory), np.float32) if state is None else state
        (of_input, of_state), (input_bias, state_bias) = self.gru
        new = np.split(x @ of_input + input_bias, 3, axis=1)
        old = np.split(h @ of_state + state_bias, 3, axis=1)
        reset, update = (0.5 * np.tanh(0.5 * (new[i] + old[i])) + 0.5 for i in range(2))
        proposed = np.tanh(new[2] + reset * old[2])
        return np.asarray((1 - update) * proposed + update * h)
