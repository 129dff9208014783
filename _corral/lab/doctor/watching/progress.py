"""Findings from progress.csv alone, for any trainer.

Columns have the names of corral's own trainers; Stable-Baselines3 columns are translated. ``EARLY``
rules read one row and must hold in several consecutive rows; they run during and after training.
The other rules read a whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.trainers.runs.run import Run
from corral.trainers.runs.run_config import RunConfig

__all__ = [
    "AFTER",
    "ROWS",
    "PolicyInfo",
    "Rewards",
    "early",
    "policy_columns",
    "policy_infos",
    "progress_findings",
    "trend",
]

Row = Mapping[str, Any]

ROWS = 3
"""Number of consecutive rows in which an early rule must hold: one may be chance."""

AFTER = {"critic-misleads": 10, "same-rewards": 10}
"""Larger numbers of rows for some causes."""

TRANSLATED = {"policy_gradient_loss": "policy_loss", "kl": "approx_kl"}
"""Columns of other trainers -> corral's names."""


@dataclass(frozen=True)
class PolicyInfo:
    """Configuration of one policy that learns."""

    policy: str
    agents: tuple[str, ...]
    prefix: str  # of the policy's columns
    several_steps: bool  # an update takes more than one optimizer step
    horizon: int  # env steps


def policy_infos(config: RunConfig) -> list[PolicyInfo]:
    """Return the configuration of each policy that learns."""
    learned = {name for agent, name in config.policies.items() if agent not in config.opponents}
    several = len(learned) > 1
    infos = []
    for policy in config.policies_to_train:
        settings = {**config.settings, **config.settings_of.get(policy, {})}
        steps = max(settings.get(name) or 1 for name in ("n_epochs", "n_minibatches"))
        agents = tuple(agent for agent, name in config.policies.items() if name == policy)
        prefix = f"{policy}/" if several else ""
        infos.append(PolicyInfo(policy, agents, prefix, steps > 1, config.horizon))
    return infos


def policy_columns(row: Row, info: PolicyInfo) -> dict[str, float]:
    """Return the columns of a policy and the shared columns, with corral's names."""
    columns = {}
    for name, value in row.items():
        if value is None or value != value:
            continue
        column = name.removeprefix(info.prefix)
        columns[TRANSLATED.get(column, column)] = float(value)
    if "entropy_loss" in columns:
        columns.setdefault("entropy", -columns["entropy_loss"])
    return columns


class Rewards:
    """Tracks if rewards or returns differ between rows; unknown before the second row."""

    def __init__(self) -> None:
        self.rows, self.differ = 0, False
        self.first: dict[str, float] = {}

    @property
    def may_vary(self) -> bool:
        return self.differ or self.rows < 2

    def see(self, row: Row) -> None:
        self.rows += 1
        for name, value in row.items():
            if value is None or not name.startswith(("reward_per_step", "return_")):
                continue
            before = self.first.setdefault(name, float(value))
            if abs(value - before) > 1e-6 * max(1e-6, abs(before)):
                self.differ = True


# --- Rules for one row ---------------------------------------------------------------------------


def rate_zero(row: Row, info: PolicyInfo, varied: bool) -> Finding | None:
    if row.get("learning_rate") != 0 or not row["env_steps"] < info.horizon:
        return None
    return Finding(
        "learning-rate-zero",
        "The learning rate is 0 before training ends: the remaining env steps teach nothing.",
        f"learning_rate 0 at {row['env_steps']:,.0f} of {info.horizon:,} env steps",
        "a learning rate above 0 until the last update",
        "check learning_rate and its schedule",
        3,
        info.policy,
    )


def no_policy_loss(row: Row, info: PolicyInfo, varied: bool) -> Finding | None:
    if row.get("policy_loss") != 0 or not (info.several_steps and varied and _chooses(row)):
        return None
    return Finding(
        "policy-loss-cut",
        "The policy loss is exactly 0: the actor gets no gradient.",
        "policy_loss 0, while rewards vary and the value loss is not 0",
        "a loss that differs from 0, because advantages vary",
        "check the code that computes advantages (RLlib: a module without ValueFunctionAPI gets "
        "none), "
        "and the factors of the policy loss",
        2,
        info.policy,
    )


def no_actor_gradient(row: Row, info: PolicyInfo, varied: bool) -> Finding | None:
    if row.get("grad_norm_actor") != 0 or "policy_loss" not in row:  # cloning may be over
        return None
    if not (varied and _chooses(row)):
        return None
    return Finding(
        "no-gradient",
        "No gradient reaches the actor: it learns nothing.",
        "grad_norm_actor 0, while rewards vary and decisions have several legal actions",
        "a norm above 0",
        "look for advantages that are all equal, detach() and no_grad(), and a loss without "
        "the actor",
        3,
        info.policy,
    )


