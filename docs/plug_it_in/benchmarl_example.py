"""dfaas_v0 learned with BenchMARL, masked.

pip install '.[benchmarl]'
"""

import sys
import tempfile

import numpy as np
import torch
from benchmarl.algorithms import IppoConfig, MappoConfig
from benchmarl.experiment import Experiment, ExperimentConfig
from benchmarl.models.mlp import MlpConfig
from tensordict import TensorDict
from torchrl.envs import ExplorationType, set_exploration_type

from corral.adapters.torchrl.benchmarl import CorralTask

ALGORITHMS = {"mappo": MappoConfig, "ippo": IppoConfig}


def learn(steps, seed, algorithm="mappo"):
    """Train for so many env steps; what comes back plays: observations -> greedy actions."""
    game = {"trace": "edge3", "rows": (0, 2822), "max_cycles": 48, "illegal": "raise"}
    config = ExperimentConfig.get_from_yaml()
    config.max_n_frames, config.gamma, config.lr, config.clip_grad_val = steps, 0.5, 3e-3, 0.5
    config.on_policy_n_envs_per_worker = 20
    config.on_policy_collected_frames_per_batch = 960
    config.on_policy_n_minibatch_iters, config.on_policy_minibatch_size = 10, 240
    config.evaluation, config.loggers, config.create_json = False, [], False
    with tempfile.TemporaryDirectory() as config.save_folder:
        experiment = Experiment(
            task=CorralTask("dfaas_v0", game),
            algorithm_config=ALGORITHMS[algorithm].get_from_yaml(),
            model_config=MlpConfig(num_cells=[64, 64], **TANH),
            critic_model_config=MlpConfig(num_cells=[64, 64], **TANH),
            seed=seed,
            config=config,
        )
        experiment.run()
    agents = experiment.group_map["node"]

    def play(observations):
        look = {k: np.stack([observations[a][k] for a in agents]) for k in observations[agents[0]]}
        mask = torch.as_tensor(look["action_mask"], dtype=torch.bool)
        obs = {"observation": {"observation": torch.as_tensor(look["observation"])}}
        at = TensorDict(
            {"node": TensorDict({**obs, "action_mask": mask}, batch_size=[len(agents)])}
        )
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            actions = experiment.policy(at)["node", "action"]
        return dict(zip(agents, actions.tolist(), strict=True))

    return play


TANH = {"layer_class": torch.nn.Linear, "activation_class": torch.nn.Tanh}

if __name__ == "__main__":
    from corral.envs import dfaas_v0

    play = learn(steps=int(sys.argv[1]) if sys.argv[1:] else 19200, seed=0)
    env = dfaas_v0.parallel_env(trace="edge3", rows=(2822, 4032), max_cycles=48, illegal="raise")
    observations, _ = env.reset(seed=0)
    total = 0.0
    while env.agents:
        observations, rewards, *_ = env.step(play(observations))
        total += sum(rewards.values())
    print(f"return of the team on a window that it did not train on: {total:.2f}")
