"""Our mappo beside BenchMARL's MAPPO: dfaas_v0 and mpe2's simple_spread_v3, equal env steps.

    pip install '.[benchmarl,mappo]' && pip install --no-deps mpe2
    OMP_NUM_THREADS=1 python benchmarks/core/benchmarl_beside.py [--dfaas N] [--spread N] [SEED ...]

Both play the same copies: BenchMARL through ``corral.adapters.torchrl.benchmarl``, over Batch and,
for mpe2, over ZooBatch. What has the same meaning in both is set alike (``SETTINGS``); the rest is
each one's own, see ``DIFFERENCES``. dfaas_v0 is the default game on edge3, learned on rows 0:2822
and judged on the others by the share of the optimum; simple_spread_v3 (N=3, local_ratio=0.5, 25
steps) by the return of an episode per agent. Teams play greedily. Times are those of
all of a training.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarl.algorithms import MappoConfig
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from mpe2 import simple_spread_v3

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarl_player import Shared
from common import machine, save

import corral
from corral.adapters import make_zoo_batch, zoo_rules
from corral.adapters.torchrl.benchmarl import CorralTask
from corral.envs.policy import RandomPolicy
from corral.loads.replay import replay

EPISODES = 100  # that judge simple_spread_v3, the same for all
COMMON = {"clip_range": 0.2, "gae_lambda": 0.95, "net_arch": (64, 64), "max_grad_norm": 0.5}
SETTINGS: dict[str, dict[str, Any]] = {
    "dfaas_v0": {
        "num_envs": 32,
        "n_steps": 64,
        "n_minibatches": 8,
        "n_epochs": 4,
        "learning_rate": 3e-3,
        "gamma": 0.5,
        "ent_coef": 0.0,
    },
    "simple_spread_v3": {
        "num_envs": 64,
        "n_steps": 25,
        "n_minibatches": 4,
        "n_epochs": 8,
        "learning_rate": 1e-3,
        "gamma": 0.97,
        "ent_coef": 0.01,
    },
}
DIFFERENCES = (
    "Different, each its own: ours normalises values and advantages, has a Huber loss, tells a "
    "shared policy which agent it plays, and its critic sees the agent's own observation besides "
    "the state; BenchMARL's does none of these (squared loss, a critic of the state). Both: relu, "
    "one policy for all agents, a constant learning rate."
)


Seconds = np.ndarray[Any, Any]
"""Of wall time, and of this process's CPU: other work on the machine lengthens the former."""


def clocks() -> Seconds:
    return np.array([time.perf_counter(), time.process_time()])


def spread() -> Any:
    return simple_spread_v3.parallel_env(N=3, local_ratio=0.5, max_cycles=25)


def ours(game: str, steps: int, seed: int) -> tuple[dict[str, Any], Seconds]:
    with tempfile.TemporaryDirectory() as folder:
        began = clocks()
        run = corral.train(
            game if game == "dfaas_v0" else zoo_rules(spread),
            trainer="mappo",
            steps=steps,
            seed=seed,
            out=Path(folder) / "run",
            anneal=False,
            **({"env_kwargs": {"trace": "edge3"}, "validation": 0} if game == "dfaas_v0" else {}),
            **COMMON,
            **SETTINGS[game],
        )
        seconds = clocks() - began
        assert run.progress["env_steps"].iloc[-1] == steps
        return dict(run.policies), seconds


def theirs(game: str, steps: int, seed: int) -> tuple[dict[str, Any], Seconds]:
    settings = {**COMMON, **SETTINGS[game]}
    config, algorithm = ExperimentConfig.get_from_yaml(), MappoConfig.get_from_yaml()
    batch = settings["num_envs"] * settings["n_steps"]
    config.max_n_frames, config.gamma, config.lr = (
        steps,
        settings["gamma"],
        settings["learning_rate"],
    )
    config.clip_grad_norm, config.clip_grad_val = True, settings["max_grad_norm"]
    config.on_policy_n_envs_per_worker = settings["num_envs"]
    config.on_policy_collected_frames_per_batch = batch
    config.on_policy_n_minibatch_iters = settings["n_epochs"]
    config.on_policy_minibatch_size = batch // settings["n_minibatches"]
    config.evaluation, config.loggers, config.create_json = False, [], False
    algorithm.lmbda, algorithm.clip_epsilon = settings["gae_lambda"], settings["clip_range"]
    algorithm.entropy_coef = settings["ent_coef"]
    if game == "dfaas_v0":
        task = CorralTask(game, {"trace": "edge3", "rows": (0, 2822), "illegal": "raise"})
    else:
        task = CorralTask(game, rules=zoo_rules(spread), max_steps=25)
    layers = {"layer_class": torch.nn.Linear, "activation_class": torch.nn.ReLU}
    began = clocks()
    with tempfile.TemporaryDirectory() as config.save_folder:
        experiment = Experiment(
            task=task,
            algorithm_config=algorithm,
            model_config=MlpConfig(num_cells=list(settings["net_arch"]), **layers),
            critic_model_config=MlpConfig(num_cells=list(settings["net_arch"]), **layers),
            seed=seed,
            config=config,
        )
        experiment.run()
    seconds = clocks() - began
    assert experiment.total_frames == steps
    ((group, members),) = experiment.group_map.items()
    shared = Shared(experiment.policy, group, len(members))
    return dict.fromkeys(members, shared), seconds


