"""Defaults by the kind of a game: what is found of it, what it gives, and what goes before it."""

from __future__ import annotations

import dataclasses
import functools
import json
import random
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from gymnasium import spaces
from pettingzoo import ParallelEnv

from support.messages import refused, shown
from support.thinned import fast_every

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.adapters import zoo_rules
from corral.adapters.sources import rules_of
from corral.envs.registry import ENVIRONMENTS, make_rules
from corral.errors import UnknownNameError
from corral.trainers import kinds, plan
from corral.trainers.base import trainer_class
from corral.trainers.kinds import MAX_STEPS, PRESETS, Kind, defaults_for, kind_of
from corral.trainers.on_policy.settings import MAPPOSettings
from support.command import within
from support.runs import everything
from support.turn_rules import PileRules

MAPPO, IPPO, SB3 = (trainer_class(name) for name in ("mappo", "ippo", "sb3_ppo"))
SMALL: dict[str, Any] = {"num_envs": 4, "n_steps": 16, "n_minibatches": 2, "n_epochs": 1}
SELF_PLAY: dict[str, Any] = {
    "gamma": 1.0,
    "ent_coef": 0.3,
    "ent_coef_end": 0.1,
    "net_arch": (128, 128),
}


class PlainEnv(ParallelEnv[str, Any, Any]):  # type: ignore[misc]  # PettingZoo ships no types
    """Two agents that are paid by coins of NumPy's global generator, for ``length`` steps.

    ``pays`` says of a step's number whether it pays; without ``length`` it never ends.
    """

    metadata: ClassVar[dict[str, Any]] = {"name": "plain_v0", "is_parallelizable": True}
    render_mode = None

    def __init__(self, length: int | None = 60, pays: Any = lambda step: True) -> None:
        self.possible_agents = ["a", "b"]
        self.length, self.pays = length, pays

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Box(0, 1, (1,), np.float32)

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        self.agents, self.t = list(self.possible_agents), 0
        return self._all(np.zeros(1, np.float32)), self._all({})

    def step(self, actions: Mapping[str, Any]) -> tuple[Any, Any, Any, Any, Any]:
        self.t += 1
        coins = random.random(), np.random.random()  # noqa: NPY002
        paid = 0.5 + sum(coins) if self.pays(self.t) else 0.0
        seen = self._all(np.array([coins[1]], np.float32))
        over = self._all(self.t == self.length)
        shown = (seen, self._all(paid), over, self._all(False), self._all({}))
        if self.t == self.length:
            self.agents = []
        return shown

    def _all(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, value)


class BrokenEnv(PlainEnv):
    """Its second reset raises: the first is for its spaces."""

    resets = 0

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        BrokenEnv.resets += 1
        if BrokenEnv.resets > 1:
            raise LookupError("no board left")
        return super().reset(seed, options)


def kind_of_plain(**given: Any) -> Kind:
    return kind_of(zoo_rules(functools.partial(PlainEnv, **given)), seed=0)  # type: ignore[arg-type]


# --- What is found -------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", fast_every(4, range(4)))
def test_environments_of_corral_are_reached_by_their_kind(seed: int) -> None:
    found = {name: defaults_for(make_rules(name), MAPPO, seed) for name in ENVIRONMENTS}
    assert {name: each.names for name, each in found.items()} == {
        "dfaas_v0": ("dfaas_v0",),
        "arena_v0": ("every-step",),
        "tictactoe_v0": ("self-play",),
        "rps_v0": (),
        "tiles_v0": ("images",),
        "two_step_v0": (),
    }
    assert found["dfaas_v0"].settings == {"gamma": 0.5}
    assert found["tictactoe_v0"].settings == {"num_envs": 256, "n_steps": 32, **SELF_PLAY}
    assert found["tiles_v0"].settings["cnn_patch"] == 8


@pytest.mark.parametrize(
    ("env", "arguments", "grids", "names", "filters"),
    [
        ("tictactoe_v0", {}, ((3, 3),), ("self-play",), None),
        ("tictactoe_v0", {"size": 5, "line": 4}, ((5, 5),), ("self-play",), None),
        ("tictactoe_v0", {"size": (6, 7)}, ((6, 7),), ("self-play", "boards"), (16, 16)),
        ("arena_v0", {}, (), ("every-step",), None),
        ("tictactoe_v0", {"size": (6, 22)}, ((6, 22),), ("self-play",), None),
        ("arena_v0", {"planes": True}, ((10, 10),), ("every-step",), None),
    ],
)
def test_boards_of_medium_size_get_a_cnn(
    env: str, arguments: dict[str, Any], grids: Any, names: Any, filters: Any
) -> None:
    found = defaults_for(make_rules(env, **arguments), MAPPO, 0)
    assert found.kind is not None
    assert (found.kind.grids, found.names) == (grids, names)
    assert found.settings.get("grid_arch") == filters
    for height, width in grids:
        shown(found.words(), f"{height} x {width}")
    assert (
        defaults_for(make_rules(env, **arguments), SB3, 0)
        .settings.keys()
        .isdisjoint({"grid_arch", "gae_lambda"})
    )


