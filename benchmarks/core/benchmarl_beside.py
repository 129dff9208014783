"""Our mappo beside BenchMARL's MAPPO: dfaas_v0 and two games of mpe2, equal env steps.

    pip install '.[benchmarl,mappo]' && pip install --no-deps mpe2 && pip install pygame-ce
    OMP_NUM_THREADS=1 python benchmarks/core/benchmarl_beside.py [--games NAME ...] [SEED ...]
        [--dfaas N] [--spread N] [--listener N]

Both play the same copies: BenchMARL through ``corral.adapters.torchrl.benchmarl``, over Batch and,
for mpe2, over ZooBatch. What has the same meaning in both is set alike (``SETTINGS``); the rest is
each one's own, see ``DIFFERENCES``. dfaas_v0 is the default game on edge3, learned on rows 0:2822
and judged on the others by the share of the optimum; simple_spread_v3 (N=3, local_ratio=0.5, 25
steps) by the return of an episode per agent. Teams play greedily. Times are those of
all of a training.

simple_speaker_listener_v4 (25 steps) is learned with mappo's defaults, and BenchMARL is set like
them, as in the published comparison: over corral's batch, and in the first seed also over
BenchMARL's own task for PettingZoo, which takes long. Compared are the CPU seconds for all env
steps, and those until the training return, the mean of the last 100 episodes, is first what
BenchMARL has at its end.

Games that are not named keep their figures. The trainers take turns, seed by seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarl.algorithms import MappoConfig
from benchmarl.environments.pettingzoo.common import PettingZooClass
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from mpe2 import simple_speaker_listener_v4, simple_spread_v3
from torchrl.envs import PettingZooWrapper

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarl_player import Shared
from common import RESULTS, machine, save
from published_games import Game
from published_own import Curve, trained
from published_peers import benchmarl

import corral
from corral.adapters import make_zoo_batch, zoo_rules
from corral.adapters.torchrl.benchmarl import CorralTask
from corral.envs.policy import RandomPolicy
from corral.loads.replay import replay
from corral.trainers.base import find_trainer
from corral.trainers.evaluation.scores import evaluate_players

EPISODES = 100  # that judge the games of mpe2, the same for all
LISTENER = "simple_speaker_listener_v4"
PEERS = ("BenchMARL MAPPO", "BenchMARL MAPPO, its own task")
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
    "one policy for all agents, a constant learning rate; in simple_speaker_listener_v4 a policy "
    "for each agent, and a rate of ours that falls to 0."
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


def speaker_listener() -> Any:
    return simple_speaker_listener_v4.parallel_env(max_cycles=25)


def listener_game(steps: int) -> Game:
    """Return the game as the published comparison describes games; its agents are unlike."""

    def judge(teams: Any) -> Any:
        rules = zoo_rules(speaker_listener)
        scores = evaluate_players(rules, teams, episodes=EPISODES, seed=10_000)
        return {score.policy: {"value": float(score.return_team)} for score in scores}

    return Game(
        "simple_speaker_listener_v4",
        "return of the team",
        env=lambda: zoo_rules(speaker_listener),
        rules=lambda: zoo_rules(speaker_listener),
        judge=judge,
        references=dict,
        alike=False,
        max_steps=25,
        steps=steps,
    )


class OwnTask(PettingZooClass):  # type: ignore[misc]
    """BenchMARL's task for PettingZoo, with the game of mpe2, which left PettingZoo."""

    def get_env_fun(
        self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any
    ) -> Any:
        return lambda: PettingZooWrapper(
            speaker_listener(),
            return_state=True,
            categorical_actions=True,
            seed=seed,
            device=device,
        )


def listened(steps: int, seed: int, peers: Sequence[str]) -> dict[str, Any]:
    """Let mappo and ``peers`` learn simple_speaker_listener_v4; return the figures of a seed."""
    game = listener_game(steps)
    find_trainer("mappo")  # imports it, before the clock runs
    tasks = {
        PEERS[0]: None,
        PEERS[1]: OwnTask("SIMPLE_SPEAKER_LISTENER", {"max_cycles": 25}),
    }
    curves, played, seconds = {}, {}, {}
    for who in ("mappo", *peers):
        curve = curves[who] = Curve()
        if who == "mappo":
            played[who] = trained("mappo", game, seed, curve)
        else:
            played[who] = benchmarl("benchmarl_mappo_alike", game, seed, curve, tasks[who])
        seconds[who] = curve.seconds()[::-1]
    return {
        "env_steps": played["mappo"].env_steps,
        "seconds": seconds,
        # Policies of BenchMARL's own task take observations of another form.
        "judged": game.judge({who: played[who].team for who in ("mappo", PEERS[0])}),
        "curves": {who: curve.thinned() for who, curve in curves.items()},
        "settings": {
            who: {key: str(v) if callable(v) else v for key, v in each.settings.items()}
            for who, each in played.items()
        },
    }


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
    LISTENER: f"team return, {EPISODES} episodes",
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
    lines += ["", DIFFERENCES, "± is the half width of a 95 % interval."]
    lines += listener_table(found)
    return "\n".join(
        [*lines, "", "The date below is that of the last run; other games may be older."]
    )


