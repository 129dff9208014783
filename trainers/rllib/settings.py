"""The settings of the trainer that stands on RLlib."""

from __future__ import annotations

from dataclasses import dataclass

from corral.trainers.settings import check_settings, setting

__all__ = ["RLlibPPOSettings"]


@dataclass(frozen=True)
class RLlibPPOSettings:
    """Settings of RLlib's PPO; ValueError names one that is out of range."""

    address: str = setting(
        "local",
        "Address of a Ray cluster: HOST:PORT, auto (the one of this machine), or local (a Ray "
        "of its own).",
    )
    runners: int = setting(
        0,
        "Number of processes that play, on whatever nodes there are; 0: this one plays.",
        least=0,
        unit="processes",
        sizes="processes",
    )
    envs_per_runner: int = setting(
        16,
        "Number of environments that each runner plays.",
        least=1,
        unit="environments",
        sizes="copies",
    )
    train_batch_size: int = setting(
        1024,
        "Env steps of all runners together per update.",
        least=1,
        unit="env steps",
        sizes="kept",
    )
    batch_size: int = setting(512)
    n_epochs: int = setting(6)
    learning_rate: float = setting(2e-3)
    anneal: bool = setting(True)
    gamma: float = setting(0.99)
    gae_lambda: float = setting(0.95)
    clip_range: float = setting(0.2)
    ent_coef: float = setting(0.0)
    ent_coef_end: float | None = setting(None)
    vf_coef: float = setting(0.5)
    kl_coef: float = setting(0.0)
    kl_target: float = setting(
        0.01, "KL divergence of an update that kl_coef is adapted to reach.", above=0
    )
    max_grad_norm: float = setting(0.5)
    net_arch: tuple[int, ...] = setting((64, 64))
    cnn_layers: tuple[int, ...] = setting(
        (16, 32, 64),
        "Layers for images: filters of each 3 x 3 layer, then units after them.",
        least=1,
        unit="filters or units",
        sizes="layers",
    )
    activation: str = setting("relu")
    agent_id: bool = setting(True)
    critic_input: str = setting(
        "own",
        "Input of the critic: the agent's own observation, or with it the global state.",
        choices=("own", "state"),
    )
    whole_episodes: bool | None = setting(
        None, "Learn from whole episodes only; none: in turn-based games."
    )
    patience: float = setting(
        120.0, "Time without a sample of any runner that ends training.", above=0, unit="seconds"
    )
    cpus_per_runner: float = setting(
        1.0, "Number of cores that Ray reserves for each runner.", least=0, unit="cores"
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if not (isinstance(self.address, str) and self.address):
            raise ValueError(f"address={self.address!r}: give HOST:PORT, 'auto' or 'local'")
        if len(self.cnn_layers) < 2:
            raise ValueError(f"cnn_layers={self.cnn_layers!r}: give a tuple of numbers of units")
        if self.batch_size > self.train_batch_size:
            raise ValueError(
                f"batch_size={self.batch_size}: give at most train_batch_size="
                f"{self.train_batch_size}"
            )
