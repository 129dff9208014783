"""The settings of the trainers that stand on Stable-Baselines3."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from corral.envs.arguments import nonnegative_float, nonnegative_int, one_of

__all__ = ["SB3Settings"]


def setting(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True)
class SB3Settings:
    """Settings under Stable-Baselines3's names; ValueError names one that is out of range."""

    vec_env: str = setting("batch", "'batch' (fast, resumes exactly) or 'supersuit'")
    num_envs: int = setting(16, "copies of the environment, B")
    cpus: int = setting(0, "worker processes of SuperSuit; 0: none")
    n_steps: int = setting(64, "env steps of each copy per rollout")
    batch_size: int = setting(512, "decisions in a minibatch")
    n_epochs: int = setting(6, "passes over a rollout")
    learning_rate: float = setting(2e-3, "Adam's step size")
    anneal: bool = setting(True, "lower the learning rate linearly to 0")
    gamma: float = setting(0.99, "discount of a step")
    gae_lambda: float = setting(0.95, "of generalised advantage estimation")
    clip_range: float = setting(0.2, "bound on the change of a probability ratio")
    ent_coef: float = setting(0.0, "weight of the entropy over legal actions")
    vf_coef: float = setting(0.5, "weight of the value loss")
    max_grad_norm: float = setting(0.5, "longest gradient")
    target_kl: float | None = setting(None, "end an update's epochs beyond 1.5 times this")
    net_arch: tuple[int, ...] = setting((64, 64), "units of the hidden layers, actor and critic")
    agent_id: bool = setting(True, "show a policy which of its agents it plays")
    device: str = setting("cpu", "'cpu', 'cuda', or 'auto'; small networks are faster on the CPU")

    def __post_init__(self) -> None:
        one_of("vec_env", self.vec_env, ("batch", "supersuit"))
        one_of("device", self.device, ("cpu", "cuda", "auto"))
        for name in ("anneal", "agent_id"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name}={getattr(self, name)!r}: give True or False")
        nonnegative_int("cpus", self.cpus)
        for name, least in (("num_envs", 1), ("n_steps", 1), ("batch_size", 2), ("n_epochs", 1)):
            nonnegative_int(name, getattr(self, name), least=least)
        for name in ("ent_coef", "vf_coef", "learning_rate"):
            nonnegative_float(name, getattr(self, name))
        for name in ("gamma", "gae_lambda"):
            if not nonnegative_float(name, getattr(self, name)) <= 1:
                raise ValueError(f"{name}={getattr(self, name)}: give a number of 0 to 1")
        for name in ("clip_range", "max_grad_norm"):
            if not nonnegative_float(name, getattr(self, name)) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: give a number above 0")
        if self.target_kl is not None and not nonnegative_float("target_kl", self.target_kl) > 0:
            raise ValueError(f"target_kl={self.target_kl}: give a number above 0, or None")
        if not isinstance(self.net_arch, tuple):
            raise ValueError(f"net_arch={self.net_arch!r}: give a tuple of numbers of units")
        for units in self.net_arch:
            nonnegative_int("net_arch", units, least=1)
