"""Known traps of frameworks, as data: settings and classes with which nothing is learned.

A listener checks them, and adds findings to ``Heard.traps``.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from tokenize import TokenError
from typing import Any

from corral.lab.doctor.findings.finding import Finding
from corral.lab.listening.heard import Heard, Place

__all__ = ["SETTINGS", "TRAPS", "Trap", "place_of", "remedied", "sprung", "trap"]


@dataclass(frozen=True)
class Trap:
    """A known trap of a framework."""

    framework: str  # as Heard.framework
    cause: str  # a slug, as in Finding
    title: str
    expected: str
    todo: str
    certainty: int  # of a finding: 3 certain, 2 most likely, 1 worth a look
    source_url: str  # documentation, issue or thread that describes it


def trap(framework: str, cause: str) -> Trap:
    """Return a known trap. Raises KeyError for an unknown one."""
    return TRAPS[framework, cause]


def sprung(entry: Trap, measured: str, heard: Heard, place: Place | None = None) -> Finding:
    """Add a trap to the records of a policy, once, with its place in the user's code."""
    for finding in heard.traps:
        if finding.cause == entry.cause:
            return finding
    finding = Finding(
        entry.cause,
        entry.title,
        measured,
        entry.expected,
        f"{entry.todo} ({entry.source_url})",
        entry.certainty,
        heard.policy,
        place="" if place is None else str(place),
    )
    heard.traps.append(finding)
    return finding


def remedied(finding: Finding, framework: str) -> Finding:
    """Return a finding of a rule with the remedy in the words of a framework, as far as known."""
    entry = TRAPS.get((framework, finding.cause))
    if entry is not None:
        has_source = entry.source_url in finding.todo
        return (
            finding if has_source else replace(finding, todo=f"{entry.todo} ({entry.source_url})")
        )
    if framework == "corral":
        return finding
    names = SETTINGS.get(framework, {})
    todo = re.sub(
        r"\w+", lambda word: names.get(word[0], word[0]), _OF_CORRAL.sub("", finding.todo)
    )
    return replace(finding, todo=todo)


_OF_CORRAL = re.compile(r" \(\w+='[^)]*\)|; --[^;]*")
"""Values and options of ``corral train``."""

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "rllib": {
        "clip_range": "clip_param",
        "clip_range_vf": "vf_clip_param",
        "ent_coef": "entropy_coeff",
        "gae_lambda": "lambda_",
        "learning_rate": "lr",
        "max_grad_norm": "grad_clip",
    },
    "torchrl": {
        "clip_range": "clip_epsilon",
        "clip_range_vf": "clip_value",
        "ent_coef": "entropy_coeff",
        "gae_lambda": "lmbda",
        "learning_rate": "lr",
    },
    "tianshou": {"clip_range": "eps_clip", "clip_range_vf": "value_clip", "learning_rate": "lr"},
}
"""Framework -> setting of corral and Stable-Baselines3 -> the framework's name of it."""


def place_of(kind: type, *names: str, text: str = "") -> Place:
    """Return the place of the first method that the user wrote, or else of the class.

    With ``text``: the first line of the method that contains it.
    """
    for name in names:
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        if owner is not None:
            file, line = _source(inspect.unwrap(vars(owner)[name]), text)
            if file and "site-packages" not in file:
                return Place(kind.__name__, name, file, line)
    file, line = _source(kind, text)
    return Place(kind.__name__) if "site-packages" in file else Place(kind.__name__, "", file, line)


def _source(item: Any, text: str) -> tuple[str, int | None]:
    """Return file and line of a class or function; ("", None) if it has no source."""
    try:
        lines, first = inspect.getsourcelines(item)
        file = inspect.getsourcefile(item) or ""
    except (OSError, TypeError, SyntaxError, TokenError):  # or the file was changed meanwhile
        return "", None
    at = next((number for number, line in enumerate(lines) if text and text in line), 0)
    return os.path.relpath(file) if file.startswith(os.getcwd()) else file, first + at


