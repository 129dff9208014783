"""Games of corral and other parallel PettingZoo environments as BenchMARL tasks.

    from benchmarl.algorithms import MappoConfig
    from benchmarl.experiment import Experiment, ExperimentConfig
    from benchmarl.models.mlp import MlpConfig
    from corral.adapters.torchrl.benchmarl import CorralTask

    task = CorralTask("dfaas_v0", {"trace": "edge3", "max_cycles": 48, "illegal": "raise"})
    experiment = Experiment(
        task, MappoConfig.get_from_yaml(), MlpConfig.get_from_yaml(), seed=0,
        critic_model_config=MlpConfig.get_from_yaml(), config=ExperimentConfig.get_from_yaml(),
    )
    experiment.run()

All copies are one ``BatchEnv``, so BenchMARL does not step them one after another. Its policies get
masks through ``action_mask_spec``. The centralized critic of its MAPPO observes the global state.

BenchMARL pickles its tasks, including the function that makes the environment. So pass a class or a
module-level function to ``zoo_rules``, not a lambda. The mixers of BenchMARL (VDN, QMIX) use the
mean reward of a group.

BenchMARL does not support ended agents: it learns from the steps of all agents until the last agent
ends. Ended agents observe zeros and get reward 0. Turn-based games are not supported, and refused.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

from corral.envs.masks import MASK, OBSERVATION
from corral.envs.registry import rules_class
from corral.errors import ArgumentError
from corral.extras import require

require("benchmarl", extra="benchmarl", purpose="make tasks for BenchMARL")

from benchmarl.environments.common import TaskClass  # noqa: E402
from torchrl.data import Composite  # noqa: E402
from torchrl.envs import EnvBase  # noqa: E402

from corral.adapters.torchrl.batch import BatchEnv  # noqa: E402

__all__ = ["CorralTask", "require_picklable"]


def require_picklable(rules: Any) -> None:
    """Raise ArgumentError if ``rules`` cannot be pickled, because BenchMARL pickles its tasks."""
    try:
        pickle.dumps(rules)
    except Exception as error:  # parts of the rules may raise any exception
        raise ArgumentError(
            f"{rules.name} cannot be pickled, but BenchMARL pickles its tasks: {error}. Make it "
            "with a class or a module-level function, not with a lambda or a nested function"
        ) from error


class CorralTask(TaskClass):
    """A game by name, with its arguments as config; or ``rules`` from ``zoo_rules``.

    ``max_steps`` is the length of evaluation episodes, for rules without ``max_cycles``.

    Raises ArgumentError for rules that cannot be pickled.
    """

    def __init__(
        self,
        name: str,
        config: dict[str, Any] | None = None,
        *,
        rules: Any = None,
        max_steps: int | None = None,
    ) -> None:
        super().__init__(name=name, config=config)
        self._rules = rules_class(name)(**self.config) if rules is None else rules
        require_picklable(self._rules)
        self._max_steps = max_steps or self._rules.max_cycles or 1000

    def get_env_fun(
        self, num_envs: int, continuous_actions: bool, seed: int | None, device: Any
    ) -> Callable[[], EnvBase]:
        return lambda: BatchEnv(self._rules, num_envs, seed, return_state=True, device=device)

    def supports_continuous_actions(self) -> bool:
        return False

    def supports_discrete_actions(self) -> bool:
        return True

    def max_steps(self, env: EnvBase) -> int:
        return int(self._max_steps)

    def has_render(self, env: EnvBase) -> bool:
        return False

    def group_map(self, env: EnvBase) -> dict[str, list[str]]:
        groups: dict[str, list[str]] = env.group_map
        return groups

    def observation_spec(self, env: EnvBase) -> Composite:
        return self._of_groups(env, OBSERVATION)

    def action_mask_spec(self, env: EnvBase) -> Composite:
        return self._of_groups(env, MASK)

    def info_spec(self, env: EnvBase) -> None:
        return None

    def state_spec(self, env: EnvBase) -> Composite:
        return Composite(state=env.full_observation_spec_unbatched["state"].clone())

    def action_spec(self, env: EnvBase) -> Composite:
        spec = env.full_action_spec_unbatched.clone()
        for group in self.group_map(env):
            spec[group, "action"].update_mask(
                None
            )  # the mask of one step; policies use action_mask
        return spec

    def _of_groups(self, env: EnvBase, key: str) -> Composite:
        """Return the spec of the entry ``key`` in every group."""
        spec = env.full_observation_spec_unbatched
        return Composite(
            {
                group: Composite({key: spec[group, key].clone()}, shape=spec[group].shape)
                for group in self.group_map(env)
            }
        )

    @staticmethod
    def env_name() -> str:
        return "corral"
