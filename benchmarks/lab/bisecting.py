"""Does corral bisect name the planted differences, and nothing else?

    OMP_NUM_THREADS=1 python benchmarks/lab/bisecting.py run
    OMP_NUM_THREADS=1 python benchmarks/lab/bisecting.py run --only one_00,two_03
    python benchmarks/lab/bisecting.py report

one: a harmful difference among 20 harmless ones. two: two that harm only together, among 20
harmless ones. none: 20 harmless ones. stock: ``corral doctor RUN --against stock`` for the faults
of blind/ that harm and that the doctor did not name. A task is a row of results/bisect.json, and is
not repeated. The harmless differences are drawn at random from 29; none of them was removed after
a result was seen.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from torch import nn

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).with_name("blind")))

from common import RESULTS, machine, save

import corral
from corral import algorithms as alg

FILE = RESULTS / "bisect.json"
BASE: dict[str, Any] = {
    **{"steps": 1_024, "num_envs": 32, "n_steps": 8, "preset": "none"},
    **{"n_minibatches": 2, "learning_rate": 1e-2},
}
"""32 optimizer steps, 0.13 CPU seconds: enough for these probes."""
HARMLESS = 20


# --- Functions of records, and networks ----------------------------------------------------------


def advantages(change: Callable[[Any, Any], Any]) -> Any:
    """Advantages that are changed after normalization: change(advantage, rng)."""
    rng = np.random.default_rng(0)

    def changed(trajectories: Any, settings: Any) -> alg.Advantages:
        estimate = alg.normalize(alg.gae)(trajectories, settings)
        advantage = change(estimate.advantage, rng).astype(np.float32)
        return alg.Advantages(advantage, estimate.value_target)

    return changed


def loss(change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The losses of PPO with a changed policy loss."""

    def changed(minibatch: Any, outputs: Any, settings: Any) -> alg.Losses:
        terms = dict(alg.ppo_loss(minibatch, outputs, settings).terms)
        return alg.Losses({**terms, "policy_loss": change(terms["policy_loss"])})

    return changed


def optimizer(make: Callable[..., Any], **options: Any) -> Any:
    return lambda parameters, settings: make(parameters, lr=0.0, **options)


def first_layers(parameters: Any, settings: Any) -> Any:
    return torch.optim.Adam([*parameters][:1], lr=0.0)


def gradients(factor: float) -> Any:
    def scaled(learner: Any, settings: Any) -> Any:
        norms = alg.clip_norm(learner, settings)
        for parameter in learner.parameters():
            if parameter.grad is not None:
                parameter.grad.mul_(factor)
        return norms

    return scaled


def starts_again(learner: Any, metrics: Any, settings: Any) -> None:
    with torch.no_grad():
        for parameter in learner.actor_parameters:
            parameter.mul_(0.01)


def joined(obs: Any) -> torch.Tensor:
    parts = [joined(part) for part in obs.values()] if isinstance(obs, dict) else [obs.flatten(1)]
    return torch.cat(parts, dim=1)


