"""Judge a run: what it learned, beside random play and reference players.

An environment may have a judge of its own, as its entry in the registry says: loads are replayed,
beside the optimum (``corral.loads.judge``).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corral.adapters.sources import EnvLike
from corral.envs.arguments import nonnegative_int
from corral.envs.core import Array, Rules, carried_by
from corral.envs.episode_stats import EndedEpisodes
from corral.envs.policy import Policy
from corral.envs.reference import player_names, teams_of
from corral.envs.registry import Api
from corral.extensions import extension
from corral.hints import answer
from corral.progress import Progress
from corral.trainers.criteria import Criterion
from corral.trainers.evaluation.greedy import greedy_alone, say_gaps, seat_gaps, team_gaps
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.required import (
    column_names,
    criteria_of,
    require_columns,
    required,
)
from corral.trainers.evaluation.scores import Evaluation, TeamScore, evaluate_players, evaluate_team
from corral.trainers.evaluation.zero_sum import (
    SeatScore,
    constant_sum,
    evaluate_seats,
    is_zero_sum,
    sum_in_words,
)
from corral.trainers.opponents.resolve import members
from corral.trainers.runs.run import Run, load_each

__all__ = [
    "differences",
    "evaluate",
    "judge_of",
    "players",
    "require_same_game",
    "run_labels",
    "run_players",
]


def evaluate(
    run: str | Path | Run,
    env: EnvLike | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
    trainer: Any = None,
    model: Any = None,
    beside: Sequence[str | Path | Run] = (),
    episodes: int | None = None,
    seed: int = 0,
    zero_sum: bool | None = None,
    out: str | Path | None = None,
    workers: int = 0,
    require: str | Sequence[str] = (),
    progress: Progress = lambda what, done, total: None,
    **options: Any,
) -> Evaluation:
    """Return the scores of the team of ``run``, greedy and sampled, beside those of others.

    An environment is played for ``episodes`` episodes on fixed seeds, beside its teams of reference
    players and random play; a zero-sum game of two seat by seat, against reference players and runs
    in the other seat, see ``corral.trainers.evaluation.zero_sum``. A run of an environment that
    replays a load is replayed over the rows that its training did not see, in windows of a day,
    beside reference policies and the optimum, and gets a report. results.json and the report go to
    ``out``; default: the run's folder.

    Args:
        run: a run or its folder, or a checkpoint of it: RUN@best, see ``load_run``.
        env, env_kwargs, api, trainer, model: see ``corral.load_run``; the model is of those runs
            that have one.
        beside: other runs of the same environment, to be judged beside this one.
        episodes: number of episodes, where no load is replayed; default: 100. A replay
            plays all its windows, and takes none.
        seed: seed of random play, sampled actions and episodes.
        workers: processes that step a third-party environment; 0: this one. Worth it where a step
            takes longer than a message, about 0.2 ms; scores are the same.
        require: criteria such as "served>=0.95", on columns of the first run's greedy row; see
            ``corral.trainers.evaluation.required``. What was found is in ``details["required"]``,
            and ``holds`` of the Evaluation says whether all do.
        progress: is called with what is played, how much of it is done, and how much there is.
        zero_sum: evaluate a game of two seat by seat; default: where the rewards of both sum to a
            constant. The registry says so, or every episode that teams and random play have played.
        options: where a load is replayed: ``references``, ``trace``, ``rows``, ``window``,
            ``optimum_windows``, see ``corral.loads.judge.evaluate_loads``.

    Raises what ``load_run`` and ``replay`` raise, TypeError for unknown options, and ValueError for
    options of another kind of evaluation, for runs ``beside`` of another game, and for workers of
    an environment of ours; before anything is played for criteria that state none, and
    UnknownNameError for those on columns that there will not be.
    """
    _require_known(options)
    criteria = criteria_of(require)
    if episodes is not None:
        episodes = nonnegative_int("episodes", episodes, least=1)
    seed, workers = nonnegative_int("seed", seed), nonnegative_int("workers", workers)
    named: dict[str, Any] = {"env_kwargs": env_kwargs, "api": api, "trainer": trainer}
    given = [env, model, *named.values()]
    if isinstance(run, Run) and any(each is not None for each in given):
        named["trainer"] = trainer or run.config.own_trainer
        if model is None and run.config.own_model is not None:
            model = run.config.own_model.make
        run = run.name  # to be read with what is given
    own, *others = load_each([run, *beside], env, **named, model=model)
    folder = Path(out) if out is not None else own.results
    env_config = own.config.env_config
    for other in others:
        require_same_game(own, other)
    labels = run_labels([own, *others])
    if judge := judge_of(env_config.env):
        if workers:
            raise ValueError(f"workers={workers}: a load is replayed in this process; give 0")
        if episodes is not None:
            raise ValueError(
                f"episodes={episodes}: a load is replayed in all its windows; leave it out, and "
                "give window (steps of each) or rows (low, high) instead"
            )
        if zero_sum is not None:
            raise ValueError(f"zero_sum={zero_sum}: {env_config.env} is judged as a team")
        replay = judge(labels, folder, seed=seed, progress=progress, require=criteria, **options)
        return _met(replay, labels, criteria, folder)
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name}={value}: {env_config.env} replays no load; give episodes")
    rules = env_config.rules()
    agents = {"returns": rules.agents}
    known = [name for kind in (TeamScore, SeatScore) for name in column_names(kind, agents)]
    require_columns(criteria, known, unknown=["kpis"])
    episodes = 100 if episodes is None else episodes
    plan = {"episodes": episodes, "seed": seed, "workers": workers, "progress": progress}
    rows, details = _judged(rules, labels, zero_sum, plan)
    found = Evaluation(
        env_config.env, rows, env_config.env_kwargs, seed, own.config.versions, details
    )
    found.write(folder)
    return _met(found, labels, criteria, folder)


def _met(
    found: Evaluation, runs: Mapping[str, Run], criteria: Sequence[Criterion], folder: Path
) -> Evaluation:
    """Return the evaluation with what was found of each criterion, and write it so."""
    if not criteria:
        return found
    label = next(iter(run_players(runs)))  # the first run's, greedy
    checked = [dataclasses.asdict(each) for each in required(found, label, criteria)]
    found = dataclasses.replace(found, details={**found.details, "required": checked})
    found.write(folder)
    return found


OPTIONS = ("references", "trace", "rows", "window", "optimum_windows")
"""Options of the replay of a load."""


def _require_known(options: Mapping[str, Any]) -> None:
    """Raise TypeError for what is no option of ``evaluate``, with the one that may be meant."""
    named = inspect.signature(evaluate).parameters.values()
    own = [each.name for each in named if each.kind is not each.VAR_KEYWORD]
    for name in options:
        if name not in OPTIONS:
            raise TypeError(
                f"evaluate has no option {name!r}{answer(name, [*own, *OPTIONS])} "
                f"Known: {', '.join(own)}; where a load is replayed: {', '.join(OPTIONS)}"
            )


def _judged(
    rules: Rules[Any], runs: Mapping[str, Run], zero_sum: bool | None, plan: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Return the rows of an evaluation as ``plan`` says, and what else there is to say of them."""
    if zero_sum and len(rules.agents) != 2:
        raise ValueError(f"zero_sum=True: {rules.name} has {len(rules.agents)} agents; it takes 2")
    if zero_sum is None and is_zero_sum(rules):
        zero_sum = True
    played: list[EndedEpisodes] = []  # of each row, in the order in which they were played
    plan = {**plan, "on_played": played.append}
    rows: list[Any] = []
    details: dict[str, Any] = {}
    total: float | None = 0.0
    if not zero_sum:
        rows = _team_rows(rules, runs, plan)
        details = say_gaps(team_gaps(runs, played))
        total = constant_sum(_returns(played)) if zero_sum is None else None
    if total is None:
        return rows, details
    if len(rules.agents) > 2:
        said = f"{sum_in_words(_returns(played))} Each agent is judged by itself."
        return rows, {"constant_sum": total, "judged": said}
    teams = len(played)
    seats, left_out = _seat_rows(rules, runs, {**plan, "draw": total / 2})
    if not zero_sum and constant_sum(_returns(played)) is None:
        return rows, details  # it was so by chance
    details = say_gaps(seat_gaps(runs, rules.agents, seats, played[teams:]))
    said = f"{sum_in_words(_returns(played))} Each seat is judged by itself.{left_out}"
    return seats, {"judged": said, **details}


