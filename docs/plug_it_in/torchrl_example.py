"""dfaas_v0 learned with TorchRL: MAPPO, masked.

pip install '.[torchrl]'
"""

import sys

import numpy as np
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torchrl.collectors import Collector
from torchrl.envs import ExplorationType, set_exploration_type
from torchrl.modules import MaskedCategorical, MultiAgentMLP, ProbabilisticActor
from torchrl.objectives.multiagent import MAPPOLoss

from corral.adapters.torchrl.batch import BatchEnv

COPIES, BATCH, EPOCHS, MINIBATCH = 20, 960, 10, 240  # the last: env steps of one update


def learn(steps, seed):
    """Train for so many env steps; what comes back plays: observations -> greedy actions."""
    torch.manual_seed(seed)
    game = {"trace": "edge3", "rows": (0, 2822), "max_cycles": 48, "illegal": "raise"}
    env = BatchEnv("dfaas_v0", num_envs=COPIES, seed=seed, **game)
    agents, obs_key = env.group_map["node"], ("node", "observation", "observation")
    sizes = {"n_agents": len(agents), "share_params": True, "depth": 2, "num_cells": 64}
    features, actions = env.observation_spec[obs_key].shape[-1], env.action_spec["node", "action"].n
    net = MultiAgentMLP(
        features, actions, centralized=False, activation_class=torch.nn.Tanh, **sizes
    )
    actor = ProbabilisticActor(
        TensorDictModule(net, in_keys=[obs_key], out_keys=[("node", "logits")]),
        in_keys={"logits": ("node", "logits"), "mask": ("node", "action_mask")},
        out_keys=[("node", "action")],
        distribution_class=MaskedCategorical,
        return_log_prob=True,
        log_prob_key=("node", "log_prob"),
    )
    net = MultiAgentMLP(features, 1, centralized=True, activation_class=torch.nn.Tanh, **sizes)
    critic = TensorDictModule(net, in_keys=[obs_key], out_keys=[("node", "state_value")])
    loss = MAPPOLoss(actor, critic, entropy_coeff=0.003)
    names = "action", "reward", "done", "terminated", "advantage", "value_target"
    loss.set_keys(
        value=("node", "state_value"),
        sample_log_prob=("node", "log_prob"),
        **{name: ("node", name) for name in names},
    )
    loss.make_value_estimator(gamma=0.5, lmbda=0.9)
    target = {"target_params": loss.target_critic_network_params}
    optimizer = torch.optim.Adam(loss.parameters(), lr=3e-3)
    for batch in Collector(env, actor, frames_per_batch=BATCH, total_frames=steps):
        for _ in range(EPOCHS):
            with torch.no_grad():
                loss.value_estimator(batch, params=loss.critic_network_params, **target)
            flat = batch.reshape(-1)
            for rows in torch.randperm(BATCH).split(MINIBATCH):
                losses = loss(flat[rows])
                total = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
                optimizer.zero_grad()
                total.backward()
                torch.nn.utils.clip_grad_norm_(loss.parameters(), 0.5)
                optimizer.step()

    def play(observations):
        look = {k: np.stack([observations[a][k] for a in agents]) for k in observations[agents[0]]}
        mask = torch.as_tensor(look["action_mask"], dtype=torch.bool)
        at = TensorDict(
            {obs_key: torch.as_tensor(look["observation"]), ("node", "action_mask"): mask}
        )
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            return dict(zip(agents, actor(at)["node", "action"].tolist(), strict=True))

    return play


if __name__ == "__main__":
    from corral.envs import dfaas_v0

    play = learn(steps=int(sys.argv[1]) if sys.argv[1:] else 9600, seed=0)
    env = dfaas_v0.parallel_env(trace="edge3", rows=(2822, 4032), max_cycles=48, illegal="raise")
    observations, _ = env.reset(seed=0)
    total = 0.0
    while env.agents:
        observations, rewards, *_ = env.step(play(observations))
        total += sum(rewards.values())
    print(f"return of the team on a window that it did not train on: {total:.2f}")
