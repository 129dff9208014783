"""Environments for RLlib (new API stack): a MultiAgentEnv, and the returns of its episodes.

    config = (
        PPOConfig()
        .environment(
            RLlibEnv,
            env_config={"env": "dfaas_v0", "env_kwargs": {"trace": "edge3", "illegal": "raise"}},
            disable_env_checking=True,  # RLlib's check ignores masks
        )
        .callbacks(EpisodeReturns)
        ...
    )

The matching policy, which applies masks, is in ``corral.adapters.rllib.module``.

``RLlibEnv`` handles six special cases of RLlib:

* **Rewards.** RLlib drops a reward that comes with or before an agent's first observation. Its own
  AECEnv wrapper loses such rewards. ``RLlibEnv`` returns the reward since an agent's last
  observation with its next one. The reward before an agent's first observation is in
  ``finished.returns`` and, with ``early_rewards="first_move"``, in the reward of its first move.
* **Truncation.** If the truncation of each agent is reported, RLlib treats the episode as
  terminated, and does not bootstrap. ``RLlibEnv`` reports only ``"__all__"``.
* **Early ends.** RLlib ends an episode when all agents that it has observed are done, even if other
  agents have not had their first turn. ``RLlibEnv`` reports an end only after RLlib has observed
  another agent.
* **Seeds.** RLlib seeds copy i of runner w with ``seed + w + i``, so several copies share a seed.
  In ``RLlibEnv`` the runner's index is a separate part of the seed.
* **Whole episodes.** With ``batch_mode="complete_episodes"``, RLlib resets with the same seed
  before each sample, and would repeat the same episodes. In its runners, ``RLlibEnv`` uses only the
  first seed.
* **Errors** of an environment in a remote runner appear only in a log, see ``faults``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from gymnasium import spaces

from corral.adapters.sources import rules_of
from corral.adapters.zoo.batch import ZooRules
from corral.adapters.zoo.copies import Observed, make_copy
from corral.adapters.zoo.spec import ZooSpec
from corral.envs.arguments import known_arguments, one_of
from corral.envs.core import Array, generator
from corral.envs.shells import ParallelShell, TurnShell
from corral.errors import ActionError, ResetNeededError
from corral.extras import require

require("ray.rllib", extra="rllib", purpose="make environments for RLlib")

from ray.rllib.callbacks.callbacks import RLlibCallback  # noqa: E402
from ray.rllib.env.env_context import EnvContext  # noqa: E402
from ray.rllib.env.multi_agent_env import MultiAgentEnv  # noqa: E402

__all__ = ["EPISODES", "FAULTS", "EpisodeReturns", "FinishedEpisode", "RLlibEnv"]

EPISODES = "corral_episodes"
FAULTS = "corral_faults"
"""The keys of episodes and of errors in the metrics of env runners; see ``EpisodeReturns``."""


StepResult = tuple[
    dict[str, Any], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]
]
"""Observations, rewards, terminateds, truncateds and infos, in RLlib's form."""


@dataclass(frozen=True)
class FinishedEpisode:
    """Sums over an episode, including rewards before an agent's first turn."""

    returns: dict[str, float]  # agent -> sum of its rewards
    length: int  # steps of the environment
    kpis: dict[str, float]  # sums of the environment's info, over steps and agents


@dataclass(frozen=True)
class _End:
    """The end of an agent's episode."""

    observation: dict[str, Any]
    terminated: bool  # else truncated


