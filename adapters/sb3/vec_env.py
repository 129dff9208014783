"""Batch as a Stable-Baselines3 VecEnv: the fast way.

    from stable_baselines3 import PPO
    from corral.adapters import MaskedPolicy, make_vec_env
    PPO(MaskedPolicy, make_vec_env("dfaas_v0", num_envs=64, seed=0)).learn(100_000)

Columns, observations and infos: see ``corral.adapters.sb3.columns``. ``corral.adapters.supersuit``
gives the same, step by step and bit for bit, over PettingZoo environments.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from corral.adapters.sb3.columns import ColumnVecEnv
from corral.adapters.spaces import ColumnCodec, refuse_death, refuse_turns
from corral.envs.batch import Batch, BatchStep, make_batch
from corral.envs.core import Array, Rules, generator

__all__ = ["BatchVecEnv", "make_vec_env"]


def make_vec_env(
    env: str | Rules[Any],
    num_envs: int = 64,
    seed: int | None = 0,
    *,
    agent_id: bool = True,
    render_mode: str | None = None,
    **env_kwargs: Any,
) -> BatchVecEnv:
    """``num_envs`` copies of a registered environment, or of given rules, as a VecEnv.

    ``env_kwargs`` go to the environment. Raises UnknownNameError for an unknown name, and
    UnsupportedSpaceError for turn-based games and agents that differ.
    """
    batch = make_batch(env, num_envs, seed, **env_kwargs)
    return BatchVecEnv(batch, agent_id=agent_id, render_mode=render_mode)


class BatchVecEnv(ColumnVecEnv):
    """The B x N agents of a Batch as B * N columns: column = copy * N + agent.

    ``agent_id`` adds to each observation which agent it is of. ``seed()`` holds for the next reset;
    until then the Batch's own seed does. Raises UnsupportedSpaceError for turn-based games and
    agents that differ, and in the step in which an agent ends before the others.
    """

    def __init__(self, batch: Batch, agent_id: bool = True, render_mode: str | None = None) -> None:
        rules = batch.rules
        if not rules.simultaneous:
            refuse_turns(rules.name)
        if render_mode not in (None, "ansi", "rgb_array") or (
            render_mode is not None and render_mode not in rules.render_modes
        ):
            raise ValueError(f"render_mode={render_mode!r}: give 'ansi', 'rgb_array' or None")
        self.batch = batch
        layout = ColumnCodec.of(rules, rules.name, batch.agents, agent_id)
        # Which sums there are, and of which numbers, is read off the info of a throwaway episode.
        sample = rules.info(rules.start([generator(0, "env")]))
        shape = (batch.num_envs, len(batch.agents))
        self._kpis = {
            key: np.zeros(shape, np.float64 if values.dtype.kind == "f" else np.int64)
            for key, values in sample.items()
        }
        self._info: dict[str, Array] | None = None  # of copy 0's last step, for pictures
        super().__init__(layout, batch.num_envs, None, render_mode)

    def reset(self) -> dict[str, Array]:
        """Begin an episode in every copy; entries [C, ...]."""
        observations = self.batch.reset(self._next_seed)
        self._next_seed = None
        for sums in self._kpis.values():
            sums[...] = 0
        self._info = None
        self._reset_options()
        return self._shown(self.layout.columns(observations))

    def step_wait(
        self,
    ) -> tuple[dict[str, Array], Array, Array, list[dict[str, Any]]]:
        """Observations [C, ...], rewards float32 [C], dones bool [C], infos."""
        assert self._actions is not None  # step_async came first
        step = self.batch.step(self._actions.reshape(self.copies, -1))  # [B, N]
        for key, values in step.info.items():
            self._kpis[key] += values
        self._info = step.info
        infos: list[dict[str, Any]] = [{}] * self.num_envs  # one dict for all that go on
        ended = step.terminated | step.truncated  # [B, N]
        if step.finished is not None or np.count_nonzero(ended):
            self._require_common_end(step, ended)
            self._tell_ends(step, infos)
        return (
            self._shown(self.layout.columns(step.observations)),
            np.array(step.reward, dtype=np.float32).reshape(-1),  # [C]; SB3 adds to it in place
            ended.reshape(-1),  # [C]
            infos,
        )

    def close(self) -> None:
        """Nothing to close: a Batch holds arrays alone."""

    # --- Saving and restoring --------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """The Batch's ``snapshot``, with the sums of the episodes under way among its arrays."""
        saved = self.batch.snapshot()
        saved["arrays"] |= {f"kpis.{key}": sums.copy() for key, sums in self._kpis.items()}
        return saved

    def restore(self, snapshot: dict[str, Any]) -> dict[str, Array]:
        """Go on from a ``snapshot``; returns the observations of that moment.

        Raises ValueError, before anything changes, where the snapshot does not fit.
        """
        arrays = dict(snapshot.get("arrays", {}))
        sums = {key: arrays.pop(f"kpis.{key}", None) for key in self._kpis}
        for key, own in self._kpis.items():
            given = sums[key]
            if given is None or (given.shape, given.dtype) != (own.shape, own.dtype):
                raise ValueError(f"snapshot: kpis.{key} is not {own.dtype} {own.shape}")
        observations = self.batch.restore({**snapshot, "arrays": arrays})
        self._kpis = {key: given.copy() for key, given in sums.items()}
        self._next_seed, self._info = None, None
        return self._shown(self.layout.columns(observations))

    # --- Parts -----------------------------------------------------------------------------------

    def _require_common_end(self, step: BatchStep, ended: Array) -> None:
        early = ended & ~step.over[:, None]
        if early.any():
            names = [self.batch.agents[i] for i in np.flatnonzero(early.any(axis=0))]
            refuse_death(self.layout.name, names)

    def _tell_ends(self, step: BatchStep, infos: list[dict[str, Any]]) -> None:
        """Fill in the infos of the columns whose episodes ended, and begin their sums anew."""
        finished = step.finished
        assert finished is not None  # an early end was refused
        last = self.layout.columns(finished.observations)  # [D * N, ...]
        n = len(self.batch.agents)
        for d, row in enumerate(finished.rows.tolist()):
            for i in range(n):
                kpis = {key: sums[row, i].item() for key, sums in self._kpis.items()}
                info = self._final(
                    step.truncated[row, i], finished.returns[d, i], finished.lengths[d], kpis
                )
                info["terminal_observation"] = {key: a[d * n + i] for key, a in last.items()}
                infos[row * n + i] = info
        for sums in self._kpis.values():
            sums[finished.rows] = 0
        if finished.rows[0] == 0:
            self._info = None  # copy 0 shows the start of its next episode

    def _environment(self) -> Any:
        return self.batch.rules

    def _render(self) -> Any:
        assert self.render_mode is not None  # render() saw to it
        return self.batch.render(self._info, self.render_mode)