class Net(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor, self.out_features = factor, 64
        self.layers = nn.Sequential(nn.LazyLinear(64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())

    def forward(self, obs: Any) -> Any:
        return self.layers(self.factor * joined(obs))


def network(factor: float) -> Any:
    return lambda observation_space, *, role: Net(factor)


def never(metrics: Any, settings: Any) -> bool:
    return False


# --- An environment with wrappers ----------------------------------------------------------------


class Bits(gymnasium.Env[Any, Any]):
    """Name the bit that is shown, eight times."""

    observation_space, action_space = spaces.Discrete(2), spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.bit, self.round = int(self.np_random.integers(2)), 0
        return self.bit, {}

    def step(self, action: Any) -> Any:
        reward, self.round = float(action == self.bit), self.round + 1
        self.bit = int(self.np_random.integers(2))
        return self.bit, reward, self.round == 8, False, {}


class LastRewardAgain(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Returns the reward of the step before."""

    def reset(self, **options: Any) -> Any:
        self.late = 0.0
        return super().reset(**options)

    def step(self, action: Any) -> Any:
        obs, reward, *rest = super().step(action)
        late, self.late = self.late, reward
        return obs, late, *rest


class Hidden(gymnasium.ObservationWrapper[Any, Any, Any]):
    def observation(self, observation: Any) -> Any:
        return 0


class Counted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Changes nothing."""


def bits() -> Any:
    return Bits()


def late_bits() -> Any:
    return Counted(LastRewardAgain(Bits()))


def hidden_bits() -> Any:
    return Hidden(Counted(Bits()))


# --- The pairs -----------------------------------------------------------------------------------

Change = dict[str, Any]
"""Arguments of corral.train; "record": a field of the algorithm record."""

POOL: dict[str, Change] = {
    "setting gamma": {"gamma": 0.98},
    "setting gae_lambda": {"gae_lambda": 0.9},
    "setting clip_range_vf": {"clip_range_vf": 5.0},
    "setting target_kl": {"target_kl": 2.0},
    "setting huber_delta": {"huber_delta": 8.0},
    "setting value_decay": {"value_decay": 0.95},
    "setting net_arch": {"net_arch": (48, 48)},
    "setting activation": {"activation": "tanh"},
    "setting cnn_arch": {"cnn_arch": (8, 16)},
    "setting cnn_patch": {"cnn_patch": 4},
    "setting grid_arch": {"grid_arch": (8,)},
    "setting action_std": {"action_std": 0.5},
    "setting device": {"device": "cpu"},
    "setting normalize_values": {"normalize_values": False},
    "setting critic_input": {"critic_input": "observations"},
    "setting kl_coef": {"kl_coef": 1e-3},
    "setting ent_coef": {"ent_coef": 1e-4},
    "setting max_grad_norm": {"max_grad_norm": 1.0},
    "setting n_epochs": {"n_epochs": 5},
    "setting clip_range": {"clip_range": 0.25},
    "setting learning_rate": {"learning_rate": 9e-3},
    "policies sharing": {"policies": "separate"},
    "algorithm metrics": {"record": {"metrics": alg.also(alg.ppo_metrics)}},
    "algorithm stop_early": {"record": {"stop_early": never}},
    "algorithm after_update": {"record": {"after_update": alg.no_change}},
    "algorithm optimizer": {"record": {"optimizer": optimizer(torch.optim.Adam, eps=1e-6)}},
    "algorithm gradients": {"record": {"gradients": gradients(1.0)}},
    "algorithm advantages": {"record": {"advantages": advantages(lambda a, rng: 1.1 * a)}},
    "algorithm loss": {"record": {"loss": loss(lambda term: 1.1 * term)}},
    "algorithm critic_input": {"record": {"critic_input": "own"}},
}
"""Harmless differences, by the name that corral bisect prints."""

P4, P5, P6, TWO = "probe_p04_v0", "probe_p05_v0", "probe_p06_v0", "two_step_v0"

ONE: tuple[tuple[str, str, Change], ...] = (
    (P5, "setting learning_rate", {"learning_rate": 1e-7}),
    (P4, "setting max_grad_norm", {"max_grad_norm": 1e-8}),
    (TWO, "setting ent_coef", {"ent_coef": 30.0}),
    (P5, "setting clip_range", {"clip_range": 1e-5}),
    (P4, "setting learning_rate", {"learning_rate": 3.0}),
    (TWO, "algorithm loss", {"record": {"loss": loss(lambda term: -term)}}),
    (P5, "algorithm advantages", {"record": {"advantages": advantages(lambda a, rng: 0 * a)}}),
    (P4, "algorithm advantages", {"record": {"advantages": advantages(lambda a, rng: -a)}}),
    (
        P5,
        "algorithm advantages",
        {
            "record": {
                "advantages": advantages(lambda a, rng: rng.permutation(a.ravel()).reshape(a.shape))
            }
        },
    ),
    (
        TWO,
        "algorithm optimizer",
        {"record": {"optimizer": optimizer(torch.optim.AdamW, weight_decay=300.0)}},
    ),
    (P5, "algorithm gradients", {"record": {"gradients": gradients(0.0)}}),
    (P5, "network", {"model": network(0.0)}),
    (P4, "setting agent_id", {"agent_id": False}),
    (P5, "algorithm after_update", {"record": {"after_update": starts_again}}),
    (P4, "algorithm loss", {"record": {"loss": loss(lambda term: 0 * term)}}),
    (P5, "algorithm optimizer", {"record": {"optimizer": first_layers}}),
    (P5, "length annealed share", {"horizon": 1}),
    (P6, "setting clip_range", {"clip_range": 1e-5}),
    ("bits", "wrapper LastRewardAgain", {"env": late_bits}),
    ("bits", "wrapper Hidden", {"env": hidden_bits}),
)

SMALL: Change = {"record": {"advantages": advantages(lambda a, rng: 0.01 * a)}}
LIGHT: Change = {"record": {"loss": loss(lambda term: 0.01 * term)}}
WEAK: Change = {"record": {"gradients": gradients(0.003)}}
EPSILON: Change = {"record": {"optimizer": optimizer(torch.optim.Adam, eps=1e-3)}}
ENTROPY: Change = {"ent_coef": 0.3}
TIGHT: Change = {"max_grad_norm": 3e-3}
TWO_OF: tuple[tuple[str, tuple[str, str], tuple[Change, Change]], ...] = tuple(
    (env, parts, changes)
    for env in (P4, P5)
    for parts, changes in (
        (("setting ent_coef", "algorithm advantages"), (ENTROPY, SMALL)),
        (("setting ent_coef", "algorithm loss"), (ENTROPY, LIGHT)),
        (("setting max_grad_norm", "algorithm optimizer"), (TIGHT, EPSILON)),
        (("algorithm gradients", "algorithm optimizer"), (WEAK, EPSILON)),
        (("algorithm advantages", "algorithm optimizer"), (SMALL, EPSILON)),
    )
)
"""An entropy bonus is too large only for small advantages or losses; Adam's epsilon is too large
only for small gradients."""


def arguments(env: str, changes: list[Change]) -> dict[str, Any]:
    """Arguments of corral.train with all changes."""
    record = {k: v for change in changes for k, v in change.get("record", {}).items()}
    given = {k: v for change in changes for k, v in change.items() if k != "record"}
    trainer = alg.mappo.but(name="mixed", **record) if record else "mappo"
    return {**BASE, "env": bits if env == "bits" else env, "trainer": trainer, **given}


def drawn(env: str, taken: tuple[str, ...], seed: int) -> list[Change]:
    """20 harmless changes of other parts, at random."""
    # One agent has no policies to share. A network of one's own has no layers to set.
    settings = ("net_arch", "activation", "cnn_arch", "cnn_patch", "grid_arch")
    layers = [f"setting {name}" for name in settings]
    without = {*taken, *(layers if "network" in taken else ())}
    without |= {"policies sharing"} if env == "bits" or "setting agent_id" in taken else set()
    names = [name for name in POOL if name not in without]
    chosen = np.random.default_rng(seed).permutation(names)[:HARMLESS]
    return [POOL[str(name)] for name in chosen]


def tasks() -> dict[str, tuple[str, tuple[str, ...], list[Change]]]:
    """Name -> environment, planted parts, and the changes that plant them."""
    found: dict[str, tuple[str, tuple[str, ...], list[Change]]] = {}
    for i, (env, part, change) in enumerate(ONE):
        found[f"one_{i:02}"] = env, (part,), [change]
    for i, (env, parts, changes) in enumerate(TWO_OF):
        found[f"two_{i:02}"] = env, parts, [*changes]
    for i, env in enumerate((P4, P5, P6, TWO, "bits")):
        found[f"none_{i:02}"] = env, (), []
    return found


def bisected(name: str) -> dict[str, Any]:
    env, parts, changes = tasks()[name]
    harmless = drawn(env, parts, seed=sum(map(ord, name)))
    began = time.process_time()
    result = corral.bisect(
        arguments(env, []), arguments(env, [*harmless, *changes]), steps=BASE["steps"]
    )
    return {
        "name": name,
        "env": env,
        "planted": sorted(parts),
        **shown(result),
        "cpu": time.process_time() - began,
    }


def shown(result: Any) -> dict[str, Any]:
    return {
        "verdict": result.verdict,
        "named": [sorted(map(str, cause.differences)) for cause in result.causes],
        "p": [cause.p for cause in result.causes],
        "rest_learns": result.rest_learns,
        "differences": len(result.differences),
        "scores": result.scores,
        "seeds": result.seeds,
        "trainings": result.trainings,
        "note": result.note,
    }


def right(row: dict[str, Any]) -> bool:
    """Whether exactly the planted parts are named, or none, if none are planted."""
    if not row["planted"]:
        return bool(row["verdict"] in ("no difference", "equal"))
    return bool(row["verdict"] == "found" and row["named"] == [row["planted"]])


# --- corral doctor RUN --against stock -----------------------------------------------------------

BLIND = Path(__file__).with_name("blind")
SECONDS = 60.0
"""CPU time of each of these bisections."""

PARTS = {
    "01_next_mover_paid": "environment",
    "02_rewards_never_cleared": "environment",
    "11_prize_overwritten": "environment",
    "28_returns_from_normalized_advantages": "algorithm advantages",
    "35_rewards_of_the_neighbour_copy": "script",
    "36_back_to_the_best_weights": "script",
    "41_max_instead_of_min": "algorithm loss",
    "44_all_units_start_equal": "network",
    "48_frame_skip_keeps_the_last_reward": "environment",
    "49_action_arrives_one_step_late": "wrapper Pole",
    "51_observation_cut_to_integers": "wrapper Pole",
    "55_two_updates_in_all": "setting n_steps",
}
"""Harmful faults of blind/ that the doctor does not name (silent, third, wrong), and their part.

"environment": the fault is in the user's only environment class, so stock has no other part to
compare it with. The right answer is then that the parts of the training are as good as stock."""


def against_stock(name: str) -> dict[str, Any]:
    """Train a plant of blind/, and compare its parts with corral's."""
    from run import module_of

    from corral.lab.bisect.stock import against

    module, file = module_of(name), BLIND / f"{name}.py"
    named = {
        option: f"{file}:{value}" if hasattr(module, value) else value
        for option, value in (
            ("env", module.ENV),
            ("trainer", module.TRAINER),
            ("model", module.MODEL),
        )
        if value is not None
    }
    with tempfile.TemporaryDirectory() as folder:
        module.train(f"{folder}/run")
        began = time.process_time()
        result = against(f"{folder}/run", seconds=SECONDS, **named)
    return {
        "name": f"stock_{name}",
        "env": str(module.ENV),
        "planted": [PARTS[name]],
        **shown(result),
        "cpu": time.process_time() - began,
    }


def named_by_stock(row: dict[str, Any]) -> bool:
    """Whether the planted part is named; for an environment: that no other part is."""
    if row["planted"] == ["environment"]:
        return bool(row["verdict"] in ("no difference", "equal"))
    return any(row["planted"][0] in cause for cause in row["named"])


# --- Report --------------------------------------------------------------------------------------

KINDS = {
    "one": "one harmful among 20 harmless",
    "two": "two that harm only together, among 20 harmless",
    "none": "20 harmless",
    "stock": "against stock: faults that the doctor does not name",
}


def kept() -> list[dict[str, Any]]:
    """Read the rows so far; several processes may add rows."""
    return json.loads(FILE.read_text())["rows"] if FILE.exists() else []


def report(rows: list[dict[str, Any]]) -> None:
    lines = ["# corral bisect: planted differences", ""]
    lines += ["| pairs | tasks | right | CPU s, median | most | trainings, median |"]
    lines += ["|---|--:|--:|--:|--:|--:|"]
    for kind, about in KINDS.items():
        some = [row for row in rows if row["name"].startswith(kind)]
        if not some:
            continue
        good = sum((named_by_stock if kind == "stock" else right)(row) for row in some)
        cpu = [row["cpu"] for row in some]
        lines.append(
            f"| {about} | {len(some)} | {good} | {statistics.median(cpu):.0f} | {max(cpu):.0f} "
            f"| {statistics.median(row['trainings'] for row in some):.0f} |"
        )
    lines += ["", "| task | environment | planted | named | verdict | p | CPU s | right |"]
    lines += ["|---|---|---|---|---|---|--:|---|"]
    for row in sorted(rows, key=lambda row: str(row["name"])):
        judged = named_by_stock(row) if row["name"].startswith("stock") else right(row)
        named = "; ".join(" with ".join(cause) for cause in row["named"]) or "-"
        p = ", ".join(f"{value:.2g}" for value in row["p"]) or "-"
        planted = " with ".join(row["planted"]) or "-"
        lines.append(
            f"| {row['name'].replace('_', ' ')} | {row['env']} | {planted} "
            f"| {named} | {row['verdict']} | {p} | {row['cpu']:.0f} | {'yes' if judged else 'no'} |"
        )
    save("bisect", "\n".join(lines), {"rows": rows}, machine("torch"))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--only", default="", help="tasks, with commas")
    args = parser.parse_args()
    names = [*tasks(), *(f"stock_{name}" for name in PARTS)]
    chosen = [name for name in args.only.split(",") if name] or names
    torch.set_num_threads(1)
    for name in chosen if args.what == "run" else ():
        if name not in {row["name"] for row in kept()}:
            stock = name.startswith("stock_")
            row = against_stock(name.removeprefix("stock_")) if stock else bisected(name)
            FILE.write_text(json.dumps({"rows": [*kept(), row]}, indent=1) + "\n")
            print(json.dumps(row), flush=True)
    report(kept())


if __name__ == "__main__":
    main()
