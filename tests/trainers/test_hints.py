"""corral.train says which name was meant: of other libraries, of the environment, of trainers."""

from __future__ import annotations

from typing import Any

import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra sb3")

import corral
from corral.errors import UnknownNameError
from corral.hints import OTHERS, SPELLINGS, answer, hint, meant
from corral.trainers.base import BUILT_IN, trainer_class
from corral.trainers.settings import unknown_setting


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"total_timesteps": 10}, ("'total_timesteps'", "'steps'")),
        ({"n_envs": 4}, ("'n_envs'", "'num_envs'")),
        ({"algo": "ppo"}, ("'algo'", "'trainer'")),
        ({"lr": 1e-3}, ("'lr'", "'learning_rate'")),
        ({"env_config": {}}, ("'env_config'", "'env_kwargs'")),
        ({"save_freq": 10}, ("'save_freq'", "'checkpoint_every'")),
        ({"eval_freq": 10}, ("'eval_freq'", "corral evaluate RUN", "corral.evaluate(run)")),
        ({"eval_env": None}, ("'eval_env'", "corral evaluate RUN")),
        ({"callback": print}, ("'callback'", "'callbacks'")),
        ({"load_path": "x"}, ("'load_path'", "corral.resume(run)")),
        ({"resume": "x"}, ("'resume'", "corral.resume(run)")),
        ({"exist_ok": True}, ("'exist_ok'", "'overwrite'")),
        ({"policy": "MlpPolicy"}, ("'policy'", "'policies'", "net_arch")),
        (
            {"normalize_advantage": True},
            ("sb3_ppo", "normalize_advantage", "sb3_a2c"),
        ),
        ({"verbose": 1}, ("'verbose'", "'progress'")),
        ({"trace": "edge8"}, ("trace", "env_kwargs={'trace': 'edge8'}")),
        ({"queue": 50}, ("queue", "env_kwargs={'queue': 50}")),
        ({"env_kwargs": {"gamma": 0.5}}, ("env_kwargs", "'gamma'", "gamma=0.5", "corral.train")),
        ({"env_kwargs": {"steps": 5}}, ("env_kwargs", "'steps'", "steps=5", "corral.train")),
        ({"memory": 32}, ("sb3_ppo", "memory", "mappo", "pg_episode")),
        ({"trainer": "mappo", "vf_coef": 1}, ("vf_coef", "sb3_ppo")),
        ({"trainer": "mappo", "batch_size": 64}, ("'n_minibatches'", "num_envs", "n_steps")),
    ],
)
def test_names_given_to_train(given: dict[str, Any], named: tuple[object, ...]) -> None:
    with refused(TypeError, *named):
        corral.train("dfaas_v0", **{"trainer": "sb3_ppo", **given})


def test_the_number_of_agents_is_no_setting() -> None:
    with refused(TypeError, "'num_agents'", "env_kwargs", "max_cycles") as caught:
        corral.train("arena_v0", num_agents=2)
    assert "'num_envs'" not in str(caught.value)


def test_unknown_arguments_of_environments_of_others() -> None:
    with refused(TypeError, "env_kwargs={'size': 6}"):
        corral.train("support.zoo_envs:RingEnv", trainer="mappo", size=6)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"n_eval_episodes": 3}, ("'n_eval_episodes'", "'episodes'")),
        ({"deterministic": True}, ("'deterministic'",)),
        (
            {"wndow": 3},
            ("'wndow'", "'window'", "env", "references", "rows"),
        ),
    ],
)
def test_names_given_to_evaluate(given: dict[str, Any], named: tuple[object, ...]) -> None:
    with refused(TypeError, *named):
        corral.evaluate("none", **given)


