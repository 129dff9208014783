"""Findings from play and from progress: greedy below sampled play, worse over time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from corral.envs.core import Array, generator
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.verdict.learning import RANDOM, UNTRAINED, Learning
from corral.lab.doctor.watching.progress import PolicyInfo, policy_columns, policy_infos
from corral.trainers.runs.run import Run
from corral.trainers.runs.trends import (
    LEVEL,
    Change,
    change_of,
    constant_length,
    return_change,
    reward_change,
    rows_per_episode,
)

__all__ = ["play_findings", "progress_changes", "worse_over_time"]


def play_findings(learning: Learning, *, ent_coef: bool) -> Iterator[Finding]:
    """Yield findings about greedy play and about held-out data."""
    if _plays_as_untrained(learning):
        yield Finding(
            "play-unchanged",
            "The checkpoint plays exactly as the untrained policy: it has learned nothing.",
            f"equal returns in all {learning.scores[0].episodes} episodes on the same seeds, in "
            f"{learning.updates} updates",
            "returns that differ from those of the untrained policy",
            "check that updates are made: learning_starts (--learning-starts) below the steps of "
            "the run, a learning_rate above 0, and policies_to_train",
            2,
        )
    for gap in learning.gaps[:1]:
        longer = "train longer" + " or with a lower ent_coef" * ent_coef
        yield Finding(
            "greedy-below-sampled",
            "Greedy play is far below sampled play.",
            f"return {gap.greedy:.4g} greedily, {gap.sampled:.4g} sampled, in the same "
            f"{gap.episodes} episodes; 95 % interval of the difference {gap.low:.3g} to "
            f"{gap.high:.3g}",
            "greedy play that is about as good as sampled play",
            f"play it with sampled actions (in Python deterministic=False), or {longer}",
            1,
        )
    if learning.learns_on("training") and not learning.learns_on("held-out"):
        yield Finding(
            "not-on-held-out",
            "It is better than random play and its start on training data, not on held-out data.",
            "see the table",
            "a lead on both",
            "train on more data, or observe fewer details that identify a row",
            1,
        )


def _plays_as_untrained(learning: Learning) -> bool:
    """Return True if no return differs from the untrained policy's, but some from random play."""
    of_team = [lead for lead in learning.leads if lead.of == "team"]
    same = {
        over: all(lead.low == lead.high == 0 for lead in of_team if lead.over == over)
        for over in {lead.over for lead in of_team}
    }
    return not learning.learns and same.get(UNTRAINED, False) and not same.get(RANDOM, True)


# --- Over the run --------------------------------------------------------------------------------

STEPS_PER_EPISODE = "env steps per ended episode"
QUANTITIES = ("return", "reward per step", STEPS_PER_EPISODE, "entropy", "legal actions")


def progress_changes(
    run: Run, beginning: Evidence | None, latest: Evidence | None, *, learns: bool
) -> tuple[dict[str, dict[str, Change]], list[Finding]]:
    """Return the changes of each learning policy over the run, and the findings about them."""
    infos = policy_infos(run.config)
    copies = int(run.config.settings.get("num_envs") or 1)
    changes = {
        info.policy: changes_of(
            run.progress, info, copies, legal_change(beginning, latest, info.policy)
        )
        for info in infos
    }
    if "pool_size" in run.progress:  # the opponents in the pool improve too
        return changes, []
    findings = [
        worse_over_time(changes[info.policy], info, len(infos), learns=learns) for info in infos
    ]
    return changes, [finding for finding in findings if finding is not None]


