"""Planted faults and sound runs of training loops in plain torch (``loops.py``).

``RUNS`` has all of them. A fault is a subclass that replaces one small part of a sound loop.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from loops import (
    DQN,
    PPO,
    ActorCritic,
    Columns,
    ContinuousPPO,
    Copies,
    MaskedPPO,
    Reinforce,
    Replay,
    layer,
)
from planted import Listen, Planted, by_name
from tasks import CartPole, Catch, Errands, Make, Recall, Scores, Stock, of, random_play
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Independent, Normal

torch.set_num_threads(1)

PLANTED: list[Planted] = []
Loop = TypeVar("Loop", bound=type)


def training(loop: Any) -> Callable[[Listen, int], float]:
    return lambda listen, seed: loop(seed).learn(listen)


def fault(
    name: str, base: str, cause: str, place: str, cited: str | None = None
) -> Callable[[Loop], Loop]:
    """Plant the decorated loop."""

    def plant(loop: Loop) -> Loop:
        one = Planted(name, "plain", cause, place, cited, False, training(loop), base)
        PLANTED.append(one)
        return loop

    return plant


def sound(name: str, note: str, make: Make | None = None) -> Callable[[Loop], Loop]:
    """Plant the decorated loop as a sound run."""

    def plant(loop: Any) -> Any:
        played = random_play(make or loop.make)
        one = Planted(name, "plain", note, "", None, True, training(loop), random=played)
        PLANTED.append(one)
        return loop

    return plant


# --- Sound runs ----------------------------------------------------------------------------------

sound("plain_cartpole", "PPO on the cart-pole.")(PPO)
sound("plain_errands", "PPO with masks.")(MaskedPPO)
sound("plain_reach", "PPO with continuous actions, clipped where they are taken.")(ContinuousPPO)
sound("plain_reinforce", "REINFORCE with a mean baseline on sparse rewards.")(Reinforce)
sound("plain_dqn", "DQN with a target network on sparse rewards.")(DQN)


@sound("plain_stock", "PPO on a game without an end, cut after 50 days; cuts bootstrap.")
class StockPPO(PPO):
    make = staticmethod(of(Stock))
    updates, minibatch = 24, 256


class Counts(gym.ObservationWrapper[Any, Any, Any]):
    """Observations as a converter delivers them: counts around 500."""

    SCALE = np.array([100, 50, 1000, 50], np.float32)
    OFFSET = 500.0

    def observation(self, observation: Any) -> Any:
        return (observation * self.SCALE + self.OFFSET).astype(np.float32)


class Standardized(gym.ObservationWrapper[Any, Any, Any]):
    """Counts with their usual mean and deviation taken away."""

    MEAN, STD = 500.0, 60.0

    def observation(self, observation: Any) -> Any:
        return (observation - self.MEAN) / self.STD


@sound("plain_counts", "PPO on the cart-pole in counts, standardized with constants.")
class CountsPPO(PPO):
    make = staticmethod(of(CartPole, Counts, Standardized))


class Scaled(gym.ObservationWrapper[Any, Any, Any]):
    """Images as floats in 0 .. 1."""

    def observation(self, observation: Any) -> Any:
        return observation.astype(np.float32) / 255


@sound("plain_catch", "PPO on images, sparse rewards.")
class CatchPPO(PPO):
    make = staticmethod(of(Catch, Scaled))
    updates, epochs, minibatch = 20, 6, 256


@sound("plain_tiny", "PPO on the errands with 6 hidden units: it learns, but less than others.")
class TinyPPO(MaskedPPO):
    hidden = 6


@sound("plain_entropy", "PPO on images with 20 times the usual entropy weight.")
class HighEntropyPPO(CatchPPO):
    entropy_weight = 0.2


@sound("plain_single", "One single update: far too short to learn, but no fault.")
class SingleUpdatePPO(PPO):
    updates = 1


@sound("plain_frozen", "The first layers are pretrained and frozen on purpose.")
class FrozenEncoderPPO(PPO):
    updates = 24

    def __init__(self, seed: int) -> None:
        taught = PPO(seed)
        taught.updates = 8
        self.encoder = taught.net
        taught.learn(lambda **_: _Deaf())
        super().__init__(seed)

    def network(self) -> Any:
        net = copy.deepcopy(self.encoder)
        for head in (net.actor, net.critic):
            for part in head[:3]:
                part.requires_grad_(False)
        net.actor[-1] = layer(self.hidden, self.outputs(), 0.01)
        return net

    def make_optimizer(self) -> torch.optim.Optimizer:
        free = [weight for weight in self.net.parameters() if weight.requires_grad]
        return torch.optim.Adam(free, lr=self.rate, eps=1e-5)


class _Deaf:
    def rollout(self, **columns: Any) -> None: ...

    def batch(self, **columns: Any) -> None: ...


class Flat(gym.ObservationWrapper[Any, Any, Any]):
    """The features of a corral seat, as a vector; its masks come from ``action_masks()``."""

    def __init__(self, env: Any) -> None:
        super().__init__(env)
        inner: Any = env.observation_space["observation"]
        self.observation_space = spaces.Box(0.0, 1.0, (int(np.prod(inner.shape)),), np.float32)

    def observation(self, observation: Any) -> Any:
        return np.asarray(observation["observation"], np.float32).ravel()


def tictactoe() -> Any:
    """One seat of corral's tic-tac-toe against random play."""
    import corral  # noqa: F401  (registers corral/...)

    return gym.make("corral/tictactoe-v0", seat="player_1", illegal="raise")


