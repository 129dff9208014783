"""skrl: IPPO over the ParallelEnv; it knows no masks, but its models read them as observed."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.multi_agents.torch.base import ExperimentCfg
from skrl.multi_agents.torch.ippo import IPPO, IPPO_CFG
from skrl.trainers.torch import SequentialTrainer
from skrl.utils.spaces.torch import unflatten_tensorized_space
from torch import nn

from corral.envs import dfaas_v0


def network(features: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(features, 64), nn.Tanh(), nn.Linear(64, outputs))


class Policy(CategoricalMixin, Model):
    def __init__(self, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        CategoricalMixin.__init__(self)
        features = self.observation_space["observation"].shape[0]
        self.net = network(features, int(self.action_space.n))

    def compute(self, inputs: dict[str, Any], role: str = "") -> Any:
        """Logits, in rollout and update: -inf where what was observed says illegal."""
        obs = unflatten_tensorized_space(self.observation_space, inputs["observations"])
        return self.net(obs["observation"]).masked_fill(obs["action_mask"] == 0, -torch.inf), {}


class Value(DeterministicMixin, Model):
    def __init__(self, **spaces: Any) -> None:
        Model.__init__(self, **spaces)
        DeterministicMixin.__init__(self)
        self.net = network(self.observation_space["observation"].shape[0], 1)

    def compute(self, inputs: dict[str, Any], role: str = "") -> Any:
        obs = unflatten_tensorized_space(self.observation_space, inputs["observations"])
        return self.net(obs["observation"]), {}


def learn(steps: int, seed: int) -> Callable[[dict[str, Any]], dict[str, int]]:
    torch.manual_seed(seed)
    game: dict[str, Any] = {"trace": "edge3", "rows": (0, 2822), "max_cycles": 48}
    env = wrap_env(dfaas_v0.parallel_env(**game, illegal="raise"), wrapper="pettingzoo")
    agents, rollout = env.possible_agents, 120
    models, memories = {}, {}
    for a in agents:
        spaces = {
            "observation_space": env.observation_space(a),
            "action_space": env.action_space(a),
        }
        models[a] = {"policy": Policy(**spaces), "value": Value(**spaces)}
        memories[a] = RandomMemory(memory_size=rollout, num_envs=1)
    empty: dict[str, Any] = {  # its own defaults, {}, are refused: they name no agents
        field.name: {a: {} for a in agents}
        for field in dataclasses.fields(IPPO_CFG)
        if field.default_factory is dict
    }
    cfg = IPPO_CFG(
        **empty,
        rollouts=rollout,
        learning_epochs=8,
        mini_batches=4,
        learning_rate=3e-3,
        discount_factor=0.5,
        time_limit_bootstrap=True,
        experiment=ExperimentCfg(write_interval=0, checkpoint_interval=0),
    )
    team = IPPO(
        possible_agents=agents,
        models=models,
        memories=memories,
        observation_spaces=env.observation_spaces,
        state_spaces=env.state_spaces,
        action_spaces=env.action_spaces,
        cfg=cfg,
    )
    timesteps = max(1, round(steps / rollout)) * rollout
    options = {"timesteps": timesteps, "headless": True, "disable_progressbar": True}
    SequentialTrainer(env=env, agents=team, cfg=options).train()

    def play(observations: dict[str, Any]) -> dict[str, int]:
        actions = {}
        for agent, obs in observations.items():
            logits = models[agent]["policy"].net(torch.as_tensor(obs["observation"])[None])
            legal = torch.as_tensor(obs["action_mask"])[None] == 1
            actions[agent] = int(logits.masked_fill(~legal, -torch.inf).argmax())
        return actions

    return play
