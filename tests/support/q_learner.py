"""Tabular Q-learning as a trainer of one's own: off policy, without a network, in turns or not."""

import zlib
from dataclasses import dataclass

import numpy as np

from corral.envs.core import generator
from corral.envs.policy import Heuristic
from corral.trainers import Capabilities, Content, Seats, Trainer, Update, setting
from corral.trainers.selfplay.game import Game

ROWS, RATE, EXPLORE = 2**13, 0.3, 0.2  # what is observed goes to a row by its checksum


@dataclass(frozen=True)
class QSettings:
    num_envs: int = setting(8, "environments that are played at once", least=1)


class TablePolicy(Heuristic):
    def __init__(self, table):
        self.table = table

    def look_up(self, obs):
        rows = [zlib.crc32(np.ascontiguousarray(each)) % ROWS for each in obs["observation"]]
        return np.array(rows), np.where(obs["action_mask"], self.table[rows], -np.inf)

    def choose(self, obs, rng):
        if np.ndim(obs["action_mask"]) == 1:
            return self.choose({key: each[None] for key, each in obs.items()}, rng)[0]
        return self.look_up(obs)[1].argmax(axis=1)


class TabularQ(Trainer):
    name, Settings, resumes_exactly = "tabular_q", QSettings, True
    capabilities = Capabilities(opponents=True, pool=True)

    def __init__(self, rules, settings, *, seed, policies, policies_to_train, steps, seats=None):
        self.rules, self.settings, self.steps, self.env_steps = rules, settings, steps, 0
        self.names, many = dict(policies), settings.num_envs
        self.tables = {n: np.zeros((ROWS, rules.action_space(a).n)) for a, n in policies.items()}
        self.game = Game(self, seats or Seats(), policies, policies_to_train, many, seed)
        self.casting, self.rng = self.game.cast, generator(seed, "policy")
        self.callbacks, self.wrap_batches = self.game.callbacks, self.game.wrap_batches
        # Each agent's latest decision that is learned from: row (-1: none), action, paid since
        self.last = np.full((3, many, len(rules.agents)), -1.0)

    rollout_steps = property(lambda self: 16 * self.settings.num_envs)

    @property
    def policies(self):
        own = {agent: TablePolicy(self.tables[name]) for agent, name in self.names.items()}
        return {agent: (own | self.game.opponents.policies)[agent] for agent in self.rules.agents}

    def learn(self, steps=None):
        self.game.begin()
        while self.env_steps == 0 or self.env_steps + self.rollout_steps <= (steps or self.steps):
            episodes = [each for _ in range(16) for each in self.step()]
            self.env_steps += self.rollout_steps
            yield Update(self.env_steps, episodes, self.game.end_update(), {})

    def step(self):
        looked, actions = {}, np.zeros(self.last.shape[1:], dtype=np.int64)
        for i, agent in enumerate(self.rules.agents):
            if agent in self.names:
                looked[i], values = self.policies[agent].look_up(self.game.observations[agent])
                self.correct(i, self.game.batch.acting[:, i], values.max(axis=1))
                explores = self.rng.random((len(values), 1)) < EXPLORE
                drawn = np.where(values > -np.inf, self.rng.random(values.shape), -1)
                actions[:, i] = np.where(explores, drawn, values).argmax(axis=1)
        played = self.game.step(actions)
        for i, rows in looked.items():
            mine = played.learned[:, i]
            self.last[:, mine, i] = rows[mine], actions[mine, i], 0 * rows[mine]
        self.last[2] += played.step.reward
        for i in looked:
            self.correct(i, played.step.over, np.zeros(len(actions)))
        return played.episodes

    def correct(
        self, i, rows, then
    ):  # the latest decision of agent i led to what is worth ``then``
        rows = rows & (self.last[0, :, i] >= 0)
        at = tuple(self.last[:2, rows, i].astype(int))
        table = self.tables[self.names[self.rules.agents[i]]]
        table[at] += RATE * (self.last[2, rows, i] + then[rows] - table[at])
        self.last[0, rows, i] = -1

    def weights_of(self, policy):
        return {"table": self.tables[policy].copy()}

    def policy_of(self, weights, agent):
        return TablePolicy(weights["table"])

    def save(self):
        game, arrays = self.game.save()
        document = {"env_steps": self.env_steps, "rng": self.rng.bit_generator.state, "game": game}
        arrays |= {"tables": self.tables, "last": {"last": self.last}}
        return Content({"q": document}, arrays)

    def load(self, content):
        document, arrays = content.documents["q"], content.arrays
        self.env_steps, self.rng.bit_generator.state = document["env_steps"], document["rng"]
        self.tables, self.last = dict(arrays["tables"]), arrays["last"]["last"].copy()
        self.game.load(document["game"], arrays)
