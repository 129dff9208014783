"""Evaluate a run: the scores of its team, of random play and of reference players.

An environment may have its own evaluation, registered in its registry entry. Loads are replayed and
compared with the optimum (``corral.loads.judge``).
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from corral.adapters.sources import EnvLike, resolve
from corral.envs.arguments import nonnegative_int
from corral.envs.core import Array, Rules, carried_by
from corral.envs.episode_stats import EndedEpisodes
from corral.envs.policy import Policy, PolicyLike
from corral.envs.reference import player_names, teams_of
from corral.envs.registry import Api, make_rules
from corral.errors import concise
from corral.extensions import extension
from corral.hints import answer
from corral.progress import Progress, cell_progress
from corral.trainers.criteria import Criterion
from corral.trainers.evaluation.greedy import (
    describe_gaps,
    describe_modes,
    greedy_alone,
    seat_gaps,
    team_gaps,
)
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
from corral.trainers.opponents.resolve import resolve as named_player
from corral.trainers.runs.run import Run, load_each, load_run
from corral.trainers.runs.run_config import versions

__all__ = [
    "differences",
    "evaluate",
    "judge_of",
    "players",
    "require_same_game",
    "run_labels",
    "run_players",
]


@concise
def evaluate(
    run: str | Path | Run | Mapping[str, PolicyLike | str],
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
    progress: Progress = cell_progress,
    **options: Any,
) -> Evaluation:
    """Return the scores of the team of ``run``, greedy and sampled, and of players to compare with.

    The first row is the mode in which the run plays, see ``Run.deterministic``.

    The environment is played for ``episodes`` episodes on fixed seeds, also by its reference teams
    and by random play. A zero-sum game of two agents is evaluated seat by seat, against reference
    players and runs in the other seat, see ``corral.trainers.evaluation.zero_sum``. For an
    environment that replays a load, the held-out rows are replayed in windows of a day, also with
    reference policies and the optimum, and a report is written. results.json and the report are
    written to ``out``; default: the run's folder.

    Args:
        run: a run, its folder, or one of its checkpoints: RUN@best, see ``load_run``. Or a team,
            agent -> policy: anything that ``corral.envs.policy.as_policy`` takes, or the name of
            a player or a run. It needs ``env``, plays greedily (the policies of a run: in the
            run's mode), and is written only to ``out``.
        env, env_kwargs, api, trainer, model: see ``corral.load_run``. The model applies to the
            runs that have one.
        beside: further runs of the same environment, to evaluate in the same way.
        episodes: number of episodes if no load is replayed; default: 100. A replay plays all its
            windows and does not accept this argument.
        seed: seed of random play, sampled actions and episodes.
        workers: number of processes that step a third-party environment; 0: this process. They
            pay off if a step takes longer than a message, about 0.2 ms. Scores do not depend on it.
        require: criteria such as "served>=0.95", on columns of the evaluation's first row, see
            ``corral.trainers.evaluation.required``. The results are in ``details["required"]``;
            ``holds`` of the Evaluation is True if all criteria hold.
        progress: called with the current stage, the finished amount and the total.
        zero_sum: evaluate a game of two agents seat by seat; default: if the rewards of both sum
            to a constant, according to the registry or in all played episodes.
        options: for the replay of a load: ``references``, ``trace``, ``rows``, ``window``,
            ``beyond``, ``optimum_windows``, see ``corral.loads.judge.evaluate_loads``.

    Raises the errors of ``load_run`` and ``replay``; TypeError for unknown options; ValueError for
    options of another kind of evaluation, for runs of different games, for workers with an
    environment of corral, and for invalid criteria; and UnknownNameError for criteria on unknown
    columns. Criteria are checked before anything is played.
    """
    _require_known(options)
    criteria = criteria_of(require)
    if episodes is not None:
        episodes = nonnegative_int("episodes", episodes, least=1)
    seed, workers = nonnegative_int("seed", seed), nonnegative_int("workers", workers)
    if isinstance(run, Mapping):
        unused = {"trainer": trainer, "model": model, "beside": beside, **options}
        for name, value in unused.items():
            if value is not None and value != ():
                raise ValueError(f"{name}={value!r:.80} is for runs; omit it for a team")
        if env is None:
            raise ValueError("a team needs its environment: corral.evaluate({agent: policy}, env)")
        source = resolve(env, env_kwargs, api=api)
        rules = source.rules or make_rules(source.name, **source.env_kwargs)
        plan: dict[str, Any] = {"episodes": episodes or 100, "seed": seed, "workers": workers}
        rows = _rows_of_team(rules, run, zero_sum, {**plan, "progress": progress})
        kwargs = {} if source.rules is not None else source.env_kwargs
        evaluation = Evaluation(rules.name, rows, kwargs, seed, versions())
        if out is not None:
            evaluation.write(out)
        return _with_criteria(evaluation, rows[0].policy, criteria, out)
    named: dict[str, Any] = {"env_kwargs": env_kwargs, "api": api, "trainer": trainer}
    passed = [env, model, *named.values()]
    if isinstance(run, Run) and any(value is not None for value in passed):
        run = load_run(run, env, **named, model=model)
    first, *rest = load_each([run, *beside], env, **named, model=model)
    folder = Path(out) if out is not None else first.results
    env_config = first.config.env_config
    for other in rest:
        require_same_game(first, other)
    labels = run_labels([first, *rest])
    if judge := judge_of(env_config.env):
        if workers:
            raise ValueError(f"workers={workers}: a load is replayed in this process; pass 0")
        if episodes is not None:
            raise ValueError(
                f"episodes={episodes}: a load is replayed in all its windows. Leave it out, and "
                "pass window= (steps per window) or rows= (first and last row) instead"
            )
        if zero_sum is not None:
            raise ValueError(f"zero_sum={zero_sum}: {env_config.env} is judged as a team")
        replay = judge(labels, folder, seed=seed, progress=progress, require=criteria, **options)
        return _with_criteria(replay, _first(labels), criteria, folder)
    for name, value in options.items():
        if value is not None:
            raise ValueError(f"{name}={value}: {env_config.env} replays no load; pass episodes")
    rules = env_config.rules()
    agents = {"returns": rules.agents}
    columns = [name for kind in (TeamScore, SeatScore) for name in column_names(kind, agents)]
    require_columns(criteria, columns, unknown=["kpis"])
    episodes = 100 if episodes is None else episodes
    plan = {"episodes": episodes, "seed": seed, "workers": workers, "progress": progress}
    rows, details = _scores(rules, labels, zero_sum, plan)
    evaluation = Evaluation(
        env_config.env, rows, env_config.env_kwargs, seed, first.config.versions, details
    )
    evaluation.write(folder)
    return _with_criteria(evaluation, _first(labels), criteria, folder)


def _rows_of_team(
    rules: Rules[Any], team: Mapping[str, Any], zero_sum: bool | None, plan: dict[str, Any]
) -> Sequence[Any]:
    """Return the rows of a team, of reference teams and of random play."""
    named = {
        agent: named_player(player, agent, rules) if isinstance(player, str) else player
        for agent, player in team.items()
    }
    players = {"team": Player(named, Player(team).greedy)}
    if zero_sum or (zero_sum is None and is_zero_sum(rules)):
        return evaluate_seats(rules, players, **plan)
    rows = evaluate_players(rules, players, **plan)
    for name, reference in teams_of(rules).items():
        score = evaluate_team(rules, Player(reference, False), label=name, **plan)
        rows.insert(-1, dataclasses.replace(score, mode=""))
    return rows


def _first(runs: Mapping[str, Run]) -> str:
    """Return the label of the first run's row, in the mode in which it plays."""
    return next(iter(run_players(runs)))


def _with_criteria(
    evaluation: Evaluation, label: str, criteria: Sequence[Criterion], folder: str | Path | None
) -> Evaluation:
    """Return the evaluation with the results of all criteria on the row ``label``, and write it."""
    if not criteria:
        return evaluation
    checked = [dataclasses.asdict(one) for one in required(evaluation, label, criteria)]
    evaluation = dataclasses.replace(
        evaluation, details={**evaluation.details, "required": checked}
    )
    if folder is not None:
        evaluation.write(folder)
    return evaluation


OPTIONS = ("references", "trace", "rows", "window", "beyond", "optimum_windows")
"""Options for the replay of a load."""


def _require_known(options: Mapping[str, Any]) -> None:
    """Raise TypeError for an unknown option of ``evaluate``, with the closest valid name."""
    parameters = inspect.signature(evaluate).parameters.values()
    names = [one.name for one in parameters if one.kind is not one.VAR_KEYWORD]
    for name in options:
        if name not in OPTIONS:
            raise TypeError(
                f"evaluate has no option {name!r}{answer(name, [*names, *OPTIONS])} "
                f"Options: {', '.join(names)}; for the replay of a load also: {', '.join(OPTIONS)}"
            )


def _scores(
    rules: Rules[Any], runs: Mapping[str, Run], zero_sum: bool | None, plan: dict[str, Any]
) -> tuple[Sequence[Any], dict[str, Any]]:
    """Play an evaluation with the arguments ``plan``; return its rows and further details."""
    if zero_sum and len(rules.agents) != 2:
        raise ValueError(f"zero_sum=True: {rules.name} has {len(rules.agents)} agents, not 2")
    if zero_sum is None and is_zero_sum(rules):
        zero_sum = True
    played: list[EndedEpisodes] = []  # one entry per row, in the order of play
    plan = {**plan, "on_played": played.append}
    rows: list[Any] = []
    details: dict[str, Any] = {}
    total: float | None = 0.0
    if not zero_sum:
        rows = _team_rows(rules, runs, plan)
        details = {**describe_modes(runs), **describe_gaps(team_gaps(runs, played))}
        total = constant_sum(_returns(played)) if zero_sum is None else None
    if total is None:
        return rows, details
    if len(rules.agents) > 2:
        text = f"{sum_in_words(_returns(played))} Each agent is evaluated separately."
        return rows, {"constant_sum": total, "judged": text}
    teams = len(played)
    seats, left_out = _seat_rows(rules, runs, {**plan, "draw": total / 2})
    if not zero_sum and constant_sum(_returns(played)) is None:
        return rows, details  # the constant sum was a coincidence
    gaps = describe_gaps(seat_gaps(runs, rules.agents, seats, played[teams:]))
    details = {**describe_modes(runs), **gaps}
    text = f"{sum_in_words(_returns(played))} Each seat is evaluated separately.{left_out}"
    return seats, {"judged": text, **details}


def _returns(played: Sequence[EndedEpisodes]) -> Array:
    return np.concatenate([episodes.returns for episodes in played])  # [E, N] all episodes


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
    # Keep random play as the last row.
    rows[-1:-1] = [*more, *(dataclasses.replace(score, mode="") for score in references)]
    return rows


def _with_each_opponent(runs: Mapping[str, Run]) -> Iterator[tuple[str, Player]]:
    """Yield each team trained against a mix of opponents, with each single opponent of the mix."""
    for label, run in runs.items():
        for agent, opponents in members(run.policies)[0].items():
            for name, opponent in opponents.items() if len(opponents) > 1 else ():
                for p in players(run):
                    team = {**p.team, agent: opponent}
                    yield f"{label}, {p.mode}, {agent}={name}", dataclasses.replace(p, team=team)


def _seat_rows(
    rules: Rules[Any], runs: Mapping[str, Run], plan: Mapping[str, Any]
) -> tuple[list[SeatScore], str]:
    """Evaluate each run in each seat; return the rows and a note on left-out opponents.

    Opponents are the reference players and the opponents of the first run's training. With several
    runs, each run is also an opponent of the others.
    """
    first = next(iter(runs.values()))
    learned = [agent for agent in rules.agents if agent not in first.config.opponents]
    opponents: dict[str, Mapping[str, Policy]] = {}
    if len(runs) > 1:
        opponents = {label: run.policies for label, run in runs.items()}
    mixes, left_out = members(first.policies)
    for agent, mix in mixes.items():
        names = {*opponents, *player_names(rules, agent)}  # already opponents
        opponents |= {name: {agent: policy} for name, policy in mix.items() if name not in names}
    rows = evaluate_seats(rules, run_players(runs), seats=learned, others=opponents, **plan)
    return rows, "".join(f" Left out: {reason}." for reason in left_out)


def judge_of(env: str) -> Callable[..., Evaluation] | None:
    """Return the environment's own evaluation function; None if it does not have one."""
    judge: Callable[..., Evaluation] | None = extension(f"judge.{env}")
    return judge


def require_same_game(run: Run, other: Run) -> None:
    """Raise ValueError if the runs were trained in environments with different spaces."""
    config, other_config = run.config.env_config, other.config.env_config
    if config.env != other_config.env:
        raise ValueError(
            f"{run.folder} was trained in {config.env}, {other.folder} in {other_config.env}. "
            "Choose runs of the same environment"
        )
    rules, other_rules = config.rules(), other_config.rules()
    for agent in rules.agents:
        for kind in ("observation_space", "action_space"):
            space = getattr(other_rules, kind)(agent) if agent in other_rules.agents else None
            if getattr(rules, kind)(agent) != space:
                raise ValueError(
                    f"{run.folder} and {other.folder}: the {kind.replace('_', ' ')} of {agent} "
                    f"differs; {differences(config.env_kwargs, other_config.env_kwargs)}"
                )


def differences(
    own: Mapping[str, Any], others: Mapping[str, Any], *, otherwise: str = "other agents"
) -> str:
    """Describe the arguments of an environment that differ between two runs.

    Without differences the text is about ``otherwise``, or "" if that is empty.
    """
    differ = [
        f"{key} {getattr(own.get(key), 'name', own.get(key))} and "
        f"{getattr(others.get(key), 'name', others.get(key))}"
        for key in dict.fromkeys([*own, *others])
        if not _equal(own.get(key), others.get(key))
    ]
    text = ", ".join(differ) or otherwise
    return text and f"they were trained with {text}"


def _equal(own: Any, other: Any) -> bool:
    """Return True if two arguments are equal; also for arrays."""
    if isinstance(own, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(own, other)
    return bool(own == other)


def players(run: Run) -> tuple[Player, ...]:
    """Return the run's team as a greedy and a sampled player; greedy only if it is played so.

    The first plays in the run's mode. Both have the environment arguments that the team depends on.
    """
    carried = carried_by(run.config.env_config.rules())
    if greedy_alone(run):
        return (Player(run.policies, True, carried),)
    first = run.deterministic
    return Player(run.policies, first, carried), Player(run.policies, not first, carried)


def run_players(runs: Mapping[str, Run]) -> dict[str, Player]:
    """Return the players of all runs, with unique labels."""
    return {f"{label}, {p.mode}": p for label, run in runs.items() for p in players(run)}


def run_labels(runs: Iterable[Run]) -> dict[str, Run]:
    """Return the runs by label: the trainer, else the folder name, else the path, whichever is
    unique.

    The label of a checkpoint ends with its name: mappo@best.
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
