"""The service for a run: the team with a guard, a shadow, or a rule."""

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
    "Its figures assume a second offer: your gateway must offer refused requests once more, to all "
    "neighbors."
)


@dataclass(frozen=True)
class Service:
    """A decider with its description; ``lines`` explain it as text."""

    decide: Callable[..., Answer]
    deciding: str  # "team", "rule" or "shadow"
    run: str
    rule: str
    nodes: tuple[str, ...]
    lines: tuple[str, ...]
    about: Mapping[str, Any]  # description of the nodes, see ``about_rules``
    memory: Remembering | None = None  # of the team
    log: ShadowLog | None = None
    names: frozenset[str] | None = None  # nodes that requests may name; None: any
    quick: bool = True  # whether a decision for a few nodes takes only milliseconds
    recommended: str | None = None  # balancer that an advice recommends instead; it runs in a proxy

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
    """Return the service for ``run``: a run, a folder of ``run.export("numpy")``, or a folder of
    ``corral.advise``.

    An advice serves its verdict. A run of ``corral.from_rule`` serves its recommendation, unless a
    checkpoint is named (RUN@best).

    Args:
        rule: serve this rule instead of the team, for example backlog=0.75/least; or a user's
            planning policy, file.py:name or module:name, with the name of the policy or its class.
        fallback: the rule for input outside the training ranges; default: the run's best rule. If
            the run has none: ``rule``, else the rule of residual actions, else "overflow" with the
            run's route (with unknown arrivals and a link limit "capacity=1", which never forwards
            more than links carry).
        shadow: let the rule decide, and log the team's decisions to this file, as JSON lines.
        margin: how far input may leave the ranges of the training, as a share of the largest value.
            See ``Ranges``.
        arrivals: whether a rule knows a step's arrivals before the step; with unknown arrivals it
            answers with plans. Default: as the run or advice. A team needs those of its training.
        nodes: names allowed in requests: "run", the nodes of the run or some of them; a list of
            additional names; or "any". A rule decides if other nodes than the team's are named.

    Raises ArgumentError for a team with other arrivals and for invalid names, RunError for a run of
    another environment and for a folder without a run or export, UnknownNameError for an unknown
    rule, and OSError if the log cannot be written.
    """
    source = _of_run(run) if isinstance(run, Run) else _of_folder(Path(run))
    about, run_arrivals = source.about, source.about.get("arrivals", "known")
    alone = shadow is None and (rule is not None or source.why is not None)
    if arrivals not in (None, run_arrivals) and not alone:
        raise ArgumentError(
            f"arrivals={arrivals!r}: the team of {source.name} was trained with {run_arrivals} "
            "arrivals; --rule serves a rule instead"
        )
    name = rule or fallback or source.rule or _default_rule(about)
    decides = _rule(name, about, arrivals if alone else None, fallback)
    fields: dict[str, Any] = {
        "rule": decides.name,
        "nodes": tuple(about["nodes"]),
        "names": _names(about["nodes"], nodes),
        "quick": decides.quick,
        "recommended": source.balancer,
    }
    first, notes = f"The rule {decides.name} decides", source.notes
    if alone:
        why = "" if rule is not None else f": {source.why}"
        lines = (f"{first}{why}.", *_plans(decides.about, timed=False), *notes)
        return Service(
            decides.answer, "rule", source.name, lines=lines, about=decides.about, **fields
        )
    decider, team, slower = source.team()
    fields["quick"] = fields["quick"] and not slower
    fields |= {"about": about, "memory": Remembering(decider)}
    guard = Guard(fields["memory"], decides.decide, Ranges.seen(about, margin))
    notes = (*_plans(about, timed=about.get("daily_mean") is not None), *notes)
    if shadow is not None:
        log = ShadowLog(shadow)
        line = f"{first}; the decisions of {team} are logged in {shadow}."
        decide = Shadow(guard, log, Placing(about) if run_arrivals == "unknown" else None).decide
        return Service(decide, "shadow", source.name, lines=(line, *notes), log=log, **fields)
    upper = f"{team[0].upper()}{team[1:]}"
    lines = f"{upper} decides;", f"outside its training ranges {decides.name} decides."
    return Service(guard.decide, "team", source.name, lines=(*lines, *slower, *notes), **fields)


def _rule(name: str, about: Mapping[str, Any], arrivals: str | None, fallback: str | None) -> Rule:
    """Return the rule with that name, or the user's policy."""
    if not is_named(name):
        return Rule(name, about, arrivals)
    policy = named_object(name, "policy")
    policy = policy() if isinstance(policy, type) else policy
    if not callable(getattr(policy, "plan", None)):
        raise ArgumentError(f"{name} has no method plan(view); see docs/policies.md for an example")
    behind = fallback or _default_rule(about)
    return Rule(name, about, arrivals, policy=policy, fallback=behind)


def _names(run_nodes: Sequence[str], nodes: str | Sequence[str]) -> frozenset[str] | None:
    """Return the allowed names; None: any. Raises ArgumentError."""
    if nodes == "any":
        return None
    more = [] if nodes == "run" else nodes
    if isinstance(more, str) or not all(isinstance(name, str) and name for name in more):
        raise ArgumentError(f'nodes={nodes!r}: pass "run", "any", or a list of names')
    return frozenset((*run_nodes, *more))


