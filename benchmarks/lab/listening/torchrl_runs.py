"""Planted faults in TorchRL scripts, and sound scripts beside them: ``RUNS``.

Not called ``torchrl.py``: a script in this folder would import it instead of the package.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import worlds
from planted import Planted, by_name
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictSequential
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.collectors import Collector
from torchrl.collectors.utils import split_trajectories
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import (
    ExplorationType,
    ObservationNorm,
    RewardClipping,
    RewardScaling,
    RewardSum,
    StepCounter,
    Transform,
    TransformedEnv,
)
from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
from torchrl_scripts import (
    DQN,
    PPO,
    CartPoleDQN,
    DepotPPO,
    DfaasMAPPO,
    ErrandPPO,
    SharedPPO,
    ThermostatPPO,
    mlp,
    train_of,
)

PLANTED: list[Planted] = []


def plant(
    name: str, script: type, *, cause: str, place: str, base: str = "", cited: str | None = None
) -> None:
    """Add a script; without a base it is sound."""
    play = worlds.random_play(script().make) if hasattr(script, "make") else worlds.random_team
    PLANTED.append(
        Planted(
            name=f"torchrl_{name}",
            framework="torchrl",
            cause=cause,
            place=place,
            cited=cited,
            sound=not base,
            train=train_of(script),
            base=base and f"torchrl_{base}",
            random=None if base else play,
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


# Environments, wrappers and transforms.


class BufferedErrand(worlds.Errand):
    """Writes every observation into one array."""

    def look(self) -> Any:
        self.state = getattr(self, "state", np.zeros(2, np.float32))
        self.state[:] = super().look()
        return self.state


@fault(
    "same_array",
    base="errand_one",
    cause="The environment returns its own state array from every step and changes it in place, "
    "so the observations of a rollout show later states.",
    place="Errand.look (environment): observation",
    cited="https://github.com/keras-rl/keras-rl/issues/51",
)
class SameArray(ErrandPPO):
    copies, total = 1, 6144

    def make(self) -> gym.Env:
        return worlds.Count(BufferedErrand())


class TerminatedAtLimit(gym.Wrapper):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or truncated, truncated, info


@fault(
    "terminated_at_limit",
    base="depot",
    cause="The environment reports its time limit as termination, so the value of the last state "
    "is not bootstrapped.",
    place="environment: terminated",
    cited="https://github.com/TorchTrade/torchtrade/issues/150",
)
class LimitTerminates(DepotPPO):
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
class ClockNotReset(DepotPPO):
    def make(self) -> gym.Env:
        return worlds.Count(StuckClock())


@fault(
    "few_norm_steps",
    base="cartpole",
    cause="ObservationNorm measures its mean and scale in 2 steps, in which the observation "
    "hardly changes, so normalized observations are huge.",
    place="ObservationNorm.init_stats(num_iter)",
    cited="https://github.com/pytorch/rl/issues/1694",
)
class FewNormSteps(PPO):
    def transforms(self) -> list[Transform]:
        norm = ObservationNorm(in_keys=["observation"], standard_normal=True)
        tried = TransformedEnv(self.one_env(), norm)
        tried.set_seed(0)
        norm.init_stats(num_iter=2)
        return [ObservationNorm(norm.loc, norm.scale, ["observation"], standard_normal=True)]


@fault(
    "reward_centered_away",
    base="cartpole",
    cause="RewardScaling subtracts 1 from every reward; CartPole's reward is always 1, so all "
    "rewards are 0.",
    place="RewardScaling(loc=-1)",
)
class RewardCenteredAway(PPO):
    def transforms(self) -> list[Transform]:
        return [RewardScaling(loc=-1.0, scale=1.0)]


@fault(
    "reward_clipped",
    base="thermostat",
    cause="RewardClipping(-0.1, 0.1), copied from another project, clips nearly all rewards of "
    "this task to the same number.",
    place="RewardClipping (transform): reward",
)
class RewardClipped(ThermostatPPO):
    def transforms(self) -> list[Transform]:
        return [RewardClipping(clamp_min=-0.1, clamp_max=0.1)]


class InPlaceAction(gym.ActionWrapper):
    """The policy acts in [-1, 1]; the room takes 0 to 10 kW."""

    def __init__(self, env: gym.Env) -> None:
        super().__init__(env)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def action(self, action: Any) -> Any:
        action += 1.0
        action *= 5.0
        return action


@fault(
    "action_in_place",
    base="thermostat_one",
    cause="A wrapper rescales the action array in place, so the batch stores the rescaled "
    "action instead of the sampled one.",
    place="wrapper action(): batch column action",
    cited="https://github.com/rlworkgroup/garage/issues/291",
)
class ActionInPlace(ThermostatPPO):
    copies, total = 1, 6144

    def make(self) -> gym.Env:
        return InPlaceAction(super().make())

    def bounds(self) -> dict[str, Any]:
        return {"low": -1.0, "high": 1.0}


@fault(
    "action_bounds",
    base="thermostat",
    cause="TanhNormal keeps its default bounds of -1 and 1, but the action space is 0 to 10: the "
    "policy reaches a tenth of it.",
    place="ProbabilisticActor distribution_kwargs (low, high)",
)
class ActionBounds(ThermostatPPO):
    def bounds(self) -> dict[str, Any]:
        return {}


class LateMask(worlds.Depot):
    """Shows the mask of the step before."""

    shown: Any = None

    def look(self) -> Any:
        seen = super().look()
        fresh, seen["action_mask"] = seen["action_mask"], self.shown
        if seen["action_mask"] is None:
            seen["action_mask"] = fresh
        self.shown = fresh
        return seen


@fault(
    "mask_one_step_late",
    base="depot",
    cause="The observation carries the action mask of the previous step, so the policy takes "
    "illegal actions and may not take legal ones.",
    place="Depot.look (environment): action_mask",
)
class MaskLate(DepotPPO):
    def make(self) -> gym.Env:
        return worlds.Count(LateMask())


class InvertedMask(worlds.Depot):
    def look(self) -> Any:
        seen = super().look()
        seen["action_mask"] = 1 - seen["action_mask"]
        if not seen["action_mask"].any():
            seen["action_mask"][:] = 1
        return seen


@fault(
    "mask_inverted",
    base="depot",
    cause="The environment marks illegal actions with 1, but MaskedCategorical takes 1 as legal.",
    place="Depot.look (environment): action_mask",
)
class MaskInverted(DepotPPO):
    def make(self) -> gym.Env:
        return worlds.Count(InvertedMask())


@fault(
    "short_step_counter",
    base="cartpole",
    cause="StepCounter(max_steps=20), left from a test, cuts every episode after 20 steps.",
    place="StepCounter(max_steps)",
)
class ShortStepCounter(PPO):
    def transforms(self) -> list[Transform]:
        return [StepCounter(max_steps=20)]


class StaleErrand(worlds.Errand):
    """Looks before it moves."""

    def step(self, action: Any) -> Any:
        before = self.look()
        _, reward, terminated, truncated, info = super().step(action)
        return before, reward, terminated, truncated, info


@fault(
    "stale_observation",
    base="errand",
    cause="step() builds the observation before it moves the agent, so every observation is one "
    "step old.",
    place="Errand.step (environment): observation",
)
class StaleObservation(ErrandPPO):
    def make(self) -> gym.Env:
        return worlds.Count(StaleErrand())


@fault(
    "bytes_observation",
    base="cartpole",
    cause="Observations are cast to uint8 to save memory, which cuts CartPole's fractions and "
    "wraps negative numbers.",
    place="transform: observation dtype",
)
class BytesObservation(PPO):
    def make(self) -> gym.Env:
        env = super().make()
        space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        cut = lambda obs: obs.astype(np.int32).astype(np.uint8).astype(np.float32)  # noqa: E731
        return gym.wrappers.TransformObservation(env, cut, space)


# What happens to the data.


@fault(
    "episode_sum_as_reward",
    base="thermostat",
    cause="The loss and GAE read the running sum of RewardSum (episode_reward) as the reward.",
    place="GAE.set_keys(reward='episode_reward')",
)
class SumAsReward(ThermostatPPO):
    def transforms(self) -> list[Transform]:
        return [RewardSum()]

    def estimator(self) -> Any:
        gae = super().estimator()
        gae.set_keys(reward="episode_reward")
        return gae


@fault(
    "gae_on_minibatches",
    base="depot",
    cause="GAE runs on shuffled minibatches from the replay buffer, so it sums over steps that "
    "do not follow each other.",
    place="GAE call after buffer.sample()",
)
class GaeOnMinibatches(DepotPPO):
    def advantages(self, batch: TensorDict) -> TensorDict:
        return batch.reshape(-1)

    def minibatches(self, flat: TensorDict) -> Iterator[TensorDict]:
        for rows in super().minibatches(flat):
            with torch.no_grad():
                self.gae(rows)
            yield rows


@fault(
    "gae_over_copies",
    base="depot",
    cause="The batch [copies, time] is transposed and flattened before GAE, so neighboring rows "
    "belong to different copies of the environment.",
    place="batch.transpose(0, 1).reshape(-1) before GAE",
)
class GaeOverCopies(DepotPPO):
    def advantages(self, batch: TensorDict) -> TensorDict:
        flat = batch.transpose(0, 1).reshape(-1)
        with torch.no_grad():
            self.gae(flat)
        return flat


@fault(
    "advantage_key",
    base="depot",
    cause="GAE writes to 'adv', but the loss looks for 'advantage'; so the loss silently "
    "estimates advantages itself, on shuffled minibatches and with its default gamma.",
    place="GAE.set_keys(advantage='adv')",
    cited="https://github.com/pytorch/rl/issues/2462",
)
class AdvantageKey(DepotPPO):
    def estimator(self) -> Any:
        gae = super().estimator()
        gae.set_keys(advantage="adv", value_target="target")
        return gae


def hand_made_gae(script: PPO, batch: TensorDict, *, cut: bool) -> TensorDict:
    """GAE in a loop; without `cut` it runs on over the ends of episodes."""
    with torch.no_grad():
        value = script.critic(batch.copy())["state_value"]
        after = script.critic(batch["next"].copy())["state_value"]
    done, ended = batch["next", "done"], batch["next", "terminated"]
    advantage, running = torch.zeros_like(value), torch.zeros_like(value[:, 0])
    for t in reversed(range(value.shape[1])):
        alive = (~ended[:, t]).float()
        delta = batch["next", "reward"][:, t] + script.gamma * alive * after[:, t] - value[:, t]
        keep = (~done[:, t]).float() if cut else 1.0
        running = delta + script.gamma * script.lmbda * keep * running
        advantage[:, t] = running
    batch["advantage"], batch["value_target"] = advantage, advantage + value
    return batch


@fault(
    "gae_over_episode_ends",
    base="cartpole",
    cause="A hand-written GAE does not reset its running sum at the end of an episode, so "
    "advantages contain those of the next episode.",
    place="hand-written GAE loop: done",
    cited="https://github.com/vietnh1009/Super-mario-bros-PPO-pytorch/issues/21",
)
class GaeOverEnds(PPO):
    def advantages(self, batch: TensorDict) -> TensorDict:
        return hand_made_gae(self, batch, cut=False).reshape(-1)


@fault(
    "value_target_shape",
    base="depot",
    cause="The user's own critic loss takes values of shape [N] and targets of shape [N, 1]: it "
    "compares every value with every target, so the critic predicts one mean for all states.",
    place="critic loss of the script: shapes of state_value and value_target",
    cited="https://github.com/RLinf/RLinf/issues/1568",
)
class ValueTargetShape(DepotPPO):
    def minibatches(self, flat: TensorDict) -> Iterator[TensorDict]:
        for rows in super().minibatches(flat):
            value = self.critic(rows.copy())["state_value"].squeeze(-1)
            self.critic_loss = (value - rows["value_target"]).square().mean()
            yield rows

    def objective(self, losses: TensorDict) -> torch.Tensor:
        return losses["loss_objective"] + 0.5 * self.critic_loss + losses["loss_entropy"]


@fault(
    "resampled_action",
    base="cartpole",
    cause="The update calls the policy on the minibatch again, which overwrites the played "
    "actions and their log-probabilities with new samples.",
    place="actor(minibatch) before the loss: columns action, action_log_prob",
)
class ResampledAction(PPO):
    def minibatches(self, flat: TensorDict) -> Iterator[TensorDict]:
        for sampled in super().minibatches(flat):
            with torch.no_grad():
                rows = self.actor(sampled)
            yield rows


@fault(
    "small_storage",
    base="cartpole",
    cause="The replay buffer's max_size counts rows, but is set to the number of environment "
    "copies; only the last rows survive and every minibatch repeats them.",
    place="LazyTensorStorage(max_size)",
    cited="https://github.com/meta-pytorch/torchtune/pull/2981",
)
class SmallStorage(PPO):
    def storage(self) -> ReplayBuffer:
        return ReplayBuffer(storage=LazyTensorStorage(max_size=self.copies), batch_size=self.rows)


@fault(
    "old_data",
    base="cartpole",
    cause="The replay buffer is never emptied and holds 16 batches: PPO trains on data, "
    "advantages and log-probabilities of old policies.",
    place="ReplayBuffer: max_size, no empty()",
)
class OldData(PPO):
    def storage(self) -> ReplayBuffer:
        return ReplayBuffer(storage=LazyTensorStorage(16 * self.frames), batch_size=self.rows)


@fault(
    "padding_in_loss",
    base="cartpole",
    cause="split_trajectories pads short episodes with zeros, and the loss takes the padding as "
    "data because ('collector', 'mask') is not applied.",
    place="split_trajectories: ('collector', 'mask')",
    cited="https://github.com/ray-project/ray/issues/8551",
)
class PaddingInLoss(PPO):
    def advantages(self, batch: TensorDict) -> TensorDict:
        padded = split_trajectories(batch)
        with torch.no_grad():
            self.gae(padded)
        flat = padded.reshape(-1)
        return flat[torch.randperm(len(flat))[: self.frames]]


@fault(
    "greedy_collection",
    base="errand",
    cause="The collector plays greedily (ExplorationType.DETERMINISTIC), so no other action is "
    "ever tried.",
    place="Collector(exploration_type)",
)
class GreedyCollection(ErrandPPO):
    def collector(self, env: Any) -> Any:
        return Collector(
            env,
            self.actor,
            frames_per_batch=self.frames,
            total_frames=self.total,
            exploration_type=ExplorationType.DETERMINISTIC,
        )


@fault(
    "collector_copy",
    base="cartpole",
    cause="The collector has a copy of the policy, and update_policy_weights_() is never "
    "called: all data come from the initial policy.",
    place="Collector(policy)",
    cited="https://github.com/pytorch/rl/issues/3032",
)
class CollectorCopy(PPO):
    def behavior(self) -> Any:
        return copy.deepcopy(self.actor)


# Networks, optimizers and settings.


@fault(
    "critic_not_optimized",
    base="depot",
    cause="The optimizer has the actor's parameters only; the critic stays as it was initialized.",
    place="Adam(actor.parameters())",
)
class CriticNotOptimized(DepotPPO):
    def parameters(self) -> Any:
        return self.actor.parameters()


@fault(
    "encoder_not_optimized",
    base="shared",
    cause="The optimizer has the parameters of the two heads; the shared encoder is in no "
    "parameter group and stays random.",
    place="Adam(parameters of the heads)",
    cited="https://github.com/SforAiDl/genrl/issues/315",
)
class EncoderNotOptimized(SharedPPO):
    def parameters(self) -> Any:
        return [*self.head.parameters(), *self.value_head.parameters()]


@fault(
    "entropy_sign",
    base="errand",
    cause="The script subtracts loss_entropy, which is already negative: it minimizes the entropy.",
    place="total loss: sign of loss_entropy",
)
class EntropySign(ErrandPPO):
    entropy = 0.05

    def objective(self, losses: TensorDict) -> torch.Tensor:
        return losses["loss_objective"] + losses["loss_critic"] - losses["loss_entropy"]


@fault(
    "objective_negated",
    base="cartpole",
    cause="The script negates loss_objective, which is a loss already: it lowers the "
    "probability of good actions.",
    place="total loss: sign of loss_objective",
)
class ObjectiveNegated(PPO):
    def objective(self, losses: TensorDict) -> torch.Tensor:
        return -losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]


@fault(
    "value_loss_dominates",
    base="shared",
    cause="Rewards of 100 a step make a value loss of millions in a network with a shared encoder; "
    "after clipping the gradient to a norm of 0.5 nothing of the actor's gradient remains.",
    place="reward scale with shared encoder and clip_grad_norm_",
)
class ValueLossDominates(SharedPPO):
    def transforms(self) -> list[Transform]:
        return [RewardScaling(loc=0.0, scale=100.0)]


@fault(
    "encoder_without_gradient",
    base="shared",
    cause="The encoder's forward runs under torch.no_grad(), left from a pretrained model, so "
    "it never learns.",
    place="encoder forward: torch.no_grad",
)
class EncoderWithoutGradient(SharedPPO):
    def networks(self) -> tuple[Any, Any]:
        actor, critic = super().networks()
        self.encoder.forward = torch.no_grad()(self.encoder.forward)  # type: ignore[method-assign]
        return actor, critic


@fault(
    "positive_critic",
    base="thermostat",
    cause="The critic ends in a ReLU, but all returns of this task are negative: it predicts 0.",
    place="critic network: last layer",
)
class PositiveCritic(ThermostatPPO):
    def critic_net(self) -> nn.Module:
        return nn.Sequential(super().critic_net(), nn.ReLU())


@fault(
    "softmax_as_logits",
    base="cartpole",
    cause="The network ends in a softmax and its probabilities are used as logits: the policy "
    "cannot become certain.",
    place="actor network: last layer",
)
class SoftmaxAsLogits(PPO):
    def actor_net(self) -> nn.Module:
        return nn.Sequential(super().actor_net(), nn.Softmax(-1))


@fault(
    "mask_only_in_rollout",
    base="depot",
    cause="The mask is applied when data are collected, but not in the loss: ratio and entropy "
    "belong to another distribution.",
    place="actor in the loss: mask",
    cited="https://github.com/hill-a/stable-baselines/pull/453",
)
class MaskOnlyInRollout(DepotPPO):
    net: nn.Module | None = None

    def actor_net(self) -> nn.Module:
        self.net = self.net or super().actor_net()
        return self.net

    def policy(self) -> Any:
        return PPO.policy(self)

    def behavior(self) -> Any:
        return DepotPPO.policy(self)


@fault(
    "critic_sees_little",
    base="depot",
    cause="The critic's in_keys name a tensor with the stock only; the weekly demand, which "
    "decides the return, is missing.",
    place="ValueOperator(in_keys)",
)
class CriticSeesLittle(DepotPPO):
    def value(self) -> Any:
        cut = TensorDictModule(lambda obs: obs[..., :1], ["observation"], ["stock"])
        return TensorDictSequential(cut, ValueOperator(mlp(1, 1), in_keys=["stock"]))


@fault(
    "scheduler_per_minibatch",
    base="cartpole",
    cause="The linear schedule of the learning rate is counted in batches but stepped for every "
    "minibatch: the rate is 0 after the first batch.",
    place="LinearLR.step()",
)
class SchedulerPerMinibatch(PPO):
    def optimizer(self) -> Any:
        optimizer = super().optimizer()
        batches = self.total // self.frames
        self.schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 1e-8, batches)
        return optimizer

    def update(self, total: torch.Tensor) -> None:
        super().update(total)
        self.schedule.step()


@fault(
    "no_zero_grad",
    base="cartpole",
    cause="optimizer.zero_grad() is missing, so gradients of all minibatches add up.",
    place="optimizer.zero_grad()",
)
class NoZeroGrad(PPO):
    def update(self, total: torch.Tensor) -> None:
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.loss_module.parameters(), self.max_grad)
        self.optim.step()


@fault(
    "dropout_in_actor",
    base="cartpole",
    cause="The actor has dropout of 0.5 in training mode: log-probabilities of the rollout and "
    "of the loss come from different random networks.",
    place="actor network: nn.Dropout, train()",
)
class DropoutInActor(PPO):
    def actor_net(self) -> nn.Module:
        inputs, outputs = self.sizes()
        drop = nn.Dropout(0.5)
        hidden = [nn.Linear(inputs, 64), nn.Tanh(), drop, nn.Linear(64, 64), nn.Tanh(), drop]
        return nn.Sequential(*hidden, nn.Linear(64, outputs))


@fault(
    "trained_copy",
    base="cartpole",
    cause="The parameters that the optimizer has are a clone made by TensorDict.from_module; "
    "the network itself is never changed.",
    place="TensorDict.from_module(actor).clone(): optimizer",
)
class TrainedCopy(PPO):
    def parameters(self) -> Any:
        both = [TensorDict.from_module(net).data.clone() for net in (self.actor, self.critic)]
        values = [value for each in both for value in each.values(True, True)]
        return [nn.Parameter(value) for value in values]


@fault(
    "short_sight",
    base="errand",
    cause="gamma is 0.1 in a task whose only reward comes after many steps.",
    place="GAE(gamma)",
)
class ShortSight(ErrandPPO):
    gamma = 0.1


@fault(
    "learning_rate",
    base="depot",
    cause="The learning rate is 0.1: the first updates saturate the policy.",
    place="Adam(lr)",
)
class LearningRate(DepotPPO):
    lr = 0.1
    max_grad = 100.0


@fault(
    "noise_without_scale",
    base="thermostat",
    cause="The scale of TanhNormal is a constant 0.01, so the policy hardly explores and the "
    "log-probability ratio is clipped at once.",
    place="actor network: scale",
)
class NoiseWithoutScale(ThermostatPPO):
    def policy(self) -> Any:
        net = nn.Sequential(self.actor_net(), NormalParamExtractor())
        small = lambda loc, scale: (loc, 0.01 + 0 * scale)  # noqa: E731
        body = TensorDictSequential(
            TensorDictModule(net, in_keys=["observation"], out_keys=["mean", "spread"]),
            TensorDictModule(small, in_keys=["mean", "spread"], out_keys=["loc", "scale"]),
        )
        return ProbabilisticActor(
            body,
            in_keys=["loc", "scale"],
            distribution_class=TanhNormal,
            distribution_kwargs=self.bounds(),
            return_log_prob=True,
        )


# DQN.


@fault(
    "dqn_epsilon_stays",
    base="errand_dqn",
    cause="EGreedyModule.step() is never called, so epsilon stays at 1 and all data are random.",
    place="EGreedyModule.step()",
)
class EpsilonStays(DQN):
    def explored(self, batch: TensorDict) -> None:
        """Forgotten."""


@fault(
    "dqn_target_never_updated",
    base="errand_dqn",
    cause="The target network updater is made but never stepped: the targets come from the "
    "initial network.",
    place="SoftUpdate.step()",
)
class TargetNeverUpdated(DQN):
    def after_update(self) -> None:
        """Forgotten."""


@fault(
    "dqn_target_rarely_updated",
    base="cartpole_dqn",
    cause="The soft update of the target network runs once in 100 updates, so the target "
    "moves towards the network by 2 % in 100 updates.",
    place="SoftUpdate.step()",
    cited="https://github.com/xphongvn/rlcomp2020/issues/3",
)
class TargetRarelyUpdated(CartPoleDQN):
    def updater(self) -> Any:
        self.count = 0
        return DQN.updater(self)

    def after_update(self) -> None:
        self.count += 1
        if self.count % 100 == 0:
            self.target.step()


class DoneReadsZero(gym.Wrapper):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, False, terminated or truncated, info


@fault(
    "dqn_ends_as_truncation",
    base="cartpole_dqn",
    cause="The environment reports the fall of the pole as truncation, so the targets of "
    "failing steps bootstrap as if the episode went on.",
    place="environment: terminated, truncated",
)
class EndsAsTruncation(CartPoleDQN):
    def make(self) -> gym.Env:
        return DoneReadsZero(super().make())


@fault(
    "dqn_next_is_now",
    base="errand_dqn",
    cause="The script fills ('next', 'observation') from 'observation' before it stores a "
    "transition, so all targets use the state itself as the next one.",
    place="buffer.extend: column ('next', 'observation')",
)
class NextIsNow(DQN):
    def remember(self, batch: TensorDict) -> None:
        batch = batch.clone()
        batch["next", "observation"] = batch["observation"].clone()
        super().remember(batch)


# Many agents.


@fault(
    "mappo_mean_reward_of_batch",
    base="dfaas_mappo",
    cause="The script replaces each reward by the mean over the copies of the environment, so "
    "rewards no longer depend on the actions.",
    place="batch column ('next', 'node', 'reward')",
)
class MeanReward(DfaasMAPPO):
    def reward(self, batch: TensorDict) -> None:
        reward = batch["next", "node", "reward"]
        batch["next", "node", "reward"] = reward.mean(0, keepdim=True).expand_as(reward).clone()


@fault(
    "mappo_rolled_rewards",
    base="dfaas_mappo",
    cause="The rewards of the agents are stacked in another order than their observations: each "
    "agent gets the reward of its neighbor.",
    place="batch column ('next', 'node', 'reward'): order of agents",
)
class RolledRewards(DfaasMAPPO):
    def reward(self, batch: TensorDict) -> None:
        batch["next", "node", "reward"] = batch["next", "node", "reward"].roll(1, dims=-2)


# Sound runs.


class ErrandOne(ErrandPPO):
    copies, total = 1, 6144


class ThermostatOne(ThermostatPPO):
    copies, total = 1, 6144


class WholeBatch(PPO):
    rows, epochs, lr, max_grad = 1024, 40, 3e-3, 1e9


class OneStep(gym.Env):
    """A bandit with context: the right action is the sign of the sum of the context."""

    def __init__(self) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.context = self.np_random.normal(size=4).astype(np.float32)
        return self.context.copy(), {}

    def step(self, action: Any) -> Any:
        right = int(self.context.sum() > 0) == int(action)
        return self.context.copy(), float(right), True, False, {}


class BanditPPO(PPO):
    """Episodes of one step, and so gamma 0."""

    gamma, lmbda, total = 0.0, 0.0, 5120

    def make(self) -> gym.Env:
        return worlds.Count(OneStep())


class HugeRewards(PPO):
    """Rewards of 100 in a critic of its own: Adam does not mind."""

    lr, max_grad = 3e-3, 1e9

    def transforms(self) -> list[Transform]:
        return [RewardScaling(loc=0.0, scale=100.0)]


class HandMadeGae(PPO):
    def advantages(self, batch: TensorDict) -> TensorDict:
        return hand_made_gae(self, batch, cut=True).reshape(-1)


class NormalizedDepot(DepotPPO):
    def transforms(self) -> list[Transform]:
        return [ObservationNorm(in_keys=["observation"], standard_normal=True)]

    def prepare(self, env: Any) -> None:
        env.transform[0].init_stats(num_iter=300, reduce_dim=(0, 1), cat_dim=1)


SOUND = {
    "cartpole": (PPO, "PPO on CartPole-v1 as in the tutorial."),
    "errand": (ErrandPPO, "A late reward; most of the first episodes reach the time limit."),
    "errand_one": (ErrandOne, "One copy of the environment."),
    "depot": (DepotPPO, "Masked actions with MaskedCategorical; every episode is truncated."),
    "depot_normalized": (NormalizedDepot, "Observations normalized with 300 random steps."),
    "thermostat": (ThermostatPPO, "Continuous actions, negative rewards, gamma 0.9."),
    "thermostat_one": (ThermostatOne, "One copy of the environment."),
    "shared": (SharedPPO, "One encoder for actor and critic."),
    "whole_batch": (WholeBatch, "One minibatch for a batch, 40 epochs, no gradient clipping."),
    "bandit": (BanditPPO, "Episodes of one step: gamma and lambda 0 are right."),
    "huge_rewards": (HugeRewards, "Rewards of 100, with separate networks and no clipping."),
    "hand_made_gae": (HandMadeGae, "GAE in a loop of the user, with the right cuts."),
    "errand_dqn": (DQN, "Double DQN with soft updates of the target."),
    "cartpole_dqn": (CartPoleDQN, "Double DQN; the target is copied every 200 updates."),
    "dfaas_mappo": (DfaasMAPPO, "A team with one policy and a centralized critic."),
}
for _name, (_script, _unusual) in SOUND.items():
    plant(_name, _script, cause=_unusual, place="")

RUNS = by_name(PLANTED)
"""All scripts by name."""
