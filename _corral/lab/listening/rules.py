"""All rules about what was heard, in one order."""

from __future__ import annotations

from collections.abc import Iterable

from corral.lab.doctor.causes import by_cause
from corral.lab.doctor.findings.finding import Finding
from corral.lab.listening import rules_rollouts, rules_updates
from corral.lab.listening.heard import Heard

__all__ = ["findings_of"]

RULES = (*rules_rollouts.RULES, *rules_updates.RULES)
"""From the root cause outwards: what is wrong in the data is wrong in the update, too."""


def findings_of(policies: Iterable[Heard]) -> tuple[Finding, ...]:
    """Return the findings about all policies, sorted by ``by_cause``."""
    findings: list[Finding] = []
    rank: dict[str, int] = {}
    for heard in policies:
        results = [*heard.traps, *(rule(heard) for rule in RULES)]
        for position, finding in enumerate(results):
            if finding is not None:
                findings.append(finding)
                rank[finding.cause] = min(position, rank.get(finding.cause, position))
    return by_cause(findings, rank)
