"""MLflow, in a file of the run: corral train arena_v0 --sink mlflow_sink.py:MLflow"""

import mlflow


class MLflow:
    def open(self, folder, config, updates):
        self.client = mlflow.MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
        self.run = self.client.create_run("0", run_name=folder.name).info.run_id
        for name, value in {"env": config.env_config.env, **config.settings}.items():
            self.client.log_param(self.run, name, value)

    def write(self, row, histograms):
        for name, value in row.items():
            if value is not None:
                self.client.log_metric(self.run, name, value, step=row["env_steps"])

    def close(self):
        self.client.set_terminated(self.run)
