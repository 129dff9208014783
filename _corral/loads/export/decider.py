"""The decisions of a run, or of a rule, in production: ``run.decide``.

    state = run.start()
    forwards = run.decide({"fra": {"arrivals": 120, "capacity": 90}, ...}, state=state)

A ``Decider`` asks the run's own policies, greedily. It plays by the array code of the environment
(``corral.envs.dfaas_v0.features.Deciding``), fed with the numbers of the moment instead of a trace.
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
from corral.loads.export.own_policy import PolicyDecider
from corral.loads.export.standalone import LARGEST_STATE
from corral.trainers.runs.checkpoint_format import (
    MANIFEST,
    MOST_MANIFEST,
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
"""Files of a checkpoint that differ between runs of equal weights."""


class Decider(NodeDecider):
    """Decides by ``policies``, agent -> Policy, of the ``rules`` that they were trained in.

    ``team`` tells them from others, such as the digest of their checkpoint.
    """

    def __init__(self, rules: DfaasRules, policies: Mapping[str, Policy], team: str = "") -> None:
        about = about_rules(rules)
        actor = PolicyActor(rules.agents, [policies[agent] for agent in rules.agents])
        super().__init__({**about, "team": digest_of(about, team)}, actor)
        self.policies = policies

    def by_policy(self, policy: PlanPolicy, arrivals: str | None = None) -> PolicyDecider:
        """Return what decides for the same nodes by a policy of one's own, with ``plan(view)``.
        ``arrivals``: "known" or "unknown"; default: as the run."""
        return PolicyDecider(self.about, policy, arrivals)

    @staticmethod
    def of_rule(rule: str, rules: DfaasRules, arrivals: str | None = None) -> NodeDecider:
        """Return what decides by a rule, such as "overflow/capacity", with the nodes, links, queue
        and report_delay of ``rules``. Arguments and errors as of ``about_rule``."""
        return NodeDecider(about_rule(about_rules(rules), rule, arrivals))


class PolicyActor:
    """Lets N policies choose, greedily, each for its node."""

    def __init__(self, agents: Sequence[str], policies: Sequence[Policy]) -> None:
        self.agents, self.policies = agents, policies

    def initial(self) -> list[Any] | None:
        """Return the hidden states before an episode; None where no policy has one."""
        found = [policy.initial_state(1) for policy in self.policies]
        return None if all(each is None for each in found) else found

    def sound(self, hidden: Sequence[Any]) -> bool:
        """Return whether hidden states of networks are in range; of other policies any may be."""
        return all(
            bool((np.abs(state) <= LARGEST_STATE).all())  # NaN is not
            for policy, state in zip(self.policies, hidden, strict=True)
            if isinstance(policy, PolicyBase) and policy.memory
        )

    def act(
        self, features: Array, masks: Array, hidden: list[Any] | None, rng: np.random.Generator
    ) -> tuple[Array, list[Any] | None]:
        """Return actions int64 [N], and the next hidden states.

        Raises ActionError where a policy returns nonsense, IllegalActionError where its mask
        forbids what it returns.
        """
        before = hidden or [None] * len(self.policies)
        actions, after = np.zeros(len(masks), dtype=np.int64), []
        for i, (agent, policy) in enumerate(zip(self.agents, self.policies, strict=True)):
            observation = masked(features[i : i + 1], masks[i : i + 1])
            decision = policy.act(observation, before[i], rng, deterministic=True)
            found = np.asarray(decision.action).reshape(-1)
            action = found[0] if len(found) == 1 else decision.action
            actions[i] = checked_action(agent, action, masks.shape[1])
            require_legal(agent, int(actions[i]), masks[i])
            after.append(decision.state)
        return actions, None if hidden is None else after


def about_rules(rules: DfaasRules) -> dict[str, Any]:
    """Return how nodes see and choose under ``rules``, as JSON values."""
    table = getattr(rules.levels_of, "requests", None)
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
        "requests": [0, 1] if table is None else table.tolist(),  # of a level, if it has some
        "amount": rules.amount if rules.amount in ("keep", "share") else "requests",
        "arrivals": rules.arrivals,
        "last_counts": rules.last_counts,
        "daily_mean": None if rules.daily_mean is None else rules.daily_mean.tolist(),
        "link_limit": rules.link_limit,
        "caps": rules.caps,
        "seen": seen_in(rules),
    }


def seen_in(rules: DfaasRules) -> dict[str, dict[str, tuple[float, float]]]:
    """Return what nodes meet in the rows of ``rules``: node -> name of a number -> lowest, highest.

    Arrivals and capacity are those of the rows; an augmented load goes two deviations further, but
    not beyond its scale. A queue goes to its limit, spare to the largest capacity, lost to the
    largest arrivals: all of these happen while a team learns.
    """
    section = rules.trace.section(*rules.rows)
    assert section.capacity is not None  # the rules have seen to it
    further = 1.0
    if rules.augment is not None:
        further = math.exp(2 * math.hypot(rules.augment.scale, rules.augment.noise))
    found = {}
    for i, name in enumerate(section.nodes):
        low, high = float(section.arrivals[:, i].min()), float(section.arrivals[:, i].max())
        if further > 1:
            low, high = low / further, max(high, min(high * further, float(rules.load_scale)))
        capacity = section.capacity[:, i]
        most = float(capacity.max())
        found[name] = {
            "arrivals": (low, high),
            "capacity": (float(capacity.min()), most),
            "queue": (0.0, float(rules.queue)),
            "spare": (0.0, most),
            "lost": (0.0, high),
        }
    return found


def rules_of(run: Any) -> DfaasRules:
    """Return the rules that a run was trained in. Raises RunError for other environments."""
    config = run.config.env_config
    if config.env != DfaasRules.name:
        raise RunError(
            f"{run.folder} was trained in {config.env}: only runs of dfaas_v0 decide who forwards "
            "requests to whom; others play through run.policies"
        )
    found: Any = config.rules()
    return found  # type: ignore[no-any-return]


def decider_of(run: Any) -> Decider:
    """Return what decides by a run's policies. Raises RunError, CheckpointError."""
    return Decider(rules_of(run), run.policies, _checkpoint_digest(run))


def _checkpoint_digest(run: Any) -> str:
    """Return a digest of the checkpoint that a run plays by, without its clocks; of its settings as
    it began. Raises CheckpointError."""
    if run.at is not None and not run.at.strip("0"):
        return digest_of(run.config.canonical())
    path = run.checkpoint() / MANIFEST
    files = Manifest.decode(str(path), read_file(path, MOST_MANIFEST)).files
    return digest_of({name: files[name].sha256 for name in files if name not in NOT_OF_A_TEAM})
