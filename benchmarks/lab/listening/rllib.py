"""Planted faults in RLlib scripts, and sound scripts beside them: ``RUNS``."""

from __future__ import annotations

import copy
import random
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
    name: str,
    script: type,
    *,
    cause: str,
    place: str,
    base: str = "",
    cited: str | None = None,
    **changed: Any,
) -> None:
    """Add a script with ``changed`` settings and methods; without a base it is sound."""
    PLANTED.append(
        Planted(
            name=f"rllib_{name}",
            framework="rllib",
            cause=cause,
            place=place,
            cited=cited,
            sound=not base,
            train=train_of(script, **changed),
            base=base and f"rllib_{base}",
            random=None if base else random_play_of(script),
        )
    )


# Environments and wrappers.


class StaleRelay(Relay):
    """Looks before it draws the next parcels."""

    def draw(self) -> None:
        self.before = getattr(self, "kind", dict.fromkeys(self.STEPS, 0))
        super().draw()

    def look(self, agents: list[str]) -> dict[str, Any]:
        return {agent: np.eye(4, dtype=np.float32)[self.before[agent]] for agent in agents}


plant(
    "stale_observation",
    TwoPolicies,
    base="two_policies",
    cause="step() builds the observations before it draws the next parcels, so every agent "
    "sees the parcel that it sorted last.",
    place="Relay.step (environment): observation",
    make=lambda: StaleRelay(),
)


class TerminatedAtLimit(gym.Wrapper):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated or truncated, False, info


plant(
    "terminated_at_limit",
    Depot,
    base="depot",
    cause="The environment reports its time limit as termination, so the value of the last state "
    "is not bootstrapped.",
    place="environment: terminated",
    cited="https://github.com/MaximilianB2/pc-gym/issues/45",
    make=lambda: TerminatedAtLimit(Depot().make()),
)


class StuckClock(worlds.Depot):
    day = 0

    def start_clock(self) -> None:
        """Forgotten: the day counts on over episodes."""


plant(
    "clock_not_reset",
    Depot,
    base="depot",
    cause="reset() does not set the day back to 0, so every episode after the first ends after "
    "its first step.",
    place="Depot.reset (environment)",
    make=lambda: worlds.Count(StuckClock()),
)


class RawDepot(worlds.Depot):
    """Observations in pieces and cents, as they come from the database."""

    def look(self) -> Any:
        seen = super().look()
        seen["observation"] = seen["observation"] * np.array([4000, 4, 4, 4000], "f4")
        return seen


plant(
    "unscaled_observation",
    Depot,
    base="depot",
    cause="Two of four features are in the thousands and nothing normalizes them: the units "
    "saturate, and the forecasts, which are small, are lost.",
    place="environment: scale of the observation",
    cited="https://github.com/gutfeeling/realdeeprl",
    make=lambda: worlds.Count(RawDepot()),
)


class FirstAgentSeen(Relay):
    def look(self, agents: list[str]) -> dict[str, Any]:
        seen = super().look(self.possible_agents)
        return dict.fromkeys(agents, seen[self.possible_agents[0]])


plant(
    "first_agents_observation",
    TwoPolicies,
    base="two_policies",
    cause="The environment gives every agent the observation of the first agent.",
    place="Relay.look (environment): observation of the packer",
    cited="https://github.com/Farama-Foundation/PettingZoo/pull/262",
    make=lambda: FirstAgentSeen(),
)


class PaysTheLiving(Relay):
    def pay(self, paid: dict[str, float], over: list[str]) -> dict[str, float]:
        rewards = super().pay(paid, over)
        alive = [agent for agent in paid if agent not in over]
        return dict.fromkeys(paid, 0.0) | {agent: rewards[agent] for agent in alive}


