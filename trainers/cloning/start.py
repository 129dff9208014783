"""``--init``: start a run from another run's weights, with other settings or another trainer.

For each policy the actor is taken, and the critic if it fits; the optimizer is fresh. Policies are
matched by name. A policy with a new name starts from the policy that its agents had. If the other
policy was shared and had an input for the agent's identity, and the new policy plays one agent
without this input, the input is constant. It is then folded into the biases.
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

NETWORK = ("net_arch", "activation", "memory", "cnn_arch", "cnn_patch", "grid_arch", "model")
"""Settings that determine a network."""


@dataclass(frozen=True)
class Taken:
    """The origin of the weights of one policy."""

    policy: str
    source: str  # the policy of the other run
    actor: str  # "taken", with details if it was changed
    critic: str  # "taken", or "fresh: " and the reason
    value_norm: str

    def __str__(self) -> str:
        return (
            f"policy {self.policy} from {self.source}: actor {self.actor}, critic {self.critic}, "
            f"value normalizer {self.value_norm}, optimizer fresh"
        )


def start_from(
    learner: Trainer, init: str | Path | Run, env_config: EnvConfig, *, critic: bool = True
) -> tuple[dict[str, Any], list[Any], list[str]]:
    """Load the weights of another run into a trainer that has not started.

    ``env_config`` is the environment of the new run. ``critic=False`` leaves all critics fresh.
    Returns the entry for config.json, the data rows used to train these weights, and lines that
    describe the loaded weights.

    Raises ValueError for a trainer that is not in-house, and if rows used to train the other run
    are held out in ``env_config``; RunError for a run with other spaces or other networks; and the
    errors of ``load_run``. Nothing is changed if an error is raised.
    """
    if not isinstance(learner, OnPolicyTrainer):
        raise ValueError(
            f"trainer {learner.name} cannot start from another run: --init (init=) works with the "
            "in-house trainers, such as mappo, ippo and clone"
        )
    rules = learner.rules
    run = init
    if not isinstance(run, Run):
        run = load_run(run, None if rules.name in REGISTERED else rules)
    if run.at is not None and not run.at.strip("0") and run.config.init is None:
        raise RunError(f"{run.name} has its initial weights; pass {run.folder}@best or @latest")
    require_same_spaces(run, rules, "starts from it")
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
                f"{run.name} was trained by {run.config.trainer}, which has different networks. "
                "--init (init=) needs a run of an in-house trainer, such as mappo, ippo and clone. "
                f"Use corral clone {run.config.env_config.env} --from {run.name} to imitate its "
                "decisions"
            )
        plans.append((one, *_plan(run, learner, name, source, weights, critic)))
    for one, weights, taken in plans:
        one.load_state_dict({key: torch.from_numpy(a.copy()) for key, a in weights.items()})
        if one.start is not None:
            one.start.become(one)
        lines.append(str(taken))
    before, current = carried_by(run.config.env_config.rules()), carried_by(rules)
    if differ := [
        f"{k} {before.get(k)} (here {current[k]})" for k in current if current[k] != before.get(k)
    ]:
        lines.append(f"the meaning of observations and actions differs: {', '.join(differ)}")
    origin = {
        "run": str(run.folder.resolve()),
        "checkpoint": path.name,
        "digest": _digest(arrays),
        "policies": [asdict(taken) for _, _, taken in plans],
    }
    return origin, seen, [f"starts from {run.name}, {path.name}", *lines]


def _digest(arrays: Mapping[str, Mapping[str, Array]]) -> str:
    """Return the digest of the weights of a checkpoint, without its timestamps."""
    digest = hashlib.sha256()
    for file in sorted(name for name in arrays if name.startswith("policy_")):
        for key, values in sorted(arrays[file].items()):
            digest.update(f"{file} {key} {values.dtype} {values.shape} ".encode())
            digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def _source(run: Run, name: str, agents: tuple[str, ...]) -> str:
    """Return the policy of ``run`` that policy ``name`` starts from."""
    policies = run.config.policies
    learned = {policies[agent] for agent in policies if agent not in run.config.opponents}
    if name in learned:
        return name
    candidates = {policies[agent] for agent in agents} & learned
    if len(candidates) == 1:
        return candidates.pop()
    raise RunError(
        f"policy {name} plays {', '.join(agents)}, but in {run.name} "
        f"{', '.join(sorted(candidates)) or 'no policy'} played them. Use a policy name of "
        f"{', '.join(sorted(learned))}, or pass policies='separate'"
    )


def _plan(
    run: Run, learner: Any, name: str, source: str, stored: Mapping[str, Array], critic: bool
) -> tuple[dict[str, Array], Taken]:
    """Return the initial weights of a policy, and their description."""
    one = learner.learners[name]
    initial = arrays_of(one.state_dict())
    _require_same_network(run, learner.settings)
    identity = _identity_input(run, source, one.group)
    actor = {k: v for k, v in stored.items() if k.startswith("actor.") or k == "log_std"}
    kept = {k: v for k, v in stored.items() if k.startswith("critic.")}
    if identity is not None:
        widths = one.group.layout.width, learner.critic_input.size(one.group)[0]
        actor = _fold_identity(actor, "actor", widths[0], *identity)
        kept = _fold_identity(kept, "critic", widths[1], *identity)
    expected = {k: v for k, v in initial.items() if k.startswith("actor.") or k == "log_std"}
    if faults := _differences(expected, actor):
        before, current = run.config.settings.get("agent_id"), learner.settings.agent_id
        remedy = "Choose policies as in that run"
        if before is not None and before != current:
            remedy = f"That run has {_typed('agent_id', before)}: pass it, or leave it out"
        raise RunError(
            f"the networks of {run.name} differ from policy {name}: {'; '.join(faults)}. {remedy}"
        )
    fault = "requested" if not critic else _critic_mismatch(run, learner, initial, kept)
    norm = {k: v for k, v in stored.items() if k.startswith("value_norm.")}
    weights = {**initial, **actor}
    if not fault:
        weights |= {**kept, **norm}
    note = "taken" if identity is None else f"taken, agent input of {source} folded into biases"
    return weights, Taken(
        name, source, note, f"fresh: {fault}" if fault else "taken", "fresh" if fault else "taken"
    )


def _critic_mismatch(
    run: Run, learner: Any, initial: Mapping[str, Array], kept: Mapping[str, Array]
) -> str | None:
    """Return the reason why a critic does not fit; None if it fits."""
    observes = _observed_by_critic(run)
    if observes is not None and observes != learner.critic_input.kind:
        return f"it observes {learner.critic_input.kind!r}, the other critic {observes!r}"
    if learner.critic_input.kind.startswith("observations"):
        agents = [agent for group in learner.groups for agent in group.agents]
        policies = run.config.policies
        names = list(dict.fromkeys(policies.values()))
        source_agents = sorted(policies, key=lambda agent: names.index(policies[agent]))
        if set(policies) - set(run.config.opponents) != set(agents) or agents != source_agents:
            return "it observes the agents in a different order"
    expected = {k: v for k, v in initial.items() if k.startswith("critic.")}
    if faults := _differences(expected, kept):
        return faults[0]
    return None


def _observed_by_critic(run: Run) -> str | None:
    """Return the critic's input of a run; None if its trainer is not available."""
    with contextlib.suppress(ValueError, ImportError):
        algorithm = run.config.trainer_class().algorithm
        if algorithm is not None and algorithm.critic_input:
            return str(algorithm.critic_input)
    recorded = run.config.settings.get("critic_input")
    return None if recorded is None else str(recorded)


