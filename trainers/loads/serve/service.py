"""What is served of a run: the team behind a guard, its shadow, or a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

from corral.errors import RunError
from corral.trainers.loads.export import standalone
from corral.trainers.loads.export.core import NodeDecider
from corral.trainers.loads.export.decider import about_rules, rules_of
from corral.trainers.loads.export.numpy_folder import CHECKED, network_actor, odd_actions
from corral.trainers.loads.serve.advised import ADVICE, advised
from corral.trainers.loads.serve.guard import MARGIN, Answer, Guard, Ranges
from corral.trainers.loads.serve.memory import Remembering
from corral.trainers.loads.serve.rule import Rule
from corral.trainers.loads.serve.shadow import Shadow, ShadowLog
from corral.trainers.runs.run import Run, load_run

__all__ = ["Service", "service_of"]

SECOND_OFFER = (
    "Its figures count on a second offer: your gateway offers refused requests once more, to all "
    "neighbours."
)


@dataclass(frozen=True)
class Service:
    """Who decides. ``lines`` say so in words."""

    decide: Callable[..., Answer]
    deciding: str  # "team", "rule" or "shadow"
    run: str
    rule: str
    nodes: tuple[str, ...]
    lines: tuple[str, ...]
    memory: Remembering | None = None  # of the team
    log: ShadowLog | None = None


def service_of(
    run: Run | str | Path,
    *,
    rule: str | None = None,
    fallback: str | None = None,
    shadow: str | Path | None = None,
    margin: float = MARGIN,
) -> Service:
    """Return what decides for the nodes of ``run``, or of a folder of ``run.export("numpy")`` or of
    ``corral.advise``, whose verdict is served.

    A run that ``corral.from_rule`` made serves what it recommends, unless a checkpoint is named
    (RUN@best).

    Args:
        rule: serve this rule, such as "overflow/equal", in place of the team.
        fallback: the rule that decides where the guard lets the team not; default: ``rule``, the
            run's best rule where it knows one, else "overflow" with the run's route.
        shadow: a file; the rule decides, and what the team would have done is logged there.
        margin: see ``Ranges``.

    Raises RunError for a run of another environment and a folder that is no export,
    UnknownNameError for no rule, and OSError where the log cannot be written.
    """
    source = _of_run(run) if isinstance(run, Run) else _of_folder(Path(run))
    about = source.about
    decides = Rule(rule or fallback or source.rule or _overflow(about["route"]), about)
    named: dict[str, Any] = {"rule": decides.name, "nodes": tuple(about["nodes"])}
    alone, told = f"The rule {decides.name} decides", source.told
    if shadow is None and (rule is not None or source.why is not None):
        why = "" if rule is not None else f": {source.why}"
        return Service(
            decides.answer, "rule", source.name, lines=(f"{alone}{why}.", *told), **named
        )
    decider, team, slower = source.team()
    named["memory"] = memory = Remembering(decider)
    guard = Guard(memory, decides.decide, Ranges.seen(about, margin))
    if shadow is not None:
        log = ShadowLog(shadow)
        line = f"{alone}; what {team} would do is logged in {shadow}."
        decide = Shadow(guard, log).decide
        return Service(decide, "shadow", source.name, lines=(line, *told), log=log, **named)
    lines = f"{team[0].upper()}{team[1:]} decides;", f"outside what it knows {decides.name} does."
    return Service(guard.decide, "team", source.name, lines=(*lines, *slower, *told), **named)


@dataclass(frozen=True)
class _Source:
    """Where a service comes from."""

    name: str
    about: Mapping[str, Any]  # see ``about_rules``
    team: Callable[[], tuple[NodeDecider, str, list[str]]]  # with its name, and what to say of it
    rule: str | None = None  # the best one
    why: str | None = None  # that rule is to be served, and no team
    told: tuple[str, ...] = ()  # what else to know, in sentences


def _of_run(run: Run) -> _Source:
    about, found = about_rules(rules_of(run)), run.recommendation
    if found is None or run.at is not None:
        return _Source(run.name, about, lambda: _team(run), found and found.rule)
    best = load_run(f"{run.folder}@best")
    if found.play == "team":
        return _Source(best.name, about, lambda: _team(best), found.rule)
    why = f"{found.why}; {best.name} serves the team all the same"
    return _Source(run.name, about, lambda: _team(best), found.rule, why)


def _team(run: Run) -> tuple[NodeDecider, str, list[str]]:
    decider, slower = _quick(run)
    source = run.source().removeprefix("the ").partition(", the best by")[0]
    return decider, f"the team of {run.name} ({source})", slower


def _of_folder(folder: Path) -> _Source:
    return _of_advice(folder) if (folder / ADVICE).is_file() else _of_export(folder)


def _of_advice(folder: Path) -> _Source:
    """Return the team of an advice, or the rule, as its verdict says."""
    found = advised(folder)
    told = (SECOND_OFFER,) if found.settings.get("second_offer", True) else ()
    if found.team is None:
        why = None if found.run == "team" else f"the verdict of {folder}"
        what = "says to run its team, whose folder is not there" if why is None else "has no team"

        def none() -> tuple[NodeDecider, str, list[str]]:
            raise RunError(f"{folder} {what}: serve its best rule by --rule {found.rule}")

        return _Source(str(folder), found.about(), none, found.rule, why, told)
    best = _of_run(load_run(f"{found.team}@best"))
    if found.run == "team":
        return replace(best, rule=found.rule, told=told)
    why = f"the verdict of {folder}; {best.name} serves the team all the same"
    return replace(best, name=str(folder), rule=found.rule, why=why, told=told)


def _of_export(folder: Path) -> _Source:
    try:
        decider = standalone.Decider(folder)
        about = decider.about
        Ranges.seen(about)
    except FileNotFoundError as error:
        raise RunError(f"{folder} is no run, and no export: {error.filename} is missing") from None
    except (OSError, ValueError, KeyError, TypeError, BadZipFile) as error:
        raise RunError(
            f"{folder} is damaged, or an export of an earlier corral ({type(error).__name__}: "
            f"{error}): corral export writes it again"
        ) from error
    team: tuple[NodeDecider, str, list[str]] = decider, f"the team of {folder}", []
    if "rule" not in about:
        return _Source(str(folder), about, lambda: team)
    rule = f"{about['rule']}/{about['route']}"
    return _Source(str(folder), about, lambda: team, rule, "it is what was exported")


def _quick(run: Run) -> tuple[NodeDecider, list[str]]:
    """Return what decides by the run's policies, in NumPy where that can play them, and else a line
    that says why it cannot."""
    decider = run.decider
    try:
        actor = network_actor(decider)
    except RunError as error:
        return decider, [f"Its own network decides, which takes longer: {error}."]
    if odd := odd_actions(decider, actor, CHECKED):
        return decider, [f"Its own network decides: NumPy's copy differs in {odd} of {CHECKED}."]
    return NodeDecider(decider.about, actor), []


def _overflow(route: str) -> str:
    return f"overflow/{'shortest' if route == 'choose' else route}"
