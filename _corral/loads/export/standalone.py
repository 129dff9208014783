"""The part of an export that is not shared with corral's environments: networks in NumPy, and the
``Decider`` that reads them. NumPy only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.features import SUMMARIES
from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.dfaas_v0.routes import ROUTES
from corral.envs.masks import greedy
from corral.loads.export.core import NodeDecider
from corral.loads.export.inputs import MAX_COUNTS, MOST
from corral.loads.export.manifest import (
    MAX_TEXT,
    MAX_WEIGHTS,
    ExportError,
    decode_arrays,
    decode_json,
    read_export,
)

__all__ = ["ABOUT", "POLICY", "WEIGHTS", "Decider", "NetworkActor", "check_about", "shapes_of"]

POLICY, ABOUT, WEIGHTS = "policy.py", "about.json", "weights.npz"

MAX_RULE = 200
"""Maximum number of characters of a rule."""

MAX_NODES, MAX_LEVELS, MAX_DELAY = 2_000, 10_000, 10_000
LARGEST_STATE = 1.001
"""Bound of a GRU's hidden state, -1 to 1, with room for rounding."""


class Decider(NodeDecider):
    """Decides by the files next to this one, or in another ``folder``.

    Raises ExportError if they are damaged, edited or mixed up: see ``manifest.json``.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        place = Path(__file__).parent if folder is None else Path(folder)
        sizes = {POLICY: MAX_TEXT, ABOUT: MAX_TEXT, WEIGHTS: MAX_WEIGHTS}
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
            raise ExportError(
                f"{place / ABOUT} does not describe a team: {error!r:.200}"
            ) from error

    def _check_networks(self, networks: Sequence[Mapping[str, Any]]) -> None:
        """Raise ValueError if the networks do not fit the nodes."""
        if self.rule is not None:
            return
        played = sorted(row for network in networks for row in network["nodes"])
        if played != list(range(len(self.nodes))):
            raise ValueError("the networks must play every node exactly once")
        size, actions = self.features.size, self._masks.shape[1]
        for network in networks:
            if network["at"] + size > network["inputs"] or network["actions"] != actions:
                raise ValueError(f"a network must have {size} features and {actions} actions")


def check_about(about: Mapping[str, Any]) -> None:
    """Raise ValueError, TypeError or LookupError if values are out of bounds."""
    nodes, n = about["nodes"], len(about["nodes"])
    if not 1 <= n <= MAX_NODES or len({*nodes}) != n or {*map(type, nodes)} != {str}:
        raise ValueError(f"nodes: must be 1 to {MAX_NODES:,} names")
    rows = [set(map(type, row)) | {*row} for row in about["links"] if len(row) == n]
    if len(rows) != n or not set().union(*rows) <= {int, 0, 1}:
        raise ValueError(f"links: must be {n} rows of {n} numbers, 0 or 1")
    most = {"queue": MOST, "report_delay": MAX_DELAY, "max_level": MAX_LEVELS}
    counts = {key: about[key] for key in most}
    counts["last_counts"], most["last_counts"] = about["last_counts"], MAX_COUNTS
    for key in ("caps", "link_limit"):
        if about[key] is not None:
            counts[key], most[key] = about[key], MOST
    for key, value in counts.items():
        if type(value) is not int or not (key == "max_level") <= value <= most[key]:
            raise ValueError(f"{key}={value!r:.40}: must be a whole number up to {most[key]:,}")
    if about["report_delay"] * n > MAX_NODES * 1_000:
        raise ValueError("report_delay: too many reports to store")
    for key in ("load_scale", "capacity_scale"):
        _check_number(key, about[key])
        if about[key] <= 0:
            raise ValueError(f"{key} is not above 0")
    levels = about["requests"]
    if levels is not None:
        if not 2 <= len(levels) <= MAX_LEVELS + 1 or {*map(type, levels)} != {int}:
            raise ValueError(f"requests: must be up to {MAX_LEVELS:,} whole numbers")
        if levels[0] != 0 or levels[-1] > MOST or (np.diff(levels) <= 0).any():
            raise ValueError("requests: must be increasing numbers from 0")
    elif "rule" not in about:
        raise ValueError("requests are missing")
    for row in about["daily_mean"] or ():
        if len(row) != n:
            raise ValueError(f"daily_mean: must be rows of {n} numbers")
        for value in row:
            _check_number("daily_mean", value)
    for name in nodes:
        for key in ("arrivals", "capacity", "queue", "spare", "lost"):
            low, high = about["seen"][name][key]
            _check_number("seen", low)
            _check_number("seen", high)
    kinds = {
        "observation": ("every", *SUMMARIES),
        "arrivals": ("known", "unknown"),
        "amount": ("keep", "share", "requests", None),
        "route": ROUTES,
    }
    for key, known in kinds.items():
        if about[key] not in known:
            raise ValueError(f"{key}={about[key]!r:.40} is unknown")
    _check_residual(about)
    if type(about["team"]) is not str or len(about["team"]) != 64:
        raise ValueError("team: must be a digest of 64 digits")


def _check_residual(about: Mapping[str, Any]) -> None:
    """Raise ValueError, TypeError or LookupError for an invalid rule of a residual policy."""
    if "residual" not in about:
        if "offsets" in about or about.get("beyond") not in (None, "clip"):
            raise ValueError("offsets or beyond without residual")
        return
    rule, offsets, beyond = about["residual"], about["offsets"], about.get("beyond")
    if beyond not in (None, "rule", "clip"):
        raise ValueError(f"beyond={beyond!r:.40} is unknown")
    if type(offsets) is not int:  # ``Residual`` checks its range
        raise ValueError(f"offsets={offsets!r:.40}: must be a whole number")
    if type(rule) is not str or len(rule) > MAX_RULE:
        raise ValueError(f"residual={rule!r:.40}: must be a rule")
    if PlainRule.of(rule).route != about["route"] or about["route"] == "choose":
        raise ValueError(f"residual={rule!r:.40}: its route is not {about['route']}")
    if about["amount"] != "requests":
        raise ValueError(f"amount={about['amount']!r:.40} with residual")


def _check_number(name: str, value: Any) -> None:
    if type(value) not in (int, float) or not 0 <= value <= MOST:
        raise ValueError(f"{name}={value!r:.40}: must be a number from 0 to {MOST:,}")


def shapes_of(networks: Sequence[Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the weights of ``networks``, by name. Raises ValueError, TypeError,
    LookupError."""
    shapes: dict[str, tuple[int, ...]] = {}
    if type(networks) is not list or len(networks) > MAX_NODES:
        raise ValueError("networks: must be a list")
    for i, network in enumerate(networks):
        sizes = [len(network["nodes"]), network["inputs"], network["actions"], *network["units"]]
        if len(sizes) > 103 or any(type(size) is not int or size < 1 for size in sizes):
            raise ValueError(f"network {i}: sizes must be above 0, with at most 100 layers")
        for key in ("at", "memory"):
            if type(network[key]) is not int or network[key] < 0:
                raise ValueError(f"network {i}: {key}={network[key]!r:.40}")
        if network["activation"] not in ("tanh", "relu"):
            raise ValueError(f"network {i}: activation={network['activation']!r:.40}")
        width = network["inputs"]
        shapes[f"{i}.input"] = (len(network["nodes"]), width)
        for k, units in enumerate(network["units"]):
            shapes |= {f"{i}.weight{k}": (width, units), f"{i}.bias{k}": (units,)}
            width = units
        if memory := network["memory"]:
            shapes |= {f"{i}.gru_input": (width, 3 * memory), f"{i}.gru_input_bias": (3 * memory,)}
            shapes |= {f"{i}.gru_state": (memory, 3 * memory), f"{i}.gru_state_bias": (3 * memory,)}
            width = memory
        shapes |= {
            f"{i}.head": (width, network["actions"]),
            f"{i}.head_bias": (network["actions"],),
        }
    if 4 * sum(map(math.prod, shapes.values())) > MAX_WEIGHTS:
        raise ValueError(f"the networks have more than {MAX_WEIGHTS:,} bytes")
    return shapes


