"""Words and forms of other libraries: each works, or the error names the form to type."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.adapters import MultiAgentEnv
from corral.errors import ListenerError
from corral.trainers.callbacks.stopping import StopWhen, bounds_of
from support.command import within
from support.messages import refused, shown

SMALL: dict[str, Any] = {"num_envs": 2, "n_steps": 16, "n_epochs": 1, "progress": False}


# --- Resuming ------------------------------------------------------------------------------------


def test_resuming_with_another_setting_names_the_call(tmp_path: Path) -> None:
    run = corral.train("two_step_v0", steps=64, out=tmp_path / "run", **SMALL)
    call = f"corral.train('two_step_v0', init={str(run.folder)!r}, learning_rate="
    with refused(TypeError, "learning_rate", call):
        corral.resume(run.folder, steps=128, learning_rate=1e-4)
    with refused(TypeError, call):  # named as in other libraries
        corral.resume(run.folder, lr=1e-4)
    for name, value in {"total_timesteps": "'steps'", "n_foo_bar": "'n_foo_bar'"}.items():
        with refused(TypeError, value) as caught:
            corral.resume(run.folder, **{name: 128})
        assert "corral.train(" not in str(caught.value)
    words = ("train", "--resume", run.folder, "--learning-rate", "1e-4")
    printed = within(*words, code=2)
    shown(printed, f"--init {run.folder} --learning-rate")
    new = corral.train("two_step_v0", steps=64, init=run.folder, learning_rate=1e-4, dry_run=True)
    assert new.config.settings["learning_rate"] == 1e-4


# --- RLlib ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mapping",
    [
        lambda agent: f"of_{agent}",
        lambda agent, episode: f"of_{agent}",
        lambda agent, episode, **kwargs: f"of_{agent}",
        lambda agent, *args, **kwargs: f"of_{agent}",
        lambda agent, episode=None: f"of_{agent}",
    ],
)
def test_a_mapping_function_may_take_the_episode(mapping: Callable[..., str]) -> None:
    run = corral.train("two_step_v0", steps=64, policies=mapping, dry_run=True, **SMALL)
    assert run.config.policies == {"agent_0": "of_agent_0", "agent_1": "of_agent_1"}


def test_an_error_of_a_mapping_function_is_its_own() -> None:
    def mapping(agent: str, episode: Any) -> str:
        raise ValueError(f"{agent}: no policy")

    with refused(ValueError, "agent_0"):
        corral.train("two_step_v0", steps=64, policies=mapping, dry_run=True, **SMALL)


@pytest.mark.parametrize(
    ("given", "bounds"),
    [
        ("return_team>=15", ["return_team>=15"]),
        (["return_team>=15", "wall_s>=60"], ["return_team>=15", "wall_s>=60"]),
        ({"training_iteration": 5}, ["training_iteration>=5"]),
        ('{"training_iteration": 5}', ["training_iteration>=5"]),
        (['{"timesteps_total": 100}', "wall_s>=60"], ["timesteps_total>=100", "wall_s>=60"]),
    ],
)
def test_stop_takes_the_forms_of_rllib(given: Any, bounds: list[str]) -> None:
    assert bounds_of(given) == bounds


def test_stop_takes_no_other_form() -> None:
    with refused(ListenerError, "stop=[5]"):
        bounds_of([5])  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("training_iteration", "updates"),
        ("num_env_steps_sampled_lifetime", "env_steps"),
        ("env_runners/episode_return_mean", "return_team"),
        ("episode_reward_mean", "return_team"),
        ("time_total_s", "wall_s"),
        ("return_team", "return_team"),
        ("loss/x", "loss/x"),
    ],
)
def test_stop_takes_the_names_of_rllib(name: str, column: str) -> None:
    assert StopWhen(f"{name}>=15").column == column


def test_training_stops_at_a_bound_of_rllib(tmp_path: Path) -> None:
    stop = {"training_iteration": 2}
    run = corral.train("two_step_v0", steps=320, stop=stop, out=tmp_path / "run", **SMALL)
    assert len(run.progress) == 2
    assert "updates>=2" in (run.stopped or "")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"policy_mapping_fn": None}, ("'policies'",)),
        ({"soft_horizon": True}, ("max_cycles", "--learnable")),
        ({"max_episode_steps": 10}, ("env_kwargs={'max_cycles': 10}",)),
        ({"lr_schedule": [[0, 1e-3]]}, ("learning_rate", "linear:1e-3")),
    ],
)
def test_names_lead_to_the_form(given: dict[str, Any], named: tuple[str, ...]) -> None:
    with refused(TypeError, next(iter(given)), *named):
        corral.train("two_step_v0", steps=64, dry_run=True, **given)


def test_points_of_a_learning_rate_lead_to_the_form() -> None:
    with refused(ValueError, "0:0.001,2000:0.0001"):
        corral.train("two_step_v0", learning_rate=[[0, 1e-3], [2000, 1e-4]], dry_run=True)


def test_a_short_horizon_is_probably_meant_as_the_length_of_an_episode(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corral.train("two_step_v0", steps=64, horizon=4, out=tmp_path / "a", **SMALL)
    shown(capsys.readouterr().err, "max_cycles", "--learnable")
    corral.train("two_step_v0", steps=64, horizon=32, out=tmp_path / "b", **SMALL)
    assert "max_cycles" not in capsys.readouterr().err


class Counted(MultiAgentEnv):
    def __init__(self, config: Any = None) -> None:
        super().__init__()
        self.agents = self.possible_agents = ["a", "b"]
        self.num_agents = 2


class OfTheClass(MultiAgentEnv):
    num_agents = 3  # type: ignore[assignment]


def test_a_multi_agent_env_may_set_its_number_of_agents() -> None:
    assert Counted().num_agents == 2
    assert OfTheClass().num_agents == 3
    assert MultiAgentEnv().num_agents == 0


# --- A team that is no run -----------------------------------------------------------------------


def test_a_team_is_evaluated_without_a_run(tmp_path: Path) -> None:
    def lowest(observation: Any) -> Any:
        return 0

    team = {"agent_0": lowest, "agent_1": lowest}
    result = corral.evaluate(team, "two_step_v0", episodes=4, require="return_team>=7")
    assert [row.policy for row in result] == ["team", "random"]
    assert (result[0].return_team, result.holds) == (7.0, True)
    assert not any(tmp_path.iterdir())
    random = dict.fromkeys(team, "random")
    named = corral.evaluate(random, "two_step_v0", episodes=4, out=tmp_path)
    assert named[0].return_team == named[1].return_team
    assert (tmp_path / "results.json").is_file()


def test_a_team_of_a_zero_sum_game_is_evaluated_seat_by_seat() -> None:
    team = {"player_1": "random", "player_2": "perfect"}
    rows = [
        row for row in corral.evaluate(team, "tictactoe_v0", episodes=4) if row.policy == "team"
    ]
    assert {row.seat for row in rows} == {"player_1", "player_2"}
    assert all(row.lost == 0 for row in rows if row.seat == "player_2")


def test_a_team_needs_an_environment_and_no_arguments_of_runs() -> None:
    team = {"agent_0": "random", "agent_1": "random"}
    with refused(ValueError, "corral.evaluate({agent: policy}, env)"):
        corral.evaluate(team)
    with refused(ValueError, "trainer='mappo'"):
        corral.evaluate(team, "two_step_v0", trainer="mappo")
    with refused(ValueError, 1, 2):
        corral.evaluate({"agent_0": "random"}, "two_step_v0")
