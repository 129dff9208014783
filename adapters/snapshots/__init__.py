"""Snapshots of third-party environments: copies of a running game that play on independently.

    rules = snapshot_rules(zoo_rules(make_env))
    print(rules.copied.text())

``snapshot_rules`` returns rules with states that can be copied, as those of corral's environments.
The doctor, ``corral check --learnable`` and policy iteration look ahead from such copies.
"""

from corral.adapters.snapshots.games import SnapshotError
from corral.adapters.snapshots.proof import Copied
from corral.adapters.snapshots.rules import SnapshotBatch, SnapshotRules, copyable, snapshot_rules

__all__ = [
    "Copied",
    "SnapshotBatch",
    "SnapshotError",
    "SnapshotRules",
    "copyable",
    "snapshot_rules",
]
