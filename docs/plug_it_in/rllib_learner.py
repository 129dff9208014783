"""RLlib's PPO on the probes, one policy for each agent.

corral doctor --learner rllib_learner.py:learn
corral doctor --learner rllib_learner.py:learn_without_value_function_api --probes P4,P5,P6,P7
"""

from collections.abc import Callable
from typing import Any

import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.core.rl_module import MultiRLModuleSpec, RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule

from corral.adapters.rllib import RLlibEnv
from corral.adapters.rllib.module import MaskedRLModule
from corral.lab.doctor.examination import Learned


class NoValueFunctionAPI(TorchRLModule):
    """The same networks and methods, in a class that forgets to inherit ValueFunctionAPI."""

    setup = MaskedRLModule.setup
    _forward = MaskedRLModule._forward
    compute_values = MaskedRLModule.compute_values


class Filled(PPOTorchLearner):
    """Fills in what the loss misses: it no longer fails, and the actor learns nothing."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any):
        filled = {"advantages": torch.zeros_like(batch["rewards"]), **batch}
        filled.setdefault("value_targets", batch["rewards"])
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=filled, fwd_out=fwd_out
        )


def learn_without_value_function_api(make_env: Callable[[], Any], steps: int, seed: int) -> Learned:
    """The trap: RLlib makes no advantages for such a module."""
    return learn(make_env, steps, seed, NoValueFunctionAPI, Filled)


def learn(
    make_env: Callable[[], Any],
    steps: int,
    seed: int,
    module: type = MaskedRLModule,
    learner: type | None = None,
) -> Learned:
    agents = list(make_env().possible_agents)
    spec = {a: RLModuleSpec(module, model_config={"net_arch": (32,)}) for a in agents}
    algorithm = (
        PPOConfig()
        .environment(RLlibEnv, env_config={"env": make_env}, disable_env_checking=True)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=32)
        .multi_agent(policies=set(agents), policy_mapping_fn=lambda agent, episode, **_: agent)
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=spec))
        .training(train_batch_size_per_learner=512, minibatch_size=512, num_epochs=8, gamma=0.9)
        .training(lr=5e-3, lambda_=0.95, use_kl_loss=False)
        .training(vf_clip_param=float("inf"), vf_loss_coeff=0.5, grad_clip=0.5)
        .training(**({"learner_class": learner} if learner else {}))
        .learners(num_learners=0)
        .debugging(seed=seed, log_level="ERROR")
        .build_algo()
    )
    played = 0
    while played < steps:
        played = algorithm.train()["env_runners"]["num_env_steps_sampled_lifetime"]
    assert algorithm.learner_group is not None
    # algorithm.get_module gives the runner's copy, whose critic stays as it was at the beginning.
    modules = algorithm.learner_group._learner.module
    algorithm.stop()

    def obs(observation: dict[str, Any]) -> dict[str, Any]:
        return {"obs": {key: torch.as_tensor(part)[None] for key, part in observation.items()}}

    def policy(agent: str) -> Callable[[dict[str, Any]], int]:
        @torch.no_grad()
        def play(observation: dict[str, Any]) -> int:
            logits = modules[agent].forward_exploration(obs(observation))["action_dist_inputs"]
            return int(torch.distributions.Categorical(logits=logits).sample())

        return play

    def value(agent: str) -> Callable[[dict[str, Any]], Any]:
        return lambda observation: modules[agent].compute_values(obs(observation))

    return Learned({a: policy(a) for a in agents}, {a: value(a) for a in agents})
