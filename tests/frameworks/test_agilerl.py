"""AgileRL on environments that raise at an illegal action."""

from __future__ import annotations

import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest

pytest.importorskip("agilerl", reason="needs the extra agilerl")

import torch
from pettingzoo.utils import BaseParallelWrapper

from corral.adapters import mask_in_info
from corral.envs import dfaas_v0, probes, tictactoe_v0
from corral.errors import ActionError, IllegalActionError
from support.frameworks import example, judge
from support.messages import refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it deprecates parts of itself that it imports
    from agilerl.algorithms import IPPO, PPO
    from agilerl.networks.distributions import EvolvableDistribution
    from agilerl.rollouts.on_policy import collect_rollouts
    from agilerl.training.train_multi_agent_on_policy import train_multi_agent_on_policy
    from agilerl.typing import coerce_action_mask
    from agilerl.vector import PzDummyVecEnv

pytestmark = pytest.mark.filterwarnings("default")


class MaskInInfo(gymnasium.Wrapper):  # type: ignore[type-arg]
    """A seat whose observation is the features alone; the mask is in its info.

    Features of more than one axis are made flat: AgileRL takes a board of 3 x 3 x 2 for an image,
    and fails at its own convolutions.
    """

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        parts = {k: v for k, v in env.observation_space.spaces.items() if k != "action_mask"}
        only = parts.get("observation")
        self.observation_space = (
            gymnasium.spaces.Dict(parts)
            if only is None
            else gymnasium.spaces.Box(only.low.ravel(), only.high.ravel())
        )

    def reset(self, **kwargs: Any) -> Any:
        seen, info = self.env.reset(**kwargs)
        return self.shown(seen), {**info, "action_mask": seen["action_mask"]}

    def step(self, action: Any) -> Any:
        seen, *rest, info = self.env.step(int(action))
        return self.shown(seen), *rest, {**info, "action_mask": seen["action_mask"]}

    def shown(self, seen: Any) -> Any:
        if "observation" in seen:
            return seen["observation"].ravel()
        return {k: v for k, v in seen.items() if k != "action_mask"}


class ListedMasks(BaseParallelWrapper):  # type: ignore[misc]  # PettingZoo ships no types
    """Masks in infos as lists of plain numbers, the one form that IPPO takes.

    With ``next_masks`` the last infos of an episode hold the masks of the next one's first
    observations: AgileRL resets by itself, shows the new observations, and drops the infos that
    came with them.
    """

    def __init__(self, env: Any, next_masks: bool = True) -> None:
        super().__init__(env)
        self.next_masks = next_masks
        self.begun: Any = None  # what the next reset returns

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        begun, self.begun = self.begun, None
        if begun is not None and seed is None:
            return begun
        seen, infos = self.env.reset(seed=seed, options=options)
        return seen, self.listed(infos)

    def step(self, actions: Any) -> Any:
        *rest, infos = self.env.step(actions)
        if self.next_masks and not self.env.agents:
            self.begun = self.reset()
            infos = {
                a: {**infos[a], "action_mask": i["action_mask"]} for a, i in self.begun[1].items()
            }
            return *rest, infos
        return *rest, self.listed(infos)

    def listed(self, infos: Any) -> Any:
        return {a: {**i, "action_mask": i["action_mask"].tolist()} for a, i in infos.items()}