plant(
    "last_reward_lost",
    PaidAtEnd,
    base="paid_at_end",
    cause="The environment looks up rewards of the agents that are still alive and gives 0 to "
    "those that just ended, so the only reward, which comes at the end, never arrives.",
    place="Relay.step (environment): rewards of agents that end",
    cited="https://github.com/ray-project/ray/issues/4627",
    make=lambda: PaysTheLiving(at_end=True),
)


class EndsWithFirst(Relay):
    def all_over(self, over: list[str]) -> bool:
        return bool(over)


plant(
    "all_ends_with_first",
    PaidAtEnd,
    base="paid_at_end",
    cause="'__all__' is set when the first agent ends, so the other agent never reaches its own "
    "end, at which it would be paid.",
    place="Relay.step (environment): terminateds['__all__']",
    make=lambda: EndsWithFirst(at_end=True),
)


class FarmedErrand(gym.Wrapper):
    """A bonus for each step towards the next goal, and no malus for a step back."""

    def step(self, action: Any) -> Any:
        errand = self.env.unwrapped
        goal, before = (errand.CELLS - 1 if errand.key else 0), errand.cell
        obs, reward, terminated, truncated, info = self.env.step(action)
        nearer = abs(errand.cell - goal) < abs(before - goal)
        return obs, reward + 0.3 * nearer, terminated, truncated, info


plant(
    "farmed_bonus",
    Errand,
    base="errand",
    cause="The shaped reward pays each step towards the goal but takes nothing for a step back: "
    "walking to and fro pays more than reaching the goal.",
    place="wrapper FarmedErrand: reward",
    make=lambda: FarmedErrand(Errand().make()),
)


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


plant(
    "mask_of_reset",
    Turret,
    base="turret",
    cause="The action mask is made in reset() and never again: later in the episode legal "
    "actions are forbidden and illegal ones allowed.",
    place="Turret.look (environment): action_mask",
    make=lambda: worlds.Count(FirstMask()),
)


# Connectors and callbacks.


class AddsObs(ConnectorV2):
    """Writes observations scaled to 0 to 1 into the batch for acting."""

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        high = np.array([4.8, 4.0, 0.42, 4.0], np.float32)
        for episode in episodes:
            obs = (episode.get_observations(-1) + high) / (2 * high)
            self.add_batch_item(batch, Columns.OBS, obs.astype(np.float32), episode)
        return batch


plant(
    "scaled_only_when_acting",
    CartPole,
    base="cartpole",
    cause="An env-to-module connector puts scaled observations into the batch, but does not "
    "write them back to the episodes: the learner trains on raw ones.",
    place="env_to_module_connector: batch['obs'], episode observations",
    more=lambda config: config.env_runners(
        env_to_module_connector=lambda env=None, spaces=None, device=None: AddsObs()
    ),
)


class Shield(ConnectorV2):
    """Sends another action to the environment than the one that was sampled."""

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        batch[Columns.ACTIONS_FOR_ENV] = {
            key: [random.randint(0, 1) if random.random() < 0.5 else one for one in listed]
            for key, listed in batch[Columns.ACTIONS].items()
        }
        return batch


plant(
    "shield_unseen",
    CartPole,
    base="cartpole",
    cause="A module-to-env connector replaces half of the actions for the environment by random "
    "ones; the batch keeps the sampled ones and blames them.",
    place="module_to_env_connector: actions_for_env",
    more=lambda config: config.environment(normalize_actions=False, clip_actions=False).env_runners(
        module_to_env_connector=lambda env=None, spaces=None: Shield()
    ),
)


class UnitObservation(gym.ObservationWrapper):
    """Clips observations to the declared space."""

    def observation(self, obs: Any) -> Any:
        return np.clip(obs, 0.0, 1.0)


plant(
    "clipped_to_unit",
    CartPole,
    base="cartpole",
    cause="A wrapper clips observations to [0, 1], but positions and angles are signed: all "
    "negative values become 0.",
    place="wrapper UnitObservation: observation",
    make=lambda: UnitObservation(CartPole().make()),
)


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


