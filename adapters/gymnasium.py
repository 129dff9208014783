"""The environments for single-agent libraries, through gymnasium: one seat, or many columns.

    import gymnasium
    import corral.adapters  # enters corral/arena-v0, corral/dfaas-v0, ... in gymnasium's registry

    env = gymnasium.make("corral/arena-v0", seat="agent_1", opponents="random/still")
    envs = gymnasium.make_vec("corral/arena-v0", num_envs=64)

``SeatEnv`` plays one agent of any game, simultaneous or turn-based, while given policies play the
others: what reaches libraries that know neither turns nor agents that differ. ``BatchVectorEnv`` is
a gymnasium VectorEnv over Batch: the columns of like agents, or one seat in every copy.

Observations are one level of Dict with the ``action_mask`` in it: see ``corral.adapters.layout``.
Both have ``action_masks()``, as sb3-contrib's MaskablePPO asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, cast

import gymnasium
import numpy as np
from gymnasium.vector.utils import batch_space

from corral.adapters.batch import Batch, BatchStep, make_batch
from corral.adapters.layout import Layout, refuse_death, refuse_turns
from corral.adapters.seats import Seat
from corral.envs.core import Array, Observation, Outcome, Rules, generator
from corral.envs.policy import Decision, Policy, RandomPolicy
from corral.envs.registry import REGISTERED, make_rules
from corral.envs.shells import TurnShell
from corral.envs.teams import reference_team
from corral.errors import ActionError, CorralError, ResetNeededError, UnknownNameError

__all__ = ["BatchVectorEnv", "Opponents", "SeatEnv", "register_with_gymnasium"]

Chooser = Callable[[Observation], int]
"""A legal action for one observation."""

Opponents = str | Policy | Chooser | Mapping[str, Policy | Chooser] | None
"""Who plays the other seats: a reference team's name (``corral.envs.teams``), one policy for all,
or a mapping from agents to policies, that of the learner's seat not being asked; None: uniformly
random legal play."""

IDLE_EPISODES = 1000
"""Episodes in a row in which a seat may have nothing to decide before ``reset`` gives up."""


# --- One seat ------------------------------------------------------------------------------------


class SeatEnv(gymnasium.Env[Any, Any]):
    """One agent of an environment as a gymnasium.Env: a step is a decision of its own.

    The others play as soon as it is their turn. What the agent is paid between two decisions of
    its own is summed, undiscounted, into the first. What it is paid before its first decision is in
    ``episode_return`` alone, since no decision earned it. The episode ends with the agent's own:
    ``terminated`` by the rules, ``truncated`` by the time limit. Episodes in which it has nothing
    to decide are played through.

    ``info`` holds, at reset and in each step, what the environment's info says of the agent, summed
    since its last decision, and ``episode_return``.

    ``reset(seed=s)`` begins the episode of a PettingZoo environment's ``reset(seed=s)``; the
    opponent in place i draws from ``generator(s, "policy", i)``.

    Args:
        env: an environment's name, or rules.
        seat: the learner's agent; default: the first.
        opponents: see ``Opponents``.
        deterministic: whether the opponents play their likeliest action; else they sample.
        render_mode: as of the environment.
        env_kwargs: arguments of the environment, given by name.

    Raises:
        UnknownNameError: no environment, agent or team of that name.
        UnsupportedSpaceError: an observation that one level of Dict cannot hold.
        ValueError: opponents that leave an agent without a policy.
    """

    metadata: dict[str, Any] = {"render_modes": ["human", "ansi", "rgb_array"], "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        env: str | Rules[Any],
        seat: str | None = None,
        opponents: Opponents = None,
        *,
        deterministic: bool = False,
        render_mode: str | None = None,
        **env_kwargs: Any,
    ) -> None:
        self.rules = _rules(env, env_kwargs)
        self.seat = _seat(self.rules, seat)
        self.layout = Layout.of(self.rules, self.rules.name, [self.seat], agent_id=False)
        self.observation_space = self.layout.observation_space
        self.action_space = self.layout.action_space
        self.metadata = {
            **self.metadata,
            "render_modes": list(self.rules.render_modes),
            "render_fps": self.rules.render_fps,
        }
        self.render_mode = render_mode
        self._shell = _Watched(self.rules, render_mode, self.rules.agents.index(self.seat))
        self._others = _others(self.rules, self.seat, opponents, 1, deterministic)
        self._mask: Array | None = None  # bool [A]; None before the first reset
        self._over = True
        self._return = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begin an episode and play up to the first decision."""
        super().reset(seed=seed)
        if seed is not None:
            _reseed(self.rules, self._others, seed)
        for _ in range(IDLE_EPISODES):
            self._shell.reset(seed=seed)
            seed = None  # those after it go on with the generators
            for other in self._others.values():
                other.forget(np.array([0]))
            self._play_others()
            if not self._ended():
                break
        else:
            raise CorralError(
                f"{self.rules.name}: {self.seat} had nothing to decide in {IDLE_EPISODES} episodes "
                "in a row; give another seat"
            )
        self._return = float(self._shell._cumulative_rewards[self.seat])
        self._over = False
        return self._seen(), self._info()

    def step(self, action: int) -> tuple[dict[str, Array], float, bool, bool, dict[str, Any]]:
        """Play ``action``, and the others up to the next decision.

        Raises ActionError or IllegalActionError, before anything changes, and ResetNeededError.
        """
        if self._over:
            raise ResetNeededError(f"{self.rules.name}: call reset() before step()")
        sums, self._shell.sums = self._shell.sums, {}
        try:
            self._shell.step(action)
        except ActionError:
            self._shell.sums = sums
            raise
        self._play_others()
        reward = float(self._shell._cumulative_rewards[self.seat])
        self._return += reward
        self._over = self._ended()
        terminated = bool(self._shell.terminations[self.seat])
        truncated = bool(self._shell.truncations[self.seat])
        return self._seen(), reward, terminated, truncated, self._info()

    def action_masks(self) -> Array:
        """What is legal now: bool [A]."""
        if self._mask is None:
            raise ResetNeededError(f"{self.rules.name}: call reset() before action_masks()")
        return self._mask.copy()

    def render(self) -> Any:
        """The last step of the environment, in the render_mode."""
        return self._shell.render()

    def close(self) -> None:
        self._shell.close()

    def _play_others(self) -> None:
        """Play up to the next decision of the seat, or to its end."""
        shell = self._shell
        while not self._ended() and (agent := shell.agent_selection) != self.seat:
            if shell.terminations[agent] or shell.truncations[agent]:
                shell.step(None)
                continue
            observation = _batch_of_one(shell.observe(agent))
            shell.step(int(self._others[agent].act(observation)[0]))

    def _ended(self) -> bool:
        return bool(self._shell.terminations[self.seat] or self._shell.truncations[self.seat])

    def _seen(self) -> dict[str, Array]:
        seen = self.layout.flat(self._shell.observe(self.seat))
        self._mask = seen["action_mask"].astype(bool)
        return seen

    def _info(self) -> dict[str, Any]:
        return {**self._shell.sums, "episode_return": self._return}