def masks_applied(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A list that grows by one with each mask that a policy is given."""
    applied: list[Any] = []
    inner = EvolvableDistribution.apply_mask

    def apply_mask(self: Any, logits: Any, mask: Any) -> Any:
        applied.append(mask)
        return inner(self, logits, mask)

    monkeypatch.setattr(EvolvableDistribution, "apply_mask", apply_mask)
    return applied


def ippo(env: Any, **kwargs: Any) -> IPPO:
    agents = env.possible_agents
    return IPPO(
        [env.observation_space(agent) for agent in agents],
        [env.action_space(agent) for agent in agents],
        agent_ids=agents,
        learn_step=64,
        batch_size=32,
        update_epochs=1,
        **kwargs,
    )


def dfaas() -> Any:
    return dfaas_v0.parallel_env(trace="edge3", rows=(0, 2822), max_cycles=48, illegal="raise")


def train(env: Any, name: str, steps: int, model: IPPO | None = None) -> None:
    """AgileRL's own loop, over one copy."""
    torch.manual_seed(0)
    model = ippo(env) if model is None else model
    train_multi_agent_on_policy(
        PzDummyVecEnv(env),
        name,
        "IPPO",
        [model],
        max_steps=steps,
        evo_steps=steps,
        eval_steps=1,
        verbose=False,
    )


def test_parallel_it_beats_random_play_on_days_it_has_not_seen() -> None:
    verdict = judge(example("agilerl").learn, steps=10_000, seed=0)
    assert verdict.beats_random, verdict


@pytest.mark.parametrize("seat", ["corral/tictactoe-v0", "corral/tiles-v0"])
def test_turn_based_and_images_one_seat_at_a_time(
    seat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """tiles_v0: a Dict of image and vector. PPO applies the mask in its update too."""
    import corral.adapters  # noqa: F401  # registers the seats

    applied = masks_applied(monkeypatch)
    torch.manual_seed(0)
    envs = gymnasium.vector.SyncVectorEnv(
        [lambda: MaskInInfo(gymnasium.make(seat, illegal="raise"))] * 2,
        autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP,
    )
    model = PPO(
        envs.single_observation_space,
        envs.single_action_space,
        num_envs=2,
        learn_step=100,
        batch_size=50,
        update_epochs=1,
    )
    scores = []
    for _ in range(2):
        scores += collect_rollouts(model, envs)[0]
        rolled_out = len(applied)
        model.learn()
        assert len(applied) > rolled_out
    assert len(scores) > 2
    assert any(not np.asarray(mask).astype(bool).all() for mask in applied)


def test_ippo_keeps_to_masks_in_infos_but_forgets_them_in_its_update(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The probability ratio compares an unmasked policy with the masked one that played."""
    applied = masks_applied(monkeypatch)
    torch.manual_seed(0)
    env = ListedMasks(mask_in_info(dfaas()))
    model = ippo(env)
    in_update: list[int] = []
    learn = model.learn

    def counted(experiences: Any) -> Any:
        before = len(applied)
        losses = learn(experiences)
        in_update.append(len(applied) - before)
        return losses

    monkeypatch.setattr(model, "learn", counted)
    train(env, "dfaas_v0", steps=128, model=model)
    assert len(applied) >= 128
    assert in_update
    assert set(in_update) == {0}


def test_ippo_fails_at_masks_that_are_arrays() -> None:
    env = mask_in_info(dfaas())
    observations, infos = env.reset(seed=0)
    batched = {agent: seen[None] for agent, seen in observations.items()}
    with pytest.raises(ValueError, match="array"):
        ippo(env).get_action(batched, infos)


def test_masks_of_numpy_numbers_are_lost_without_a_word() -> None:
    assert coerce_action_mask([1, 0]) == [1, 0]
    assert coerce_action_mask(list(np.array([1, 0], dtype=np.int8))) is None


def test_masks_in_observations_are_refused() -> None:
    env = dfaas()
    observations, infos = env.reset(seed=0)
    batched = {
        agent: {key: part[None] for key, part in seen.items()}
        for agent, seen in observations.items()
    }
    with pytest.raises(AssertionError, match="masks"):
        ippo(env).get_action(batched, infos)


def test_ippo_is_given_the_masks_of_the_episode_before() -> None:
    """The first step of the second episode is played by the last masks of the first."""
    env = ListedMasks(mask_in_info(dfaas()), next_masks=False)
    with pytest.raises(IllegalActionError):
        train(env, "dfaas_v0", steps=480)


def test_its_vector_env_does_not_know_turns() -> None:
    with pytest.raises((AttributeError, TypeError, ValueError)):
        PzDummyVecEnv(mask_in_info(tictactoe_v0.env(illegal="raise"))).reset()


def test_ippo_plays_on_for_agents_that_have_ended() -> None:
    env = ListedMasks(mask_in_info(probes.parallel_env("probe_p10_v0", illegal="raise")))
    with refused(ActionError, "'agent_0'"):
        train(env, "probe_p10_v0", steps=64)
