"""Findings about the environment alone: observations, actions and rewards of the agents."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium.spaces import Box

from corral.envs.core import Array
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding, joined
from corral.lab.doctor.findings.stored import first_policy

__all__ = [
    "blank_columns",
    "late_obs",
    "missing_identity",
    "same_views",
    "shown_another",
]

EPISODES, DECISIONS = 16, 2000
"""Minimum number of episodes and decisions before a constant 0 is reported."""

MOMENTS = 128
"""Number of decisions or steps used to compare columns."""


# --- Duplicate columns ---------------------------------------------------------------------------


def same_views(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report columns of the observation that are always equal."""
    obs, _ = joined(record.obs)
    if not obs.size:
        return None
    twins = _twins(obs.reshape(-1, obs.shape[-1]))
    if not twins or len(twins) > obs.shape[-1]:
        return None
    hidden = _unshown(record, evidence, [column for pair in twins for column in pair])
    whole = _blocks(twins)
    flags = [len(np.unique(obs[..., a])) < 3 for a, _ in twins]
    if all(flags) and not hidden and not whole:
        return None  # for example one "nothing yet" flag per agent
    return Finding(
        "observation-repeated",
        "One agent's values appear twice in the observation and another agent's are missing."
        if hidden
        else "Some columns of the observation are always equal: one may hold the wrong value.",
        f"columns {', '.join(f'{a} and {b}' for a, b in twins[:4])} are equal in "
        f"{obs.shape[0] * obs.shape[1]:,} decisions" + (f"; {hidden}" if hidden else ""),
        "no column that duplicates another",
        "look for two observation entries that are written with the same key or index",
        2 if hidden or whole else 1,
        record.policy,
    )


def _twins(flat: Array) -> list[tuple[int, int]]:
    """Return the pairs of varying columns of ``flat`` [R, F] that are always equal."""
    seen: dict[bytes, int] = {}
    twins = []
    for column in np.flatnonzero(np.ptp(flat, axis=0) > 1e-6):
        key = np.ascontiguousarray(flat[:, column]).tobytes()
        if key in seen:
            twins.append((seen[key], int(column)))
        seen.setdefault(key, int(column))
    return twins


def _blocks(twins: list[tuple[int, int]]) -> bool:
    """Return True if 3 or more consecutive columns equal 3 others in the same order."""
    pairs = set(twins)
    return any({(a + k, b + k) for k in range(3)} <= pairs for a, b in twins if b - a >= 3)


def _columns(record: PolicyEvidence) -> dict[str, Array]:
    """Return the observations of each agent of a policy: [R, F] by agent."""
    obs, _ = joined(record.obs)
    flat = obs.reshape(-1, len(record.agents), obs.shape[-1])
    return {agent: flat[:, j] for j, agent in enumerate(record.agents)}


def _unshown(record: PolicyEvidence, evidence: Evidence, columns: list[int]) -> str:
    """Describe an agent's value that is shown twice and the missing value that it replaces."""
    shown = {
        agent: v for policy in evidence.policies.values() for agent, v in _columns(policy).items()
    }
    for agent in record.agents:
        agent_values = shown[agent]
        keys = {
            np.ascontiguousarray(agent_values[:, c]).tobytes() for c in range(agent_values.shape[1])
        }
        for column in columns:
            twice = np.ascontiguousarray(agent_values[:, column]).tobytes()
            for other, other_values in shown.items():
                if other == agent or len(other_values) != len(agent_values):
                    continue
                for place in range(other_values.shape[1]):
                    if np.ascontiguousarray(other_values[:, place]).tobytes() != twice:
                        continue
                    for third, values in shown.items():
                        if third in (agent, other) or values.shape != other_values.shape:
                            continue
                        value = np.ascontiguousarray(values[:, place])
                        if np.ptp(value) > 1e-6 and value.tobytes() not in keys:
                            return (
                                f"{agent} observes column {place} of {other} twice and never "
                                "observes "
                                f"column {place} of {third}"
                            )
    return ""