class _Watched(TurnShell):
    """A TurnShell that sums what the infos of its steps say of one agent."""

    def __init__(self, rules: Rules[Any], render_mode: str | None, place: int) -> None:
        super().__init__(rules, render_mode)
        self.place = place
        self.sums: dict[str, Any] = {}  # whoever reads them empties them

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        super().reset(seed, options)
        self.sums = dict(self.infos[self.possible_agents[self.place]])

    def _advance(self, action: Array) -> tuple[Outcome[Any], bool]:
        outcome, time_is_up = super()._advance(action)
        for key, values in outcome.info.items():
            self.sums[key] = self.sums.get(key, 0) + values[0, self.place].item()
        return outcome, time_is_up


# --- Many columns --------------------------------------------------------------------------------


class BatchVectorEnv(gymnasium.vector.VectorEnv[dict[str, Array], Array, Array]):
    """A Batch as a gymnasium VectorEnv, for games in which all act at once.

    Without ``seat``, the N like agents of B copies are C = B * N columns (column = copy * N +
    agent), and observations say which agent they are of. With ``seat`` each copy is one column,
    and the ``opponents`` play the others.

    An episode that ends is followed by the next one within the step (AutoresetMode.SAME_STEP): the
    observation returned is the next episode's first. As in gymnasium's own vector environments,
    ``infos`` then holds ``final_obs`` (an object array: a Dict where an episode ended) and
    ``final_info`` (arrays by key), and for each entry ``_<entry>``, bool [C]: where it counts.

    Args:
        env: an environment's name, or rules.
        num_envs: columns; without ``seat`` a multiple of the number of agents.
        seat: the learner's agent; None: all agents learn.
        opponents, deterministic, env_kwargs: as of ``SeatEnv``.

    Raises:
        UnknownNameError: no environment, agent or team of that name.
        UnsupportedSpaceError: turn-based games, agents that differ (without ``seat``), and, in the
            step in which it happens, an agent that ends before the others.
        ValueError: a number of columns that copies do not fill; opponents that leave an agent
            without a policy, or without a seat to oppose.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        "autoreset_mode": Batch.autoreset_mode,
        "render_modes": [],
    }

    def __init__(
        self,
        env: str | Rules[Any],
        num_envs: int = 64,
        *,
        seat: str | None = None,
        opponents: Opponents = None,
        deterministic: bool = False,
        **env_kwargs: Any,
    ) -> None:
        rules = _rules(env, env_kwargs)
        if not rules.simultaneous:
            refuse_turns(rules.name)
        learners = rules.agents if seat is None else (_seat(rules, seat),)
        if num_envs < 1 or num_envs % len(learners):
            raise ValueError(
                f"num_envs={num_envs}: the {len(learners)} agents of each copy of {rules.name} are "
                f"columns; give a multiple of {len(learners)}, or seat= for one column per copy"
            )
        if seat is None and opponents is not None:
            raise ValueError("opponents without seat=: who is the learner?")
        self.rules = rules
        self.layout = Layout.of(rules, rules.name, learners, agent_id=True)
        self.batch = make_batch(rules, num_envs // len(learners))
        self.num_envs = num_envs
        self.single_observation_space = self.layout.observation_space
        self.single_action_space = self.layout.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._places = [rules.agents.index(agent) for agent in learners]
        self._others = (
            _others(rules, seat, opponents, num_envs, deterministic) if seat is not None else {}
        )
        self._observations: dict[str, Observation] = {}  # of the Batch, by agent
        self._masks: Array | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Array], dict[str, Any]]:
        """Begin an episode in every copy; copy r draws from ``generator(seed, "env", r)``."""
        super().reset(seed=seed)
        observations = self.batch.reset(seed)
        if seed is not None:
            _reseed(self.rules, self._others, seed)
        for other in self._others.values():
            other.forget(np.arange(self.batch.copies))
        return self._seen(observations), self._named(self.batch.first_info())

    def step(self, actions: Array) -> tuple[dict[str, Array], Array, Array, Array, dict[str, Any]]:
        """Play ``actions``, int [C]: observations, rewards [C], terminated, truncated, infos.

        Raises ActionError or IllegalActionError, before anything changes, and ResetNeededError.
        """
        step = self.batch.step(self._joint(actions))
        ended = (step.terminated | step.truncated)[:, self._places]  # [B, learners]
        if np.count_nonzero(ended) or step.finished is not None:
            early = ended & ~step.over[:, None]
            if early.any():
                names = [self.layout.agents[i] for i in np.flatnonzero(early.any(axis=0))]
                refuse_death(self.rules.name, names)
        infos = self._named(step.info)
        if step.finished is not None:
            infos = self._with_last(infos, step)
            for other in self._others.values():
                other.forget(step.finished.rows)
        return (
            self._seen(step.observations),
            self._columns(step.reward),
            self._columns(step.terminated),
            self._columns(step.truncated),
            infos,
        )

    def action_masks(self) -> Array:
        """What is legal now: bool [C, A]."""
        if self._masks is None:
            raise ResetNeededError(f"{self.rules.name}: call reset() before action_masks()")
        return self._masks.copy()

    def _joint(self, actions: Array) -> Array:
        """The learners' actions [C] and the others' as [B, N]."""
        if self._masks is None:
            raise ResetNeededError(f"{self.rules.name}: call reset() before step()")
        given = np.asarray(actions)
        if given.shape != (self.num_envs,) or given.dtype.kind not in "iu":
            raise ActionError(
                f"actions are {given.dtype} {given.shape}; give integers of shape "
                f"({self.num_envs},)"
            )
        if not self._others:
            return given.reshape(self.batch.copies, -1)
        joint = np.zeros((self.batch.copies, len(self.rules.agents)), dtype=given.dtype)
        joint[:, self._places[0]] = given
        for agent, other in self._others.items():
            place = self.rules.agents.index(agent)
            rows = np.flatnonzero(self.batch.acting[:, place])
            if len(rows):
                joint[rows, place] = other.act(self._observations[agent], rows)
        return joint

    def _seen(self, observations: dict[str, Observation]) -> dict[str, Array]:
        self._observations = observations
        entries = self._entries(observations)
        self._masks = entries["action_mask"].astype(bool)
        return entries

    def _entries(self, observations: Mapping[str, Observation]) -> dict[str, Array]:
        if not self._others:
            return self.layout.columns(observations)
        entries = self.layout.flat(observations[self.layout.agents[0]])
        # Whoever is given them may overwrite them; the Batch and the others look at theirs.
        return {key: values.copy() for key, values in entries.items()}

    def _columns(self, values: Array) -> Array:
        """[B, N] of all agents as [C] of the learners, in an array of its own."""
        return np.array(values[:, self._places]).reshape(-1)

    def _named(self, info: Mapping[str, Array]) -> dict[str, Any]:
        infos: dict[str, Any] = {}
        for key, values in info.items():
            infos[key], infos[f"_{key}"] = self._columns(values), np.ones(self.num_envs, bool)
        return infos

    def _with_last(self, infos: dict[str, Any], step: BatchStep) -> dict[str, Any]:
        """``infos`` of a step in which episodes ended: theirs are final, the others begin anew."""
        finished = step.finished
        assert finished is not None
        n = len(self._places)
        columns = (finished.rows[:, None] * n + np.arange(n)).reshape(-1)  # [D * learners]
        over = np.zeros(self.num_envs, dtype=bool)
        over[columns] = True
        last = self._entries(finished.observations)
        final_obs = np.full(self.num_envs, None, dtype=object)
        for place, column in enumerate(columns.tolist()):
            final_obs[column] = {key: values[place] for key, values in last.items()}
        final_info: dict[str, Any] = {}
        for key, values in self.batch.first_info(finished.rows).items():
            final_info[key] = np.where(over, infos[key], 0).astype(infos[key].dtype)
            final_info[f"_{key}"] = over.copy()
            infos[key][columns] = values[:, self._places].reshape(-1)
        named = {"final_obs": final_obs, "final_info": final_info}
        return {**infos, **named, "_final_obs": over, "_final_info": over.copy()}


# --- Parts ---------------------------------------------------------------------------------------


class _Chosen:
    """A function of one observation as a policy."""

    def __init__(self, choose: Chooser) -> None:
        self.choose = choose

    def initial_state(self, copies: int) -> Any:
        return None

    def act(
        self,
        observation: Observation,
        state: Any = None,
        rng: np.random.Generator | None = None,
        deterministic: bool = False,
    ) -> Decision:
        """One call for each observation of the batch."""
        rows = range(len(observation["action_mask"]))
        return Decision(np.array([self.choose(_row(observation, row)) for row in rows]))


def _rules(env: str | Rules[Any], env_kwargs: Mapping[str, Any]) -> Rules[Any]:
    if isinstance(env, str):
        return make_rules(env, **env_kwargs)
    if env_kwargs:
        raise ValueError(f"arguments {sorted(env_kwargs)} need an environment's name, not rules")
    return env


def _seat(rules: Rules[Any], seat: str | None) -> str:
    if seat is not None and seat not in rules.agents:
        raise UnknownNameError.of(f"agent of {rules.name}", seat, rules.agents)
    return rules.agents[0] if seat is None else seat


def _others(
    rules: Rules[Any], seat: str, opponents: Opponents, copies: int, deterministic: bool
) -> dict[str, Seat]:
    """Who plays the seats but ``seat``."""
    team: Mapping[str, Policy | Chooser]
    if opponents is None:
        team = dict.fromkeys(rules.agents, RandomPolicy())
    elif isinstance(opponents, str):
        team = reference_team(opponents, rules)
    elif isinstance(opponents, Mapping):
        team = opponents
    else:
        team = dict.fromkeys(rules.agents, opponents)
    for agent in team:
        if agent not in rules.agents:
            raise UnknownNameError.of(f"agent of {rules.name}", str(agent), rules.agents)
    others = {}
    for i, agent in enumerate(rules.agents):
        if agent == seat:
            continue
        if agent not in team:
            raise ValueError(f"opponents: no policy for {agent} of {rules.name}; give one")
        others[agent] = Seat(
            agent,
            _policy(team[agent]),
            copies=copies,
            actions=rules.action_space(agent),
            rng=generator(None, "policy", i),
            deterministic=deterministic,
        )
    return others


def _policy(given: Policy | Chooser) -> Policy:
    return cast("Policy", given) if hasattr(given, "act") else _Chosen(given)


def _reseed(rules: Rules[Any], others: Mapping[str, Seat], seed: int) -> None:
    for agent, other in others.items():
        other.rng = generator(seed, "policy", rules.agents.index(agent))


def _batch_of_one(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _batch_of_one(part) for key, part in value.items()}
    return np.asarray(value)[None]


def _row(value: Any, row: int) -> Any:
    if isinstance(value, Mapping):
        return {key: _row(part, row) for key, part in value.items()}
    return value[row]


def register_with_gymnasium() -> None:
    """Enter all environments as ``corral/<name>-v<N>`` in gymnasium's registry, probes too."""
    for name in REGISTERED:
        identity = "corral/" + "-v".join(name.rsplit("_v", 1))  # gymnasium's spelling: arena-v0
        if identity not in gymnasium.registry:
            gymnasium.register(
                identity,
                entry_point="corral.adapters.gymnasium:SeatEnv",
                vector_entry_point="corral.adapters.gymnasium:BatchVectorEnv",
                kwargs={"env": name},
            )
