"""The trainers benchmarl_vdn, _qmix, _iql and _masac, against BenchMARL itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("benchmarl")

import torch
from torchrl.modules import MaskedCategorical as TheirCategorical

import corral
from corral.adapters import zoo_rules
from corral.adapters.torchrl.batch import BatchEnv
from corral.adapters.torchrl.benchmarl import CorralTask
from corral.envs import two_step_v0
from corral.envs.registry import make_rules
from corral.errors import ArgumentError, CheckpointError, MaskError
from corral.trainers.benchmarl.experiment import LegalCategorical
from corral.trainers.driver import resume
from corral.trainers.runs.checkpoint import Content, latest_checkpoint, load_checkpoint
from corral.trainers.runs.run import Run
from support.frameworks import Play, judge
from support.matrix import ENVS, outcome
from support.messages import refused, shown

pytestmark = [pytest.mark.filterwarnings("default"), pytest.mark.timeout(400)]

TRAINERS = ("benchmarl_vdn", "benchmarl_qmix", "benchmarl_iql", "benchmarl_masac")
SMALL: dict[str, Any] = {
    **{"num_envs": 4, "n_steps": 4, "gradient_steps": 2, "batch_size": 16},
    **{"learning_starts": 0, "net_arch": (16,)},
}


def trained(name: Any, trainer: str, out: Path, steps: int = 64, **options: Any) -> Run:
    given = {"seed": 1, "progress": False, **SMALL, **options}
    if isinstance(name, str):
        given.setdefault("env_kwargs", {"illegal": "raise"})
    return corral.train(name, trainer=trainer, steps=steps, out=out, **given)


def content(run: Run) -> Content:
    return load_checkpoint(latest_checkpoint(run.folder / "checkpoints"))


def weights(run: Run, kinds: tuple[str, ...] = ("policy", "learning")) -> dict[str, bytes]:
    return {
        f"{file}/{key}": array.tobytes()
        for file, arrays in content(run).arrays.items()
        for key, array in arrays.items()
        if file.startswith(kinds)
    }


# --- Runs ----------------------------------------------------------------------------------------


def test_it_beats_random_and_is_judged_without_benchmarl(tmp_path: Path) -> None:
    def learn(steps: int, seed: int) -> Play:
        policies = corral.train(
            "dfaas_v0",
            trainer="benchmarl_iql",
            steps=steps,
            seed=seed,
            env_kwargs={"trace": "edge3", "max_cycles": 48, "illegal": "raise"},
            out=tmp_path / "run",
            progress=False,
            n_steps=8,
            gradient_steps=4,
        ).policies
        return lambda seen: {
            a: int(policies[a].act(seen[a], deterministic=True).action) for a in seen
        }

    verdict = judge(learn, steps=10_000, seed=1)
    assert verdict.beats_random, verdict
    run = corral.load_run(tmp_path / "run")
    progress = run.progress
    assert progress["kpi_illegal_actions"].dropna().eq(0).all()
    assert progress["value_loss"].notna().sum() > 50
    ended = progress.dropna(subset="return_team")
    agents = [f"return_node_{i}" for i in range(3)]
    np.testing.assert_allclose(ended[agents].sum(axis=1), ended["return_team"], rtol=1e-6)

    code = (
        "import sys\n"
        "for name in ('benchmarl', 'torchrl', 'tensordict'):\n    sys.modules[name] = None\n"
        f"sys.argv = ['corral', 'evaluate', '{run.folder}@best', '--policies', 'random']\n"
        "from corral.cli import main\nmain()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shown(done.stdout, "benchmarl_iql@best, greedy")
    exported = sorted(path.name for path in run.export("weights", tmp_path / "export"))
    assert exported == ["manifest.json", "shared.json", "shared.safetensors"]


@pytest.mark.parametrize(
    ("env", "trainer"),
    [
        *((env, "benchmarl_iql") for env in ENVS),
        *((env, t) for env in ("arena_v0", "probe_p10_v0", "probe_p11_v0") for t in TRAINERS),
    ],
)
def test_it_runs_or_names_what_runs(env: str, trainer: str, tmp_path: Path) -> None:
    said = outcome(env, trainer, tmp_path / "run")
    refuses = not make_rules(env).simultaneous
    refuses |= env == "probe_p11_v0" and trainer in ("benchmarl_vdn", "benchmarl_qmix")
    assert said == (f"corral train {env} --trainer mappo" if refuses else "runs")


@pytest.mark.parametrize("trainer", TRAINERS)
@pytest.mark.parametrize(
    ("name", "returns"),
    [("probe_p10_v0", [2, 4]), ("probe_p15_v0", [5, 50, 500])],  # agents that end early; sums
)
def test_returns_are_those_of_the_game(
    name: str, returns: list[float], trainer: str, tmp_path: Path
) -> None:
    """Rollouts of 3 steps: episodes are cut all the time."""
    run = trained(name, trainer, tmp_path / "run", n_steps=3)
    last = run.progress.iloc[-1]
    for i, expected in enumerate(returns):
        assert last[f"return_agent_{i}"] == pytest.approx(expected)
    assert last["return_team"] == pytest.approx(sum(returns))


# --- Masks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("trainer", TRAINERS)
def test_nothing_illegal_is_played(trainer: str, tmp_path: Path) -> None:
    """One mask lost, or one action of MASAC that is illegal, would raise."""
    run = trained("probe_p06_v0", trainer, tmp_path / "run", steps=512, num_envs=32)
    assert run.progress["kpi_illegal_actions"].dropna().eq(0).all()
    assert run.progress["env_steps"].iloc[-1] == 512


def test_masac_of_benchmarl_alone_chooses_illegal_actions() -> None:
    """Why LegalMasac is there; where this fails, BenchMARL has learned it."""
    logits, mask = torch.full((1000, 2), -40.0), torch.tensor([[True, False]]).expand(1000, 2)
    theirs = TheirCategorical(logits=logits, mask=mask, neg_inf=-18.0)
    assert (theirs.sample() == 1).any()
    assert (LegalCategorical(logits, mask).sample() == 0).all()


def test_the_distribution_of_masac_has_finite_sums() -> None:
    logits = torch.tensor([[0.0, 5.0, 1.0], [2.0, 0.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[True, False, True], [True, False, False]])
    found = LegalCategorical(logits, mask)
    assert found.probs[0, 1] == 0
    assert found.probs[1].tolist() == [1, 0, 0]
    loss = (found.probs * (found.logits - torch.ones(2, 3))).sum()  # as in TorchRL's losses
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(logits.grad).all()
    assert logits.grad[mask.logical_not()].eq(0).all()
    with pytest.raises(MaskError):
        LegalCategorical(logits, mask & False)


# --- Rewards -------------------------------------------------------------------------------------


def test_a_team_is_paid_the_sum_of_its_rewards() -> None:
    envs = [BatchEnv("probe_p15_v0", 2, seed=0, team_reward=team) for team in (False, True)]
    own, team = (env.rollout(3)["next", "agent", "reward"] for env in envs)
    assert own[0, 0, :, 0].tolist() == [1, 10, 100]
    assert team[0, 0, :, 0].tolist() == [111, 111, 111]


@pytest.mark.parametrize(("trainer", "first"), [("benchmarl_vdn", 1), ("benchmarl_iql", 0)])
def test_credit_goes_to_the_team_or_to_who_earned_it(
    trainer: str, first: int, tmp_path: Path
) -> None:
    """Probe 7: action 1 of agent 0 pays agent 1 two, its action 0 pays it one."""
    run = trained(
        "probe_p07_v0", trainer, tmp_path / "run", steps=1_500, num_envs=16, batch_size=64
    )
    env = corral.make("probe_p07_v0", illegal="raise")
    seen, _ = env.reset(seed=0)
    assert run.policies["agent_0"].act(seen["agent_0"], deterministic=True).action == first
    last = run.progress["return_agent_1"].iloc[-1]
    assert last > 1.5 if first else last < 0.5  # as it was played


# --- Seeds and resuming --------------------------------------------------------------------------


@pytest.mark.parametrize("trainer", ["benchmarl_qmix", "benchmarl_masac"])
def test_the_same_seed_learns_the_same(trainer: str, tmp_path: Path) -> None:
    first, again = (trained("probe_p06_v0", trainer, tmp_path / name) for name in "ab")
    other = trained("probe_p06_v0", trainer, tmp_path / "c", seed=2)
    assert weights(first) == weights(again)
    assert weights(first, ("policy",)) != weights(other, ("policy",))


@pytest.mark.parametrize("trainer", ["benchmarl_qmix", "benchmarl_masac"])
def test_a_run_is_resumed_with_all_that_it_learned(trainer: str, tmp_path: Path) -> None:
    run = trained("two_step_v0", trainer, tmp_path / "run", steps=64)
    kept = content(run)
    learner = run.begun()
    learner.load(kept)
    updates = learner.learn(64)
    assert list(updates) == []  # nothing is left; the experiment stands
    again = learner.save()
    learner.close()
    for file in ("policy_shared", "learning_shared"):
        for key, array in kept.arrays[file].items():
            assert np.array_equal(again.arrays[file][key], array), key
    assert any(key.startswith("adam.") for key in kept.arrays["learning_shared"])
    assert any("target_" in key for key in kept.arrays["learning_shared"])
    more = resume(run.folder, steps=160, stretch=True, progress=False)
    assert more.progress["env_steps"].iloc[-1] == 160
    assert content(more).arrays["policy_shared"].keys() == kept.arrays["policy_shared"].keys()
    assert weights(more, ("policy",)) != {
        f"policy_shared/{key}": a.tobytes() for key, a in kept.arrays["policy_shared"].items()
    }


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    run = trained("two_step_v0", "benchmarl_qmix", tmp_path / "run")
    kept = content(run)
    kept.arrays["learning_shared"].popitem()
    learner = run.begun()
    learner.load(kept)
    with pytest.raises(CheckpointError, match="learning_shared"):
        next(learner.learn(128))
    learner.close()


def test_policies_that_do_not_train_stay_as_they_are(tmp_path: Path) -> None:
    given = {"policies": "separate", "policies_to_train": ["agent_0"]}
    run = trained("two_step_v0", "benchmarl_iql", tmp_path / "run", **given)
    before, after = run.begun().save().arrays, content(run).arrays
    for policy, same in (("agent_0", False), ("agent_1", True)):
        pair = before[f"policy_{policy}"], after[f"policy_{policy}"]
        assert all(np.array_equal(pair[0][key], pair[1][key]) for key in pair[0]) is same
    assert "agent_0/value_loss" in run.progress
    assert "agent_1/value_loss" not in run.progress


# --- What BenchMARL pickles ----------------------------------------------------------------------


def test_a_maker_that_cannot_be_pickled_is_named(tmp_path: Path) -> None:
    rules = zoo_rules(lambda: two_step_v0.parallel_env())
    with refused(ArgumentError, rules.name, "BenchMARL", "lambda"):
        CorralTask("mine", rules=rules)
    with refused(ArgumentError, rules.name, "BenchMARL", "lambda"):
        trained(rules, "benchmarl_iql", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_third_party_environments_train(tmp_path: Path) -> None:
    run = trained(zoo_rules(two_step_v0.parallel_env), "benchmarl_qmix", tmp_path / "run")
    assert 0 <= run.progress["return_team"].iloc[-1] <= 8
