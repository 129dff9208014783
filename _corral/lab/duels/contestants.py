"""Contestants of a duel: named runs, reference players and Python players.

A contestant plays all seats of an environment, or only those it was trained or written for.
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
from corral.text import visible
from corral.trainers.evaluation.judge import require_same_game
from corral.trainers.evaluation.players import Player
from corral.trainers.runs.run import Run, is_run, load_each

__all__ = ["Contestant", "Contestants", "contestants"]

Contestants: TypeAlias = (
    str | Path | Run | Player | PolicyLike | Mapping[str, PolicyLike] | Mapping[str, Any]
)
"""A run, its folder or RUN@best; the name of a reference player or team; a policy for all seats; a
team, agent -> policy; a Player; or a mapping from names to any of these."""


@dataclass(frozen=True, eq=False)
class Contestant:
    """A player of some or all seats."""

    name: str
    team: Mapping[str, Policy]  # agent -> policy, for the seats that it plays
    deterministic: bool
    about: str = ""  # for a run: a sentence about its checkpoint

    @property
    def mode(self) -> str:
        """The action selection: "greedy" or "sampled"."""
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
    """Return the rules of a duel, its contestants, and the first run, if any player is a run.

    The environment is that of the first run. ``env`` names the environment if no player is a run,
    and repeats it for runs in third-party environments. ``model`` and ``trainer`` are as in
    ``corral.load_run``. ``deterministic`` applies to all players except a Player.

    Raises:
        UnknownNameError: an unknown reference player or team.
        RunError, CheckpointError: a folder without a run, a run without a checkpoint.
        ValueError: fewer than two players, no environment, runs of different environments, two
            players with the same name, a seat without a policy.
    """
    members: list[list[Any]] = [
        list(player.values()) if isinstance(player, Mapping) else [player] for player in players
    ]
    run_members = [member for player in members for member in player if _is_run(member)]
    runs: list[Run] = []
    if run_members:
        runs = load_each(
            run_members, env, env_kwargs=env_kwargs, api=api, trainer=trainer, model=model
        )
        for other in runs[1:]:
            require_same_game(runs[0], other)
            _require_same_scales(runs[0], other)
        rules = _rules_of(runs[0])
    elif model is not None or trainer is not None:
        raise ValueError(
            "model and trainer are for runs with a custom model or trainer; leave them out"
        )
    elif env is None:
        for member in itertools.chain(*members):
            _refuse_path(member)
        raise ValueError("no player is a run: name the environment, env=tictactoe_v0")
    else:
        rules = rules_of(env, env_kwargs, api=api)
    if len(rules.agents) < 2:
        raise ValueError(f"{rules.name} has one agent; a duel needs two or more")
    labels = _labels(runs)
    loaded = {id(member): (labels[i], runs[i]) for i, member in enumerate(run_members)}
    entrants: list[Contestant] = []
    for member, name in _flat(players, rules.agents):
        if id(member) in loaded:
            label, run = loaded[id(member)]
            entrants.append(_run_contestant(name or label, run, deterministic, runs[0]))
        else:
            entrants.append(_other_contestant(name, member, rules, deterministic))
    if len(entrants) < 2:
        names = ", ".join(entrant.name for entrant in entrants) or "none"
        raise ValueError(f"a duel needs two or more players; given: {names}")
    _require_names(entrants)
    for agent in rules.agents:
        if not any(agent in entrant.team for entrant in entrants):
            raise ValueError(f"no policy plays {agent}: add a player for this seat")
    return rules, entrants, runs[0] if runs else None


def _flat(
    players: Sequence[Contestants], agents: Sequence[str]
) -> Iterator[tuple[Any, str | None]]:
    """Yield each player and its given name. A mapping is a team, or holds several players."""
    for player in players:
        if isinstance(player, Mapping) and not set(player) & set(agents):
            yield from ((member, str(name)) for name, member in player.items())
        else:
            yield player, None


def _require_names(entrants: Sequence[Contestant]) -> None:
    """Raise ValueError if two players have the same name."""
    for name, count in Counter(entrant.name for entrant in entrants).items():
        if count > 1:
            raise ValueError(
                f"{count} players are named {name}: leave one out, or set their names in Python: "
                "corral.duel({'first': ..., 'second': ...})"
            )


# --- Runs ----------------------------------------------------------------------------------------


def _is_run(player: Any) -> bool:
    return isinstance(player, Run) or (isinstance(player, str | Path) and is_run(player))


def _rules_of(run: Run) -> Rules[Any]:
    """Return the rules of a run's environment. They count masked actions and do not raise."""
    env_config = run.config.env_config
    if env_config.own_rules is not None:
        return env_config.own_rules
    parameters = inspect.signature(rules_class(env_config.env)).parameters
    rules_kwargs = {"illegal": parameters["illegal"].default} if "illegal" in parameters else {}
    return env_config.rules(**rules_kwargs)


