"""The decisions of a run, or of a rule, in production: ``run.decide``.

    state = run.start()
    forwards = run.decide({"fra": {"arrivals": 120, "capacity": 90}, ...}, state=state)

A ``Decider`` uses the run's policies, greedily. It runs the environment's array code
(``corral.envs.dfaas_v0.features.Deciding``) on current numbers instead of a trace.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.envs.dfaas_v0.planned import PlanPolicy
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.envs.masks import checked_action, masked, require_legal
from corral.envs.policy import Policy, PolicyBase
from corral.errors import RunError
from corral.loads.export.core import (
    DecisionError,
    NodeDecider,
    OutOfRangeError,
    State,
    about_rule,
    digest_of,
)
from corral.loads.export.standalone import LARGEST_STATE
from corral.loads.export.user_policy import PolicyDecider
from corral.trainers.runs.checkpoint_format import (
    MANIFEST,
    MAX_MANIFEST,
    Manifest,
    read_file,
)

__all__ = [
    "Decider",
    "DecisionError",
    "OutOfRangeError",
    "State",
    "about_rules",
    "decider_of",
    "rules_of",
    "seen_in",
]


NOT_OF_A_TEAM = ("configuration.json", "progress.json")
"""Files of a checkpoint that differ between runs with equal weights."""


class Decider(NodeDecider):
    """Decides by ``policies``, agent -> Policy, trained with ``rules``.

    ``team`` identifies them, for example the digest of their checkpoint.
    """

    def __init__(self, rules: DfaasRules, policies: Mapping[str, Policy], team: str = "") -> None:
        about = about_rules(rules)
        actor = PolicyActor(rules.agents, [policies[agent] for agent in rules.agents])
        super().__init__({**about, "team": digest_of(about, team)}, actor)
        self.policies = policies

    def by_policy(self, policy: PlanPolicy, arrivals: str | None = None) -> PolicyDecider:
        """Return a decider for the same nodes by a user's policy with ``plan(view)``.
        ``arrivals``: "known" or "unknown"; default: as in the run."""
        return PolicyDecider(self.about, policy, arrivals)

    @staticmethod
    def of_rule(rule: str, rules: DfaasRules, arrivals: str | None = None) -> NodeDecider:
        """Return a decider by a rule, such as "overflow/capacity", with the nodes, links, queue and
        report_delay of ``rules``. Arguments and errors are those of ``about_rule``."""
        return NodeDecider(about_rule(about_rules(rules), rule, arrivals))


class PolicyActor:
    """Lets N policies choose greedily, one for each node."""

    def __init__(self, agents: Sequence[str], policies: Sequence[Policy]) -> None:
        self.agents, self.policies = agents, policies

    def initial(self) -> list[Any] | None:
        """Return the hidden states before an episode; None without any."""
        states = [policy.initial_state(1) for policy in self.policies]
        return None if all(state is None for state in states) else states

    def sound(self, hidden: Sequence[Any]) -> bool:
        """Whether the hidden states of networks are in range; those of other policies are not
        checked."""
        return all(
            bool((np.abs(state) <= LARGEST_STATE).all())  # False for NaN
            for policy, state in zip(self.policies, hidden, strict=True)
            if isinstance(policy, PolicyBase) and policy.memory
        )

    def act(
        self, features: Array, masks: Array, hidden: list[Any] | None, rng: np.random.Generator
    ) -> tuple[Array, list[Any] | None]:
        """Return actions int64 [N], and the next hidden states.

        Raises ActionError for an invalid action, IllegalActionError for an action that the mask
        forbids.
        """
        before = hidden or [None] * len(self.policies)
        actions, after = np.zeros(len(masks), dtype=np.int64), []
        for i, (agent, policy) in enumerate(zip(self.agents, self.policies, strict=True)):
            observation = masked(features[i : i + 1], masks[i : i + 1])
            decision = policy.act(observation, before[i], rng, deterministic=True)
            chosen = np.asarray(decision.action).reshape(-1)
            action = chosen[0] if len(chosen) == 1 else decision.action
            actions[i] = checked_action(agent, action, masks.shape[1])
            require_legal(agent, int(actions[i]), masks[i])
            after.append(decision.state)
        return actions, None if hidden is None else after


def about_rules(rules: DfaasRules) -> dict[str, Any]:
    """Return the observations and actions under ``rules``, as JSON values."""
    table = getattr(rules.levels_of, "requests", None)
    newer: dict[str, Any] = {}  # absent without these arguments, as in earlier exports
    if rules.residual is not None:
        newer = {"residual": str(rules.residual.rule), "offsets": rules.residual.reach}
    if rules.beyond is not None:
        newer["beyond"] = rules.beyond
    return {
        "nodes": list(rules.trace.nodes),
        "links": rules.network.links.astype(int).tolist(),
        "route": rules.route,
        "queue": rules.queue,
        "report_delay": rules.report_delay,
        "observation": rules.observation,
        "load_scale": float(rules.load_scale),
        "capacity_scale": float(rules.capacity_scale),
        "max_level": rules.max_level,
        "requests": [0, 1] if table is None else table.tolist(),  # by level, if levels have numbers
        "amount": rules.amount if rules.amount in ("keep", "share") else "requests",
        "arrivals": rules.arrivals,
        "last_counts": rules.last_counts,
        "daily_mean": None if rules.daily_mean is None else rules.daily_mean.tolist(),
        "link_limit": rules.link_limit,
        "caps": rules.caps,
        "seen": seen_in(rules),
        **newer,
    }


def seen_in(rules: DfaasRules) -> dict[str, dict[str, tuple[float, float]]]:
    """Return the ranges in the rows of ``rules``: node -> name of a number -> (lowest, highest).

    Arrivals and capacity have the range of the rows; an augmented load exceeds it by two
    deviations, up to its scale. The queue ranges up to its limit, spare up to the largest capacity,
    lost up to the largest arrivals: all of these occur during training.
    """
    section = rules.trace.section(*rules.rows)
    assert section.capacity is not None  # checked by the rules
    factor = 1.0
    if rules.augment is not None:
        factor = math.exp(2 * math.hypot(rules.augment.scale, rules.augment.noise))
    ranges = {}
    for i, name in enumerate(section.nodes):
        low, high = float(section.arrivals[:, i].min()), float(section.arrivals[:, i].max())
        if factor > 1:
            low, high = low / factor, max(high, min(high * factor, float(rules.load_scale)))
        capacity = section.capacity[:, i]
        largest = float(capacity.max())
        ranges[name] = {
            "arrivals": (low, high),
            "capacity": (float(capacity.min()), largest),
            "queue": (0.0, float(rules.queue)),
            "spare": (0.0, largest),
            "lost": (0.0, high),
        }
    return ranges


def rules_of(run: Any, **changes: Any) -> DfaasRules:
    """Return the rules with which a run was trained, with ``changes`` of their arguments.

    Raises RunError for other environments.
    """
    config = run.config.env_config
    if config.env != DfaasRules.name:
        raise RunError(
            f"{run.folder} was trained in {config.env}: only runs of dfaas_v0 decide about "
            "forwarding; use run.policies for other environments"
        )
    rules: Any = config.rules(**changes)
    return rules  # type: ignore[no-any-return]


def decider_of(run: Any, beyond: str | None = None) -> Decider:
    """Return the decider of a run's policies.

    ``beyond``: instead of the value in training, see ``DfaasRules``. Raises RunError,
    CheckpointError; ValueError for "rule" without a residual run.
    """
    changes = {} if beyond is None else {"beyond": beyond}
    return Decider(rules_of(run, **changes), run.policies, _checkpoint_digest(run))


def _checkpoint_digest(run: Any) -> str:
    """Return a digest of the run's checkpoint without its clocks, or of its settings if the
    checkpoint is the initial one. Raises CheckpointError."""
    if run.at is not None and not run.at.strip("0"):
        return digest_of(run.config.canonical())
    path = run.checkpoint() / MANIFEST
    files = Manifest.decode(str(path), read_file(path, MAX_MANIFEST)).files
    return digest_of({name: files[name].sha256 for name in files if name not in NOT_OF_A_TEAM})
