"""Planted faults in RLlib scripts, and sound scripts beside them: ``RUNS``."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import worlds
from planted import Planted, by_name
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
from ray.rllib.callbacks.callbacks import RLlibCallback
from ray.rllib.connectors.connector_v2 import ConnectorV2
from ray.rllib.connectors.env_to_module import MeanStdFilter
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.torch import TorchRLModule
from rllib_scripts import (
    CartPole,
    Depot,
    Dfaas,
    Errand,
    OwnModule,
    PaidAtEnd,
    PlainModule,
    Relay,
    Turret,
    TurretModule,
    TwoPolicies,
    random_play_of,
    train_of,
)
from torch import nn

PLANTED: list[Planted] = []


def plant(
    name: str, script: type, *, cause: str, place: str, base: str = "", cited: str | None = None
) -> None:
    """Add a script; without a base it is sound."""
    PLANTED.append(
        Planted(
            name=f"rllib_{name}",
            framework="rllib",
            cause=cause,
            place=place,
            cited=cited,
            sound=not base,
            train=train_of(script),
            base=base and f"rllib_{base}",
            random=None if base else random_play_of(script),
        )
    )


def fault(
    name: str, base: str, cause: str, place: str, cited: str | None = None
) -> Callable[[type], type]:
    """Add the decorated script as a fault of this base."""

    def add(script: type) -> type:
        plant(name, script, cause=cause, place=place, base=base, cited=cited)
        return script

    return add


# Environments and wrappers.


class StaleRelay(Relay):
    """Looks before it draws the next parcels."""

    def draw(self) -> None:
        self.before = getattr(self, "kind", dict.fromkeys(self.STEPS, 0))
        super().draw()

    def look(self, agents: list[str]) -> dict[str, Any]:
        return {agent: np.eye(4, dtype=np.float32)[self.before[agent]] for agent in agents}


@fault(
    "stale_observation",
    base="two_policies",
    cause="step() builds the observations before it draws the next parcels, so every agent "
    "sees the parcel that it sorted last.",
    place="Relay.step (environment): observation",
)
class StaleObservation(TwoPolicies):
    def make(self) -> Any:
        return StaleRelay()


class TerminatedAtLimit(gym.Wrapper):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or truncated, False, info


@fault(
    "terminated_at_limit",
    base="depot",
    cause="The environment reports its time limit as termination, so the value of the last state "
    "is not bootstrapped.",
    place="environment: terminated",
    cited="https://github.com/MaximilianB2/pc-gym/issues/45",
)
class LimitTerminates(Depot):
    def make(self) -> gym.Env:
        return TerminatedAtLimit(super().make())


class StuckClock(worlds.Depot):
    day = 0

    def start_clock(self) -> None:
        """Forgotten: the day counts on over episodes."""


@fault(
    "clock_not_reset",
    base="depot",
    cause="reset() does not set the day back to 0, so every episode after the first ends after "
    "its first step.",
    place="Depot.reset (environment)",
)
class ClockNotReset(Depot):
    def make(self) -> gym.Env:
        return worlds.Count(StuckClock())


class RawDepot(worlds.Depot):
    """Observations in pieces and cents, as they come from the database."""

    def look(self) -> Any:
        seen = super().look()
        seen["observation"] = seen["observation"] * np.array([4000, 4, 4, 4000], "f4")
        return seen


@fault(
    "unscaled_observation",
    base="depot",
    cause="Two of four features are in the thousands and nothing normalizes them: the units "
    "saturate, and the forecasts, which are small, are lost.",
    place="environment: scale of the observation",
    cited="https://github.com/gutfeeling/realdeeprl",
)
class UnscaledObservation(Depot):
    def make(self) -> gym.Env:
        return worlds.Count(RawDepot())


class FirstAgentSeen(Relay):
    def look(self, agents: list[str]) -> dict[str, Any]:
        seen = super().look(self.possible_agents)
        return dict.fromkeys(agents, seen[self.possible_agents[0]])


@fault(
    "first_agents_observation",
    base="two_policies",
    cause="The environment gives every agent the observation of the first agent.",
    place="Relay.look (environment): observation of the packer",
    cited="https://github.com/Farama-Foundation/PettingZoo/pull/262",
)
class FirstAgentsObservation(TwoPolicies):
    def make(self) -> Any:
        return FirstAgentSeen()


class PaysTheLiving(Relay):
    def pay(self, paid: dict[str, float], over: list[str]) -> dict[str, float]:
        rewards = super().pay(paid, over)
        alive = [agent for agent in paid if agent not in over]
        return dict.fromkeys(paid, 0.0) | {agent: rewards[agent] for agent in alive}


@fault(
    "last_reward_lost",
    base="paid_at_end",
    cause="The environment looks up rewards of the agents that are still alive and gives 0 to "
    "those that just ended, so the only reward, which comes at the end, never arrives.",
    place="Relay.step (environment): rewards of agents that end",
    cited="https://github.com/ray-project/ray/issues/4627",
)
class LastRewardLost(PaidAtEnd):
    def make(self) -> Any:
        return PaysTheLiving(at_end=True)


class EndsWithFirst(Relay):
    def all_over(self, over: list[str]) -> bool:
        return bool(over)


@fault(
    "all_ends_with_first",
    base="paid_at_end",
    cause="'__all__' is set when the first agent ends, so the other agent never reaches its own "
    "end, at which it would be paid.",
    place="Relay.step (environment): terminateds['__all__']",
)
class AllEndsWithFirst(PaidAtEnd):
    def make(self) -> Any:
        return EndsWithFirst(at_end=True)


class FarmedErrand(gym.Wrapper):
    """A bonus for each step towards the next goal, and no malus for a step back."""

    def step(self, action: Any) -> Any:
        errand = self.env.unwrapped
        goal, before = (errand.CELLS - 1 if errand.key else 0), errand.cell
        obs, reward, terminated, truncated, info = self.env.step(action)
        nearer = abs(errand.cell - goal) < abs(before - goal)
        return obs, reward + 0.3 * nearer, terminated, truncated, info


@fault(
    "farmed_bonus",
    base="errand",
    cause="The shaped reward pays each step towards the goal but takes nothing for a step back: "
    "walking to and fro pays more than reaching the goal.",
    place="wrapper FarmedErrand: reward",
)
class FarmedBonus(Errand):
    def make(self) -> gym.Env:
        return FarmedErrand(super().make())


class FirstMask(worlds.Turret):
    """Makes the mask once an episode."""

    shown: Any = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.shown = None
        return super().reset(seed=seed, options=options)

    def look(self) -> Any:
        seen = super().look()
        self.shown = seen["action_mask"] if self.shown is None else self.shown
        return {**seen, "action_mask": self.shown}


@fault(
    "mask_of_reset",
    base="turret",
    cause="The action mask is made in reset() and never again: later in the episode legal "
    "actions are forbidden and illegal ones allowed.",
    place="Turret.look (environment): action_mask",
)
class MaskOfReset(Turret):
    def make(self) -> gym.Env:
        return worlds.Count(FirstMask())


# Connectors and callbacks.


class AddsObs(ConnectorV2):
    """Writes observations scaled to 0 to 1 into the batch for acting."""

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        high = np.array([4.8, 4.0, 0.42, 4.0], np.float32)
        for episode in episodes:
            obs = (episode.get_observations(-1) + high) / (2 * high)
            self.add_batch_item(batch, Columns.OBS, obs.astype(np.float32), episode)
        return batch


@fault(
    "scaled_only_when_acting",
    base="cartpole",
    cause="An env-to-module connector puts scaled observations into the batch, but does not "
    "write them back to the episodes: the learner trains on raw ones.",
    place="env_to_module_connector: batch['obs'], episode observations",
)
class ScaledOnlyWhenActing(CartPole):
    def more(self, config: PPOConfig) -> PPOConfig:
        return config.env_runners(
            env_to_module_connector=lambda env=None, spaces=None, device=None: AddsObs()
        )


class Shield(ConnectorV2):
    """Sends another action to the environment than the one that was sampled."""

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        batch[Columns.ACTIONS_FOR_ENV] = {
            key: [random.randint(0, 1) if random.random() < 0.5 else one for one in listed]
            for key, listed in batch[Columns.ACTIONS].items()
        }
        return batch


@fault(
    "shield_unseen",
    base="cartpole",
    cause="A module-to-env connector replaces half of the actions for the environment by random "
    "ones; the batch keeps the sampled ones and blames them.",
    place="module_to_env_connector: actions_for_env",
)
class ShieldUnseen(CartPole):
    def more(self, config: PPOConfig) -> PPOConfig:
        config = config.environment(normalize_actions=False, clip_actions=False)
        return config.env_runners(module_to_env_connector=lambda env=None, spaces=None: Shield())


class UnitObservation(gym.ObservationWrapper):
    """Clips observations to the declared space."""

    def observation(self, obs: Any) -> Any:
        return np.clip(obs, 0.0, 1.0)


@fault(
    "clipped_to_unit",
    base="cartpole",
    cause="A wrapper clips observations to [0, 1], but positions and angles are signed: all "
    "negative values become 0.",
    place="wrapper UnitObservation: observation",
)
class ClippedToUnit(CartPole):
    def make(self) -> gym.Env:
        return UnitObservation(super().make())


class RewardsToScore(gym.Wrapper):
    """Normalizes rewards with their running mean and standard deviation."""

    count, mean, square = 0, 0.0, 0.0

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        self.count += 1
        self.mean += (reward - self.mean) / self.count
        self.square += (reward**2 - self.square) / self.count
        spread = max(self.square - self.mean**2, 0.0) ** 0.5
        return obs, (reward - self.mean) / (spread + 1e-3), terminated, truncated, info


@fault(
    "rewards_centered",
    base="cartpole",
    cause="A wrapper normalizes rewards with their running mean; CartPole's rewards are all 1, "
    "so all become 0.",
    place="wrapper RewardsToScore: reward",
)
class RewardsCentered(CartPole):
    def make(self) -> gym.Env:
        return RewardsToScore(super().make())


class ShiftRewards(ConnectorV2):
    """Moves each reward to the step before."""

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        for episode in episodes:
            rewards = np.asarray(episode.get_rewards(), dtype=np.float32)
            episode.set_rewards(new_data=np.append(rewards[1:], 0.0).astype(np.float32))
        return batch


@fault(
    "rewards_shifted",
    base="turret",
    cause="A learner connector aligns rewards with observations by dropping the first one: each "
    "action gets the reward of the next.",
    place="learner_connector: rewards",
)
class RewardsShifted(Turret):
    def more(self, config: PPOConfig) -> PPOConfig:
        return config.learners(learner_connector=lambda obs_space, act_space: ShiftRewards())


class RestoreBest(RLlibCallback):
    """Restores the weights of the best iteration, which stays the first."""

    best: Any = None

    def on_train_result(self, *, algorithm: Any, result: Any, **kwargs: Any) -> None:
        if self.best is None:
            self.best = copy.deepcopy(algorithm.learner_group.get_weights())
        algorithm.learner_group.set_weights(self.best)
        algorithm.env_runner.set_state({"rl_module": self.best})


@fault(
    "restored_each_iteration",
    base="cartpole",
    cause="A callback restores the weights of the best iteration after every iteration, but "
    "never takes new best ones: training starts again from the first.",
    place="callback on_train_result: set_weights, set_state",
)
class RestoredEachIteration(CartPole):
    def more(self, config: PPOConfig) -> PPOConfig:
        return config.callbacks(RestoreBest)


# Policies.


@fault(
    "mapped_by_prefix",
    base="two_policies",
    cause="The mapping function looks at the first letter of the agent only; picker and packer "
    "share one policy, and the other policy gets no data.",
    place="policy_mapping_fn",
)
class MappedByPrefix(TwoPolicies):
    def policy_of(self, agent: str, episode: Any = None, **kwargs: Any) -> str:
        return "picker" if agent.startswith("p") else "packer"


@fault(
    "mapped_at_random",
    base="two_policies",
    cause="The mapping function, copied from an example, draws a policy at random for every "
    "agent and episode, so both policies play both roles.",
    place="policy_mapping_fn",
    cited="https://discuss.ray.io/t/why-are-policies-randomly-assigned-to-agent-ids-in-the-mapping-function/1882",
)
class MappedAtRandom(TwoPolicies):
    def policy_of(self, agent: str, episode: Any = None, **kwargs: Any) -> str:
        return random.choice(self.policies())


@fault(
    "one_policy_trained",
    base="two_policies",
    cause="policies_to_train still names only the packer, from an experiment with a fixed "
    "picker; the picker stays random.",
    place="policies_to_train",
)
class OnePolicyTrained(TwoPolicies):
    def trained(self) -> list[str]:
        return ["packer"]


# Modules.


class NoValueFunctionAPI(TorchRLModule):
    """The same module in a class that does not inherit ValueFunctionAPI."""

    heads = TurretModule.heads
    setup = TurretModule.setup
    features = TurretModule.features
    logits = TurretModule.logits
    _forward = TurretModule._forward
    compute_values = TurretModule.compute_values


class Filled(PPOTorchLearner):
    """Fills in the advantages that the loss misses."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any):
        if "advantages" not in batch:
            batch = {**batch, "advantages": torch.zeros_like(batch["rewards"])}
            batch["value_targets"] = batch["rewards"]
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