def judged_dfaas(teams: dict[str, Any]) -> dict[str, Any]:
    teams = {**teams, "overflow/equal": "overflow/equal", "random/equal": "random/equal"}
    result = replay("edge3", teams, rows=(2822, 4032), illegal="raise")
    return {
        score.policy: {"value": 100 * score.share_of_optimum, "illegal": score.illegal_actions}
        for score in result.scores
        if score.share_of_optimum is not None
    }


def judged_spread(teams: dict[str, Any]) -> dict[str, Any]:
    random = dict.fromkeys(spread().possible_agents, RandomPolicy())
    found = {}
    for name, team in {**teams, "random": random}.items():
        rng = np.random.default_rng(0)
        with make_zoo_batch(spread, num_envs=EPISODES, seed=10_000) as batch:
            obs, total = batch.reset(), np.zeros(EPISODES)
            for _ in range(25):
                acts = [team[a].act(obs[a], rng=rng, deterministic=True) for a in batch.agents]
                step = batch.step(np.stack([decision.action for decision in acts], axis=1))
                obs, total = step.observations, total + step.reward.mean(axis=1)
        half = 1.96 * total.std(ddof=1) / EPISODES**0.5
        found[name] = {"value": float(total.mean()), "half_width": float(half)}
    return found


GAMES = {"dfaas_v0": judged_dfaas, "simple_spread_v3": judged_spread}
UNITS = {
    "dfaas_v0": "% of the optimum, held-out rows",
    "simple_spread_v3": f"return per agent, {EPISODES} episodes",
}


def table(found: dict[str, Any]) -> str:
    lines = [
        "# Our mappo beside BenchMARL's MAPPO",
        "",
        "| game | env steps | seed | who | wall, s | CPU, s | result, greedy | unit |",
        "|---|--:|--:|---|--:|--:|--:|---|",
    ]
    for label, r in found.items():
        game, seed = label.split(", seed ")
        for who, score in r["judged"].items():
            seconds = " | ".join(f"{t:.0f}" for t in r["seconds"].get(who, ())) or " | "
            value = f"{score['value']:.2f}"
            if "half_width" in score:
                value += f" ± {score['half_width']:.2f}"
            steps = f"{r['env_steps']:,}" if who in r["seconds"] else ""
            cells = (game, steps, seed, who, seconds, value, UNITS[game])
            lines.append("| " + " | ".join(cells) + " |")
    alike = {game: {**COMMON, **settings} for game, settings in SETTINGS.items()}
    lines += ["", *(f"Set alike, {game}: {settings}." for game, settings in alike.items())]
    return "\n".join([*lines, "", DIFFERENCES, "± is the half width of a 95 % interval."])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dfaas", type=int, default=149_504, help="env steps, a multiple of 2048")
    parser.add_argument("--spread", type=int, default=200_000, help="env steps, a multiple of 1600")
    parser.add_argument("seeds", type=int, nargs="*", default=[0, 1])
    args = parser.parse_args()
    found: dict[str, Any] = {}
    about = machine("torch", "torchrl", "benchmarl", "pettingzoo", "mpe2")
    for seed in args.seeds:
        for game, steps in (("dfaas_v0", args.dfaas), ("simple_spread_v3", args.spread)):
            teams, seconds = {}, {}
            for who, train in (("mappo", ours), ("BenchMARL MAPPO", theirs)):
                teams[who], seconds[who] = train(game, steps, seed)
                seconds[who] = seconds[who].tolist()
                print(f"{game}, seed {seed}, {who}: {seconds[who]} s", file=sys.stderr)
            found[f"{game}, seed {seed}"] = {
                "env_steps": steps,
                "seconds": seconds,
                "judged": GAMES[game](teams),
            }
            data = {"settings": SETTINGS, "common": COMMON, "runs": found}
            save("benchmarl_beside", table(found), data, about)


if __name__ == "__main__":
    main()
