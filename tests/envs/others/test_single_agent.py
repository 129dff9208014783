"""Gymnasium's environments as PettingZoo environments of one agent."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit

import corral
from corral.adapters import from_gymnasium, make_batch
from corral.adapters.sources import resolve, rules_of
from corral.envs import check_env
from corral.envs.registry import NamedEnv
from corral.errors import EnvironmentFault, UnknownNameError
from support.messages import refused


class Line(gymnasium.Env[Any, Any]):
    """Counts to ``end``; the action must be the count modulo 3, as its mask says."""

    observation_space = spaces.Dict({"count": spaces.Discrete(50), "none": spaces.MultiBinary(1)})
    action_space = spaces.Discrete(3)

    def __init__(self, config: Any = None, end: int = 20) -> None:
        self.end = (config or {}).get("end", end)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.count = 0
        return self._seen(), {}

    def _seen(self) -> Any:
        return {"count": self.count, "none": np.zeros(1, np.int8)}

    def action_masks(self) -> Any:
        return np.arange(3) == self.count % 3

    def step(self, action: Any) -> Any:
        assert action == self.count % 3
        self.count += 1
        return self._seen(), 1.0, self.count == self.end, False, {}


def _episode(env: Any, **kwargs: Any) -> Any:
    batch = make_batch(env, num_envs=1, seed=0, **kwargs)
    batch.reset()
    while True:
        step = batch.step(batch.sample_actions(np.random.default_rng(0)))
        if step.finished is not None:
            return step


def test_an_id_is_an_environment_of_one_agent() -> None:
    for text in ("CartPole-v1", "gymnasium:CartPole-v1"):
        source = resolve(text)
        assert (source.name, source.text) == ("CartPole-v1", text)
        assert source.rules is not None
        assert source.rules.agents == ("agent_0",)
    env = corral.make("CartPole-v1", render_mode="rgb_array", sutton_barto_reward=True)
    assert env.possible_agents == ["agent_0"]
    assert env.render_mode == "rgb_array"
    assert env.env.unwrapped._sutton_barto_reward
    found = check_env(NamedEnv("CartPole-v1"), processes=False, seeds=(0, 1))
    assert not found.errors, found.text()


def test_a_time_limit_cuts_an_episode_and_does_not_end_it() -> None:
    step = _episode(lambda: TimeLimit(Line(), 4))
    assert step.truncated.all()
    assert not step.terminated.any()
    assert step.finished.lengths.tolist() == [4]
    assert _episode(Line, max_cycles=5).truncated.all()
    assert _episode(Line, end=6).terminated.all()


def test_classes_functions_and_configs() -> None:
    assert _episode(Line).finished.lengths.tolist() == [20]  # by its masks, else it would raise
    assert resolve(Line).name == resolve(Line()).name == resolve(lambda: Line()).name == "Line"
    assert _episode(Line, config={"end": 3}).finished.lengths.tolist() == [3]
    assert from_gymnasium(Line, end=7).env.end == 7

    class Configured(Line):
        def __init__(self, env_config: Any) -> None:
            super().__init__(end=env_config["end"])

    assert from_gymnasium(Configured, end=8).env.end == 8
    assert rules_of(Configured, {"end": 8}).name == "Configured"


def test_continuous_actions_come_as_they_are() -> None:
    rules = rules_of("Pendulum-v1")
    assert rules.action_space("agent_0") == spaces.Box(-2.0, 2.0, (1,))


class Old:
    """Of the old gym."""

    def reset(self) -> Any: ...

    def step(self, action: Any) -> Any: ...


Old.__module__ = "gym.core"


@pytest.mark.parametrize(
    ("call", "error", "values"),
    [
        (lambda: resolve("Cartpole-v1"), UnknownNameError, ("'Cartpole-v1'", "'CartPole-v1'")),
        (lambda: from_gymnasium("NoSuchThing-v1"), UnknownNameError, ("'NoSuchThing-v1'",)),
        (lambda: from_gymnasium(3), TypeError, ("int", "gymnasium.Env", 3)),
        (
            lambda: resolve(Line, {"agents": ["a"]}),
            TypeError,
            ("Line", "'agents'"),
        ),
        (
            lambda: resolve(type("Mine", (Old,), {})()),
            EnvironmentFault,
            ("Mine", "import gymnasium as gym"),
        ),
        (
            lambda: resolve("CartPole-v1", {"foo": 1}),
            ValueError,
            ("CartPole-v1", "'foo'"),
        ),
    ],
)
def test_mistakes_are_named(call: Any, error: Any, values: tuple[str, ...]) -> None:
    with refused(error, *values):
        call()


def test_answers_of_the_old_form_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class Four(Line):
        def step(self, action: Any) -> Any:
            return super().step(action)[:4]

    with refused(
        EnvironmentFault,
        "Four",
        "step()",
        "4 values",
        "observation, reward, terminated, truncated, info",
    ):
        _episode(Four)
    monkeypatch.setattr("corral.envs.others.single_agent.ENDLESS", 5)
    with refused(EnvironmentFault, "Line", "5 steps", "max_cycles="):
        _episode(Line)