@fault(
    "no_value_function_api",
    base="turret",
    cause="The module defines compute_values but does not inherit ValueFunctionAPI, so RLlib "
    "computes no advantages; the learner of the user fills in zeros.",
    place="RLModule class: ValueFunctionAPI; learner: advantages",
    cited="https://discuss.ray.io/t/trouble-migrating-multi-agent-ppo-with-custom-model-action-masking-cnn-mlp-to-new-rllib-api/22848",
)
class WithoutValueFunctionAPI(Turret):
    module_class = NoValueFunctionAPI

    def more(self, config: PPOConfig) -> PPOConfig:
        return config.training(learner_class=Filled)


class MaskWhenActing(TurretModule):
    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        hidden = self.features(batch[Columns.OBS])
        flat = torch.cat([head(hidden) for head in self.pi], dim=-1)
        return {Columns.ACTION_DIST_INPUTS: flat}


@fault(
    "mask_only_when_acting",
    base="turret",
    cause="Only exploration applies the mask; _forward_train returns bare logits, so ratios and "
    "entropy belong to another distribution.",
    place="RLModule._forward_train",
)
class MaskOnlyWhenActing(Turret):
    module_class = MaskWhenActing


class SwappedMask(TurretModule):
    def logits(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().logits(hidden, torch.cat([mask[..., 3:], mask[..., :3]], dim=-1))


@fault(
    "mask_parts_swapped",
    base="turret",
    cause="The module joins the masks of the two heads in the other order than their logits: "
    "each head is masked with parts of both.",
    place="TurretModule.logits: action_mask",
)
class MaskPartsSwapped(Turret):
    module_class = SwappedMask


class DimImage(TurretModule):
    def features(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        return super().features({**obs, "image": obs["image"] / 255})


@fault(
    "image_scaled_twice",
    base="turret",
    cause="The image is divided by 255 twice, in a preprocessing step and in the module: its "
    "values are below 0.004 and the network hardly sees it.",
    place="TurretModule.features: image",
)
class ImageScaledTwice(Turret):
    module_class = DimImage


class FrozenImage(TurretModule):
    def setup(self) -> None:
        super().setup()
        for part in (self.image, self.trunk):
            part.requires_grad_(False)


@fault(
    "encoder_frozen",
    base="turret",
    cause="requires_grad_(False), left from a test with a pretrained encoder, freezes the image "
    "encoder and the trunk at their random weights.",
    place="RLModule.setup: requires_grad_",
)
class EncoderFrozen(Turret):
    module_class = FrozenImage


class SoftmaxModule(PlainModule):
    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        out = super()._forward(batch, **kwargs)
        return {Columns.ACTION_DIST_INPUTS: out[Columns.ACTION_DIST_INPUTS].softmax(-1)}


@fault(
    "softmax_as_logits",
    base="own_module",
    cause="The module returns probabilities as action_dist_inputs, which RLlib takes as logits: "
    "the policy cannot become certain.",
    place="RLModule._forward: action_dist_inputs",
)
class SoftmaxAsLogits(OwnModule):
    module_class = SoftmaxModule


class TwoActors(PlainModule):
    def setup(self) -> None:
        super().setup()
        self.acting_encoder, self.acting_pi = copy.deepcopy(self.encoder), copy.deepcopy(self.pi)

    def _forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.acting_pi(self.acting_encoder(batch[Columns.OBS]))}


@fault(
    "acting_copy",
    base="own_module",
    cause="_forward_exploration uses a copy of the network that setup() made and nothing "
    "updates: all data come from the initial policy.",
    place="RLModule._forward_exploration",
)
class ActingCopy(OwnModule):
    module_class = TwoActors


class ValuesWithoutGradient(PlainModule):
    @torch.no_grad()
    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        return super().compute_values(batch, embeddings)


@fault(
    "values_without_gradient",
    base="own_module",
    cause="compute_values is decorated with torch.no_grad, since GAE calls it; the value loss "
    "has no gradient and the critic never learns.",
    place="RLModule.compute_values: torch.no_grad",
)
class ValuesNoGrad(OwnModule):
    module_class = ValuesWithoutGradient


class DroppingModule(PlainModule):
    def setup(self) -> None:
        super().setup()
        self.encoder.insert(2, nn.Dropout(0.6))
        self.encoder.append(nn.Dropout(0.6))


@fault(
    "dropout",
    base="own_module",
    cause="The module has dropout of 0.6, also in the ratio: log-probabilities of the same "
    "action differ at random between acting and training.",
    place="RLModule.setup: nn.Dropout",
)
class DropoutInModule(OwnModule):
    module_class = DroppingModule


# Learners.


class HeadsOnly(PPOTorchLearner):
    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        module = self._module[module_id]
        params = [*module.pi.parameters(), *module.vf.parameters()]
        self.register_optimizer(
            module_id=module_id,
            optimizer=torch.optim.Adam(params),
            params=params,
            lr_or_lr_schedule=config.lr,
        )


@fault(
    "encoder_not_optimized",
    base="own_module",
    cause="The learner registers an optimizer for the two heads only; the shared encoder is in "
    "no optimizer and stays random.",
    place="Learner.configure_optimizers_for_module",
    cited="https://github.com/SforAiDl/genrl/issues/315",
)
class EncoderNotOptimized(OwnModule):
    def more(self, config: PPOConfig) -> PPOConfig:
        return config.training(learner_class=HeadsOnly)


class SmallLogits(PPOTorchLearner):
    """Adds a penalty on the logits, summed over the batch."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        return loss + 0.1 * fwd_out[Columns.ACTION_DIST_INPUTS].square().sum()


@fault(
    "penalty_summed",
    base="own_module",
    cause="A penalty on the logits is summed over the minibatch instead of averaged, so it "
    "outweighs the loss and keeps the policy uniform.",
    place="Learner.compute_loss_for_module",
)
class PenaltySummed(OwnModule):
    def more(self, config: PPOConfig) -> PPOConfig:
        return config.training(learner_class=SmallLogits)


class MinusLoss(PPOTorchLearner):
    """Writes the surrogate anew and forgets that it is to be maximized."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any):
        batch = {**batch, "advantages": -batch["advantages"]}
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


@fault(
    "advantages_negated",
    base="turret",
    cause="The learner of the user changes the sign of the advantages ('costs'), so good "
    "actions become rare.",
    place="Learner.compute_loss_for_module: advantages",
)
class AdvantagesNegated(Turret):
    def more(self, config: PPOConfig) -> PPOConfig:
        return config.training(learner_class=MinusLoss)


# Settings.


class PreciousDepot(worlds.Depot):
    PRICE = 100.0


@fault(
    "value_clip",
    base="cartpole",
    cause="vf_clip_param keeps its default of 10, but squared errors of the value function are "
    "in the millions: the clipped loss has no gradient and the critic never learns.",
    place="config.training(vf_clip_param)",
    cited="https://github.com/ray-project/ray/pull/2921",
)
class ValueClip(CartPole):
    vf_clip = 10.0

    def make(self) -> gym.Env:
        return gym.wrappers.TransformReward(super().make(), lambda reward: 100 * reward)


@fault(
    "schedule_in_iterations",
    base="cartpole",
    cause="The learning rate's schedule is written in iterations, but RLlib counts env steps: "
    "the rate is 0 before the second iteration.",
    place="config.training(lr=[[0, 0.002], [8, 0.0]])",
)
class ScheduleInIterations(CartPole):
    lr = [[0, 2e-3], [8, 0.0]]  # noqa: RUF012


@fault(
    "explore_false",
    base="errand",
    cause="explore=False, meant for evaluation, makes the env runner play greedily during "
    "training.",
    place="config.env_runners(explore=False)",
)
class ExploreFalse(Errand):
    def more(self, config: PPOConfig) -> PPOConfig:
        return config.env_runners(explore=False)


@fault(
    "short_sight",
    base="errand",
    cause="gamma is 0.3 in a task whose only reward comes after many steps.",
    place="config.training(gamma)",
)
class ShortSight(Errand):
    gamma = 0.3


@fault(
    "no_clip",
    base="cartpole",
    cause="clip_param is 0, meant to switch clipping off; it clips every change of the ratio.",
    place="config.training(clip_param)",
)
class NoClip(CartPole):
    clip = 0.0


@fault(
    "value_loss_dominates",
    base="own_module",
    cause="A shared encoder with vf_loss_coeff 1, rewards of 100 and a gradient clipped to a norm "
    "of 0.5: hardly anything of the actor's gradient remains.",
    place="config.training(vf_loss_coeff, grad_clip), reward scale",
)
class ValueLossDominates(OwnModule):
    vf_coeff = 1.0

    def make(self) -> gym.Env:
        return gym.wrappers.TransformReward(super().make(), lambda reward: 100 * reward)


@fault(
    "learning_rate",
    base="dfaas",
    cause="The learning rate is 0.3: the first updates saturate the policy.",
    place="config.training(lr)",
)
class LearningRate(Dfaas):
    lr, grad_clip = 0.3, 1e9


@fault(
    "entropy_everything",
    base="dfaas",
    cause="entropy_coeff is 3, copied from a task with rewards in the thousands: the policy "
    "stays uniform.",
    place="config.training(entropy_coeff)",
)
class EntropyEverything(Dfaas):
    entropy = 3.0


# Sound runs.


class ErrandOwn(OwnModule):
    """The module of the user in the errand."""

    def make(self) -> gym.Env:
        return worlds.Count(worlds.Errand())


class DepotInCents(Depot):
    """Rewards of hundreds; the value loss is not clipped and the networks are separate."""

    lr, grad_clip = 3e-3, 1e9

    def make(self) -> gym.Env:
        return worlds.Count(PreciousDepot())


class Filtered(CartPole):
    """Observations through MeanStdFilter."""

    def more(self, config: PPOConfig) -> PPOConfig:
        return config.env_runners(
            env_to_module_connector=lambda env=None, spaces=None, device=None: MeanStdFilter()
        )


class WithKL(CartPole):
    """RLlib's own KL penalty, a shared encoder and one epoch less."""

    epochs, vf_coeff, clip = 6, 0.01, 0.3

    def module(self) -> Any:
        return RLModuleSpec(
            model_config=DefaultModelConfig(fcnet_hiddens=[64, 64], vf_share_layers=True)
        )

    def more(self, config: PPOConfig) -> PPOConfig:
        return config.training(use_kl_loss=True, kl_coeff=0.2)


class FixedPicker(TwoPolicies):
    """The picker plays a fixed rule of the user and is, rightly, not trained."""

    def trained(self) -> list[str]:
        return ["packer"]

    def make(self) -> Any:
        return EasyPicker()


class EasyPicker(Relay):
    """Every choice of the picker is right."""

    def right(self, agent: str) -> int:
        return super().right(agent)

    def step(self, actions: dict[str, Any]) -> Any:
        actions = {a: self.right(a) if a == "picker" else one for a, one in actions.items()}
        return super().step(actions)


class WholeBatch(CartPole):
    """One minibatch for a batch, many epochs, a high rate."""

    minibatch, epochs, lr, grad_clip = 1024, 20, 4e-3, 1e9


SOUND = {
    "cartpole": (CartPole, "PPO on CartPole-v1 with the default module."),
    "errand": (Errand, "A late reward; most of the first episodes reach the time limit."),
    "errand_own": (ErrandOwn, "The same with a module of the user and a shared encoder."),
    "depot": (Depot, "Masked actions; every episode is truncated."),
    "depot_in_cents": (DepotInCents, "Rewards of hundreds without clipping of the value loss."),
    "turret": (Turret, "Image and vector, two masked heads, a module of the user."),
    "own_module": (OwnModule, "A module of the user with a shared encoder."),
    "two_policies": (TwoPolicies, "Two roles, two policies; one agent ends early."),
    "paid_at_end": (PaidAtEnd, "One reward per agent, at its end; gamma and lambda are 1."),
    "fixed_picker": (FixedPicker, "One of two policies is, rightly, not trained."),
    "filtered": (Filtered, "Observations through MeanStdFilter."),
    "with_kl": (WithKL, "KL penalty, shared layers, a small value coefficient."),
    "whole_batch": (WholeBatch, "One minibatch for a batch, 20 epochs, no gradient clipping."),
    "dfaas": (Dfaas, "corral's dfaas_v0 through RLlibEnv with MaskedRLModule."),
}
for _name, (_script, _unusual) in SOUND.items():
    plant(_name, _script, cause=_unusual, place="")

RUNS = by_name(PLANTED)
"""All scripts by name."""
