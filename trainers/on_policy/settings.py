"""The settings of the in-house trainers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from corral.envs.arguments import nonnegative_float, nonnegative_int, one_of

__all__ = ["CRITIC_INPUTS", "IPPOSettings", "MAPPOSettings"]

CRITIC_INPUTS = ("state", "observations", "observations+actions")


def setting(default: Any, meaning: str) -> Any:
    return field(default=default, metadata={"help": meaning})


@dataclass(frozen=True)
class IPPOSettings:
    """Of PPO whose critic sees what the actor sees; ValueError names one that is out of range."""

    num_envs: int = setting(32, "copies of the environment, B")
    workers: int = setting(0, "processes for third-party environments; 0: all in this one")
    n_steps: int = setting(64, "env steps of each copy per rollout, T")
    n_minibatches: int = setting(8, "parts that an epoch takes a rollout in")
    n_epochs: int = setting(4, "passes over a rollout")
    learning_rate: float = setting(3e-3, "Adam's step size")
    anneal: bool = setting(True, "lower the learning rate linearly to 0")
    gamma: float = setting(0.99, "discount from one decision of an agent to its next")
    gae_lambda: float = setting(0.95, "of generalised advantage estimation, per decision")
    clip_range: float = setting(0.2, "bound on the change of a probability ratio")
    ent_coef: float = setting(0.0, "weight of the entropy over legal actions, at first")
    ent_coef_end: float | None = setting(None, "the same at the end, linear between; None: same")
    clip_range_vf: float | None = setting(None, "bound on the change of a scaled value; None: none")
    huber_delta: float | None = setting(10.0, "where the value loss turns linear; None: nowhere")
    normalize_values: bool = setting(True, "scale returns to mean 0 and deviation 1 for the critic")
    value_decay: float = setting(0.99, "how much of that mean each rollout keeps")
    max_grad_norm: float = setting(0.5, "longest gradient, of actor and critic each")
    kl_coef: float = setting(0.0, "weight of a penalty on the KL divergence, at first")
    kl_target: float | None = setting(None, "what that weight is adapted to; None: it stays")
    target_kl: float | None = setting(None, "end an update's epochs beyond this divergence")
    net_arch: tuple[int, ...] = setting((64, 64), "units of the hidden layers, actor and critic")
    cnn_arch: tuple[int, ...] | None = setting(
        None, "of images: filters of each layer, then units after them; None: by the image's size"
    )
    cnn_patch: int = setting(0, "side of the squares that an image is first taken in; 0: layers")
    activation: str = setting("relu", "'relu' or 'tanh'")
    memory: int = setting(0, "units of a GRU in actor and critic, for games to remember; 0: none")
    action_std: float = setting(0.6, "of continuous actions at first; 1: half of the space")
    agent_id: bool = setting(True, "show a policy which of its agents it plays")
    device: str = setting("auto", "'cpu', 'cuda', or 'auto': cuda for images, where there is one")

    def __post_init__(self) -> None:
        one_of("device", self.device, ("auto", "cpu", "cuda"))
        one_of("activation", self.activation, ("relu", "tanh"))
        for name in ("anneal", "normalize_values", "agent_id"):
            _flag(name, getattr(self, name))
        for name in ("num_envs", "n_steps", "n_minibatches", "n_epochs"):
            nonnegative_int(name, getattr(self, name), least=1)
        for name in ("memory", "workers", "cnn_patch"):
            nonnegative_int(name, getattr(self, name))
        for name in ("learning_rate", "ent_coef", "kl_coef"):
            nonnegative_float(name, getattr(self, name))
        if self.ent_coef_end is not None:
            nonnegative_float("ent_coef_end", self.ent_coef_end)
        for name in ("gamma", "gae_lambda"):
            if not nonnegative_float(name, getattr(self, name)) <= 1:
                raise ValueError(f"{name}={getattr(self, name)}: give a number of 0 to 1")
        if not nonnegative_float("value_decay", self.value_decay) < 1:
            raise ValueError(f"value_decay={self.value_decay}: give a number of 0 to below 1")
        for name in ("clip_range", "max_grad_norm", "action_std"):
            if not nonnegative_float(name, getattr(self, name)) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: give a number above 0")
        for name in ("clip_range_vf", "huber_delta", "kl_target", "target_kl"):
            value = getattr(self, name)
            if value is not None and not nonnegative_float(name, value) > 0:
                raise ValueError(f"{name}={value}: give a number above 0, or None")
        if self.kl_target is not None and not self.kl_coef:
            raise ValueError(
                f"kl_target={self.kl_target} adapts a penalty that kl_coef=0 leaves out: give "
                "kl_coef, such as 0.2, or target_kl to end the epochs of an update early"
            )
        for name in ("net_arch", "cnn_arch"):
            sizes = getattr(self, name)
            if sizes is None and name == "cnn_arch":
                continue
            if not isinstance(sizes, tuple):
                raise ValueError(f"{name}={sizes!r}: give a tuple of numbers of units")
            for units in sizes:
                nonnegative_int(name, units, least=1)
        if self.cnn_arch is not None and len(self.cnn_arch) < 2:
            raise ValueError(f"cnn_arch={self.cnn_arch}: give filters and units, such as (32, 128)")


@dataclass(frozen=True)
class MAPPOSettings(IPPOSettings):
    """Of PPO whose critic sees more than the actor: the same, and what it sees."""

    critic_input: str = setting(
        "state",
        "'state' (global state and own observation), 'observations' (everybody's) or "
        "'observations+actions' (and what the others do)",
    )
    own_action: bool = setting(False, "show the critic the own action too; biases the gradient")

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("critic_input", self.critic_input, CRITIC_INPUTS)
        _flag("own_action", self.own_action)
        if self.own_action and self.critic_input != "observations+actions":
            raise ValueError("own_action=True needs critic_input='observations+actions'")


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name}={value!r}: give True or False")