def _typed(key: str, value: Any) -> str:
    """Return a setting as a command line option: "--net-arch 64,64"."""
    option = key.replace("_", "-")
    if isinstance(value, bool):
        return f"--{option}" if value else f"--no-{option}"
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    return f"--{option} {'none' if value is None else value}"


def _require_same_network(run: Run, settings: Any) -> None:
    """Raise RunError if network settings differ; shapes do not show all differences."""
    recorded = run.config.settings
    differ = []
    for key in NETWORK:
        if not hasattr(settings, key) or key not in recorded:
            continue
        before, current = recorded[key], getattr(settings, key)
        if _typed(key, before) != _typed(key, current):
            differ.append((_typed(key, before), _typed(key, current)))
    if differ:
        raise RunError(
            f"{run.name} has a different network: "
            f"{'; '.join(f'{before} there, {current} here' for before, current in differ)}. Pass "
            f"{' '.join(before for before, _ in differ)}, or leave these settings out"
        )


def _differences(expected: Mapping[str, Array], source: Mapping[str, Array]) -> list[str]:
    """Describe the arrays that are missing, unexpected, or of another shape."""
    faults = [f"{key} is missing" for key in sorted(set(expected) - set(source))]
    faults += [f"{key} is unexpected" for key in sorted(set(source) - set(expected))]
    for key in sorted(set(expected) & set(source)):
        if expected[key].shape != source[key].shape:
            faults.append(f"{key} is {source[key].shape} there, {expected[key].shape} here")
    return faults


# --- Agent identities in a shared policy ---------------------------------------------------------


def _identity_input(run: Run, source: str, group: Any) -> tuple[int, int] | None:
    """Return the number of agents in the other policy's identity input, and the index of its agent.

    None if both policies have the same input, or if several agents play here.
    """
    agents = [agent for agent, policy in run.config.policies.items() if policy == source]
    count = len(agents) if run.config.settings.get("agent_id") and len(agents) > 1 else 0
    if not count or len(group.agents) > 1 or group.agents[0] not in agents:
        return None
    return count, agents.index(group.agents[0])


def _fold_identity(
    weights: Mapping[str, Array], network: str, width: int, count: int, at: int
) -> dict[str, Array]:
    """Fold identity ``at`` of ``count`` into the biases of the first layer; return the weights.

    Features are ordered as ``width`` vector entries, then identities, then image features.
    """
    layers = (f"{network}.layers.0", f"{network}.head")
    first = next((layer for layer in layers if f"{layer}.weight" in weights), None)
    if first is None or weights[f"{first}.weight"].shape[1] < width + count:
        return dict(weights)  # the comparison of shapes reports it
    matrix = weights[f"{first}.weight"]
    return {
        **weights,
        f"{first}.weight": np.delete(matrix, np.s_[width : width + count], axis=1),
        f"{first}.bias": weights[f"{first}.bias"] + matrix[:, width + at],
    }
