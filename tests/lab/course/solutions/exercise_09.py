import corral


class NewFields(corral.Callback):
    def __init__(self):
        self.total = self.episodes = 0

    def on_episode(self, session, episode):
        self.total += episode.kpis["new_field"]
        self.episodes += 1

    def on_update(self, session, row):
        row["new_fields"] = self.total / self.episodes if self.episodes else None
        self.total = self.episodes = 0