def leaps(row: Row, info: PolicyInfo, varied: bool) -> Finding | None:
    if not row.get("approx_kl", 0.0) > LEAP:
        return None
    return Finding(
        "updates-too-large",
        "Each update changes the policy completely and discards the earlier learning.",
        f"KL divergence {row['approx_kl']:.3g} from the policy that played",
        "about 0.001 to 0.1",
        "lower learning_rate or n_epochs, set target_kl, and check that the loss uses the "
        "log-probabilities of the played actions",
        2,
        info.policy,
    )


def same_rewards(row: Row, info: PolicyInfo, varied: bool) -> Finding | None:
    if varied or not row.get("episodes"):
        return None
    return Finding(
        "same-rewards",
        "Rewards and returns are equal in all updates: the policy has nothing to learn from.",
        f"every row of progress.csv up to {row['env_steps']:,.0f} env steps",
        "returns that depend on the actions",
        "check the environment: corral check ENV --learnable; if rewards are rare, use more "
        "env steps per update",
        1,
        info.policy,
    )


def _chooses(row: Row) -> bool:
    """Return True if the row shows learning and a choice of actions, as far as columns tell."""
    return bool(row.get("entropy", 1.0) > 1e-3 and row.get("value_loss", 1.0) != 0)


LEAP = 5.0
"""KL divergence of an update, in nats, far above that of any healthy update."""

EARLY: tuple[Callable[[Row, PolicyInfo, bool], Finding | None], ...] = (
    rate_zero,
    no_policy_loss,
    no_actor_gradient,
    leaps,
    same_rewards,
)
"""From the root cause outwards."""


def early(row: Row, info: PolicyInfo, varied: bool) -> Iterator[Finding]:
    """Yield the findings of one row, nearest to the root first. ``varied``: rewards differed."""
    for rule in EARLY:
        if (finding := rule(row, info, varied)) is not None:
            yield finding


# --- Rules for a whole run -----------------------------------------------------------------------


def thirds(rows: Sequence[Row], column: str) -> tuple[Array, Array] | None:
    """Return the values of ``column`` in the first and in the last third of the rows.

    A return is a mean over 100 episodes, so only rows 100 episodes apart count. Return None if too
    few episodes ended.
    """
    taken, seen = [], 0.0
    for row in rows:
        if row.get(column) is not None and row["episodes"] >= seen + 100:
            taken.append(float(row[column]))
            seen = row["episodes"]
    third = len(taken) // 3
    return None if third < 2 else (np.array(taken[:third]), np.array(taken[-third:]))


def trend(rows: Sequence[Row], column: str = "return_team") -> tuple[float, float, float] | None:
    """Return the means of ``thirds``, and the standard error of their difference."""
    if (ends := thirds(rows, column)) is None:
        return None
    first, last = ends
    deviation = np.sqrt((first.var(ddof=1) + last.var(ddof=1)) / len(first))
    return float(first.mean()), float(last.mean()), float(deviation)


def progress_findings(run: Run) -> list[Finding]:
    """Return the findings from progress.csv, most certain first."""
    frame = run.progress
    rows = [
        {str(name): None if value != value else value for name, value in row.items()}
        for row in frame.to_dict("records")
    ]
    findings: list[Finding] = []
    for info in policy_infos(run.config):
        columns = [policy_columns(row, info) for row in rows]
        findings += (sure := [*_in_a_row(columns, info), *_warned(columns, info)])
        if all(finding.certainty < 2 for finding in sure):  # else the rest are consequences
            findings += [finding for rule in WHOLE if (finding := rule(columns, info)) is not None]
    kept: dict[tuple[str, str], Finding] = {}
    for finding in findings:
        kept.setdefault((finding.cause, finding.policy), finding)
    return sorted(kept.values(), key=lambda finding: -finding.certainty)


def _in_a_row(rows: Sequence[Row], info: PolicyInfo) -> Iterator[Finding]:
    """Yield early findings that hold in enough consecutive rows."""
    rewards, counts = Rewards(), dict[str, int]()
    for row in rows:
        rewards.see(row)
        now = {finding.cause: finding for finding in early(row, info, rewards.may_vary)}
        counts = {cause: counts.get(cause, 0) + 1 for cause in now}
        for cause, finding in now.items():  # nearest to the root first
            if counts[cause] >= AFTER.get(cause, ROWS):
                yield finding
                break  # the rest may be its consequences


def _warned(rows: Sequence[Row], info: PolicyInfo) -> Iterator[Finding]:
    """Yield the warnings that were printed during training."""
    for name in rows[-1] if rows else ():
        if name.startswith("warning_"):
            cause = name.removeprefix("warning_").replace("_", "-")
            since = next(row["env_steps"] for row in rows if row.get(name))
            yield Finding(
                cause,
                f"Training warned of this cause: {cause.replace('-', ' ')}.",
                f"{name} in progress.csv from {since:,.0f} env steps on",
                "no warning",
                "train for a few more updates, and read the warning on the screen",
                2,
                info.policy,
            )


