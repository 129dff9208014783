"""Evaluate runs trained on a load: replay it with reference policies and the optimum."""

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
from corral.loads.replay import OF_TEAMS, OWN, Replay, fitting_scales, replay
from corral.loads.report import evaluation_of, write_report
from corral.loads.scores import Score
from corral.progress import Progress
from corral.trainers.criteria import Criterion
from corral.trainers.evaluation.greedy import Gap, describe_gaps, gap_of
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
    "on_other_nodes",
    "seen_rows",
    "trained_differently",
    "with_seen",
]

MEASURED = (
    "In a benchmark, teams of 3 nodes did not beat the fitted rule on 5, 20 or 200 nodes: see "
    "benchmarks/results/transfer.md."
)
"""Result of benchmarks/loads/transfer.py."""

MODES = ("greedy", "sampled")
CURVE_LEVELS = ("random", "local", "overflow")

CAPACITY = ("capacity", "capacity_rows")
PAID = ("reward", "reward_fn")
NOT_OF_THE_GAME = {"trace", "rows", "start", "max_cycles", "augment", *PAID, *CAPACITY, *OWN}
NOT_OF_THE_GAME -= {"arrivals"}  # all compared policies must know the same


def evaluate_loads(
    runs: Mapping[str, Run],
    folder: Path,
    *,
    references: Sequence[str] = PAIRS,
    trace: str | Path | Trace | None = None,
    rows: tuple[int, int] | None = None,
    window: int | None = None,
    beyond: str | None = None,
    seed: int = 0,
    optimum_windows: int = 8,
    require: Sequence[Criterion] = (),
    progress: Progress = lambda part, done, total: None,
) -> Evaluation:
    """Replay the load of the first of ``runs`` (label -> Run) through the teams of all of them.

    Writes results.json, results.csv and report.html into ``folder``.

    Args:
        references: pairs of ``corral.envs.dfaas_v0.baselines``.
        trace: another load with capacity, all of it unless ``rows`` are given; the run's scales
            stay.
        rows: (low, high), instead of the held-out rows.
        window: steps of a window; default: a day.
        beyond: play of numbers above the scales of the runs, instead of their ``beyond``: "clip",
            or "rule" for residual runs, see ``corral.envs.dfaas_v0``.
        seed: seed of random policies and sampled actions.
        optimum_windows: see ``corral.loads.replay.replay``.
        require: criteria; their columns are checked before the replay.

    Raises the errors of ``replay``, ScaleError if the load exceeds the scales of the run and
    ``beyond`` is None for both, and ValueError for a different number of nodes or for runs trained
    in different games.
    """
    run = next(iter(runs.values()))
    env_config, rules = run.config.env_config, _rules_of(run)
    load = env_config.trace if trace is None else load_trace(trace)
    assert load is not None
    agents = tuple(f"node_{i}" for i in range(len(load.nodes)))
    nodes = dict.fromkeys(("returns", "lost_by_node", "forwarded_by_node"), agents)
    began = run.recommendation  # of a run that started from a rule
    if references and began is not None and began.rule not in references:
        references = (*references, began.rule)
    require_columns(require, column_names(Score, nodes))
    for other in list(runs.values())[1:]:
        as_trained([run, other], {})
    # The references use the run's scales too, unless these equal the load's defaults.
    arguments = env_config.env_kwargs
    shared = ["neighbours"] if trace is None else []  # with a summary observation: it has no scale
    if not any_number(rules):
        shared = [key for key in OWN if key in arguments and key not in (*OF_TEAMS, "observation")]
    settings = _game_settings(run) | {key: arguments[key] for key in shared if key in arguments}
    capacity: dict[str, Any] = {
        key: arguments.get(key) if trace is None else None for key in CAPACITY
    }
    settings |= capacity
    plain = DfaasRules(load, **capacity)
    if trace is not None and not any_number(rules):
        _require_fit(run, rules, plain, beyond or rules.beyond)
    settings = fitting_scales(settings, plain.trace)
    for scale in ("load_scale", "capacity_scale"):
        if settings.get(scale) == getattr(plain, scale):
            del settings[scale]
    if trace is None:
        rows = rows or env_config.held_out["rows"]
    but_defaults = _but_defaults(settings)
    judged = rows or (0, len(load))
    result = replay(
        load,
        {**{pair: pair for pair in references}, **run_players(runs)},
        rows=rows,
        window=window,
        seed=seed,
        optimum_windows=optimum_windows,
        beyond=beyond,
        best_rule=_best_rule(run, load, judged, references, window, but_defaults, progress),
        progress=progress,
        **but_defaults,
    )
    seen = {label: seen_rows(label, run, load, judged) for label, run in runs.items()}
    result = with_seen(result, seen)
    notes = [sentence for sentence in seen.values() if sentence]
    elsewhere = (on_other_nodes(label, run, load) for label, run in runs.items())
    notes += [sentence for sentence in elsewhere if sentence]
    below = describe_gaps(_gaps(runs, result))
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
    evaluation = evaluation_of(result, notes)
    evaluation = dataclasses.replace(evaluation, details={**evaluation.details, **below})
    evaluation.write(folder)
    return evaluation


