"""Players of the published comparison that run in BenchMARL's environment.

"benchmarl_mappo" and "benchmarl_qmix" have the defaults of BenchMARL's configuration files, but for
the game's discounting. "benchmarl_mappo_alike" is given what has the same meaning in our mappo as
our mappo has it in that game; the rest is BenchMARL's.
"""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from benchmarl.algorithms import MappoConfig, QmixConfig
from benchmarl.experiment import Callback, Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from benchmarl_player import Shared
from published_games import Game
from published_own import Curve, Played

import corral
from corral.adapters.torchrl.benchmarl import CorralTask

__all__ = ["PEERS", "benchmarl"]

PEERS = ("benchmarl_mappo_alike", "benchmarl_mappo", "benchmarl_qmix")
ACTIVATIONS = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}


class _Looking(Callback):  # type: ignore[misc]
    """Notes the team's return of each episode that ends."""

    def __init__(self, curve: Curve) -> None:
        super().__init__()
        self.curve = curve

    def on_batch_collected(self, batch: Any) -> None:
        done = batch["next", "done"][..., 0]
        groups = self.experiment.group_map
        sums = sum(batch["next", group, "episode_reward"][..., 0].sum(-1) for group in groups)
        self.curve.returns.extend(sums[done].tolist())

    def on_train_end(self, training_td: Any, group: str) -> None:
        if group == list(self.experiment.group_map)[-1]:
            self.curve.add(self.experiment.total_frames)


def _alike(config: Any, algorithm: Any, game: Game) -> dict[str, Any]:
    """Set what our mappo has too as it has it in this game; return arguments of the networks."""
    options = {**game.options(), **game.discounting}
    run = corral.train(game.env(), trainer="mappo", steps=game.steps, dry_run=True, **options)
    ours = run.config.settings
    frames = ours["num_envs"] * ours["n_steps"]
    config.on_policy_n_envs_per_worker = ours["num_envs"]
    config.on_policy_collected_frames_per_batch = frames
    config.on_policy_n_minibatch_iters = ours["n_epochs"]
    config.on_policy_minibatch_size = frames // ours["n_minibatches"]
    config.lr, config.gamma, config.clip_grad_val = (
        ours["learning_rate"],
        ours["gamma"],
        ours["max_grad_norm"],
    )
    algorithm.lmbda, algorithm.clip_epsilon = ours["gae_lambda"], ours["clip_range"]
    algorithm.entropy_coef = ours["ent_coef"]
    return {
        "num_cells": list(ours["net_arch"]),
        "activation_class": ACTIVATIONS[ours["activation"]],
        "layer_class": torch.nn.Linear,
    }


def benchmarl(name: str, game: Game, seed: int, curve: Curve, task: Any = None) -> Played:
    """Train one of ``PEERS``; ``task``: BenchMARL's view of the game, if it is not corral's."""
    config = ExperimentConfig.get_from_yaml()
    algorithm = (QmixConfig if name == "benchmarl_qmix" else MappoConfig).get_from_yaml()
    config.gamma = game.discounting.get("gamma", config.gamma)
    if hasattr(algorithm, "lmbda"):
        algorithm.lmbda = game.discounting.get("gae_lambda", algorithm.lmbda)
    layers = _alike(config, algorithm, game) if name.endswith("_alike") else None
    frames = config.collected_frames_per_batch(algorithm.on_policy())
    config.max_n_frames = game.steps // frames * frames  # whole batches only, as ours plays them
    config.share_policy_params = game.alike
    config.evaluation, config.loggers, config.create_json = False, [], False
    network = MlpConfig.get_from_yaml() if layers is None else MlpConfig(**layers)
    curve.restart()  # what our settings are took a moment
    task = task or CorralTask(name, rules=game.rules(), max_steps=game.max_steps)
    with tempfile.TemporaryDirectory() as config.save_folder:
        experiment = Experiment(
            task=task,
            algorithm_config=algorithm,
            model_config=network,
            critic_model_config=network,
            seed=seed,
            config=config,
            callbacks=[_Looking(curve)],
        )
        experiment.run()
    team = {
        agent: Shared(experiment.group_policies[group], group, len(members), index)
        for group, members in experiment.group_map.items()
        for index, agent in enumerate(members)
    }
    return Played(team, _settings(config, algorithm, network), experiment.total_frames)


def _settings(config: Any, algorithm: Any, network: Any) -> dict[str, Any]:
    part = "on_policy_" if algorithm.on_policy() else "off_policy_"
    said = {
        key.removeprefix(part): value
        for key, value in vars(config).items()
        if key.startswith((part, "lr", "gamma", "clip_grad_val", "share_policy", "exploration"))
        or (part == "off_policy_" and key in ("polyak_tau", "soft_target_update"))
    }
    said |= {"net_arch": network.num_cells, "activation": network.activation_class.__name__}
    return {**said, **vars(algorithm)}
