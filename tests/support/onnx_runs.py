"""Runs of every kind that ONNX graphs are made of, and what tells a graph from its policy.

Observations are those of a gateway, in whole numbers, and of policies of ours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from corral.data import Trace
from corral.envs.core import Array, Observation
from corral.envs.dfaas_v0 import DfaasRules
from corral.loads.export.onnx_graph import TAG
from corral.trainers.driver import train
from corral.trainers.policies import NetworkPolicy
from corral.trainers.runs.run import Run
from support import own_networks
from support.loads import days, small_trace

LINE = {"node_0": ["node_1", "node_3"], "node_1": ["node_2"], "node_3": ["node_0"]}
"""Neighbours of four nodes, of which node_2 has none."""

TWO = {f"node_{i}": f"node_{i % 2}" for i in range(4)}
"""Two policies, of two nodes: it takes seconds to write a graph."""

CONFIGURATIONS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "shared": ("mappo", {}, {"policies": "shared"}),
    "units": ("ippo", {"max_level": 4, "queue": 3}, {"policies": TWO}),
    "quantiles": (
        "mappo",
        {"amount": "quantile", "max_level": 5, "report_delay": 0, "neighbours": LINE},
        {"net_arch": (16, 16, 16), "activation": "tanh"},
    ),
    "list": (
        "policy_iteration",
        {"amount": [0, 1, 5, 12], "route": "spare"},
        {"lookahead": 2, "net_arch": (16, 16)},
    ),
    "choose": (
        "mappo",
        {"route": "choose", "neighbours": LINE, "report_delay": 2},
        {"memory": 8, "policies": "shared", "agent_id": False},
    ),
    "summary": ("mappo", {"observation": "summary", "queue": 2}, {}),
    "summary, choose": (
        "ippo",
        {"observation": "summary", "route": "choose", "neighbours": LINE, "max_level": 7},
        {"memory": 4},
    ),
    "neighborhood": ("mappo", {"observation": "neighborhood", "neighbours": LINE}, {}),
    "own network": ("ippo", {"queue": 1}, {"model": own_networks.make}),
    "keep": ("mappo", {"amount": "keep", "queue": 6, "link_limit": 2, "neighbours": LINE}, {}),
    "unknown": (
        "mappo",
        {"arrivals": "unknown", "amount": "keep", "queue": 6, "max_level": 7, "neighbours": LINE},
        {"policies": "shared"},
    ),
    "unknown, counts": (
        "ippo",
        {"arrivals": "unknown", "amount": "share", "last_counts": 3, "daily_mean": True},
        {"policies": TWO, "memory": 4},
    ),
    "unknown, choose": (
        "mappo",
        {"arrivals": "unknown", "route": "choose", "amount": "quantile", "max_level": 5},
        {},
    ),
    "unknown, summary": (
        "mappo",
        {
            "arrivals": "unknown",
            "observation": "summary",
            "route": "choose",
            "max_level": 6,
            "last_counts": 2,
            "daily_mean": True,
        },
        {},
    ),
    "sb3_ppo": ("sb3_ppo", {"queue": 3}, {"policies": "shared", "batch_size": 8}),
    "sb3_dqn": ("sb3_dqn", {}, {"learning_starts": 4}),
    "sb3_maskable_ppo": ("sb3_maskable_ppo", {"route": "choose"}, {"batch_size": 8}),
    "sb3_a2c": ("sb3_a2c", {"observation": "summary"}, {}),
}


def trained(name: str, folder: Path, trace: Trace | None = None, **given: Any) -> Run:
    """Return a run of a configuration, on a small load unless told."""
    trainer, env_kwargs, settings = CONFIGURATIONS[name]
    given = {**given, **settings}
    timed = "daily_mean" in env_kwargs
    for setting, unknown in (("n_steps", trainer == "sb3_dqn"), ("net_arch", "model" in settings)):
        if unknown:
            given.pop(setting, None)
    return train(
        "dfaas_v0",
        trainer=trainer,
        env_kwargs={
            "trace": trace or (days(3, 4) if timed else small_trace(nodes=4, steps=60)),
            "max_cycles": 5,
            **env_kwargs,
        },
        out=folder / name.replace(", ", "-"),
        preset="none",
        **given,
    )


EXTREME = 0.3
"""Share of the numbers that are 0, 1, or the largest there may be."""


@dataclass(frozen=True)
class Moments:
    """R moments of N nodes, as ``rules`` with a load of their own have them."""

    rules: DfaasRules
    observations: dict[str, Observation]  # agent -> [R, ...]
    numbers: dict[str, Array]  # arrivals, capacity, queue, spare, lost: int64 [R, N]
    counts: list[Array]  # of past steps, newest first: int64 [R, N] each
    time: Array  # int64 [R] seconds

    def inputs(self, run: Run, number: int) -> dict[str, Array]:
        """Return what the graph of a node's policy takes: int64 [R, ...] by name."""
        rules, own = self.rules, ("capacity", "queue")
        given = {"arrivals": self.numbers["arrivals"][:, number]}
        if rules.arrivals == "unknown":
            given = {}
        if self.counts:
            counts = [each[:, number] for each in self.counts]
            given["last_arrivals"] = counts[0] if len(counts) == 1 else np.stack(counts, axis=1)
        given |= {name: self.numbers[name][:, number] for name in own}
        spare, lost = self.numbers["spare"], self.numbers["lost"]
        if rules.daily_mean is not None and rules.observation != "every":
            given["daily_mean"] = rules.daily_mean[self.time // 3600 % 24, number]
        elif rules.daily_mean is not None:
            given["time"] = self.time
        if rules.observation != "every":
            own = {"spare": spare[:, number], "lost": lost[:, number]}
            linked = rules.network.linked[number]
            near = rules.network.others[number][linked]  # in cyclic order
            return {
                **given,
                **own,
                "neighbours_spare": spare[:, near],
                "neighbours_lost": lost[:, near],
            }
        agents = list(rules.agents)
        shared = [
            a for a in agents if run.config.policies[a] == run.config.policies[agents[number]]
        ]
        node = {"node": np.full(len(spare), number)} if len(shared) > 1 else {}
        return {**node, **given, "spare": spare, "lost": lost}


def random_moments(run: Run, rows: int, seed: int) -> Moments:
    """Return random moments within the range of the run, many of them extreme."""
    rng = np.random.default_rng(seed)
    trained: Any = run.config.env_config.rules()
    nodes, timed = trained.trace.nodes, trained.daily_mean is not None
    shape = rows, len(nodes)
    length = max(rows, 2 * timed)  # one row has no step, and no days
    whole = length, len(nodes)
    loads, spares = int(trained.load_scale), int(trained.capacity_scale)
    trace = Trace(
        nodes=nodes,
        arrivals=_numbers(rng, loads, whole),
        capacity=_numbers(rng, spares, whole),
        times=np.arange(length) * (3600 if timed else 1),
        clock="utc" if timed else "integer",
    )
    given = {"rows": None, "start": "random", "augment": None, "capacity": None}
    scales = {"load_scale": trained.load_scale, "capacity_scale": trained.capacity_scale}
    rules: Any = run.config.env_config.rules(
        trace=trace, capacity_rows=None, **given, **scales, amount=trained.amount
    )
    if timed:
        assert rules.daily_mean.tolist() == trained.daily_mean.tolist()
    state = rules.start_at(np.arange(rows), [rng] * rows)
    state.t[:] = rules.last_counts  # as many steps are over
    state.queue[:] = _numbers(rng, trained.queue, shape)
    state.spare[:], state.lost[:] = _numbers(rng, spares, shape), _numbers(rng, loads, shape)
    for i, most in enumerate((spares, loads)):
        state.reports[..., i] = _numbers(rng, most, state.reports.shape[:-1])
    spare, lost = rules._reported(state)
    arrivals, capacity, _ = rules.load.at(state, rules._row(state))
    numbers = {"arrivals": arrivals, "capacity": capacity, "queue": state.queue}
    observations = {agent: dict(each) for agent, each in rules.observe(state).items()}
    counts = [
        rules.load.counted(state, rules._row(state, back), back)
        for back in range(1, rules.last_counts + 1)
    ]
    time = trace.times[rules._row(state)]
    return Moments(rules, observations, {**numbers, "spare": spare, "lost": lost}, counts, time)


def _numbers(rng: np.random.Generator, most: int, shape: tuple[int, ...]) -> Array:
    drawn = rng.integers(0, most, size=shape, endpoint=True)
    ends = rng.choice([0, 0, min(1, most), most], size=shape)
    return np.where(rng.random(shape) < EXTREME, ends, drawn)


@dataclass
class Difference:
    """How a graph differs from the policy that it was made of, over all that was compared."""

    decisions: int = 0
    logits: float = 0.0  # largest difference of the logit of a legal action
    actions: int = 0  # decisions with another action
    closest: float = 0.0  # of those the largest gap between the two best logits
    illegal: int = 0  # actions outside the mask
    masks: int = 0  # decisions with another mask
    states: float = 0.0  # largest difference of a hidden state
    amounts: int = 0  # decisions with other requests, or another target, than the rules forward

    def add(self, other: Difference) -> None:
        for field in dataclasses.fields(self):
            mine, theirs = getattr(self, field.name), getattr(other, field.name)
            largest = field.type == "float"
            setattr(self, field.name, max(mine, theirs) if largest else mine + theirs)


def difference(
    moments: Moments,
    number: int,
    policy: NetworkPolicy,
    state: Array | None,
    found: dict[str, Array],
) -> Difference:
    """Compare what a graph ``found`` for a node with what its policy and the rules say."""
    agent = moments.rules.agents[number]
    observation: Any = moments.observations[agent]
    logits, best, after = _ours(policy, observation, state)
    mask = observation["action_mask"] != 0
    theirs = found["logits"]
    action = found["action"]
    every = np.arange(len(action))
    top = np.sort(np.where(mask, logits, -np.inf), axis=1)[:, -2:]
    gap = top[:, 1] - top[:, 0] if top.shape[1] > 1 else np.full(len(action), np.inf)
    other = action != best
    result = Difference(
        decisions=len(action),
        logits=float(np.abs(np.where(mask, theirs, 0) - np.where(mask, logits, 0)).max()),
        actions=int(other.sum()),
        closest=float(gap[other].max()) if other.any() else 0.0,
        illegal=int((~mask[every, action]).sum()),
        masks=int((np.isfinite(theirs) != mask).any(axis=1).sum()),
        states=0.0 if after is None else float(np.abs(found["next_state"][:, :-TAG] - after).max()),
        amounts=int(_otherwise(moments, number, found).sum()),
    )
    assert found["in_range"].all(), agent
    return result


def _ours(
    policy: NetworkPolicy, observation: Any, state: Array | None
) -> tuple[Array, Array, Array | None]:
    """Return logits [R, A], actions [R] and the next hidden state of the policy itself."""
    decision = policy.act(observation, state, deterministic=True)
    kind: Any = policy.forward
    if kind.values:  # of actions; a distribution does not tell them
        return _values(policy, observation), decision.action, None
    logits: Any = policy.distribution(observation, state)
    return logits.logits.detach().numpy(), decision.action, decision.state


def _values(policy: NetworkPolicy, observation: Any) -> Array:
    network: Any = policy.network
    kind: Any = policy.forward
    if hasattr(network, "q_net"):  # of Stable-Baselines3
        rows, agent = len(observation["action_mask"]), kind.columns.agents.index(policy.agent)
        entries = kind.columns.flat(observation, (rows,), agent)
        found = network.q_net(network.obs_to_tensor(entries)[0])
    else:
        own = observation["observation"]
        place = kind.group.agents.index(policy.agent)
        identity = np.tile(np.eye(kind.group.identities, dtype=np.float32)[place], (len(own), 1))
        found = network(torch.from_numpy(np.concatenate([own, identity], axis=1)))
    values: Array = found.detach().numpy()
    return values


def _otherwise(moments: Moments, number: int, found: dict[str, Array]) -> Array:
    """Return where the rules forward another amount, or to another node, for the same action."""
    rules: Any = moments.rules
    numbers = moments.numbers
    actions = np.zeros_like(numbers["arrivals"])
    actions[:, number] = found["action"]
    arrivals = numbers["arrivals"]
    highest = rules.load.highest(arrivals)
    level, _, neighbour = rules.actions.read(actions, highest)
    room = numbers["capacity"] + rules.queue - numbers["queue"]
    forwarded = rules._within(rules.levels_of.forwarded(level, arrivals, room))[:, number]
    wrong = forwarded != _carried_out(found, arrivals[:, number], rules, number)
    if "target" in found:
        meant = rules.features.neighbour(neighbour, numbers["spare"])[:, number]
        if rules.observation != "every":  # which of the neighbours that were given
            others = rules.network.others[number][rules.network.linked[number]]
            place = np.append(others, -1)[found["target"]]
        else:
            place = found["target"]
        wrong |= np.where(level[:, number] > 0, meant, -1) != place
    return np.asarray(wrong)


def _carried_out(found: dict[str, Array], arrivals: Array, rules: Any, number: int) -> Array:
    """Return the requests that a decision forwards of these arrivals."""
    if "amount" in found:
        return found["amount"]
    if "keep" in found:
        go = np.where(found["keep"] < 0, 0, np.maximum(arrivals - found["keep"], 0))
    elif "share" in found:
        go = np.ceil(found["share"] * arrivals - 1e-9).astype(np.int64)
    else:
        go = np.minimum(found["most"], arrivals)
    caps = rules.caps
    return go if caps is None else np.minimum(go, caps * rules.network.degree[number])


def played(run: Run) -> dict[str, dict[int, Any]]:
    """Return the policies by name and number of the node."""
    found: dict[str, dict[int, Any]] = {}
    for number, agent in enumerate(run.policies):
        found.setdefault(run.config.policies[agent], {})[number] = run.policies[agent]
    return found


def compared(run: Run, decide: Mapping[str, Any], rows: int, seed: int) -> Difference:
    """Return how what ``decide`` says, by the name of the policy, differs from the run."""
    moments = random_moments(run, rows, seed)
    total = Difference()
    for name, policies in played(run).items():
        for number, policy in policies.items():
            inputs = moments.inputs(run, number)
            state = None
            if policy.memory:
                rng = np.random.default_rng(seed)
                state = rng.uniform(-1, 1, (rows, policy.memory)).astype(np.float32)
                fresh = np.zeros((rows, policy.memory + TAG), np.float32)
                tag = decide[name]({**inputs, "state": fresh})["next_state"][:, policy.memory :]
                inputs["state"] = np.concatenate([state, tag], axis=1)
            total.add(difference(moments, number, policy, state, decide[name](inputs)))
    return total


def as_graphs(paths: list[Path]) -> dict[str, Any]:
    """Return what onnxruntime decides by the files."""

    def graph(path: Path) -> Any:
        import onnxruntime as ort

        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(path, options)
        names = [each.name for each in session.get_outputs()]
        return lambda inputs: dict(zip(names, session.run(None, inputs), strict=True))

    return {path.stem: graph(path) for path in paths}


def random_inputs(run: Run, rows: int, seed: int, number: int = 0) -> dict[str, Array]:
    """Return random inputs of the graph of a node's policy."""
    given = random_moments(run, rows, seed).inputs(run, number)
    policies: Any = run.policies
    if memory := next(iter(policies.values())).memory:
        given["state"] = np.zeros((rows, memory + TAG), dtype=np.float32)
    return given


# --- Out of range --------------------------------------------------------------------------------

ODD = (-(2**63), -(2**31), -7, -1, 0, 1, 7, 2**31, 2**31 + 1, 2**53, 2**63 - 1)
"""Numbers that are mostly no requests of anybody."""


def hostile_inputs(
    inputs: dict[str, Array], rng: np.random.Generator, share: float = 0.2
) -> dict[str, Array]:
    """Return ``inputs`` with numbers replaced by odd ones, each with probability ``share``; hidden
    states by NaN, infinite and huge ones."""
    found = {}
    for name, given in inputs.items():
        odd: Array = np.array(ODD)
        if given.dtype != np.int64:
            odd = np.array([np.nan, np.inf, -np.inf, 1e30, -2.0], dtype=given.dtype)
        found[name] = np.where(rng.random(given.shape) < share, rng.choice(odd, given.shape), given)
    return found


def illegal_decisions(
    run: Run, inputs: dict[str, Array], found: dict[str, Array], number: int
) -> Array:
    """Return where a decision of a node for any ``inputs`` is one that no rules allow: bool [R].

    It forwards less than nothing or more than arrived, to nobody that is a neighbour, or not what
    its logits say.
    """
    rules: Any = run.config.env_config.rules()
    logits = found["logits"]
    every = np.arange(len(logits))
    if "amount" in found:
        amount = found["amount"]
        wrong = (amount < 0) | (amount > np.maximum(inputs["arrivals"], 0))
    else:  # of a plan: what it forwards of very many
        wrong = np.zeros(len(every), dtype=bool)
        if "keep" in found:
            amount, wrong = found["keep"] + 1, found["keep"] < -1
        elif "share" in found:
            amount, wrong = found["share"], (found["share"] < 0) | (found["share"] > 1)
        else:
            amount, wrong = found["most"], found["most"] < 0
    wrong |= ~np.isfinite(logits[every, found["action"]]) | np.isnan(logits).any(axis=1)
    some = found["action"] > 0
    wrong |= (amount > 0) & ~some
    if not rules.levels_of.by_room:  # levels that keep may forward nothing
        wrong |= some & (amount == 0)
    if "neighbours_spare" in inputs:
        near = inputs["neighbours_spare"] >= 0  # [R, D]
        wrong |= (amount > 0) & ~near.any(axis=1)
        known = near
    else:
        nodes = inputs.get("node", np.full(len(amount), number)).clip(0, len(rules.agents) - 1)
        known = rules.network.links[nodes]  # [R, N]
        wrong |= (amount > 0) & ~known.any(axis=1)
    if "target" in found:
        place = found["target"]
        named = known[every, np.maximum(place, 0)] if known.shape[1] else place < 0
        wrong |= np.where(amount > 0, (place < 0) | ~named, place != -1)
    return np.asarray(wrong)