def _best_rule(
    run: Run,
    load: Trace,
    judged: tuple[int, int],
    references: Sequence[str],
    window: int | None,
    settings: Mapping[str, Any],
    progress: Progress,
) -> tuple[str, str] | None:
    """Return the pair of least cost on the run's training and validation rows, and these rows.

    None without pairs, for another load, and if some of these rows are ``judged``: no rule is
    chosen on the rows on which it is judged."""
    config = run.config.env_config
    parts = [part["rows"] for part in (config.env_kwargs, config.validation) if part]
    overlap = any(low < judged[1] and judged[0] < high for low, high in parts)
    if not references or config.trace != load or overlap:
        return None
    if len(parts) == 2 and parts[0][1] == parts[1][0]:  # join them, so that no window is cut
        parts = [(parts[0][0], parts[1][1])]
    plan: dict[str, Any] = {"window": window, "optimum_windows": 0, "progress": progress}
    replays = [replay(load, references, rows=rows, **plan, **settings) for rows in parts]
    costs = {pair: sum(float(r.sums[pair].cost.sum()) for r in replays) for pair in references}
    which = " and ".join(f"{low}:{high}" for low, high in parts)
    return min(costs, key=costs.__getitem__), f"the training rows {which}"


def with_seen(result: Replay, seen: Mapping[str, str | None]) -> Replay:
    """Return the replay with the policies that have a sentence from ``seen_rows``."""
    seen_policies = {
        f"{label}, {mode}" for label, sentence in seen.items() for mode in MODES if sentence
    }
    return dataclasses.replace(result, seen=frozenset(seen_policies))


def _gaps(runs: Mapping[str, Run], result: Replay) -> dict[str, tuple[Gap, RunConfig]]:
    """Return the runs with greedy play far below their sampled play, window by window; empty if
    random play was not replayed."""
    chance = [label for label in result.returns if label.partition("/")[0] == "random"]
    gaps = {}
    both = {label: run for label, run in runs.items() if f"{label}, sampled" in result.returns}
    for label, run in both.items() if chance else ():
        greedy, sampled = (result.returns[f"{label}, {mode}"] for mode in MODES)
        gap = gap_of(greedy, sampled, result.returns[chance[0]])
        if gap is not None:
            gaps[label] = (gap, run.config)
    return gaps


def _require_fit(run: Run, rules: DfaasRules, other: DfaasRules, beyond: str | None) -> None:
    """Raise ValueError if the team of ``run`` cannot play the load of ``other``."""
    if len(other.agents) != len(rules.agents):
        raise ValueError(
            f"{other.trace.name} has {len(other.agents)} nodes, but {run.folder} was trained on "
            f"{len(rules.agents)}"
        )
    for scale in ("load_scale", "capacity_scale"):
        maximum, needed = getattr(rules, scale), getattr(other, scale)
        if needed > maximum and beyond is None:
            raise ScaleError(
                f"{run.folder} was trained with {scale} {maximum:g}, but {other.trace.name} "
                f"reaches {needed:g}: give beyond='clip', which lowers larger numbers to "
                f"{maximum:g} in observations. Or train again with the argument beyond of "
                f"dfaas_v0, or with {scale} {needed:g}"
            )


# --- Settings of runs ----------------------------------------------------------------------------


def seen_rows(label: str, run: Run, trace: Trace, rows: tuple[int, int]) -> str | None:
    """Return a sentence if some of the ``rows`` of ``trace`` were used to train or validate the
    run, or its teacher or predecessor; else None."""
    env_config = run.config.env_config
    rows_of = {"trained": env_config.env_kwargs, "validated": env_config.validation}
    if env_config.trace is None or env_config.trace != trace:
        rows_of = {}
    seen = []
    for use, arguments in rows_of.items():
        low, high = arguments.get("rows", (0, 0))
        if rows[0] < high and low < rows[1]:
            seen.append(f"{use} on rows {low}:{high}")
    reasons = [f"was {' and '.join(seen)}"] if seen else []
    for digest, low, high in run.config.seen:
        if digest == trace.digest and rows[0] < high and low < rows[1]:
            reasons.append(f"learned from a policy that had seen rows {low}:{high}")
    if not reasons:
        return None
    return f"{label} {' and '.join(reasons)} of this load: some replayed rows are not held out."


