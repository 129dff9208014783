"""``--init``: a run that starts from another run's weights, by other settings or another trainer.

Of each policy the actor is taken, and the critic where it fits; the optimizer is fresh. Policies
are matched by name; a policy of another name starts from the one that its agents had. Where the
other one was told which of its agents an observation is of, and this one is not (a shared policy
that separate ones start from), that input is a constant here: it goes into the biases.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from corral.envs.core import Array, carried_by
from corral.envs.registry import REGISTERED
from corral.errors import RunError
from corral.trainers.base import Trainer
from corral.trainers.cloning.teachers import require_same_spaces
from corral.trainers.on_policy.saving import arrays_of
from corral.trainers.on_policy.trainer import OnPolicyTrainer
from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.run import Run, load_run
from corral.trainers.runs.seen import seen_before

__all__ = ["Taken", "start_from"]

NETWORK = ("net_arch", "activation", "memory", "cnn_arch", "cnn_patch", "model")
"""Settings that a network is made by."""


@dataclass(frozen=True)
class Taken:
    """What one policy starts from."""

    policy: str
    source: str  # the policy of the other run
    actor: str  # "taken", and how where it is not plain
    critic: str  # "taken", or "fresh: " and why
    value_norm: str

    def __str__(self) -> str:
        return (
            f"policy {self.policy} from {self.source}: actor {self.actor}, critic {self.critic}, "
            f"value normalizer {self.value_norm}, optimizer fresh"
        )


def start_from(
    learner: Trainer, init: str | Path | Run, env_config: EnvConfig, *, critic: bool = True
) -> tuple[dict[str, Any], list[Any], list[str]]:
    """Give a trainer that has not begun the weights of another run.

    Returns what config.json says of it, the rows that those weights have seen, and lines that say
    what was taken and what not.
    ``env_config`` is that of the new run; ``critic=False`` leaves all critics fresh.

    Raises ValueError for a trainer that is not in house, and where rows that the other run has seen
    are held out in ``env_config``; RunError for a run of other spaces or other networks: before
    anything changes. And what ``load_run`` raises.
    """
    if not isinstance(learner, OnPolicyTrainer):
        raise ValueError(
            f"trainer {learner.name} starts from nothing: --init (init=) is for the trainers in "
            "house, such as mappo, ippo and clone"
        )
    rules = learner.rules
    run = init
    if not isinstance(run, Run):
        run = load_run(run, None if rules.name in REGISTERED else rules)
    if run.at is not None and not run.at.strip("0") and run.config.init is None:
        raise RunError(f"{run.name} has learned nothing yet; give {run.folder}@best or @latest")
    require_same_spaces(run, rules, "starts from")
    seen = seen_before(env_config, run)
    path = run.checkpoint()
    arrays = run.content(run.at or "latest").arrays
    lines: list[str] = []
    plans = []
    for name, one in learner.learners.items():
        source = _source(run, name, one.group.agents)
        weights = arrays.get(f"policy_{source}", {})
        if not any(key.startswith("actor.") for key in weights):
            raise RunError(
                f"{run.name} was trained by {run.config.trainer}, whose networks are other ones: "
                "--init (init=) takes runs of the trainers in house, such as mappo, ippo and "
                f"clone. corral clone {run.config.env_config.env} --from {run.name} learns what "
                "it does"
            )
        plans.append((one, *_plan(run, learner, name, source, weights, critic)))
    for one, weights, said in plans:
        one.load_state_dict({key: torch.from_numpy(a.copy()) for key, a in weights.items()})
        if one.start is not None:
            one.start.become(one)
        lines.append(str(said))
    before, here = carried_by(run.config.env_config.rules()), carried_by(rules)
    if differ := [
        f"{k} {before.get(k)} (here {here[k]})" for k in here if here[k] != before.get(k)
    ]:
        lines.append(f"what observations and actions mean differs: {', '.join(differ)}")
    origin = {
        "run": str(run.folder.resolve()),
        "checkpoint": path.name,
        "digest": _digest(arrays),
        "policies": [asdict(said) for _, _, said in plans],
    }
    return origin, seen, [f"starts from {run.name}, {path.name}", *lines]


def _digest(arrays: Mapping[str, Mapping[str, Array]]) -> str:
    """Return the digest of the weights of a checkpoint: its clocks do not count."""
    digest = hashlib.sha256()
    for file in sorted(name for name in arrays if name.startswith("policy_")):
        for key, values in sorted(arrays[file].items()):
            digest.update(f"{file} {key} {values.dtype} {values.shape} ".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def _source(run: Run, name: str, agents: tuple[str, ...]) -> str:
    """Return the policy of ``run`` that policy ``name`` starts from."""
    theirs = run.config.policies
    learned = {theirs[agent] for agent in theirs if agent not in run.config.opponents}
    if name in learned:
        return name
    own = {theirs[agent] for agent in agents} & learned
    if len(own) == 1:
        return own.pop()
    raise RunError(
        f"policy {name} plays {', '.join(agents)}, which {', '.join(sorted(own)) or 'no policy'} "
        f"of {run.name} played: name a policy like one of {', '.join(sorted(learned))}, or give "
        "policies='separate'"
    )


def _plan(
    run: Run, learner: Any, name: str, source: str, given: Mapping[str, Array], critic: bool
) -> tuple[dict[str, Array], Taken]:
    """Return all weights of a policy as it starts, and what is said of them."""
    one = learner.learners[name]
    own = arrays_of(one.state_dict())
    _require_alike(run, learner.settings)
    told = _told(run, source, one.group)
    actor = {k: v for k, v in given.items() if k.startswith("actor.") or k == "log_std"}
    kept = {k: v for k, v in given.items() if k.startswith("critic.")}
    if told is not None:
        widths = one.group.layout.width, learner.critic_input.size(one.group)[0]
        actor = _folded(actor, "actor", widths[0], *told)
        kept = _folded(kept, "critic", widths[1], *told)
    expected = {k: v for k, v in own.items() if k.startswith("actor.") or k == "log_std"}
    if faults := _differences(expected, actor):
        before, here = run.config.settings.get("agent_id"), learner.settings.agent_id
        remedy = "Give policies as it has them"
        if before is not None and before != here:
            remedy = f"It has {_typed('agent_id', before)}: give that, or leave it out"
        raise RunError(
            f"{run.name} has other networks than policy {name} here: {'; '.join(faults)}. {remedy}"
        )
    why = "asked for" if not critic else _misfit(run, learner, own, kept)
    norm = {k: v for k, v in given.items() if k.startswith("value_norm.")}
    weights = {**own, **actor}
    if not why:
        weights |= {**kept, **norm}
    said = "taken" if told is None else f"taken, {source}'s input of agents folded into biases"
    return weights, Taken(
        name, source, said, f"fresh: {why}" if why else "taken", "fresh" if why else "taken"
    )


def _misfit(
    run: Run, learner: Any, own: Mapping[str, Array], kept: Mapping[str, Array]
) -> str | None:
    """Return why a critic is not taken; None where it fits."""
    observes = _observed_by_critic(run)
    if observes is not None and observes != learner.critic_input.kind:
        return f"it observes {learner.critic_input.kind!r}, the other {observes!r}"
    if learner.critic_input.kind.startswith("observations"):
        here = [agent for group in learner.groups for agent in group.agents]
        theirs = run.config.policies
        names = list(dict.fromkeys(theirs.values()))
        there = sorted(theirs, key=lambda agent: names.index(theirs[agent]))
        if set(theirs) - set(run.config.opponents) != set(here) or here != there:
            return "it observes the agents in another order"
    expected = {k: v for k, v in own.items() if k.startswith("critic.")}
    if faults := _differences(expected, kept):
        return faults[0]
    return None


def _observed_by_critic(run: Run) -> str | None:
    """Return the critic's input of a run; None where its trainer is not at hand to tell."""
    with contextlib.suppress(ValueError, ImportError):
        algorithm = run.config.trainer_class().algorithm
        if algorithm is not None and algorithm.critic_input:
            return str(algorithm.critic_input)
    found = run.config.settings.get("critic_input")
    return None if found is None else str(found)


