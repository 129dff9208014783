"""``corral.diagnose``: every kind of run is looked at, none is touched, and what raises is told."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

import corral
from corral import algorithms as alg
from corral.clock import Clock
from corral.errors import EnvNeededError, RunError, UnknownNameError
from corral.lab.doctor.diagnose import Diagnosis
from corral.lab.doctor.text import diagnosis_text
from support import own_networks
from support.loads import small_trace
from support.runs import small_run
from support.thinned import fast_every
from support.turn_rules import PileRules
from support.zoo_envs import MixedEnv

SMALL: dict[str, Any] = {
    **{"num_envs": 4, "n_steps": 16, "n_epochs": 2, "n_minibatches": 2, "steps": 256},
    **{"progress": False, "device": "cpu"},
}
QUICK: dict[str, Any] = {"audited": False, "cloned": False, "checked": False}


def trained(out: Path, env: Any = "probe_p12_v0", trainer: Any = "mappo", **given: Any) -> Any:
    return corral.train(env, trainer=trainer, out=out, **{**SMALL, "net_arch": (16,), **given})


def causes(diagnosis: Diagnosis) -> list[str]:
    return [one.cause for one in diagnosis.findings if one.certainty >= 2]


def files(folder: Path) -> dict[str, tuple[str, int]]:
    """Every file below a folder: its digest, and when it was last written."""
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def generators() -> tuple[Any, ...]:
    """The states of the global generators of Python, NumPy and torch."""
    numbers = np.random.get_state()[1].tolist()  # noqa: NPY002
    return random.getstate(), numbers, torch.get_rng_state().tolist()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound run of dfaas_v0, of which evidence, play, truth and its network can be looked at."""
    env_kwargs = {"trace": small_trace(), "max_cycles": 12}
    out = tmp_path_factory.mktemp("runs") / "sound"
    return Path(trained(out, "dfaas_v0", env_kwargs=env_kwargs, steps=640).folder)


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


# --- A sound run ---------------------------------------------------------------------------------


def test_a_sound_run_has_no_fault_and_stays_as_it_is(run: Path) -> None:
    before = files(run)
    drawn = generators()
    shown: list[tuple[str, int, int]] = []
    found = corral.diagnose(
        run, cloned=False, checked=False, progress=lambda *told: shown.append(told)
    )
    assert causes(found) == []
    assert not found.faulty
    assert files(run) == before
    assert generators() == drawn
    assert found.about == "mappo on dfaas_v0: 640 env steps in 10 updates"
    assert [done for _, done, _ in shown] == sorted(done for _, done, _ in shown)
    assert shown[-1][1] == shown[-1][2]
    assert found.audit is not None
    assert found.learning is not None
    assert [score.illegal for score in found.learning.scores] == [0] * len(found.learning.scores)
    assert found.seconds > 0


def test_facts_are_numbers_of_both_ends_of_the_run(run: Path) -> None:
    found = corral.diagnose(run, **QUICK)
    facts = {fact.name: fact for fact in found.facts}
    assert set(facts) >= {"entropy", "advantages", "explained_variance", "learning_rate"}
    assert {fact.policy for fact in found.facts} == {"shared"}
    entropy = facts["entropy"]
    assert entropy.beginning is not None
    assert 0.9 < entropy.beginning <= 1 + 1e-6  # as good as uniform at first
    rate = facts["learning_rate"]
    assert rate.beginning is not None
    assert rate.latest is not None
    assert rate.latest < rate.beginning  # it is annealed
    assert all(v is None or np.isfinite(v) for f in found.facts for v in (f.beginning, f.latest))


