"""Findings about observations: whether each agent gets its own of the current step."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from corral.envs.core import Array
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding, joined
from corral.lab.doctor.findings.stored import first_policy, stored_obs
from corral.lab.doctor.findings.texts import finding_of, strongest
from corral.lab.doctor.findings.updates import constant_obs, repeats_of

__all__ = ["late_obs", "misplaced_obs"]

EPISODES, DECISIONS = 16, 2000
"""Minimum number of episodes and decisions before a constant 0 is reported."""

MOMENTS = 128
"""Number of decisions or steps used to compare columns."""


def misplaced_obs(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report observations that are not the agent's own of the current step.

    The stored ones are compared with the environment's, and these with each other and with the
    global state, by agent, by step and by column.
    """
    rules = (stored_obs, late_obs, constant_obs, _of_another, _without_identity, _repeated, _blank)
    return strongest(rule(record, evidence) for rule in rules)


ALL_ACT = 0.75
"""Minimum share of steps in which an agent acts, if agents do not take turns."""

# --- By step -------------------------------------------------------------------------------------


def late_obs(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report observations that show the state of the previous step, or actions one step late.

    The replays cannot distinguish both if no reward changes in the step of the action.
    """
    twins = evidence.env.twins
    reasons, certainty, cause = (
        [],
        0,
        "observation-late",
    )  # at most 2: an environment may be late on purpose
    if twins is not None and first_policy(record, evidence) and twins.late >= 8 and not twins.soon:
        reasons.append(
            f"in {twins.late} paired replays, different actions changed no observation at the next "
            "step and changed one at the step after; they never changed the next observation"
        )
        certainty, cause = 1, cause if twins.paid.any() else "actions-late"
    first, later = repeats_of(record, evidence)
    acted = np.concatenate(record.acted).mean() if record.acted else 1.0
    turns = acted < ALL_ACT  # the state may wait for the other agents' turns
    if not turns and len(first) >= 8 and len(later) and first.mean() >= 0.99 and later.mean() < 0.5:
        reasons.append(
            f"the second observation equals the first in {first.mean():.0%} of episodes, later "
            f"observations equal the one before in {later.mean():.0%}"
        )
        certainty, cause = certainty + 1, "observation-late"
    stale, columns = _stale_columns(record, evidence)
    if columns and stale >= 0.5 * columns:
        reasons.append(f"{stale} of {columns} columns equal the global state of the previous step")
        certainty, cause = 2, "observation-late"
    if not reasons:
        return None
    return finding_of(cause, "; ".join(reasons), min(2, certainty), record.policy)


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


# --- By agent ------------------------------------------------------------------------------------


def _views(evidence: Evidence) -> dict[str, Array]:
    """Return the environment's observations [R, F] by agent, for the recorded policies."""
    views = {}
    for record in evidence.policies.values():
        obs, _ = joined(record.obs)
        for j, agent in enumerate(record.agents if record.obs else ()):
            views[agent] = obs[:, j :: len(record.agents)].reshape(-1, obs.shape[-1] or 1)
    return views


def _of_another(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report an agent that always gets the observation of another one, unlike the third."""
    views = _views(evidence)
    if not first_policy(record, evidence) or len(views) < 3:
        return None
    sizes = {view.shape for view in views.values()}
    if len(sizes) > 1 or not np.prod(next(iter(sizes))):
        return None
    acts = {
        agent: np.concatenate(policy.acted).reshape(-1, len(policy.agents))[:, j]
        for policy in evidence.policies.values()
        if policy.obs
        for j, agent in enumerate(policy.agents)
    }
    pairs = list(itertools.combinations(views, 2))
    equal = []
    for first, second in pairs:
        both = acts[first] & acts[second]  # an agent that is out observes zeros
        seen = views[first][both]
        varies = len(seen) and np.ptp(seen, axis=0).max() > 1e-6
        if varies and np.array_equal(seen, views[second][both]):
            equal.append(f"{first} and {second}")
    # All views may be equal on purpose, but then they are equal for all agents.
    if not equal or len(equal) == len(pairs):
        return None
    measured = (
        f"{'; '.join(equal[:4])}: equal in all recorded steps in which both act, unlike those of "
        "the other agents"
    )
    return finding_of("observation-of-another", measured, 1)


def _without_identity(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report agents that share a policy without an agent id and get equal observations."""
    group: Any = evidence.trainer.learners[record.policy].group
    if len(record.agents) < 2 or group.identities or not record.obs:
        return None
    obs, _ = joined(record.obs)
    agents = [obs[:, j :: len(record.agents)] for j in range(len(record.agents))]  # [T, B, F] each
    equal = (np.ptp(agents, axis=0) < 1e-6).all(axis=-1)
    if group.layout.images or equal.mean() <= 0.02:
        return None  # the observations already distinguish the agents
    measured = f"{', '.join(record.agents)}: equal observations in {equal.mean():.0%} of steps"
    certainty = 2 if equal.mean() >= 0.5 else 1
    return finding_of("shared-without-identity", measured, certainty, record.policy)


# --- By column -----------------------------------------------------------------------------------


def _repeated(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report columns of the observation that are always equal."""
    obs, _ = joined(record.obs)
    if not obs.size:
        return None
    flat = obs.reshape(-1, obs.shape[-1])
    twins = _twins(flat)
    if not twins or len(twins) > obs.shape[-1]:
        return None
    hidden, whole = _unshown(record, evidence, sorted({*itertools.chain(*twins)})), _blocks(twins)
    if all(len(np.unique(flat[:, a])) < 3 for a, _ in twins) and not hidden and not whole:
        return None  # for example one "nothing yet" flag per agent
    pairs = ", ".join(f"{a} and {b}" for a, b in twins[:4])
    measured = f"columns {pairs} are equal in {len(flat):,} decisions{hidden}"
    certainty = 2 if hidden or whole else 1
    return finding_of("observation-repeated", measured, certainty, record.policy)


def _keys(values: Array) -> list[bytes]:
    """Return the bytes of each column of ``values`` [R, F], to find equal ones."""
    return [np.ascontiguousarray(column).tobytes() for column in values.T]


def _twins(flat: Array) -> list[tuple[int, int]]:
    """Return the pairs of varying columns of ``flat`` [R, F] that are always equal."""
    first: dict[bytes, int] = {}
    varying = np.flatnonzero(np.ptp(flat, axis=0) > 1e-6).tolist()
    equal = [
        (first.setdefault(key, column), column)
        for column, key in zip(varying, _keys(flat[:, varying]), strict=True)
    ]
    return [(a, b) for a, b in equal if a != b]


def _blocks(twins: list[tuple[int, int]]) -> bool:
    """Return True if 3 or more consecutive columns equal 3 others in the same order."""
    pairs = set(twins)
    return any({(a + k, b + k) for k in range(3)} <= pairs for a, b in twins if b - a >= 3)


def _unshown(record: PolicyEvidence, evidence: Evidence, columns: list[int]) -> str:
    """Describe an agent's value that is shown twice and the missing value that it replaces."""
    views = _views(evidence)
    keys = {agent: _keys(view) for agent, view in views.items()}
    for agent, column, other, third in itertools.product(record.agents, columns, views, views):
        if len({agent, other, third}) < 3 or len(views[other]) != len(views[agent]):
            continue
        for place, key in enumerate(keys[other]):
            if key != keys[agent][column] or views[third].shape != views[other].shape:
                continue
            if np.ptp(views[third][:, place]) > 1e-6 and keys[third][place] not in keys[agent]:
                return (
                    f"; {agent} observes column {place} of {other} twice and never observes "
                    f"column {place} of {third}"
                )
    return ""


def _blank(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
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
    measured = f"{', '.join(names[:6])}: 0 in {len(flat):,} decisions"
    return finding_of("observation-blank", measured, 1, record.policy)
