"""``corral.listen``: hear a training in the user's own script, and say why it does not learn."""

from __future__ import annotations

import atexit
from pathlib import Path
from typing import Any

import torch

from corral.errors import concise
from corral.lab.listening.ear import Ear

__all__ = ["listen"]


@concise
def listen(
    training: Any = None,
    *,
    policy: torch.nn.Module | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    gamma: float | None = None,
    gae_lambda: float | None = None,
    estimator: Any = None,
    out: str | Path | None = None,
) -> Ear:
    """Listen to a training: call it once, before training. It reads only.

    Certain findings are printed to stderr while training. ``print(ear.report())`` says at the end
    whether it learns, which faults it has, and which data was not heard.

    Args:
        training: what trains: a model of Stable-Baselines3 or sb3-contrib, an RLlib ``Algorithm``
            (new API stack), a TorchRL loss module, a Tianshou algorithm, or a trainer or session of
            corral. None: a loop of your own, which calls ``ear.rollout`` and ``ear.batch``.
        policy: the network of your own loop; with an actor and a critic apart,
            ``torch.nn.ModuleList([actor, critic])``.
        optimizer: its optimizer, to tell which parameters it does not have.
        gamma, gae_lambda: discount and lambda of your own loop; without them they are estimated.
        estimator: the value estimator of a TorchRL loop, such as ``GAE``; default: the first one
            that is called.
        out: folder for listen.json and listen.txt, written by ``report`` and at exit.

    Raises TypeError if ``training`` is nothing that can be heard.
    """
    ear = Ear(_framework(training), out=out)
    if training is None:
        ear.policy("policy", policy, gamma=gamma, gae_lambda=gae_lambda)
        if policy is not None and optimizer is not None:
            ear.policies["policy"].outside = _outside(policy, optimizer)
    else:
        _connect(training, ear, estimator)
    if out is not None:
        atexit.register(ear.report)
    return ear


def _framework(training: Any) -> str:
    """Return the framework of an object: "sb3", "rllib", "torchrl", "tianshou", "corral" or ""."""
    if training is None:
        return ""
    roots = [kind.__module__.partition(".")[0] for kind in type(training).__mro__]
    for root in roots:
        if root in FRAMEWORKS:
            return FRAMEWORKS[root]
    raise TypeError(
        f"listen({type(training).__name__}): pass a model of Stable-Baselines3, an RLlib "
        "Algorithm, a TorchRL loss module, a Tianshou algorithm, or a trainer of corral; for a "
        "loop of your own listen(policy=net, optimizer=opt)"
    )


FRAMEWORKS = {
    "stable_baselines3": "sb3",
    "sb3_contrib": "sb3",
    "ray": "rllib",
    "torchrl": "torchrl",
    "tianshou": "tianshou",
    "corral": "corral",
}
"""Package of a class or of one of its base classes -> framework."""


def _connect(training: Any, ear: Ear, estimator: Any) -> None:
    """Connect the listener of a framework, which is imported only here."""
    if ear.framework == "sb3":
        from corral.lab.listening.frameworks.sb3 import listen_sb3

        listen_sb3(training, ear)
    elif ear.framework == "rllib":
        from corral.lab.listening.frameworks.rllib import listen_rllib

        listen_rllib(training, ear)
    elif ear.framework == "torchrl":
        from corral.lab.listening.frameworks.torchrl import listen_torchrl

        listen_torchrl(training, ear, estimator)
    elif ear.framework == "tianshou":
        from corral.lab.listening.frameworks.tianshou import listen_tianshou

        listen_tianshou(training, ear)
    else:
        from corral.lab.listening.frameworks.own import listen_corral

        listen_corral(training, ear)


def _outside(policy: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Return the names of trainable parameters that are in no group of the optimizer."""
    inside = {id(item) for group in optimizer.param_groups for item in group["params"]}
    return [
        name
        for name, parameter in policy.named_parameters()
        if parameter.requires_grad and id(parameter) not in inside
    ]
