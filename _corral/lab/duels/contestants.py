"""Contestants of a duel: runs, reference players by name, and players in Python, with a name each.

A contestant plays all seats of a game, or those that it learned or was written for.
"""

from __future__ import annotations

import inspect
import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from corral.adapters.seats import random_policy
from corral.adapters.sources import EnvLike, rules_of
from corral.envs.core import Rules, carried_by
from corral.envs.policy import Policy, PolicyLike, as_policy
from corral.envs.reference import reference_players, teams_of
from corral.envs.registry import Api, registered_name, rules_class
from corral.errors import RunError, UnknownNameError
from corral.trainers.evaluation.judge import require_same_game
from corral.trainers.evaluation.players import Player
from corral.trainers.runs.run import Run, is_run, load_each

__all__ = ["Contestant", "Contestants", "contestants"]

Contestants: TypeAlias = (
    str | Path | Run | Player | PolicyLike | Mapping[str, PolicyLike] | Mapping[str, Any]
)
"""A run, its folder or RUN@best; the name of a reference player or team; a policy for every seat;
a team, agent -> policy; a Player; or a mapping from names to any of these."""


@dataclass(frozen=True, eq=False)
class Contestant:
    """Somebody who plays some seats, or all."""

    name: str
    team: Mapping[str, Policy]  # of the seats that it plays
    deterministic: bool
    about: str = ""  # of a run: which checkpoint

    @property
    def mode(self) -> str:
        """ "greedy" or "sampled"."""
        return "greedy" if self.deterministic else "sampled"


def contestants(
    players: Sequence[Contestants],
    env: EnvLike | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
    model: Any = None,
    trainer: Any = None,
    deterministic: bool = False,
) -> tuple[Rules[Any], list[Contestant], Run | None]:
    """Return the rules of a duel, who plays it, and the run whose game it is.

    The environment is that of the first run; ``env`` names it where no player is a run, and again
    for runs in environments of others. ``model`` and ``trainer`` are as of ``corral.load_run``;
    ``deterministic`` is how all but a Player play.

    Raises:
        UnknownNameError: no reference player or team of that name.
        RunError, CheckpointError: a folder without a run, a run without a checkpoint.
        ValueError: fewer than two players, no environment, runs of different games, two players
            with one name, a seat that no policy plays.
    """
    within: list[list[Any]] = [
        list(one.values()) if isinstance(one, Mapping) else [one] for one in players
    ]
    given = [each for one in within for each in one if _is_run(each)]
    runs: list[Run] = []
    if given:
        runs = load_each(given, env, env_kwargs=env_kwargs, api=api, trainer=trainer, model=model)
        for other in runs[1:]:
            require_same_game(runs[0], other)
            _require_same_scales(runs[0], other)
        rules = _rules_of(runs[0])
    elif model is not None or trainer is not None:
        raise ValueError("model and trainer are for runs with one's own; leave them out")
    elif env is None:
        for each in itertools.chain(*within):
            _refuse_path(each)
        raise ValueError("no player is a run: name the environment, env=tictactoe_v0")
    else:
        rules = rules_of(env, env_kwargs, api=api)
    if len(rules.agents) < 2:
        raise ValueError(f"{rules.name} has one agent; a duel takes two or more")
    labels = _labels(runs)
    loaded = {id(each): (labels[i], runs[i]) for i, each in enumerate(given)}
    found: list[Contestant] = []
    for each, name in _flat(players, rules.agents):
        if id(each) in loaded:
            label, run = loaded[id(each)]
            found.append(_of_run(name or label, run, deterministic, runs[0]))
        else:
            found.append(_of_other(name, each, rules, deterministic))
    if len(found) < 2:
        here = ", ".join(each.name for each in found) or "nobody"
        raise ValueError(f"a duel takes two players or more, and here is {here}")
    _require_names(found)
    for agent in rules.agents:
        if not any(agent in each.team for each in found):
            raise ValueError(f"no policy plays {agent}: give a player that does")
    return rules, found, runs[0] if runs else None


def _flat(
    players: Sequence[Contestants], agents: Sequence[str]
) -> Iterator[tuple[Any, str | None]]:
    """Yield each player and the name that it was given: a mapping is a team, or holds several."""
    for one in players:
        if isinstance(one, Mapping) and not set(one) & set(agents):
            yield from ((each, str(name)) for name, each in one.items())
        else:
            yield one, None


def _require_names(found: Sequence[Contestant]) -> None:
    """Raise ValueError where two players have one name."""
    for name, count in Counter(each.name for each in found).items():
        if count > 1:
            raise ValueError(
                f"{count} players are named {name}: leave one out, or name them yourself in "
                "Python: corral.duel({'first': ..., 'second': ...})"
            )


