"""Third-party environments through the trainers' front door: train, evaluate, resume."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv
from pettingzoo.utils import BaseParallelWrapper
from pettingzoo.utils.conversions import parallel_to_aec

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.adapters import SeatEnv, zoo_rules
from corral.adapters.seats import random_policy
from corral.envs import dfaas_v0
from corral.envs.batch import batch_for
from corral.envs.others import single_agent
from corral.envs.policy import RandomPolicy
from corral.envs.registry import make_rules
from corral.errors import EnvironmentFault, UnsupportedSpaceError
from corral.trainers.evaluation import episodes
from corral.trainers.evaluation.scores import TeamScore, evaluate_players, evaluate_team
from corral.trainers.evaluation.tables import tables
from corral.trainers.runs.run import Run, load_run
from support.bits_env import BitsEnv, bits
from support.loads import small_trace
from support.zoo_envs import MixedEnv, RingEnv

SMALL: dict[str, Any] = {"num_envs": 4, "n_steps": 16, "net_arch": (16,), "n_epochs": 2}


def train_small(rules: Any, out: Path, updates: int = 3, **given: Any) -> Run:
    steps = updates * 4 * 16
    return corral.train(
        rules, trainer="mappo", policies="separate", steps=steps, out=out, **SMALL, **given
    )


@pytest.mark.parametrize("make_env", [MixedEnv, RingEnv])
def test_a_third_party_environment_is_trained_and_judged(tmp_path: Path, make_env: Any) -> None:
    run = train_small(zoo_rules(make_env), tmp_path / "run")
    assert run.progress["env_steps"].tolist() == [64, 128, 192]
    again = load_run(tmp_path / "run", zoo_rules(make_env))
    scores = corral.evaluate(again, episodes=6)
    assert scores.to_dataframe()["policy"].tolist() == [s.policy for s in scores]
    assert [(s.policy, s.episodes, s.illegal_actions) for s in scores] == [
        ("mappo, greedy", 6, 0),
        ("mappo, sampled", 6, 0),
        ("random", 6, 0),
    ]
    assert len({s.return_team for s in scores}) == 3
    rows = json.loads((tmp_path / "run" / "results.json").read_text())["rows"]
    assert [row["return_team"] for row in rows] == [s.return_team for s in scores]


def test_episodes_begin_anew_when_a_run_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = zoo_rules(RingEnv)
    run = train_small(rules, tmp_path / "run", updates=2)
    capsys.readouterr()
    corral.resume(run.folder, steps=4 * 64, env=rules)
    shown(capsys.readouterr().err, "episodes")
    assert run.progress["env_steps"].tolist() == [64, 128, 192, 256]


class Walk(gymnasium.Env):
    """Action 1 ends the episode; action 0 waits, forever."""

    observation_space = spaces.Discrete(2)
    action_space = spaces.Discrete(2)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, 1.0, bool(action), False, {}


def test_play_that_never_ends_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(single_agent, "ENDLESS", 40)
    monkeypatch.setattr(episodes, "LONG", 20)
    waits = {"agent_0": lambda observation: 0}
    with refused(EnvironmentFault, 40, "max_cycles"):
        corral.evaluate(waits, Walk, episodes=2)
    said = capsys.readouterr().err
    shown(said, 20, "max_cycles")
    assert said.count("\n") == 1
    ends = {"agent_0": lambda observation: 1}
    corral.evaluate(ends, Walk, episodes=60)
    assert capsys.readouterr().err == ""


class Timed(Walk):
    """Ends after 20 steps."""

    def reset(self, seed=None, options=None):
        self.t = 0
        return super().reset(seed=seed)

    def step(self, action):
        self.t += 1
        return 0, 1.0, False, self.t == 20, {}


@pytest.mark.parametrize(("steps", "lines"), [(20, 0), (19, 1)])
def test_play_of_long_episodes_says_so_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], steps: int, lines: int
) -> None:
    monkeypatch.setattr(episodes, "LONG", steps)
    # two rows, the team and random play, with 2 episodes per copy
    corral.evaluate({"agent_0": lambda observation: 0}, Timed, episodes=128)
    assert capsys.readouterr().err.count("\n") == lines


def test_other_arguments_than_those_of_training_are_refused_by_name(tmp_path: Path) -> None:
    run = corral.train(Walk, trainer="mappo", steps=64, out=tmp_path / "run", **SMALL)
    with refused(ValueError, "max_cycles=30", "trained"):
        corral.evaluate(run.folder, Walk, env_kwargs={"max_cycles": 30}, episodes=2)
    assert load_run(run.folder, Walk, env_kwargs={}).config.env_config.env == "Walk"


class Sized(Walk):
    def __init__(self, size: Any = (2, 3), n: int = 3) -> None:
        self.size, self.n = size, n


def make_sized(**arguments: Any) -> Sized:
    return Sized(**arguments)


def test_arguments_equal_to_those_of_training_may_be_passed_again(tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"size": (2, 4)}  # the run's file has a list
    small: dict[str, Any] = {"trainer": "mappo", "steps": 64, "env_kwargs": arguments, **SMALL}
    run = corral.train(Sized, out=tmp_path / "class", **small)
    for more in ({}, {"n": 3}, {"n": np.int64(3)}, {"max_cycles": None}):
        load_run(run.folder, Sized, env_kwargs=arguments | more)
    load_run(run.folder, f"{__name__}:Sized", env_kwargs={"size": [2, 4], "n": 3})
    for other in ({"size": (2, 5)}, {"n": 4}, {"n": np.int64(4)}, {"max_cycles": 30}):
        with refused(ValueError, *other, "trained"):
            load_run(run.folder, Sized, env_kwargs=arguments | other)
    corral.resume(run.folder, steps=128, env=Sized, env_kwargs=arguments)
    by_function = corral.train(make_sized, out=tmp_path / "function", **small)
    # the default of n is unknown
    load_run(by_function.folder, make_sized, env_kwargs=arguments | {"n": 3})
    with refused(ValueError, "size", "trained"):
        load_run(by_function.folder, make_sized, env_kwargs={"size": (2, 5)})


def test_a_run_object_goes_on_and_is_read_again_without_its_environment(tmp_path: Path) -> None:
    run = train_small(zoo_rules(MixedEnv), tmp_path / "run", updates=2)
    more = corral.resume(run, steps=3 * 4 * 16)
    assert more.progress["env_steps"].tolist() == [64, 128, 192]
    assert load_run(run).config.steps == 3 * 4 * 16  # as in the folder, not in the object


@pytest.mark.slow
def test_worker_processes_give_the_same_weights(tmp_path: Path) -> None:
    made = functools.partial(RingEnv)
    runs = [
        train_small(zoo_rules(made), tmp_path / str(workers), updates=2, workers=workers)
        for workers in (0, 2)
    ]
    one, other = (run.progress.drop(columns=[c for c in run.progress if "_s" in c]) for run in runs)
    kept = [c for c in one if not c.startswith("share")]
    assert one[kept].equals(other[kept])


def test_workers_are_refused_where_they_are_of_no_use(tmp_path: Path) -> None:
    with refused(ValueError, "workers=2", "two_step_v0"):
        corral.train("two_step_v0", trainer="mappo", out=tmp_path / "run", workers=2)


def test_the_trainers_over_sb3_say_that_they_cannot(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedSpaceError):
        corral.train(zoo_rules(MixedEnv), trainer="sb3_ppo", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("vec_env", ["batch", "supersuit"])
@pytest.mark.parametrize("trainer", ["sb3_ppo", "sb3_maskable_ppo"])
def test_the_trainers_over_sb3_play_like_agents(tmp_path: Path, trainer: str, vec_env: str) -> None:
    """The environment raises where a mask is lost."""
    pytest.importorskip("supersuit", reason="needs the extra sb3")
    rules = zoo_rules(functools.partial(BitsEnv, "observation"))
    settings: Any = {"num_envs": 4, "n_steps": 16, "batch_size": 32, "net_arch": (16,)}
    where = tmp_path / "run"
    run = corral.train(rules, trainer=trainer, steps=64, out=where, vec_env=vec_env, **settings)
    scores = corral.evaluate(run, episodes=4)
    assert [score.illegal_actions for score in scores] == [0, 0, 0]
    more = corral.resume(where, env=rules, steps=128)
    assert more.progress.env_steps.tolist() == [64, 128]


def test_random_play_is_within_every_space() -> None:
    rules = zoo_rules(MixedEnv)
    team = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    score = evaluate_team(rules, team, episodes=9, num_envs=4, seed=3)  # type: ignore[arg-type]
    again = evaluate_team(rules, team, episodes=9, num_envs=4, seed=3)  # type: ignore[arg-type]
    assert score == again
    added = evaluate_players(rules, {}, episodes=9, num_envs=4, seed=3)  # type: ignore[arg-type]
    assert isinstance(added[0], TeamScore)
    assert added[0].returns == score.returns


def test_a_batch_for_what_is_given() -> None:
    ours = batch_for(make_rules("two_step_v0"), 3, 0)
    assert type(ours).__name__ == "Batch"
    theirs = batch_for(zoo_rules(RingEnv, max_cycles=5), 3, 0)
    theirs.reset()
    lengths = []
    rng = np.random.default_rng(0)
    for _ in range(12):
        step = theirs.step(theirs.sample_actions(rng))
        if step.finished is not None:
            lengths += step.finished.lengths.tolist()
    assert lengths
    assert max(lengths) <= 5
    theirs.close()


# --- Judging them --------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [MixedEnv, RingEnv])
def test_scores_do_not_depend_on_the_number_of_workers(make: Any) -> None:
    rules: Any = zoo_rules(make)
    scores = [
        evaluate_players(rules, {}, episodes=11, num_envs=4, workers=workers) for workers in (0, 2)
    ]
    assert scores[0] == scores[1]


def test_environments_that_have_played_their_share_are_stepped_no_more() -> None:
    """Nor are they asked for their global state, which nobody reads here."""
    steps: list[int] = []

    class Unequal(BitsEnv):
        """Its episodes last 1 to 40 steps."""

        def step(self, actions: Any) -> Any:
            steps.append(1)
            if self.t == 0:
                self.last = int(self.rng.integers(1, 41))
            *answer, over, never, infos = super().step(actions)
            over = dict.fromkeys(over, self.t == self.last)
            self.agents = [] if self.t == self.last else list(self.possible_agents)
            return *answer, over, never, infos

        def state(self) -> Any:
            if self.t > 0:
                raise AssertionError("who asked?")
            return super().state()

    rules: Any = zoo_rules(functools.partial(Unequal, stateful=True))
    [score] = evaluate_players(rules, {}, episodes=10, num_envs=8)
    assert len(steps) == round(score.mean_length * 10)


def test_progress_is_told_episode_by_episode(tmp_path: Path) -> None:
    run = train_small(zoo_rules(BitsEnv), tmp_path / "run", updates=1)
    told: list[tuple[str, int, int]] = []
    corral.evaluate(run, episodes=7, progress=lambda *part: told.append(part))
    assert {what for what, _, _ in told} == {"mappo, greedy", "mappo, sampled", "random"}
    for label in ("mappo, greedy", "random"):
        done = [done for what, done, total in told if what == label]
        assert done[0] == 0
        assert done[-1] == 7
        assert done == sorted(done)
    assert {total for _, _, total in told} == {7}


def test_workers_judge_alike_and_are_refused_for_ours(tmp_path: Path) -> None:
    run = train_small(zoo_rules(BitsEnv), tmp_path / "run", updates=1)
    one, two = (corral.evaluate(run, episodes=7, workers=workers) for workers in (0, 2))
    assert one.rows == two.rows
    ours = corral.train("two_step_v0", trainer="mappo", steps=64, out=tmp_path / "own", **SMALL)
    with refused(ValueError, "workers=2", "two_step_v0"):
        corral.evaluate(ours, workers=2)


# --- Environments of ours, wrapped ---------------------------------------------------------------


class Doubled(BaseParallelWrapper):  # type: ignore[misc]  # PettingZoo ships no types
    """Pays twice as much."""

    def step(self, actions: Any) -> Any:
        shown, rewards, *rest = super().step(actions)
        return shown, {agent: 2 * reward for agent, reward in rewards.items()}, *rest


@pytest.mark.parametrize("turns", [False, True])
def test_a_wrapped_environment_of_ours_is_trained_and_judged(tmp_path: Path, turns: bool) -> None:
    """``illegal="raise"``: an action that the mask forbids would end it."""

    def make(wrap: Any = Doubled) -> Any:
        arguments: Any = {"trace": small_trace(), "max_cycles": 8, "queue": 3, "illegal": "raise"}
        env = wrap(dfaas_v0.parallel_env(**arguments))
        return parallel_to_aec(env) if turns else env

    run = train_small(zoo_rules(make), tmp_path / "run")
    assert run.config.env_config.env == "wrapped_dfaas_v0"
    scores = corral.evaluate(load_run(tmp_path / "run", zoo_rules(make)), episodes=6)
    assert [score.policy for score in scores] == ["mappo, greedy", "mappo, sampled", "random"]
    assert all(score.illegal_actions == 0 for score in scores)
    chance = {"random": dict.fromkeys(zoo_rules(make).agents, RandomPolicy())}
    twice, once = (
        evaluate_players(rules, chance, episodes=6)[0].return_team  # type: ignore[arg-type]
        for rules in (zoo_rules(make), zoo_rules(functools.partial(make, lambda env: env)))
    )
    assert twice == pytest.approx(2 * once)
    assert once != 0


@pytest.mark.parametrize("turns", [False, True])
def test_supersuit_around_a_third_partys_environment(tmp_path: Path, turns: bool) -> None:
    supersuit = pytest.importorskip("supersuit", reason="needs the extra sb3")
    rules = zoo_rules(lambda: supersuit.frame_stack_v1(bits(None, turns), 3))
    assert rules.observation_space("a")["observation"].shape == (12,)
    run = train_small(rules, tmp_path / "run")
    assert len(corral.evaluate(run, episodes=4)) == 3
    env = SeatEnv(rules, "b")
    assert env.reset(seed=0)[0]["observation"].shape == (12,)
    assert env.step(0)[0]["observation"].shape == (12,)


@pytest.mark.parametrize("turns", [False, True])
def test_masks_in_infos_are_kept_in_training_and_judging(tmp_path: Path, turns: bool) -> None:
    """The environment raises where a mask is lost."""
    run = train_small(zoo_rules(lambda: bits("info", turns)), tmp_path / "run")
    scores = corral.evaluate(run, episodes=5)
    assert [score.illegal_actions for score in scores] == [0, 0, 0]


# --- Zero-sum games ------------------------------------------------------------------------------


class ShareEnv(ParallelEnv[str, Any, int]):  # type: ignore[misc]  # PettingZoo ships no types
    """One round: all stake 1; that and ``pot`` go to the largest action, in shares to several."""

    metadata: ClassVar[dict[str, Any]] = {"name": "share_v0", "is_parallelizable": True}
    render_mode = None

    def __init__(self, agents: int = 2, pot: float = 0.0) -> None:
        self.possible_agents = [f"agent_{i}" for i in range(agents)]
        self.pot = pot

    def observation_space(self, agent: str) -> spaces.Box:
        return spaces.Box(0.0, 1.0, (1,), np.float32)

    def action_space(self, agent: str) -> spaces.Discrete:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents = list(self.possible_agents)
        return self._all(np.zeros(1, np.float32)), self._all({})

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, Any]:
        most = max(actions.values())
        winners = [agent for agent in actions if actions[agent] == most]
        pay = dict.fromkeys(actions, -1.0)
        for agent in winners:
            pay[agent] += (self.pot + len(actions)) / len(winners)
        shown = self._all(np.zeros(1, np.float32)), pay, self._all(True), self._all(False)
        infos = self._all({})
        self.agents = []
        return (*shown, infos)

    def _all(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, value)


def test_a_zero_sum_game_of_others_is_recognised_and_judged_seat_by_seat(tmp_path: Path) -> None:
    for pot in (0.0, 3.0):
        rules = zoo_rules(functools.partial(ShareEnv, pot=pot))
        run = train_small(rules, tmp_path / f"run{pot}", updates=1)
        scores: Any = corral.evaluate(run, episodes=30)
        assert {(s.seat, s.opponent) for s in scores} == {
            (agent, "random") for agent in ("agent_0", "agent_1")
        }
        assert [s.policy for s in scores[:3]] == ["mappo, greedy", "mappo, sampled", "random"]
        for score in scores:
            assert score.won + score.drawn + score.lost == pytest.approx(1)
            # Both stake 1: who has more gets all.
            by_hand = pot / 2 + (1 + pot / 2) * (score.won - score.lost)
            assert score.return_seat == pytest.approx(by_hand)
        said = scores.details["judged"]
        shown(said, f"{pot:g}", 270)
        kept = json.loads((run.folder / "results.json").read_text())
        assert kept["judged"] == said


def test_who_calls_may_say_whether_a_game_is_zero_sum(tmp_path: Path) -> None:
    rules = zoo_rules(ShareEnv)
    run = train_small(rules, tmp_path / "run", updates=1)
    as_team: Any = corral.evaluate(run, episodes=10, zero_sum=False)
    assert [score.return_team for score in as_team] == [0.0, 0.0, 0.0]
    assert "judged" not in as_team.details
    told: Any = corral.evaluate(run, episodes=10, zero_sum=True)
    assert {score.seat for score in told} == {"agent_0", "agent_1"}
    three = train_small(
        zoo_rules(functools.partial(ShareEnv, agents=3)), tmp_path / "three", updates=1
    )
    with refused(ValueError, "zero_sum=True", "share_v0", 3, 2):
        corral.evaluate(three, zero_sum=True)
    team = train_small(zoo_rules(RingEnv), tmp_path / "ring", updates=1)
    assert isinstance(corral.evaluate(team, episodes=4)[0], TeamScore)


def test_runs_are_each_others_opponents(tmp_path: Path) -> None:
    rules = zoo_rules(ShareEnv)
    one, two = (train_small(rules, tmp_path / name, updates=1) for name in ("one", "two"))
    scores: Any = corral.evaluate(one, beside=[two], episodes=10)
    assert {score.opponent for score in scores} == {"random", "one", "two"}
    greedy = {(s.seat, s.policy, s.opponent): s.return_seat for s in scores if s.mode == "greedy"}
    assert set(greedy) == {
        (seat, f"{name}, greedy", opponent)
        for seat in rules.agents
        for name in ("one", "two")
        for opponent in ("random", "one", "two")
    }


def test_a_constant_sum_of_many_makes_no_team(tmp_path: Path) -> None:
    rules = zoo_rules(functools.partial(ShareEnv, agents=3, pot=1.5))
    run = train_small(rules, tmp_path / "run", updates=1)
    scores = corral.evaluate(run, episodes=10)
    assert scores.details["constant_sum"] == 1.5
    parts = list(tables(scores, rules))
    (table,) = (part for part in parts if not isinstance(part, str))
    assert [str(column.header).strip() for column in table.columns] == [
        *("policy", "agent_0", "agent_1", "agent_2", "length")
    ]
    shown(parts[-1], 3, 1.5, 30)


def test_training_ends_without_a_team_return_where_there_is_no_team(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from corral.cli.commands.train import _summarize

    for pot in (0.0, 3.0):
        rules = zoo_rules(functools.partial(ShareEnv, pot=pot))
        _summarize(train_small(rules, tmp_path / f"run{pot}", updates=3))
        printed = capsys.readouterr().out
        assert "team" not in printed
        for agent in rules.agents:
            shown(printed, agent)
    _summarize(train_small(zoo_rules(RingEnv), tmp_path / "ring", updates=2))
    shown(capsys.readouterr().out, "team")
