"""The table of names that are imported on first use.

``PUBLIC`` holds the names of ``import corral``. ``EXTENSIONS`` holds the names that the core
requests: extensions in ``corral.loads`` and ``corral.lab``, the trainers, each of which needs
another library, and the reference players of environments. See ``corral.extensions``.
"""

from __future__ import annotations

__all__ = ["EXTENSIONS", "PUBLIC"]

PUBLIC = {
    "Callback": "corral.trainers.callbacks.protocol",
    "Comparison": "corral.lab.comparing.comparison",
    "Duels": "corral.lab.duels.driver",
    "Pool": "corral.trainers.pool",
    "advise": "corral.loads.advise.driver",
    "bisect": "corral.lab.bisect.driver",
    "check_env": "corral.envs.conformance",
    "clone": "corral.trainers.cloning.driver",
    "compare": "corral.lab.comparing.driver",
    "diagnose": "corral.lab.doctor.diagnose",
    "duel": "corral.lab.duels.driver",
    "evaluate": "corral.trainers.evaluation.judge",
    "exploit": "corral.lab.exploit.driver",
    "from_rule": "corral.loads.from_rule.driver",
    "learnable": "corral.lab.doctor.choices",
    "listen": "corral.lab.listening.driver",
    "load_run": "corral.trainers.runs.run",
    "make": "corral.envs.registry",
    "read_config": "corral.trainers.config_files.read",
    "recheck": "corral.loads.recheck.driver",
    "record": "corral.trainers.cloning.driver",
    "rehearse": "corral.loads.rehearsal.driver",
    "resume": "corral.trainers.driver",
    "resume_from_rule": "corral.loads.from_rule.driver",
    "resume_session": "corral.trainers.driver",
    "session": "corral.trainers.driver",
    "train": "corral.trainers.driver",
    "tune": "corral.lab.tuning.driver",
    "watch": "corral.trainers.evaluation.watch",
}
"""Name -> module."""

EXTENSIONS = {
    "examination": "corral.lab.doctor.examination",
    "from_rule.plan": "corral.loads.from_rule.plan:plan_of",
    "judge.dfaas_v0": "corral.loads.judge:evaluate_loads",
    "observer.warnings": "corral.lab.doctor.watching.live:Watch",
    "players.arena_v0": "corral.envs.arena_v0.baselines",
    "players.dfaas_v0": "corral.envs.dfaas_v0.baselines",
    "players.rps_v0": "corral.envs.rps_v0.baselines",
    "players.tictactoe_v0": "corral.envs.tictactoe_v0.baselines",
    "players.tiles_v0": "corral.envs.tiles_v0.baselines",
    "run.decider": "corral.loads.export.decider:decider_of",
    "run.export": "corral.loads.export.formats:export_run",
    "run.recommendation": "corral.loads.from_rule.recommend:recommendation_of",
    "settings.a2c": "corral.trainers.on_policy.settings:A2CSettings",
    "settings.benchmarl_iql": "corral.trainers.benchmarl.settings:QSettings",
    "settings.benchmarl_masac": "corral.trainers.benchmarl.settings:MASACSettings",
    "settings.benchmarl_qmix": "corral.trainers.benchmarl.settings:QMIXSettings",
    "settings.benchmarl_vdn": "corral.trainers.benchmarl.settings:QSettings",
    "settings.ippo": "corral.trainers.on_policy.settings:IPPOSettings",
    "settings.mappo": "corral.trainers.on_policy.settings:MAPPOSettings",
    "settings.pg": "corral.trainers.on_policy.settings:PGSettings",
    "settings.pg_episode": "corral.trainers.on_policy.settings:PGSettings",
    "settings.ppo_kl": "corral.trainers.on_policy.settings:PPOKLSettings",
    "settings.rllib_ppo": "corral.trainers.rllib.settings:RLlibPPOSettings",
    "settings.sb3_a2c": "corral.trainers.sb3.settings:SB3A2CSettings",
    "settings.sb3_dqn": "corral.trainers.sb3.settings:SB3DQNSettings",
    "settings.sb3_maskable_ppo": "corral.trainers.sb3.settings:SB3Settings",
    "settings.sb3_ppo": "corral.trainers.sb3.settings:SB3Settings",
    "trace.of_frame": "corral.data.importers.tables.table:trace_of_frame",
    "trainers.trainer_of": "corral.trainers.on_policy.trainer:trainer_of",
    "trainer.a2c": "corral.trainers.on_policy.trainer:A2C",
    "trainer.benchmarl_iql": "corral.trainers.benchmarl.trainer:IQL",
    "trainer.benchmarl_masac": "corral.trainers.benchmarl.trainer:MASAC",
    "trainer.benchmarl_qmix": "corral.trainers.benchmarl.trainer:QMIX",
    "trainer.benchmarl_vdn": "corral.trainers.benchmarl.trainer:VDN",
    "trainer.clone": "corral.trainers.cloning.trainer:Clone",
    "trainer.ippo": "corral.trainers.on_policy.trainer:IPPO",
    "trainer.mappo": "corral.trainers.on_policy.trainer:MAPPO",
    "trainer.pg": "corral.trainers.on_policy.trainer:PG",
    "trainer.pg_episode": "corral.trainers.on_policy.trainer:PG_EPISODE",
    "trainer.policy_iteration": "corral.trainers.policy_iteration.trainer:PolicyIteration",
    "trainer.ppo_kl": "corral.trainers.on_policy.trainer:PPO_KL",
    "trainer.rllib_ppo": "corral.trainers.rllib.trainer:RLlibPPO",
    "trainer.sb3_a2c": "corral.trainers.sb3.trainer:SB3A2C",
    "trainer.sb3_dqn": "corral.trainers.sb3.dqn:SB3DQN",
    "trainer.sb3_maskable_ppo": "corral.trainers.sb3.trainer:SB3MaskablePPO",
    "trainer.sb3_ppo": "corral.trainers.sb3.trainer:SB3PPO",
    "trainers.replay": "corral.loads.replay:replay",
}
"""Name -> "module:attribute", or a module. The names of judges and players contain their
environment; the names of a trainer and its settings contain the value of ``trainer=``."""
