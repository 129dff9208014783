"""The contract of corral's environments: ``check_env`` finds nothing, and shells promise more.

``check_contract(make)`` plays a PettingZoo environment, parallel or AEC; ``check_rules(make)``
moves several rows of the rules themselves. Either raises ``ContractViolation``, which names the
rule that was broken, and returns the number of steps played.
"""

from __future__ import annotations

import functools
import math
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from corral.envs import check_env
from corral.envs.conformance.play import Game, View, game_of, play_on
from corral.envs.conformance.session import Difference, steps_of
from corral.envs.core import Outcome, Rules, copy_rows, generator, state_arrays
from corral.envs.masks import mask_space
from corral.errors import IllegalActionError

__all__ = ["ContractViolation", "check_contract", "check_rules", "plain", "require"]

Make = Callable[..., Any]
"""Makes an environment, or rules; takes ``illegal="raise"`` or ``"penalise"``."""


class ContractViolation(AssertionError):
    """An environment breaks the contract; the message names the rule and the place."""


def require(condition: object, message: str) -> None:
    """Raise ContractViolation unless ``condition``: ``assert`` would vanish under -O."""
    if not condition:
        raise ContractViolation(message)


def plain(value: Any) -> Any:
    """Return nested dicts of arrays as plain data that can be compared and hashed."""
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return (value.dtype.str, value.shape, value.tobytes())


def check_contract(
    make: Make,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    chance: bool = True,
    other_process: bool = False,
    limit: int = 1_000,
) -> int:
    """Check the environments that ``make`` makes; return the number of steps played.

    ``chance``: episodes of different seeds differ. ``other_process`` plays in other processes too;
    ``make`` must then pickle. ``limit``: steps within which every episode must end.
    """
    # Under "penalise" info counts illegal actions, which shows whether masks tell the truth.
    result = check_env(
        functools.partial(make, illegal="penalise"),
        seeds=seeds,
        limit=limit,
        stochastic=chance or None,
        processes=other_process,
    )
    require(not result.findings, result.text())
    left_out = (set() if other_process else {"processes", "hashing"}) | (
        {"other-seeds"} if len(seeds) == 1 else set()
    )
    require(set(result.not_run) == left_out, f"not run: {result.not_run}")
    steps = result.steps
    for seed in seeds:
        game, spoiled = (game_of(make(illegal="raise"), watcher) for watcher in (None, Promises()))
        for each in (game, spoiled):
            each.begin(seed)
            play_on(each, steps_of(each, limit))
        difference = Difference.first(game.trace, spoiled.trace)
        require(difference is None, f"an observation belongs to its receiver: {difference}")
        steps += game.step + _check_refusals(make, seed)
    return steps


class Promises:
    """The promises of corral's shells beyond PettingZoo's, checked while a game is watched.

    Overwrites whatever is handed out: it belongs to its receiver.
    """

    def watch(self, game: Game, view: View) -> None:
        env, where = game.env, f"step {view.step}"
        if view.step == 0:
            require(view.agents == env.possible_agents, "all agents begin")
            for agent in env.possible_agents:
                space, actions = env.observation_space(agent), env.action_space(agent)
                require(set(space) == {"observation", "action_mask"}, f"{agent}: {list(space)}")
                require(space["action_mask"] == mask_space(actions.n), f"{agent}: mask's space")
        # PettingZoo's own methods for turns fill in integer zeros.
        number = (int, float) if game.turns else (float,)
        for agent, reward in view.rewards.items():
            kind = type(reward)
            require(kind in number, f"{agent}, {where}: reward is a {kind.__name__}")
        for ends in (view.terminations, view.truncations):
            require(all(type(end) is bool for end in ends.values()), f"{where}: ends are bool")
        for agent, info in view.infos.items():
            numeric = all(type(v) in (int, float) and math.isfinite(v) for v in info.values())
            require(numeric, f"{agent}, {where}: info is numeric and finite: {info}")
        for observation in (*view.observations.values(), {"state": env.state()}):
            for part in observation.values():
                part[...] = 0
            if isinstance(observation, dict):
                observation.clear()


