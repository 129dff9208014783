"""Settings of the BenchMARL trainers."""

from __future__ import annotations

from dataclasses import dataclass

from corral.trainers.settings import check_settings, setting

__all__ = ["MASACSettings", "OffPolicySettings", "QMIXSettings", "QSettings"]


@dataclass(frozen=True)
class OffPolicySettings:
    """Settings of all BenchMARL trainers. Raises ValueError for a setting out of range."""

    num_envs: int = setting(16)
    n_steps: int = setting(
        4,
        "Env steps of each environment copy between two updates.",
        least=1,
        unit="env steps",
        sizes="steps",
    )
    gradient_steps: int = setting(
        8, "Number of minibatches per update.", least=1, unit="minibatches"
    )
    batch_size: int = setting(128, "Size of a minibatch.", least=1, unit="env steps", sizes="drawn")
    buffer_size: int = setting(
        100_000,
        "Capacity of the replay buffer in env steps; the oldest steps are dropped.",
        least=1,
        sizes="kept",
    )
    learning_starts: int = setting(
        256, "Env steps with random actions before training starts.", least=0
    )
    learning_rate: float = setting(1e-3)
    gamma: float = setting(0.99)
    tau: float = setting(
        0.02,
        "Share of the trained weights that is mixed into the target networks per minibatch.",
        above=0,
        most=1,
    )
    max_grad_norm: float = setting(5.0)
    loss_function: str = setting(
        "l2", "Loss function for value errors.", choices=("l1", "l2", "smooth_l1")
    )
    net_arch: tuple[int, ...] = setting((64, 64))
    activation: str = setting("relu")
    agent_id: bool = setting(True)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.batch_size > self.buffer_size:
            raise ValueError(
                f"batch_size={self.batch_size} is too large: pass at most "
                f"buffer_size={self.buffer_size}"
            )


@dataclass(frozen=True)
class QSettings(OffPolicySettings):
    """Settings of IQL and VDN, which learn action values and explore with random actions."""

    exploration_initial_eps: float = setting(
        1.0, "Share of random legal actions at the start.", least=0, most=1
    )
    exploration_final_eps: float = setting(
        0.05, "Share of random legal actions at the end.", least=0, most=1
    )
    exploration_fraction: float = setting(
        0.5, "Share of the env steps over which exploration decreases.", above=0, most=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exploration_final_eps > self.exploration_initial_eps:
            raise ValueError(
                f"exploration_final_eps={self.exploration_final_eps} is too large: pass at most "
                f"exploration_initial_eps={self.exploration_initial_eps}"
            )


@dataclass(frozen=True)
class QMIXSettings(QSettings):
    """Settings of QMIX."""

    mixing_embed_dim: int = setting(
        32,
        "Number of units of the mixing network's hidden layer.",
        least=1,
        unit="units",
        sizes="units",
    )


@dataclass(frozen=True)
class MASACSettings(OffPolicySettings):
    """Settings of MASAC, which explores through an entropy bonus."""

    ent_coef: float = setting(
        0.2, "Initial entropy weight; it is adapted to reach target_entropy.", above=0
    )
    ent_coef_max: float | None = setting(
        None, "Maximum of the adapted entropy weight; none: no maximum.", above=0
    )
    target_entropy: float = setting(
        0.2,
        "Target entropy, as a share of the entropy of uniform play over all actions.",
        least=0,
        most=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ent_coef_max is not None and self.ent_coef > self.ent_coef_max:
            raise ValueError(
                f"ent_coef={self.ent_coef} is too large: pass at most "
                f"ent_coef_max={self.ent_coef_max}"
            )