def _returns(played: Sequence[EndedEpisodes]) -> Array:
    return np.concatenate([each.returns for each in played])  # [E, N] of all


def _team_rows(
    rules: Rules[Any], runs: Mapping[str, Run], plan: Mapping[str, Any]
) -> list[TeamScore]:
    rows = evaluate_players(rules, run_players(runs), **plan)
    more = [
        evaluate_team(rules, player, label=name, **plan)
        for name, player in _with_each_opponent(runs)
    ]
    references = [
        evaluate_team(rules, Player(team, False), label=name, **plan)
        for name, team in teams_of(rules).items()
    ]
    # Random play stays the last row.
    rows[-1:-1] = [*more, *(dataclasses.replace(score, mode="") for score in references)]
    return rows


def _with_each_opponent(runs: Mapping[str, Run]) -> Iterator[tuple[str, Player]]:
    """Yield the teams of runs that learned against a mix, with each of its players by itself."""
    for label, run in runs.items():
        for agent, found in members(run.policies)[0].items():
            for name, opponent in found.items() if len(found) > 1 else ():
                for p in players(run):
                    team = {**p.team, agent: opponent}
                    yield f"{label}, {p.mode}, {agent}={name}", dataclasses.replace(p, team=team)


def _seat_rows(
    rules: Rules[Any], runs: Mapping[str, Run], plan: Mapping[str, Any]
) -> tuple[list[SeatScore], str]:
    """Return what each run learned in each seat, against reference players and the runs that the
    first one learned against; and in words what was left out. Several runs are each other's
    opponents, too."""
    first = next(iter(runs.values()))
    learned = [agent for agent in rules.agents if agent not in first.config.opponents]
    others: dict[str, Mapping[str, Policy]] = {}
    if len(runs) > 1:
        others = {label: run.policies for label, run in runs.items()}
    found, left_out = members(first.policies)
    for agent, own in found.items():
        known = {*others, *player_names(rules, agent)}  # those are opponents in any case
        others |= {name: {agent: each} for name, each in own.items() if name not in known}
    rows = evaluate_seats(rules, run_players(runs), seats=learned, others=others, **plan)
    return rows, "".join(f" Left out: {reason}." for reason in left_out)


