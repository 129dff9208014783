"""Grids in observations: how they are found, and the networks that read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

pytest.importorskip("torch", reason="needs the extra mappo")

import torch

import corral
from corral.adapters.networks import Network
from corral.adapters.spaces import Grid, ObservationCodec, grid_of
from corral.envs.masks import masked_space
from corral.envs.registry import make_rules
from corral.trainers.base import trainer_class
from corral.trainers.evaluation.episodes import play_episodes
from corral.trainers.runs.run_config import RunConfig
from support.messages import refused

SMALL: dict[str, Any] = {
    "num_envs": 8,
    "n_steps": 16,
    "n_minibatches": 2,
    "n_epochs": 1,
    "net_arch": (8,),
    "seed": 3,
    "progress": False,
    "preset": "none",
}
BOARD: dict[str, Any] = {"size": (4, 5), "line": 3}


def box(*shape: int, dtype: Any = np.float32) -> spaces.Box:
    return spaces.Box(0, 1, shape, dtype)


# --- Spaces --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dtype", "image"),
    [
        ((6, 7, 2), np.int8, (2, 6, 7)),  # connect_four_v3
        ((3, 3, 2), np.float32, (2, 3, 3)),
        ((5, 5, 17), bool, (17, 5, 5)),  # go_v5 on a small board: more planes than rows
        ((19, 19, 17), bool, (17, 19, 19)),
        ((3, 17, 17), np.float32, (3, 17, 17)),  # lbforaging
        ((17, 5, 5), np.float32, (17, 5, 5)),
        ((2, 6, 7), np.float32, (2, 6, 7)),
        ((4, 4, 4), np.float32, (4, 4, 4)),
        ((8, 8), np.int64, (1, 8, 8)),
        ((8, 8), np.uint8, (1, 8, 8)),
        ((5, 4), np.float32, None),  # five things with four features each
        ((2, 8), np.int64, None),
        ((40, 40, 2), np.float32, None),
        ((8, 8, 3), np.uint8, None),  # an image
        ((84,), np.float32, None),
        ((3, 3, 3, 3), np.float32, None),
    ],
)
def test_which_boxes_are_grids(shape: Any, dtype: Any, image: Any) -> None:
    grid = grid_of(box(*shape, dtype=dtype))
    assert (None if grid is None else grid.image) == image
    if grid is not None:
        assert int(np.prod(grid.shape)) == int(np.prod(shape))


def test_other_spaces_are_no_grids() -> None:
    assert grid_of(spaces.Discrete(9)) is None
    assert grid_of(spaces.MultiBinary((3, 3))) is None


def test_a_codec_knows_the_columns_of_its_grids() -> None:
    inner = spaces.Dict(a=box(3), board=box(4, 5, 2), z=box(3, 6, dtype=np.int8))
    codec = ObservationCodec.of("agent", masked_space(inner, 2))
    assert codec.width == 3 + 40 + 18
    assert codec.grids(first=7) == (
        Grid(10, (4, 5, 2), (2, 0, 1)),
        Grid(50, (3, 6, 1), (2, 0, 1)),
    )


# --- Networks ------------------------------------------------------------------------------------


def network(grid_arch: Any = (6, 4), **changes: Any) -> Network:
    options: dict[str, Any] = {"outputs": 4, "gain": 0.01, "net_arch": (16,), "activation": "relu"}
    grids = [Grid(2, (4, 5, 3), (2, 0, 1))]
    return Network(70, (), (), grids, grid_arch=grid_arch, **{**options, **changes})


def test_layers_read_a_grid_beside_the_vector() -> None:
    made = network(generator=torch.Generator().manual_seed(0))
    shapes = [tuple(w.shape) for name, w in made.grid_cnns.named_parameters() if "weight" in name]
    assert shapes == [(6, 3, 3, 3), (4, 6, 3, 3)]
    assert made.layers[0].in_features == 70 + 4 * 20
    outputs = made([torch.rand(9, 70, generator=torch.Generator().manual_seed(1))])
    assert outputs.shape == (9, 4)
    outputs.square().sum().backward()
    assert all(w.grad is not None and w.grad.abs().sum() > 0 for w in made.parameters())


def test_a_field_changes_its_neighbors_only_and_planes_are_channels() -> None:
    made = network((6,))
    shown: list[torch.Tensor] = []
    made.grid_cnns[0][0].register_forward_hook(lambda layer, x, y: shown.extend([x[0], y]))
    board = torch.zeros(2, 4, 5, 3)
    board[1, 2, 3, 1] = 1.0
    made([torch.cat([torch.zeros(2, 2), board.flatten(1), torch.zeros(2, 8)], dim=1)])
    planes, features = shown
    assert planes[1].nonzero().tolist() == [[1, 2, 3]]
    changed = (features[1] - features[0]).abs().sum(dim=0) > 0
    assert changed.nonzero().tolist() == [[r, c] for r in (1, 2, 3) for c in (2, 3, 4)]


def test_without_filters_a_network_is_as_before() -> None:
    flat = Network(70, (), (), outputs=4, gain=0.01, net_arch=(16,), activation="relu")
    assert network(None).state_dict().keys() == flat.state_dict().keys()


@pytest.mark.parametrize("critic_input", ["state", "observations", "observations+actions"])
def test_critics_read_the_boards_of_the_observations(critic_input: str, tmp_path: Path) -> None:
    kind = trainer_class("mappo")
    rules = make_rules("tictactoe_v0", **BOARD)
    settings = kind.Settings(
        num_envs=2, n_steps=4, grid_arch=(3,), net_arch=(4,), critic_input=critic_input
    )
    policies = dict.fromkeys(rules.agents, "shared")
    trainer = kind(
        rules, settings, seed=0, policies=policies, policies_to_train=["shared"], steps=8
    )
    shown: list[torch.Tensor] = []
    learner = trainer.learners["shared"]
    for cnn in learner.critic.grid_cnns:
        cnn.register_forward_pre_hook(lambda layer, x: shown.append(x[0]))
    trainer.check()
    trainer.begin()
    trainer.collect()
    parts = trainer.critic_input.tensors(learner, trainer.rollout, 0)
    learner.critic([part.flatten(0, 2) for part in parts])
    buffer = trainer.rollout.groups[0]
    boards = buffer.vector[..., :40].reshape(5, 2, 2, 4, 5, 2).transpose(0, 1, 2, 5, 3, 4)
    own = torch.from_numpy(boards.reshape(-1, 2, 4, 5).copy())
    if critic_input == "state":
        assert len(shown) == 1
        assert torch.equal(shown[0], own)
    else:
        first, second = (board.reshape(5, 2, 2, 2, 4, 5) for board in shown)
        assert torch.equal(first[:, :, 0], torch.from_numpy(boards[:, :, 0].copy()))
        assert torch.equal(second[:, :, 1], torch.from_numpy(boards[:, :, 1].copy()))
    assert own.any()


# --- Runs ----------------------------------------------------------------------------------------


def train(out: Path, **changes: Any) -> Any:
    return corral.train("tictactoe_v0", env_kwargs=BOARD, out=out, **{**SMALL, **changes})


def test_a_run_is_saved_resumed_and_exported(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", steps=512, grid_arch=(4,))
    train(tmp_path / "parts", steps=256, horizon=512, grid_arch=(4,))
    corral.resume(tmp_path / "parts", steps=512, progress=False)
    first, second = (
        corral.load_run(tmp_path / name).export("weights", tmp_path / f"{name}-weights")
        for name in ("whole", "parts")
    )
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second]
    document = json.loads(next(p for p in first if p.suffix == ".json").read_text())
    assert document["grid_arch"] == [4]
    played, illegal = play_episodes(
        whole.config.env_config.rules(),
        whole.policies,
        dict.fromkeys(("player_1", "player_2"), False),
        episodes=20,
    )
    assert illegal.tolist() == [0, 0]
    assert played.lengths.min() >= 5


def test_a_run_of_an_earlier_version_has_no_grid_cnn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values_of = RunConfig._values

    def without_grids(config: RunConfig, folder: Path | None) -> dict[str, Any]:
        values = values_of(config, folder)
        settings = {key: v for key, v in values["settings"].items() if key != "grid_arch"}
        return {**values, "settings": settings}

    monkeypatch.setattr(RunConfig, "_values", without_grids)
    train(tmp_path / "old", steps=256)
    monkeypatch.undo()
    assert "grid_arch" not in corral.load_run(tmp_path / "old").config.settings
    corral.resume(tmp_path / "old", steps=512, progress=False)
    options = {**SMALL, "steps": 128, "preset": "auto", "init": tmp_path / "old"}
    later = corral.train("tictactoe_v0", env_kwargs=BOARD, out=tmp_path / "new", **options)
    assert later.config.settings["grid_arch"] is None


def test_a_pool_of_snapshots_reads_boards(tmp_path: Path) -> None:
    run = train(tmp_path / "run", steps=512, grid_arch=(4,), self_play="past=0.5,every=128")
    assert int(run.progress["env_steps"].iloc[-1]) == 512


def test_filters_are_refused_with_a_network_of_ones_own(tmp_path: Path) -> None:
    with refused(ValueError, "grid_arch", (4,)):
        corral.train(
            "tictactoe_v0",
            out=tmp_path / "run",
            grid_arch=(4,),
            model=lambda observation_space, *, role: torch.nn.Identity(),
        )