plant(
    "rewards_centered",
    CartPole,
    base="cartpole",
    cause="A wrapper normalizes rewards with their running mean; CartPole's rewards are all 1, "
    "so all become 0.",
    place="wrapper RewardsToScore: reward",
    make=lambda: RewardsToScore(CartPole().make()),
)


class ShiftRewards(ConnectorV2):
    """Moves each reward to the step before."""

    def __call__(self, *, rl_module: Any, batch: Any, episodes: Any, **kwargs: Any) -> Any:
        for episode in episodes:
            rewards = np.asarray(episode.get_rewards(), dtype=np.float32)
            episode.set_rewards(new_data=np.append(rewards[1:], 0.0).astype(np.float32))
        return batch


plant(
    "rewards_shifted",
    Turret,
    base="turret",
    cause="A learner connector aligns rewards with observations by dropping the first one: each "
    "action gets the reward of the next.",
    place="learner_connector: rewards",
    more=lambda config: config.learners(
        learner_connector=lambda obs_space, act_space: ShiftRewards()
    ),
)


class RestoreBest(RLlibCallback):
    """Restores the weights of the best iteration, which stays the first."""

    best: Any = None

    def on_train_result(self, *, algorithm: Any, result: Any, **kwargs: Any) -> None:
        if self.best is None:
            self.best = copy.deepcopy(algorithm.learner_group.get_weights())
        algorithm.learner_group.set_weights(self.best)
        algorithm.env_runner.set_state({"rl_module": self.best})


plant(
    "restored_each_iteration",
    CartPole,
    base="cartpole",
    cause="A callback restores the weights of the best iteration after every iteration, but "
    "never takes new best ones: training starts again from the first.",
    place="callback on_train_result: set_weights, set_state",
    more=lambda config: config.callbacks(RestoreBest),
)


# Policies.


plant(
    "mapped_by_prefix",
    TwoPolicies,
    base="two_policies",
    cause="The mapping function looks at the first letter of the agent only; picker and packer "
    "share one policy, and the other policy gets no data.",
    place="policy_mapping_fn",
    policy_of=lambda agent, episode=None, **kwargs: "picker" if agent.startswith("p") else "packer",
)


plant(
    "mapped_at_random",
    TwoPolicies,
    base="two_policies",
    cause="The mapping function, copied from an example, draws a policy at random for every "
    "agent and episode, so both policies play both roles.",
    place="policy_mapping_fn",
    cited="https://discuss.ray.io/t/why-are-policies-randomly-assigned-to-agent-ids-in-the-mapping-function/1882",
    policy_of=lambda agent, episode=None, **kwargs: random.choice(["picker", "packer"]),
)


plant(
    "one_policy_trained",
    TwoPolicies,
    base="two_policies",
    cause="policies_to_train still names only the packer, from an experiment with a fixed "
    "picker; the picker stays random.",
    place="policies_to_train",
    trained=lambda: ["packer"],
)


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


plant(
    "no_value_function_api",
    Turret,
    base="turret",
    cause="The module defines compute_values but does not inherit ValueFunctionAPI, so RLlib "
    "computes no advantages; the learner of the user fills in zeros.",
    place="RLModule class: ValueFunctionAPI; learner: advantages",
    cited="https://discuss.ray.io/t/trouble-migrating-multi-agent-ppo-with-custom-model-action-masking-cnn-mlp-to-new-rllib-api/22848",
    module_class=NoValueFunctionAPI,
    more=lambda config: config.training(learner_class=Filled),
)