@sound("plain_tictactoe", "PPO with masks on one seat of corral's tic-tac-toe.")
class TicTacToePPO(PPO):
    make = staticmethod(of(tictactoe, Flat))  # type: ignore[arg-type]
    length, updates = 64, 20


class Columns24:
    """corral's edge servers: 8 copies of 3 agents as 24 columns, each with its own mask."""

    B, CYCLES = 8, 48

    def __init__(self, seed: int) -> None:
        from corral.adapters import make_batch

        self.batch = make_batch(
            "dfaas_v0",
            num_envs=self.B,
            seed=seed,
            illegal="raise",
            trace="edge3",
            rows=(0, 2822),
            max_cycles=self.CYCLES,
        )
        self.scores = Scores()
        self.earned = np.zeros(self.B)
        self.action_space = spaces.Discrete(101)
        self.obs_shape = (7,)

    def split(self, observations: Any) -> tuple[np.ndarray, np.ndarray]:
        parts = list(observations.values())
        obs = np.stack([part["observation"] for part in parts], axis=1)
        mask = np.stack([part["action_mask"] for part in parts], axis=1) == 1
        return obs.reshape(-1, 7).astype(np.float32), mask.reshape(-1, 101)

    def reset(self) -> tuple[np.ndarray, np.ndarray]:
        return self.split(self.batch.reset())

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        step = self.batch.step(actions.reshape(self.B, -1))
        obs, mask = self.split(step.observations)
        after = obs.copy().reshape(self.B, 3, -1)
        self.earned += np.asarray(step.reward).sum(1)
        if step.finished is not None:
            rows = step.finished.rows
            after[rows] = self.split(step.finished.observations)[0].reshape(len(rows), 3, -1)
            self.scores.returns.extend(self.earned[rows].tolist())
            self.earned[rows] = 0
        outcome = (np.asarray(x) for x in (step.reward, step.terminated, step.truncated))
        rewards, terminated, truncated = (x.astype(np.float32).reshape(-1) for x in outcome)
        return obs, mask, rewards, terminated, truncated, after.reshape(obs.shape)


def random_servers(seed: int) -> float:
    envs = Columns24(seed)
    rng = np.random.default_rng(seed)
    _, mask = envs.reset()
    while len(envs.scores.returns) < 32:
        _, mask, *_ = envs.step(np.array([rng.choice(np.flatnonzero(row)) for row in mask]))
    return float(np.mean(envs.scores.returns))


class ServersPPO(PPO):
    """corral's dfaas_v0 through make_batch: all agents share one policy."""

    length, updates, gamma = 48, 24, 0.5
    minibatch, entropy_weight = 288, 0.003

    def environments(self, seed: int) -> Any:
        return Columns24(seed)


PLANTED.append(
    Planted(
        "plain_servers",
        "plain",
        "PPO with masks of 101 actions on corral's dfaas_v0, a discount of 0.5.",
        "",
        None,
        True,
        training(ServersPPO),
        random=random_servers,
    )
)

# --- Environments and wrappers -------------------------------------------------------------------


class ReusedBuffer(Copies):
    def stack(self, observations: list[Any]) -> np.ndarray:
        if not hasattr(self, "buffer"):
            self.buffer = np.stack(observations).astype(np.float32)
        self.buffer[:] = observations
        return self.buffer


@fault(
    "plain_reused_buffer",
    "plain_cartpole",
    "The environments return one array and overwrite it in each step. All observations of a "
    "rollout are the same array, with the last observation in it.",
    "ReusedBuffer.stack: obs column of the rollout",
    "https://github.com/google-deepmind/dm_control/issues/34",
)
class ReusedBufferPPO(PPO):
    copies_class = ReusedBuffer


class Precedence(Standardized):
    def observation(self, observation: Any) -> Any:
        return observation - self.MEAN / self.STD


@fault(
    "plain_precedence",
    "plain_counts",
    "The standardization lacks brackets: observation - mean / std. Inputs stay near 490.",
    "Precedence.observation: obs",
    "https://github.com/openai/baselines/issues/802",
)
class PrecedencePPO(PPO):
    make = staticmethod(of(CartPole, Counts, Precedence))


class LateReward(gym.Wrapper[Any, Any, Any, Any]):
    """The reward is computed before the state is updated."""

    def reset(self, **options: Any) -> Any:
        self.reward = 0.0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        obs, reward, *rest = self.env.step(action)
        late, self.reward = self.reward, float(reward)
        return obs, late, *rest


@fault(
    "plain_late_reward",
    "plain_catch",
    "The wrapper returns the reward of the previous step, so the last reward of each episode, "
    "the only one in this game, is lost.",
    "LateReward.step: rewards",
)
class LateRewardPPO(CatchPPO):
    make = staticmethod(of(Catch, Scaled, LateReward))