def changes_of(
    progress: pd.DataFrame, info: PolicyInfo, copies: int, legal: Change | None
) -> dict[str, Change]:
    """Return the changes of the quantities that are recorded for a policy, by name."""
    rows = [policy_columns(row, info) for row in _rows(progress)]
    per_block = rows_per_episode(progress, copies)
    steps, episodes = (
        np.diff(_column(rows, name), prepend=0) for name in ("env_steps", "episodes")
    )
    varied = constant_length(progress, copies) is None and len(steps) == len(episodes)
    lengths = steps / np.maximum(episodes, 1) if varied else steps[:0]
    changes = {
        "return": return_change(progress, f"return_of_{info.policy}"),
        "reward per step": reward_change(progress, copies),
        STEPS_PER_EPISODE: change_of(lengths, per_block),
        "entropy": change_of(_column(rows, "entropy"), per_block),
        "legal actions": legal,
    }
    return {name: change for name, change in changes.items() if change is not None}


def _rows(progress: pd.DataFrame) -> list[dict[str, float]]:
    numbers = progress.apply(pd.to_numeric, errors="coerce")
    return [{str(k): v for k, v in row.items()} for row in numbers.to_dict("records")]


def _column(rows: list[dict[str, float]], name: str) -> Array:
    return np.array([row[name] for row in rows if name in row], dtype=np.float64)


RESAMPLES = 20_000


def legal_change(beginning: Evidence | None, latest: Evidence | None, policy: str) -> Change | None:
    """Return the change of the number of legal actions from the first rollout to the checkpoint's.

    Environment copies are independent: the test permutes whole copies between both rollouts.
    """
    if beginning is None or latest is None:
        return None
    sides = [
        _legal(item.policies[policy]) for item in (beginning, latest) if policy in item.policies
    ]
    if len(sides) < 2 or min(map(len, sides)) < 4:
        return None
    joined, size = np.concatenate(sides), len(sides[0])
    orders = generator(0, "eval", len(joined)).random((RESAMPLES, len(joined))).argsort(axis=1)
    means = joined[orders[:, :size]].mean(axis=1)
    middle = joined.mean()
    observed = abs(sides[0].mean() - middle)
    p_value = (1 + int((abs(means - middle) >= observed - 1e-9).sum())) / (1 + RESAMPLES)
    return Change(float(sides[0].mean()), float(sides[1].mean()), p_value, len(joined))


def _legal(record: PolicyEvidence) -> Array:
    """Return the mean number of legal actions in each column of the first rollout: [C]."""
    if not record.masks or not record.acted:
        return np.zeros(0)
    masks, acted = record.masks[0][0], record.acted[0]
    if masks.ndim != 3 or not masks.shape[-1]:
        return np.zeros(0)
    counts, steps = masks[: len(acted)].sum(axis=-1), acted.sum(axis=0)
    valid = steps > 0
    return np.asarray((counts * acted).sum(axis=0)[valid] / steps[valid])


def worse_over_time(
    changes: Mapping[str, Change], info: PolicyInfo, policies: int, *, learns: bool
) -> Finding | None:
    """Return a finding if play became worse while something else changed as well.

    The return, or the reward per step, must fall: other trends alone are normal in training. The
    probability of a false finding in a run is at most ``LEVEL``, over both and over all policies.
    """
    level = LEVEL / (2 * policies)
    moved = {name: x for name, x in changes.items() if x.p_value <= 2 * level}
    # One-sided: both tails of the permuted statistic are equal.
    fell = [
        name for name in QUANTITIES[:2] if name in moved and moved[name].last < moved[name].first
    ]
    besides = [name for name in QUANTITIES[2:] if name in moved]
    if not fell or not besides:
        return None
    texts = [
        f"{name} {moved[name].first:.4g} at first, {moved[name].last:.4g} at last"
        for name in QUANTITIES
        if name in moved
    ]
    also = " and ".join(f"the {name}" for name in besides)
    return Finding(
        "worse-over-time",
        f"Over the run the {fell[0]} falls, while {also} also changed.",
        "; ".join(texts),
        "a return that rises or stays",
        "check that reset() clears all counters and state (corral check ENV), then the sign of "
        "the reward, and lower learning_rate",
        1 if learns else 2,
        info.policy,
    )