class MaskWhenActing(TurretModule):
    def _forward_train(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        hidden = self.features(batch[Columns.OBS])
        flat = torch.cat([head(hidden) for head in self.pi], dim=-1)
        return {Columns.ACTION_DIST_INPUTS: flat}


plant(
    "mask_only_when_acting",
    Turret,
    base="turret",
    cause="Only exploration applies the mask; _forward_train returns bare logits, so ratios and "
    "entropy belong to another distribution.",
    place="RLModule._forward_train",
    module_class=MaskWhenActing,
)


class SwappedMask(TurretModule):
    def logits(self, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return super().logits(hidden, torch.cat([mask[..., 3:], mask[..., :3]], dim=-1))


plant(
    "mask_parts_swapped",
    Turret,
    base="turret",
    cause="The module joins the masks of the two heads in the other order than their logits: "
    "each head is masked with parts of both.",
    place="TurretModule.logits: action_mask",
    module_class=SwappedMask,
)


class DimImage(TurretModule):
    def features(self, obs: dict[str, torch.Tensor]) -> torch.Tensor:
        return super().features({**obs, "image": obs["image"] / 255})


plant(
    "image_scaled_twice",
    Turret,
    base="turret",
    cause="The image is divided by 255 twice, in a preprocessing step and in the module: its "
    "values are below 0.004 and the network hardly sees it.",
    place="TurretModule.features: image",
    module_class=DimImage,
)


class FrozenImage(TurretModule):
    def setup(self) -> None:
        super().setup()
        for part in (self.image, self.trunk):
            part.requires_grad_(False)


plant(
    "encoder_frozen",
    Turret,
    base="turret",
    cause="requires_grad_(False), left from a test with a pretrained encoder, freezes the image "
    "encoder and the trunk at their random weights.",
    place="RLModule.setup: requires_grad_",
    module_class=FrozenImage,
)


class SoftmaxModule(PlainModule):
    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        out = super()._forward(batch, **kwargs)
        return {Columns.ACTION_DIST_INPUTS: out[Columns.ACTION_DIST_INPUTS].softmax(-1)}


plant(
    "softmax_as_logits",
    OwnModule,
    base="own_module",
    cause="The module returns probabilities as action_dist_inputs, which RLlib takes as logits: "
    "the policy cannot become certain.",
    place="RLModule._forward: action_dist_inputs",
    module_class=SoftmaxModule,
)


class TwoActors(PlainModule):
    def setup(self) -> None:
        super().setup()
        self.acting_encoder, self.acting_pi = copy.deepcopy(self.encoder), copy.deepcopy(self.pi)

    def _forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.acting_pi(self.acting_encoder(batch[Columns.OBS]))}


plant(
    "acting_copy",
    OwnModule,
    base="own_module",
    cause="_forward_exploration uses a copy of the network that setup() made and nothing "
    "updates: all data come from the initial policy.",
    place="RLModule._forward_exploration",
    module_class=TwoActors,
)


class ValuesWithoutGradient(PlainModule):
    @torch.no_grad()
    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> torch.Tensor:
        return super().compute_values(batch, embeddings)


plant(
    "values_without_gradient",
    OwnModule,
    base="own_module",
    cause="compute_values is decorated with torch.no_grad, since GAE calls it; the value loss "
    "has no gradient and the critic never learns.",
    place="RLModule.compute_values: torch.no_grad",
    module_class=ValuesWithoutGradient,
)


class DroppingModule(PlainModule):
    def setup(self) -> None:
        super().setup()
        self.encoder.insert(2, nn.Dropout(0.6))
        self.encoder.append(nn.Dropout(0.6))


plant(
    "dropout",
    OwnModule,
    base="own_module",
    cause="The module has dropout of 0.6, also in the ratio: log-probabilities of the same "
    "action differ at random between acting and training.",
    place="RLModule.setup: nn.Dropout",
    module_class=DroppingModule,
)


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


plant(
    "encoder_not_optimized",
    OwnModule,
    base="own_module",
    cause="The learner registers an optimizer for the two heads only; the shared encoder is in "
    "no optimizer and stays random.",
    place="Learner.configure_optimizers_for_module",
    cited="https://github.com/SforAiDl/genrl/issues/315",
    more=lambda config: config.training(learner_class=HeadsOnly),
)


class SmallLogits(PPOTorchLearner):
    """Adds a penalty on the logits, summed over the batch."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any):
        loss = super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )
        return loss + 0.1 * fwd_out[Columns.ACTION_DIST_INPUTS].square().sum()


plant(
    "penalty_summed",
    OwnModule,
    base="own_module",
    cause="A penalty on the logits is summed over the minibatch instead of averaged, so it "
    "outweighs the loss and keeps the policy uniform.",
    place="Learner.compute_loss_for_module",
    more=lambda config: config.training(learner_class=SmallLogits),
)


class MinusLoss(PPOTorchLearner):
    """Writes the surrogate anew and forgets that it is to be maximized."""

    def compute_loss_for_module(self, *, module_id: str, config: Any, batch: Any, fwd_out: Any):
        batch = {**batch, "advantages": -batch["advantages"]}
        return super().compute_loss_for_module(
            module_id=module_id, config=config, batch=batch, fwd_out=fwd_out
        )


plant(
    "advantages_negated",
    Turret,
    base="turret",
    cause="The learner of the user changes the sign of the advantages ('costs'), so good "
    "actions become rare.",
    place="Learner.compute_loss_for_module: advantages",
    more=lambda config: config.training(learner_class=MinusLoss),
)


# Settings.


class PreciousDepot(worlds.Depot):
    PRICE = 100.0


plant(
    "value_clip",
    CartPole,
    base="cartpole",
    cause="vf_clip_param keeps its default of 10, but squared errors of the value function are "
    "in the millions: the clipped loss has no gradient and the critic never learns.",
    place="config.training(vf_clip_param)",
    cited="https://github.com/ray-project/ray/pull/2921",
    vf_clip=10.0,
    make=lambda: gym.wrappers.TransformReward(CartPole().make(), lambda reward: 100 * reward),
)


plant(
    "schedule_in_iterations",
    CartPole,
    base="cartpole",
    cause="The learning rate's schedule is written in iterations, but RLlib counts env steps: "
    "the rate is 0 before the second iteration.",
    place="config.training(lr=[[0, 0.002], [8, 0.0]])",
    lr=[[0, 2e-3], [8, 0.0]],
)


plant(
    "explore_false",
    Errand,
    base="errand",
    cause="explore=False, meant for evaluation, makes the env runner play greedily during "
    "training.",
    place="config.env_runners(explore=False)",
    more=lambda config: config.env_runners(explore=False),
)


plant(
    "short_sight",
    Errand,
    base="errand",
    cause="gamma is 0.3 in a task whose only reward comes after many steps.",
    place="config.training(gamma)",
    gamma=0.3,
)


plant(
    "no_clip",
    CartPole,
    base="cartpole",
    cause="clip_param is 0, meant to switch clipping off; it clips every change of the ratio.",
    place="config.training(clip_param)",
    clip=0.0,
)


plant(
    "value_loss_dominates",
    OwnModule,
    base="own_module",
    cause="A shared encoder with vf_loss_coeff 1, rewards of 100 and a gradient clipped to a norm "
    "of 0.5: hardly anything of the actor's gradient remains.",
    place="config.training(vf_loss_coeff, grad_clip), reward scale",
    vf_coeff=1.0,
    make=lambda: gym.wrappers.TransformReward(OwnModule().make(), lambda reward: 100 * reward),
)


plant(
    "learning_rate",
    Dfaas,
    base="dfaas",
    cause="The learning rate is 0.3: the first updates saturate the policy.",
    place="config.training(lr)",
    lr=0.3,
    grad_clip=1e9,
)


plant(
    "entropy_everything",
    Dfaas,
    base="dfaas",
    cause="entropy_coeff is 3, copied from a task with rewards in the thousands: the policy "
    "stays uniform.",
    place="config.training(entropy_coeff)",
    entropy=3.0,
)


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
