"""What is served of a run: the team behind a guard, its shadow, or a rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from corral.errors import ArgumentError, RunError
from corral.loads.export import standalone
from corral.loads.export.core import NodeDecider
from corral.loads.export.decider import about_rules, rules_of
from corral.loads.export.manifest import ExportError
from corral.loads.export.numpy_folder import CHECKED, network_actor, odd_actions
from corral.loads.serve.advised import ADVICE, advised
from corral.loads.serve.guard import MARGIN, Answer, Guard, Ranges
from corral.loads.serve.memory import Remembering
from corral.loads.serve.placed import Placing
from corral.loads.serve.rule import Rule
from corral.loads.serve.shadow import Shadow, ShadowLog
from corral.named import is_named, named_object
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
    about: Mapping[str, Any]  # of the nodes, see ``about_rules``
    memory: Remembering | None = None  # of the team
    log: ShadowLog | None = None
    names: frozenset[str] | None = None  # of nodes that requests may name; None: any
    quick: bool = True  # whether a decision of a few nodes takes no more than milliseconds

    @property
    def plans(self) -> bool:
        """Whether arrivals are unknown, so that answers are plans."""
        return bool(self.about.get("arrivals", "known") == "unknown")


def service_of(
    run: Run | str | Path,
    *,
    rule: str | None = None,
    fallback: str | None = None,
    shadow: str | Path | None = None,
    margin: float = MARGIN,
    arrivals: Literal["known", "unknown"] | None = None,
    nodes: Literal["run", "any"] | Sequence[str] = "run",
) -> Service:
    """Return what decides for the nodes of ``run``, or of a folder of ``run.export("numpy")`` or of
    ``corral.advise``, whose verdict is served.

    A run that ``corral.from_rule`` made serves what it recommends, unless a checkpoint is named
    (RUN@best).

    Args:
        rule: serve this rule in place of the team, for example backlog=0.75/least; or a policy of
            your own that plans, file.py:name. Or module:name; name is the policy or its class.
        fallback: the rule that decides on input that the team was not trained for; default: the
            run's best rule. Where it knows none: ``rule``, else "overflow" with the run's route
            (with unknown arrivals and a link limit "capacity=1", which forwards no more than links
            carry).
        shadow: let the rule decide, and log what the team would have done, as JSON lines.
        margin: how far input may leave the ranges of training, as a share of the largest value.
            See ``Ranges``.
        arrivals: whether a rule knows the requests of a step beforehand; unknown: it answers by
            plans; default: that of the run or advice. A team keeps that of its training.
        nodes: names that requests may have: "run", those of the run or some of them; a list of
            names besides; or "any". A team knows its own nodes: for others the rule decides.

    Raises ArgumentError for a team with other arrivals and for no names, RunError for a run of
    another environment and a folder that is no export, UnknownNameError for no rule, and OSError
    where the log cannot be written.
    """
    source = _of_run(run) if isinstance(run, Run) else _of_folder(Path(run))
    about, own = source.about, source.about.get("arrivals", "known")
    alone = shadow is None and (rule is not None or source.why is not None)
    if arrivals not in (None, own) and not alone:
        raise ArgumentError(
            f"arrivals={arrivals!r}: the team of {source.name} was trained with {own} arrivals; "
            "--rule serves a rule in its place"
        )
    name = rule or fallback or source.rule or _overflow(about)
    decides = _rule(name, about, arrivals if alone else None, fallback)
    named: dict[str, Any] = {
        "rule": decides.name,
        "nodes": tuple(about["nodes"]),
        "names": _names(about["nodes"], nodes),
        "quick": decides.quick,
    }
    first, told = f"The rule {decides.name} decides", source.told
    if alone:
        why = "" if rule is not None else f": {source.why}"
        lines = (f"{first}{why}.", *_plans(decides.about, timed=False), *told)
        return Service(
            decides.answer, "rule", source.name, lines=lines, about=decides.about, **named
        )
    decider, team, slower = source.team()
    named["quick"] = named["quick"] and not slower
    named |= {"about": about, "memory": Remembering(decider)}
    guard = Guard(named["memory"], decides.decide, Ranges.seen(about, margin))
    told = (*_plans(about, timed=about.get("daily_mean") is not None), *told)
    if shadow is not None:
        log = ShadowLog(shadow)
        line = f"{first}; what {team} would do is logged in {shadow}."
        decide = Shadow(guard, log, Placing(about) if own == "unknown" else None).decide
        return Service(decide, "shadow", source.name, lines=(line, *told), log=log, **named)
    lines = f"{team[0].upper()}{team[1:]} decides;", f"outside what it knows {decides.name} does."
    return Service(guard.decide, "team", source.name, lines=(*lines, *slower, *told), **named)


def _rule(name: str, about: Mapping[str, Any], arrivals: str | None, fallback: str | None) -> Rule:
    """Return the rule of that name, or the policy that it names."""
    if not is_named(name):
        return Rule(name, about, arrivals)
    policy = named_object(name, "policy")
    policy = policy() if isinstance(policy, type) else policy
    if not callable(getattr(policy, "plan", None)):
        raise ArgumentError(f"{name} has no method plan(view): docs/policies.md has an example")
    behind = fallback or _overflow(about)
    return Rule(name, about, arrivals, policy=policy, fallback=behind)


def _names(own: Sequence[str], nodes: str | Sequence[str]) -> frozenset[str] | None:
    """Return the names that are served; None: any. Raises ArgumentError."""
    if nodes == "any":
        return None
    more = [] if nodes == "run" else nodes
    if isinstance(more, str) or not all(isinstance(name, str) and name for name in more):
        raise ArgumentError(f'nodes={nodes!r}: give "run", "any", or a list of names')
    return frozenset((*own, *more))


def _plans(about: Mapping[str, Any], timed: bool) -> list[str]:
    """Return what to say of answers that are plans."""
    if about.get("arrivals", "known") == "known":
        return []
    time = ", and time" if timed else ""
    return [f"Arrivals are unknown: it takes last_arrivals{time}, and answers by plans."]


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
    except ExportError as error:
        raise RunError(
            f"{folder} is no run, and no whole export: {error}. corral export writes it again"
        ) from error
    about = decider.about
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


def _overflow(about: Mapping[str, Any]) -> str:
    """Return the rule of a run that has none, with a route that forwards any number at once."""
    route, amount = about["route"], "overflow"
    if about.get("arrivals", "known") == "known":
        route = "least" if route == "two-choices" else route
    elif about.get("link_limit") is not None:
        amount = "capacity=1"  # the overflow, within what the links carry
    return f"{amount}/{'shortest' if route == 'choose' else route}"
