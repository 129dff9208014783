"""Judge runs that learned to play a load: replay it, beside reference policies and the optimum."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from corral.data import Trace, load_trace
from corral.envs.core import any_number
from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import PAIRS, baseline_team
from corral.errors import ScaleError
from corral.loads.policy_picture import team_pictures
from corral.loads.replay import OWN, Replay, replay
from corral.loads.report import evaluation_of, write_report
from corral.loads.scores import Score
from corral.progress import Progress
from corral.trainers.criteria import Criterion
from corral.trainers.evaluation.greedy import Gap, gap_of, say_gaps
from corral.trainers.evaluation.judge import run_players
from corral.trainers.evaluation.players import Player
from corral.trainers.evaluation.required import column_names, require_columns
from corral.trainers.evaluation.scores import Evaluation, evaluate_players
from corral.trainers.report.plots import LearningCurve
from corral.trainers.runs.env_config import SET_BY_TRAINING
from corral.trainers.runs.run import Run
from corral.trainers.runs.run_config import RunConfig

__all__ = [
    "as_trained",
    "evaluate_loads",
    "learning_curves",
    "seen_rows",
    "trained_otherwise",
    "with_seen",
]

MODES = ("greedy", "sampled")
CURVE_LEVELS = ("random", "local", "overflow")

CAPACITY = ("capacity", "capacity_rows")
PAID = ("reward", "reward_fn")
NOT_OF_THE_GAME = {"trace", "rows", "start", "max_cycles", "augment", *PAID, *CAPACITY, *OWN}
NOT_OF_THE_GAME -= {"arrivals"}  # what nodes know is the same for all that are compared


def evaluate_loads(
    runs: Mapping[str, Run],
    folder: Path,
    *,
    references: Sequence[str] = PAIRS,
    trace: str | Path | Trace | None = None,
    rows: tuple[int, int] | None = None,
    window: int | None = None,
    seed: int = 0,
    optimum_windows: int = 8,
    require: Sequence[Criterion] = (),
    progress: Progress = lambda what, done, total: None,
) -> Evaluation:
    """Replay the load of the first of ``runs`` (label -> Run) through the teams of all of them.

    Writes results.json, results.csv and report.html into ``folder``.

    Args:
        references: pairs of ``corral.envs.dfaas_v0.baselines``.
        trace: another load with capacity, all of it unless ``rows`` are given; scales stay those
            of the run.
        rows: (low, high), other rows than those held out.
        window: steps of a window; default: a day.
        seed: of random policies and sampled actions.
        optimum_windows: see ``corral.loads.replay.replay``.
        require: criteria whose columns are looked up before anything is played.

    Raises what ``replay`` raises, ScaleError where the load exceeds the run's scales, and
    ValueError where its nodes are others or the runs were trained in different games.
    """
    run = next(iter(runs.values()))
    env_config, rules = run.config.env_config, _rules_of(run)
    load = env_config.trace if trace is None else load_trace(trace)
    assert load is not None
    agents = tuple(f"node_{i}" for i in range(len(load.nodes)))
    nodes = dict.fromkeys(("returns", "lost_by_node", "forwarded_by_node"), agents)
    began = run.recommendation  # of a run that began with a rule
    if references and began is not None and began.rule not in references:
        references = (*references, began.rule)
    require_columns(require, column_names(Score, nodes))
    for other in list(runs.values())[1:]:
        as_trained([run, other], {})
    # The references play by the scales of the run too, unless those are the load's own anyway.
    arguments = env_config.env_kwargs
    shared = ["neighbours"] if trace is None else []  # of a summary, which has no scale
    if not any_number(rules):
        shared = [key for key in OWN if key in arguments and key not in ("observation", "route")]
    settings = _game_settings(run) | {key: arguments[key] for key in shared if key in arguments}
    capacity: dict[str, Any] = {
        key: arguments.get(key) if trace is None else None for key in CAPACITY
    }
    settings |= capacity
    plain = DfaasRules(load, **capacity)
    if trace is not None and not any_number(rules):
        _require_fit(run, rules, plain)
    for scale in ("load_scale", "capacity_scale"):
        if settings.get(scale) == getattr(plain, scale):
            del settings[scale]
    if trace is None:
        rows = rows or env_config.held_out["rows"]
    own = _but_defaults(settings)
    judged = rows or (0, len(load))
    result = replay(
        load,
        {**{pair: pair for pair in references}, **run_players(runs)},
        rows=rows,
        window=window,
        seed=seed,
        optimum_windows=optimum_windows,
        best_rule=_best_rule(run, load, judged, references, window, own, progress),
        progress=progress,
        **own,
    )
    seen = {label: seen_rows(label, run, load, judged) for label, run in runs.items()}
    result = with_seen(result, seen)
    notes = [said for said in seen.values() if said]
    below = say_gaps(_gaps(runs, result))
    notes += [gap["said"] for gap in below.get("greedy_below_sampled", ())]
    write_report(
        result,
        folder,
        notes=notes,
        learning=learning_curves(runs),
        levels=_levels(runs),
        pictures=[
            picture
            for label, run in runs.items()
            for picture in team_pictures(_rules_of(run), run.policies, label=label)
        ],
    )
    found = evaluation_of(result, notes)
    found = dataclasses.replace(found, details={**found.details, **below})
    found.write(folder)
    return found


def _best_rule(
    run: Run,
    load: Trace,
    judged: tuple[int, int],
    references: Sequence[str],
    window: int | None,
    settings: Mapping[str, Any],
    progress: Progress,
) -> tuple[str, str] | None:
    """Return the pair of least cost on the rows that the run was trained and validated on, and
    which rows these are; None where there are no pairs, or no such rows of this load, or some of
    them are ``judged``: no rule is chosen on rows that it is judged on."""
    config = run.config.env_config
    parts = [part["rows"] for part in (config.env_kwargs, config.validation) if part]
    overlap = any(low < judged[1] and judged[0] < high for low, high in parts)
    if not references or config.trace != load or overlap:
        return None
    if len(parts) == 2 and parts[0][1] == parts[1][0]:  # no window is cut between them
        parts = [(parts[0][0], parts[1][1])]
    plan: dict[str, Any] = {"window": window, "optimum_windows": 0, "progress": progress}
    played = [replay(load, references, rows=rows, **plan, **settings) for rows in parts]
    costs = {pair: sum(float(r.sums[pair].cost.sum()) for r in played) for pair in references}
    which = " and ".join(f"{low}:{high}" for low, high in parts)
    return min(costs, key=costs.__getitem__), f"the training rows {which}"


def with_seen(result: Replay, seen: Mapping[str, str | None]) -> Replay:
    """Return the replay, told which runs ``seen_rows`` says something of."""
    own = {f"{label}, {mode}" for label, said in seen.items() for mode in MODES if said}
    return dataclasses.replace(result, seen=frozenset(own))


def _gaps(runs: Mapping[str, Run], result: Replay) -> dict[str, tuple[Gap, RunConfig]]:
    """Return the runs whose greedy play is far below their sampled play, window by window; nothing
    where random play was not replayed beside them."""
    chance = [label for label in result.returns if label.partition("/")[0] == "random"]
    found = {}
    both = {label: run for label, run in runs.items() if f"{label}, sampled" in result.returns}
    for label, run in both.items() if chance else ():
        greedy, sampled = (result.returns[f"{label}, {mode}"] for mode in MODES)
        gap = gap_of(greedy, sampled, result.returns[chance[0]])
        if gap is not None:
            found[label] = (gap, run.config)
    return found


def _require_fit(run: Run, rules: DfaasRules, other: DfaasRules) -> None:
    """Raise ValueError where the team of ``run`` cannot play the load of ``other``."""
    if len(other.agents) != len(rules.agents):
        raise ValueError(
            f"{other.trace.name} has {len(other.agents)} nodes, and {run.folder} was trained on "
            f"{len(rules.agents)}"
        )
    for scale in ("load_scale", "capacity_scale"):
        own, needed = getattr(rules, scale), getattr(other, scale)
        if needed > own:
            raise ScaleError(
                f"{run.folder} was trained with {scale} {own:g}, and {other.trace.name} reaches "
                f"{needed:g}: train again with --{scale.replace('_', '-')} {needed:g} or more"
            )


# --- Settings of runs ----------------------------------------------------------------------------


def seen_rows(label: str, run: Run, trace: Trace, rows: tuple[int, int]) -> str | None:
    """Return a sentence where the run, or what it came of, was trained or validated on some of the
    ``rows`` of that load."""
    env_config = run.config.env_config
    own = {"trained": env_config.env_kwargs, "validated": env_config.validation}
    if env_config.trace is None or env_config.trace != trace:
        own = {}
    seen = []
    for what, arguments in own.items():
        low, high = arguments.get("rows", (0, 0))
        if rows[0] < high and low < rows[1]:
            seen.append(f"{what} on rows {low}:{high}")
    said = [f"was {' and '.join(seen)}"] if seen else []
    for digest, low, high in run.config.seen:
        if digest == trace.digest and rows[0] < high and low < rows[1]:
            said.append(f"learned from what had seen rows {low}:{high}")
    if not said:
        return None
    return f"{label} {' and '.join(said)} of this load: it has seen some of these."


def as_trained(runs: Sequence[Run], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``given`` settings of dfaas_v0, completed with those that the ``runs`` trained with.

    Raises ValueError where the runs do not agree on one that is not given, or are of another
    environment.
    """
    complete = dict(given)
    differ: dict[str, str] = {}
    for run in runs:
        if run.config.env_config.env != "dfaas_v0":
            raise ValueError(f"{run.folder} is of {run.config.env_config.env}, not of dfaas_v0")
        for key, value in _game_settings(run).items():
            if key not in given and complete.setdefault(key, value) != value:
                differ.setdefault(key, f"{key}={complete[key]!r} and {key}={value!r}")
    if differ:
        raise ValueError(
            f"the runs were trained with {', with '.join(differ.values())}: say which to play"
        )
    return _but_defaults(complete)


