"""Helpers for steps of Stable-Baselines3's VecEnvs: finished episodes and invalid numbers."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from corral.envs.core import Array
from corral.errors import NonFiniteError
from corral.trainers.base import Episode

__all__ = ["ended", "interrupts_ignored", "require_finite"]


def ended(infos: Sequence[Mapping[str, Any]], dones: Array, agents: Sequence[str]) -> list[Episode]:
    """Return the episodes that ended in a step; all agents of an environment copy end together."""
    n, episodes = len(agents), []
    for first in (np.flatnonzero(dones[::n]) * n).tolist():
        copy_infos = infos[first : first + n]
        returns = {
            agent: item["episode"]["r"] for agent, item in zip(agents, copy_infos, strict=True)
        }
        kpis = {
            key: float(sum(copy_info["kpis"][key] for copy_info in copy_infos))
            for key in copy_infos[0]["kpis"]
        }
        episodes.append(Episode(returns, copy_infos[0]["episode"]["l"], kpis))
    return episodes


def require_finite(
    rewards: Array,
    obs: Mapping[str, Array],
    infos: Sequence[Mapping[str, Any]],
    dones: Array,
    agents: Sequence[str],
) -> None:
    """Raise NonFiniteError for a reward or observation that is not finite.

    Checks rewards [C], observations [C, ...] and the final observations of finished episodes.
    """
    fault = "contains a number that is not finite; correct the environment"
    wrong = [(c, f"reward is {rewards[c]}") for c in np.flatnonzero(~np.isfinite(rewards)).tolist()]
    for key, values in obs.items():
        if values.dtype.kind == "f":
            finite = np.isfinite(values).reshape(len(values), -1).all(axis=1)  # [C]
            wrong += [(c, f"{key} {fault}") for c in np.flatnonzero(~finite).tolist()]
    for column in np.flatnonzero(dones).tolist():
        for key, value in infos[column]["terminal_observation"].items():
            if not np.isfinite(value).all():
                wrong.append((column, f"last {key} {fault}"))
    if wrong:
        copy, agent = divmod(wrong[0][0], len(agents))
        raise NonFiniteError(f"copy {copy}, {agents[agent]}: the {wrong[0][1]}")


@contextlib.contextmanager
def interrupts_ignored() -> Iterator[None]:
    """Ignore SIGINT while worker processes start, so that they inherit this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