def listener_table(found: dict[str, Any]) -> list[str]:
    """Return how soon mappo has the training return that BenchMARL has at its end."""
    runs = {label: r for label, r in found.items() if label.startswith(LISTENER)}
    if not runs:
        return []
    lines = [
        "",
        f"## CPU seconds to BenchMARL's return, {LISTENER}",
        "",
        "mappo has its defaults, and BenchMARL is set like them. Returns are means of the last 100 "
        "episodes of training. The target is BenchMARL's return at its end. Ratios are CPU seconds "
        "of mappo over BenchMARL's.",
        "",
        "| compared with | seed | CPU s: BenchMARL | mappo | ratio | return: BenchMARL | mappo "
        "| target first reached, CPU s: BenchMARL | mappo | ratio |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    medians = []
    for who in PEERS:
        ratios = []
        for label, r in runs.items():
            if who not in r["curves"]:
                continue
            pair = [r["curves"][each] for each in (who, "mappo")]
            whole = [r["seconds"][each][1] for each in (who, "mappo")]
            target = pair[0][-1][3]
            first = [next((p[1] for p in curve if p[3] >= target), np.inf) for curve in pair]
            ratios.append((whole[1] / whole[0], first[1] / first[0]))
            cells = [f"{whole[0]:.1f}", f"{whole[1]:.1f}", f"{ratios[-1][0]:.2f}"]
            cells += [f"{curve[-1][3]:.1f}" for curve in pair]
            cells += [f"{first[0]:.1f}", f"{first[1]:.1f}", f"{ratios[-1][1]:.2f}"]
            lines.append("| " + " | ".join([who, label.split(", seed ")[1], *cells]) + " |")
        if ratios:
            steps, equal = np.median(ratios, axis=0)
            medians.append(f"{who}: {steps:.2f} for all env steps, {equal:.2f} to its return.  ")
    return [*lines, "", "Median ratios:  ", *medians]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dfaas", type=int, default=149_504, help="env steps, a multiple of 2048")
    parser.add_argument("--spread", type=int, default=200_000, help="env steps, a multiple of 1600")
    parser.add_argument("--listener", type=int, default=100_000, help="env steps")
    parser.add_argument("--games", nargs="+", choices=list(UNITS), default=list(UNITS))
    parser.add_argument("seeds", type=int, nargs="*", default=[0, 1])
    args = parser.parse_args()
    file = RESULTS / "benchmarl_beside.json"
    kept = json.loads(file.read_text())["runs"] if file.exists() else {}
    found: dict[str, Any] = {
        label: run for label, run in kept.items() if label.split(",")[0] not in args.games
    }
    about = machine("torch", "torchrl", "benchmarl", "pettingzoo", "mpe2")
    steps_of = dict(zip(UNITS, (args.dfaas, args.spread, args.listener), strict=True))
    for seed in args.seeds:
        for game in args.games:
            if game == LISTENER:
                peers = PEERS if seed == args.seeds[0] else PEERS[:1]
                run = listened(args.listener, seed, peers)
            else:
                run = beside(game, steps_of[game], seed)
            found[f"{game}, seed {seed}"] = {**run, "about": about}
            print(f"{game}, seed {seed}: {run['seconds']}", file=sys.stderr, flush=True)
            data = {"settings": SETTINGS, "common": COMMON, "runs": found}
            save("benchmarl_beside", table(found), data, about)


def beside(game: str, steps: int, seed: int) -> dict[str, Any]:
    """Let both learn a game with ``SETTINGS``, and return the figures of a seed."""
    teams, seconds = {}, {}
    for who, train in (("mappo", ours), ("BenchMARL MAPPO", theirs)):
        teams[who], spent = train(game, steps, seed)
        seconds[who] = spent.tolist()
    return {"env_steps": steps, "seconds": seconds, "judged": GAMES[game](teams)}


if __name__ == "__main__":
    main()
