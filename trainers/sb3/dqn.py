"""Stable-Baselines3's DQN for teams, with action masks in play, exploration and targets.

Each policy has a replay buffer with the decisions of its own agents. The columns of a VecEnv are
played as in ``corral.trainers.sb3.columns``. The buffer distinguishes termination from truncation,
so targets bootstrap at a time limit.

Greedy play takes the legal action with the highest value. Sampled play, and play of untrained
policies, takes a random legal action with probability ``exploration_final_eps``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from corral.adapters.sb3.dqn import MaskedDQN, MaskedQPolicy
from corral.envs.core import Array
from corral.trainers.capabilities import Capabilities
from corral.trainers.content import Content, checkpoint_of, require_arrays, shapes_of
from corral.trainers.on_policy.saving import require_finite_weights
from corral.trainers.sb3.columns import Learner, Rollout, SB3Trainer, Step
from corral.trainers.sb3.settings import SB3DQNSettings

__all__ = ["SB3DQN"]

REPLAYED = ("actions", "rewards", "dones", "timeouts")
"""Arrays of a replay buffer [rows, P, ...], except its two dictionaries of observations."""


class SB3DQN(SB3Trainer):
    """DQN that plays, explores and bootstraps with legal actions only. See ``SB3DQNSettings``."""

    name: ClassVar[str] = "sb3_dqn"
    Settings: ClassVar[type] = SB3DQNSettings
    capabilities = Capabilities(turns=False, sampled=False)
    algorithm: ClassVar[type] = MaskedDQN
    policy_class: ClassVar[type] = MaskedQPolicy
    rollout_of: ClassVar[str] = "num_envs x train_freq x log_interval"
    arguments: ClassVar[tuple[str, ...]] = (
        *("buffer_size", "learning_starts", "batch_size", "train_freq", "gradient_steps", "tau"),
        *("gamma", "exploration_fraction", "exploration_initial_eps", "exploration_final_eps"),
        *("max_grad_norm", "device"),
    )

    def _arguments(self, agents: int, trained: bool) -> dict[str, Any]:
        arguments, settings = super()._arguments(agents, trained), self.settings
        arguments["policy_kwargs"]["epsilon"] = settings.exploration_final_eps
        if not trained:
            arguments["buffer_size"] = 1
        # Stable-Baselines3 counts the decisions of all columns, and warns if one step exceeds this.
        interval = max(settings.target_update_interval, settings.num_envs)
        return {**arguments, "target_update_interval": agents * interval}

    def _action_space(self) -> Any:
        return copy.deepcopy(self.layout.action_space)  # exploration samples from it

    def _learner(self, name: str, index: int, trained: bool) -> Learner:
        learner = super()._learner(name, index, trained)
        rate = "exploration_initial_eps" if trained else "exploration_final_eps"
        learner.model.exploration_rate = getattr(self.settings, rate)
        return learner

    @property
    def remark(self) -> str | None:
        """A warning if all planned steps are played with random actions, else None."""
        rollout, starts = self.rollout_steps, self.settings.learning_starts
        planned = max(1, self.steps // rollout) * rollout
        if planned > starts:
            return None
        return (
            f"nothing is learned in {planned:,} env steps: --learning-starts (learning_starts=) is "
            f"{starts:,}. Pass a smaller value, or more steps"
        )

    @property
    def rollout_steps(self) -> int:
        """Env steps between two rows of progress, over all environment copies."""
        settings = self.settings
        return int(settings.num_envs * settings.train_freq * settings.log_interval)

    # --- Training --------------------------------------------------------------------------------

    def _learn_rollout(
        self, obs: dict[str, Array]
    ) -> tuple[dict[str, Array], Rollout, dict[str, float]]:
        rollout = Rollout(np.zeros(len(self.rules.agents)))
        logged: list[dict[str, float]] = []
        played = self.env_steps
        for _ in range(self.settings.log_interval):
            for _ in range(self.settings.train_freq):
                with rollout.timed("inference"):
                    actions = self._choose(obs, played)
                with rollout.timed("env"):
                    step = self._step(actions, rollout)
                played += self.settings.num_envs
                with rollout.timed("learning"):
                    self._store(actions, step, played)
                obs = step[0]
            with rollout.timed("learning"):
                logged.append(self._update(learns=played > self.settings.learning_starts))
        self.env_steps = played
        return obs, rollout, _summary(logged)

    def _choose(self, obs: dict[str, Array], played: int) -> Array:
        """Return actions int64 [C] for observations [C, ...] after ``played`` env steps."""
        assert self._starts is not None
        actions = np.empty(len(self._starts), dtype=np.int64)
        for learner in self._learners.values():
            model, observations = learner.model, learner.own(obs)
            model.policy.set_training_mode(False)
            if learner.trained:
                model.num_timesteps, model._last_obs = played, observations
                chosen, _ = model._sample_action(self.settings.learning_starts)
            else:
                chosen, _ = model.predict(observations)
            actions[learner.columns] = chosen
        return actions

    def _store(self, actions: Array, step: Step, played: int) -> None:
        """Add a step to the replay buffers; update target networks and exploration."""
        obs, rewards, dones, infos = step
        for learner in self._learners.values():
            if not learner.trained:
                continue
            model, columns = learner.model, learner.columns
            model._store_transition(
                model.replay_buffer,
                actions[columns],
                learner.own(obs),
                rewards[columns],
                dones[columns],
                [infos[column] for column in columns.tolist()],
            )
            model._update_current_progress_remaining(min(played, self.steps), self.steps)
            model._on_step()

    def _update(self, learns: bool) -> dict[str, float]:
        """Train from minibatches of each policy's replay buffer if ``learns``; return metrics."""
        metrics: dict[str, float] = {}
        for name, learner in self._learners.items():
            if not learner.trained:
                continue
            model = learner.model
            if learns:
                model.train(self.settings.gradient_steps, self.settings.batch_size)
            metrics |= self._logged(name, model)
            require_finite_weights(name, model.policy)
        return metrics

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> Content:
        content = super().save()
        document, arrays = content.documents["trainer"], dict(content.arrays)
        document["exploration"] = {}
        for name, learner in self._learners.items():
            model = learner.model
            document["exploration"][name] = {
                "generator": model.action_space.np_random.bit_generator.state,
                "rate": float(model.exploration_rate),
                "steps": model._n_calls,
                "full": bool(model.replay_buffer.full),
                "position": int(model.replay_buffer.pos),
            }
            if learner.trained:
                rows = model.replay_buffer.size()
                replayed = _replayed(model.replay_buffer)
                arrays[f"replay_{name}"] = {key: item[:rows] for key, item in replayed.items()}
        return Content(content.documents, arrays)

    def load(self, content: Content) -> None:
        with checkpoint_of(self.name):
            saved = content.documents["trainer"]["exploration"]
            for name, learner in self._learners.items():
                if learner.trained:
                    _require_replay(learner.model, f"replay_{name}", content.arrays, saved[name])
            super().load(content)
            for name, learner in self._learners.items():
                model, state = learner.model, saved[name]
                model.action_space.np_random.bit_generator.state = state["generator"]
                model.exploration_rate, model._n_calls = float(state["rate"]), int(state["steps"])
                model.replay_buffer.full = bool(state["full"])
                model.replay_buffer.pos = int(state["position"])
                if learner.trained:
                    for key, item in _replayed(model.replay_buffer).items():
                        kept = content.arrays[f"replay_{name}"][key]
                        item[: len(kept)] = kept


def _summary(logged: list[dict[str, float]]) -> dict[str, float]:
    """Return the last logged value of each metric, and the mean of losses."""
    last = {key: value for item in logged for key, value in item.items()}
    for key in last:
        if key.rpartition("/")[2] == "loss":
            last[key] = float(np.mean([item[key] for item in logged if key in item]))
    return last


def _replayed(buffer: Any) -> dict[str, Array]:
    """Return the arrays [rows, P, ...] of a replay buffer, by name."""
    replayed = {key: getattr(buffer, key) for key in REPLAYED}
    for name in ("observations", "next_observations"):
        replayed |= {f"{name}.{key}": item for key, item in getattr(buffer, name).items()}
    return replayed


def _require_replay(
    model: Any, file: str, arrays: Mapping[str, dict[str, Array]], saved: Mapping[str, Any]
) -> None:
    """Raise CheckpointError if a saved replay buffer does not fit the one of ``model``."""
    buffer = model.replay_buffer
    rows = buffer.buffer_size if saved["full"] else int(saved["position"])
    expected = {key: item[:rows] for key, item in _replayed(buffer).items()}
    require_arrays(file, arrays[file], shapes_of(expected))
