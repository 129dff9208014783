"""Small trainers of the in-house kind, and rules with other spaces than the suite's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.envs.batch import Batch
from corral.envs.core import Outcome
from corral.trainers.driver import train
from corral.trainers.on_policy.trainer import IPPO, MAPPO
from support.loads import small_trace
from support.steady_rules import SteadyRules

TRAINERS = {"mappo": MAPPO, "ippo": IPPO}
CRITICS = ("state", "observations", "observations+actions")
SMALL: dict[str, Any] = {
    "num_envs": 4,
    "n_steps": 16,
    "n_minibatches": 2,
    "n_epochs": 2,
    "net_arch": (16,),
    "device": "cpu",
}
ROLLOUT = 64


def make(rules: Any, trainer: Any = MAPPO, updates: int = 1, **given: Any) -> Any:
    """A small trainer; ``policies`` and ``to_train`` as in ``train``."""
    policies = given.pop("policies", None) or dict.fromkeys(rules.agents, "shared")
    to_train = given.pop("to_train", None) or list(dict.fromkeys(policies.values()))
    seed, make_batch = given.pop("seed", 0), given.pop("make_batch", Batch)
    model = {"model": given.pop("model")} if "model" in given else {}
    known = trainer.Settings.__dataclass_fields__
    settings = {**{name: value for name, value in SMALL.items() if name in known}, **given}
    return trainer(
        rules,
        trainer.Settings(**settings),
        seed=seed,
        policies=policies,
        policies_to_train=to_train,
        steps=updates * settings["num_envs"] * settings["n_steps"],
        make_batch=make_batch,
        **model,
    )


def separate(rules: Any) -> dict[str, str]:
    return {agent: agent for agent in rules.agents}


def content(trainer: Any) -> tuple[str, dict[str, bytes]]:
    """All that is saved, in a form to compare."""
    saved = trainer.save()
    arrays = {
        f"{file}.{name}": array.tobytes()
        for file, found in saved.arrays.items()
        for name, array in found.items()
    }
    return json.dumps(saved.documents, sort_keys=True), arrays


def policy_bytes(trainer: Any, name: str) -> list[bytes]:
    return [array.tobytes() for array in trainer.save().arrays[f"policy_{name}"].values()]


def run_of(folder: Path, updates: int = 4, **changes: Any) -> Any:
    """A run of a few updates on a small trace."""
    given: dict[str, Any] = {"trainer": "mappo", "env": "dfaas_v0", **SMALL, **changes}
    if given["env"] == "dfaas_v0":
        given["env_kwargs"] = {"trace": small_trace(), "max_cycles": 30}
    return train(steps=updates * ROLLOUT, out=folder, **given)


# --- Rules with other spaces ---------------------------------------------------------------------


class ManyRules(SteadyRules):
    """``SteadyRules`` whose two agents have actions of other kinds; see ``ManyBatch``.

    agent_0 aims at 3 within 0..4, agent_1 at (1, 2) of (2, 3): paid 1 less the distance.
    """

    name = "many_v0"
    max_cycles = 4

    def observation_space(self, agent: str) -> spaces.Dict:
        return spaces.Dict({"observation": spaces.Box(0, 1, (1,), np.float32)})

    def action_space(self, agent: str) -> Any:
        if agent == "agent_0":
            return spaces.Box(0, 4, (1,), np.float32)
        return spaces.MultiDiscrete([2, 3])

    def step(self, state: Any, action: Any) -> Any:
        state.t = state.t + 1
        pay = np.stack(
            [
                1 - np.abs(action["agent_0"][:, 0] - 3),
                1.0 * (action["agent_1"] == [1, 2]).all(axis=1),
            ],
            axis=1,
        )
        ended = np.zeros(pay.shape, dtype=bool)
        return Outcome(state, pay.astype(np.float32), ended, self.info(state))


class ManyBatch(Batch):
    """A Batch that takes a dict of actions, as those of third-party environments do."""

    def __init__(self, rules: Any, num_envs: int, seed: int | None = None) -> None:
        shown = SteadyRules()
        super().__init__(shown, num_envs, seed)
        self.rules = rules
        self.played: list[Any] = []

    def _checked(self, actions: Any) -> Any:
        for agent in self.agents:
            space = self.rules.action_space(agent)
            assert actions[agent].shape == (self.num_envs, *space.shape)
            assert all(space.contains(action) for action in actions[agent])
        self.played.append(actions)
        return actions
