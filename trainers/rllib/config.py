"""Configure the trainer rllib_ppo as RLlib's PPOConfig. Imports Ray only when called."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from corral.adapters.zoo.batch import ZooRules
from corral.envs.core import generator
from corral.trainers.schedules import linear

__all__ = ["ppo_config", "schedule"]


def ppo_config(learner: Any) -> Any:
    """Return the PPOConfig for the remaining steps."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module import MultiRLModuleSpec, RLModuleSpec

    from corral.adapters.rllib.env import EpisodeReturns, RLlibEnv
    from corral.adapters.rllib.module import MaskedRLModule

    settings, rules = learner.settings, learner.rules
    rate = settings.learning_rate
    whole = settings.whole_episodes
    if whole is None:
        whole = not rules.simultaneous
    third_party = isinstance(rules, ZooRules)
    env: dict[str, Any] = {
        "env": rules.make_env if third_party else rules,
        "state": settings.critic_input == "state",
        "agent_id": learner.identified,
        "early_rewards": "return_only",
        "faults": "tell",
    }
    if third_party:
        env["max_cycles"] = rules.max_cycles
    specs = {
        group.policy: RLModuleSpec(
            MaskedRLModule, *learner.spaces(group.agents[0]), model_config=learner.architecture
        )
        for group in learner.groups
    }
    return (
        PPOConfig()
        .environment(RLlibEnv, env_config=env, disable_env_checking=True)
        .framework("torch")
        .env_runners(
            num_env_runners=settings.runners,
            num_envs_per_env_runner=settings.envs_per_runner,
            num_cpus_per_env_runner=settings.cpus_per_runner,
            batch_mode="complete_episodes" if whole else "truncate_episodes",
            sample_timeout_s=settings.patience / 2,
        )
        .training(
            train_batch_size_per_learner=settings.train_batch_size,
            minibatch_size=settings.batch_size,
            num_epochs=settings.n_epochs,
            lr=schedule(rate, 0.0, learner.env_steps, learner.steps) if settings.anneal else rate,
            gamma=settings.gamma,
            lambda_=settings.gae_lambda,
            clip_param=settings.clip_range,
            entropy_coeff=settings.ent_coef
            if settings.ent_coef_end is None
            else schedule(
                settings.ent_coef, settings.ent_coef_end, learner.env_steps, learner.steps
            ),
            vf_loss_coeff=settings.vf_coef,
            vf_clip_param=float("inf"),
            use_kl_loss=settings.kl_coef > 0,
            kl_coeff=settings.kl_coef,
            kl_target=settings.kl_target,
            grad_clip=settings.max_grad_norm,
        )
        .multi_agent(
            policies=list(dict.fromkeys(learner.policy_of.values())),
            policy_mapping_fn=partial(_policy_of, learner.policy_of),
            policies_to_train=list(learner.trained),
        )
        .rl_module(rl_module_spec=MultiRLModuleSpec(rl_module_specs=specs))
        .callbacks(EpisodeReturns)
        .learners(num_learners=0)
        .fault_tolerance(
            restart_failed_env_runners=True,
            delay_between_env_runner_restarts_s=1.0,
            num_consecutive_env_runner_failures_tolerance=10**6,  # ``patience`` ends it
            env_runner_health_probe_timeout_s=10.0,
            env_runner_restore_timeout_s=settings.patience / 2,
        )
        .debugging(
            # A resumed run plays other episodes than at its start.
            seed=int(generator(learner.seed, "policy", learner.env_steps).integers(2**30)),
            log_level="ERROR",
        )
    )


# --- Parts ---------------------------------------------------------------------------------------


def schedule(begin: float, end: float, at: int, steps: int) -> list[list[float]]:
    """Return RLlib's schedule of a setting from ``begin`` to ``end`` over ``steps`` env steps.

    ``at``: number of env steps already played. RLlib counts from 0 when a run is resumed.
    """
    value = linear(begin, end, at / steps)
    return [[0, value], [max(1, steps - at), end]]


def _policy_of(policies: Mapping[str, str], agent: str, *args: Any, **kwargs: Any) -> str:
    return policies[agent]