@pytest.mark.parametrize(
    ("env", "trainer", "named"),
    [
        ("dfaas", "sb3_ppo", ("'dfaas_v0'",)),
        ("DFaaS-v0", "sb3_ppo", ("'dfaas_v0'",)),
        ("rock_paper_scissors", "sb3_ppo", ("'rps_v0'",)),
        ("tictactoe_v1", "sb3_ppo", ("'tictactoe_v0'",)),
        ("dfaas_v0", "MAPPO", ("'mappo'",)),
        ("dfaas_v0", "maskable_ppo", ("'sb3_maskable_ppo'",)),
    ],
)
def test_names_of_environments_and_trainers(
    env: str, trainer: str, named: tuple[object, ...]
) -> None:
    with refused(UnknownNameError, *named):
        corral.train(env, trainer=trainer)


def test_a_near_name_stands_alone_where_many_are_known() -> None:
    many = [f"game_{number}" for number in range(38)] + ["tictactoe"]
    near = shown(str(UnknownNameError.of("game", "tictacto", many)), "'tictactoe'", 39)
    assert "game_0" not in near
    shown(str(UnknownNameError.of("game", "xyz", many)), "'xyz'", "game_0", "game_37")
    shown(str(UnknownNameError.of("game", "a1", ["a1b", "a"])), "'a1b'", "a")


# --- The table -----------------------------------------------------------------------------------


def test_the_nearest_name_counts_where_no_spelling_is_known() -> None:
    assert meant("gama", ["gamma", "gae_lambda"]) == ["gamma"]
    assert meant("GAMMA", ["gamma", "gae_lambda"]) == ["gamma"]
    assert meant("xyz", ["gamma"]) == []
    assert meant("--n-envs", ["--ansi"]) == []
    assert meant("x" * 10**6, ["x" * 10**6 + "y"]) == []
    assert hint("xyz", ["gamma"]) == "."
    assert hint("--lr", ["--learning-rate"]) == "; did you mean '--learning-rate'?"
    assert answer("eval_freq", ["ent_coef"]).startswith(". Evaluation is a separate step")


def test_a_name_of_a_trainer_is_never_taken_for_another() -> None:
    for trainer in BUILT_IN:
        known = list(trainer_class(trainer).Settings.__dataclass_fields__)
        for name in known:
            assert meant(name, known) == [name]


def test_every_spelling_leads_to_a_name_that_there_is() -> None:
    import inspect

    from corral.cli.app import app
    from corral.envs.registry import ENVIRONMENTS, rules_class

    known = set(inspect.signature(corral.train).parameters) | set(ENVIRONMENTS) | set(BUILT_IN)
    for trainer in BUILT_IN:
        known |= set(trainer_class(trainer).Settings.__dataclass_fields__)
    for env in ENVIRONMENTS:
        known |= set(inspect.signature(rules_class(env)).parameters)
    commands = {command.callback.__name__ for command in app.registered_commands} | {"trace"}
    options = {
        name
        for command in app.registered_commands
        for name in inspect.signature(command.callback.completed()).parameters
    }
    assert set(SPELLINGS) - known - commands - options - set(corral.__all__) == set()
    assert len(OTHERS) == len(SPELLINGS)


def test_other_trainers_are_named() -> None:
    assert unknown_setting("runners", "mappo", ["gamma"]) == (
        "trainer mappo has no runners; rllib_ppo has it."
    )


@pytest.mark.parametrize("given", ["qmix", "QMIX", "vdn", "masac", "iql"])
def test_trainers_of_benchmarl_are_known_by_their_algorithms(given: str) -> None:
    with refused(UnknownNameError, f"'{given}'", f"'benchmarl_{given.lower()}'"):
        trainer_class(given)


def test_names_of_rllib_lead_to_settings_of_a_rollout_and_of_a_schedule() -> None:
    names = ["--n-steps", "--num-envs", "--ent-coef", "--ent-coef-end", "--net-arch"]
    shown(answer("--train-batch-size-per-learner", names), "--n-steps", "--num-envs")
    shown(answer("--entropy-coeff-schedule", names), "--ent-coef", "0:0.1,20000:0")
