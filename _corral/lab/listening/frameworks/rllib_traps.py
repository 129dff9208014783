"""Checks for the known traps of RLlib (``traps.TRAPS``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.connectors.connector_pipeline_v2 import ConnectorPipelineV2
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.connectors.learner import GeneralAdvantageEstimation
from ray.rllib.core.learner.learner import Learner
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.env import INPUT_ENV_SINGLE_SPACES

from corral.envs.core import Array
from corral.lab.listening.frameworks.calls import has_method
from corral.lab.listening.frameworks.masks import mask_key
from corral.lab.listening.frameworks.traps import place_of, sprung, trap
from corral.lab.listening.heard import Heard, Minibatch, Place

__all__ = [
    "Module",
    "Played",
    "check_actions",
    "check_batch",
    "check_episodes",
    "check_module",
    "check_rewards",
    "environment",
    "played_of",
]

FORWARD = ("_forward_train", "_forward_exploration", "_forward")
"""Methods of an RLModule that may return advantages or logits."""

NEVER = 1e-6
"""A smaller probability is none: RLlib masks with the smallest float."""

CLIPPED = 0.5
"""Share of decisions whose value has no gradient, from which on it is a finding."""

REWARDS = 128
"""Decisions from which on their rewards are compared with those of the environment."""

DOMINATES = 100.0
"""Loss of the values divided by the size of the advantages, from which on it is a finding."""


TRUNCATED = 3
"""Truncated episodes from which on it counts if all of them are terminated, too."""


@dataclass(frozen=True)
class Played:
    """The play of an Algorithm, as far as checks of its learner need it."""

    env: Place | None  # step of the environment; None if it is not in this process
    masks: tuple[str, ...]  # name of the mask in the Dict observations of each agent
    filtered: bool  # with MeanStdFilter


def played_of(algo: Algorithm) -> Played:
    env = environment(algo)
    names = [mask_key(space.spaces) for space in _spaces(algo)]
    connectors = _connectors(algo.env_runner, "_env_to_module")
    return Played(
        None if env is None else place_of(type(env), "step"),
        tuple(name for name in names if name) if all(names) else (),
        any(isinstance(item, MeanStdFilter) for item in connectors),
    )


@dataclass
class Module:
    """An RLModule, with the objects that its checks need."""

    module_id: str
    rl_module: Any
    config: Any  # of this module
    played: Played
    learner: Learner
    heard: Heard
    trained: bool
    fragments: int = 0
    updates: int = 0
    truncated: int = 0  # fragments at a time limit
    both: int = 0  # of these, terminated ones

    @property
    def choices(self) -> list[int]:
        """Return the numbers of actions: one of a Discrete space, several of a MultiDiscrete."""
        space = self.rl_module.action_space
        if isinstance(space, spaces.Discrete):
            return [int(space.n)]
        return space.nvec.tolist() if isinstance(space, spaces.MultiDiscrete) else []

    @property
    def actions(self) -> int | None:
        """Return the number of columns of a mask; None without discrete actions."""
        return sum(self.choices) or None

    @property
    def on_policy(self) -> bool:
        """Return True if the loss is that of the policy that played, as PPO's."""
        return isinstance(self.learner, PPOTorchLearner) or _estimates(self.learner)

    def sprung(
        self,
        cause: str,
        measured: str,
        place: Place | None = None,
        todo: str = "",
        setting: str = "",
    ) -> None:
        """Add a trap to the records, once.

        ``setting``: the method of the AlgorithmConfig that sets the wrong value.
        """
        entry = trap("rllib", cause)
        if setting:
            place = Place(type(self.learner.config).__name__, setting)
        sprung(replace(entry, todo=todo or entry.todo), measured, self.heard, place)


def check_module(module: Module) -> None:
    """Check all that is known before training: classes, spaces and settings."""
    config, kind = module.learner.config, type(module.rl_module)
    heard = module.heard
    learner = type(module.learner)
    custom = not learner.compute_loss_for_module.__module__.startswith("ray.")
    heard.places["network"] = place_of(kind)
    heard.places["batch"] = (
        place_of(learner, "compute_loss_for_module") if custom else place_of(kind, *FORWARD)
    )
    heard.places["rollout"] = module.played.env or place_of(kind)
    if not module.trained:
        module.sprung(
            "untrained-module",
            f"policies_to_train leaves out {module.module_id!r}, an {kind.__name__}",
            setting="multi_agent",
        )
        return
    _check_apis(module)
    if config.explore is False:
        module.sprung("play-greedy", "explore=False", setting="env_runners")
    _check_connectors(module)
    for name in ("gamma", "lambda_"):
        wanted, used = getattr(module.config, name, None), getattr(config, name, None)
        if wanted != used and _estimates(module.learner):
            module.sprung(
                "ignored-gamma",
                f"{name}={wanted} for {module.module_id!r}, {used} in the estimator",
                setting="multi_agent",
            )
    space = module.rl_module.action_space
    if (
        isinstance(space, spaces.Box)
        and space.is_bounded()
        and not (config.normalize_actions or config.clip_actions)
    ):
        low, high = float(space.low.min()), float(space.high.max())
        module.sprung(
            "unbounded-actions",
            f"normalize_actions=False, clip_actions=False, bounds {low:.3g} to {high:.3g}",
            setting="environment",
        )


