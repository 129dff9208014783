"""Settings of the RLlib trainer."""

from __future__ import annotations

from dataclasses import dataclass

from corral.trainers.settings import check_settings, setting

__all__ = ["RLlibPPOSettings"]


@dataclass(frozen=True)
class RLlibPPOSettings:
    """Settings of RLlib's PPO. Raises ValueError for a setting out of range."""

    address: str = setting(
        "local",
        "Address of a Ray cluster: HOST:PORT, auto (a cluster on this machine), or local (start a "
        "new Ray).",
    )
    runners: int = setting(
        0,
        "Number of runner processes that play, on any node; 0: this process plays.",
        least=0,
        unit="processes",
        sizes="processes",
    )
    envs_per_runner: int = setting(
        16,
        "Number of environment copies per runner.",
        least=1,
        unit="environments",
        sizes="copies",
    )
    train_batch_size: int = setting(
        1024,
        "Env steps per update, over all runners.",
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
        0.01, "Target KL divergence of an update, to which kl_coef is adapted.", above=0
    )
    max_grad_norm: float = setting(0.5)
    net_arch: tuple[int, ...] = setting((64, 64))
    cnn_layers: tuple[int, ...] = setting(
        (16, 32, 64),
        "Layers for images: filters of each 3 x 3 layer, then units of the layer after them.",
        least=1,
        unit="filters or units",
        sizes="layers",
    )
    activation: str = setting("relu")
    agent_id: bool = setting(True)
    critic_input: str = setting(
        "own",
        "Input of the critic: the agent's own observation, or also the global state.",
        choices=("own", "state"),
    )
    whole_episodes: bool | None = setting(
        None, "Train on whole episodes only; none: only in turn-based games."
    )
    patience: float = setting(
        120.0, "Maximum time without samples before training ends.", above=0, unit="seconds"
    )
    cpus_per_runner: float = setting(
        1.0, "Number of cores that Ray reserves for each runner.", least=0, unit="cores"
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if not (isinstance(self.address, str) and self.address):
            raise ValueError(f"address={self.address!r}: pass HOST:PORT, 'auto' or 'local'")
        if len(self.cnn_layers) < 2:
            raise ValueError(f"cnn_layers={self.cnn_layers!r}: pass a tuple of two or more numbers")
        if self.batch_size > self.train_batch_size:
            raise ValueError(
                f"batch_size={self.batch_size} is too large: pass at most train_batch_size="
                f"{self.train_batch_size}"
            )
