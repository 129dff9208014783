"""All rules about recorded data, in one order."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection
from dataclasses import replace

import numpy as np

from corral.lab.doctor.causes import by_cause
from corral.lab.doctor.findings.finding import Finding
from corral.lab.listening import (
    rules_replay,
    rules_rollouts,
    rules_rows,
    rules_shapes,
    rules_updates,
)
from corral.lab.listening.frameworks.traps import remedied
from corral.lab.listening.heard import Heard

__all__ = ["findings_of"]

RULES = (
    *rules_rollouts.RULES,
    *rules_replay.RULES,
    *rules_rows.RULES,
    *rules_shapes.RULES,
    *rules_updates.RULES,
)
"""From the root cause outwards: what is wrong in the data is wrong in the update, too."""

OF_ROLLOUTS = len(rules_rollouts.RULES)


def findings_of(policies: Collection[Heard]) -> tuple[Finding, ...]:
    """Return the findings about all policies, sorted by ``by_cause``."""
    findings: list[Finding] = []
    rank: dict[str, int] = {}
    single = len(policies) == 1
    for heard in policies:
        results = [*heard.traps, *(_applied(rule, heard) for rule in RULES)]
        for position, finding in enumerate(results):
            if finding is not None:
                finding = remedied(finding, heard.framework)
                placed = _placed(finding, heard, position < OF_ROLLOUTS + len(heard.traps))
                findings.append(replace(placed, policy="") if single else placed)
                rank[finding.cause] = min(position, rank.get(finding.cause, position))
    return by_cause(findings, rank)


def _applied(rule: Callable[[Heard], Finding | None], heard: Heard) -> Finding | None:
    """Apply a rule. Its exception must not stop the user's training: the report names it."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return rule(heard)
    except Exception as error:  # from numbers of an unknown form
        heard.failed[rule.__name__] = f"{type(error).__name__}: {error}"
        return None


def _placed(finding: Finding, heard: Heard, of_rollout: bool) -> Finding:
    """Add the place in the user's code that the listener knows for a finding."""
    if finding.place:
        return finding
    network = finding.cause in OF_NETWORK
    names = (finding.cause, "network" if network else "rollout" if of_rollout else "batch")
    place = next((heard.places[name] for name in names if name in heard.places), "")
    return replace(finding, place=str(place))


OF_NETWORK = ("dead-layer", "no-gradient", "frozen-weights", "units-alike", "softmax-twice")
"""Causes that lie in the network."""