def check_episodes(module: Module, ends: Sequence[tuple[bool, bool]]) -> None:
    """Check the fragments of an update: (terminated, truncated) at the end of each."""
    module.updates += 1
    module.fragments += len(ends)
    module.truncated += sum(truncated for _, truncated in ends)
    module.both += sum(terminated and truncated for terminated, truncated in ends)
    # An episode may also reach its goal in the last step before the limit.
    if module.both == module.truncated >= TRUNCATED:
        module.sprung(
            "ignored-truncation",
            f"all {module.both} truncated episodes are terminated, too",
            module.played.env,
        )
    if module.trained and module.updates == 2 and not module.fragments:
        module.sprung(
            "unused-module",
            f"no step of any agent in {module.updates} updates for {module.module_id!r}",
            setting="multi_agent",
        )


def check_actions(module: Module, actions: Sequence[tuple[Array, Array]]) -> None:
    """Compare discrete actions of the batch with those that the environment got."""
    other = [not np.array_equal(sampled, played) for sampled, played in actions]
    if any(other):
        module.sprung(
            "actions-changed",
            f"{np.mean(other):.0%} of {len(other):,} decisions are played with another action",
            setting="env_runners",
        )


def check_batch(module: Module, minibatch: Minibatch) -> None:
    """Check a minibatch: masks, and the size of the values' loss."""
    _check_masks(module, minibatch)
    config = module.learner.config
    loss = type(module.learner).compute_loss_for_module
    custom = loss.__module__ != PPOTorchLearner.__module__
    if custom or minibatch.values is None or minibatch.returns is None or not config.use_critic:
        return
    errors = np.square(minibatch.values.astype(np.float64) - minibatch.returns)
    clipped = float(np.mean(errors > config.vf_clip_param))
    if clipped >= CLIPPED:
        module.sprung(
            "value-clipped",
            f"{clipped:.0%} of squared errors above vf_clip_param={config.vf_clip_param:g}; "
            f"median {np.median(errors):.3g}",
            setting="training",
        )
    if minibatch.advantages is not None and _shares_layers(module.rl_module):
        of_values = config.vf_loss_coeff * float(np.mean(np.minimum(errors, config.vf_clip_param)))
        size = float(np.mean(np.abs(minibatch.advantages)))
        if size > 0 and of_values > DOMINATES * size:
            module.sprung(
                "shared-layers",
                f"vf_share_layers=True; loss of the values {of_values:.3g}, advantages {size:.3g}",
                setting="rl_module",
            )


def check_rewards(module: Module, rewards: Sequence[Array], learned: Sequence[Array]) -> None:
    """Check if connectors of the learner change rewards [T] of episodes more than their scale."""
    of_env, in_batch = np.concatenate(rewards), np.concatenate(learned)
    if len(of_env) < REWARDS or np.ptp(of_env) == 0:
        return
    correlation = float(np.corrcoef(of_env, in_batch)[0, 1]) if np.ptp(in_batch) else 0.0
    if correlation > 0.5:
        return
    pairs = [(a, b) for a, b in zip(rewards, learned, strict=True) if len(a) > 1]
    later = np.mean([np.allclose(b[:-1], a[1:]) for a, b in pairs])
    earlier = np.mean([np.allclose(b[1:], a[:-1]) for a, b in pairs])
    if max(later, earlier) > 0.9:
        step = "after" if later > earlier else "before"
        measured = f"each decision gets the reward of the decision {step} it"
        module.sprung("reward-late", measured, setting="learners")
    else:
        measured = f"correlation with the rewards of the environment {correlation:.2f}"
        module.sprung("reward-changed", measured, setting="learners")


def _check_apis(module: Module) -> None:
    """Report APIs that the learner needs, and the RLModule does not implement."""
    kind = type(module.rl_module)
    needed: list[type] = module.learner.rl_module_required_apis()
    missing = [api.__name__ for api in needed if not isinstance(module.rl_module, api)]
    if "ValueFunctionAPI" not in missing:
        return
    measured = f"{kind.__name__} is no ValueFunctionAPI"
    if has_method(module.rl_module, "compute_values"):
        measured += "; compute_values alone is not enough"
    place = _returning_advantages(kind)
    if place.name:
        measured += f"; {kind.__name__}.{place.name} returns advantages, which RLlib keeps"
    bases = ", ".join(base.__name__ for base in kind.__bases__)
    remedy = trap("rllib", "zero-advantages").todo
    module.sprung(
        "zero-advantages",
        measured,
        place,
        todo=f"class {kind.__name__}({bases}, ValueFunctionAPI): {remedy}",
    )


