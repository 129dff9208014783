"""What stands in an export beside the parts that corral shares with it: networks of NumPy, and the
``Decider`` that reads them. NumPy alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.routes import ROUTES
from corral.envs.masks import greedy
from corral.loads.export.core import NodeDecider
from corral.loads.export.inputs import MOST, MOST_COUNTS
from corral.loads.export.manifest import (
    MOST_TEXT,
    MOST_WEIGHTS,
    ExportError,
    decode_arrays,
    decode_json,
    read_export,
)

__all__ = ["ABOUT", "POLICY", "WEIGHTS", "Decider", "NetworkActor", "check_about", "shapes_of"]

POLICY, ABOUT, WEIGHTS = "policy.py", "about.json", "weights.npz"

MOST_NODES, MOST_LEVELS, MOST_DELAY = 2_000, 10_000, 10_000
LARGEST_STATE = 1.001
"""A GRU's hidden state lies in -1..1, but for rounding."""


class Decider(NodeDecider):
    """Decides by the files beside this one, or in another ``folder``.

    Raises ExportError where they are damaged, edited or mixed up: see ``manifest.json``.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        place = Path(__file__).parent if folder is None else Path(folder)
        sizes = {POLICY: MOST_TEXT, ABOUT: MOST_TEXT, WEIGHTS: MOST_WEIGHTS}
        files = read_export(place, sizes)
        about = decode_json(str(place / ABOUT), files[ABOUT])
        try:
            check_about(about)
            shapes = shapes_of(about["networks"])
            weights = decode_arrays(str(place / WEIGHTS), files[WEIGHTS], shapes)
            networks = about["networks"]
            super().__init__(about, NetworkActor(networks, weights) if networks else None)
            self._check_networks(networks)
        except ExportError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise ExportError(f"{place / ABOUT} describes no team: {error!r:.200}") from error

    def _check_networks(self, networks: Sequence[Mapping[str, Any]]) -> None:
        """Raise ValueError if networks do not fit the nodes."""
        if self.rule is not None:
            return
        played = sorted(row for each in networks for row in each["nodes"])
        if played != list(range(len(self.nodes))):
            raise ValueError("networks do not play every node once")
        size, actions = self.features.size, self._masks.shape[1]
        for each in networks:
            if each["at"] + size > each["inputs"] or each["actions"] != actions:
                raise ValueError(f"a network takes not {size} numbers, or knows not {actions}")


def check_about(about: Mapping[str, Any]) -> None:
    """Raise ValueError, TypeError or LookupError if values are not within bounds."""
    nodes, n = about["nodes"], len(about["nodes"])
    if not 1 <= n <= MOST_NODES or len({*nodes}) != n or {*map(type, nodes)} != {str}:
        raise ValueError(f"nodes: give 1 to {MOST_NODES:,} names")
    rows = [set(map(type, row)) | {*row} for row in about["links"] if len(row) == n]
    if len(rows) != n or not set().union(*rows) <= {int, 0, 1}:
        raise ValueError(f"links: give {n} rows of {n} numbers, 0 or 1")
    most = {"queue": MOST, "report_delay": MOST_DELAY, "max_level": MOST_LEVELS}
    counts = {key: about[key] for key in most}
    counts["last_counts"], most["last_counts"] = about["last_counts"], MOST_COUNTS
    for key in ("caps", "link_limit"):
        if about[key] is not None:
            counts[key], most[key] = about[key], MOST
    for key, value in counts.items():
        if type(value) is not int or not (key == "max_level") <= value <= most[key]:
            raise ValueError(f"{key}={value!r:.40}: give a whole number up to {most[key]:,}")
    if about["report_delay"] * n > MOST_NODES * 1_000:
        raise ValueError("report_delay: too many reports to keep")
    for key in ("load_scale", "capacity_scale"):
        _check_number(key, about[key])
        if about[key] <= 0:
            raise ValueError(f"{key} is not above 0")
    levels = about["requests"]
    if levels is not None:
        if not 2 <= len(levels) <= MOST_LEVELS + 1 or {*map(type, levels)} != {int}:
            raise ValueError(f"requests: give up to {MOST_LEVELS:,} whole numbers")
        if levels[0] != 0 or levels[-1] > MOST or (np.diff(levels) <= 0).any():
            raise ValueError("requests: give larger and larger numbers, from 0")
    elif "rule" not in about:
        raise ValueError("requests are missing")
    for row in about["daily_mean"] or ():
        if len(row) != n:
            raise ValueError(f"daily_mean: give rows of {n} numbers")
        for value in row:
            _check_number("daily_mean", value)
    for name in nodes:
        for key in ("arrivals", "capacity", "queue", "spare", "lost"):
            low, high = about["seen"][name][key]
            _check_number("seen", low)
            _check_number("seen", high)
    kinds = {
        "observation": ("every", "summary"),
        "arrivals": ("known", "unknown"),
        "amount": ("keep", "share", "requests", None),
        "route": ROUTES,
    }
    for key, known in kinds.items():
        if about[key] not in known:
            raise ValueError(f"{key}={about[key]!r:.40} is unknown")
    if type(about["team"]) is not str or len(about["team"]) != 64:
        raise ValueError("team: give a digest of 64 digits")


def _check_number(name: str, value: Any) -> None:
    if type(value) not in (int, float) or not 0 <= value <= MOST:
        raise ValueError(f"{name}={value!r:.40}: give a number from 0 to {MOST:,}")


def shapes_of(networks: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of ``networks``, by name. Raises ValueError, TypeError,
    LookupError."""
    shapes: dict[str, tuple[int, ...]] = {}
    if type(networks) is not list or len(networks) > MOST_NODES:
        raise ValueError("networks: give a list")
    for i, each in enumerate(networks):
        sizes = [len(each["nodes"]), each["inputs"], each["actions"], *each["units"]]
        if len(sizes) > 103 or any(type(size) is not int or size < 1 for size in sizes):
            raise ValueError(f"network {i}: give sizes above 0 of 100 layers or fewer")
        for key in ("at", "memory"):
            if type(each[key]) is not int or each[key] < 0:
                raise ValueError(f"network {i}: {key}={each[key]!r:.40}")
        if each["activation"] not in ("tanh", "relu"):
            raise ValueError(f"network {i}: activation={each['activation']!r:.40}")
        width = each["inputs"]
        shapes[f"{i}.input"] = (len(each["nodes"]), width)
        for k, units in enumerate(each["units"]):
            shapes |= {f"{i}.weight{k}": (width, units), f"{i}.bias{k}": (units,)}
            width = units
        if memory := each["memory"]:
            shapes |= {f"{i}.gru_input": (width, 3 * memory), f"{i}.gru_input_bias": (3 * memory,)}
            shapes |= {f"{i}.gru_state": (memory, 3 * memory), f"{i}.gru_state_bias": (3 * memory,)}
            width = memory
        shapes |= {f"{i}.head": (width, each["actions"]), f"{i}.head_bias": (each["actions"],)}
    if 4 * sum(map(math.prod, shapes.values())) > MOST_WEIGHTS:
        raise ValueError(f"networks of more than {MOST_WEIGHTS:,} bytes")
    return shapes