class RLlibEnv(MultiAgentEnv):  # type: ignore[misc]  # Ray is not installed for type checks
    """Any environment of corral or PettingZoo, parallel or AEC, as RLlib's MultiAgentEnv.

    An observation is a Dict: ``observation``, ``action_mask`` (int8 [A], for Discrete actions) and
    optionally ``state`` (float32 [G], for a critic) and ``agent`` (one-hot). Observations are
    returned only for the agents that act next, and for agents that have just ended. Agents always
    keep the order of ``possible_agents``.

    ``config`` holds:

    | key | meaning |
    |---|---|
    | ``env`` | a registered name, ``Rules``, or a function that returns a PettingZoo environment |
    | ``env_kwargs`` | arguments of the environment, if ``env`` is a name |
    | ``max_cycles`` | time limit in steps of a third-party environment; default: none |
    | ``state`` | add the global state to observations; default: False |
    | ``agent_id`` | add the agent's identity to observations; default: False |
    | ``early_rewards`` | treatment of rewards before an agent's first turn, see below |
    | ``faults`` | treatment of errors of the environment, see below |

    ``early_rewards="first_move"`` (default) adds early rewards to the reward of the agent's first
    move, so RLlib's returns are correct. With ``"return_only"``, early rewards are only in
    ``finished.returns``, and values do not include them.

    If an environment raises, for example for an illegal action, RLlib restarts the runner and
    continues training. With ``faults="tell"``, the episode is truncated instead, and
    ``EpisodeReturns`` stores the error in ``results["env_runners"][FAULTS]``, so that you can stop
    training. The default, ``"raise"``, is for ``restart_failed_env_runners=False``.

    ``finished`` is the last episode that ended.

    Raises UnknownNameError, UnsupportedSpaceError, and the errors of the environment.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        options = dict(config or {})
        known_arguments(_Options, options)
        self._options = _Options(**options)
        self._in_runner = isinstance(config, EnvContext)
        self._worker = int(getattr(config, "worker_index", 0) or 0)
        env = _make(self._options.env, self._options.env_kwargs)
        self.layout = ZooSpec.of(env, self._options.max_cycles)
        self._copy = make_copy(env, self.layout)
        self.possible_agents = list(self.layout.agents)
        self.agents = list(self.layout.agents)
        self._index = {agent: i for i, agent in enumerate(self.agents)}
        self._identities = np.eye(len(self.agents), dtype=np.float32)
        size = self.layout.state_size
        if size is None and self._options.state:
            size = len(self._copy.reset(np.random.default_rng(0)).state)
        self.observation_spaces = {
            agent: self._space(agent, size or 0) for agent in self.possible_agents
        }
        self.action_spaces = {a: self.layout.action_space(a) for a in self.possible_agents}
        self.finished: FinishedEpisode | None = None
        self._seeded = False
        self.fault: str | None = None
        self._ready: Observed | None = None  # of a started episode that is not yet returned
        self._over = True
        super().__init__()
        self.metadata: dict[str, Any] = {"name": self.layout.name}  # RLlib writes into it

    def _space(self, agent: str, size: int) -> spaces.Dict:
        entries = dict(self.layout.observation_space(agent).spaces)
        if self._options.state:
            entries["state"] = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        if self._options.agent_id:
            entries["agent"] = spaces.Box(0.0, 1.0, (len(self.possible_agents),), np.float32)
        return spaces.Dict(entries)

    # --- Episodes --------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode. Observations contain the agents that act first.

        Outside of RLlib's runners, for environments of corral, ``seed=s`` gives the same episode as
        ``reset(seed=s)`` of the PettingZoo environment.
        """
        if seed is not None and not (self._in_runner and self._seeded):
            self._ready = self._copy.reset(generator(seed, "env", self._worker))
            self._seeded = True
        elif self._ready is None:
            self._ready = self._copy.reset(None)
        look, self._ready = self._ready, None
        count = len(self.possible_agents)
        self._over = False
        self._pending_reward = np.zeros(count)  # per agent, since its last observation
        self._observed = look.acting.copy()  # agents that RLlib has observed
        self._end_sent = np.zeros(count, dtype=bool)  # agents with a reported end
        self._unsent_ends: dict[int, _End] = {}
        self._kpis: dict[str, float] = {}
        self.agents = list(self.possible_agents)
        self._acting_agents = self._acting(look)
        self._last = {i: self._observation(look, i) for i in _indices(look.acting)}
        return {self.possible_agents[i]: obs for i, obs in self._last.items()}, {}

    def step(self, action_dict: Mapping[str, Any]) -> StepResult:
        """Play the actions of all acting agents in the last observations.

        Raises ActionError, IllegalActionError or ResetNeededError.
        """
        if self._over:
            raise ResetNeededError(f"{self.layout.name}: call reset() before step()")
        try:
            for agent in self._acting_agents:
                if agent not in action_dict:
                    raise ActionError(
                        f"no action for {agent}; pass {', '.join(self._acting_agents)}"
                    )
            moved = self._copy.step({agent: action_dict[agent] for agent in self._acting_agents})
        except Exception as error:
            if self._options.faults == "raise":
                raise
            return self._end_with(error)
        self._pending_reward += moved.reward
        for key, values in moved.info.items():
            self._kpis[key] = self._kpis.get(key, 0.0) + float(values.sum())
        self._over = moved.final is not None
        look = moved.look if moved.final is None else moved.final.look
        ends = moved.terminated | moved.truncated
        for i in _indices(ends & self._observed):
            self._unsent_ends[i] = _End(self._observation(look, i), bool(moved.terminated[i]))
        self.agents = [agent for agent in self.agents if not ends[self._index[agent]]]
        if moved.final is not None:
            returns = dict(zip(self.possible_agents, moved.final.returns.tolist(), strict=True))
            self.finished = FinishedEpisode(returns, moved.final.length, self._kpis)
            self._ready = moved.look  # the copy has already begun the next episode
        return self._result(look)

    def close(self) -> None:
        self._copy.close()

    def _end_with(self, error: Exception) -> StepResult:
        """Truncate the episode after an error of the environment."""
        self.fault = f"{type(error).__name__}: {error}"
        self._over = True
        sent = {
            self.possible_agents[i]: self._last[i]
            for i in _indices(self._observed & ~self._end_sent)
        }
        return sent, dict.fromkeys(sent, 0.0), {"__all__": False}, {"__all__": True}, {}

    def _result(self, look: Observed) -> StepResult:
        """Return the result of a step for RLlib."""
        ends = self._unsent_ends if self._over else self._sendable_ends()
        cut = [i for i, end in ends.items() if not end.terminated]
        terminateds = {self.possible_agents[i]: True for i, end in ends.items() if end.terminated}
        truncateds = {} if self._over else {self.possible_agents[i]: True for i in cut}
        terminateds["__all__"] = self._over and not cut
        truncateds["__all__"] = self._over and bool(cut)
        observations = {i: end.observation for i, end in ends.items()}
        if not self._over:
            observations |= {i: self._observation(look, i) for i in _indices(look.acting)}
        sent, rewards = {}, {}
        for i in sorted(observations):
            agent = self.possible_agents[i]
            sent[agent], rewards[agent] = observations[i], self._take_reward(i)
        self._last |= observations
        self._acting_agents = [] if self._over else self._acting(look)
        self._unsent_ends = {i: end for i, end in self._unsent_ends.items() if i not in ends}
        return sent, rewards, terminateds, truncateds, {}

    def _sendable_ends(self) -> dict[int, _End]:
        """Return the unsent ends, if an agent that RLlib has observed is still live; else none."""
        live = self._observed & ~self._end_sent
        live[list(self._unsent_ends)] = False
        if not live.any():
            return {}
        self._end_sent[list(self._unsent_ends)] = True
        return dict(self._unsent_ends)

    def _acting(self, look: Observed) -> list[str]:
        return [self.possible_agents[i] for i in _indices(look.acting)]

    def _take_reward(self, i: int) -> float:
        """Return the reward for the next observation of agent ``i``, and reset it."""
        if not self._observed[i]:
            self._observed[i] = True
            if self._options.early_rewards == "return_only":
                self._pending_reward[i] = 0.0
            return 0.0
        reward, self._pending_reward[i] = float(self._pending_reward[i]), 0.0
        return reward

    def _observation(self, look: Observed, i: int) -> dict[str, Any]:
        obs = dict(look.observations[i])
        if self._options.state:
            obs["state"] = look.state
        if self._options.agent_id:
            obs["agent"] = self._identities[i]
        return obs


