"""The settings of the in-house trainers."""

from __future__ import annotations

from dataclasses import dataclass

from corral.trainers.settings import check_settings, setting

__all__ = [
    "CRITIC_INPUTS",
    "A2CSettings",
    "IPPOSettings",
    "MAPPOSettings",
    "OnPolicySettings",
    "PGSettings",
    "PPOKLSettings",
]

CRITIC_INPUTS = ("state", "observations", "observations+actions")


@dataclass(frozen=True)
class OnPolicySettings:
    """What every in-house trainer needs; an algorithm of one's own adds its own to them.

    ValueError names a setting out of range. Trainers go through a rollout ``n_epochs`` times in
    ``n_minibatches`` parts, where their settings have these; else once, as a whole.
    """

    num_envs: int = setting(32)
    workers: int = setting(
        0,
        "Number of processes for third-party environments; 0: this process plays them.",
        least=0,
        unit="processes",
        sizes="processes",
        common="all policies play in the same environments",
    )
    n_steps: int = setting(64)
    learning_rate: float | str = setting(3e-3)
    anneal: bool = setting(True)
    gamma: float = setting(0.99)
    ent_coef: float | str = setting(0.0)
    ent_coef_end: float | None = setting(None)
    huber_delta: float | None = setting(
        10.0, "Error from which the value loss is linear; none: quadratic everywhere.", above=0
    )
    normalize_values: bool = setting(
        True, "Scale returns to mean 0 and deviation 1 for the critic."
    )
    value_decay: float = setting(
        0.99,
        "Share of the mean and deviation of returns that each rollout keeps.",
        least=0,
        below=1,
    )
    max_grad_norm: float = setting(
        0.5, "Longest gradient, of actor and critic each; longer ones are scaled down.", above=0
    )
    net_arch: tuple[int, ...] = setting((64, 64))
    cnn_arch: tuple[int, ...] | None = setting(
        None,
        "Layers for images: filters of each, then units after them; none: by the image's size.",
        least=1,
        unit="filters or units",
        sizes="layers",
    )
    cnn_patch: int = setting(
        0,
        "Side of the squares that an image is split into first; 0: layers alone.",
        least=0,
        unit="pixels",
    )
    activation: str = setting("relu")
    memory: int = setting(
        0,
        "Size of a GRU in actor and critic that carries a hidden state; 0: none.",
        least=0,
        unit="units",
        sizes="units",
    )
    action_std: float = setting(
        0.6, "Standard deviation of continuous actions at first; 1: half of the space.", above=0
    )
    agent_id: bool = setting(True)
    device: str = setting(
        "auto",
        "Device of the networks; auto: cuda for images, where there is one.",
        choices=("auto", "cpu", "cuda"),
        common="it is chosen for all policies at once",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.cnn_arch is not None and len(self.cnn_arch) < 2:
            raise ValueError(f"cnn_arch={self.cnn_arch}: give filters and units, such as (32, 128)")


# --- Policy gradient -----------------------------------------------------------------------------


@dataclass(frozen=True)
class PGSettings(OnPolicySettings):
    """Settings of policy gradient: one step of the optimizer for each rollout, so short ones."""

    num_envs: int = setting(16)
    n_steps: int = setting(16)


@dataclass(frozen=True)
class A2CSettings(OnPolicySettings):
    """Settings of advantage actor-critic: the same, and how far rewards are credited."""

    num_envs: int = setting(16)
    n_steps: int = setting(8)
    gae_lambda: float = setting(0.95)


# --- Proximal policy optimization ----------------------------------------------------------------


@dataclass(frozen=True)
class _EpochSettings(OnPolicySettings):
    """Settings of what goes through a rollout several times."""

    n_minibatches: int = setting(
        8, "Number of minibatches that a rollout is split into in each epoch.", least=1
    )
    n_epochs: int = setting(4)
    gae_lambda: float = setting(0.95)
    clip_range_vf: float | None = setting(
        None, "Bound on the change of a scaled value; none: no bound.", above=0
    )
    target_kl: float | None = setting(
        None,
        "KL divergence beyond which an update ends, whatever epochs are left; none: never.",
        above=0,
    )


@dataclass(frozen=True)
class PPOKLSettings(_EpochSettings):
    """Settings of PPO that is held back by a penalty on the KL divergence, and by no clipping."""

    kl_coef: float = setting(0.2)
    kl_target: float | None = setting(0.01)


@dataclass(frozen=True)
class IPPOSettings(_EpochSettings):
    """Settings of PPO whose critic has the actor's input."""

    clip_range: float | str = setting(0.2)
    kl_coef: float = setting(0.0)
    kl_target: float | None = setting(None)
    stay_coef: float = setting(
        0.0,
        "With --init: least weight of a penalty on leaving the start, KL(policy || start).",
        least=0,
    )
    stay_target: float | None = setting(
        None,
        "KL divergence from the start beyond which the weight stay_coef rises; none: it stays.",
        above=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stay_target is not None and not self.stay_coef:
            raise ValueError(
                f"stay_target={self.stay_target} adapts a penalty that stay_coef=0 leaves out: "
                "give stay_coef, such as 0.1"
            )
        if self.kl_target is not None and not self.kl_coef:
            raise ValueError(
                f"kl_target={self.kl_target} adapts a penalty that kl_coef=0 leaves out: give "
                "kl_coef, such as 0.2, or target_kl to end the epochs of an update early"
            )


@dataclass(frozen=True)
class MAPPOSettings(IPPOSettings):
    """Settings of PPO whose critic has more input than the actor: the same, and that input."""

    critic_input: str = setting(
        "state",
        "Input of the critic: the global state and the own observation, the observations of all "
        "agents, or those and the other agents' actions.",
        choices=CRITIC_INPUTS,
        common="the critics of all policies observe the same",
    )
    own_action: bool = setting(
        False,
        "Give the critic the agent's own action too, which biases the gradient.",
        common="the critics of all policies observe the same",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.own_action and self.critic_input != "observations+actions":
            raise ValueError("own_action=True needs critic_input='observations+actions'")