# --- Runs ----------------------------------------------------------------------------------------


def _is_run(given: Any) -> bool:
    return isinstance(given, Run) or (isinstance(given, str | Path) and is_run(given))


def _rules_of(run: Run) -> Rules[Any]:
    """Return the rules of a run's game; who plays a masked action there is counted, not stopped."""
    env_config = run.config.env_config
    if env_config.own_rules is not None:
        return env_config.own_rules
    parameters = inspect.signature(rules_class(env_config.env)).parameters
    usual = {"illegal": parameters["illegal"].default} if "illegal" in parameters else {}
    return env_config.rules(**usual)


def _labels(runs: Sequence[Run]) -> list[str]:
    """Return the names of runs: their folders' own, or their paths where these repeat."""
    short = [f"{run.folder.resolve().name}{run.suffix}" for run in runs]
    return [
        own if short.count(own) == 1 else run.name for own, run in zip(short, runs, strict=True)
    ]


def _of_run(name: str, run: Run, deterministic: bool, first: Run) -> Contestant:
    """Return who plays the seats that the run learned: its opponents are players of their own."""
    about = f"{name} is {run.source()}."
    own, played = run.config.env_config.env_kwargs, first.config.env_config.env_kwargs
    for key in dict.fromkeys([*own, *played]):
        if own.get(key) != played.get(key):
            about += f" It was trained with {key} {own.get(key)}, and plays {played.get(key)}."
    team = {agent: run.policies[agent] for agent in run.config.policies}
    learned = {agent: policy for agent, policy in team.items() if agent not in run.config.opponents}
    return Contestant(name, learned, deterministic, about)


def _require_same_scales(run: Run, other: Run) -> None:
    """Raise ValueError where what a team brings along to play elsewhere differs."""
    own, theirs = (carried_by(each.config.env_config.rules()) for each in (run, other))
    differ = [key for key in {**own, **theirs} if own.get(key) != theirs.get(key)]
    if differ:
        said = ", ".join(f"{key} {own.get(key)} and {theirs.get(key)}" for key in differ)
        raise ValueError(f"{run.folder} and {other.folder} were trained with {said}")


def _refuse_path(given: Any) -> None:
    """Raise for what looks like a run, and is none: RunError, ValueError for an environment."""
    if not isinstance(given, str | Path):
        return
    path, text = Path(given), str(given)
    if registered_name(text) is not None:
        raise ValueError(f"{text} is an environment, not a player: give it as env={text}")
    if path.is_dir():
        raise RunError(f"{text} is a folder, but holds no run")
    if isinstance(given, Path) or len(path.parts) > 1 or "@" in text:
        raise RunError(f"there is no run in {text}: no such folder")


# --- Others --------------------------------------------------------------------------------------


def _of_other(name: str | None, given: Any, rules: Rules[Any], deterministic: bool) -> Contestant:
    if isinstance(given, str | Path):
        return Contestant(name or str(given), _reference(str(given), rules), deterministic)
    if isinstance(given, Player):
        given, deterministic = given.team, given.deterministic
    if not isinstance(given, Mapping):
        name = name or getattr(given, "__name__", type(given).__name__)
        given = dict.fromkeys(rules.agents, given)
    name = name or "team"
    if strange := [str(agent) for agent in given if agent not in rules.agents]:
        raise UnknownNameError.of(f"agent of {rules.name}", strange[0], rules.agents)
    for agent in rules.agents:
        if agent not in given:
            raise ValueError(f"{name}: no policy plays {agent}; give one for every seat")
    team = {agent: as_policy(given[agent], agent, rules.agents) for agent in rules.agents}
    return Contestant(name, team, deterministic)


def _reference(name: str, rules: Rules[Any]) -> Mapping[str, Policy]:
    """Return the reference team of that name, else the players of it, in the seats that have one.

    Raises UnknownNameError, InfeasibleError where it is out of reach, RunError for a path.
    """
    if name == "random":
        return {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    if name in (teams := teams_of(rules)):
        return dict(teams[name])
    found, known = {}, {"random", *teams}
    for agent in rules.agents:
        made, left_out = reference_players(rules, agent)
        if name in left_out:
            raise left_out[name]
        known |= {*made, *left_out}
        if name in made:
            found[agent] = made[name]
    if not found:
        if Path(name).is_dir() or not any("/" in each for each in known):
            _refuse_path(name)
        raise UnknownNameError.of(f"player of {rules.name}", name, known)
    return found