class EpisodeReturns(RLlibCallback):  # type: ignore[misc]
    """Adds every ended episode to the results, as a dict of the fields of ``FinishedEpisode``.

    ``results["env_runners"][EPISODES]`` is the list of episodes since the last results.
    """

    def on_episode_end(
        self, *, env: Any, env_index: int, metrics_logger: Any, **kwargs: Any
    ) -> None:
        ended = env.envs[env_index].unwrapped
        if ended.fault is not None:
            metrics_logger.log_value(FAULTS, ended.fault, reduce="item_series")
        else:
            metrics_logger.log_value(EPISODES, asdict(ended.finished), reduce="item_series")


# --- Parts ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Options:
    env: Any
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    max_cycles: int | None = None
    state: bool = False
    agent_id: bool = False
    early_rewards: str = "first_move"
    faults: str = "raise"

    def __post_init__(self) -> None:
        one_of("faults", self.faults, ("raise", "tell"))
        one_of("early_rewards", self.early_rewards, ("first_move", "return_only"))


def _indices(mask: Array) -> list[int]:
    """Return the indices at which a bool array [N] is True."""
    indices: list[int] = np.flatnonzero(mask).tolist()
    return indices


def _make(env: Any, env_kwargs: Mapping[str, Any]) -> Any:
    """Return the PettingZoo environment for ``env``."""
    rules: Any = rules_of(env, env_kwargs)
    if isinstance(rules, ZooRules):
        return rules.make_env()
    return ParallelShell(rules) if rules.simultaneous else TurnShell(rules)
