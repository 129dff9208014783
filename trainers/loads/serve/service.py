"""What is served of a run: the team behind a guard, its shadow, or a rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.envs.dfaas_v0 import DfaasRules
from corral.errors import RunError
from corral.trainers.loads.export.core import NodeDecider
from corral.trainers.loads.export.decider import rules_of
from corral.trainers.loads.export.numpy_folder import CHECKED, network_actor, odd_actions
from corral.trainers.loads.serve.guard import MARGIN, Answer, Guard, Ranges
from corral.trainers.loads.serve.memory import Remembering
from corral.trainers.loads.serve.rule import Rule
from corral.trainers.loads.serve.shadow import Shadow, ShadowLog
from corral.trainers.runs.run import Run, load_run

__all__ = ["Service", "service_of"]


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
    run: Run,
    *,
    rule: str | None = None,
    fallback: str | None = None,
    shadow: str | Path | None = None,
    margin: float = MARGIN,
) -> Service:
    """Return what decides for the nodes of ``run``.

    A run that ``corral.from_rule`` made serves what it recommends, unless a checkpoint is named
    (RUN@best).

    Args:
        rule: serve this rule, such as "overflow/equal", in place of the team.
        fallback: the rule that decides where the guard lets the team not; default: ``rule``, the
            run's best rule where it knows one, else "overflow" with the run's route.
        shadow: a file; the rule decides, and what the team would have done is logged there.
        margin: see ``Ranges``.

    Raises RunError for a run of another environment, UnknownNameError for no rule, and OSError
    where the log cannot be written.
    """
    rules = rules_of(run)
    found = run.recommendation
    name = fallback or rule or (found.rule if found else _overflow(rules))
    decides = Rule(name, rules)
    about: dict[str, Any] = {"rule": decides.name, "nodes": rules.trace.nodes}
    alone = f"The rule {decides.name} decides"
    if shadow is None and rule is not None:
        return Service(decides.answer, "rule", run.name, lines=(f"{alone}.",), **about)
    if found is not None and run.at is None:
        if found.play == "rule" and shadow is None:
            why = f"{alone}: {found.why}. {run.folder}@best serves the team all the same."
            return Service(decides.answer, "rule", run.name, lines=(why,), **about)
        run = load_run(f"{run.folder}@best")
    decider, slower = _quick(run)
    about["memory"] = memory = Remembering(decider)
    guard = Guard(memory, decides.decide, Ranges.seen_by(rules, margin))
    team = f"the team of {run.name}, {run.source()}"
    if shadow is not None:
        log = ShadowLog(shadow)
        line = f"{alone}; what {team} would do is logged in {shadow}."
        decide = Shadow(guard, log).decide
        return Service(decide, "shadow", run.name, lines=(line,), log=log, **about)
    lines = f"{team[0].upper()}{team[1:]}, decides;", f"outside what it knows {decides.name} does."
    return Service(guard.decide, "team", run.name, lines=(*lines, *slower), **about)


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


def _overflow(rules: DfaasRules) -> str:
    return f"overflow/{'shortest' if rules.route == 'choose' else rules.route}"
