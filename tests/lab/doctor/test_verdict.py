"""The verdict: a run that learns, one with a fault, and one without either."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral import algorithms as alg
from corral.adapters.zoo.batch import zoo_rules
from corral.envs.conformance.report import CheckResult
from corral.envs.conformance.report import Finding as CheckFinding
from corral.lab.doctor.choices.verdict import Fault
from corral.lab.doctor.diagnose import Diagnosis
from corral.lab.doctor.text import diagnosis_text
from corral.lab.doctor.verdict.checks import check_findings, choice_findings, examined
from corral.lab.doctor.verdict.learning import RANDOM, THIS, UNTRAINED, Lead, Learning, Score
from corral.lab.doctor.verdict.notes import changes_of, worse_over_time
from corral.lab.doctor.watching.progress import PolicyInfo
from corral.trainers.runs.trends import Change
from support.chance_envs import Chance
from support.command import run as command
from support.command import within
from support.faulty_chance import OneEpisode
from support.faulty_envs import Walk
from support.messages import shown

QUICK: dict[str, Any] = {"audited": False, "cloned": False, "checked": False}
SMALL: dict[str, Any] = {"num_envs": 8, "n_steps": 32, "net_arch": (16,), "preset": "none"}
WORDS = ("--no-audit", "--no-clone", "--no-check")


def trained(folder: Path, env: Any, updates: int, **given: Any) -> Any:
    steps = updates * 8 * 32
    return corral.train(env, out=folder, steps=steps, progress=False, **{**SMALL, **given})


def zeroed(trajectories: Any, settings: Any) -> Any:
    advantages = alg.gae(trajectories, settings)
    return alg.Advantages(np.zeros_like(advantages.advantage), advantages.value_target)


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("learned") / "run"
    return trained(folder, "probe_p05_v0", 14, gamma=0.0, learning_rate=0.01)


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return trained(tmp_path_factory.mktemp("noise") / "run", Chance, 12)


def lead(diagnosis: Diagnosis, over: str, mode: str = "sampled") -> Lead:
    assert diagnosis.learning is not None
    data = diagnosis.learning.data[0]
    result = diagnosis.learning.lead(over, mode, data)
    assert result is not None
    return result


# --- Three verdicts ------------------------------------------------------------------------------


def test_a_run_that_learns(learned: Any) -> None:
    diagnosis = corral.diagnose(learned, **QUICK)
    assert (diagnosis.verdict, diagnosis.healthy, diagnosis.next_steps) == ("learns", True, ())
    for over in (RANDOM, UNTRAINED):
        one = lead(diagnosis, over)
        assert one.low is not None
        assert 0 < one.low <= one.mean
    first = diagnosis_text(diagnosis).splitlines()[0]
    assert first.startswith(f"{learned.folder}: it learns")
    shown(command("doctor", learned.folder, *WORDS), "untrained, greedy", "random", "return")


def test_a_run_without_advantages_does_not_learn_and_the_fault_is_named(tmp_path: Path) -> None:
    own = alg.mappo.but(name="own", advantages=zeroed)
    run = trained(tmp_path / "run", "probe_p05_v0", 4, trainer=own, gamma=0.0)
    diagnosis = corral.diagnose(run.folder, trainer=own, **QUICK)
    assert (diagnosis.verdict, diagnosis.healthy, diagnosis.next_steps) == ("fault", False, ())
    assert diagnosis.findings[0].cause == "zero-advantages"
    one = lead(diagnosis, UNTRAINED)
    assert not one.better


def test_noise_is_not_learned_no_fault_is_named_and_commands_follow(noise: Any) -> None:
    diagnosis = corral.diagnose(noise, **QUICK)
    assert (diagnosis.verdict, diagnosis.healthy) == ("no fault", False)
    assert diagnosis.learning is not None
    assert not diagnosis.learning.learns
    assert not diagnosis.learning.too_early
    words = [shlex.split(step.command) for step in diagnosis.next_steps]
    assert [line[:2] for line in words] == [
        ["corral", name] for name in ("check", "train", "train", "evaluate")
    ]
    assert all("support.chance_envs:Chance" in line for line in words)
    env = "support.chance_envs:Chance"
    shown(within("doctor", noise.folder, "--env", env, *WORDS, code=1), "--learnable", "--resume")


def test_choices_without_effect_point_at_actions_and_masks() -> None:
    causes = ("no-choice", "idle", "hidden", "others-only")
    result: Any = SimpleNamespace(verdict="", faults=[Fault(cause, "") for cause in causes])
    unused, idle, hidden, swapped = (finding.todo for finding in choice_findings(result))
    assert unused == idle
    shown(unused, "masks", "step()", "--learnable")
    assert "masks" not in hidden
    shown(swapped, "by agent name", "--learnable")


@pytest.mark.slow
def test_the_next_steps_can_be_pasted(noise: Any, tmp_path: Path) -> None:
    diagnosis = corral.diagnose(noise, **QUICK)
    for step in diagnosis.next_steps:
        words = shlex.split(step.command)[1:]
        if "--resume" in words:
            words[words.index("--steps") + 1] = str(13 * 256)
        elif "--out" in words:
            words[words.index("--out") + 1] = str(tmp_path / "other")
            words[words.index("--steps") + 1] = "64"
            words += ["--num-envs", "4", "--n-steps", "16"]
        elif words[0] == "check":
            words[words.index("--seconds") + 1] = "1"
        within(*words, code=None if words[0] == "check" else 0)
    assert len(noise.progress) == 13


def test_few_updates_are_too_few_to_tell(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", Chance, 2)
    diagnosis = corral.diagnose(run, **QUICK)
    assert diagnosis.verdict == "no fault"
    assert diagnosis.learning is not None
    assert diagnosis.learning.too_early
    assert shlex.split(diagnosis.next_steps[0].command)[:3] == ["corral", "train", "--resume"]


@pytest.mark.slow
def test_the_environment_is_examined_only_if_the_run_does_not_learn(
    learned: Any, noise: Any
) -> None:
    given = {**QUICK, "checked": True}
    assert "--learnable" not in " ".join(corral.diagnose(learned, **given).looked_at)
    examined = " ".join(corral.diagnose(noise, **given).looked_at)
    shown(examined, "corral check", "--learnable")


def test_the_environment_of_a_run_that_learns_is_checked_briefly() -> None:
    """A seed that was left in reset keeps no run from learning, and what it learns is narrow."""
    found = examined(zoo_rules(OneEpisode), lambda part: 1.0, learns=True)
    [finding] = found.findings
    assert (finding.cause, finding.certainty) == ("check-other-seeds", 1)
    assert "OneEpisode.rng" in finding.measured
    assert found.choices is None
    assert examined(zoo_rules(Walk), lambda part: 1.0, learns=True).findings == []


# --- What is played ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_same_seeds_are_played_and_held_out_data_too(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "dfaas_v0", 2, env_kwargs={"max_cycles": 16})
    learning = corral.diagnose(run, **QUICK).learning
    assert learning is not None
    assert learning.data == ("training", "held-out")
    players = {score.player for score in learning.scores}
    assert players == {"this run", RANDOM, UNTRAINED, learning.reference}
    assert len({score.episodes for score in learning.scores}) == 1
    for one in learning.leads:
        mine = learning.score("this run", one.mode, one.data)
        mode = {UNTRAINED: one.mode, RANDOM: "sampled"}.get(one.over, "greedy")
        other = learning.score(one.over, mode, one.data)
        assert mine is not None
        assert other is not None
        if one.of == "team":
            assert one.mean == pytest.approx(mine.mean - other.mean)
        elif one.of in mine.agents:
            assert one.mean == pytest.approx(mine.agents[one.of] - other.agents[one.of])
    assert {one.of for one in learning.leads} == {"team", "node_0", "node_1", "node_2"}
    assert set(learning.optimum) == set(learning.data)
    for score in learning.scores:
        assert score.mean <= learning.optimum[score.data] + 1e-6


def test_a_zero_sum_game_is_judged_seat_by_seat(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "tictactoe_v0", 1)
    learning = corral.diagnose(run, **QUICK).learning
    assert learning is not None
    assert learning.seatwise
    best = learning.score("perfect", "greedy", "")
    assert best is not None
    assert best.mean > 1  # both seats beat random play


OWN: dict[str, Any] = {"gamma": 0.0, "learning_rate": 0.01}


def test_an_agent_that_learns_its_own_best_action_learns_although_the_sum_falls(
    tmp_path: Path,
) -> None:
    """Action 0 pays agent 0 one, action 1 pays agent 1 two."""
    diagnosis = corral.diagnose(trained(tmp_path / "run", "probe_p07_v0", 14, **OWN), **QUICK)
    learning = diagnosis.learning
    assert learning is not None
    assert (diagnosis.verdict, learning.seatwise) == ("learns", True)
    assert not any(finding.certainty >= 2 for finding in diagnosis.findings)
    one = learning.lead(RANDOM, "sampled", "", "agent_0")
    assert one is not None
    assert one.mean == pytest.approx(0.5, abs=0.15)
    assert learning.responses[""].best == pytest.approx(2)  # agent 1 gets 2 x 1/2 in any case


def test_a_run_with_own_rewards_that_does_not_train_does_not_learn(tmp_path: Path) -> None:
    own = alg.mappo.but(name="own", advantages=zeroed)
    run = trained(tmp_path / "run", "probe_p07_v0", 14, trainer=own, **OWN)
    diagnosis = corral.diagnose(run.folder, trainer=own, **QUICK)
    learning = diagnosis.learning
    assert learning is not None
    assert (diagnosis.verdict, learning.seatwise) == ("fault", False)
    assert {lead.over for lead in learning.alone} >= {RANDOM, UNTRAINED}
    assert not any(lead.better for lead in learning.alone if lead.over == UNTRAINED)


def test_a_shared_reward_is_judged_by_its_sum(tmp_path: Path) -> None:
    own = alg.mappo.but(name="own", advantages=zeroed)
    team = {"env_kwargs": {"reward": "team"}}
    run = trained(tmp_path / "run", "probe_p07_v0", 14, trainer=own, **OWN, **team)
    learning = corral.diagnose(run.folder, trainer=own, **QUICK).learning
    assert learning is not None
    assert (learning.learns, learning.rewards_differ, learning.alone) == (False, False, ())


def test_play_that_is_always_the_same_is_one_episode(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "arena_v0", 1, env_kwargs={"max_cycles": 20})
    diagnosis = corral.diagnose(run, **QUICK)
    assert diagnosis.learning is not None
    untrained = diagnosis.learning.score(UNTRAINED, "greedy", "")
    assert untrained is not None
    assert (untrained.distinct, untrained.error) == (1, 0.0)
    shown(diagnosis_text(diagnosis), "1 distinct")


def test_greedy_play_far_below_sampled_play_is_worth_a_look(tmp_path: Path) -> None:
    given = {"num_envs": 16, "n_steps": 16, "net_arch": (8,), "preset": "auto"}
    run = trained(tmp_path / "run", "arena_v0", 1, env_kwargs={"max_cycles": 40}, **given)
    (finding,) = (
        finding
        for finding in corral.diagnose(run, **QUICK).findings
        if finding.cause == "greedy-below-sampled"
    )
    assert finding.certainty == 1
    shown(finding.todo, "deterministic=False")
    assert "--policies" not in finding.todo


@pytest.mark.slow
def test_a_run_that_clones_is_judged_by_its_teacher(tmp_path: Path) -> None:
    run = corral.clone(
        "tictactoe_v0", "perfect", out=tmp_path / "run", steps=4_096, progress=False, episodes=8
    )
    diagnosis = corral.diagnose(run, **QUICK)
    assert diagnosis.verdict == "learns"
    assert diagnosis.learning is not None
    assert diagnosis.learning.agreement is not None
    start, now = diagnosis.learning.agreement
    assert start < now


def learning_of(learns: bool, updates: int, leads: tuple[Lead, ...]) -> Learning:
    return Learning(learns, updates, (), leads, None, False, None, ())


def test_a_run_that_became_worse_is_not_too_early_to_tell() -> None:
    level = Lead(UNTRAINED, "sampled", "", "team", -1.0, -2.0, 0.5)
    assert learning_of(False, 3, (level,)).too_early
    assert not learning_of(False, 3, (dataclasses.replace(level, high=-0.5),)).too_early
    assert not learning_of(False, 30, (level,)).too_early
    assert not learning_of(True, 3, (level,)).too_early


@pytest.mark.parametrize(("sampled", "learns"), [(-1.0, False), (0.0, True), (1.0, True)])
def test_one_good_greedy_episode_is_no_learning(sampled: float, learns: bool) -> None:
    """Greedy play of a run whose sampled play became worse may be better by luck."""
    leads = [
        Lead(over, mode, "", "team", mean, mean - 0.5, mean + 0.5)
        for over in (RANDOM, UNTRAINED)
        for mode, mean in (("greedy", 2.0), ("sampled", sampled))
    ]
    assert learning_of(False, 30, tuple(leads)).learns_on("") is learns


@pytest.mark.parametrize(
    ("greedy", "low", "learns"), [(8.0, 2.0, True), (7.9, 2.0, False), (8.0, -0.5, False)]
)
def test_optimal_play_is_learned_even_if_the_start_played_as_well(
    greedy: float, low: float, learns: bool
) -> None:
    """Returns cannot rise above the optimum; sampled play must be better than random play, too."""
    scores = tuple(
        Score(THIS, mode, "", mean, 0.0, {}, 2.0, 128, 1, 0)
        for mode, mean in (("greedy", greedy), ("sampled", 7.5))
    )
    leads = tuple(
        lead
        for mode, least in (("greedy", 2.0), ("sampled", low))
        for lead in (
            Lead(RANDOM, mode, "", "team", least + 1, least, least + 2),
            Lead(UNTRAINED, mode, "", "team", 0.0, 0.0, 0.0),
        )
    )
    learning = Learning(False, 30, scores, leads, None, False, None, (), {"": 8.0})
    assert learning.learns_on("") is learns


# --- Over the run --------------------------------------------------------------------------------

INFO = PolicyInfo("shared", ("agent_0",), "", True, 10_000)
ROWS = 24


def progress(rng: np.random.Generator, **changed: Any) -> pd.DataFrame:
    """Rows without a trend, in which some columns are changed."""
    columns: dict[str, Any] = {
        "env_steps": 100 * np.arange(1, ROWS + 1),
        "episodes": 10 * np.arange(1, ROWS + 1),
        "reward_per_step": rng.normal(size=ROWS),
        "length": 10.0,
        "entropy": 1 + 0.1 * rng.normal(size=ROWS),
    }
    frame = pd.DataFrame({**columns, **changed})
    return frame.assign(return_of_shared=10 * frame["reward_per_step"])


def worse(frame: pd.DataFrame, learns: bool = False) -> Any:
    return worse_over_time(changes_of(frame, INFO, 1, None), INFO, 1, learns=learns)


FALLING = -np.arange(ROWS, dtype=float)


def test_a_falling_reward_with_a_falling_entropy_is_a_finding() -> None:
    frame = progress(np.random.default_rng(0), reward_per_step=FALLING, entropy=FALLING)
    finding = worse(frame)
    assert (finding.cause, finding.certainty) == ("worse-over-time", 2)
    shown(finding.measured, "entropy", "reward per step")
    assert worse(frame, learns=True).certainty == 1


@pytest.mark.parametrize(
    "changed", [{"entropy": FALLING}, {"reward_per_step": FALLING}, {"reward_per_step": -FALLING}]
)
def test_one_trend_alone_is_no_finding(changed: Any) -> None:
    assert worse(progress(np.random.default_rng(0), **changed)) is None


@pytest.mark.slow
def test_noise_raises_no_alarm() -> None:
    """At most 0.1 % of runs without a trend in rewards; here the entropy always falls."""
    rng = np.random.default_rng(0)
    alarms = sum(worse(progress(rng, entropy=FALLING)) is not None for _ in range(300))
    assert alarms <= 2  # three or more have a probability of 0.4 %


def test_masks_that_close_are_part_of_the_finding() -> None:
    changes = {"return": Change(5.0, 1.0, 1e-5, 24), "legal actions": Change(6.0, 2.0, 1e-5, 16)}
    finding = worse_over_time(changes, INFO, 1, learns=False)
    assert finding is not None
    shown(finding.measured, "legal actions", 6, 2)


# --- The best possible return --------------------------------------------------------------------


@pytest.mark.parametrize(("env", "best"), [("two_step_v0", 8), ("probe_p04_v0", 2)])
def test_a_team_is_compared_with_the_optimum_of_its_game(
    tmp_path: Path, env: str, best: float
) -> None:
    diagnosis = corral.diagnose(trained(tmp_path / "run", env, 1), **QUICK)
    assert diagnosis.learning is not None
    assert diagnosis.learning.optimum == {"": best}
    assert diagnosis.learning.responses == {}
    shown(diagnosis_text(diagnosis), "optimum")


def test_no_policy_beats_random_play_in_rock_paper_scissors(tmp_path: Path) -> None:
    diagnosis = corral.diagnose(trained(tmp_path / "run", "rps_v0", 12), **QUICK)
    learning = diagnosis.learning
    assert learning is not None
    assert learning.responses[""].best == pytest.approx(0)
    assert learning.hopeless
    assert diagnosis.verdict == "no fault"
    shown(diagnosis.next_steps[0].command, "corral exploit")


def test_a_seat_is_compared_with_the_best_response_to_its_opponent(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "rps_v0", 1, opponents={"player_1": "copy-last"})
    learning = corral.diagnose(run, **QUICK).learning
    assert learning is not None
    best, rounds = learning.responses[""], 10
    assert rounds - 1 <= best.best <= rounds  # the first round is a guess
    assert best.random == pytest.approx(0)
    assert not learning.hopeless


# --- Faults of the environment -------------------------------------------------------------------


def test_faults_that_touch_play_come_first() -> None:
    errors = [
        CheckFinding(check, "error", "seen", "expected", "advice", "")
        for check in ("spaces", "cumulative-rewards", "copies", "seed")
    ]
    checks = tuple(error.check for error in errors)
    result = CheckResult("env", "AEC", tuple(errors), {}, (), checks, (0,), 1, 1, 1.0)
    causes = [finding.cause for finding in check_findings(result, learns=True)]
    assert causes == ["check-cumulative-rewards", "check-spaces", "check-copies", "check-seed"]


@pytest.mark.parametrize(
    ("check", "certainty"), [("reset", 2), ("reward", 2), ("copies", 1), ("spaces", 1)]
)
def test_a_fault_that_does_not_touch_play_is_no_cause(check: str, certainty: int) -> None:
    error = CheckFinding(check, "error", "seen", "expected", "advice", "")
    result = CheckResult("env", "parallel", (error,), {}, (), (check,), (0,), 1, 1, 1.0)
    (finding,) = check_findings(result)
    assert (finding.cause, finding.certainty) == (f"check-{check}", certainty)