def _plans(about: Mapping[str, Any], timed: bool) -> list[str]:
    """Return a line about plans, if arrivals are unknown."""
    if about.get("arrivals", "known") == "known":
        return []
    time = ", and time" if timed else ""
    return [f"Arrivals are unknown: requests need last_arrivals{time}; answers are plans."]


@dataclass(frozen=True)
class _Source:
    """The origin of a service."""

    name: str
    about: Mapping[str, Any]  # see ``about_rules``
    team: Callable[[], tuple[NodeDecider, str, list[str]]]  # with its name, and lines about it
    rule: str | None = None  # the best rule
    why: str | None = None  # reason for serving this rule instead of the team
    notes: tuple[str, ...] = ()  # further sentences
    balancer: str | None = None  # recommended by an advice


def _of_run(run: Run) -> _Source:
    about, recommendation = about_rules(rules_of(run)), run.recommendation
    if recommendation is None or run.at is not None:
        return _Source(run.name, about, lambda: _team(run), recommendation and recommendation.rule)
    best = load_run(f"{run.folder}@best")
    if recommendation.play == "team":
        return _Source(best.name, about, lambda: _team(best), recommendation.rule)
    why = f"{recommendation.why}; to serve the team instead: corral serve {best.name}"
    return _Source(run.name, about, lambda: _team(best), recommendation.rule, why)


def _team(run: Run) -> tuple[NodeDecider, str, list[str]]:
    decider, slower = _quick(run)
    source = run.source().removeprefix("the ").partition(", the best by")[0]
    return decider, f"the team of {run.name} ({source})", slower


def _of_folder(folder: Path) -> _Source:
    return _of_advice(folder) if (folder / ADVICE).is_file() else _of_export(folder)


def _of_advice(folder: Path) -> _Source:
    """Return the team or the rule of an advice, according to its verdict: the second choice if
    the verdict is a balancer."""
    verdict = advised(folder)
    notes = (SECOND_OFFER,) if verdict.settings.get("second_offer", True) else ()
    verdict_name = f"the verdict of {folder}"
    if verdict.balancer is not None:
        notes = (
            f"The advice recommends the balancer {verdict.balancer}. It runs in the proxy, not "
            "here.",
            *notes,
        )
        verdict_name = f"the second choice of {folder}"
    notes = (verdict.loss, *notes) if verdict.loss else notes
    if verdict.team is None:
        why = None if verdict.plan == "team" else verdict_name
        problem = (
            "recommends its team, but the team's folder is missing"
            if why is None
            else "has no team"
        )

        def missing_team() -> tuple[NodeDecider, str, list[str]]:
            raise RunError(f"{folder} {problem}: serve its best rule with --rule {verdict.rule}")

        return _Source(
            name=str(folder),
            about=verdict.about(),
            team=missing_team,
            rule=verdict.rule,
            why=why,
            notes=notes,
            balancer=verdict.balancer,
        )
    best = replace(
        _of_run(load_run(f"{verdict.team}@best")),
        rule=verdict.rule,
        notes=notes,
        balancer=verdict.balancer,
    )
    if verdict.plan == "team":
        return best
    why = f"{verdict_name}; to serve the team instead: corral serve {best.name}"
    return replace(best, name=str(folder), why=why)


def _of_export(folder: Path) -> _Source:
    try:
        decider = standalone.Decider(folder)
    except ExportError as error:
        raise RunError(
            f"{folder} is neither a run nor a complete export: {error}. Write it again with corral "
            "export"
        ) from error
    about = decider.about
    team: tuple[NodeDecider, str, list[str]] = decider, f"the team of {folder}", []
    if "rule" not in about:
        return _Source(str(folder), about, lambda: team)
    rule = f"{about['rule']}/{about['route']}"
    return _Source(str(folder), about, lambda: team, rule, "the export contains this rule")


def _quick(run: Run) -> tuple[NodeDecider, list[str]]:
    """Return a decider for the run's policies, in NumPy if possible, and otherwise a line with the
    reason."""
    decider = run.decider
    try:
        actor = network_actor(decider)
    except RunError as error:
        return decider, [f"The torch network decides, which takes longer: {error}."]
    if odd := odd_actions(decider, actor, CHECKED):
        return decider, [f"The torch network decides: NumPy's copy differs in {odd} of {CHECKED}."]
    return NodeDecider(decider.about, actor), []


def _default_rule(about: Mapping[str, Any]) -> str:
    """Return the default rule of a run, with a route that can forward any number at once: the rule
    of residual actions, or the overflow."""
    route, residual = about["route"], about.get("residual")
    amount = "overflow" if residual is None else residual.partition("/")[0]
    if about.get("arrivals", "known") == "known":
        route = "least" if route == "two-choices" else route
    elif residual is None and about.get("link_limit") is not None:
        amount = "capacity=1"  # the overflow, within what the links carry
    return f"{amount}/{'shortest' if route == 'choose' else route}"