def _labels(runs: Sequence[Run]) -> list[str]:
    """Return the names of runs: their folders' names, or their paths if the names repeat."""
    short = [visible(f"{run.folder.resolve().name}{run.suffix}") for run in runs]
    return [
        name if short.count(name) == 1 else visible(run.name)
        for name, run in zip(short, runs, strict=True)
    ]


def _run_contestant(name: str, run: Run, deterministic: bool, first: Run) -> Contestant:
    """Return a contestant for the seats that the run learned, without the run's opponents."""
    about = f"{name} is {run.source()}."
    trained, played = run.config.env_config.env_kwargs, first.config.env_config.env_kwargs
    for key in dict.fromkeys([*trained, *played]):
        if trained.get(key) != played.get(key):
            about += f" It was trained with {key} {trained.get(key)}, but plays {played.get(key)}."
    team = {agent: run.policies[agent] for agent in run.config.policies}
    learned = {agent: policy for agent, policy in team.items() if agent not in run.config.opponents}
    return Contestant(name, learned, deterministic, about)


def _require_same_scales(run: Run, other: Run) -> None:
    """Raise ValueError if the scales that teams use in other environments differ."""
    scales, other_scales = (carried_by(one.config.env_config.rules()) for one in (run, other))
    different = [
        key for key in {**scales, **other_scales} if scales.get(key) != other_scales.get(key)
    ]
    if different:
        values = ", ".join(
            f"{key} {scales.get(key)} and {other_scales.get(key)}" for key in different
        )
        raise ValueError(f"{run.folder} and {other.folder} were trained with {values}")


def _refuse_path(player: Any) -> None:
    """Raise an error for a name that looks like a run, or is an environment."""
    if not isinstance(player, str | Path):
        return
    path, text = Path(player), str(player)
    if registered_name(text) is not None:
        raise ValueError(f"{text} is an environment, not a player: pass env={text}")
    if path.is_dir():
        raise RunError(f"{text} is a folder, but not a run")
    if isinstance(player, Path) or len(path.parts) > 1 or "@" in text:
        raise RunError(f"{text} is not a run: the folder does not exist")


# --- Other players -------------------------------------------------------------------------------


def _other_contestant(
    name: str | None, player: Any, rules: Rules[Any], deterministic: bool
) -> Contestant:
    if isinstance(player, str | Path):
        return Contestant(name or str(player), _reference(str(player), rules), deterministic)
    if isinstance(player, Player):
        player, deterministic = player.team, player.greedy
    if not isinstance(player, Mapping):
        name = name or getattr(player, "__name__", type(player).__name__)
        player = dict.fromkeys(rules.agents, player)
    name = name or "team"
    if unknown := [str(agent) for agent in player if agent not in rules.agents]:
        raise UnknownNameError.of(f"agent of {rules.name}", unknown[0], rules.agents)
    for agent in rules.agents:
        if agent not in player:
            raise ValueError(f"{name}: no policy plays {agent}; add a policy for every seat")
    team = {agent: as_policy(player[agent], agent, rules.agents) for agent in rules.agents}
    return Contestant(name, team, deterministic)


def _reference(name: str, rules: Rules[Any]) -> Mapping[str, Policy]:
    """Return the reference team with a name, else the reference players with it, by seat.

    Raises UnknownNameError for an unknown name, InfeasibleError if the player takes too much
    computation, and RunError for a path.
    """
    if name == "random":
        return {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    if name in (teams := teams_of(rules)):
        return dict(teams[name])
    players, known = {}, {"random", *teams}
    for agent in rules.agents:
        available, left_out = reference_players(rules, agent)
        if name in left_out:
            raise left_out[name]
        known |= {*available, *left_out}
        if name in available:
            players[agent] = available[name]
    if not players:
        if Path(name).is_dir() or not any("/" in known_name for known_name in known):
            _refuse_path(name)
        raise UnknownNameError.of(f"player of {rules.name}", name, known)
    return players
