"""Train a team and leave a run behind; go on with one that stopped.

run = corral.train("dfaas_v0", trainer="sb3_ppo", steps=60_000, seed=1)
decision = run.policies["node_0"].act(observation, deterministic=True)
"""

from __future__ import annotations

import dataclasses
import pkgutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from corral.adapters.sources import EnvLike
from corral.envs.registry import REGISTERED, Api
from corral.errors import RunError, UnsupportedSpaceError
from corral.trainers.arguments import (
    Policies,
    alike,
    arguments_of,
    check_saving,
    learning,
    played_by_references,
    policy_of_each,
    seed_of,
    whole_steps,
)
from corral.trainers.base import Trainer, trainer_class, trainer_name
from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.folders import begun_folder, locked
from corral.trainers.runs.run import CHECKPOINTS, Run, load_run
from corral.trainers.runs.run_config import RunConfig, versions
from corral.trainers.session import drive, load, save, say, statistics_of
from corral.trainers.settings import make_settings, require_known

__all__ = ["resume", "train"]


def train(
    env: EnvLike,
    *,
    trainer: str | type[Trainer] = "mappo",
    steps: int = 100_000,
    horizon: int | None = None,
    seed: int = 0,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
    held_out: float | tuple[int, int] | None = None,
    policies: Policies | None = None,
    policies_to_train: Sequence[str] | None = None,
    opponents: Mapping[str, str] | None = None,
    out: str | Path | None = None,
    checkpoint_every: int | None = None,
    keep: int | Literal["all"] = 3,
    init: str | Path | Run | None = None,
    init_critic: bool = True,
    progress: bool | None = None,
    **settings: Any,
) -> Run:
    """Train the agents of an environment.

    SIGINT (Ctrl-C) ends training after the update under way: the run is saved, and
    KeyboardInterrupt is raised. SIGTERM ends the process in the same way.

    Args:
        env: a name or id, module:function, a module, a function that makes an environment, or an
            environment: see ``corral.adapters.sources``.
        trainer: a name of ``corral.trainers.trainers()``, or a class of that kind.
        steps: env steps, over all environments together. They are played in whole rollouts: as many
            as fit, at least one; a line on stderr says how many, where that is not all.
        horizon: env steps that are planned in all, where ``steps`` is the first portion of them:
            what is annealed (learning rate, entropy bonus) ends there. Default: ``steps``. See
            ``resume``.
        seed: of everything that is drawn; the same seed gives the same weights.
        env_kwargs: arguments of the environment.
        api: "parallel" or "aec", for an environment of others that has both.
        held_out: the rows of its data that are kept for evaluation, where the environment has
            some: a share of the last, or rows (low, high).
        policies: one policy "shared" by all agents, "separate" ones named like their agents, or
            agent -> name of its policy, as a mapping or a function. Default: shared, where the
            spaces of all agents are equal; else separate.
        policies_to_train: those that learn; the others only play. Default: all.
        opponents: agents that reference players play, agent -> name, such as
            {"player_1": "beat-last"}; see ``corral.envs.reference``. They have no policy and do not
            learn. For trainers mappo and ippo.
        out: the run's folder, empty or new; default: one in ``runs``.
        checkpoint_every: env steps between checkpoints; default: a tenth of ``steps``. There is
            always one at the end.
        init: another run, or RUN@best, whose weights this one starts from, with a fresh optimizer;
            other settings, and another trainer in house, are allowed. Lines on stderr say what was
            taken. See ``corral.trainers.cloning.start``.
        init_critic: whether critics are taken too, where they fit.
        keep: how many of the latest checkpoints to keep, or "all"; the best is kept besides.
        progress: show it on stderr; default: where stderr is a terminal.
        settings: of the trainer; those left out come from the environment's entry in
            ``corral.envs.registry``, else from the trainer.

    Raises UnknownNameError, MissingExtraError, TypeError for unknown settings, ValueError for
    values out of range, RunError for a folder in use, and what the environment raises. A run that
    fails before its first update leaves no folder behind.
    """
    steps, seed = whole_steps("steps", steps), seed_of(seed)
    horizon = steps if horizon is None else whole_steps("horizon", horizon, least=0)
    if horizon < steps:
        raise ValueError(f"horizon={horizon}: give {steps} or more, which are to be played first")
    checkpoint_every, keep = check_saving(checkpoint_every, keep)
    name = trainer_name(trainer)
    own_trainer = None if isinstance(trainer, str) else trainer
    kind = own_trainer or trainer_class(name)
    arguments = arguments_of(env) if isinstance(env, str) else ()
    require_known(train, kind, arguments, env_kwargs or {}, settings)
    env_config = EnvConfig.of(env, env_kwargs, held_out, api)
    suited = REGISTERED[env_config.env].settings if env_config.env in REGISTERED else {}
    known = {field.name for field in dataclasses.fields(kind.Settings)}
    known -= set(getattr(kind.Settings, "unused", ()))
    suited = {setting: value for setting, value in suited.items() if setting in known}
    rules = env_config.rules()
    agents = rules.agents
    played = played_by_references(opponents, agents)
    learners = [agent for agent in agents if agent not in played]
    if policies is None:
        policies = "shared" if alike(rules, learners) else "separate"
    learned = policy_of_each(policies, learners)
    if both := set(learned.values()) & set(played.values()):
        raise ValueError(
            f"{', '.join(sorted(both))} is a policy and a reference player; call the policy "
            "something else"
        )
    everybody = {**learned, **played}
    config = RunConfig(
        env_config=env_config,
        trainer=name,
        settings=vars(make_settings(kind, {**suited, **settings})),
        seed=seed,
        steps=steps,
        horizon=horizon,
        keep=keep,
        policies={agent: everybody[agent] for agent in agents},
        policies_to_train=learning(policies_to_train, learned),
        versions=versions(learning=True),
        opponents=played,
        own_trainer=own_trainer,
    )
    learner = _begun(config)  # wrong settings are refused before a folder is made
    lines: list[str] = []
    if init is not None:
        start_from = pkgutil.resolve_name("corral.trainers.cloning.start:start_from")
        origin, lines = start_from(learner, init, critic=init_critic)
        config = dataclasses.replace(config, init=origin)
    with begun_folder(out, f"{env_config.env}-{name}-seed{seed}") as folder:
        run = Run(folder, config)
        config.write(folder)
        for line in lines:
            say(folder, line)
        statistics = statistics_of(run)
        if init is not None:  # nothing else holds those weights: resuming begins from here
            learner.begin()  # type: ignore[attr-defined]  # in house, or it was refused
            save(run, learner, statistics)
        return drive(run, learner, statistics, checkpoint_every, progress)