def policy_still(rows: Sequence[Row], info: PolicyInfo) -> Finding | None:
    kl = _column(rows, "approx_kl")
    if len(kl) < 5 or not info.several_steps or not all(map(_chooses, rows)):
        return None
    rewards = Rewards()
    for row in rows:
        rewards.see(row)
    # Use the largest: a policy that converged early stops changing later.
    if not (rewards.differ and kl.max() < 1e-6):
        return None
    return Finding(
        "policy-still",
        "Updates hardly change the policy.",
        f"KL divergence of at most {kl.max():.2g} in {len(kl)} updates",
        "about 0.001 to 0.1",
        "raise learning_rate; look for almost equal advantages; check max_grad_norm and target_kl",
        2,
        info.policy,
    )


def entropy_flat(rows: Sequence[Row], info: PolicyInfo) -> Finding | None:
    entropy, value_loss = _column(rows, "entropy"), _column(rows, "value_loss")
    if len(entropy) < 10 or len(value_loss) != len(entropy) or _improved(rows, info):
        return None
    spread, fell = np.ptp(entropy), value_loss[-3:].mean() < 0.7 * value_loss[:3].mean()
    if not (fell and entropy[0] > 0.1 and spread < 0.01 * entropy[0]):
        return None
    return Finding(
        "entropy-flat",
        "The critic learns, but the policy stays as random as at the start.",
        f"entropy {entropy.min():.4g} to {entropy.max():.4g} in {len(entropy)} updates, while the "
        f"value loss changes from {value_loss[:3].mean():.3g} to {value_loss[-3:].mean():.3g}",
        "an entropy that falls if actions affect the return",
        "check the scale of advantages and ent_coef; test if actions matter: corral check "
        "ENV --learnable",
        1,
        info.policy,
    )


def critic_weak(rows: Sequence[Row], info: PolicyInfo) -> Finding | None:
    variance = _column(rows, "explained_variance")
    half = variance[len(variance) // 2 :]
    if len(half) < 5 or not np.median(half) < -0.05:
        return None
    return Finding(
        "critic-weak",
        "The critic explains less variance than a constant.",
        f"explained_variance {np.median(half):.2f}, the median of the last {len(half)} updates",
        "above 0, and rising",
        "check the scale of returns, the critic's learning rate and the critic's input",
        1,
        info.policy,
    )


def updates_large(rows: Sequence[Row], info: PolicyInfo) -> Finding | None:
    kl, clipped = _column(rows, "approx_kl"), _column(rows, "clip_fraction")
    large = len(kl) >= 5 and np.median(kl) > 0.2
    if not large and not (len(clipped) >= 5 and np.median(clipped) > 0.5):
        return None
    parts = [("KL divergence", kl), ("clip fraction", clipped)]
    return Finding(
        "updates-large",
        "Updates change the policy a lot.",
        ", ".join(f"median {name} {np.median(part):.2g}" for name, part in parts if len(part)),
        "a KL divergence of about 0.001 to 0.1, less than half of the decisions clipped",
        "lower learning_rate or n_epochs, or set target_kl",
        1,
        info.policy,
    )


def returns(rows: Sequence[Row], info: PolicyInfo) -> Finding | None:
    column = f"return_of_{info.policy}"
    change = trend(rows, column)
    if change is None or (change[0] == change[1] and change[2] == 0):
        return None
    if "pool_size" in rows[-1]:  # the opponents in the pool improve too
        return None
    if _improved(rows, info):
        return None
    first, last, noise = change
    worse = first - last > 3 * noise
    return Finding(
        "returns-fell" if worse else "returns-flat",
        "Returns fell." if worse else "Returns did not improve.",
        f"{column} {first:.4g} in the first third of the run, {last:.4g} in the last, noise "
        f"± {2 * noise:.2g}",
        "rising returns, unless opponents learn too or the policy is already optimal",
        "compare with reference teams: corral evaluate RUN",
        1,
        info.policy,
    )


def _improved(rows: Sequence[Row], info: PolicyInfo) -> bool:
    """Return True if the return rose beyond noise, or is higher in the whole last third than in the
    whole first third: a steep rise has a large spread itself."""
    column = f"return_of_{info.policy}"
    ends, change = thirds(rows, column), trend(rows, column)
    if ends is None or change is None:
        return False
    return bool(ends[1].min() > ends[0].max()) or change[1] - change[0] > 2 * change[2]


def _column(rows: Sequence[Row], name: str) -> np.ndarray[Any, Any]:
    return np.array([row[name] for row in rows if name in row], dtype=np.float64)


WHOLE: tuple[Callable[[Sequence[Row], PolicyInfo], Finding | None], ...] = (
    policy_still,
    updates_large,
    entropy_flat,
    critic_weak,
    returns,
)