def trained_otherwise(label: str, run: Run, played: Mapping[str, Any]) -> str | None:
    """Return a sentence where the ``played`` settings are others than those of the run's
    training."""
    defaults = inspect.signature(DfaasRules).parameters
    own, now = [], []
    for key, value in _game_settings(run).items():
        other = played.get(key, defaults[key].default)
        if other != value:
            own.append(f"{key}={value}")
            now.append(f"{key}={other}")
    capacity = run.config.env_config.env_kwargs.get("capacity"), played.get("capacity")
    if capacity[0] != capacity[1]:
        trained, here = ("of its trace" if each is None else each for each in capacity)
        own.append(f"capacity={trained}")
        now.append(f"capacity={here}")
    if not own:
        return None
    return f"{label} was trained with {', '.join(own)}; this replay has {', '.join(now)}."


def _game_settings(run: Run) -> dict[str, Any]:
    """Return the run's arguments of dfaas_v0 that make the game: costs, queue, limits, ...

    One that is younger than the run has its default.
    """
    defaults = inspect.signature(DfaasRules).parameters.items()
    arguments = {name: parameter.default for name, parameter in defaults}
    arguments |= run.config.env_config.env_kwargs
    apart = NOT_OF_THE_GAME | set(SET_BY_TRAINING)
    return {key: value for key, value in arguments.items() if key not in apart}


