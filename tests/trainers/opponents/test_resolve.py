"""Names of opponents become policies, of runs of any trainer too; or an error says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.adapters.sources import rules_of
from corral.envs import make_rules
from corral.envs.reference import player_names
from corral.envs.rps_v0.baselines import LastMove
from corral.errors import RunError, UnknownNameError
from corral.trainers.driver import train
from corral.trainers.opponents.resolve import Players, pinned, resolve
from corral.trainers.runs.run import with_checkpoint
from support.mappo_teams import ROLLOUT, SMALL
from support.own_networks import make as make_network

RULES = make_rules("rps_v0")


def run_of(folder: Path, env: Any = "rps_v0", updates: int = 1, **changes: Any) -> Any:
    given: dict[str, Any] = {"trainer": "mappo", **SMALL, **changes}
    return train(env, steps=updates * ROLLOUT, out=folder, **given)


def test_a_reference_player_goes_before_a_run_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run_of(Path("beat-last"))
    assert isinstance(resolve("beat-last", "player_0", RULES), LastMove)
    own = resolve("./beat-last", "player_0", RULES)
    assert own.agent == "player_0"  # type: ignore[attr-defined]
    texts, pins = pinned({"player_0": "./beat-last:2,beat-last", "player_1": "random"}, RULES)
    assert texts == {"player_0": "beat-last@64:2,beat-last:1", "player_1": "random"}
    assert list(pins) == ["beat-last@64"]
    assert "beat-last" in player_names(RULES, "player_0")


def test_one_checkpoint_under_two_names_is_one_player(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    folder = str(run.folder)
    texts, _ = pinned({"player_1": f"{folder}:2,{folder}@latest:1,random:1"}, RULES)
    assert texts == {"player_1": f"{folder}@64:3,random:1"}
    texts, _ = pinned({"player_1": f"{folder},{folder}@64"}, RULES)
    assert texts == {"player_1": f"{folder}@64"}


@pytest.mark.parametrize("trainer", ["ippo", "clone", "sb3_ppo"])
def test_runs_of_any_trainer_play(tmp_path: Path, trainer: str) -> None:
    env, agent = ("rps_v0", "player_1")
    if trainer == "sb3_ppo":
        pytest.importorskip("stable_baselines3")
        small = {"num_envs": 4, "n_steps": 16, "batch_size": 64, "net_arch": (16,)}
        made = train(env, trainer=trainer, steps=ROLLOUT, out=tmp_path / "other", **small)
    elif trainer == "clone":
        made = corral.clone(env, "beat-last", steps=ROLLOUT, out=tmp_path / "other", **SMALL)
    else:
        made = run_of(tmp_path / "other", trainer=trainer)
    run = run_of(tmp_path / "run", opponents={agent: f"{made.folder}:1,random:1"})
    assert np.isfinite(run.progress["return_player_0"].iloc[-1])


def test_a_run_as_it_began_plays_and_has_nothing_to_pin(tmp_path: Path) -> None:
    made = run_of(tmp_path / "other")
    texts, pins = pinned({"player_1": f"{made.folder}@0"}, RULES)
    assert texts == {"player_1": f"{made.folder}@0"}
    (pin,) = pins.values()
    assert pin["checkpoint"] is pin["sha256"] is None
    assert Players(RULES, pins).run(f"{made.folder}@0", "player_1").at == "0"


def test_unknown_names_suggest_the_nearest() -> None:
    with refused(UnknownNameError, "'beat-lost'", "'beat-last'", "RUN@best"):
        resolve("beat-lost", "player_1", RULES)
    with refused(RunError, "player_1=runs/x", "RUN@best", "copy-last"):
        resolve("runs/x", "player_1", RULES)
    with refused(ValueError, "'player_7'", "player_0", "player_1"):
        resolve("random", "player_7", RULES)


def test_what_one_must_give_again_is_no_opponent_yet(tmp_path: Path) -> None:
    from corral.algorithms import mappo

    layers = {k: v for k, v in SMALL.items() if k != "net_arch"}
    given: dict[str, Any] = {"model": make_network, **layers}
    own_model = train("rps_v0", trainer="mappo", steps=ROLLOUT, out=tmp_path / "a", **given)
    own_trainer = run_of(tmp_path / "b", trainer=mappo.but(name="mine"))
    for run, what in ((own_model, "network"), (own_trainer, "trainer")):
        with refused(RunError, f"player_1={run.folder}@64", what, "corral.clone"):
            run_of(tmp_path / "run", opponents={"player_1": run.name})
    assert not (tmp_path / "run").exists()


def test_what_learns_from_nothing_as_that_agent_says_so(tmp_path: Path) -> None:
    other = run_of(tmp_path / "other", "two_step_v0")
    assert "player_1" not in other.config.policies
    with refused(RunError, "player_1", "two_step_v0", "rps_v0"):
        resolve(other.name, "player_1", RULES)


def test_with_checkpoint_refuses_what_names_none(tmp_path: Path) -> None:
    made = run_of(tmp_path / "other")
    with refused(RunError, f"{made.folder}@besst", f"{made.folder}@best", "@latest", "@0"):
        with_checkpoint(f"{made.folder}@besst")


# --- Third-party environments --------------------------------------------------------------------


def test_a_run_of_an_environment_of_others(tmp_path: Path) -> None:
    pytest.importorskip("pettingzoo.classic.tictactoe_v3", exc_type=ImportError)
    env = "classic/tictactoe-v3"
    other = run_of(tmp_path / "other", env, seed=1)
    given = {"opponents": {"player_2": f"{other.folder}:1,random:1"}, "env": env}
    run = run_of(tmp_path / "run", updates=2, checkpoint_every=ROLLOUT, **given)
    assert run.config.opponents == {"player_2": f"{other.folder}@64:1,random:1"}
    again = corral.resume(run.folder, env=env, steps=3 * ROLLOUT)
    assert set(again.policies["player_2"].players) == {f"{other.folder}@64", "random"}
    with refused(RunError, "player_1", "tictactoe_v3", "rps_v0"):
        resolve(other.name, "player_1", RULES)
    ours = run_of(tmp_path / "ours")
    with refused(RunError, "player_2", "rps_v0", "tictactoe_v3"):
        resolve(ours.name, "player_2", rules_of(env))
