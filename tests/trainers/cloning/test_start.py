"""``--init``: what a run takes from another, what it says of it, and what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.adapters import make_batch
from corral.envs.registry import make_rules
from corral.errors import CheckpointError, CorralError, RunError
from corral.trainers.runs.checkpoint import load_checkpoint

SMALL: dict[str, Any] = {
    "num_envs": 4,
    "n_steps": 16,
    "n_epochs": 1,
    "net_arch": (16,),
    "progress": False,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> corral.trainers.Run:
    folder = tmp_path_factory.mktemp("runs") / "first"
    return corral.train("dfaas_v0", steps=128, out=folder, keep="all", **SMALL)


def weights(run: Any, policy: str = "shared") -> dict[str, Any]:
    return load_checkpoint(run.checkpoint()).arrays[f"policy_{policy}"]


def begun(folder: Path, init: Any, **given: Any) -> Any:
    """A run of no learning rate: it keeps the weights that it began with."""
    settings = {**SMALL, "learning_rate": 0.0, "steps": 64, **given}
    return corral.train("dfaas_v0", out=folder, init=init, **settings)


def test_actor_critic_and_values_are_taken(run: Any, tmp_path: Path) -> None:
    other = begun(tmp_path / "a", run.folder)
    before, after = weights(run), weights(other)
    for name in before:
        if not name.startswith("value_norm."):  # which goes on counting
            assert np.array_equal(before[name], after[name]), name
    fresh = weights(corral.load_run(f"{other.folder}@0"))
    assert all(np.array_equal(before[name], fresh[name]) for name in before)
    assert other.config.init is not None
    assert other.config.init["checkpoint"] == "step_000000000128"
    assert len(other.config.init["digest"]) == 64


def test_what_was_taken_is_said(
    run: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begun(tmp_path / "a", f"{run.folder}@64")
    said = capsys.readouterr().err
    shown(said, "step_000000000064", "shared", "taken")
    assert said.count("fresh") == 1  # the optimizer
    begun(tmp_path / "b", run, trainer="ippo")
    said = capsys.readouterr().err
    shown(said, "fresh", "'own'", "'state'")
    begun(tmp_path / "c", run, init_critic=False)
    assert capsys.readouterr().err.count("fresh") == 3  # the critic, its normalizer, the optimizer


def test_a_fresh_critic_is_that_of_a_run_from_nothing(run: Any, tmp_path: Path) -> None:
    other = weights(begun(tmp_path / "a", run, init_critic=False, seed=5))
    nothing = weights(begun(tmp_path / "b", None, seed=5))
    for name in nothing:
        same = run if name.startswith("actor.") else None
        expected = weights(same)[name] if same else nothing[name]
        if not name.startswith("value_norm."):
            assert np.array_equal(other[name], expected), name


@pytest.mark.parametrize("critic_input", ["state", "observations"])
def test_separate_policies_start_from_a_shared_one_and_play_alike(
    critic_input: str, tmp_path: Path
) -> None:
    settings = {**SMALL, "critic_input": critic_input}
    first = corral.train("dfaas_v0", steps=128, out=tmp_path / "first", **settings)
    other = begun(tmp_path / "a", first, policies="separate", critic_input=critic_input)
    batch = make_batch("dfaas_v0", num_envs=8, seed=1)
    observations = batch.reset()
    for agent, obs in observations.items():
        one, two = (each.policies[agent].act(obs, deterministic=True) for each in (first, other))
        assert np.allclose(one.extra["probabilities"], two.extra["probabilities"], atol=1e-6)
    values = [each._trained().values(observations, batch.global_state()) for each in (first, other)]
    for agent in observations:
        before, after = (each[agent] for each in values)
        assert np.corrcoef(before, after)[0, 1] > 0.99


def test_mappo_starts_from_a_clone(tmp_path: Path) -> None:
    clone = corral.clone("dfaas_v0", "overflow", steps=64, out=tmp_path / "c", episodes=1, **SMALL)
    other = begun(tmp_path / "a", f"{clone.folder}@best")
    assert np.array_equal(weights(clone)["actor.head.bias"], weights(other)["actor.head.bias"])
    back = corral.clone(
        "dfaas_v0", "local", steps=64, out=tmp_path / "d", episodes=1, init=other.folder, **SMALL
    )
    assert back.config.init is not None


def test_a_run_that_started_from_another_goes_on_without_it(run: Any, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(run.folder, source)
    settings = {**SMALL, "steps": 64, "horizon": 256}
    whole = corral.train("dfaas_v0", out=tmp_path / "a", init=source, **settings | {"steps": 256})
    part = corral.train("dfaas_v0", out=tmp_path / "b", init=source, **settings)
    killed = tmp_path / "b" / "checkpoints" / "step_000000000064"
    shutil.rmtree(killed)  # as if it had ended before its first checkpoint
    (killed.parent / "latest").unlink()
    shutil.rmtree(source)
    part = corral.resume(part.folder, steps=256, progress=False)
    before, after = weights(whole), weights(part)
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_the_beginning_that_is_kept_no_longer_names_what_it_started_from(
    run: Any, tmp_path: Path
) -> None:
    other = begun(tmp_path / "a", run, steps=256, checkpoint_every=64, keep=1)
    with pytest.raises(CheckpointError):
        corral.load_run(f"{other.folder}@0").policies  # noqa: B018


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (
            {"net_arch": (32,)},
            ("--net-arch 16", "--net-arch 32"),
        ),
        ({"memory": 8}, ("--memory 0", "--memory 8")),
        ({"activation": "tanh"}, ("--activation relu", "--activation tanh")),
        ({"agent_id": False}, ("(16, 10)", "(16, 7)", "--agent-id")),
        ({"env_kwargs": {"trace": "edge8"}}, ("dfaas_v0", "node_2", "node_7")),
        ({"env_kwargs": {"max_level": 10}}, ("node_0", "(101,)", "(11,)")),
        ({"trainer": "sb3_ppo"}, ("sb3_ppo", "--init", "init=")),
        ({"init": "nowhere"}, ("nowhere", "does not exist")),
        ({"init": "{run}@best"}, ("best", "@64", "@128")),
        ({"init": "{run}@0"}, ("@latest",)),
        ({"init": "{run}@77"}, (77, "@64", "@128")),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_nothing(
    given: dict[str, Any], named: tuple[object, ...], run: Any, tmp_path: Path
) -> None:
    init = given.pop("init", "{run}").format(run=run.folder) if "init" in given else run.folder
    if given.get("trainer") == "sb3_ppo":
        pytest.importorskip("stable_baselines3")
        settings = {"num_envs": 4, "n_steps": 16, "progress": False}
    else:
        settings = {**SMALL, **given}
    before = sorted(run.folder.rglob("*"))
    settings |= {key: value for key, value in given.items() if key in ("trainer", "env_kwargs")}
    with refused((CorralError, ValueError), *named):
        corral.train("dfaas_v0", steps=64, out=tmp_path / "a", init=init, **settings)
    assert list(tmp_path.iterdir()) == []
    assert sorted(run.folder.rglob("*")) == before


def test_a_run_of_another_library_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("stable_baselines3")
    settings = {"num_envs": 4, "n_steps": 16, "batch_size": 64, "progress": False}
    other = corral.train("dfaas_v0", trainer="sb3_ppo", steps=64, out=tmp_path / "a", **settings)
    with refused(RunError, "sb3_ppo", f"corral clone dfaas_v0 --from {other.folder}"):
        begun(tmp_path / "b", other)
    assert not (tmp_path / "b").exists()


def test_policies_that_no_name_leads_to_are_named(run: Any, tmp_path: Path) -> None:
    separate = begun(tmp_path / "a", run, policies="separate")
    with refused(RunError, "shared", "policies='separate'"):
        begun(tmp_path / "b", separate)
    one = {"node_0": "node_1", "node_1": "node_0", "node_2": "node_2"}
    swapped = begun(tmp_path / "c", separate, policies=one)
    assert np.array_equal(
        weights(swapped, "node_0")["actor.head.bias"],
        weights(separate, "node_0")["actor.head.bias"],
    )


def test_other_spaces_are_compared_by_rules(run: Any) -> None:
    from corral.trainers.cloning.teachers import require_same_spaces

    require_same_spaces(run, make_rules("dfaas_v0"), "starts from")


def test_what_nobody_gives_is_that_of_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {key: value for key, value in SMALL.items() if key != "net_arch"}
    kwargs = {"max_cycles": 12, "route": "two"}
    made = {"net_arch": (8, 8), "activation": "tanh", "memory": 4, "agent_id": False}
    first = corral.train(
        "dfaas_v0", steps=64, out=tmp_path / "first", env_kwargs=kwargs, **small, **made
    )
    other = corral.train("dfaas_v0", steps=64, out=tmp_path / "a", init=first.folder, **small)
    assert {key: other.config.settings[key] for key in made} == made
    assert {key: other.config.env_config.env_kwargs[key] for key in kwargs} == kwargs
    said = capsys.readouterr().err
    shown(said, *(f"{key}={value}" for key, value in kwargs.items()), "net_arch=8,8")
    given = {"max_cycles": 24}
    other = corral.train(
        "dfaas_v0", steps=64, out=tmp_path / "b", init=first, env_kwargs=given, **small
    )
    assert other.config.env_config.env_kwargs["max_cycles"] == 24
    assert other.config.env_config.env_kwargs["route"] == "two"


def test_a_preset_does_not_wash_a_clone_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {**SMALL, "num_envs": 8}
    clone = corral.clone(
        "tictactoe_v0", "perfect", steps=128, out=tmp_path / "c", episodes=1, **small
    )
    run = corral.train("tictactoe_v0", steps=128, init=clone, out=tmp_path / "a", **small)
    assert run.config.settings["ent_coef"] == 0.0
    assert run.config.settings["ent_coef_end"] is None
    shown(capsys.readouterr().err, "--ent-coef")
    run = corral.train("tictactoe_v0", steps=128, init=run, out=tmp_path / "b", **small)
    assert run.config.settings["ent_coef"] == 0.3  # that run is no clone


def test_no_critic_is_left_out_of_nothing(tmp_path: Path) -> None:
    with refused(ValueError, "init_critic=False", "init="):
        corral.train("dfaas_v0", steps=64, out=tmp_path / "a", init_critic=False, **SMALL)
