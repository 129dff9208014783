"""Both ways to a Stable-Baselines3 VecEnv, and what Stable-Baselines3 makes of one."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from corral import adapters
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.shells import ParallelShell
from support.loads import small_trace
from support.steady_rules import SteadyRules
from support.turn_rules import MortalRules

WAYS = ("batch", "supersuit")

dfaas = functools.partial(DfaasRules, trace=small_trace(), max_cycles=6, queue=5, illegal="raise")
GAMES = {
    "dfaas": dfaas,
    "dfaas two": functools.partial(dfaas, route="two", wait_cost=0.1),
    "steady": SteadyRules,
    "steady, nested": functools.partial(SteadyRules, nested=True),
    "mortal together": functools.partial(
        MortalRules, (3, 3), lives=(5, 5), max_cycles=7, illegal="raise"
    ),
    "mortal, one cut": functools.partial(
        MortalRules, (3, 3), lives=(5, 9), max_cycles=5, illegal="raise"
    ),
}


def columns(way: str, rules: Any, num_envs: int, seed: int | None = 0, **kwargs: Any) -> Any:
    """A VecEnv over ``rules``, one way or the other."""
    if way == "batch":
        return adapters.make_vec_env(rules, num_envs=num_envs, seed=seed, **kwargs)
    return adapters.vectorize(ParallelShell(rules), num_envs, seed=seed, **kwargs)


def legal(masks: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A random legal action per column: int64 [C]."""
    return np.array([rng.choice(np.flatnonzero(mask)) for mask in masks])


def value_of_a_steady_reward(vec_env: Any, gamma: float = 0.9) -> float:
    """The value at which PPO's own returns agree with a critic that gives all states one value.

    The returns of such a critic, averaged over a rollout, are a + b * value. Two rollouts give a
    and b, and so the fixed point a / (1 - b), to which fitting converges; a third one checks it.
    """
    import torch
    from stable_baselines3 import PPO

    model = PPO(
        "MultiInputPolicy",
        vec_env,
        n_steps=40,  # whole episodes of 4
        batch_size=40,
        gamma=gamma,
        gae_lambda=0.95,
        policy_kwargs={"net_arch": [2]},
        device="cpu",
    )
    _, callback = model._setup_learn(total_timesteps=1, callback=None)

    # The policy plays the one action that is always legal, so that masks have no part in this.
    with torch.no_grad():
        for layer in (model.policy.action_net, model.policy.value_net):
            layer.weight.zero_()
        model.policy.action_net.bias[:] = torch.tensor([0.0, -torch.inf, -torch.inf])

    def mean_return(value: float) -> float:
        with torch.no_grad():
            model.policy.value_net.bias.fill_(value)
        model.collect_rollouts(vec_env, callback, model.rollout_buffer, n_rollout_steps=40)
        return float(model.rollout_buffer.returns.mean(dtype=np.float64))

    offset = mean_return(0.0)
    value = offset / (1 - (mean_return(1.0) - offset))
    assert abs(mean_return(value) - value) < 1e-4
    return value
