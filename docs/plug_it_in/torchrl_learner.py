"""TorchRL's IPPO on the probes, networks of its own for each agent.

corral doctor --learner torchrl_learner.py:learn
"""

from collections.abc import Callable
from typing import Any

import torch
from tensordict import TensorDict
from tensordict.nn import InteractionType, TensorDictModule, TensorDictSequential
from torchrl.collectors import Collector
from torchrl.modules import MaskedCategorical, MultiAgentMLP, ProbabilisticActor
from torchrl.objectives.multiagent import IPPOLoss

from corral.adapters.torchrl.batch import BatchEnv
from corral.lab.doctor.examination import Learned

COPIES, BATCH, EPOCHS = 64, 512, 8
QUIET = {"auto_register_policy_transforms": False}
NAMES = "action", "reward", "done", "terminated", "advantage", "value_target"


def learn(make_env: Callable[[], Any], steps: int, seed: int) -> Learned:
    torch.manual_seed(seed)
    env = BatchEnv(make_env, num_envs=COPIES, seed=seed)
    actors = {group: actor_of(env, group) for group in env.group_map}
    critics = {group: critic_of(env, group) for group in env.group_map}
    losses = {group: loss_of(group, actors[group], critics[group]) for group in env.group_map}
    params = [each for loss in losses.values() for each in loss.parameters()]
    optimizer = torch.optim.Adam(params, lr=5e-3)
    team = TensorDictSequential(*actors.values())
    frames = -(-steps // BATCH) * BATCH
    for batch in Collector(env, team, frames_per_batch=BATCH, total_frames=frames, **QUIET):
        for _ in range(EPOCHS):
            for loss in losses.values():
                with torch.no_grad():
                    loss.value_estimator(
                        batch,
                        params=loss.critic_network_params,
                        target_params=loss.target_critic_network_params,
                    )
            found = [loss(batch.reshape(-1)) for loss in losses.values()]
            optimizer.zero_grad()
            sum(each["loss_objective"] + each["loss_critic"] for each in found).backward()
            torch.nn.utils.clip_grad_norm_(params, 0.5)
            optimizer.step()
    place = {a: (group, i) for group, all_ in env.group_map.items() for i, a in enumerate(all_)}

    def ask(networks: Any, agent: str, observation: dict[str, Any], answer: str) -> Any:
        """What a group's network answers for one agent, where all observe what it does."""
        group, i = place[agent]
        seen = {key: torch.as_tensor(part) for key, part in observation.items()}
        n = len(env.group_map[group])
        alike = {
            "observation": {"observation": seen["observation"].expand(n, -1)},
            "action_mask": (seen["action_mask"] == 1).expand(n, -1),
        }
        with torch.no_grad():
            return networks[group](TensorDict({group: TensorDict(alike, [n])}))[group, answer][i]

    def policy(agent: str) -> Callable[[dict[str, Any]], int]:
        return lambda observation: int(ask(actors, agent, observation, "action"))

    def value(agent: str) -> Callable[[dict[str, Any]], Any]:
        return lambda observation: ask(critics, agent, observation, "state_value")

    return Learned({a: policy(a) for a in place}, {a: value(a) for a in place})


def network(env: BatchEnv, group: str, outputs: int, answer: str) -> TensorDictModule:
    key = (group, "observation", "observation")
    n, sizes = len(env.group_map[group]), {"depth": 1, "num_cells": 64}
    apart = {"centralized": False, "share_params": False}
    net = MultiAgentMLP(env.observation_spec[key].shape[-1], outputs, n, **apart, **sizes)
    return TensorDictModule(net, in_keys=[key], out_keys=[(group, answer)])


def critic_of(env: BatchEnv, group: str) -> TensorDictModule:
    return network(env, group, 1, "state_value")


def actor_of(env: BatchEnv, group: str) -> ProbabilisticActor:
    return ProbabilisticActor(
        network(env, group, env.action_spec[group, "action"].n, "logits"),
        in_keys={"logits": (group, "logits"), "mask": (group, "action_mask")},
        out_keys=[(group, "action")],
        distribution_class=MaskedCategorical,
        default_interaction_type=InteractionType.RANDOM,
        return_log_prob=True,
        log_prob_key=(group, "log_prob"),
    )


def loss_of(group: str, actor: ProbabilisticActor, critic: TensorDictModule) -> IPPOLoss:
    loss = IPPOLoss(actor, critic, entropy_coeff=0.0, loss_critic_type="l2")
    keys = {"value": (group, "state_value"), "sample_log_prob": (group, "log_prob")}
    loss.set_keys(**keys, **{name: (group, name) for name in NAMES})
    loss.make_value_estimator(gamma=0.9, lmbda=0.95)
    return loss
