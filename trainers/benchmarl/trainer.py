"""Off-policy training of teams with BenchMARL: VDN, QMIX, independent Q-learning and MASAC.

    corral train two_step_v0 --trainer benchmarl_qmix --steps 20000

| trainer | learns | from |
|---|---|---|
| ``benchmarl_vdn`` | action values that add up to the team's value | the team's reward |
| ``benchmarl_qmix`` | the same, mixed by a network with the global state | the same |
| ``benchmarl_iql`` | each agent's action values | its own reward |
| ``benchmarl_masac`` | a stochastic policy, with a critic of the global state | its own reward |

The agents of a policy share a network. A mixer combines their values, and the team's reward is the
sum of their rewards. VDN: Sunehag et al., Value-Decomposition Networks, 2018. QMIX: Rashid et al.,
2018. IQL: Tan, Multi-Agent Reinforcement Learning: Independent versus Cooperative Agents, 1993.
MASAC: Haarnoja et al., Soft Actor-Critic, 2018, with one critic for all agents.

This module keeps the policies' networks as plain torch modules. Their weights are copied to
BenchMARL and back after each update, so a run can be saved, loaded and evaluated without BenchMARL.
A resumed run restores its networks, target networks, mixers, critics, Adam's moments, exploration
and random generators. The replay buffer starts empty and episodes start from the beginning;
``learning_starts`` counts from there.

Finished agents stay in BenchMARL's batches until their episode ends. They observe zeros, get reward
0, and their actions are not played. Turn-based games are not supported.

Reported returns are the environment's, agent by agent, for every trainer.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import nn

from corral.adapters.networks import ACTIVATIONS, describe
from corral.adapters.spaces import count_actions
from corral.envs.core import Array, Rules, generator
from corral.envs.episode_stats import EpisodeStats
from corral.errors import UnsupportedSpaceError
from corral.extras import require
from corral.trainers.base import Trainer, Update
from corral.trainers.benchmarl.settings import (
    MASACSettings,
    OffPolicySettings,
    QMIXSettings,
    QSettings,
)
from corral.trainers.capabilities import Capabilities
from corral.trainers.content import Content, checkpoint_of, require_arrays, shapes_of
from corral.trainers.on_policy.buffer import AgentGroup, make_groups
from corral.trainers.on_policy.saving import (
    arrays_of,
    require_finite_weights,
    write_actor,
)
from corral.trainers.policies import NetworkPolicy, mlp_policy, unmasked
from corral.trainers.rng import GlobalGenerators
from corral.trainers.schedules import linear

__all__ = ["IQL", "MASAC", "QMIX", "VDN", "BenchMARL"]

INSTEAD = "corral's own trainers play it, for instance mappo"


class BenchMARL(Trainer):
    """Common base of the four trainers; ``algorithm`` is BenchMARL's name of the algorithm."""

    name: ClassVar[str]
    algorithm: ClassVar[str]
    Settings: ClassVar[type] = QSettings
    capabilities = Capabilities(turns=False, sampled=False)
    greedy: ClassVar[bool] = True  # plays the best action; False: samples an action
    team_reward: ClassVar[bool] = False  # learns from the sum of a policy's rewards

    def __init__(
        self,
        rules: Rules[Any],
        settings: OffPolicySettings,
        *,
        seed: int,
        policies: Mapping[str, str],
        policies_to_train: Sequence[str],
        steps: int,
    ) -> None:
        """Raises UnsupportedSpaceError for unsupported games and policies.

        Unsupported are turn-based games, images, actions that are not Discrete, different agents in
        one policy, and a mixer with only one agent per policy.
        """
        self.rules, self.settings, self.seed, self.steps = rules, settings, seed, steps
        self.env_steps = 0
        self.policy_of = dict(policies)
        self.trained = tuple(policies_to_train)
        self._require_playable()
        self.groups = make_groups(rules, policies, settings.agent_id)
        for group in self.groups:
            if group.layout.images:
                raise UnsupportedSpaceError.of(
                    f"{rules.name}, {group.agents[0]}: {self.name} has no network for images",
                    INSTEAD,
                )
        self._networks = {
            group.policy: self._network(group, index) for index, group in enumerate(self.groups)
        }
        self._generators = GlobalGenerators(seed)
        self._learning: Any = None
        self._resumed: dict[str, dict[str, Array]] | None = None  # files for the next experiment

    def _require_playable(self) -> None:
        rules = self.rules
        if not rules.simultaneous:
            raise UnsupportedSpaceError.of(
                f"{rules.name} is turn-based, and BenchMARL has no notion of turns", INSTEAD
            )
        for agent in rules.agents:
            try:
                count_actions(rules.action_space(agent), f"{rules.name}, {agent}: ")
            except UnsupportedSpaceError as error:
                raise UnsupportedSpaceError.of(str(error), INSTEAD) from None
        alone = len(set(self.policy_of.values())) == len(rules.agents) > 1
        if self.team_reward and alone:
            raise UnsupportedSpaceError.of(
                f"{self.name} adds up the values of a policy's agents, but each agent has a "
                "separate "
                "policy. Pass policies='shared' for equal agents, or a mapping that puts a team's "
                "agents into one policy. benchmarl_iql learns agent by agent",
                INSTEAD,
            )

    # --- Networks and policies -------------------------------------------------------------------

    def _network(self, group: AgentGroup, index: int) -> nn.Sequential:
        """Return BenchMARL's MLP as a torch module: features [R, F] to outputs [R, A]."""
        widths = [group.layout.width + group.identities, *self.settings.net_arch]
        layers: list[nn.Module] = []
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(generator(self.seed, "init", index).integers(2**63)))
            for wide, next_wide in itertools.pairwise(widths):
                layers += [nn.Linear(wide, next_wide), ACTIVATIONS[self.settings.activation]()]
            return nn.Sequential(*layers, nn.Linear(widths[-1], group.actions.outputs))

    @property
    def policies(self) -> dict[str, NetworkPolicy]:
        group_of = {agent: group for group in self.groups for agent in group.agents}
        return {
            agent: mlp_policy(
                self._networks[self.policy_of[agent]],
                group_of[agent],
                agent,
                greedy=self.greedy,
                unmasked=unmasked(self.rules, agent),
            )
            for agent in self.rules.agents
        }

    @property
    def resumes_exactly(self) -> bool:
        """False: replay buffer and unfinished episodes are not saved."""
        return False

    def episode_stats(self) -> EpisodeStats:
        """Return a counter of episode statistics."""
        return EpisodeStats(self.rules.agents)

    # --- Training --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise MissingExtraError if BenchMARL is not installed; only training needs it.

        Raise ArgumentError for an environment that cannot be pickled.
        """
        require("benchmarl", extra="benchmarl", purpose=f"train with {self.name}")
        from corral.adapters.torchrl.benchmarl import require_picklable

        require_picklable(self.rules)

    @property
    def rollout_steps(self) -> int:
        """Env steps of an update."""
        return int(self.settings.num_envs * self.settings.n_steps)

    @property
    def exploration(self) -> float:
        """Current share of random legal actions; 0 for a stochastic policy."""
        settings: Any = self.settings
        if not self.greedy:
            return 0.0
        ends = settings.exploration_fraction * self.steps
        begin, end = settings.exploration_initial_eps, settings.exploration_final_eps
        return linear(begin, end, self.env_steps / ends)

    def learn(self, steps: int | None = None) -> Iterator[Update]:
        """Yield updates while whole ones fit into ``steps``, at least one.

        Default: the planned number of steps, over which exploration decreases.
        """
        self.check()
        size = self.rollout_steps
        last = max(1, (self.steps if steps is None else steps) // size) * size
        if self._learning is None:
            with self._generators:
                self._learning = self._begin()
            self._begun = self.env_steps
        learning = self._learning
        while self.env_steps < last:
            clock = time.perf_counter()
            exploration = self.exploration
            with self._generators:
                batch = learning.collect(exploration)
                played = time.perf_counter()
                self.env_steps += size
                learns = self.env_steps - self._begun > self.settings.learning_starts
                metrics = learning.update(batch, learns)
            learning.take(self._networks)
            for name in self.trained:
                require_finite_weights(name, self._networks[name])
            if self.greedy:
                metrics["exploration"] = exploration
            seconds = {"env": played - clock, "learning": time.perf_counter() - played}
            means = (learning.rewards / size).tolist()
            rewards = dict(zip(self.rules.agents, means, strict=True))
            yield Update(self.env_steps, list(learning.episodes), metrics, seconds, rewards)

    def _begin(self) -> Any:
        """Return BenchMARL's experiment, with the weights of the networks or of a checkpoint."""
        from corral.trainers.benchmarl.experiment import Learning

        # A resumed run plays other episodes than at its start.
        seed = self.seed
        if self.env_steps:
            seed = int(generator(self.seed, "policy", self.env_steps).integers(2**30))
        learning = Learning(self, seed)
        if self._resumed is None:
            learning.give(self._networks)
        else:
            with checkpoint_of(self.name):
                learning.load(self._resumed)
        return learning

    # --- Saving ----------------------------------------------------------------------------------

    def save(self) -> Content:
        generators, generator_arrays = self._generators.save()
        document = {"env_steps": self.env_steps, "generators": generators}
        arrays = {"generators": generator_arrays}
        for name, network in self._networks.items():
            arrays[f"policy_{name}"] = arrays_of(network.state_dict())
        arrays |= self._learning.save() if self._learning is not None else self._resumed or {}
        return Content({"trainer": document}, arrays)

    def load(self, content: Content) -> None:
        with checkpoint_of(self.name):
            document, arrays = content.documents["trainer"], content.arrays
            steps = int(document["env_steps"])
            files = {name: arrays[f"policy_{name}"] for name in self._networks}
            for name, network in self._networks.items():
                expected = shapes_of(arrays_of(network.state_dict()))
                require_arrays(f"policy_{name}", files[name], expected)
            learning = {n: array for n, array in arrays.items() if n.startswith("learning_")}
            if steps and set(learning) != {f"learning_{name}" for name in self._networks}:
                raise KeyError("learning")
            self._generators.load(document["generators"], arrays["generators"])
        for name, network in self._networks.items():
            weights = {key: torch.from_numpy(a.copy()) for key, a in files[name].items()}
            network.load_state_dict(weights)
        self.env_steps = steps
        self._resumed = learning or None

    def export(self, folder: Path) -> list[Path]:
        """Write each policy's network: weights in <policy>.safetensors, a description in .json."""
        paths = []
        for group in self.groups:
            about = {
                "agents": list(group.agents),
                "agent_id": bool(group.identities),
                "net_arch": list(self.settings.net_arch),
                "activation": self.settings.activation,
                "outputs": "values of actions" if self.greedy else "logits of actions",
                **describe(group.layout, group.actions),
            }
            weights = arrays_of(self._networks[group.policy].state_dict())
            paths += write_actor(folder, group.policy, weights, about)
        return paths

    def close(self) -> None:
        """Close BenchMARL's experiment."""
        learning, self._learning = self._learning, None
        if learning is not None:
            self._resumed = learning.save()
            learning.close()


class VDN(BenchMARL):
    """Value decomposition by a sum. See ``QSettings``."""

    name = "benchmarl_vdn"
    algorithm = "Vdn"
    team_reward = True


class QMIX(BenchMARL):
    """Value decomposition by a monotonic network of the global state. See ``QMIXSettings``."""

    name = "benchmarl_qmix"
    algorithm = "Qmix"
    Settings = QMIXSettings
    team_reward = True


class IQL(BenchMARL):
    """Independent Q-learning. See ``QSettings``."""

    name = "benchmarl_iql"
    algorithm = "Iql"


class MASAC(BenchMARL):
    """Soft actor-critic with a critic of the global state. See ``MASACSettings``."""

    name = "benchmarl_masac"
    algorithm = "Masac"
    Settings = MASACSettings
    capabilities = Capabilities(turns=False)
    greedy = False
