"""Runs of MAPPO and IPPO: a stop changes nothing, and what is read back plays the same."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

import corral
from corral.envs.batch import Batch
from corral.envs.dfaas_v0 import DfaasRules
from corral.errors import CheckpointError
from corral.trainers import session as training
from corral.trainers.driver import resume, train
from corral.trainers.on_policy.trainer import IPPO
from corral.trainers.runs.checkpoint import Content, latest_checkpoint, load_checkpoint
from support.mappo_teams import (
    CRITICS,
    ROLLOUT,
    content,
    make,
    run_of,
    separate,
)
from support.mask_rules import FifteenRules
from support.runs import everything, rows, weights
from support.thinned import fast_every
from support.turn_rules import MortalRules, PileRules

# --- Seeds and going on --------------------------------------------------------------------------

KINDS: dict[str, dict[str, Any]] = {
    "mappo": {},
    "ippo": {"trainer": IPPO},
    "memory": {"memory": 4},
    "actions": {"critic_input": "observations+actions", "memory": 4},
    "penalty": {"kl_coef": 0.5, "kl_target": 0.001, "ent_coef": 0.1, "ent_coef_end": 0.0},
}


@pytest.mark.parametrize("rules", fast_every(3, [PileRules, FifteenRules, MortalRules]))
@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_it_goes_on_bit_for_bit(kind: str, rules: Any) -> None:
    def fresh() -> Any:
        made = rules(illegal="raise") if rules is not FifteenRules else rules()
        return make(made, updates=4, n_steps=13, **KINDS[kind])

    whole = fresh()
    figures = [update.metrics for update in whole.learn()]
    trainer = fresh()
    told = []
    for _ in range(4):
        told.append(next(trainer.learn()).metrics)
        # Within an episode, and through the very bytes of a checkpoint.
        saved = trainer.save()
        documents = json.loads(json.dumps(saved.documents))
        trainer = fresh()
        trainer.load(Content(documents, saved.arrays))
        assert trainer.resumes_exactly
    assert told == figures
    assert trainer.env_steps == whole.env_steps
    next(trainer.learn(), None)  # the copies are restored when it goes on; here it is at its end
    first, second = content(whole), content(trainer)
    assert first == second


def test_a_seed_decides_everything_and_nothing_else_does() -> None:
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002
    torch.manual_seed(3)
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    one = make(PileRules(illegal="raise"), updates=2, memory=4)
    list(one.learn())
    one.policies["agent_0"].initial_state(1)
    after = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    assert before[0] == after[0]
    assert all(np.array_equal(a, b) for a, b in zip(before[1], after[1], strict=True))
    assert torch.equal(before[2], after[2])
    torch.manual_seed(4)
    again = make(PileRules(illegal="raise"), updates=2, memory=4)
    list(again.learn())
    assert content(one) == content(again)
    other = make(PileRules(illegal="raise"), updates=2, memory=4, seed=1)
    list(other.learn())
    assert (
        content(one)[1]["policy_shared.actor.head.weight"]
        != (content(other)[1]["policy_shared.actor.head.weight"])
    )


@pytest.mark.parametrize(
    "given",
    [
        {"trainer": "mappo"},
        {"trainer": "ippo", "policies": "separate"},
        {"env": PileRules(illegal="raise"), "memory": 4},
    ],
)
def test_a_run_that_was_stopped_goes_on_as_if_it_had_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any]
) -> None:
    whole = run_of(tmp_path / "whole", **given)
    show = training.Bar.show

    def and_stop(bar: Any, row: Any, *shown: Any) -> None:
        show(bar, row, *shown)
        if row["env_steps"] == 2 * ROLLOUT:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(training.Bar, "show", and_stop)
        with pytest.raises(KeyboardInterrupt):
            run_of(tmp_path / "run", **given)
    run = tmp_path / "run"
    assert len(rows(run)) == 2
    assert everything(run) != everything(whole)
    resume(run, env=given.get("env"))
    assert everything(run) == everything(whole)
    assert rows(run) == rows(whole)


def test_a_run_without_a_saved_environment_begins_new_episodes() -> None:
    learner = make(PileRules(illegal="raise"), updates=2, memory=4)
    next(learner.learn())
    saved = learner.save()
    documents = {"trainer": dict(saved.documents["trainer"])}
    del documents["trainer"]["environment"]
    other = make(PileRules(illegal="raise"), updates=2, memory=4)
    other.load(Content(documents, saved.arrays))
    assert not other.resumes_exactly
    (update,) = other.learn()
    assert update.env_steps == 2 * ROLLOUT


def test_checkpoints_that_do_not_fit_are_refused_before_anything_changes() -> None:
    learner = make(PileRules(illegal="raise"), updates=2, memory=4)
    next(learner.learn())
    saved = learner.save()
    for changes, named in (
        ({"net_arch": (17,)}, ("policy_shared", "'actor.layers.0.weight'", "(17, 5)")),
        ({"memory": 0}, ("policy_shared", "'actor.gru.weight_ih_l0'")),
        ({"memory": 5}, ("memory", "'shared.actor'", "(8, 5)")),
        ({"agent_id": False}, ("policy_shared", "'actor.layers.0.weight'", "(16, 3)")),
    ):
        other = make(PileRules(illegal="raise"), updates=2, **{"memory": 4, **changes})
        before = content(other)
        with refused(CheckpointError, *named):
            other.load(saved)
        assert content(other) == before
    other = make(PileRules(illegal="raise"), updates=2, memory=4)
    for missing in saved.documents["trainer"]:
        if missing == "environment":  # it may be missing: see above
            continue
        told = {key: v for key, v in saved.documents["trainer"].items() if key != missing}
        with pytest.raises(CheckpointError, match=missing):
            make(PileRules(illegal="raise"), memory=4).load(
                Content({"trainer": told}, saved.arrays)
            )
    for missing in saved.arrays:
        arrays = {file: found for file, found in saved.arrays.items() if file != missing}
        with pytest.raises(CheckpointError, match=missing):
            make(PileRules(illegal="raise"), memory=4).load(Content(saved.documents, arrays))
    fewer = make(PileRules(illegal="raise"), updates=2, memory=4, num_envs=3)
    with refused(CheckpointError, "memory", "'shared.actor'", "(6, 4)"):
        fewer.load(saved)
    other.load(saved)


# --- Runs ----------------------------------------------------------------------------------------


def test_a_run_is_read_back_evaluated_and_exported(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", policies={"node_0": "a", "node_1": "b", "node_2": "a"})
    seen = Batch(run.config.env_config.rules(), 8, 3).reset()
    chances = run.policies["node_0"].act(seen["node_0"], deterministic=True).extra["probabilities"]
    again = corral.load_run(run.folder).policies["node_0"]
    told = again.act(seen["node_0"], deterministic=True).extra["probabilities"]
    assert (told == chances).all()
    result = corral.evaluate(run, references=("local/equal",), optimum_windows=1)
    assert {score.policy for score in result} >= {"mappo, greedy", "mappo, sampled"}
    assert all(score.illegal_actions == 0 for score in result)
    paths = run.export("weights", tmp_path / "export")
    assert sorted(path.name for path in paths) == [
        *("a.json", "a.safetensors", "b.json", "b.safetensors", "manifest.json")
    ]
    from safetensors.numpy import load_file

    arrays = load_file(tmp_path / "export" / "a.safetensors")
    told_of = json.loads((tmp_path / "export" / "a.json").read_text())
    assert told_of["agents"] == ["node_0", "node_2"]
    # Played by hand, layer by layer.
    hidden = np.concatenate([seen["node_0"]["observation"], np.tile([1.0, 0.0], (8, 1))], axis=1)
    hidden = np.maximum(hidden @ arrays["layers.0.weight"].T + arrays["layers.0.bias"], 0)
    logits = hidden @ arrays["head.weight"].T + arrays["head.bias"]
    legal = seen["node_0"]["action_mask"] == 1
    powers = np.where(legal, np.exp(logits - logits.max(axis=1, keepdims=True)), 0)
    assert powers / powers.sum(axis=1, keepdims=True) == pytest.approx(chances, abs=1e-5)


@pytest.mark.slow
def test_no_stable_baselines_is_needed(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys\n"
        "for name in ('stable_baselines3', 'sb3_contrib', 'supersuit'): sys.modules[name] = None\n"
        "import corral\n"
        f"corral.train('dfaas_v0', trainer='ippo', steps=64, num_envs=4, n_steps=16, "
        f"out={str(tmp_path / 'run')!r})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_it_comes_near_the_optimum_of_the_bundled_trace(tmp_path: Path) -> None:
    run = train("dfaas_v0", trainer="mappo", steps=150_000, seed=1, out=tmp_path / "run")
    result = corral.evaluate(run, references=("overflow/equal",), optimum_windows=1)
    shares = {score.policy: score.share_of_optimum for score in result}
    assert shares["mappo, greedy"] > 0.995
    assert isinstance(run.config.env_config.rules(), DfaasRules)


def test_third_party_environments_are_played_through_zoo_batches() -> None:
    zoo = pytest.importorskip("corral.adapters.zoo.batch")
    from support.zoo_envs import MixedEnv

    with zoo.make_zoo_batch(MixedEnv, 2, 0) as batch:
        rules = batch.rules

    def many(rules: Any, num_envs: int, seed: int) -> Any:
        return zoo.make_zoo_batch(MixedEnv, num_envs, seed)

    for critic_input in CRITICS:
        learner = make(
            rules,
            updates=2,
            policies=separate(rules),
            make_batch=many,
            critic_input=critic_input,
            memory=4,
        )
        updates = list(learner.learn())
        learner.close()
        assert not learner.resumes_exactly
        assert "environment" not in learner.save().documents["trainer"]
        assert sum(len(update.episodes) for update in updates) >= 8
        assert np.isfinite([*updates[-1].metrics.values()]).all()


def test_weights_of_a_run_are_those_of_its_seed(tmp_path: Path) -> None:
    first, again = run_of(tmp_path / "a", 2, seed=3), run_of(tmp_path / "b", 2, seed=3)
    other = run_of(tmp_path / "c", 2, seed=4)
    assert everything(first) == everything(again)
    heads = [weights(run)["policy_shared.actor.head.weight"] for run in (first, other)]
    assert heads[0] != heads[1]


def run_of_arena(folder: Path) -> Any:
    settings = {"num_envs": 2, "n_steps": 16, "seed": 0, "policies": "separate"}
    return train("arena_v0", trainer="mappo", steps=64, out=folder / "run", **settings)


@pytest.mark.slow
def test_to_evaluate_a_run_brings_no_compiler(tmp_path: Path) -> None:
    """torch._dynamo takes over a second to import, and an optimizer brings it."""
    run = run_of_arena(tmp_path)
    code = (
        "import sys, corral\n"
        f"rows = corral.evaluate({str(run.folder)!r}, episodes=2)\n"
        "assert rows\n"
        "print('torch' in sys.modules, 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split()[-2:] == ["True", "False"]


def test_moments_wait_for_the_optimizer(tmp_path: Path) -> None:
    """Whether or not a trainer has had to optimize before, it goes on alike."""
    run = run_of_arena(tmp_path)
    saved = load_checkpoint(latest_checkpoint(run.folder / "checkpoints"))
    fresh: Any = run.begun()
    used: Any = run.begun()
    for learner in used.learners.values():
        assert learner.optimizer is learner.optimizer
    for trainer in (fresh, used):
        trainer.load(saved)
        assert "optimizer" not in vars(next(iter(trainer.learners.values())))
        again = trainer.save()
        for name in (f"{part}_agent_{i}" for part in ("policy", "optimizer") for i in (1, 2)):
            assert again.arrays[name].keys() == saved.arrays[name].keys()
            for key, values in again.arrays[name].items():
                assert values.tobytes() == saved.arrays[name][key].tobytes()
    assert any(key.endswith("exp_avg") for key in saved.arrays["optimizer_agent_1"])