def test_long_games_on_boards_look_ahead() -> None:
    kind = kind_of(make_rules("tictactoe_v0", size=(6, 7)), seed=0)
    assert PRESETS["boards"].suits(kind)
    assert not PRESETS["boards"].suits(dataclasses.replace(kind, length=80.0))
    assert not PRESETS["boards"].suits(dataclasses.replace(kind, length=None))


@pytest.mark.parametrize(
    ("name", "presets"),
    [("connect_four_v3", ("self-play", "boards")), ("tictactoe_v3", ("self-play",))],
)
def test_a_board_game_of_others_is_reached_too(name: str, presets: tuple[str, ...]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rules = rules_of(f"pettingzoo.classic.{name}")
    kind = kind_of(rules, seed=0)
    assert (kind.in_turn, kind.agents, kind.zero_sum, kind.paid, kind.episodes) == (
        *(True, 2, True),
        *("at the end", 20),
    )
    assert defaults_for(rules, MAPPO, 1).names == presets


@pytest.mark.parametrize(
    ("given", "paid"),
    [
        ({}, "at the end"),
        ({"gift": 0.1}, "in every step"),
        ({"stones": (1, 3), "takes": (3, 3)}, "after one move"),
        ({"stones": (5000, 5001)}, None),
    ],
)
def test_when_a_game_in_turns_is_paid(given: dict[str, Any], paid: str | None) -> None:
    kind = kind_of(PileRules(**given), seed=3)
    assert kind.paid == paid
    assert kind.in_turn


def test_when_a_game_of_others_is_paid() -> None:
    assert kind_of_plain().paid == "in every step"
    assert kind_of_plain(pays=lambda step: step == 60).paid == "at the end"
    assert kind_of_plain(pays=lambda step: step in (59, 60)).paid == "now and then"
    assert kind_of_plain(pays=lambda step: False).paid is None
    assert kind_of_plain(length=1).length == 1


def test_the_last_moves_of_both_are_the_end_of_a_game_in_turns() -> None:
    played = kinds._Played(last=2)
    for rewards in ([0, 0, 1, 1], [0, 0, 0, 1]):
        for i, reward in enumerate(rewards):
            over = i == len(rewards) - 1
            finished = type("F", (), {"returns": np.array([[1.0, -1.0]])}) if over else None
            played.add(type("S", (), {"reward": np.array([[reward, 0]]), "finished": finished}))
    assert played.paid() == "at the end"
    assert played.lengths == [4, 4]


def test_a_game_that_never_ends_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    steps: list[int] = []
    make = functools.partial(PlainEnv, None, lambda step: steps.append(step))
    kind = kind_of(zoo_rules(make), seed=0)  # type: ignore[arg-type]
    assert (len(steps), kind.episodes, kind.length, kind.paid) == (MAX_STEPS, 0, None, None)
    run = corral.train(zoo_rules(make), steps=64, out=tmp_path / "run", **SMALL)
    said = capsys.readouterr().err
    shown(said, f"{MAX_STEPS:,}", 0)
    assert "--preset" not in said  # none is for it
    assert run.config.settings["gamma"] == MAPPOSettings().gamma


def test_nobody_acts() -> None:
    class Nobody(PileRules):
        def acting(self, state: Any) -> Any:
            return np.zeros_like(super().acting(state))

        def step(self, state: Any, action: Any) -> Any:
            outcome = super().step(state, action)
            outcome.terminated[:] = False
            outcome.reward[:] = 0.0
            return outcome

    kind = kind_of(Nobody(), seed=0)
    assert (kind.paid, kind.length) == (None, None)


def test_what_the_environment_raises_is_passed_on(tmp_path: Path) -> None:
    BrokenEnv.resets = 0
    with refused(LookupError, "board") as caught:
        corral.train(BrokenEnv, steps=64, out=tmp_path / "run", **SMALL)
    assert any('preset="none"' in note for note in caught.value.__notes__)
    assert not (tmp_path / "run").exists()


def test_nobody_elses_generator_is_drawn_from() -> None:
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = random.random(), np.random.random()  # noqa: NPY002
    random.seed(5)
    np.random.seed(5)  # noqa: NPY002
    first = kind_of_plain()
    assert (random.random(), np.random.random()) == expected  # noqa: NPY002
    assert kind_of_plain() == first


# --- What it gives -------------------------------------------------------------------------------


def test_presets_know_settings_of_the_trainers_alone() -> None:
    fields = {field.name for field in dataclasses.fields(MAPPOSettings)}
    for preset in PRESETS.values():
        assert set(preset.settings) <= fields
        assert all(len(why.split()) > 2 for _, why in preset.settings.values())
        MAPPOSettings(**preset.of(MAPPO))


def test_a_board_of_eight_is_no_image_of_squares() -> None:
    tiles = kind_of(make_rules("tiles_v0"), seed=0)
    assert tiles.sides == (32,)
    fits = {
        side: PRESETS["images"].suits(dataclasses.replace(tiles, sides=(side,)))
        for side in (8, 32, 84, 96)
    }
    assert fits == {8: False, 32: True, 84: False, 96: True}


def test_a_trainer_gets_the_settings_that_it_has() -> None:
    assert defaults_for(make_rules("dfaas_v0"), SB3, 0).settings == {"gamma": 0.5}
    assert "ent_coef_end" not in PRESETS["self-play"].of(SB3)
    # Small rollouts without their minibatches helped one seed and harmed another.
    assert defaults_for(make_rules("arena_v0"), SB3, 0).settings == {}


def test_data_that_is_replayed_keeps_its_large_rollouts() -> None:
    args = {"wait_cost": 0.1, "queue": 500, "forward_cost": 0.1, "max_cycles": 60}
    kind = kind_of(make_rules("dfaas_v0", **args), seed=0)
    every = dataclasses.replace(kind, paid="in every step", length=288.0)
    assert kind.data
    assert not PRESETS["every-step"].suits(every)
    assert PRESETS["every-step"].suits(dataclasses.replace(every, data=False))


@pytest.mark.parametrize(
    ("given", "presets"),
    [
        ({"length": 25}, {"team"}),
        ({"length": 25, "pays": lambda step: step == 25}, {"team"}),
        ({"length": 60, "pays": lambda step: step == 60}, {"team"}),
        ({"length": 60, "pays": lambda step: False}, {"team"}),
        ({"length": 60}, {"every-step"}),
        ({"length": 2}, set()),
        ({"length": 101, "pays": lambda step: step == 101}, set()),
    ],
)
def test_teams_are_simultaneous_games_without_opponents(
    given: dict[str, Any], presets: set[str]
) -> None:
    kind = kind_of_plain(**given)
    assert set(kinds.presets(kind, MAPPO)) == presets
    assert set(kinds.presets(kind, IPPO)) == presets
    assert set(kinds.presets(kind, SB3)) == set()
    changes: tuple[dict[str, Any], ...] = (
        *({"agents": 1}, {"equal_spaces": False}, {"unlike": True}),
        *({"zero_sum": True}, {"data": True}),
    )
    for change in changes:
        assert not PRESETS["team"].suits(dataclasses.replace(kind, **change))


def test_a_team_has_equal_spaces() -> None:
    class Mixed(PlainEnv):
        def action_space(self, agent: str) -> spaces.Space[Any]:
            return spaces.Discrete(2 if agent == "a" else 3)

    assert kind_of_plain(length=25).equal_spaces
    mixed = kind_of(zoo_rules(functools.partial(Mixed, 25)), seed=0)  # type: ignore[arg-type]
    assert not mixed.equal_spaces
    assert not kinds.presets(mixed, MAPPO)


@pytest.mark.parametrize("env", ["tictactoe_v0", "plain"])
def test_the_numbers_are_those_of_the_same_settings_given_by_hand(tmp_path: Path, env: str) -> None:
    name: Any = env if env == "tictactoe_v0" else zoo_rules(PlainEnv)
    own = {"plain": PRESETS["every-step"].of(MAPPO), "tictactoe_v0": SELF_PLAY}[env]
    runs = []
    for preset, by_hand in (("auto", {}), ("none", own), ("none", {})):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        out = tmp_path / f"{preset}{len(runs)}"
        given = {"steps": 128, "seed": 4, "preset": preset, "out": out, **by_hand, **SMALL}
        runs.append(corral.train(name, **given))
    assert runs[0].config.settings == runs[1].config.settings
    assert everything(runs[0]) == everything(runs[1])
    assert everything(runs[0]) != everything(runs[2])


def test_agents_that_are_paid_unlike_get_policies_of_their_own(tmp_path: Path) -> None:
    given: dict[str, Any] = {"steps": 64, **SMALL}
    found = {}
    for name, more in {
        "own": {},
        "none": {"preset": "none"},
        "said": {"policies": "shared"},
        "sb3": {"trainer": "sb3_ppo", "n_epochs": 1},
    }.items():
        small = {k: v for k, v in given.items() if name != "sb3" or k != "n_minibatches"}
        run = corral.train("arena_v0", out=tmp_path / name, **{**small, **more})
        found[name] = len(set(run.config.policies.values()))
    assert found == {"own": 2, "none": 1, "said": 1, "sb3": 1}
    assert not kind_of_plain().unlike


# --- What a run keeps, and what goes before it ---------------------------------------------------


def test_a_run_keeps_it_and_never_guesses_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = corral.train("tictactoe_v0", steps=64, out=tmp_path / "run", gamma=0.9, **SMALL)
    said = capsys.readouterr().err
    shown(said, "turn-based", 2, "zero-sum", 8, 20)
    shown(said, "self-play", "ent_coef=0.3", "ent_coef_end=0.1", "net_arch=(128, 128)", "--preset")
    saved = json.loads((run.folder / "config.json").read_text())
    assert saved["defaults"]["presets"] == ["self-play"]
    assert saved["defaults"]["kind"]["paid"] == "at the end"
    assert saved["defaults"]["settings"] == {
        **{"ent_coef": 0.3, "ent_coef_end": 0.1},
        **{"net_arch": [128, 128]},
    }
    assert (saved["settings"]["gamma"], saved["settings"]["ent_coef"]) == (0.9, 0.3)

    def guessed(*_: Any) -> Any:
        raise AssertionError("guessed anew")

    monkeypatch.setattr(kinds, "kind_of", guessed)
    monkeypatch.setattr(plan, "defaults_for", guessed)
    again = corral.resume(run.folder, steps=128)
    assert again.config.settings == saved["settings"]
    assert again.config.defaults == saved["defaults"]
    assert "Preset" not in capsys.readouterr().err


def test_a_run_from_before_there_were_kinds_is_read(tmp_path: Path) -> None:
    run = corral.train("tictactoe_v0", steps=64, out=tmp_path / "run", **SMALL)
    path = run.folder / "config.json"
    saved = json.loads(path.read_text())
    del saved["defaults"]
    path.write_text(json.dumps(saved))
    assert corral.load_run(run.folder).config.defaults == {}


def test_a_bonus_that_is_given_does_not_end_elsewhere(tmp_path: Path) -> None:
    run = corral.train("tictactoe_v0", steps=64, out=tmp_path / "run", ent_coef=0.01, **SMALL)
    assert run.config.settings["ent_coef_end"] is None


def test_a_preset_by_name_plays_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kinds, "kind_of", None)
    run = corral.train("rps_v0", steps=64, out=tmp_path / "run", preset="self-play", **SMALL)
    assert run.config.settings["ent_coef"] == 0.3
    assert run.config.defaults["kind"] is None
    shown(capsys.readouterr().err, "self-play", "gamma=1.0")


