"""Settings of the Stable-Baselines3 trainers."""

from __future__ import annotations

from dataclasses import dataclass

from corral.trainers.settings import check_settings, setting

__all__ = ["SB3A2CSettings", "SB3DQNSettings", "SB3Settings"]


@dataclass(frozen=True)
class _ColumnSettings:
    """Settings of all Stable-Baselines3 trainers. Raises ValueError for one out of range."""

    vec_env: str = setting(
        "batch",
        "Class that steps the environments: batch is fast and resumes exactly.",
        choices=("batch", "supersuit"),
    )
    num_envs: int = setting(16)
    cpus: int = setting(
        0,
        "Number of SuperSuit's worker processes; 0: none.",
        least=0,
        unit="processes",
        sizes="processes",
    )
    learning_rate: float = setting(2e-3)
    anneal: bool = setting(True)
    gamma: float = setting(0.99)
    net_arch: tuple[int, ...] = setting((64, 64))
    agent_id: bool = setting(True)
    device: str = setting(
        "cpu",
        "Device of the networks; small networks are faster on the CPU.",
        choices=("cpu", "cuda", "auto"),
    )

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class SB3Settings(_ColumnSettings):
    """Settings of PPO and MaskablePPO."""

    n_steps: int = setting(64)
    batch_size: int = setting(512, "Size of a minibatch.", least=2, unit="decisions")
    n_epochs: int = setting(6)
    gae_lambda: float = setting(0.95)
    clip_range: float = setting(0.2)
    ent_coef: float = setting(0.0, "Weight of the entropy bonus over legal actions.", least=0)
    vf_coef: float = setting(0.5)
    max_grad_norm: float = setting(0.5)
    target_kl: float | None = setting(
        None,
        "An update stops early at 1.5 times this KL divergence; none: never.",
        above=0,
    )


@dataclass(frozen=True)
class SB3A2CSettings(_ColumnSettings):
    """Settings of A2C, which takes one optimizer step per rollout."""

    n_steps: int = setting(8)
    gae_lambda: float = setting(0.95)
    ent_coef: float = setting(0.0, "Weight of the entropy bonus over legal actions.", least=0)
    vf_coef: float = setting(0.5)
    max_grad_norm: float = setting(0.5)
    use_rms_prop: bool = setting(True, "Use RMSprop as the optimizer; no: use Adam.")
    rms_prop_eps: float = setting(
        1e-5, "Constant that RMSprop adds to its divisor, against division by 0.", above=0
    )
    normalize_advantage: bool = setting(
        False, "Normalize the advantages of a rollout to mean 0 and standard deviation 1."
    )


@dataclass(frozen=True)
class SB3DQNSettings(_ColumnSettings):
    """Settings of DQN. Env steps count over all environment copies together."""

    buffer_size: int = setting(
        50_000,
        "Capacity of a policy's replay buffer in decisions.",
        least=1,
        unit="decisions",
        sizes="kept",
    )
    learning_starts: int = setting(
        1_000, "Env steps with random actions before training starts.", least=0
    )
    batch_size: int = setting(256)
    train_freq: int = setting(
        4, "Env steps of each environment copy between updates.", least=1, unit="env steps"
    )
    gradient_steps: int = setting(
        4, "Number of minibatches per update.", least=1, unit="minibatches"
    )
    target_update_interval: int = setting(
        1_000, "Env steps between updates of the target network.", least=1, unit="env steps"
    )
    tau: float = setting(
        1.0, "Share of the network copied to the target network; 1: all.", above=0, most=1
    )
    exploration_fraction: float = setting(
        0.3,
        "Share of the run over which the rate of random actions decreases.",
        above=0,
        most=1,
    )
    exploration_initial_eps: float = setting(
        1.0, "Rate of random actions at the start.", least=0, most=1
    )
    exploration_final_eps: float = setting(
        0.05,
        "Rate of random actions at the end, and in sampled play.",
        least=0,
        below=1,
    )
    max_grad_norm: float = setting(10.0)
    log_interval: int = setting(
        16, "Number of updates per row of progress.csv.", least=1, unit="updates"
    )
