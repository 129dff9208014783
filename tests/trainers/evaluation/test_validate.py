"""Validation plays what neither training nor the final judgment plays, and the same each time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.adapters.zoo.group import reset_seed
from corral.envs.core import generator
from corral.envs.policy import RandomPolicy
from corral.envs.reference import reference_player, reference_team
from corral.loads.replay import replay
from corral.trainers.evaluation.scores import evaluate_team
from corral.trainers.evaluation.validate import EPISODES, validate, validation_seed
from corral.trainers.runs.env_config import EnvConfig
from support.loads import small_trace
from support.messages import refused
from support.steady_rules import SteadyRules

RECENT_SEEDS = range(20)


# --- Rows ----------------------------------------------------------------------------------------


def of_small(**env: Any) -> EnvConfig:
    return EnvConfig.of("dfaas_v0", {"trace": small_trace(steps=60), "max_cycles": 4, **env})


def test_rows_are_played_in_whole_windows_as_a_replay_plays_them() -> None:
    config = of_small(queue=3, forward_cost=0.1, wait_cost=0.05)
    assert config.validation["rows"] == (34, 42)
    team = reference_team("overflow", config.rules())
    found = validate(config, team)
    (same,) = replay(
        *(config.trace, ["overflow/equal"]),  # type: ignore[arg-type]
        **{"rows": (34, 42), "window": 4, "queue": 3, "forward_cost": 0.1, "wait_cost": 0.05},
        load_scale=config.env_kwargs["load_scale"],
        optimum_windows=0,
    ).scores
    assert found.rows[0].episodes == 2
    for name in ("served", "lost", "forwarded", "cost", "return_team", "illegal_actions"):
        assert found.figures[name] == pytest.approx(getattr(same, name))
    assert found.value == found.figures["return_learned"] == found.figures["return_team"]
    assert found.figures["returns.node_1"] == pytest.approx(same.returns["node_1"])
    assert "return_team.low" not in found.figures  # too few windows


def test_the_number_of_windows_may_be_bounded() -> None:
    config = EnvConfig.of("dfaas_v0", {"max_cycles": 8})
    team = reference_team("overflow", config.rules())
    assert validate(config, team).rows[0].episodes == EPISODES
    assert validate(config, team, episodes=5).rows[0].episodes == 5
    assert validate(config, team, episodes=1000).rows[0].episodes == 71  # 20 % of 2822 rows


def test_a_run_without_rows_for_validation_says_what_to_do() -> None:
    config = EnvConfig.of("dfaas_v0", {"trace": small_trace()})
    with refused(ValueError, "dfaas_v0", "validation=0", "max_cycles"):
        validate(config, RandomPolicy())


# --- Seeds ---------------------------------------------------------------------------------------


class Noted(SteadyRules):
    """Notes the stream of every episode that begins."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: set[int] = set()

    def start(self, rngs: Any) -> Any:
        self.streams |= {rng.bit_generator.state["state"]["inc"] for rng in rngs}
        return super().start(rngs)


def test_no_episode_is_one_of_training_or_of_the_final_judgment() -> None:
    """A PCG64 stream is told from others by its increment."""
    rules = Noted()
    validate(EnvConfig.of(rules), RandomPolicy())
    assert len(rules.streams) == EPISODES
    validated, rules.streams = rules.streams, set()
    evaluate_team(rules, RandomPolicy(), episodes=100, seed=0)
    assert len(rules.streams) == 64
    assert validated.isdisjoint(rules.streams)
    for seed in RECENT_SEEDS:  # of training, and of evaluations
        states = (generator(seed, "env", row).bit_generator.state for row in range(256))
        assert validated.isdisjoint(state["state"]["inc"] for state in states)


def test_third_party_environments_get_other_seeds() -> None:
    own = {reset_seed(validation_seed(), copy) for copy in range(EPISODES)}
    assert len(own) == EPISODES
    others = {reset_seed(seed, copy) for seed in RECENT_SEEDS for copy in range(100)}
    assert own.isdisjoint(others)


def test_seeds_are_fixed() -> None:
    assert validation_seed() == validation_seed(0) == 467032741218016696
    assert validation_seed(1) != validation_seed(0)
    config = EnvConfig.of("arena_v0")
    team = reference_team("nearest/chase", config.rules())
    one, two = validate(config, team), validate(config, team)
    assert one == two
    assert one.rows[0].episodes == EPISODES
    assert validate(config, team, seed=1).figures != one.figures
    assert set(one.figures) >= {"return_learned", "return_team", "mean_length", "illegal_actions"}


# --- Whose return counts -------------------------------------------------------------------------


def test_the_return_of_those_that_learn_counts() -> None:
    config = EnvConfig.of("arena_v0")
    team = reference_team("nearest/chase", config.rules())
    found = validate(config, team, learners=["agent_1"])
    assert found.value == found.figures["returns.agent_1"] != found.figures["return_team"]
    with refused(ValueError, "learners=['explorer']", "agent_1", "agent_2"):
        validate(config, team, learners=["explorer"])


def test_zero_sum_games_are_played_seat_by_seat() -> None:
    config = EnvConfig.of("rps_v0", {"rounds": 6})
    rules = config.rules()
    copy = reference_player("beat-last", rules, "player_0")
    found = validate(config, copy, episodes=8)
    played = {(row.seat, row.opponent) for row in found.rows}  # type: ignore[union-attr]
    assert {seat for seat, _ in played} == {"player_0", "player_1"}
    assert len(played) == len(found.rows) > 2
    returns = [row.return_seat for row in found.rows]  # type: ignore[union-attr]
    assert found.value == pytest.approx(np.mean(returns))
    assert "return_team" not in found.figures
    assert found.figures["won"] + found.figures["drawn"] + found.figures["lost"] == pytest.approx(1)
    first = validate(config, copy, episodes=8, learners=["player_0"])
    assert {row.seat for row in first.rows} == {"player_0"}  # type: ignore[union-attr]
    assert first.value == pytest.approx(found.figures["returns.player_0"])


def test_a_zero_sum_game_of_others_is_recognised() -> None:
    pytest.importorskip("pygame", reason="the game draws with it")
    found = validate(EnvConfig.of("classic/tictactoe-v3"), RandomPolicy(), episodes=10)
    assert {row.seat for row in found.rows} == {"player_1", "player_2"}  # type: ignore[union-attr]
    team = validate(
        EnvConfig.of("classic/tictactoe-v3"), RandomPolicy(), episodes=3, zero_sum=False
    )
    assert team.value == 0


# --- Runs ----------------------------------------------------------------------------------------


def test_a_run_is_validated_greedily(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    from support.runs import small_run

    run = small_run(tmp_path / "run", updates=1, env_kwargs={"max_cycles": 5})
    found = validate(run)
    assert found.rows[0].mode == "greedy"
    assert found == validate(run.config.env_config, run.policies)
    assert validate(run, deterministic=False).rows[0].mode == "sampled"
    with refused(ValueError, "EnvConfig"):
        validate(run.config.env_config)
