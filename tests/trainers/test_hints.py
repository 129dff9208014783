"""corral.train says which name was meant: of other libraries, of the environment, of trainers."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra sb3")

import corral
from corral.errors import UnknownNameError
from corral.hints import OTHERS, SPELLINGS, answer, hint, meant
from corral.trainers.base import BUILT_IN, trainer_class
from corral.trainers.settings import unknown_setting


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"total_timesteps": 10}, "'total_timesteps'; did you mean 'steps'?"),
        ({"n_envs": 4}, "'n_envs'; did you mean 'num_envs'?"),
        ({"algo": "ppo"}, "'algo'; did you mean 'trainer'?"),
        ({"lr": 1e-3}, "'lr'; did you mean 'learning_rate'?"),
        ({"env_config": {}}, "'env_config'; did you mean 'env_kwargs'?"),
        ({"save_freq": 10}, "did you mean 'checkpoint_every'?"),
        ({"eval_freq": 10}, "Evaluation is a step of its own: corral evaluate RUN, or corral.eval"),
        ({"eval_env": None}, "Evaluation is a step of its own"),
        ({"callback": print}, "'callback'; did you mean 'callbacks'"),
        ({"load_path": "x"}, r"'load_path'. A run goes on with corral.resume\(run\)"),
        ({"resume": "x"}, r"'resume'. A run goes on with corral.resume\(run\)"),
        ({"overwrite": True}, "'overwrite'. A run's folder is new or empty: leave out out"),
        ({"exist_ok": True}, "'exist_ok'. A run's folder is new or empty"),
        ({"policy": "MlpPolicy"}, "did you mean 'policies'.* layers are net_arch"),
        (
            {"normalize_advantage": True},
            "no normalize_advantage; sb3_a2c has it. Advantages are always",
        ),
        ({"verbose": 1}, "did you mean 'progress'?"),
        ({"trace": "edge8"}, "argument of the environment: give env_kwargs={'trace': 'edge8'}"),
        ({"queue": 50}, "queue is an argument of the environment: give env_kwargs={'queue': 50}"),
        ({"env_kwargs": {"gamma": 0.5}}, "env_kwargs holds 'gamma', .* gamma=0.5 to corral.train"),
        ({"env_kwargs": {"steps": 5}}, "env_kwargs holds 'steps', .* steps=5 to corral.train"),
        ({"memory": 32}, "trainer sb3_ppo has no memory; mappo, ippo, .* have it"),
        ({"trainer": "mappo", "vf_coef": 1}, "has no vf_coef; sb3_ppo, .* needs no weight"),
        ({"trainer": "mappo", "batch_size": 64}, "'n_minibatches'.* num_envs times n_steps, is"),
    ],
)
def test_names_given_to_train(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        corral.train("dfaas_v0", **{"trainer": "sb3_ppo", **given})


def test_unknown_arguments_of_environments_of_others() -> None:
    with pytest.raises(TypeError, match=r"given as env_kwargs=\{'size': 6\}"):
        corral.train("support.zoo_envs:RingEnv", trainer="mappo", size=6)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"n_eval_episodes": 3}, "no option 'n_eval_episodes'; did you mean 'episodes'"),
        ({"deterministic": True}, "no option 'deterministic'.* an evaluation plays both ways"),
        (
            {"wndow": 3},
            "'wndow'; did you mean 'window'.*Known: run, env, .*references, trace, rows",
        ),
    ],
)
def test_names_given_to_evaluate(given: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        corral.evaluate("none", **given)


@pytest.mark.parametrize(
    ("env", "trainer", "message"),
    [
        ("dfaas", "sb3_ppo", "did you mean 'dfaas_v0'"),
        ("DFaaS-v0", "sb3_ppo", "did you mean 'dfaas_v0'"),
        ("rock_paper_scissors", "sb3_ppo", "did you mean 'rps_v0'"),
        ("tictactoe_v1", "sb3_ppo", "did you mean 'tictactoe_v0'"),
        ("dfaas_v0", "MAPPO", "did you mean 'mappo'"),
        ("dfaas_v0", "maskable_ppo", "did you mean 'sb3_maskable_ppo'"),
    ],
)
def test_names_of_environments_and_trainers(env: str, trainer: str, message: str) -> None:
    with pytest.raises(UnknownNameError, match=message):
        corral.train(env, trainer=trainer)


def test_a_near_name_stands_alone_where_many_are_known() -> None:
    many = [f"game_{number}" for number in range(38)] + ["tictactoe"]
    assert str(UnknownNameError.of("game", "tictacto", many)) == (
        "no game named 'tictacto'; did you mean 'tictactoe'? There are 39."
    )
    assert "Known: game_0, " in str(UnknownNameError.of("game", "xyz", many))
    assert "Known: a" in str(UnknownNameError.of("game", "a1", ["a1b", "a"]))


# --- The table -----------------------------------------------------------------------------------


def test_the_nearest_name_counts_where_no_spelling_is_known() -> None:
    assert meant("gama", ["gamma", "gae_lambda"]) == ["gamma"]
    assert meant("GAMMA", ["gamma", "gae_lambda"]) == ["gamma"]
    assert meant("xyz", ["gamma"]) == []
    assert meant("--n-envs", ["--ansi"]) == []
    assert meant("x" * 10**6, ["x" * 10**6 + "y"]) == []
    assert hint("xyz", ["gamma"]) == "."
    assert hint("--lr", ["--learning-rate"]) == "; did you mean '--learning-rate'?"
    assert answer("eval_freq", ["ent_coef"]).startswith(". Evaluation is a step of its own")


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
        for name in inspect.signature(inspect.unwrap(command.callback)).parameters
    }
    assert set(SPELLINGS) - known - commands - options == set()
    assert len(OTHERS) == len(SPELLINGS)


def test_other_trainers_are_named() -> None:
    assert unknown_setting("runners", "mappo", ["gamma"]) == (
        "trainer mappo has no runners; rllib_ppo has it."
    )


@pytest.mark.parametrize("given", ["qmix", "QMIX", "vdn", "masac", "iql"])
def test_trainers_of_benchmarl_are_known_by_their_algorithms(given: str) -> None:
    with pytest.raises(UnknownNameError, match=rf"did you mean 'benchmarl_{given.lower()}'\?"):
        trainer_class(given)
