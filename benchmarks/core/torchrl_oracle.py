"""What TorchRL computes for the same numbers: golden values for
tests/trainers/on_policy/test_torchrl.py.

    pip install --no-deps torchrl==0.14.1 tensordict cloudpickle pyvers orjson importlib_metadata
    python benchmarks/core/torchrl_oracle.py

In an environment of its own: TorchRL is nothing that corral needs. MultiAgentGAE, MAPPOLoss and
PopArtValueNorm are given random rollouts of a fixed seed; inputs and outputs are written to
tests/trainers/torchrl_golden.json, and the tests compare our own with them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import tensordict
import torch
import torchrl
from tensordict import TensorDict
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential
from tensordict.nn import TensorDictModule as Module
from torchrl.modules import MaskedCategorical
from torchrl.modules.value_norm import PopArtValueNorm
from torchrl.objectives.multiagent import MAPPOLoss
from torchrl.objectives.value import MultiAgentGAE

GOLDEN = Path(__file__).parents[2] / "tests" / "trainers" / "torchrl_golden.json"
STEPS, AGENTS, ACTIONS = 12, 3, 5
GAMMA, LAMBDA, CLIP, DELTA_OF_SMOOTH_L1 = 0.93, 0.87, 0.2, 1.0


def advantages(rng: np.random.Generator) -> dict[str, Any]:
    """GAE where episodes end and are cut, V of the last observation at the cuts."""
    shape = (1, STEPS, AGENTS, 1)
    done = rng.random((1, STEPS, 1)) < 0.35
    terminated = done & (rng.random((1, STEPS, 1)) < 0.5)
    value, reward = rng.normal(size=shape), rng.normal(size=shape)
    following = rng.normal(size=shape)  # V of what is seen next; after an end, of what was last
    following[:, :-1] = np.where(done[:, :-1, :, None], following[:, :-1], value[:, 1:])
    data = TensorDict(
        {
            "agents": {"value": _tensor(value)},
            "next": {
                "agents": {"value": _tensor(following), "reward": _tensor(reward)},
                "done": torch.from_numpy(done),
                "terminated": torch.from_numpy(terminated),
            },
        },
        batch_size=(1, STEPS),
    )
    estimator = MultiAgentGAE(gamma=GAMMA, lmbda=LAMBDA, value_network=None, skip_existing=True)
    estimator.set_keys(
        value=("agents", "value"),
        reward=("agents", "reward"),
        advantage=("agents", "advantage"),
        value_target=("agents", "target"),
    )
    estimator(data)
    return {
        "gamma": GAMMA,
        "gae_lambda": LAMBDA,
        "reward": reward[0, :, :, 0].tolist(),
        "value": value[0, :, :, 0].tolist(),
        "next_value": following[0, :, :, 0].tolist(),
        "done": done[0, :, 0].tolist(),
        "terminated": terminated[0, :, 0].tolist(),
        "advantage": data["agents", "advantage"][0, :, :, 0].tolist(),
        "target": data["agents", "target"][0, :, :, 0].tolist(),
    }


def losses(rng: np.random.Generator) -> dict[str, Any]:
    """The clipped objective, entropy over legal actions, clip fraction, KL and the value loss."""
    rows = 40
    logits = rng.normal(size=(rows, ACTIONS), scale=1.5)
    mask = rng.random((rows, ACTIONS)) < 0.7
    mask[np.arange(rows), rng.integers(ACTIONS, size=rows)] = True
    action = np.array([rng.choice(np.flatnonzero(row)) for row in mask])
    before = rng.normal(size=rows, scale=0.4)
    advantage = rng.normal(size=rows)
    value, target = rng.normal(size=rows), rng.normal(size=rows, scale=2.0)
    now = MaskedCategorical(logits=_tensor(logits), mask=torch.from_numpy(mask))
    old = now.log_prob(torch.from_numpy(action)) - _tensor(before)
    actor = ProbabilisticTensorDictSequential(
        Module(torch.nn.Identity(), in_keys=["seen"], out_keys=["logits"]),
        ProbabilisticTensorDictModule(
            in_keys={"logits": "logits", "mask": "mask"},
            out_keys=["action"],
            distribution_class=MaskedCategorical,
            return_log_prob=True,
        ),
    )
    critic = Module(torch.nn.Identity(), in_keys=["guess"], out_keys=["state_value"])
    loss = MAPPOLoss(
        actor,
        critic,
        clip_epsilon=CLIP,
        entropy_coeff=1.0,
        critic_coeff=1.0,
        loss_critic_type="smooth_l1",
        normalize_advantage=False,
    )
    data = TensorDict(
        {
            "seen": _tensor(logits),
            "mask": torch.from_numpy(mask),
            "action": torch.from_numpy(action),
            "action_log_prob": old.detach(),
            "advantage": _tensor(advantage)[:, None],
            "value_target": _tensor(target)[:, None],
            "guess": _tensor(value)[:, None],
        },
        batch_size=(rows,),
    )
    told = loss(data)
    return {
        "clip_range": CLIP,
        "huber_delta": DELTA_OF_SMOOTH_L1,
        "logits": logits.tolist(),
        "mask": mask.tolist(),
        "action": action.tolist(),
        "old_log_prob": old.tolist(),
        "advantage": advantage.tolist(),
        "value": value.tolist(),
        "target": target.tolist(),
        "policy_loss": float(told["loss_objective"]),
        "value_loss": float(told["loss_critic"]),
        "entropy": float(told["entropy"]),
        "clip_fraction": float(told["clip_fraction"]),
    }


def value_normalization(rng: np.random.Generator) -> dict[str, Any]:
    norm = PopArtValueNorm(shape=1, beta=0.99)
    batches = [rng.normal(size=20, loc=place, scale=spread) for place, spread in ((5, 2), (7, 3))]
    for batch in batches:
        norm.update(_tensor(batch)[:, None])
    asked = np.linspace(-10, 20, 7)
    return {
        "decay": 0.99,
        "batches": [batch.tolist() for batch in batches],
        "asked": asked.tolist(),
        "normalised": norm.normalize(_tensor(asked)[:, None])[:, 0].tolist(),
        "restored": norm.denormalize(_tensor(asked)[:, None])[:, 0].tolist(),
    }


def _tensor(values: np.ndarray[Any, Any]) -> torch.Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float32))


def main() -> None:
    rng = np.random.default_rng(0)
    golden = {
        "versions": {
            "torchrl": torchrl.__version__,
            "tensordict": tensordict.__version__,
            "torch": torch.__version__,
        },
        "advantages": advantages(rng),
        "losses": losses(rng),
        "value_normalisation": value_normalization(rng),
    }
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
    print(f"{GOLDEN.name}: {', '.join(golden)}")


if __name__ == "__main__":
    main()
