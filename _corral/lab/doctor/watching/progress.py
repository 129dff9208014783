"""Findings from progress.csv alone, for any trainer.

Columns have the names of corral's own trainers; Stable-Baselines3 columns are translated. ``early``
reads one row, and its findings must hold in several consecutive rows; it runs during and after
training. The rules in ``WHOLE`` read a whole run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.doctor.findings.updates import FAR
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

FEW = 4
"""With fewer updates, at most two are followed by further rollouts."""

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


def early(row: Row, info: PolicyInfo, varied: bool) -> Iterator[Finding]:
    """Yield the findings of one row, nearest to the root first. ``varied``: rewards differed."""
    if row.get("learning_rate") == 0 and row["env_steps"] < info.horizon:
        measured = f"learning_rate 0 at {row['env_steps']:,.0f} of {info.horizon:,} env steps"
        yield finding_of("learning-rate-zero", measured, 3, info.policy)
    if varied and _chooses(row) and "policy_loss" in row:  # otherwise, cloning may be over
        if row["policy_loss"] == 0 and info.several_steps:
            measured = "policy_loss 0, while rewards vary and the value loss is not 0"
            yield finding_of("policy-loss-cut", measured, 2, info.policy)
        if row.get("grad_norm_actor") == 0:
            measured = "grad_norm_actor 0, while rewards vary and several actions are legal"
            yield finding_of("no-gradient", measured, 3, info.policy)
    if row.get("approx_kl", 0.0) > FAR:
        measured = f"KL divergence {row['approx_kl']:.3g} from the policy that played"
        yield finding_of("updates-too-large", measured, 2, info.policy)
    if not varied and row.get("episodes"):
        measured = f"every row of progress.csv up to {row['env_steps']:,.0f} env steps"
        yield finding_of("same-rewards", measured, 1, info.policy)


def _chooses(row: Row) -> bool:
    """Return True if the row shows learning and a choice of actions, as far as columns tell."""
    return bool(row.get("entropy", 1.0) > 1e-3 and row.get("value_loss", 1.0) != 0)


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
    findings = list(few_updates(run.config, len(rows)))
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


def few_updates(config: RunConfig, updates: int) -> Iterator[Finding]:
    """Yield a note if the whole run has room for few rollouts, and so for few ``updates``."""
    copies, steps = (config.settings.get(name) for name in ("num_envs", "n_steps"))
    if not (copies and steps) or "teacher" in config.settings:
        return  # other trainers do not alternate rollouts and updates
    rollout = copies * steps
    if max(updates, config.steps // rollout) < FEW:
        yield Finding(
            "few-updates",
            "The run has few updates.",
            f"{updates} update{'s' * (updates != 1)} in {config.steps:,} env steps: a rollout has "
            f"{rollout:,} ({copies:,} num_envs x {steps:,} n_steps)",
            "dozens of updates: the policy changes little in each",
            "lower n_steps or num_envs, or train for more steps",
            1,
        )


def size_of_updates(rows: Sequence[Row], info: PolicyInfo) -> Finding | None:
    """Report updates that hardly change the policy, or change it a lot."""
    kl, clipped = _column(rows, "approx_kl"), _column(rows, "clip_fraction")
    rewards = Rewards()
    for row in rows:
        rewards.see(row)
    parts = [
        f"{name} {np.median(part):.2g}, at most {part.max():.2g}, in {len(part)} updates"
        for name, part in (("median KL divergence", kl), ("median clip fraction", clipped))
        if len(part)
    ]
    learning = info.several_steps and rewards.differ and all(map(_chooses, rows))
    # The largest: a policy that converged early stops changing later.
    if len(kl) >= 5 and kl.max() < 1e-6 and learning:
        return finding_of("policy-unchanged", parts[0], 2, info.policy)
    if any(len(x) >= 5 and np.median(x) > much for x, much in ((kl, 0.2), (clipped, 0.5))):
        return finding_of("updates-too-large", "; ".join(parts), 1, info.policy)
    return None


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


def critic_misleads(rows: Sequence[Row], info: PolicyInfo) -> Finding | None:
    variance = _column(rows, "explained_variance")
    half = variance[len(variance) // 2 :]
    if len(half) < 5 or not np.median(half) < -0.05:
        return None
    measured = f"explained_variance {np.median(half):.2f}, median of the last {len(half)} updates"
    return finding_of("critic-misleads", measured, 1, info.policy)


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
    size_of_updates,
    entropy_flat,
    critic_misleads,
    returns,
)
