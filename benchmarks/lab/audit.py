"""Runs against the truth: sound ones, and the same with one fault planted.

    OMP_NUM_THREADS=1 python benchmarks/lab/audit.py

Each run is trained by mappo with its environment's defaults, and audited where it stopped: moments
of a rollout are forked, and played on by its own policies.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from common import machine, save, temporary_run

from corral.algorithms import Advantages, Trajectories, gae, mappo
from corral.lab.doctor.audit import Audit, Audited, audit, sentence
from corral.lab.doctor.audit.findings import against_truth
from corral.trainers.on_policy.trainer import trainer_of

SHOWN = 10
"""Worst decisions of a run that are kept."""


def zeroed(trajectories: Trajectories, settings: Any) -> Advantages:
    """Compute value targets as ever, and advantages of 0."""
    found = gae(trajectories, settings)
    return Advantages(0 * found.advantage, found.value_target)


def shuffled(trajectories: Trajectories, settings: Any) -> Advantages:
    """Give each decision the advantage of another one."""
    found = gae(trajectories, settings)
    mixed = np.random.default_rng(0).permutation(found.advantage.reshape(-1))
    return Advantages(mixed.reshape(found.advantage.shape), found.value_target)


def critics(change: Callable[[list[torch.Tensor]], list[torch.Tensor]]) -> type:
    """Return a trainer whose critics are shown something else."""

    class Changed(trainer_of(mappo.but(name="changed"))):  # type: ignore[misc]
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            for learner in self.learners.values():
                learner.critic.register_forward_pre_hook(lambda critic, parts: (change(parts[0]),))

    return Changed


def nothing(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    return [0 * part for part in parts]


def another(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """Show each moment in the place of the next one."""
    return [part.roll(1, dims=0) for part in parts]


RUNS: tuple[tuple[str, int, str, Any], ...] = (
    ("dfaas_v0", 100_000, "sound", "mappo"),
    ("dfaas_v0", 100_000, "advantages of 0", mappo.but(name="zeroed", advantages=zeroed)),
    ("dfaas_v0", 100_000, "shuffled advantages", mappo.but(name="mixed", advantages=shuffled)),
    ("tiles_v0", 110_000, "sound", "mappo"),
    ("tiles_v0", 110_000, "critic sees nothing", critics(nothing)),
    ("arena_v0", 60_000, "sound", "mappo"),
    ("arena_v0", 60_000, "critic sees another moment", critics(another)),
)


def number(value: float | None) -> str:
    return "not varying" if value is None else f"{value:.2f}"


def row(env: str, what: str, each: Audited, report: Audit) -> str:
    values, advantages, credit = each.values, each.advantages, each.credit
    sample = "" if each.sample is None else f"{each.sample[0]:.2f} ± {each.sample[1]:.2f}"
    gradient = "" if each.actor_gradient is None else f"{each.actor_gradient:.1g}"
    causes = [one.cause for one in against_truth(report) if one.policy == each.policy]
    cells = (
        *(env, what, each.policy, str(each.moments)),
        f"{number(values.correlation)} of {values.ceiling:.2f}",
        f"{number(advantages.correlation)} of {advantages.ceiling:.2f}",
        *(sample, "" if credit is None else number(credit.correlation)),
        *(number(each.plain), gradient, ", ".join(causes) or "nothing"),
    )
    return "| " + " | ".join(cells) + " |"


def numbers(each: Audited) -> dict[str, Any]:
    return {
        "policy": each.policy,
        "moments": each.moments,
        "critic": each.value_correlation,
        "critic ceiling": each.values.ceiling,
        "fit of what it observes": each.fitted,
        "weight of the critic in true values": each.assumed,
        "advantages": each.advantage_correlation,
        "advantages ceiling": each.advantages.ceiling,
        "advantages, same sign": each.advantages.same_sign,
        "one fork": each.sample,
        "averaged": None if each.credit is None else each.credit.correlation,
        "plain, averaged": each.plain,
        "actor's gradient": each.actor_gradient,
    }


def main() -> None:
    rows, sums, data, words = [], [], [], []
    for env, steps, what, trainer in RUNS:
        clock = time.perf_counter()
        with temporary_run(env, trainer=trainer, steps=steps, seed=0, progress=False) as run:
            seconds = time.perf_counter() - clock
            for days in (False, True) if (env, what) == ("dfaas_v0", "sound") else (False,):
                report = audit(run._trained(), other_futures=days)
                shown = what + (", other days" if days else "")
                rows += [row(env, shown, each, report) for each in report.policies]
                sums.append(
                    f"| {env} | {shown} | {report.updates} | {report.env_steps:,} | "
                    f"{report.seconds:.1f} | {seconds:.0f} |"
                )
                sure = [
                    sentence(one, report.given_this_future)
                    for each in report.policies
                    for one in each.worst
                    if one.loss > 2 * one.error
                ][:SHOWN]
                if what == "sound":
                    words += [f"**{env}, {shown}**", "", *(f"- {one}" for one in sure), ""]
                data.append(
                    {
                        "env": env,
                        "run": shown,
                        "updates": report.updates,
                        "given this future": report.given_this_future,
                        "env steps": report.env_steps,
                        "seconds": report.seconds,
                        "policies": [numbers(each) for each in report.policies],
                        "found": [one.cause for one in against_truth(report)],
                        "worst decisions": sure,
                    }
                )
    lines = [
        "# Runs against the truth",
        "",
        "Correlations with true values and true advantages, which forks of exact states tell. "
        "`0.90 of 0.99`: 0.99 is what perfect numbers would have, for the truth has noise too. "
        "**one fork**: what advantages of forks of the same decisions have by themselves, mean and "
        "deviation: what a rollout's can have. **averaged**: what the run's advantage function "
        "says on average over half of the forks, beside what the others tell; **plain**: the same "
        "of generalized advantages, the worse of lambda 0 and 1. **gradient**: the actor's largest "
        "in the update.",
        "",
        "| env | run | policy | moments | critic | advantages | one fork | averaged | plain | "
        "gradient | found |",
        "|---|---|---|--:|--:|--:|--:|--:|--:|--:|---|",
        *rows,
        "",
        "| env | run | updates before | env steps of forks | seconds | seconds of training |",
        "|---|---|--:|--:|--:|--:|",
        *sums,
        "",
        "Worst decisions (sampled, as in training) whose loss is surely above 0:",
        "",
        *words,
    ]
    save("audit", "\n".join(lines), {"runs": data}, machine("torch"))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
