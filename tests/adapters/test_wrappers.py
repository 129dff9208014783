"""Agents that differ are padded to one shape, and stay in place until all have ended."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

from corral import adapters
from corral.adapters.wrappers import homogenize
from corral.envs import dfaas_v0
from corral.envs.shells import ParallelShell
from corral.errors import IllegalActionError, ResetNeededError, UnsupportedSpaceError
from support.loads import small_trace
from support.messages import refused
from support.turn_rules import MortalRules


def mortal(**kwargs: Any) -> ParallelShell:
    return ParallelShell(MortalRules((2, 5, 1), illegal="raise", **kwargs))


class Unlike(ParallelEnv[str, Any, int]):
    """A ParallelEnv without masks whose agents see different things, given as spaces."""

    def __init__(self, seen: list[Any], lives: tuple[int, int], cut: bool = False) -> None:
        self.metadata = {"name": "unlike_v0"}
        self.possible_agents = ["a", "b"]
        self.lives, self.cut = dict(zip("ab", lives, strict=True)), cut
        self.seen = dict(zip("ab", seen, strict=True))

    def observation_space(self, agent: str) -> Any:
        return self.seen[agent]

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete({"a": 2, "b": 3}[agent])

    def reset(self, seed: Any = None, options: Any = None) -> Any:
        self.agents, self.t = ["a", "b"], 0
        return {a: self.seen[a].high for a in self.agents}, {a: {} for a in self.agents}

    def step(self, actions: dict[str, int]) -> Any:
        assert list(actions) == self.agents
        self.t += 1
        live = self.agents
        over = {a: self.t >= self.lives[a] for a in live}
        never = dict.fromkeys(live, False)
        self.agents = [a for a in live if not over[a]]
        seen = {a: self.seen[a].high for a in live}
        ends = (never, over) if self.cut else (over, never)
        return seen, dict.fromkeys(live, 1.0), *ends, {a: {"t": self.t} for a in live}


def test_it_plays_what_the_environment_plays_and_fills_in_the_rest() -> None:
    env, plain_env = homogenize(mortal()), mortal()
    assert [env.action_space(agent).n for agent in env.possible_agents] == [5, 5, 5]
    assert env.observation_space("agent_0")["action_mask"].shape == (5,)
    rng = np.random.default_rng(0)
    rests = cuts = 0
    for episode in range(30):
        seed = episode if episode % 3 == 0 else None
        seen, _ = env.reset(seed=seed)
        inner, _ = plain_env.reset(seed=seed)
        while env.agents:
            assert env.agents == env.possible_agents
            live = plain_env.agents
            for agent in env.agents:
                assert env.observation_space(agent).contains(seen[agent])
                mask = seen[agent]["action_mask"]
                if agent in live:
                    size = len(inner[agent]["action_mask"])
                    assert mask[:size].tolist() == inner[agent]["action_mask"].tolist()
                    assert not mask[size:].any()
                else:
                    rests += 1
                    assert mask.tolist() == [1, 0, 0, 0, 0]
                    assert not seen[agent]["observation"].any()
            actions = {a: int(rng.choice(np.flatnonzero(seen[a]["action_mask"]))) for a in seen}
            seen, rewards, terminated, truncated, infos = env.step(actions)
            inner, paid, ended, _, said = plain_env.step({a: actions[a] for a in live})
            assert rewards == {a: paid.get(a, 0.0) for a in env.possible_agents}
            assert {a: infos[a] for a in live} == said
            assert all(infos[a] == {"t": 0, "illegal_actions": 0} for a in infos if a not in live)
            over = not plain_env.agents
            assert list(terminated.values()) == [over] * 3
            assert not any(truncated.values())
            assert all(ended.values()) == over or not over
            cuts += over
        with refused(ResetNeededError, "mortal_v0", "over", "reset()"):
            env.step(dict.fromkeys(env.possible_agents, 0))
    assert rests > 30
    assert cuts == 30


def test_the_time_limit_cuts_who_is_alive() -> None:
    env = homogenize(mortal(lives=(2, 9, 4), max_cycles=4))
    seen, _ = env.reset(seed=0)
    for t in range(4):
        actions = {a: int(np.argmax(seen[a]["action_mask"])) for a in seen}
        seen, _, terminated, truncated, _ = env.step(actions)
        assert list(terminated.values()) == ([True, False, True] if t == 3 else [False] * 3)
        assert list(truncated.values()) == [False, t == 3, False]
    assert not seen["agent_0"]["observation"].any()
    assert seen["agent_1"]["observation"].tolist() == [4.0, 9.0]  # what bootstrapping is from


def test_illegal_actions_do_not_reach_the_environment() -> None:
    env = homogenize(mortal(lives=(1, 3, 3)))
    seen, _ = env.reset(seed=0)
    first = {a: int(np.argmax(seen[a]["action_mask"])) for a in seen}
    with refused(IllegalActionError, "agent_0", "action 2", "0..1", "action_mask"):
        env.step({**first, "agent_0": 2})
    seen, *_ = env.step(first)  # nothing had changed
    second = {a: int(np.argmax(seen[a]["action_mask"])) for a in seen}
    with refused(IllegalActionError, "agent_0", "action 1", "0..0", "action_mask"):
        env.step({**second, "agent_0": 1})
    masked = np.flatnonzero(seen["agent_1"]["action_mask"][:5] == 0)
    with pytest.raises(IllegalActionError, match="agent_1"):  # the environment's own judgement
        env.step({**second, "agent_1": int(masked[0])})


def test_observations_are_padded_and_masks_added() -> None:
    seen = [spaces.Box(1, 3, (2, 1), np.uint8), spaces.Box(-2, 0.5, (1, 3), np.float32)]
    env = homogenize(Unlike(seen, (1, 2)))
    space = env.observation_space("a")["observation"]
    assert (space.shape, space.dtype) == ((2, 3), np.float32)
    assert space.low.tolist() == [[-2, -2, -2], [0, 0, 0]]
    assert space.high.tolist() == [[3, 0.5, 0.5], [3, 0, 0]]
    shown, _ = env.reset()
    assert shown["a"]["observation"].tolist() == [[3, 0, 0], [3, 0, 0]]
    assert shown["b"]["observation"].tolist() == [[0.5, 0.5, 0.5], [0, 0, 0]]
    assert shown["a"]["action_mask"].tolist() == [1, 1, 0]
    shown, *_ = env.step({"a": 1, "b": 2})
    assert shown["a"]["observation"].tolist() == [[0, 0, 0]] * 2
    assert shown["a"]["action_mask"].tolist() == [1, 0, 0]


def test_what_cannot_be_padded_is_refused() -> None:
    box = spaces.Box(0, 1, (2,), np.float32)
    for other in (spaces.Box(0, 1, (2, 2), np.float32), spaces.Discrete(3), spaces.Dict(x=box)):
        with refused(UnsupportedSpaceError, "unlike_v0", box, other):
            homogenize(Unlike([box, other], (1, 1)))
    with refused(UnsupportedSpaceError, "dfaas_v0", "ParallelEnv", "parallel_env()"):
        homogenize(dfaas_v0.env(trace=small_trace()))
    env = homogenize(Unlike([box, box], (1, 2), cut=True))
    env.reset()
    with refused(UnsupportedSpaceError, "unlike_v0", "time", "cut"):
        env.step({"a": 0, "b": 0})


def test_it_is_a_parallel_env_that_pickles() -> None:
    env = homogenize(dfaas_v0.parallel_env(trace=small_trace(), max_cycles=5))
    env.reset(seed=0)
    assert pickle.loads(pickle.dumps(env)).agents == env.agents
    assert env.state().shape == env.unwrapped.state_space.shape
    assert env.render_mode is None
    env.close()


# PettingZoo's test samples without the mask, of which the environment rightly warns; and importing
# it imports environments by a way that it deprecates itself.
@pytest.mark.filterwarnings(
    "ignore::corral.errors.IllegalActionWarning", "ignore::DeprecationWarning"
)
def test_pettingzoo_finds_nothing_amiss() -> None:
    from pettingzoo.test import parallel_api_test

    parallel_api_test(homogenize(dfaas_v0.parallel_env(trace=small_trace(), max_cycles=5)), 50)


def test_masked_learners_play_it_through_supersuit() -> None:
    """Three agents with 2, 5 and 1 actions that die one after the other, illegal="raise"."""
    pytest.importorskip("supersuit", reason="needs the extra supersuit")
    learner = pytest.importorskip("sb3_contrib", reason="needs the extra sb3").MaskablePPO
    from corral.adapters import vectorize

    vec_env = vectorize(homogenize(mortal()), 4, seed=0)
    model = learner(
        "MultiInputPolicy",
        vec_env,
        n_steps=16,
        batch_size=64,
        n_epochs=2,
        seed=0,
        policy_kwargs={"net_arch": [8]},
        device="cpu",
    ).learn(400)
    seen = vec_env.reset()
    returns = []
    for _ in range(60):
        actions, _ = model.predict(seen, action_masks=vec_env.action_masks())
        seen, _, dones, infos = vec_env.step(actions)
        returns += [infos[c]["episode"]["r"] / 10 ** (c % 3) for c in np.flatnonzero(dones)]
    assert set(returns) == {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}  # steps that an agent lived


@pytest.mark.parametrize(
    "before",
    [
        "",
        "import corral.adapters.wrappers",
        "from corral.adapters import wrappers, gymnasium, zoo_rules, SeatEnv",
    ],
)
def test_functions_have_their_names_in_every_order_of_imports(before: str) -> None:
    imports = "from corral.adapters import homogenize, mask_in_info, make_batch"
    tell = "print(*map(callable, (homogenize, mask_in_info, make_batch)))"
    again = "import corral.adapters.wrappers; print(corral.adapters.homogenize is homogenize)"
    code = "\n".join([before, imports, tell, again])
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True"] * 4


def test_no_module_hides_a_function_of_the_same_name() -> None:
    folder = Path(adapters.__file__).parent
    modules = {path.stem for path in folder.iterdir()}
    assert "wrappers" in modules
    assert not modules & set(adapters.__all__)