def _check_refusals(make: Make, seed: int) -> int:
    """Require that masked actions are refused under "raise", and change nothing; count them."""
    game = game_of(make(illegal="raise"))
    game.begin(seed)
    tried = 0
    while not game.over:
        actions = game.choose()
        for agent, mask in game.to_act.items():
            for action in [] if mask is None else game.alternatives(agent, mask)[1]:
                before = pickle.dumps(game.env)
                try:
                    game.env.step(action if game.turns else {**actions, agent: action})
                except IllegalActionError as error:
                    named = agent in str(error) and str(action) in str(error)
                    require(named, f"the error names {agent} and {action}: {error}")
                else:
                    raise ContractViolation(f"{agent}: the masked action {action} was played")
                unchanged = pickle.dumps(game.env) == before
                require(unchanged, f"{agent}: a refused action changed the environment")
                tried += 1
        game.play(actions)
    require(game.failure is None, f"the mask allows what is refused: {game.failure}")
    return tried


# --- The rules as array code ---------------------------------------------------------------------


def check_rules(make: Make, *, seed: int = 0, num_envs: int = 4, limit: int = 100) -> int:
    """Check the ``Rules`` that ``make`` makes, in several rows, until the first episode is over.

    Returns the number of steps played.
    """
    rules: Rules[Any] = make(illegal="penalise")
    shape = (num_envs, len(rules.agents))
    state = rules.start([generator(seed, "env", row) for row in range(num_envs)])
    singles = [rules.start([generator(seed, "env", row)]) for row in range(num_envs)]
    rng = np.random.default_rng(seed)
    keys = list(rules.info(state))
    ended = np.zeros(shape, dtype=bool)
    steps = 0
    while steps < min(limit, rules.max_cycles or limit) and not ended.all(axis=1).any():
        action, observations = _legal_actions(rules, state, ended, rng)
        shown = plain(observations)
        twin = rules.step(copy_rows(state, slice(None)), action.copy())
        outcome = rules.step(state, action)
        state = outcome.state
        require(_frozen(outcome) == _frozen(twin), "step is a function: all chance is in start")
        require(plain(observations) == shown, "a step leaves earlier observations alone")
        reward, terminated = outcome.reward, outcome.terminated
        require((reward.dtype, reward.shape) == (np.float32, shape), "reward is float32 [B, N]")
        require(np.isfinite(reward).all(), "reward is finite")
        require((reward[ended] == 0).all(), "who has ended is paid nothing")
        require((terminated.dtype, terminated.shape) == (bool, shape), "terminated: bool [B, N]")
        require(list(outcome.info) == keys, f"info has the keys {list(outcome.info)}, not {keys}")
        for row in range(num_envs):
            alone = rules.step(singles[row], action[row : row + 1])
            singles[row] = alone.state
            same = _frozen(alone) == _frozen(outcome, slice(row, row + 1))
            require(same, f"a copy plays as it would alone: copy {row}, step {steps}")
        ended |= terminated
        steps += 1
    require(steps > 0, "the rules can be stepped")
    return steps


def _legal_actions(
    rules: Rules[Any], state: Any, ended: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, Any]:
    """Random legal actions [B, N] and the observations that they answer."""
    observations, acting = rules.observe(state), rules.acting(state)
    require((acting.dtype, acting.shape) == (bool, ended.shape), "acting is bool [B, N]")
    require(not (acting & ended).any(), "who has ended does not act")
    action = np.zeros(ended.shape, dtype=np.int64)
    for i, agent in enumerate(rules.agents):
        mask = observations[agent]["action_mask"]
        require((mask.any(axis=1) == acting[:, i]).all(), f"{agent}: legal actions iff it acts")
        for row in np.flatnonzero(acting[:, i]):
            action[row, i] = rng.choice(np.flatnonzero(mask[row]))
    return action, observations


def _frozen(outcome: Outcome[Any], rows: slice = slice(None)) -> Any:
    parts = {**state_arrays(outcome.state), **{f"info {k}": v for k, v in outcome.info.items()}}
    parts |= {"reward": outcome.reward, "terminated": outcome.terminated}
    return {name: plain(array[rows]) for name, array in parts.items()}