def _but_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` without what is the default anyway: a report names what is particular."""
    defaults = inspect.signature(DfaasRules).parameters
    return {key: value for key, value in settings.items() if value != defaults[key].default}


# --- Learning curves -----------------------------------------------------------------------------


def _rules_of(run: Run) -> DfaasRules:
    """Return the rules that a run of dfaas_v0 was trained in, with the reward of the game."""
    rules = run.config.env_config.rules(reward_fn=None)
    assert isinstance(rules, DfaasRules)
    return rules


def learning_curves(runs: Mapping[str, Run]) -> list[LearningCurve]:
    """Return the teams' returns over training, where episodes ended in more than one update."""
    curves = []
    folders: set[Path] = set()
    for label, run in runs.items():
        if run.folder in folders:  # another checkpoint of it
            continue
        folders.add(run.folder)
        rows = run.progress.dropna(subset=["return_team"])
        if rows["episodes"].nunique() > 1:
            steps, returns = rows["env_steps"].to_numpy(), rows["return_team"].to_numpy()
            curves.append(LearningCurve(label, steps, returns))
    return curves


def _levels(runs: Mapping[str, Run]) -> dict[str, float]:
    """Return what some reference policies earn per episode of the training, beside the curves;
    nothing where the runs were trained in episodes that differ, or with rewards of their own."""
    if any(run.config.env_config.env_kwargs.get("reward_fn") for run in runs.values()):
        return {}
    rules, *others = map(_rules_of, runs.values())
    if any(other.identity != rules.identity for other in others):
        return {}
    teams = {amount: Player(baseline_team(amount, rules)) for amount in CURVE_LEVELS}
    scores = evaluate_players(rules, teams, episodes=64, seed=0)
    return {score.policy: score.return_team for score in scores}