def resume(
    folder: str | Path,
    *,
    env: EnvLike | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
    trainer: type[Trainer] | None = None,
    steps: int | None = None,
    stretch: bool = False,
    checkpoint_every: int | None = None,
    keep: int | Literal["all"] | None = None,
    progress: bool | None = None,
) -> Run:
    """Go on with a run from its latest checkpoint, to ``steps`` env steps in all.

    Default: the steps it was begun with. Over Batch it then goes on bit for bit as if it had never
    stopped. Beyond the steps that were planned (``horizon`` of ``train``), what is annealed stays
    at its end; with ``stretch`` the plan is made anew, to end at ``steps``.

    ``keep`` replaces what ``train`` was told. A line on stderr says so where episodes begin anew;
    where the run was killed before its first checkpoint, and all begins anew; beyond the plan; and
    where versions or torch's threads are others than those that the run was begun with.

    ``env`` and what follows, ``trainer``: see ``load_run``. Raises RunError, where another process
    or thread trains it too, and CheckpointError; KeyboardInterrupt as ``train`` does.
    """
    checkpoint_every, kept = check_saving(checkpoint_every, 1 if keep is None else keep)
    run = load_run(folder, env, env_kwargs=env_kwargs, api=api, trainer=trainer)
    if run.at not in (None, "latest"):
        raise RunError(
            f"{run.name}: a run goes on from its latest checkpoint alone; give {run.folder}"
        )
    if keep is not None:
        run.config = dataclasses.replace(run.config, keep=kept)
    if steps is not None:
        steps = whole_steps("steps", steps)
        horizon = steps if stretch else run.config.horizon
        run.config = dataclasses.replace(run.config, steps=steps, horizon=horizon)
    elif stretch:
        raise ValueError("stretch plans a run anew, to end at steps=; give that too")
    with locked(run.folder):
        learner = run.begun()
        statistics = statistics_of(run)
        # What a kill left half written is hidden, and no checkpoint.
        if any((run.folder / CHECKPOINTS).glob("[!.]*")):
            load(run, learner, statistics)
        else:
            say(run.folder, "no checkpoint yet; it begins anew")
        if steps is not None and steps < learner.env_steps:
            raise RunError(
                f"steps={steps}: {run.folder} is at {learner.env_steps:,} env steps already; "
                "give more than that, or leave it out"
            )
        _tell_of_plan_and_versions(run.folder, run.config)
        if steps is not None or keep is not None:
            run.config.write(run.folder)
        return drive(run, learner, statistics, checkpoint_every, progress)


def _tell_of_plan_and_versions(folder: Path, config: RunConfig) -> None:
    """Say what makes a resumed run another than one that never stopped."""
    settings, now = config.settings, versions(learning=True)
    annealed = settings.get("anneal") or settings.get("ent_coef_end") is not None
    if annealed and config.steps > config.horizon:
        rate = ", a learning rate at 0" if settings.get("anneal") else ""
        say(
            folder,
            f"planned for {config.horizon:,} env steps; beyond them what is annealed stays at its "
            f"end{rate}. --stretch (stretch=True) plans it anew",
        )
    both = [
        name for name in config.versions if now.get(name, "") not in ("", config.versions[name])
    ]
    if both:
        before = ", ".join(f"{name} {config.versions[name]}" for name in both)
        after = ", ".join(f"{name} {now[name]}" for name in both)
        say(folder, f"begun with {before}; it goes on with {after}: numbers may differ")


def _begun(config: RunConfig) -> Trainer:
    """Return the trainer as it begins; a refusal of its spaces names a command that runs."""
    try:
        learner = config.make_trainer()
    except UnsupportedSpaceError as error:
        env = config.env_config.source or config.env_config.env
        instead = f"corral train {env} --trainer mappo"
        if config.trainer in ("mappo", "ippo") or instead in str(error):
            raise
        raise UnsupportedSpaceError(f"{error}. What plays it: {instead}") from error
    getattr(learner, "check", lambda: None)()
    return learner