def as_trained(runs: Sequence[Run], given: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the ``given`` settings of dfaas_v0 with those that the ``runs`` trained with.

    Raises ValueError if the runs differ in a setting that is not given, or are of another
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
            f"the runs were trained with {', with '.join(differ.values())}: pass the one to play"
        )
    return _but_defaults(complete)


def trained_differently(label: str, run: Run, played: Mapping[str, Any]) -> str | None:
    """Return a sentence if the ``played`` settings differ from those of the run's training; else
    None."""
    defaults = inspect.signature(DfaasRules).parameters
    trained_with, played_with = [], []
    for key, value in _game_settings(run).items():
        other = played.get(key, defaults[key].default)
        if other != value:
            trained_with.append(f"{key}={value}")
            played_with.append(f"{key}={other}")
    capacity = run.config.env_config.env_kwargs.get("capacity"), played.get("capacity")
    if capacity[0] != capacity[1]:
        trained, played_capacity = (
            "of its trace" if value is None else value for value in capacity
        )
        trained_with.append(f"capacity={trained}")
        played_with.append(f"capacity={played_capacity}")
    if not trained_with:
        return None
    played_text = ", ".join(played_with)
    return f"{label} was trained with {', '.join(trained_with)}; this replay has {played_text}."


def on_other_nodes(label: str, run: Run, load: Trace) -> str | None:
    """Return a sentence if the run was trained on another number of nodes than ``load`` has; else
    None."""
    trained = run.config.env_config.trace
    assert trained is not None
    if len(trained.nodes) == len(load.nodes):
        return None
    return (
        f"{label} was trained on {len(trained.nodes)} nodes and plays {len(load.nodes)}. {MEASURED}"
    )


def _game_settings(run: Run) -> dict[str, Any]:
    """Return the run's arguments of dfaas_v0 that define the game: costs, queue, limits, ...

    Arguments that are newer than the run have their defaults.
    """
    defaults = inspect.signature(DfaasRules).parameters.items()
    arguments = {name: parameter.default for name, parameter in defaults}
    arguments |= run.config.env_config.env_kwargs
    apart = NOT_OF_THE_GAME | set(SET_BY_TRAINING)
    return {key: value for key, value in arguments.items() if key not in apart}


def _but_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``settings`` without those that have their default, for short reports."""
    defaults = inspect.signature(DfaasRules).parameters
    return {key: value for key, value in settings.items() if value != defaults[key].default}


# --- Learning curves -----------------------------------------------------------------------------


def _rules_of(run: Run) -> DfaasRules:
    """Return the rules in which a dfaas_v0 run was trained, with the default reward."""
    rules = run.config.env_config.rules(reward_fn=None)
    assert isinstance(rules, DfaasRules)
    return rules


def learning_curves(runs: Mapping[str, Run]) -> list[LearningCurve]:
    """Return the teams' returns over training, if episodes ended in more than one update."""
    curves = []
    folders: set[Path] = set()
    for label, run in runs.items():
        if run.folder in folders:  # another checkpoint of the run
            continue
        folders.add(run.folder)
        rows = run.progress.dropna(subset=["return_team"])
        if rows["episodes"].nunique() > 1:
            steps, returns = rows["env_steps"].to_numpy(), rows["return_team"].to_numpy()
            curves.append(LearningCurve(label, steps, returns))
    return curves


def _levels(runs: Mapping[str, Run]) -> dict[str, float]:
    """Return the mean returns of some reference policies per training episode, for the learning
    curves; empty if the runs were trained in different episodes or with a custom reward."""
    if any(run.config.env_config.env_kwargs.get("reward_fn") for run in runs.values()):
        return {}
    rules, *more = map(_rules_of, runs.values())
    if any(other.identity != rules.identity for other in more):
        return {}
    teams = {policy: Player(baseline_team(policy, rules)) for policy in CURVE_LEVELS}
    scores = evaluate_players(rules, teams, episodes=64, seed=0)
    return {score.policy: score.return_team for score in scores}
