"""The policies of a rehearsal: balancers, plans of rules and teams, and custom policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.envs.dfaas_v0.plain_rules import PlainRule
from corral.envs.dfaas_v0.planned import PlanPolicy
from corral.envs.dfaas_v0.rules import DfaasRules
from corral.errors import ActionError, RunError, UnknownNameError
from corral.loads.export.core import NodeDecider
from corral.loads.export.decider import about_rules, decider_of
from corral.loads.export.standalone import ABOUT
from corral.loads.export.standalone import Decider as ExportDecider
from corral.loads.rehearsal.balancers import BALANCERS, Balancer, balancer_of, is_balancer
from corral.loads.rehearsal.custom import RequestPolicy
from corral.loads.rehearsal.planned import CustomDecider, RuleDecider
from corral.loads.serve.advised import ADVICE, advised
from corral.named import is_named, named_object
from corral.trainers.evaluation.judge import players
from corral.trainers.evaluation.players import Player
from corral.trainers.runs.run import Run, is_run, load_run

__all__ = ["Entry", "Policy", "labelled", "policies_of"]

Entry = str | Path | Run | PlanPolicy | RequestPolicy
"""A balancer or rule by name; a folder of a run, an export or an advice; a custom policy, or its
name as file.py:make."""


@dataclass(frozen=True)
class Policy:
    """One way of choosing a server for each request: exactly one of the first three is set."""

    label: str
    balancer: Balancer | None = None
    decider: NodeDecider | None = None
    custom: RequestPolicy | None = None
    replayed: str | PlanPolicy | Player | None = None
    """Entry of a replay. None: an export, which plays the game of the replay itself."""

    @property
    def needs(self) -> str:
        """The knowledge of a node, in words."""
        if self.balancer is not None:
            return self.balancer.needs
        if self.custom is not None:
            return "a custom policy"
        return "a plan for each step"

    @property
    def beyond(self) -> str | None:
        """The play of numbers above the scales of a team; None for other policies."""
        return None if self.decider is None else self.decider.beyond


def policies_of(
    entries: Sequence[Entry] | Mapping[str, Entry],
    rules: DfaasRules,
    arrivals: str,
    beyond: str | None = None,
) -> list[Policy]:
    """Return the policies, with unique labels.

    Args:
        entries: entries, or label -> entry.
        rules: the game in which they play.
        arrivals: "known" or "unknown", whether decisions know the requests of the step.
        beyond: play of runs with numbers above their scales; default: as trained.

    Raises UnknownNameError for an unknown name, RunError, ExportError, CheckpointError for a
    damaged folder, ValueError for nodes that differ from those of the load, ActionError for an
    object that is no policy.
    """
    policies: dict[str, Policy] = {}
    for label, entry in labelled(entries):
        for policy in _policies(label, entry, rules, arrivals, beyond):
            if policy.label in policies:
                raise ValueError(f"two policies have the label {policy.label!r}; name them apart")
            _require_nodes(policy, rules)
            policies[policy.label] = policy
    if not policies:
        raise ValueError("pass at least one policy")
    return list(policies.values())


def labelled(entries: Sequence[Entry] | Mapping[str, Entry]) -> list[tuple[str, Entry]]:
    """Return (label, entry) of all entries; the label is "" for an entry without one."""
    if isinstance(entries, str | Path):
        entries = [entries]
    return (
        list(entries.items())
        if isinstance(entries, Mapping)
        else [("", entry) for entry in entries]
    )


def _policies(
    label: str, entry: Entry, rules: DfaasRules, arrivals: str, beyond: str | None
) -> list[Policy]:
    if isinstance(entry, Run):
        return _of_run(label, entry, beyond)
    if isinstance(entry, str | Path):
        text = str(entry)
        if is_balancer(text):
            balancer = balancer_of(text)
            return [Policy(label or str(balancer), balancer=balancer)]
        if is_run(text):
            return _of_run(label, load_run(text), beyond)
        folder = Path(text)
        if (folder / ADVICE).is_file():
            return _of_advice(label, folder, rules, arrivals, beyond)
        if (folder / ABOUT).is_file():
            return [Policy(label or folder.name, decider=ExportDecider(folder))]
        if folder.is_dir():
            raise RunError(f"{text} is a folder, but not of a run, an export or an advice")
        if is_named(text):
            return [_of_object(label or text, _made(text), rules, arrivals)]
        if text.endswith(".py"):
            raise ActionError(f"policy {text}: give the file and a name in it, {text}:NAME")
        return [_of_rule(label, text, rules, arrivals)]
    return [_of_object(label or type(entry).__name__, entry, rules, arrivals)]


def _of_rule(label: str, text: str, rules: DfaasRules, arrivals: str) -> Policy:
    try:
        rule = str(PlainRule.of(text))
    except UnknownNameError as error:
        if "/" in text:
            raise UnknownNameError(f"{text} is not the folder of a run, and {error}") from error
        names = [*BALANCERS, "local/equal", "backlog=0.75/least"]
        raise UnknownNameError.of("policy", text, names) from error
    from corral.loads.export.core import about_rule

    decider = RuleDecider(about_rule(about_rules(rules), rule, arrivals))
    return Policy(label or rule, decider=decider, replayed=rule)


def _of_run(label: str, run: Run, beyond: str | None) -> list[Policy]:
    (player,) = [player for player in players(run) if player.mode == "greedy"]
    name = label or f"{run.config.trainer}{run.suffix}"
    return [Policy(name, decider=decider_of(run, beyond), replayed=player)]


def _of_advice(
    label: str, folder: Path, rules: DfaasRules, arrivals: str, beyond: str | None
) -> list[Policy]:
    verdict = advised(folder)
    policies = [_of_rule("", verdict.rule, rules, arrivals)]
    if verdict.team is not None:
        policies += _of_run(label or "team", load_run(f"{verdict.team}@best"), beyond)
    return policies


def _made(text: str) -> Any:
    """Return the object that ``text`` makes. Raises ActionError for its exceptions."""
    make = named_object(text, "policy")
    try:
        return make()
    except Exception as error:
        raise ActionError(
            f"policy {text} cannot be made by calling it without arguments: "
            f"{type(error).__name__}: {error}"
        ) from error


def _of_object(label: str, policy: Any, rules: DfaasRules, arrivals: str) -> Policy:
    if isinstance(policy, RequestPolicy):
        return Policy(label, custom=policy)
    if isinstance(policy, PlanPolicy):
        decider = CustomDecider(about_rules(rules), policy, arrivals)
        return Policy(label, decider=decider, replayed=policy)
    raise ActionError(
        f"policy {label}: {type(policy).__name__} has neither choose(request) nor plan(view)"
    )


def _require_nodes(policy: Policy, rules: DfaasRules) -> None:
    if policy.decider is None:
        return
    nodes = policy.decider.nodes
    if nodes != rules.trace.nodes:
        raise ValueError(
            f"policy {policy.label} decides for the nodes {', '.join(nodes)}, but the load has "
            f"{', '.join(rules.trace.nodes)}"
        )