class LateObservation(gym.Wrapper[Any, Any, Any, Any]):
    def reset(self, **options: Any) -> Any:
        self.obs, info = self.env.reset(**options)
        return self.obs, info

    def step(self, action: Any) -> Any:
        late = self.obs
        self.obs, *rest = self.env.step(action)
        return late, *rest


@fault(
    "plain_late_observation",
    "plain_cartpole",
    "The wrapper returns the observation from before the step: the policy sees the state of one "
    "step ago.",
    "LateObservation.step: obs",
)
class LateObservationPPO(PPO):
    make = staticmethod(of(CartPole, LateObservation))


class FallIsCut(gym.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, False, terminated or truncated, info


@fault(
    "plain_fall_is_cut",
    "plain_cartpole",
    "A wrapper from the old interface reports every end as truncated. The loop bootstraps after "
    "a fall, so no state is worse than another.",
    "FallIsCut.step: terminated, truncated",
)
class FallIsCutPPO(PPO):
    make = staticmethod(of(CartPole, FallIsCut))


class NextStepReset(Copies):
    """As gymnasium 1.0 resets: in the step after an end, whose action has no effect."""

    def step(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        if not hasattr(self, "over"):
            self.over = [False] * len(self.envs)
        rows = []
        for index, env in enumerate(self.envs):
            if self.over[index]:
                rows.append((self.restart(index), 0.0, False, False))
            else:
                rows.append(env.step(actions[index])[:4])
            self.over[index] = bool(rows[-1][2] or rows[-1][3])
        observations, rewards, terminated, truncated = (list(x) for x in zip(*rows, strict=True))
        obs = self.stack(observations)
        outcome = (np.array(x, np.float32) for x in (rewards, terminated, truncated))
        return obs, self.masks(), *outcome, obs


@fault(
    "plain_next_step_reset",
    "plain_catch",
    "The environments reset in the step after an end (gymnasium 1.0), the loop expects a reset "
    "in the same step. One row per episode has an ignored action, a reward of 0 and a next "
    "observation of another episode.",
    "NextStepReset.step: obs, actions, rewards after an end",
    "https://github.com/vwxyzjn/cleanrl/issues/499",
)
class NextStepResetPPO(CatchPPO):
    copies_class = NextStepReset


class SameSeed(Copies):
    def begin(self, index: int) -> Any:
        return self.envs[index].reset(seed=self.seed)[0]

    def restart(self, index: int) -> Any:
        return self.begin(index)


@fault(
    "plain_same_seed",
    "plain_errands",
    "Every reset passes the seed, so each episode has the same layout. The policy learns this one "
    "and fails in others; its training returns look well.",
    "SameSeed.restart: reset(seed=...)",
)
class SameSeedPPO(MaskedPPO):
    copies_class = SameSeed

    def score(self) -> float:
        """The mean return on layouts that differ."""
        self.envs = Copies(self.make, self.copies, 77)
        del self.obs
        for _ in range(4):
            self.play()
        return self.envs.scores.mean()


class NoVelocity(gym.ObservationWrapper[Any, Any, Any]):
    def observation(self, observation: Any) -> Any:
        return observation[[0, 0, 2, 2]]


@fault(
    "plain_no_velocity",
    "plain_cartpole",
    "A wrapper selects the wrong columns: position and angle twice, no velocities.",
    "NoVelocity.observation: columns 1 and 3 of obs",
)
class NoVelocityPPO(PPO):
    make = staticmethod(of(CartPole, NoVelocity))


class Hover(gym.Wrapper[Any, Any, Any, Any]):
    """Shaping: the closeness to the goal in each step, not its change."""

    def step(self, action: Any) -> Any:
        obs, reward, *rest = self.env.step(action)
        return obs, float(reward) + 0.3 * (1 - float(np.abs(obs[-2:]).sum()) / 2), *rest


@fault(
    "plain_hover",
    "plain_errands",
    "The shaping reward pays the closeness to the goal in every step instead of its change, so "
    "waiting beside the door pays more than to open it.",
    "Hover.step: rewards",
)
class HoverPPO(MaskedPPO):
    make = staticmethod(of(Errands, Hover))


class Sign(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return float(np.sign(reward))


@fault(
    "plain_reward_sign",
    "plain_stock",
    "Rewards are clipped to their sign, as for Atari. The size of profits and losses is lost.",
    "Sign.reward: rewards",
)
class RewardSignPPO(StockPPO):
    make = staticmethod(of(Stock, Sign))


class StaleMask(gym.Wrapper[Any, Any, Any, Any]):
    def reset(self, **options: Any) -> Any:
        result = self.env.reset(**options)
        self.mask = self.env.get_wrapper_attr("action_masks")()
        return result

    def step(self, action: Any) -> Any:
        self.mask = self.env.get_wrapper_attr("action_masks")()
        return self.env.step(action)

    def action_masks(self) -> np.ndarray:
        return self.mask


@fault(
    "plain_stale_mask",
    "plain_errands",
    "The wrapper computes the mask before the step, so each mask is that of the previous state.",
    "StaleMask.step: mask",
)
class StaleMaskPPO(MaskedPPO):
    make = staticmethod(of(Errands, StaleMask))


class SwappedMask(gym.Wrapper[Any, Any, Any, Any]):
    def action_masks(self) -> np.ndarray:
        return self.env.get_wrapper_attr("action_masks")()[[0, 1, 2, 3, 5, 4]]


@fault(
    "plain_swapped_mask",
    "plain_errands",
    "Two columns of the mask are in the wrong order: the legal actions take and open never are "
    "allowed where they work.",
    "SwappedMask.action_masks: columns 4 and 5 of mask",
)
class SwappedMaskPPO(MaskedPPO):
    make = staticmethod(of(Errands, SwappedMask))


class Cents(gym.RewardWrapper[Any, Any]):
    def reward(self, reward: Any) -> float:
        return 1000 * float(reward)


class SharedTrunk(nn.Module):
    """Actor and critic on the same features."""

    def __init__(self, inputs: int, outputs: int, hidden: int = 64) -> None:
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Flatten(), layer(inputs, hidden), nn.Tanh(), layer(hidden, hidden), nn.Tanh()
        )
        self.actor_head, self.critic_head = layer(hidden, outputs, 0.01), layer(hidden, 1, 1.0)

    def actor(self, obs: Tensor) -> Tensor:
        return self.actor_head(self.trunk(obs))

    def value(self, obs: Tensor) -> Tensor:
        return self.critic_head(self.trunk(obs)).squeeze(-1)


@fault(
    "plain_huge_rewards",
    "plain_stock",
    "Rewards are in thousandths and not scaled; actor and critic share features and one gradient "
    "clip. The value loss of about 1e9 drowns the policy's gradient.",
    "Cents.reward: rewards; value_weight",
)
class HugeRewardsPPO(StockPPO):
    make = staticmethod(of(Stock, Cents))

    def network(self) -> Any:
        return SharedTrunk(int(np.prod(self.envs.obs_shape)), self.outputs())


# --- Data: advantages, returns, masks, log-probabilities, ends, indices --------------------------


@fault(
    "plain_cut_is_end",
    "plain_stock",
    "A cut by the time limit is treated as a termination: its next value counts as 0.",
    "CutIsEndPPO.bootstrap: truncated",
    "https://github.com/vwxyzjn/cleanrl/issues/457",
)
class CutIsEndPPO(StockPPO):
    def bootstrap(self, rollout: Columns) -> Tensor:
        return super().bootstrap(rollout) * (1 - rollout["truncated"])


@fault(
    "plain_end_one_late",
    "plain_catch",
    "Advantages use the end flag of the previous row (dones[t] for dones[t + 1]): values pass "
    "over each end, and the second step of an episode is cut off.",
    "EndOneLatePPO.bootstrap, over: terminated shifted by one row",
)
class EndOneLatePPO(CatchPPO):
    def estimate(self, rollout: Columns) -> None:
        ended = rollout["terminated"]
        rollout["terminated"] = torch.cat([torch.zeros_like(ended[:1]), ended[:-1]])
        super().estimate(rollout)
        rollout["terminated"] = ended


@fault(
    "plain_trace_over_ends",
    "plain_catch",
    "The trace of the advantages is not cut at ends, so errors of the next episodes enter those "
    "of earlier ones.",
    "TraceOverEndsPPO.over: advantages",
)
class TraceOverEndsPPO(CatchPPO):
    lam, gamma = 0.98, 0.995

    def over(self, rollout: Columns) -> Tensor:
        return torch.zeros_like(rollout["terminated"])


@fault(
    "plain_returns_of_normalized",
    "plain_cartpole",
    "Advantages are normalized before the returns are computed from them, so the critic's targets "
    "are its own values plus noise of size 1.",
    "ReturnsOfNormalizedPPO.estimate: returns",
)
class ReturnsOfNormalizedPPO(PPO):
    def estimate(self, rollout: Columns) -> None:
        super().estimate(rollout)
        rollout["advantages"] = self.normalized(rollout["advantages"])
        rollout["returns"] = rollout["advantages"] + rollout["values"]


@fault(
    "plain_value_broadcast",
    "plain_errands",
    "Values [R, 1] minus returns [R] is [R, R]: each value is fitted to all returns, and becomes "
    "their mean.",
    "ValueBroadcastPPO.value_loss: values, returns",
    "https://github.com/RLinf/RLinf/issues/1568",
)
class ValueBroadcastPPO(MaskedPPO):
    def value_loss(self, mb: Columns) -> Tensor:
        return (self.net.value(mb["obs"])[:, None] - mb["returns"]).square().mean()


@fault(
    "plain_advantage_broadcast",
    "plain_cartpole",
    "The ratio is [R, 1] and the advantages are [R]: the product is [R, R], and the mean over it "
    "multiplies each ratio by all advantages, whose mean is 0.",
    "AdvantageBroadcastPPO.ratio: advantages",
    "https://github.com/PacktPublishing/Deep-Reinforcement-Learning-Hands-On/issues/74",
)
class AdvantageBroadcastPPO(PPO):
    def ratio(self, mb: Columns, new_log_probs: Tensor) -> Tensor:
        return super().ratio(mb, new_log_probs)[:, None]


@fault(
    "plain_ratio_one",
    "plain_cartpole",
    "The old log-probabilities are computed again in the update, from the present policy: the "
    "ratio is always 1 and the clip never acts.",
    "RatioOnePPO.ratio: log_probs",
    "https://github.com/tensorforce/tensorforce/issues/312",
)
class RatioOnePPO(PPO):
    def ratio(self, mb: Columns, new_log_probs: Tensor) -> Tensor:
        return (new_log_probs - new_log_probs.detach()).exp()


@fault(
    "plain_mask_only_played",
    "plain_servers",
    "Masks are applied in the rollout, not in the update: ratio and entropy are those of another "
    "distribution.",
    "MaskOnlyPlayedPPO.loss: mask",
    "https://github.com/hill-a/stable-baselines/pull/453",
)
class MaskOnlyPlayedPPO(ServersPPO):
    def loss(self, mb: Columns) -> tuple[Tensor, Tensor, Tensor]:
        return super().loss({**mb, "mask": torch.ones_like(mb["mask"])})


@fault(
    "plain_clipped_stored",
    "plain_reach",
    "The clipped action is stored and its log-probability used, not that of the sampled action.",
    "ClippedStoredPPO.choose: actions, log_probs",
    "https://github.com/vwxyzjn/cleanrl/issues/240",
)
class ClippedStoredPPO(ContinuousPPO):
    def choose(self, policy: Distribution) -> tuple[Tensor, Tensor]:
        taken, _ = super().choose(policy)
        return taken, taken


@fault(
    "plain_misaligned_rows",
    "plain_errands",
    "Observations and actions of a minibatch are shuffled rows, the advantages are rows in order.",
    "MisalignedRowsPPO.minibatches: advantages",
)
class MisalignedRowsPPO(MaskedPPO):
    def minibatches(self, batch: Columns) -> Iterator[Columns]:
        ordered = batch["advantages"].split(self.minibatch)
        for index, mb in enumerate(super().minibatches(batch)):
            yield {**mb, "advantages": ordered[index % len(ordered)]}


@fault(
    "plain_transposed",
    "plain_errands",
    "Advantages and returns are flattened by copies first, all other columns by time first.",
    "TransposedPPO.flatten: advantages, returns",
)
class TransposedPPO(MaskedPPO):
    def flatten(self, rollout: Columns) -> Columns:
        batch = super().flatten(rollout)
        for name in ("advantages", "returns"):
            batch[name] = rollout[name].T.flatten()
        return batch


class AfterReset(Copies):
    def step(self, actions: np.ndarray) -> tuple[np.ndarray, ...]:
        obs, *rest, _ = super().step(actions)
        return obs, *rest, obs


@fault(
    "plain_after_reset",
    "plain_stock",
    "At a cut the loop bootstraps from the first observation of the next episode, as the last "
    "one of the cut episode is lost in the reset.",
    "AfterReset.step: next observation at truncated",
    "https://github.com/openai/gym/issues/3177",
)
class AfterResetPPO(StockPPO):
    copies_class = AfterReset


@fault(
    "plain_rollouts_kept",
    "plain_cartpole",
    "The lists of the rollout are never cleared: each update also uses all earlier rollouts, with "
    "their old advantages.",
    "RolloutsKeptPPO.flatten: all columns",
)
class RolloutsKeptPPO(PPO):
    epochs = 1

    def flatten(self, rollout: Columns) -> Columns:
        self.kept = [*getattr(self, "kept", []), super().flatten(rollout)]
        return {name: torch.cat([one[name] for one in self.kept]) for name in rollout}


@fault(
    "plain_uint8_storage",
    "plain_catch",
    "The buffer stores observations as uint8, but they were scaled to 0 .. 1: nearly all become 0. "
    "The policy plays on other inputs than those it is updated on.",
    "Uint8StoragePPO.stack: obs",
)
class Uint8StoragePPO(CatchPPO):
    def stack(self, rows: list[Columns]) -> Columns:
        columns = super().stack(rows)
        columns["obs"] = columns["obs"].to(torch.uint8).float()
        return columns


@fault(
    "plain_greedy_stored",
    "plain_errands",
    "The action with the highest probability is stored, with its log-probability, but a sampled "
    "one is taken.",
    "GreedyStoredPPO.choose: actions",
)
class GreedyStoredPPO(MaskedPPO):
    def choose(self, policy: Distribution) -> tuple[Tensor, Tensor]:
        taken, _ = super().choose(policy)
        return taken, policy.mode


@fault(
    "plain_reinforce_past",
    "plain_reinforce",
    "Returns sum the rewards of the past instead of those to come, as the loop runs forward.",
    "ForwardReturns.returns: returns",
)
class ForwardReturns(Reinforce):
    def returns(self, rewards: Tensor) -> Tensor:
        returns, so_far = torch.zeros_like(rewards), torch.tensor(0.0)
        for t in range(len(rewards)):
            so_far = rewards[t] + self.gamma * so_far
            returns[t] = so_far
        return returns


@fault(
    "plain_reinforce_means",
    "plain_reinforce",
    "The loss is the mean log-probability times the mean advantage, not the mean of their product.",
    "MeanOfMeans.loss: loss",
)
class MeanOfMeans(Reinforce):
    def loss(self, log_probs: Tensor, advantages: Tensor) -> Tensor:
        return -log_probs.mean() * advantages.mean()


@fault(
    "plain_reinforce_per_episode",
    "plain_reinforce",
    "Returns are standardized within each episode. As all rewards come at the end, the sign of "
    "the result is lost: lost and won episodes have the same advantages.",
    "WithinEpisode.returns: advantages",
)
class WithinEpisode(Reinforce):
    def returns(self, rewards: Tensor) -> Tensor:
        returns = super().returns(rewards)
        return (returns - returns.mean()) / (returns.std() + 1e-8)

    def advantages(self, returns: Tensor) -> Tensor:
        return returns


@fault(
    "plain_dqn_same_obs",
    "plain_dqn",
    "The loop assigns obs = after before it stores the transition, so both observations are the "
    "later one.",
    "SameObservation.remember: obs",
)
class SameObservation(DQN):
    def remember(
        self, obs: Any, action: int, reward: float, terminated: bool, truncated: bool, after: Any
    ) -> None:
        obs = after
        super().remember(obs, action, reward, terminated, truncated, after)


class Unfilled(Replay):
    def rows(self, count: int, rng: np.random.Generator) -> np.ndarray:
        return rng.integers(self.capacity, size=count)


@fault(
    "plain_dqn_unfilled",
    "plain_dqn",
    "Minibatches are drawn from the whole ring, also from the part that is not filled: most rows "
    "are zeros.",
    "Unfilled.rows: obs, actions, rewards",
)
class UnfilledDQN(DQN):
    replay_class = Unfilled
    capacity = 500_000


@fault(
    "plain_dqn_no_ends",
    "plain_dqn",
    "The end flag that is stored is truncated instead of terminated, so targets go on after an "
    "end.",
    "NoEnds.remember: terminated",
)
class NoEnds(DQN):
    def remember(
        self, obs: Any, action: int, reward: float, terminated: bool, truncated: bool, after: Any
    ) -> None:
        super().remember(obs, action, reward, truncated, truncated, after)


@fault(
    "plain_dqn_greedy_value",
    "plain_dqn",
    "The loss uses the highest value instead of the value of the action that was taken.",
    "GreedyValue.values: values",
)
class GreedyValue(DQN):
    def values(self, mb: Columns) -> Tensor:
        return self.net(mb["obs"]).max(-1).values


@fault(
    "plain_dqn_global_max",
    "plain_dqn",
    "The maximum is taken over the whole minibatch, as its dimension is missing: all targets share "
    "one next value.",
    "GlobalMax.targets: returns",
)
class GlobalMax(DQN):
    def targets(self, mb: Columns) -> Tensor:
        with torch.no_grad():
            best = self.target(mb["after"]).max()
        return mb["rewards"] + self.gamma * (1 - mb["terminated"]) * best


# --- Network, optimizer, schedule ----------------------------------------------------------------


@fault(
    "plain_probs_as_logits",
    "plain_errands",
    "The network ends in a softmax and its probabilities are given to Categorical as logits: no "
    "action can have more than e times the probability of another.",
    "ProbsAsLogitsPPO.policy: actor output",
    "https://github.com/ekapolc/RL_course_2019/pull/6",
)
class ProbsAsLogitsPPO(MaskedPPO):
    def policy(self, obs: Tensor, mask: Tensor) -> Distribution:
        probs = self.net.actor(obs).softmax(-1)
        return Categorical(logits=probs.masked_fill(~mask, -torch.inf))


@fault(
    "plain_stale_optimizer",
    "plain_cartpole",
    "The network is copied after the optimizer was made, so the optimizer steps the parameters of "
    "the old one. The policy never changes.",
    "StaleOptimizerPPO.__init__: optimizer parameters",
)
class StaleOptimizerPPO(PPO):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.net = copy.deepcopy(self.net)


@fault(
    "plain_critic_left_out",
    "plain_stock",
    "Only the actor's parameters are given to the optimizer: the critic stays as it was made.",
    "CriticLeftOutPPO.make_optimizer: critic parameters",
)
class CriticLeftOutPPO(StockPPO):
    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.net.actor.parameters(), lr=self.rate, eps=1e-5)


@fault(
    "plain_entropy_sign",
    "plain_catch",
    "The entropy bonus has the wrong sign: the loss lowers the entropy.",
    "EntropySignPPO.total: entropy",
)
class EntropySignPPO(CatchPPO):
    entropy_weight = 0.1

    def total(self, surrogate: Tensor, value_loss: Tensor, entropy: Tensor) -> Tensor:
        return -surrogate + self.value_weight * value_loss + self.entropy_weight * entropy


@fault(
    "plain_rate_ends_early",
    "plain_cartpole",
    "The schedule of the learning rate counts minibatches but divides by updates, so the rate is 0 "
    "after a few updates.",
    "RateEndsEarlyPPO.anneal: learning rate",
)
class RateEndsEarlyPPO(PPO):
    def anneal(self, update: int) -> None:
        done = update * (self.copies * self.length // self.minibatch) * self.epochs
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * max(0.0, 1 - done / self.updates)


@fault(
    "plain_no_zero_grad",
    "plain_cartpole",
    "Gradients are never set to zero: each step uses the sum of all earlier ones.",
    "NoZeroGradPPO.descend: optimizer.zero_grad",
)
class NoZeroGradPPO(PPO):
    def descend(self, loss: Tensor) -> None:
        loss.backward()
        nn.utils.clip_grad_norm_(self.net.parameters(), self.max_norm)
        self.optimizer.step()


@fault(
    "plain_relu_logits",
    "plain_errands",
    "The actor ends in a ReLU: logits are not negative, and an action whose logit is 0 gets no "
    "gradient.",
    "ReluLogitsPPO.network: last layer of the actor",
)
class ReluLogitsPPO(MaskedPPO):
    def network(self) -> Any:
        net = super().network()
        net.actor.append(nn.ReLU())
        return net


@fault(
    "plain_saturated",
    "plain_errands",
    "The last layer of the actor starts with weights 3,000 times too large: the policy is "
    "deterministic from the start and hardly explores.",
    "SaturatedPPO.network: gain of the actor's last layer",
)
class SaturatedPPO(MaskedPPO):
    def network(self) -> Any:
        net = super().network()
        net.actor[-1] = layer(self.hidden, self.outputs(), 30.0)
        return net


@fault(
    "plain_dropout",
    "plain_cartpole",
    "The actor has dropout of 0.5, active in the rollout and in the update with different draws: "
    "stored and new log-probabilities are those of different networks.",
    "DropoutPPO.network: nn.Dropout, train mode",
)
class DropoutPPO(PPO):
    def network(self) -> Any:
        net = super().network()
        net.actor.insert(3, nn.Dropout(0.5))
        net.actor.insert(6, nn.Dropout(0.5))
        return net


@fault(
    "plain_batch_norm",
    "plain_cartpole",
    "The actor normalizes by the statistics of each batch. In the rollout a batch is 8 copies, in "
    "the update a minibatch: the same observation has different outputs.",
    "BatchNormPPO.network: nn.BatchNorm1d, train mode",
)
class BatchNormPPO(PPO):
    def network(self) -> Any:
        net = super().network()
        net.actor.insert(2, nn.BatchNorm1d(self.hidden))
        net.actor.insert(5, nn.BatchNorm1d(self.hidden))
        return net


@fault(
    "plain_max_of_clip",
    "plain_cartpole",
    "The surrogate takes the larger of the clipped and the free term, so the clip bounds nothing "
    "that helps and stops what should be corrected.",
    "MaxOfClipPPO.surrogate: min",
)
class MaxOfClipPPO(PPO):
    def surrogate(self, ratio: Tensor, advantages: Tensor) -> Tensor:
        clipped = ratio.clamp(1 - self.clip, 1 + self.clip)
        return torch.max(ratio * advantages, clipped * advantages).mean()


@fault(
    "plain_ratio_reversed",
    "plain_catch",
    "The formula of OpenAI's baselines, for negative log-probabilities, is applied to "
    "log-probabilities: the ratio is old to new, and good actions become less likely.",
    "RatioReversedPPO.ratio: log_probs",
    "https://github.com/openai/baselines/issues/1218",
)
class RatioReversedPPO(CatchPPO):
    def ratio(self, mb: Columns, new_log_probs: Tensor) -> Tensor:
        return (mb["log_probs"] - new_log_probs).exp()


@fault(
    "plain_shared_std",
    "plain_reach",
    "The policy's deviation is exp(exp(log_std)): log_std is given to Normal's exp twice, so it "
    "never falls below 1.",
    "DoubleExpPPO.policy: log_std",
)
class DoubleExpPPO(ContinuousPPO):
    def policy(self, obs: Tensor, mask: Tensor) -> Distribution:
        return Independent(Normal(self.net.actor(obs), self.net.log_std.exp().exp()), 1)


class Norms(nn.Module):
    """An actor and critic that standardize observations by running statistics."""

    def __init__(self, inner: ActorCritic, inputs: int) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("mean", torch.zeros(inputs))
        self.register_buffer("std", torch.ones(inputs))

    def absorb(self, obs: Tensor, share: float) -> None:
        flat = obs.flatten(0, -2)
        self.mean += share * (flat.mean(0) - self.mean)
        self.std += share * (flat.std(0) - self.std)

    def scaled(self, obs: Tensor) -> Tensor:
        return ((obs - self.mean) / (self.std + 1e-6)).clamp(-10, 10)

    def actor(self, obs: Tensor) -> Tensor:
        return self.inner.actor(self.scaled(obs))

    def value(self, obs: Tensor) -> Tensor:
        return self.inner.value(self.scaled(obs))


@sound(
    "plain_running_norm",
    "Observations are standardized by running statistics, updated after each update.",
)
class RunningNormPPO(PPO):
    make = staticmethod(of(CartPole, Counts))

    def network(self) -> Any:
        return Norms(super().network(), int(np.prod(self.envs.obs_shape)))

    def learn(self, listen: Any) -> float:
        self.net.absorb(self.play()["obs"], 1.0)
        return super().learn(listen)

    def anneal(self, update: int) -> None:
        super().anneal(update)
        if update:
            self.net.absorb(self.seen, 0.1)

    def after_rollout(self, rollout: Columns) -> None:
        self.seen = rollout["obs"]


@fault(
    "plain_norm_moves",
    "plain_running_norm",
    "The running statistics of the observations follow each minibatch closely and are updated in "
    "every forward pass of the update: stored log-probabilities were made with other statistics.",
    "NormMovesPPO.loss: running mean and deviation",
    "https://github.com/leggedrobotics/rsl_rl/pull/225",
)
class NormMovesPPO(RunningNormPPO):
    minibatch = 64

    def loss(self, mb: Columns) -> tuple[Tensor, Tensor, Tensor]:
        self.net.absorb(mb["obs"], 0.5)
        return super().loss(mb)


@fault(
    "plain_dqn_target_self",
    "plain_dqn",
    "The target network loads its own parameters and never changes.",
    "TargetOfItself.synchronize: target",
    "https://github.com/thesouther/MARL/issues/8",
)
class TargetOfItself(DQN):
    def synchronize(self) -> None:
        self.target.load_state_dict(self.target.state_dict())


@fault(
    "plain_dqn_target_alias",
    "plain_dqn",
    "Target and network are the same module, so targets move with each step, and through their "
    "gradient.",
    "TargetIsNet.targets: target",
    "https://github.com/higgsfield/RL-Adventure/issues/32",
)
class TargetIsNet(DQN):
    rate = 5e-3

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.target = self.net

    def targets(self, mb: Columns) -> Tensor:
        best = self.target(mb["after"]).max(-1).values
        return mb["rewards"] + self.gamma * (1 - mb["terminated"]) * best


@fault(
    "plain_dqn_epsilon",
    "plain_dqn",
    "The exploration rate is computed with whole numbers and stays 1: all actions are random.",
    "WholeEpsilon.epsilon: schedule",
)
class WholeEpsilon(DQN):
    def epsilon(self, step: int) -> float:
        return max(self.least, 1 - step // self.steps)


@fault(
    "plain_dqn_relu_out",
    "plain_dqn",
    "The network of values ends in a ReLU: no value can be negative, so all losing actions look "
    "alike, and outputs at 0 get no gradient.",
    "ReluValues.network: last layer",
)
class ReluValues(DQN):
    def network(self, inputs: int, outputs: int) -> Any:
        return super().network(inputs, outputs).append(nn.ReLU())


class MemoryNet(nn.Module):
    """A recurrent actor and critic."""

    def __init__(self, inputs: int, outputs: int, hidden: int = 32) -> None:
        super().__init__()
        self.memory = nn.GRU(inputs, hidden)
        self.actor, self.critic = layer(hidden, outputs, 0.01), layer(hidden, 1, 1.0)


class RecurrentA2C:
    """Actor-critic with a memory: one update from B whole episodes of the same length."""

    make: Make = staticmethod(of(Recall))
    copies, updates, rate, gamma = 16, 200, 5e-3, 0.95

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.envs = Copies(self.make, self.copies, seed)
        self.net = MemoryNet(5, 3)
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=self.rate)
        self.obs = self.envs.reset()[0]

    def carry(self, state: Tensor) -> Tensor:
        return state

    def learn(self, listen: Any) -> float:
        ear = listen(policy=self.net, optimizer=self.optimizer)
        for _ in range(self.updates):
            rows, state = [], torch.zeros(1, self.copies, 32)
            for _ in range(Recall.WAIT + 1):
                obs = torch.as_tensor(self.obs)
                out, state = self.net.memory(obs[None], self.carry(state))
                policy, value = (
                    Categorical(logits=self.net.actor(out[0])),
                    self.net.critic(out[0]).squeeze(-1),
                )
                action = policy.sample()
                self.obs, _, reward, terminated, truncated, _ = self.envs.step(action.numpy())
                rows.append(
                    {
                        "obs": obs,
                        "actions": action,
                        "new_log_probs": policy.log_prob(action),
                        "entropy": policy.entropy(),
                        "values": value,
                        "rewards": torch.as_tensor(reward),
                        "terminated": torch.as_tensor(terminated),
                        "truncated": torch.as_tensor(truncated),
                    }
                )
            batch = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
            returns, to_go = torch.zeros_like(batch["rewards"]), torch.zeros(self.copies)
            for t in reversed(range(len(returns))):
                to_go = batch["rewards"][t] + self.gamma * to_go
                returns[t] = to_go
            advantages = returns - batch["values"].detach()
            loss = (
                -(batch["new_log_probs"] * advantages).mean()
                + 0.5 * (batch["values"] - returns).square().mean()
                - 0.02 * batch["entropy"].mean()
            )
            ear.rollout(**batch, returns=returns, advantages=advantages)
            ear.batch(
                **{name: column.flatten(0, 1) for name, column in batch.items()},
                returns=returns.flatten(),
                advantages=advantages.flatten(),
                loss=loss,
            )
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
        return self.envs.scores.mean()


sound("plain_recurrent", "A2C with a memory (GRU) on a task that needs one.")(RecurrentA2C)


@fault(
    "plain_memory_lost",
    "plain_recurrent",
    "The state of the memory is set to zero in every step instead of at the start of an episode.",
    "MemoryLost.carry: hidden state",
)
class MemoryLost(RecurrentA2C):
    def carry(self, state: Tensor) -> Tensor:
        return torch.zeros_like(state)


RUNS: dict[str, Planted] = by_name(PLANTED)
"""All runs of plain torch, by name."""