def _typed(key: str, value: Any) -> str:
    """Return a setting as it is typed: "--net-arch 64,64"."""
    option = key.replace("_", "-")
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    return f"--{option} {'none' if value is None else value}"


def _require_alike(run: Run, settings: Any) -> None:
    """Raise RunError where networks are made by other settings: shapes do not tell of them all."""
    theirs = run.config.settings
    differ = []
    for key in NETWORK:
        if not hasattr(settings, key) or key not in theirs:
            continue
        before, here = theirs[key], getattr(settings, key)
        if _typed(key, before) != _typed(key, here):
            differ.append((_typed(key, before), _typed(key, here)))
    if differ:
        raise RunError(
            f"{run.name} has other networks: "
            f"{'; '.join(f'{before} there, {here} here' for before, here in differ)}. Give what it "
            f"has, {' '.join(before for before, _ in differ)}, or leave them out"
        )


def _differences(expected: Mapping[str, Array], given: Mapping[str, Array]) -> list[str]:
    """Return in words which arrays are missing, too many, or of another shape."""
    found = [f"{key} is missing" for key in sorted(set(expected) - set(given))]
    found += [f"{key} is too many" for key in sorted(set(given) - set(expected))]
    for key in sorted(set(expected) & set(given)):
        if expected[key].shape != given[key].shape:
            found.append(f"{key} is {given[key].shape} there, {expected[key].shape} here")
    return found


# --- Agents that a shared policy was told of -----------------------------------------------------


def _told(run: Run, source: str, group: Any) -> tuple[int, int] | None:
    """Return how many agents the other policy was told of, and which of them plays here; None where
    both are told alike, or several play here."""
    theirs = [agent for agent, policy in run.config.policies.items() if policy == source]
    told = len(theirs) if run.config.settings.get("agent_id") and len(theirs) > 1 else 0
    if not told or len(group.agents) > 1 or group.agents[0] not in theirs:
        return None
    return told, theirs.index(group.agents[0])


def _folded(
    weights: Mapping[str, Array], network: str, width: int, told: int, at: int
) -> dict[str, Array]:
    """Return weights in which identity ``at`` of ``told`` is part of the first layer's biases.

    Features begin with ``width`` numbers of a vector, then come identities, and images.
    """
    layers = (f"{network}.layers.0", f"{network}.head")
    first = next((each for each in layers if f"{each}.weight" in weights), None)
    if first is None or weights[f"{first}.weight"].shape[1] < width + told:
        return dict(weights)  # shapes will tell
    matrix = weights[f"{first}.weight"]
    return {
        **weights,
        f"{first}.weight": np.delete(matrix, np.s_[width : width + told], axis=1),
        f"{first}.bias": weights[f"{first}.bias"] + matrix[:, width + at],
    }