def test_a_preset_that_a_trainer_takes_nothing_of_says_so() -> None:
    @dataclasses.dataclass(frozen=True)
    class Settings:
        gamma: float = 0.9

    class Plain:
        name = "plain"

    Plain.Settings = Settings  # type: ignore[attr-defined]
    said = defaults_for(make_rules("rps_v0"), Plain, 0, "every-step").words()
    assert said == "Preset every-step changes nothing: trainer plain lacks some of its settings"
    assert "gamma=0.95" in defaults_for(make_rules("rps_v0"), Plain, 0, "images").words()


@pytest.mark.parametrize("preset", ["self-pley", "nune", None, 3])
def test_an_unknown_preset(tmp_path: Path, preset: Any) -> None:
    with refused(UnknownNameError, f"'{preset}'", "auto", "self-play") as caught:
        corral.train("rps_v0", steps=64, out=tmp_path / "run", preset=preset, **SMALL)
    assert not (tmp_path / "run").exists()
    if preset == "self-pley":
        shown(str(caught.value), "'self-play'")


# --- On the command line -------------------------------------------------------------------------


def test_the_command_takes_a_preset(tmp_path: Path) -> None:
    small = ("--steps", "64", "--num-envs", "4", "--n-steps", "16", "--n-epochs", "1")
    kept = {}
    for preset in ("auto", "none"):
        out = tmp_path / preset
        said = within("train", "tictactoe_v0", "--preset", preset, *small, "--out", out)
        assert ("ent_coef=0.3" in said) == (preset == "auto")
        kept[preset] = json.loads((out / "config.json").read_text())["settings"]["gamma"]
    assert kept == {"auto": 1.0, "none": 0.99}
    shown(within("train", "--resume", tmp_path / "auto", "--preset", "none", code=2), "--preset")


def test_help_tells_the_defaults_that_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    printed = " ".join(within("train", "arena_v0", "--help").split())
    shown(printed, "arena_v0: 16")
    manual = " ".join(within("trainers", "mappo").split())
    shown(manual, "arena_v0", "num_envs 16", "n_minibatches 4")
    shown(manual, "--preset self-play", "num_envs 256")
    monkeypatch.setattr(kinds, "kind_of", None)  # episodes of others are not played for a page
    theirs = " ".join(within("train", "classic/connect_four-v3", "--help").split())
    assert theirs.count("--preset") > printed.count("--preset")  # which is found in training
