"""The settings of the trainers that stand on Stable-Baselines3."""

from __future__ import annotations

from dataclasses import dataclass

from corral.trainers.settings import check_settings, setting

__all__ = ["SB3Settings"]


@dataclass(frozen=True)
class SB3Settings:
    """Settings of PPO and MaskablePPO; ValueError names one that is out of range."""

    vec_env: str = setting(
        "batch",
        "Class that plays the environments: batch is fast and resumes exactly.",
        choices=("batch", "supersuit"),
    )
    num_envs: int = setting(16)
    cpus: int = setting(
        0, "Number of worker processes of SuperSuit; 0: none.", least=0, unit="processes"
    )
    n_steps: int = setting(64)
    batch_size: int = setting(512, "Size of a minibatch.", least=2, unit="decisions")
    n_epochs: int = setting(6)
    learning_rate: float = setting(2e-3)
    anneal: bool = setting(True)
    gamma: float = setting(0.99)
    gae_lambda: float = setting(0.95)
    clip_range: float = setting(0.2)
    ent_coef: float = setting(0.0, "Weight of the bonus for entropy over legal actions.", least=0)
    vf_coef: float = setting(0.5)
    max_grad_norm: float = setting(0.5)
    target_kl: float | None = setting(
        None,
        "KL divergence of which 1.5 times ends an update, whatever epochs are left; none: never.",
        above=0,
    )
    net_arch: tuple[int, ...] = setting((64, 64))
    agent_id: bool = setting(True)
    device: str = setting(
        "cpu",
        "Device of the networks; small ones are faster on the CPU.",
        choices=("cpu", "cuda", "auto"),
    )

    def __post_init__(self) -> None:
        check_settings(self)
