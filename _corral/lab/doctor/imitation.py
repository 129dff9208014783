"""Test whether a run's network can imitate a reference team, by supervised learning.

The best reference team is cloned in some updates, with the run's network settings and custom
model. If that works, the network is not the reason why the run does not learn. The amount of work
is fixed, so that the result does not depend on the machine.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from corral.clock import Clock
from corral.envs.core import Array, Rules
from corral.envs.policy import Policy
from corral.envs.reference import reference_team, team_names
from corral.errors import CorralError
from corral.trainers.capabilities import Seats
from corral.trainers.cloning.agreement import agreement, eval_seed
from corral.trainers.cloning.trainer import CHOICES, GIVEN, CloneSettings, taught_by
from corral.trainers.evaluation.episodes import play_episodes

__all__ = ["Imitation", "imitate"]

UPDATES = 12
"""Maximum number of updates of cloning. A second network, with corral's default settings, gets half
of them."""

ENOUGH = 0.97
"""Agreement at which learning stops early."""

NETWORK = (
    *("net_arch", "cnn_arch", "cnn_patch", "grid_arch", "activation"),
    *("memory", "agent_id", "device"),
)
"""Network settings of every in-house trainer."""

NO_BETTER = 0.05
"""Lead, as a share of decisions, that chance may give a network over one without observations."""

EPISODES = 16


@dataclass(frozen=True)
class Imitation:
    """Agreement of the run's network with a reference team, in held-out episodes.

    All numbers are shares of decisions: of the network, of a network that gets only the mask, and
    of corral's default network. ``default`` is None if the run's network beats the mask, so that
    the default network was not tried.
    """

    teacher: str
    share: float
    unseen: float
    default: float | None
    decisions: int  # number of decisions learned from
    seconds: float
    cut: bool = False  # learning ended early, for lack of time

    @property
    def learned(self) -> bool:
        """True if the network closes at least half of the gap between the mask alone and 1."""
        return self.share - self.unseen >= 0.5 * (1 - self.unseen)

    @property
    def blind(self) -> bool:
        """True if the network is no better than one without observations."""
        return self.share <= self.unseen + NO_BETTER


def imitate(
    config: Any,
    trainer: Any,
    *,
    seed: int = 0,
    updates: int = UPDATES,
    seconds: float = math.inf,
) -> Imitation:
    """Clone the best reference team with the network of a run's ``config``.

    Learning ends after ``seconds`` of CPU time; a network that has then not learned it may do so
    later, see ``Imitation.cut``.

    ``trainer`` is the run's untrained trainer. Raises ValueError if no reference team exists or the
    mask alone decides its actions, and UnsupportedSpaceError if decisions cannot be cloned.
    """
    began, clock = time.perf_counter(), Clock()
    rules, learners = trainer.rules, config.learners
    name, team = _best(rules, learners, seed)
    made = {} if config.own_model is None else {"model": config.own_model.make}
    network = {name: getattr(trainer.settings, name) for name in NETWORK}
    enough = functools.partial(_is_over, clock, seconds)
    share, unseen, decisions = _cloned(config, rules, team, network, made, seed, updates, enough)
    if unseen > 0.95:
        raise ValueError(f"{unseen:.0%} of the decisions of {name} follow from the mask alone")
    imitation = Imitation(name, share, unseen, None, decisions, 0.0)
    if imitation.blind:
        usual = {key: network[key] for key in ("agent_id", "device")}
        again = _cloned(config, rules, team, usual, {}, seed, updates // 2, enough)
        imitation = dataclasses.replace(imitation, default=again[0])
    return dataclasses.replace(imitation, seconds=time.perf_counter() - began, cut=enough())


def _is_over(clock: Clock, seconds: float) -> bool:
    return clock.seconds() > seconds


def _best(
    rules: Rules[Any], learners: tuple[str, ...], seed: int
) -> tuple[str, Mapping[str, Policy]]:
    """Return the reference team with the highest return of ``learners``.

    Rules with data play the training data: nothing is held out here.
    """
    columns = [rules.agents.index(agent) for agent in learners]
    best: tuple[float, str, Mapping[str, Policy]] | None = None
    for name in team_names(rules):
        if name == "random":
            continue
        try:
            team = reference_team(name, rules)
            episodes, _ = play_episodes(
                rules, team, dict.fromkeys(rules.agents, False), episodes=EPISODES, seed=seed
            )
        except (CorralError, ValueError):  # this team does not fit these rules
            continue
        earned = float(episodes.returns[:, columns].sum(axis=1).mean())
        if best is None or earned > best[0] + 1e-9:
            best = earned, name, team
    if best is None:
        raise ValueError("no reference team to imitate")
    return best[1], best[2]


def _cloned(
    config: Any,
    rules: Rules[Any],
    team: Mapping[str, Policy],
    network: Mapping[str, Any],
    made: Mapping[str, Any],
    seed: int,
    updates: int,
    enough: Callable[[], bool],
) -> tuple[float, float, int]:
    """Return a network's agreement with the team, that of the mask alone, and the decisions
    used."""
    kind = taught_by(team)
    learned = {a: name for a, name in config.policies.items() if a not in config.opponents}
    clone = kind(
        rules,
        CloneSettings(teacher=GIVEN, anneal=False, **network),
        seed=seed,
        policies=learned,
        policies_to_train=sorted(set(learned.values())),
        steps=10**9,  # no further comparison: the first update has one, and one follows below
        seats=Seats(config.opponents, config.opponent_runs),
        **made,
    )
    decisions, sure = 0, 0
    shown: list[list[tuple[Array, Array]]] = []
    try:
        for update in itertools.islice(clone.learn(), updates):
            agreements = [
                m for k, m in update.metrics.items() if k.rpartition("/")[2] == "agreement"
            ]
            groups = [group for group in clone.rollout.groups if CHOICES in group.extras]
            decisions += sum(int(group.acting[:-1].sum()) for group in groups)
            if not shown:
                shown = [_decisions(group) for group in groups]
            sure = sure + 1 if agreements and min(agreements) >= ENOUGH else 0
            if sure >= 2 or enough():
                break
        policies = {agent: clone.policies[agent] for agent in learned}
        plan: dict[str, Any] = {"episodes": EPISODES, "seed": eval_seed(seed, 1)}
        share = agreement(policies, team, rules, **plan).share
    finally:
        clone.close()
    return share, _without_looking([item for own in shown for item in own]), decisions


# --- Without observations ------------------------------------------------------------------------

MAX_DECISIONS, STEPS = 2_000, 150
"""Maximum number of decisions per agent, and of optimizer steps."""


def _decisions(buffer: Any) -> list[tuple[Array, Array]]:
    """Return the team's good actions and the masks for each agent of a group, bool [R, A] both."""
    choices, mask = buffer.extras[CHOICES], buffer.mask[:-1] != 0  # [T, B, P, A]
    acted = buffer.acting[:-1] & mask.any(axis=-1)
    own = [acted[..., j] for j in range(acted.shape[-1])]
    return [
        (choices[:, :, j][at][:MAX_DECISIONS], mask[:, :, j][at][:MAX_DECISIONS])
        for j, at in enumerate(own)
    ]


def _without_looking(shown: list[tuple[Array, Array]]) -> float:
    """Return the share of decisions that constant preferences per agent predict.

    Such a model knows only the mask.
    """
    agreed = total = 0.0
    for choices, mask in shown:
        if not len(choices):
            continue
        good, legal = torch.from_numpy(choices), torch.from_numpy(mask)
        logits = torch.zeros(mask.shape[1], requires_grad=True)
        optimizer = torch.optim.Adam([logits], lr=0.1)
        targets = good.float() / good.sum(dim=1, keepdim=True).clamp(min=1)
        for _ in range(STEPS):
            log_probs = logits.masked_fill(~legal, -1e9).log_softmax(dim=1)
            loss = -(targets * log_probs).sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        mode = logits.detach().masked_fill(~legal, -1e9).argmax(dim=1)
        agreed += float(good[torch.arange(len(good)), mode].float().sum())
        total += len(good)
    return agreed / max(total, 1.0)
