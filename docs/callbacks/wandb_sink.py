"""Weights & Biases, offline: corral train arena_v0 --sink wandb_sink.py:WandB"""

import wandb


class WandB:
    def open(self, folder, config, updates):
        about = {"env": config.env_config.env, "seed": config.seed, **config.settings}
        names = {"project": "corral", "name": folder.name, "dir": folder}
        self.run = wandb.init(mode="offline", config=about, **names)

    def write(self, row, histograms):
        values = {name: value for name, value in row.items() if value is not None}
        values |= {name: wandb.Histogram(v) for name, v in histograms.items() if len(v)}
        self.run.log(values, step=row["env_steps"])

    def close(self):
        self.run.finish()
