"""The settings of the trainer that stands on RLlib."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from corral.envs.arguments import nonnegative_float, nonnegative_int, one_of

__all__ = ["RLlibPPOSettings"]


def setting(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True)
class RLlibPPOSettings:
    """Of RLlib's PPO; ValueError names one that is out of range."""

    address: str = setting(
        "local", "of a Ray cluster: HOST:PORT, 'auto' (the one of this machine), or 'local': none"
    )
    runners: int = setting(0, "processes that play, on whatever nodes there are; 0: this one")
    envs_per_runner: int = setting(16, "copies of the environment in each of them")
    train_batch_size: int = setting(1024, "env steps of all runners together per update")
    batch_size: int = setting(512, "decisions in a minibatch")
    n_epochs: int = setting(6, "passes over what was played")
    learning_rate: float = setting(2e-3, "Adam's step size")
    anneal: bool = setting(True, "lower the learning rate linearly to 0")
    gamma: float = setting(0.99, "discount from one decision of an agent to its next")
    gae_lambda: float = setting(0.95, "of generalised advantage estimation, per decision")
    clip_range: float = setting(0.2, "bound on the change of a probability ratio")
    ent_coef: float = setting(0.0, "weight of the entropy over legal actions, at first")
    ent_coef_end: float | None = setting(None, "the same at the end, linear between; None: same")
    vf_coef: float = setting(0.5, "weight of the value loss")
    kl_coef: float = setting(0.0, "weight of a penalty on the KL divergence, at first")
    kl_target: float = setting(0.01, "what that weight is adapted to")
    max_grad_norm: float = setting(0.5, "longest gradient")
    net_arch: tuple[int, ...] = setting((64, 64), "units of the hidden layers, actor and critic")
    cnn_layers: tuple[int, ...] = setting(
        (16, 32, 64), "of images: filters of layers of 3 x 3, and units after them"
    )
    activation: str = setting("relu", "'relu' or 'tanh'")
    agent_id: bool = setting(True, "show a policy which of its agents it plays")
    critic_input: str = setting("own", "'own' observation, or with it the global 'state'")
    whole_episodes: bool | None = setting(
        None, "learn from whole episodes only; None: in turn-based games"
    )
    patience: float = setting(120.0, "seconds without a sample of any runner that end training")
    cpus_per_runner: float = setting(1.0, "cores that Ray sets aside for each runner")

    def __post_init__(self) -> None:
        one_of("activation", self.activation, ("relu", "tanh"))
        one_of("critic_input", self.critic_input, ("own", "state"))
        for name in ("anneal", "agent_id", "whole_episodes"):
            value = getattr(self, name)
            if not isinstance(value, bool) and not (name == "whole_episodes" and value is None):
                raise ValueError(f"{name}={value!r}: give True or False")
        if not (isinstance(self.address, str) and self.address):
            raise ValueError(f"address={self.address!r}: give HOST:PORT, 'auto' or 'local'")
        nonnegative_int("runners", self.runners)
        for name in ("envs_per_runner", "train_batch_size", "batch_size", "n_epochs"):
            nonnegative_int(name, getattr(self, name), least=1)
        for name in ("learning_rate", "ent_coef", "vf_coef", "kl_coef", "cpus_per_runner"):
            nonnegative_float(name, getattr(self, name))
        if self.ent_coef_end is not None:
            nonnegative_float("ent_coef_end", self.ent_coef_end)
        for name in ("gamma", "gae_lambda"):
            if not nonnegative_float(name, getattr(self, name)) <= 1:
                raise ValueError(f"{name}={getattr(self, name)}: give a number of 0 to 1")
        for name in ("clip_range", "max_grad_norm", "kl_target", "patience"):
            if not nonnegative_float(name, getattr(self, name)) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: give a number above 0")
        for name, least in (("net_arch", 0), ("cnn_layers", 2)):
            sizes = getattr(self, name)
            if not isinstance(sizes, tuple) or len(sizes) < least:
                raise ValueError(f"{name}={sizes!r}: give a tuple of numbers of units")
            for units in sizes:
                nonnegative_int(name, units, least=1)
        if self.batch_size > self.train_batch_size:
            raise ValueError(
                f"batch_size={self.batch_size}: give at most train_batch_size="
                f"{self.train_batch_size}"
            )