class NetworkActor:
    """Networks that choose greedily, each for the nodes that play by it.

    Network i of ``networks`` plays "nodes" (their numbers), has hidden layers of "units" with an
    "activation" (tanh or relu) and a GRU of "memory" units, or 0. Of ``weights``, all float32, are
    its: "i.input" [nodes, inputs], whose columns from "at" on make room for the features, the rest
    tell which node it is; "i.weight0" [inputs, units], "i.bias0", ..., "i.head", "i.head_bias".
    ``shapes_of`` has all of them.
    """

    def __init__(self, networks: Sequence[Mapping[str, Any]], weights: Mapping[str, Array]) -> None:
        self.parts = [_Network(each, weights, f"{i}.") for i, each in enumerate(networks)]
        self.memory = any(part.memory for part in self.parts)

    def initial(self) -> list[Array] | None:
        """Return the hidden states before the first decision: [nodes, memory] of each network."""
        if not self.memory:
            return None
        return [np.zeros((len(part.rows), part.memory), np.float32) for part in self.parts]

    def sound(self, hidden: Sequence[Array]) -> bool:
        """Return whether all hidden states are in range; NaN is not."""
        for each in hidden:  # argmax is three times as quick as max
            if each.size and not (
                each.item(each.argmax()) <= LARGEST_STATE
                and each.item(each.argmin()) >= -LARGEST_STATE
            ):
                return False
        return True

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
        numbers = range(len(about["units"]))
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
        new, old = x @ of_input + input_bias, h @ of_state + state_bias  # [R, 3 * memory]
        m = self.memory
        gates = 0.5 * np.tanh(0.5 * (new[:, : 2 * m] + old[:, : 2 * m])) + 0.5
        reset, update = gates[:, :m], gates[:, m:]
        proposed = np.tanh(new[:, 2 * m :] + reset * old[:, 2 * m :])
        return np.asarray((1 - update) * proposed + update * h)
