"""TorchRL: masks, ended agents, seeds and rewards are PettingZoo's; every kind of game runs."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torchrl")

import torch
from torchrl.envs import PettingZooWrapper, SerialEnv
from torchrl.envs.utils import check_env_specs

import corral
from corral.adapters import make_batch
from corral.adapters.torchrl.batch import BatchEnv
from corral.adapters.torchrl.env import RandomLegal, torchrl_env
from corral.envs import dfaas_v0
from corral.envs.policy import RandomPolicy
from corral.errors import IllegalActionError, UnsupportedSpaceError
from corral.lab.doctor.examination import examination
from support.messages import refused

pytestmark = pytest.mark.filterwarnings("default")

EXAMPLES = Path(__file__).parents[2] / "docs" / "plug_it_in"
KINDS = {
    "dfaas_v0": {"trace": "edge3", "max_cycles": 20},  # parallel
    "arena_v0": {},  # parallel, two roles
    "tictactoe_v0": {},  # in turns
    "tiles_v0": {},  # in turns, unlike agents, images and vectors
    "probe_p10_v0": {},  # agents end early
    "probe_p11_v0": {},  # parallel, unlike agents of one name
    "probe_p12_v0": {},  # in turns, an agent ends before the other's last move
}
PARALLEL = [name for name in KINDS if corral.envs.registry.env_spec(name).simultaneous]


@pytest.mark.parametrize("name", KINDS)
def test_check_env_specs_passes(name: str) -> None:
    check_env_specs(torchrl_env(name, illegal="raise", seed=0, **KINDS[name]))


@pytest.mark.parametrize("name", KINDS)
def test_random_actions_are_legal_and_rewards_are_pettingzoos(name: str) -> None:
    torch.manual_seed(0)
    env = torchrl_env(name, illegal="raise", seed=5, **KINDS[name])
    rollout = env.rollout(200, break_when_any_done=False)
    assert rollout["next", "done"].sum() > 0 or name == "arena_v0"

    plain = corral.make(name, illegal="raise", **KINDS[name])
    plain.reset(seed=5)
    places = {a: (g, i) for g, members in env.group_map.items() for i, a in enumerate(members)}
    parallel = hasattr(plain, "parallel_env") or name in PARALLEL
    for now in rollout:
        actions = {a: int(now[g, "action"][i]) for a, (g, i) in places.items()}
        acts = {a for a, (g, i) in places.items() if now[g, "mask"][i]}
        if parallel:
            assert acts == set(plain.agents)
            _, rewards, terminated, truncated, _ = plain.step({a: actions[a] for a in plain.agents})
        else:
            assert acts == {plain.agent_selection}
            plain.step(actions[plain.agent_selection])
            rewards, terminated, truncated = (
                dict(given) for given in (plain.rewards, plain.terminations, plain.truncations)
            )
            while plain.agents and plain.agent_selection in _ended(plain):
                plain.step(None)
        for agent, (group, i) in places.items():
            then = now["next", group]
            assert then["reward"][i].item() == np.float32(rewards.get(agent, 0.0))
            if agent in terminated:
                assert then["terminated"][i].item() == terminated[agent]
                assert then["truncated"][i].item() == truncated[agent]
            else:
                assert then["done"][i].item()
        if not plain.agents:
            assert now["next", "done"].item()
            plain.reset()
        else:
            assert not now["next", "done"].item()


def _ended(env: Any) -> set[str]:
    return {a for a in env.agents if env.terminations[a] or env.truncations[a]}


def test_images_arrive_as_they_are() -> None:
    env = torchrl_env("tiles_v0", illegal="raise", seed=2)
    rollout = env.rollout(3)
    plain = corral.make("tiles_v0", illegal="raise")
    plain.reset(seed=2)
    for now in rollout:
        for agent in plain.possible_agents:
            image = now[agent, "observation", "observation", "image"][0]
            assert image.dtype == torch.uint8
            assert image.shape == (3, 32, 32)
            assert np.array_equal(image, plain.observe(agent)["observation"]["image"])
        plain.step(int(now[plain.agent_selection, "action"]))


def test_the_wrapper_alone_plays_for_agents_that_have_ended() -> None:
    """Why there is a bridge; where this fails, TorchRL has learned it."""
    alone = PettingZooWrapper(
        corral.make("probe_p10_v0", illegal="raise"), use_mask=True, done_on_any=False
    )
    with refused(corral.errors.ActionError, "agent_0"):
        alone.rollout(10, break_when_any_done=False)


@pytest.mark.parametrize("name", ["dfaas_v0", "tictactoe_v0", "probe_p10_v0"])
def test_random_legal_plays_many_copies(name: str) -> None:
    env = SerialEnv(2, lambda: torchrl_env(name, illegal="raise", **KINDS[name]))
    rollout = env.rollout(40, RandomLegal(env), break_when_any_done=False)
    assert rollout["next", "done"].sum() > 0


def test_random_actions_of_many_copies_lose_masks() -> None:
    """Why RandomLegal is there; where this fails, TorchRL has learned it."""
    env = SerialEnv(2, lambda: torchrl_env("dfaas_v0", illegal="raise", **KINDS["dfaas_v0"]))
    with pytest.raises(IllegalActionError):
        env.rollout(40, break_when_any_done=False)


# --- Many copies at once -------------------------------------------------------------------------


@pytest.mark.parametrize("name", PARALLEL)
def test_batch_env_plays_what_batch_plays(name: str) -> None:
    torch.manual_seed(0)
    settings = {"illegal": "raise", **KINDS[name]}
    check_env_specs(BatchEnv(name, num_envs=3, return_state=True, **settings))
    env = BatchEnv(name, num_envs=3, seed=4, return_state=True, **settings)
    rollout = env.rollout(60, break_when_any_done=False)
    batch = make_batch(name, 3, 4, **settings)
    seen = batch.reset()
    for t in range(60):
        now, actions = rollout[:, t], np.zeros((3, len(batch.agents)), dtype=np.int64)
        assert np.array_equal(now["state"], batch.global_state())
        for group, members in env.group_map.items():
            for i, agent in enumerate(members):
                column = batch.agents.index(agent)
                acts = batch.acting[:, column]
                shown = now[group, "observation", "observation"][:, i]
                assert np.array_equal(shown, seen[agent]["observation"])
                assert np.array_equal(now[group, "mask"][:, i], acts)
                legal = now[group, "action_mask"][:, i][torch.as_tensor(acts)]
                assert np.array_equal(legal, seen[agent]["action_mask"][acts] != 0)
                actions[:, column] = now[group, "action"][:, i]
        step = batch.step(actions)
        seen = step.observations
        assert np.array_equal(now["next", "done"][:, 0], step.over)
        last = None if step.finished is None else step.finished
        for group, members in env.group_map.items():
            for i, agent in enumerate(members):
                then = now["next", group]
                reward = then["reward"][:, i, 0]
                assert np.array_equal(reward, step.reward[:, batch.agents.index(agent)])
                if last is not None:
                    shown = then["observation", "observation"][torch.as_tensor(last.rows), i]
                    assert np.array_equal(shown, last.observations[agent]["observation"])
        if last is not None:
            assert np.array_equal(
                now["next", "state"][torch.as_tensor(last.rows)], last.global_state
            )


def test_what_a_time_limit_cuts_keeps_its_mask() -> None:
    """Q-learning takes the best of the next actions, and there an episode goes on in thought."""
    env = BatchEnv("dfaas_v0", num_envs=3, seed=4, illegal="raise", **KINDS["dfaas_v0"])
    rollout = env.rollout(60, break_when_any_done=False)
    batch = make_batch("dfaas_v0", 3, 4, illegal="raise", **KINDS["dfaas_v0"])
    batch.reset()
    compared = 0
    for t in range(60):
        step = batch.step(rollout["node", "action"][:, t].numpy())
        if step.finished is not None:
            rows = torch.as_tensor(step.finished.rows)
            shown = rollout["next", "node", "action_mask"][rows, t]
            for i, agent in enumerate(batch.agents):
                legal = step.finished.observations[agent]["action_mask"] != 0
                assert np.array_equal(shown[:, i], legal)
                compared += int((~legal).sum())
    assert compared


def test_batch_env_refuses_games_in_turns() -> None:
    with pytest.raises(UnsupportedSpaceError, match="turn-based"):
        BatchEnv("tictactoe_v0", num_envs=2)


# --- Learning ------------------------------------------------------------------------------------


def test_training_beats_random() -> None:
    learn = runpy.run_path(str(EXAMPLES / "torchrl_example.py"))["learn"]
    rng, chance = np.random.default_rng(0), RandomPolicy()

    def play_randomly(observations: dict[str, Any]) -> dict[str, int]:
        return {a: int(chance.act(o, rng=rng).action) for a, o in observations.items()}

    random, learned = returns(play_randomly), returns(learn(19_200, seed=0))
    assert learned.mean() > random.mean() + 1.96 * random.std(ddof=1) / len(random) ** 0.5
    assert (learned > random).mean() > 0.7  # on the very same windows


def returns(play: Any) -> np.ndarray[Any, Any]:
    """The team's return in each of 20 held-out windows."""
    env = dfaas_v0.parallel_env(trace="edge3", rows=(2822, 4032), max_cycles=48, illegal="raise")
    totals = np.zeros(20)
    for seed in range(20):
        observations, _ = env.reset(seed=seed)
        while env.agents:
            observations, rewards, *_ = env.step(play(observations))
            totals[seed] += sum(rewards.values())
    return totals


@pytest.mark.timeout(600)
def test_its_learner_comes_out_at_the_answers_of_probes() -> None:
    found = examination(f"{EXAMPLES}/torchrl_learner.py:learn", ["P5", "P6", "P12"])
    assert [result.passed for result in found.results] == [True, True, None]
    assert found.results[-1].refused
