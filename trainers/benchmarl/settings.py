"""The settings of the trainers that stand on BenchMARL."""

from __future__ import annotations

from dataclasses import dataclass

from corral.trainers.settings import check_settings, setting

__all__ = ["MASACSettings", "OffPolicySettings", "QMIXSettings", "QSettings"]


@dataclass(frozen=True)
class OffPolicySettings:
    """Settings that all of them have; ValueError names one that is out of range."""

    num_envs: int = setting(16)
    n_steps: int = setting(
        4,
        "Steps of each environment between two updates.",
        least=1,
        unit="env steps",
        sizes="steps",
    )
    gradient_steps: int = setting(
        8, "Minibatches that an update learns from.", least=1, unit="minibatches"
    )
    batch_size: int = setting(128, "Size of a minibatch.", least=1, unit="env steps", sizes="drawn")
    buffer_size: int = setting(
        100_000,
        "Env steps that the replay buffer holds; the oldest leave it.",
        least=1,
        sizes="kept",
    )
    learning_starts: int = setting(
        256, "Env steps that are played at random before learning starts.", least=0
    )
    learning_rate: float = setting(1e-3)
    gamma: float = setting(0.99)
    tau: float = setting(
        0.02,
        "Share of the networks that the target networks take on per minibatch.",
        above=0,
        most=1,
    )
    max_grad_norm: float = setting(5.0)
    loss_function: str = setting(
        "l2", "Loss of the error of values.", choices=("l1", "l2", "smooth_l1")
    )
    net_arch: tuple[int, ...] = setting((64, 64))
    activation: str = setting("relu")
    agent_id: bool = setting(True)

    def __post_init__(self) -> None:
        check_settings(self)
        if self.batch_size > self.buffer_size:
            raise ValueError(
                f"batch_size={self.batch_size}: give at most buffer_size={self.buffer_size}"
            )


@dataclass(frozen=True)
class QSettings(OffPolicySettings):
    """Settings of what learns the values of actions and explores by chance: IQL and VDN."""

    exploration_initial_eps: float = setting(
        1.0, "Share of random legal actions at first.", least=0, most=1
    )
    exploration_final_eps: float = setting(
        0.05, "Share of random legal actions at the end.", least=0, most=1
    )
    exploration_fraction: float = setting(
        0.5, "Share of the env steps after which exploration is at its end.", above=0, most=1
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.exploration_final_eps > self.exploration_initial_eps:
            raise ValueError(
                f"exploration_final_eps={self.exploration_final_eps}: give at most "
                f"exploration_initial_eps={self.exploration_initial_eps}"
            )


@dataclass(frozen=True)
class QMIXSettings(QSettings):
    """Settings of QMIX."""

    mixing_embed_dim: int = setting(
        32,
        "Units of the hidden layer of the mixing network.",
        least=1,
        unit="units",
        sizes="units",
    )


@dataclass(frozen=True)
class MASACSettings(OffPolicySettings):
    """Settings of MASAC; its exploration is the entropy that it is paid for."""

    ent_coef: float = setting(
        0.2, "Weight of entropy at first; it is adapted to target_entropy.", above=0
    )
    ent_coef_max: float | None = setting(
        None, "Largest weight of entropy that it is adapted to; none: any.", above=0
    )
    target_entropy: float = setting(
        0.2,
        "Entropy that is aimed at, as a share of that of uniform play of all actions.",
        least=0,
        most=1,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ent_coef_max is not None and self.ent_coef > self.ent_coef_max:
            raise ValueError(
                f"ent_coef={self.ent_coef}: give at most ent_coef_max={self.ent_coef_max}"
            )
