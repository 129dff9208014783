"""The contract of an environment: what PettingZoo asks for, and what training relies on.

``check_contract(make)`` plays whole episodes of a PettingZoo environment, parallel or AEC, and
``check_rules(make)`` moves copies of the rules themselves. Either raises ``ContractViolation``,
which names the rule that was broken, and returns the number of steps that it saw.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import pickle
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from corral.envs.core import Outcome, Rules, copy_rows, generator, state_arrays
from corral.errors import IllegalActionError, IllegalActionWarning
from support.players import ContractViolation, Player, plain, player_of, require

__all__ = ["ContractViolation", "check_contract", "check_rules"]

TESTS = Path(__file__).resolve().parents[1]

Make = Callable[..., Any]
"""Makes an environment, or rules; takes ``illegal="raise"`` or ``"penalise"``."""


def check_contract(
    make: Make,
    *,
    seeds: Sequence[int] = (0, 1, 2),
    chance: bool = True,
    other_process: bool = False,
    limit: int = 1_000,
) -> int:
    """Check the environments that ``make`` makes; the number of steps played, and actions tried.

    ``chance``: episodes of different seeds differ. ``other_process`` plays one episode in other
    processes too; ``make`` must then pickle. ``limit``: steps within which every episode must end.
    """
    _check_spaces(make(illegal="raise"))
    steps = 0
    episodes = []
    for seed in seeds:
        one, two = _played(make, seed, limit), _played(make, seed, limit)
        _require_same(one.record, two.record, "the same seed gives the same episode")
        steps += one.steps
        episodes.append(pickle.dumps(one.record))
        # Without a seed the next episode goes on with the same generator.
        one.begin(None)
        two.begin(None)
        _require_same(_end(one, limit), _end(two, limit), "resets go on with the generator")
        two.begin(seed)
        _require_same(_end(two, limit), pickle.loads(episodes[-1]), "a seed forgets what was")
    if chance:
        distinct = len(set(episodes)) == len(seeds)
        require(distinct, f"different seeds differ: two of {list(seeds)} gave the same episode")
    _check_independence(make, seeds, limit)
    _check_pickling(make, seeds[0], limit)
    _check_handed_out(make, seeds[0], limit)
    for seed in seeds:
        steps += _check_masks_refuse(make, seed)
        steps += _check_masks_tell_the_truth(make, seed)
    if other_process:
        _check_other_process(make, seeds[0], limit)
    return steps


def _check_spaces(env: Any) -> None:
    require(env.possible_agents, "possible_agents are named before reset")
    for agent in env.possible_agents:
        for kind in ("observation_space", "action_space"):
            same = getattr(env, kind)(agent) is getattr(env, kind)(agent)
            require(same, f"{kind}({agent!r}) returns the same object every time")
        space, actions = env.observation_space(agent), env.action_space(agent)
        require(isinstance(space, gymnasium.spaces.Dict), f"{agent}: observations are a Dict")
        require(set(space) == {"observation", "action_mask"}, f"{agent}: keys {list(space)}")
        mask = space["action_mask"]
        require(
            (mask.dtype, mask.shape) == (np.int8, (actions.n,)),
            f"{agent}: the mask is int8 of shape ({actions.n},), not {mask.dtype} {mask.shape}",
        )
    require(isinstance(env.state_space, gymnasium.spaces.Box), "state_space is a Box")


def _check_independence(make: Make, seeds: Sequence[int], limit: int) -> None:
    """Two environments, stepped in turn, play what each plays alone."""
    for pair in ((seeds[0], seeds[-1]), (seeds[0], seeds[0])):
        alone = [_played(make, seed, limit).record for seed in pair]
        players = [player_of(make(illegal="raise"), seed) for seed in pair]
        while not all(player.over for player in players):
            for player in players:
                if not player.over:
                    player.step()
        for player, record in zip(players, alone, strict=True):
            _require_same(record, player.record, "two environments share no state")


def _check_pickling(make: Make, seed: int, limit: int) -> None:
    whole = _played(make, seed, limit)
    for cut in sorted({0, 1, whole.steps // 2, whole.steps - 1}):
        player = player_of(make(illegal="raise"), seed)
        for _ in range(cut):
            player.step()
        before, twin = list(player.record), player.clone()
        rule = f"a pickled environment goes on as it would have (step {cut})"
        _require_same(whole.record, before + _end(twin, limit), rule)
        _require_same(whole.record, _end(player, limit), "a pickled copy shares no state")


def _check_handed_out(make: Make, seed: int, limit: int) -> None:
    """Whoever is given an observation may overwrite it."""
    player = player_of(make(illegal="raise"), None)
    player.spoils = True
    player.begin(seed)
    rule = "an observation belongs to its receiver"
    try:
        record = _end(player, limit)
    except (LookupError, ValueError) as error:
        raise ContractViolation(f"{rule}, but {error!r} once it is overwritten") from error
    _require_same(_played(make, seed, limit).record, record, rule)


def _check_masks_refuse(make: Make, seed: int) -> int:
    """Under "raise" every masked action is refused and changes nothing; all others are played."""
    player = player_of(make(illegal="raise"), seed)
    tried = 0
    while not player.over:
        for agent, mask in player.masks.items():
            before = pickle.dumps(player.env)
            for action in _ends(mask == 0):
                _require_refused(player, agent, action)
                unchanged = pickle.dumps(player.env) == before
                require(unchanged, f"{agent}: a refused action changed the environment")
                tried += 1
            for action in _ends(mask):
                try:
                    player.clone().step({agent: action})
                except IllegalActionError as error:
                    raise ContractViolation(f"the mask allows what is refused: {error}") from error
                tried += 1
        player.step()
    return tried


def _require_refused(player: Player, agent: str, action: int) -> None:
    try:
        player.step({agent: action})
    except IllegalActionError as error:
        named = agent in str(error) and str(action) in str(error)
        require(named, f"the error names {agent} and {action}: {error}")
    else:
        raise ContractViolation(f"{agent}: the masked action {action} was played under 'raise'")


def _check_masks_tell_the_truth(make: Make, seed: int) -> int:
    """Under "penalise" the rules themselves count as illegal just what the mask forbids."""
    player = player_of(make(illegal="penalise"), seed)
    tried = 0
    while not player.over:
        for agent, mask in player.masks.items():
            for action in (*_ends(mask == 0), *_ends(mask)):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", IllegalActionWarning)
                    counted = player.clone().illegal_count(agent, action)
                require(
                    counted is None or counted == 1 - mask[action],
                    f"the mask is truthful: {agent}, action {action} has mask {mask[action]}, "
                    f"but illegal_actions = {counted}",
                )
                tried += 1
        player.step()
    return tried


def _check_other_process(make: Make, seed: int, limit: int) -> None:
    """Other processes, with other hashes of strings, play the same episode."""
    here = digest(make, seed, limit)
    for hash_seed in ("1", "2"):
        path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-m", "support.contract"],
            input=pickle.dumps((make, seed, limit)),
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
            capture_output=True,
            check=False,
            timeout=120,
        )
        require(done.returncode == 0, f"the other process failed: {done.stderr.decode()[-800:]}")
        require(done.stdout.decode() == here, "another process plays the same episode")


def digest(make: Make, seed: int, limit: int) -> str:
    """SHA-256 over everything that an episode shows."""
    return hashlib.sha256(repr(_played(make, seed, limit).record).encode()).hexdigest()


def _played(make: Make, seed: int, limit: int) -> Player:
    """An episode, from its seed to its end."""
    player = player_of(make(illegal="raise"), seed)
    _end(player, limit)
    return player


def _end(player: Player, limit: int) -> list[Any]:
    """Play to the end; what was shown."""
    while not player.over:
        require(player.steps < limit, f"an episode ends, but none did within {limit} steps")
        player.step()
    require(player.steps > 0, "an episode has at least one step")
    return player.record


def _ends(which: np.ndarray) -> list[int]:
    """The first and the last of some actions: where masks go wrong."""
    actions = np.flatnonzero(which)
    return sorted({int(actions[0]), int(actions[-1])}) if len(actions) else []


def _require_same(one: list[Any], two: list[Any], rule: str) -> None:
    for place, (a, b) in enumerate(itertools.zip_longest(one, two)):
        require(a == b, f"{rule}: entry {place} is {str(a)[:150]} against {str(b)[:150]}")


# --- The rules as array code ---------------------------------------------------------------------


def check_rules(make: Make, *, seed: int = 0, num_envs: int = 4, limit: int = 100) -> int:
    """Check the ``Rules`` that ``make`` makes, over several copies; the number of steps played.

    Plays until the first copy's episode is over.
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


if __name__ == "__main__":
    sys.stdout.write(digest(*pickle.loads(sys.stdin.buffer.read())))
