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
    """Settings of every in-house trainer; a custom algorithm adds its fields in a subclass.

    Raises ValueError for a setting out of range. An update makes ``n_epochs`` passes over the
    rollout in ``n_minibatches`` minibatches. Without these settings it makes one pass over the
    whole rollout.
    """

    num_envs: int = setting(32)
    workers: int = setting(
        0,
        "Number of worker processes for third-party environments; 0: no worker processes.",
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
        10.0, "Error above which the value loss is linear (Huber); none: always quadratic.", above=0
    )
    normalize_values: bool = setting(
        True, "Normalize returns to mean 0 and standard deviation 1 for the critic."
    )
    value_decay: float = setting(
        0.99,
        "Decay per rollout of the running mean and deviation of returns.",
        least=0,
        below=1,
    )
    max_grad_norm: float = setting(
        0.5,
        "Maximum gradient norm, for actor and critic separately; larger gradients are scaled down.",
        above=0,
    )
    net_arch: tuple[int, ...] = setting((64, 64))
    cnn_arch: tuple[int, ...] | None = setting(
        None,
        "CNN for images: filters of each layer, then dense units; none: chosen by image size.",
        least=1,
        unit="filters or units",
        sizes="layers",
    )
    cnn_patch: int = setting(
        0,
        "Side of the square patches of the first CNN layer; 0: no patches.",
        least=0,
        unit="pixels",
    )
    grid_arch: tuple[int, ...] | None = setting(
        None,
        "CNN for grids, such as boards: filters of each 3 x 3 layer; none: no CNN.",
        least=1,
        unit="filters",
        sizes="layers",
    )
    activation: str = setting("relu")
    memory: int = setting(
        0,
        "Hidden size of a GRU in actor and critic; 0: no GRU.",
        least=0,
        unit="units",
        sizes="units",
    )
    action_std: float = setting(
        0.6,
        "Initial standard deviation of continuous actions; 1: half of the action range.",
        above=0,
    )
    agent_id: bool = setting(True)
    device: str = setting(
        "auto",
        "Device of the networks; auto: cuda for images if available, else cpu.",
        choices=("auto", "cpu", "cuda"),
        common="all policies run on the same device",
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.cnn_arch is not None and len(self.cnn_arch) < 2:
            raise ValueError(f"cnn_arch={self.cnn_arch}: pass filters and units, such as (32, 128)")


# --- Policy gradient -----------------------------------------------------------------------------


@dataclass(frozen=True)
class PGSettings(OnPolicySettings):
    """Settings of policy gradient: one optimizer step per rollout, with short rollouts."""

    num_envs: int = setting(16)
    n_steps: int = setting(16)


@dataclass(frozen=True)
class A2CSettings(OnPolicySettings):
    """Settings of advantage actor-critic: those of policy gradient, and ``gae_lambda``."""

    num_envs: int = setting(16)
    n_steps: int = setting(8)
    gae_lambda: float = setting(0.95)


# --- Proximal policy optimization ----------------------------------------------------------------


@dataclass(frozen=True)
class _EpochSettings(OnPolicySettings):
    """Settings of algorithms with several passes over a rollout."""

    n_minibatches: int = setting(8, "Number of minibatches per epoch.", least=1)
    n_epochs: int = setting(4)
    gae_lambda: float = setting(0.95)
    clip_range_vf: float | None = setting(
        None, "Clipping range of the normalized value; none: no clipping.", above=0
    )
    target_kl: float | None = setting(
        None,
        "KL divergence above which an update ends early; none: no early end.",
        above=0,
    )


@dataclass(frozen=True)
class PPOKLSettings(_EpochSettings):
    """Settings of PPO with a KL penalty instead of clipping."""

    kl_coef: float = setting(0.2)
    kl_target: float | None = setting(0.01)


@dataclass(frozen=True)
class IPPOSettings(_EpochSettings):
    """Settings of PPO with the actor's input as the critic's input."""

    clip_range: float | str = setting(0.2)
    kl_coef: float = setting(0.0)
    kl_target: float | None = setting(None)
    stay_coef: float = setting(
        0.0,
        "With --init: minimum weight of the penalty KL(policy || initial policy).",
        least=0,
    )
    stay_target: float | None = setting(
        None,
        "KL divergence from the initial policy above which stay_coef rises; none: constant.",
        above=0,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.stay_target is not None and not self.stay_coef:
            raise ValueError(
                f"stay_target={self.stay_target} adapts a penalty that is off with stay_coef=0: "
                "pass stay_coef, such as 0.1"
            )
        if self.kl_target is not None and not self.kl_coef:
            raise ValueError(
                f"kl_target={self.kl_target} adapts a penalty that is off with kl_coef=0: pass "
                "kl_coef, such as 0.2, or target_kl to end the epochs of an update early"
            )


@dataclass(frozen=True)
class MAPPOSettings(IPPOSettings):
    """Settings of PPO with a centralized critic: those of ippo, and the critic's input."""

    critic_input: str = setting(
        "state",
        "Input of the critic: the global state and the agent's observation; the observations of "
        "all agents; or these and the other agents' actions.",
        choices=CRITIC_INPUTS,
        common="the critics of all policies have the same input",
    )
    own_action: bool = setting(
        False,
        "Add the agent's own action to the critic's input, which biases the gradient.",
        common="the critics of all policies have the same input",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.own_action and self.critic_input != "observations+actions":
            raise ValueError("own_action=True needs critic_input='observations+actions'")