# --- Constant or late observations ---------------------------------------------------------------


def blank_columns(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report columns of the observation that are always 0, although their bounds allow more.

    Corral's own environments have columns that only other settings fill.
    """
    if type(evidence.trainer.rules).__module__.startswith("corral.envs."):
        return None
    obs, _ = joined(record.obs)
    begun = sum(int(begin.sum()) for begin in evidence.env.begins)
    if begun < EPISODES or obs.shape[0] * obs.shape[1] < DECISIONS:
        return None
    blank = np.flatnonzero(~obs.any(axis=(0, 1)))
    if not len(blank) or not obs.any():
        return None
    flat = obs.reshape(-1, obs.shape[-1])
    rest = np.setdiff1d(np.arange(flat.shape[1]), blank)
    if np.mean([len(np.unique(flat[:MOMENTS, column])) > 2 for column in rest]) < 0.5:
        return None  # probably flags that are rarely set
    layout: Any = evidence.trainer.learners[record.policy].group.layout
    names = [
        f"{entry.key or 'observation'}[{column - entry.low}]"
        for entry in layout.entries
        for column in blank
        if entry.axes is None
        and entry.low <= column < entry.high
        and isinstance(entry.space, Box)
        and entry.space.low.flat[column - entry.low] < entry.space.high.flat[column - entry.low]
    ]
    if not names:
        return None
    return Finding(
        "observation-blank",
        "Parts of the observation are always 0.",
        f"{', '.join(names[:6])}: 0 in {obs.shape[0] * obs.shape[1]:,} decisions",
        "values that vary, or no column",
        "check whether these columns should hold a value: look for a field that is never written "
        "or "
        "that a wrapper overwrites",
        1,
        record.policy,
    )


def late_obs(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report observations that show the state of the previous step."""
    twins = evidence.env.twins
    reasons, certainty = [], 0  # at most 2: an environment may be late on purpose
    if twins is not None and first_policy(record, evidence) and twins.late >= 8 and not twins.soon:
        reasons.append(
            f"in {twins.late} paired replays, different actions changed no observation at the next "
            "step and changed one at the step after; they never changed the next observation"
        )
        certainty = 1
    first, later = _repeats(record, evidence)
    if first is not None and first >= 0.99 and later < 0.5:
        reasons.append(
            f"the second observation equals the first in {first:.0%} of episodes, later "
            f"observations equal the one before in {later:.0%}"
        )
        certainty += 1
    stale, columns = _stale_columns(record, evidence)
    if columns and stale >= 0.5 * columns:
        reasons.append(f"{stale} of {columns} columns equal the global state of the previous step")
        certainty = 2
    if not reasons:
        return None
    return Finding(
        "observation-late",
        "The environment returns the observation of the previous step.",
        "; ".join(reasons),
        "an observation that shows the effect of the last actions",
        "compute the observation after the state is updated, not before; in a wrapper, return the "
        "observation of the current step",
        min(2, certainty),
        record.policy,
    )


def _repeats(record: PolicyEvidence, evidence: Evidence) -> tuple[float | None, float]:
    """Return two shares of repeated observations: second equal to first, and later ones.

    The first share is of episodes; it is None with fewer than 8 episodes.
    """
    first: list[Array] = []
    later: list[Array] = []
    for repeats, begins in zip(record.playing.repeats, evidence.env.begins, strict=False):
        begun = np.repeat(begins[: len(repeats)], len(record.agents), axis=1)
        second = np.zeros_like(begun)
        second[1:] = begun[:-1]
        current = repeats[: len(begun)]
        first.append(current[second & ~begun])
        rest = ~second & ~begun
        rest[:2] = False
        later.append(current[rest])
    if not first or sum(map(len, first)) < 8 or not sum(map(len, later)):
        return None, 0.0
    return float(np.concatenate(first).mean()), float(np.concatenate(later).mean())


def _stale_columns(record: PolicyEvidence, evidence: Evidence) -> tuple[int, int]:
    """Return the number of stale columns and of columns that occur in the global state.

    A stale column equals the global state of the step before and not the current one. Only columns
    that differ between environment copies count: the others may match by chance.
    """
    stale = columns = 0
    for (obs, _), states, begins in zip(
        record.obs, evidence.env.states, evidence.env.begins, strict=False
    ):
        steps = min(len(obs), len(states))
        shown = obs[:steps].reshape(steps, begins.shape[1], len(record.agents), -1)
        inside = np.argwhere(~begins[1:steps])[:MOMENTS]
        if len(inside) < 16 or not states.shape[-1]:
            return 0, 0
        t, b = inside.T
        now, before = states[t + 1, b].astype(np.float32), states[t, b].astype(np.float32)
        moves = (now != before).mean(axis=0) > 0.1
        at = {now[:, g].tobytes() for g in np.flatnonzero(moves)}
        was = {before[:, g].tobytes() for g in np.flatnonzero(moves)}
        seen = shown[t + 1, b]  # [R, P, F]
        differs = np.any([np.ptp(seen[t == item], axis=0) > 0 for item in np.unique(t)], axis=0)
        for j in range(seen.shape[1]):
            for f in range(seen.shape[2]):
                if not differs[j, f]:
                    continue
                key = np.ascontiguousarray(seen[:, j, f]).tobytes()
                stale += key in was and key not in at
                columns += key in was or key in at
        break
    return stale, columns


# --- Agent ids, and views of other agents ---------------------------------------------------------


def missing_identity(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report agents that share a policy without an agent id and get equal observations."""
    group: Any = evidence.trainer.learners[record.policy].group
    if len(record.agents) < 2 or group.identities or not record.obs:
        return None
    obs, _ = joined(record.obs)
    flat = obs.reshape(len(obs), -1, len(record.agents), obs.shape[-1])  # [T, B, P, F]
    equal = (np.ptp(flat, axis=2) < 1e-6).all(axis=-1) if obs.shape[-1] else np.ones(1)
    if group.layout.images or equal.mean() <= 0.02:
        return None  # the observations already distinguish the agents
    return Finding(
        "shared-without-identity",
        "Agents share one policy without an agent id, and their observations are equal.",
        f"{', '.join(record.agents)}: equal observations in {equal.mean():.0%} of steps",
        "an observation that identifies the agent, or separate policies",
        "keep agent_id=True, or pass policies='separate'",
        2 if equal.mean() >= 0.5 else 1,
        record.policy,
    )


def shown_another(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report an agent that always gets the observation of another one, unlike the third."""
    views = {
        agent: view
        for policy in evidence.policies.values()
        if policy.obs
        for agent, view in _columns(policy).items()
    }
    if not first_policy(record, evidence) or len(views) < 3:
        return None
    sizes = {view.shape for view in views.values()}
    if len(sizes) > 1 or not np.prod(next(iter(sizes))):
        return None
    agents = list(views)
    acts = {
        agent: np.concatenate(policy.acted).reshape(-1, len(policy.agents))[:, j]
        for policy in evidence.policies.values()
        if policy.obs
        for j, agent in enumerate(policy.agents)
    }
    equal = []
    for k, first in enumerate(agents):
        for second in agents[k + 1 :]:
            both = acts[first] & acts[second]  # an agent that is out observes zeros
            seen = views[first][both]
            varies = len(seen) and np.ptp(seen, axis=0).max() > 1e-6
            if varies and np.array_equal(seen, views[second][both]):
                equal.append((first, second))
    # All views may be equal on purpose, but then they are equal for all agents.
    if not equal or len(equal) == len(agents) * (len(agents) - 1) // 2:
        return None
    return Finding(
        "observation-of-another",
        "An agent always gets the observation of another agent.",
        f"{'; '.join(f'{first} and {second}' for first, second in equal[:4])}: equal in all "
        "recorded steps in which both act, unlike those of the other agents",
        "an observation for each agent",
        "index observations by agent name, not by the order of a list; look for a loop variable "
        "that is not used",
        1,
    )