RAY = "https://github.com/ray-project/ray"
RAY_DOCS = "https://docs.ray.io/en/latest/rllib"
SB3 = "https://github.com/DLR-RM/stable-baselines3"
SB3_CONTRIB = "https://github.com/Stable-Baselines-Team/stable-baselines3-contrib"
SB3_DOCS = "https://stable-baselines3.readthedocs.io/en/master"
TIANSHOU = "https://github.com/thu-ml/tianshou"

_ALL = (
    # --- RLlib ----------------------------------------------------------------------------------
    Trap(
        "rllib",
        "zero-advantages",
        "RLlib computes no advantages for this RLModule: the actor learns nothing.",
        "an RLModule that implements the APIs that the learner needs, so that RLlib computes "
        "advantages and value targets from the rewards",
        "inherit ValueFunctionAPI (ray.rllib.core.rl_module.apis), define compute_values(batch, "
        "embeddings=None) that returns values [B], and return no advantages from _forward",
        3,
        f"{RAY}/issues/58042",
    ),
    Trap(
        "rllib",
        "old-stack",
        "The old API stack trains: an RLModule and a ConnectorV2 are not used.",
        "enable_rl_module_and_learner=True and enable_env_runner_and_connector_v2=True",
        "call config.api_stack(enable_rl_module_and_learner=True, "
        "enable_env_runner_and_connector_v2=True)",
        2,
        "https://docs.ray.io/en/master/rllib/new-api-stack-migration-guide.html",
    ),
    Trap(
        "rllib",
        "remote-learners",
        "Learners in other processes are not heard.",
        "one learner, in this process or in one that can import corral",
        "to hear everything, set config.learners(num_learners=0) for a short run",
        1,
        f"{RAY_DOCS}/package_ref/algorithm-config.html",
    ),
    Trap(
        "rllib",
        "mask-lost",
        "The action mask of the environment does not reach the RLModule as a mask.",
        "an RLModule whose observation is a Dict with the mask",
        "remove FlattenObservations from env_to_module_connector, or flatten only the rest of the "
        "observation; mask the logits in _forward, as ActionMaskingTorchRLModule does",
        3,
        f"{RAY}/issues/44452",
    ),
    Trap(
        "rllib",
        "mask-ignored-in-play",
        "The RLModule gives illegal actions a probability.",
        "probability 0 for illegal actions, when playing and in the loss",
        "set the logits of illegal actions to FLOAT_MIN in _forward (or in _forward_exploration, "
        "_forward_inference and _forward_train), as ActionMaskingTorchRLModule does",
        3,
        f"{RAY}/pull/46146",
    ),
    Trap(
        "rllib",
        "ignored-truncation",
        "A time limit counts as a termination: the value of the last state is taken as 0.",
        "a truncated agent that is not terminated, too",
        "MultiAgentEpisode sets is_terminated if all agents end in one step, also if they are "
        "truncated: return {'__all__': True} alone in truncateds, or clear is_terminated of these "
        "agents' episodes in a learner connector before AddOneTsToEpisodesAndTruncate",
        3,
        f"{RAY}/pull/40263",
    ),
    Trap(
        "rllib",
        "untrained-module",
        "policies_to_train leaves out an RLModule that plays.",
        "all modules in policies_to_train, unless this one is a fixed opponent",
        "add it to config.multi_agent(policies_to_train=...)",
        1,
        f"{RAY_DOCS}/package_ref/algorithm-config.html",
    ),
    Trap(
        "rllib",
        "unused-module",
        "An RLModule gets no data: policy_mapping_fn maps no agent to it.",
        "data of at least one agent",
        "check config.multi_agent(policy_mapping_fn=...): its return values must be the names in "
        "policies",
        1,
        f"{RAY_DOCS}/package_ref/algorithm-config.html",
    ),
    Trap(
        "rllib",
        "ignored-gamma",
        "A module has its own gamma or lambda_, and RLlib computes advantages without it.",
        "the same gamma and lambda_ for all modules",
        "set config.training(gamma=..., lambda_=...): GeneralAdvantageEstimation ignores those of "
        "algorithm_config_overrides_per_module",
        3,
        f"{RAY}/blob/master/rllib/algorithms/ppo/ppo_learner.py",
    ),
    Trap(
        "rllib",
        "value-clipped",
        "vf_clip_param clips the loss of the values: they get no gradient.",
        "a squared error of the values below vf_clip_param",
        "set config.training(vf_clip_param=float('inf')), or scale the rewards",
        3,
        f"{RAY}/issues/8908",
    ),
    Trap(
        "rllib",
        "agent-cut-off",
        "The end of another agent ends the episode: this agent never ends by itself.",
        "'__all__' is True only if all agents have ended",
        "return {'__all__': True} in terminateds when the last agent has ended",
        1,
        f"{RAY_DOCS}/multi-agent-envs.html",
    ),
    Trap(
        "rllib",
        "observation-of-another",
        "Agents of two policies get the same observation in every step.",
        "each agent's own observation, unless they share one on purpose",
        "index observations by the agent's name, and return a new array for each agent",
        1,
        f"{RAY_DOCS}/multi-agent-envs.html",
    ),
    Trap(
        "rllib",
        "reward-late",
        "Connectors of the learner move rewards to other decisions.",
        "the reward that the environment returned for the decision",
        "reward t of an episode belongs to observation t and action t: remove the connector that "
        "moves rewards in config.learners(learner_connector=...)",
        3,
        f"{RAY_DOCS}/single-agent-episode.html",
    ),
    Trap(
        "rllib",
        "reward-changed",
        "Connectors of the learner replace the rewards of the environment.",
        "rewards that rise with those of the environment",
        "check the connectors in config.learners(learner_connector=...), unless they add a bonus "
        "on purpose",
        1,
        f"{RAY_DOCS}/single-agent-episode.html",
    ),
    Trap(
        "rllib",
        "actions-changed",
        "The environment gets other actions than the ones stored for learning.",
        "equal values in Columns.ACTIONS and Columns.ACTIONS_FOR_ENV for discrete actions",
        "a connector in config.env_runners(module_to_env_connector=...) that replaces actions must "
        "also write Columns.ACTIONS, or use an action mask instead",
        2,
        f"{RAY_DOCS}/connector-v2.html",
    ),
    Trap(
        "rllib",
        "play-greedy",
        "The env runners play without exploration: explore=False.",
        "sampled actions while training",
        "set config.env_runners(explore=True); for evaluation alone use "
        "config.evaluation(evaluation_config={'explore': False})",
        3,
        f"{RAY_DOCS}/package_ref/algorithm-config.html",
    ),
    Trap(
        "rllib",
        "unbounded-actions",
        "Actions outside of the bounds of the action space reach the environment.",
        "normalize_actions=True or clip_actions=True for a bounded Box",
        "set config.environment(normalize_actions=True)",
        1,
        f"{RAY_DOCS}/package_ref/doc/"
        "ray.rllib.algorithms.algorithm_config.AlgorithmConfig.environment.html",
    ),
    Trap(
        "rllib",
        "no-default-connectors",
        "The learner's default connectors are off: RLlib computes no bootstrap values.",
        "add_default_connectors_to_learner_pipeline=True",
        "set config.learners(add_default_connectors_to_learner_pipeline=True), or add "
        "AddOneTsToEpisodesAndTruncate and GeneralAdvantageEstimation yourself",
        1,
        f"{RAY_DOCS}/package_ref/algorithm-config.html",
    ),
    Trap(
        "rllib",
        "stale-normalizer",
        "The statistics of MeanStdFilter differ between env runners.",
        "merged statistics in all env runners, also in those of the evaluation",
        "leave merge_env_runner_states, use_worker_filter_stats and update_worker_filter_stats as "
        "they are by default; restore with a version of Ray after 2.48",
        1,
        f"{RAY}/issues/54408",
    ),
    Trap(
        "rllib",
        "shared-layers",
        "The loss of the values dominates the layers that actor and critic share.",
        "a loss of the values of about the size of the policy's loss",
        "set vf_share_layers=False in DefaultModelConfig, lower vf_loss_coeff, or scale the "
        "rewards",
        1,
        "https://docs.ray.io/en/latest/_modules/ray/rllib/algorithms/ppo/ppo.html",
    ),
    # --- Stable-Baselines3, sb3-contrib ----------------------------------------------------------
    Trap(
        "sb3",
        "mask-lost",
        "PPO does not apply the action mask of the environment.",
        "MaskablePPO for an environment with action_masks",
        "train with sb3_contrib.MaskablePPO; a mask in a Dict observation is only an input there: "
        "return it from the environment's action_masks(), too",
        3,
        f"{SB3}/issues/269",
    ),
    Trap(
        "sb3",
        "ignored-truncation",
        "A time limit counts as a termination: the value of the last state is taken as 0.",
        'infos with "TimeLimit.truncated" at time limits',
        "return truncated=True from step (gymnasium), or wrap the environment in "
        'TimeLimit; a VecEnv of your own must set infos[i]["TimeLimit.truncated"] and '
        'infos[i]["terminal_observation"]',
        2,
        f"{SB3}/issues/633",
    ),
    Trap(
        "sb3",
        "unscaled-actions",
        "The action space is not symmetric around 0 with bound 1: the Gaussian policy rarely "
        "reaches its ends.",
        "Box(-1, 1)",
        "wrap the environment in gymnasium.wrappers.RescaleAction(env, -1, 1)",
        2,
        f"{SB3_DOCS}/guide/rl_tips.html",
    ),
    Trap(
        "sb3",
        "observation-changed",
        "The buffer holds other observations than those of the decisions.",
        "a copy of every observation, as it was when the policy decided",
        "return a new array from step() and reset() (obs.copy()), also from a VecEnv of your own; "
        "store copies in a buffer of your own",
        3,
        f"{SB3_DOCS}/guide/vec_envs.html",
    ),
    Trap(
        "sb3",
        "reward-changed",
        "The buffer holds other rewards than the environment returned.",
        "the rewards of the environment, plus gamma V(final observation) at time limits",
        "look for a callback or a buffer of your own that changes rewards in place; wrap the "
        "environment instead, or use VecNormalize",
        3,
        f"{SB3_DOCS}/guide/callbacks.html",
    ),
    Trap(
        "sb3",
        "never-learns",
        "The training ends before learning starts.",
        "learning_starts far below the planned env steps",
        "lower learning_starts, or raise total_timesteps",
        3,
        f"{SB3_DOCS}/modules/dqn.html",
    ),
    Trap(
        "sb3",
        "target-network-fixed",
        "The target network never changes: values are learned from those of the untrained network.",
        "several updates of the target network in a training",
        "lower target_update_interval; its unit is env steps",
        2,
        f"{SB3_DOCS}/modules/dqn.html",
    ),
    Trap(
        "sb3",
        "actions-clipped",
        "Most actions are outside of the action space: all of these become the same bound.",
        "most sampled actions within the bounds",
        "lower log_std_init (0 is a deviation of 1), and scale the action space to Box(-1, 1)",
        2,
        f"{SB3_DOCS}/guide/rl_tips.html",
    ),
    Trap(
        "sb3",
        "updates-cut-short",
        "target_kl ends each update after a few minibatches.",
        "most of the n_epochs in most updates",
        "raise target_kl (0.01 to 0.05), or lower learning_rate",
        2,
        f"{SB3_DOCS}/modules/ppo.html",
    ),
    # --- Tianshou --------------------------------------------------------------------------------
    Trap(
        "tianshou",
        "play-greedy",
        "The policy samples no actions while training.",
        "sampled actions while training; deterministic ones only in evaluation",
        "Tianshou plays the most probable action if deterministic_eval=True and the policy is not "
        "within a training step: collect inside policy_within_training_step or with the trainer",
        2,
        f"{TIANSHOU}/issues/1122",
    ),
    Trap(
        "tianshou",
        "mask-ignored-in-play",
        "The policy does not apply the mask of the observation.",
        "obs.mask used by the policy",
        "use DiscreteQLearningPolicy, or mask the logits in the actor: the Categorical of PPO does "
        "not read obs.mask",
        3,
        f"{TIANSHOU}/issues/334",
    ),
)

TRAPS = {(item.framework, item.cause): item for item in _ALL}
"""(framework, cause) -> trap."""