def test_the_same_seed_finds_the_same(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The number of episodes and their length follow the speed of the machine.
    monkeypatch.setattr("corral.lab.doctor.verdict.episodes.SIZES", (16,))
    monkeypatch.setattr(Clock, "seconds", lambda clock: 0.0)
    first, second = (corral.diagnose(run, **QUICK, seed=3).to_json() for _ in range(2))
    assert {**first, "seconds": 0} == {**second, "seconds": 0}


def test_json_is_complete_and_stable(run: Path) -> None:
    values = corral.diagnose(run, cloned=False, checked=False).to_json()
    assert list(values) == [
        *("healthy", "verdict", "run", "about", "learning", "findings", "next_steps", "facts"),
        *("changes", "imitation", "audit", "looked_at", "not_looked_at", "seconds"),
    ]
    again = json.loads(json.dumps(values, allow_nan=False))
    assert again == values
    assert list(values["facts"][0]) == ["name", "policy", "beginning", "latest"]


def test_a_network_that_sees_learns_to_play_as_the_best_team(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", "tictactoe_v0", steps=64)
    found = corral.diagnose(run, audited=False, checked=False)
    assert found.imitation is not None
    assert found.imitation.teacher == "perfect"
    assert found.imitation.learned
    assert found.imitation.share > 0.9 > found.imitation.unseen
    shown(diagnosis_text(found), "perfect")


@pytest.mark.slow
def test_a_network_that_sees_nothing_is_blamed(tmp_path: Path) -> None:
    blind = own_networks.made_of(lambda self, obs: self.layer(torch.ones_like(self.join(obs))))
    given = {key: value for key, value in SMALL.items() if key != "steps"}
    run = corral.train(
        "tictactoe_v0", trainer="mappo", model=blind, out=tmp_path / "run", steps=64, **given
    )
    found = corral.diagnose(run, audited=False, checked=False)
    assert "network-cannot-imitate" in causes(found)
    shown(diagnosis_text(found), "perfect")


# --- Runs of other kinds -------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "memory": {"env": "rps_v0", "memory": 4},
    "opponents": {"env": "rps_v0", "opponents": {"player_1": "beat-last"}},
    "images": {"env": "tiles_v0", "steps": 64},
    "in turn, each its own": {"env": "tictactoe_v0", "policies": "separate"},
    "one step": {"trainer": "a2c", "n_epochs": None, "n_minibatches": None},
    "third-party": {"env": MixedEnv, "policies": "separate"},
    "own rules": {"env": PileRules(), "policies": "separate"},
}


@pytest.mark.parametrize("kind", fast_every(2, KINDS))
def test_runs_of_every_kind_are_looked_at(kind: str, tmp_path: Path) -> None:
    given = {**SMALL, "net_arch": (16,), "trainer": "mappo", "env": "probe_p12_v0", **KINDS[kind]}
    given = {key: value for key, value in given.items() if value is not None}
    run = corral.train(out=tmp_path / "run", **given)
    before = files(run.folder)
    found = corral.diagnose(run, **QUICK)
    assert causes(found) == []
    shown(found.looked_at[0], 3)
    assert any("checkpoint" in what for what in found.looked_at)
    assert found.learning is not None
    assert not [what for what in found.not_looked_at if "Error" in what], found.not_looked_at
    assert files(run.folder) == before


@pytest.mark.parametrize(
    "trainer", ["sb3_ppo", pytest.param("sb3_maskable_ppo", marks=pytest.mark.slow)]
)
def test_runs_of_other_libraries_are_played_and_read(trainer: str, tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3", reason="needs the extra sb3")
    found = corral.diagnose(small_run(tmp_path / "run", trainer), checked=False)
    assert not found.faulty
    assert found.learning is not None
    assert any("progress.csv" in what for what in found.looked_at)
    assert any("buffers" in what for what in found.looked_at)
    assert found.imitation is None


def test_a_run_that_clones_is_judged_by_what_concerns_it(tmp_path: Path) -> None:
    env_kwargs = {"trace": small_trace(), "max_cycles": 12}
    given = {**SMALL, "steps": 256, "net_arch": (16,), "env_kwargs": env_kwargs}
    run = corral.clone("dfaas_v0", "overflow/equal", out=tmp_path / "run", episodes=2, **given)
    found = corral.diagnose(run)
    assert not found.faulty
    shown(found.looked_at[0], 3)
    assert found.audit is None


def test_a_run_by_a_trainer_of_ones_own_needs_it_again(tmp_path: Path) -> None:
    own = alg.ippo.but(name="own", loss=lambda *given: alg.policy_gradient_loss(*given))
    run = trained(tmp_path / "run", trainer=own)
    assert corral.diagnose(run.folder, trainer=own, **QUICK).looked_at
    with refused(UnknownNameError, "own", "--trainer file.py:name"):
        corral.diagnose(run.folder, **QUICK)


def test_what_must_be_given_again_is_asked_for(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", MixedEnv, policies="separate")
    with pytest.raises(EnvNeededError):
        corral.diagnose(run.folder, **QUICK)
    with refused(RunError, tmp_path, "config.json"):
        corral.diagnose(tmp_path, **QUICK)


# --- Runs that are not whole ---------------------------------------------------------------------


def test_a_run_without_a_checkpoint_is_looked_at_from_its_beginning(run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    found = corral.diagnose(run, cloned=False, checked=False)
    assert not found.faulty
    shown(found.looked_at[0], 3)
    assert not any("checkpoint" in what for what in found.looked_at)
    assert found.audit is None
    assert found.learning is None
    assert any("checkpoint" in what for what in found.not_looked_at)


@pytest.mark.slow
def test_a_run_without_progress_is_looked_at(run: Path) -> None:
    (run / "progress.csv").unlink()
    found = corral.diagnose(run, **QUICK)
    assert found.changes == {}
    assert any("checkpoint" in what for what in found.looked_at)
    assert any(what.startswith("progress.csv: ") for what in found.not_looked_at)


def test_an_environment_that_no_longer_plays_is_told_and_progress_is_read(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", MixedEnv, policies="separate")

    def gone() -> Any:
        raise FileNotFoundError("maps/level_1.json")

    before = MixedEnv.reset
    MixedEnv.reset = lambda self, *args, **kwargs: gone()  # type: ignore[method-assign]
    try:
        found = corral.diagnose(run, **QUICK)
    finally:
        MixedEnv.reset = before  # type: ignore[method-assign]
    assert causes(found) == ["training-raises"]
    assert any("maps/level_1.json" in what for what in found.not_looked_at)
    assert any("progress.csv" in what for what in found.looked_at)


# --- Training that raises ------------------------------------------------------------------------


def broken(tmp_path: Path, loss: Any) -> Diagnosis:
    """The diagnosis of a run whose loss was sound while it was trained, and is ``loss`` now."""
    run = trained(tmp_path / "run", trainer=alg.ippo.but(name="own"))
    now = alg.ippo.but(name="own", loss=loss)
    return corral.diagnose(run.folder, trainer=now, **QUICK)


def test_a_loss_that_is_not_finite_is_a_finding(tmp_path: Path) -> None:
    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        losses = alg.ppo_loss(minibatch, outputs, settings)
        return alg.Losses({**losses.terms, "policy_loss": losses.terms["policy_loss"] * torch.nan})

    found = broken(tmp_path, loss)
    shown(found.findings[0].measured, "shared", "policy_loss", "nan")
    assert found.findings[0].certainty == 3
    assert not found.healthy


def test_a_loss_that_raises_is_a_finding_and_told_once(tmp_path: Path) -> None:
    def loss(minibatch: Any, outputs: Any, settings: Any) -> Any:
        raise KeyError("weight")

    found = broken(tmp_path, loss)
    assert causes(found) == ["training-raises"]
    assert found.findings[0].certainty == 3
    shown(found.findings[0].measured, "KeyError", "'weight'")
    assert found.learning is not None  # the policies still play


def test_a_rule_that_raises_does_not_end_the_others(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from corral.lab.doctor import looking as module

    def no_such_field(found: Any, evidence: Any) -> None:
        raise AttributeError("no such field")

    monkeypatch.setattr(module, "RULES", (no_such_field, *module.RULES))
    found = corral.diagnose(run, **QUICK)
    assert any("AttributeError" in what for what in found.not_looked_at)
    assert any("checkpoint" in what for what in found.looked_at)


# --- The doctor's own errors ---------------------------------------------------------------------


@pytest.mark.parametrize("place", ["record", pytest.param("library", marks=pytest.mark.slow)])
def test_an_error_of_the_doctor_is_not_one_of_training(
    run: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether its own code raises, or a library that it calls."""
    from corral.lab.doctor.evidence import updates

    def raises(*args: Any) -> Any:
        if place == "library":
            return np.concatenate([np.zeros((2, 2)), np.zeros((3, 3))])
        raise RuntimeError("of the doctor")

    monkeypatch.setattr(updates, "legal_entropy", raises)
    diagnosis = corral.diagnose(run, **QUICK)
    assert causes(diagnosis) == []
    assert any(item.startswith("first updates") for item in diagnosis.not_looked_at)


def test_a_distribution_of_ones_own_stays_on_the_learner(tmp_path: Path) -> None:
    """An actor with a temperature of 2, which the trainer sets on its learner."""
    from corral.trainers.on_policy.trainer import MAPPO

    class Tempered(MAPPO):
        def begin(self) -> None:
            super().begin()
            for learner in self.learners.values():
                plain = type(learner).distribution.__get__(learner)
                learner.distribution = lambda outputs, mask, plain=plain: plain(outputs / 2, mask)

    corral.train(
        "probe_p12_v0", trainer=Tempered, out=tmp_path / "run", **{**SMALL, "net_arch": (16,)}
    )
    diagnosis = corral.diagnose(tmp_path / "run", trainer=Tempered, **QUICK)
    named = causes(diagnosis)
    assert "probability-of-another" not in named
    assert "ratio-not-one" not in named


# --- Measurements --------------------------------------------------------------------------------


def test_the_checkpoint_is_measured_at_a_rate_that_training_had(tmp_path: Path) -> None:
    """Annealing ends at 0: a further update would measure nothing."""
    trained(tmp_path / "run", learning_rate="linear:0.003")
    facts = {fact.name: fact for fact in corral.diagnose(tmp_path / "run", **QUICK).facts}
    assert facts["learning_rate"].latest == pytest.approx(0.003 / 4)
    assert (facts["weights"].latest or 0) > 0
    assert (facts["approx_kl"].latest or 0) > 0


def test_a_run_of_one_environment_copy_is_played(tmp_path: Path) -> None:
    trained(tmp_path / "run", num_envs=1)
    diagnosis = corral.diagnose(tmp_path / "run", **QUICK)
    assert diagnosis.learning is not None
    assert {score.episodes >= 2 for score in diagnosis.learning.scores} == {True}


@pytest.mark.slow
def test_imitation_is_an_amount_of_work_on_any_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine on which minutes pass between any two looks at the clock learns as much."""
    from corral.lab.doctor import imitation

    run = trained(tmp_path / "run", "arena_v0", steps=64)
    usual = imitation.imitate(run.config, run.begun(), updates=2)
    late = itertools.count(step=600.0)
    for clock in ("perf_counter", "thread_time", "process_time", "monotonic"):
        monkeypatch.setattr(imitation.time, clock, lambda: next(late))
    slow = imitation.imitate(run.config, run.begun(), updates=2)
    assert dataclasses.replace(slow, seconds=usual.seconds) == usual
    assert usual.decisions > 0
