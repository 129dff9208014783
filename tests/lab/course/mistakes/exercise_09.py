"""Wrong answers to exercise 9, each named after its mistake."""

import numpy as np

import corral


class Base(corral.Callback):
    key = "new_field"

    def __init__(self):
        self.numbers = []

    def on_episode(self, session, episode):
        self.numbers.append(episode.kpis[self.key])

    def on_update(self, session, row):
        count = len(self.numbers)
        row["new_fields"] = sum(self.numbers) / count if count else None
        self.numbers.clear()


class Steps(Base):
    def on_episode(self, session, episode):
        self.numbers += [episode.length]


class NeverReset(Base):
    def on_update(self, session, row):
        if self.numbers:
            row["new_fields"] = sum(self.numbers) / len(self.numbers)


class UnpaidFields(Base):
    key = "fields_visited"


class Collisions(Base):
    key = "collision"


class SumOverEpisodes(Base):
    def on_update(self, session, row):
        row["new_fields"] = sum(self.numbers)
        self.numbers = []


class ZeroWithoutEpisodes(Base):
    def on_update(self, session, row):
        row["new_fields"] = sum(self.numbers) / max(1, len(self.numbers))
        self.numbers = []


steps = Steps
never_reset = NeverReset
unpaid_fields = UnpaidFields
collisions = Collisions
sum_over_episodes = SumOverEpisodes
zero_without_episodes = ZeroWithoutEpisodes


class NotANumber(Base):
    def on_update(self, session, row):
        row["new_fields"] = np.mean(self.numbers)
        self.numbers.clear()


not_a_number = NotANumber