def _returning_advantages(kind: type) -> Place:
    """Return the line of a forward method that returns advantages, or the place of the class."""
    for name in FORWARD:
        for text in ("ADVANTAGES", '"advantages"', "'advantages'"):
            place = place_of(kind, name, text=text)
            if place.name and place.line != place_of(kind, name).line:
                return place
    return place_of(kind)


def _check_connectors(module: Module) -> None:
    config, learner = module.learner.config, module.learner
    if config.add_default_connectors_to_learner_pipeline is False and not _estimates(learner):
        module.sprung(
            "no-default-connectors",
            "add_default_connectors_to_learner_pipeline=False",
            setting="learners",
        )
    off = [
        f"{name}={value!r}"
        for name in (
            "merge_env_runner_states",
            "use_worker_filter_stats",
            "update_worker_filter_stats",
        )
        if (value := getattr(config, name, True)) is False
    ]
    if module.played.filtered and off:
        module.sprung(
            "stale-normalizer", f"MeanStdFilter with {', '.join(off)}", setting="env_runners"
        )


def _check_masks(module: Module, minibatch: Minibatch) -> None:
    """Report masks that are not applied in the loss."""
    if minibatch.logits is None:
        return
    heads = np.split(minibatch.logits.astype(np.float64), np.cumsum(module.choices)[:-1], axis=-1)
    odds = [np.exp(head - head.max(axis=-1, keepdims=True)) for head in heads]
    chances = np.concatenate([item / item.sum(axis=-1, keepdims=True) for item in odds], axis=-1)
    place = place_of(type(module.rl_module), *FORWARD)
    if minibatch.mask is not None:
        illegal = np.where(minibatch.mask, 0.0, chances).sum(axis=-1)
        if illegal.max() > NEVER:
            module.sprung(
                "mask-ignored-in-play",
                f"illegal actions have a probability of {illegal.mean():.3g} on average, "
                f"{illegal.max():.3g} at most",
                place,
            )
        return
    space = module.rl_module.observation_space
    if module.played.masks and chances.min() > NEVER and not isinstance(space, spaces.Dict):
        module.sprung(
            "mask-lost",
            f"the environment observes {module.played.masks[0]!r}, the RLModule {space}; no action "
            "has a probability of 0",
            place,
        )


def _spaces(algo: Algorithm) -> Iterator[spaces.Dict]:
    """Yield the Dict observation spaces of the environment, one for each agent."""
    runner = algo.env_runner
    if runner is None:
        return
    space = runner.get_spaces().get(INPUT_ENV_SINGLE_SPACES, (None,))[0]
    agents = list(space.values()) if isinstance(space, dict | spaces.Dict) else []
    if isinstance(space, spaces.Dict) and not algo.config.is_multi_agent:
        yield space
    elif agents and all(isinstance(agent, spaces.Dict) for agent in agents):
        yield from agents


def environment(algo: Algorithm) -> Any:
    """Return an environment of the user in this process, or None."""
    env = None if algo.env_runner is None else vars(algo.env_runner).get("env")
    if env is None:
        return None
    envs = vars(_unwrapped(env)).get("envs")
    return _unwrapped(envs[0] if envs else env)


def _unwrapped(env: Any) -> Any:
    try:
        return env.unwrapped
    except AttributeError:  # in an EnvRunner of the user
        return env


def _estimates(learner: Learner) -> bool:
    """Return True if a connector of the learner estimates advantages."""
    connectors = _connectors(learner, "_learner_connector")
    return any(isinstance(item, GeneralAdvantageEstimation) for item in connectors)


def _connectors(owner: Any, name: str) -> Sequence[Any]:
    """Return the connectors of a pipeline of an EnvRunner or Learner."""
    pipeline = None if owner is None else vars(owner).get(name)
    return pipeline.connectors if isinstance(pipeline, ConnectorPipelineV2) else ()


def _shares_layers(rl_module: Any) -> bool:
    settings = vars(rl_module).get("model_config")
    if isinstance(settings, DefaultModelConfig):
        shares = settings.vf_share_layers
    else:
        shares = isinstance(settings, dict) and settings.get("vf_share_layers")
    children = dict(rl_module.named_children()) if isinstance(rl_module, torch.nn.Module) else {}
    return bool(shares) and "encoder" in children