def judge_of(env: str) -> Callable[..., Evaluation] | None:
    """Return the function that judges runs of this environment, where it has one of its own."""
    found: Callable[..., Evaluation] | None = extension(f"judge.{env}")
    return found


def require_same_game(run: Run, other: Run) -> None:
    """Raise ValueError where what one was trained on could not be played by the other."""
    own, others = run.config.env_config, other.config.env_config
    if own.env != others.env:
        raise ValueError(f"{run.folder} is of {own.env}, {other.folder} of {others.env}")
    rules, theirs = own.rules(), others.rules()
    for agent in rules.agents:
        for kind in ("observation_space", "action_space"):
            space = getattr(theirs, kind)(agent) if agent in theirs.agents else None
            if getattr(rules, kind)(agent) != space:
                raise ValueError(
                    f"{run.folder} and {other.folder}: the {kind.replace('_', ' ')} of {agent} "
                    f"differs; {differences(own.env_kwargs, others.env_kwargs)}"
                )


def differences(
    own: Mapping[str, Any], others: Mapping[str, Any], *, otherwise: str = "other agents"
) -> str:
    """Return which arguments of an environment differ between two runs, in words; "" where none
    do, and there is nothing to say ``otherwise``."""
    differ = [
        f"{key} {getattr(own.get(key), 'name', own.get(key))} and "
        f"{getattr(others.get(key), 'name', others.get(key))}"
        for key in dict.fromkeys([*own, *others])
        if not _equal(own.get(key), others.get(key))
    ]
    said = ", ".join(differ) or otherwise
    return said and f"they were trained with {said}"


def _equal(own: Any, other: Any) -> bool:
    """Return whether two arguments are equal, arrays too."""
    if isinstance(own, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(own, other)
    return bool(own == other)


def players(run: Run) -> tuple[Player, ...]:
    """Return the run's team greedy, and with sampled actions where that is how it is meant to play;
    both with what it brings along."""
    carried = carried_by(run.config.env_config.rules())
    greedy = Player(run.policies, True, carried)
    if greedy_alone(run):
        return (greedy,)
    return greedy, Player(run.policies, False, carried)


def run_players(runs: Mapping[str, Run]) -> dict[str, Player]:
    """Return both players of each run, under labels that tell them apart."""
    return {f"{label}, {p.mode}": p for label, run in runs.items() for p in players(run)}


def run_labels(runs: Iterable[Run]) -> dict[str, Run]:
    """Return runs by a name: its trainer's, its folder's where trainers repeat, else its path.

    A checkpoint that was named follows: mappo@best.
    """
    listed = list(runs)
    folders = [run.folder.resolve() for run in listed]
    for names in (
        [run.config.trainer for run in listed],
        [folder.name for folder in folders],
        [str(run.folder) for run in listed],
    ):
        if len(set(names)) == len(set(folders)):
            break
    return {f"{name}{run.suffix}": run for name, run in zip(names, listed, strict=True)}