class NetworkActor:
    """Networks that choose greedily, each for its nodes.

    Network i of ``networks`` plays "nodes" (their numbers), has hidden layers of "units" with an
    "activation" (tanh or relu), and a GRU of "memory" units, or 0. Its arrays in ``weights``, all
    float32: "i.input" [nodes, inputs], with room for the features in the columns from "at"; the
    other columns identify the node; "i.weight0" [inputs, units], "i.bias0", ..., "i.head",
    "i.head_bias". ``shapes_of`` has all of them.
    """

    def __init__(self, networks: Sequence[Mapping[str, Any]], weights: Mapping[str, Array]) -> None:
        self.parts = [_Network(network, weights, f"{i}.") for i, network in enumerate(networks)]
        self.memory = any(part.memory for part in self.parts)

    def initial(self) -> list[Array] | None:
        """Return the hidden states before the first decision: [nodes, memory] of each network."""
        if not self.memory:
            return None
        return [np.zeros((len(part.rows), part.memory), np.float32) for part in self.parts]

    def sound(self, hidden: Sequence[Array]) -> bool:
        """Whether all hidden states are in range; NaN is not."""
        for states in hidden:  # argmax is three times as fast as max
            if states.size and not (
                states.item(states.argmax()) <= LARGEST_STATE
                and states.item(states.argmin()) >= -LARGEST_STATE
            ):
                return False
        return True

    def act(
        self, features: Array, masks: Array, hidden: list[Array] | None, rng: Any
    ) -> tuple[Array, list[Array] | None]:
        """Return the most likely legal actions int64 [N], and the next hidden states."""
        logits, after = self.logits(features, hidden)
        return greedy(logits, masks), after

    def logits(
        self, features: Array, hidden: list[Array] | None
    ) -> tuple[Array, list[Array] | None]:
        """Return logits float32 [N, A] and the next hidden states for features [N, F]."""
        before: Sequence[Array | None] = hidden or [None] * len(self.parts)
        outputs_of_parts, after = [], []
        for part, state in zip(self.parts, before, strict=True):
            outputs, new = part.run(features, state)
            outputs_of_parts.append(outputs)
            after.append(new)
        if len(outputs_of_parts) == 1 and self.parts[0].all:
            return outputs_of_parts[0], after if self.memory else None
        logits = np.empty((len(features), outputs_of_parts[0].shape[1]), dtype=np.float32)
        for part, outputs in zip(self.parts, outputs_of_parts, strict=True):
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
        """Return logits [R, A] of the R nodes and their next hidden states [R, memory]."""
        x = features[self.rows]
        if self.input.shape[1] > x.shape[1]:
            observed, x = x, self.input.copy()
            x[:, self.at : self.at + observed.shape[1]] = observed
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
