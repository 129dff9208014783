"""Examine learners (``examination``), and wrap corral's trainers as learners (``trained_by``)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from corral.adapters.sources import rules_of
from corral.envs.core import Array
from corral.envs.policy import PolicyLike, take_tree
from corral.envs.probes import PROBES
from corral.envs.probes.base import Probe
from corral.envs.registry import make
from corral.errors import UnknownNameError, UnsupportedSpaceError
from corral.lab.doctor.examination.judging import (
    GAMMA,
    Examination,
    Learned,
    Result,
    error_text,
    judge,
)
from corral.named import is_named, named_object
from corral.trainers.base import Trainer, trainer_class
from corral.trainers.runs.run import Run
from corral.trainers.settings import make_settings

__all__ = ["EXAMINED", "SMALL", "Learn", "examination", "judged_run", "trained_by"]

EXAMINED = tuple(f"probe_p{number:02}_v0" for number in range(1, 15))
"""The probes for any learner; the remaining probes test internals of a trainer."""

KWARGS: dict[str, dict[str, Any]] = {"probe_p12_v0": {"replies": 2}}
"""Arguments of probes: with two replies, a reward discounted on its way is visible."""

Learn = Callable[[Callable[[], Any], int, int], "Learned | Mapping[str, PolicyLike]"]


def examination(
    learner: str | Learn | type[Trainer],
    probes: Sequence[str] | None = None,
    *,
    seed: int = 0,
    budget: float = 1.0,
    limit: float | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Examination:
    """Let ``learner(make_env, steps, seed)`` learn each probe, and judge the result.

    An exception of the learner becomes the result of that probe. UnsupportedSpaceError marks the
    probe as refused, not failed.

    Args:
        learner: a function; "file.py:name" or "module:name" of a function; or a corral trainer, or
            its name, such as "mappo".
        probes: names, such as "P4" or "probe_p04_v0"; default: all of ``EXAMINED``.
        seed: passed to the learner, and used for the test episodes.
        budget: factor for the env steps of each probe.
        limit: time limit per probe in seconds, after which it fails; None: no limit. It interrupts
            Python code in the main thread, on systems with SIGALRM.
        progress: called with a probe's label, the number of probes done, and their total.

    Raises UnknownNameError for an unknown name, ValueError for an invalid learner or budget.
    """
    for name, value in (("budget", budget), ("limit", limit)):
        if value is not None and not 0 < value < math.inf:
            raise ValueError(f"{name}={value}: pass a number above 0")
    learn, names = _learn(learner), _names(probes)
    results: list[Result] = []
    for name in names:
        progress(_label(name), len(results), len(names))
        results.append(_examined(learn, name, seed, budget, limit))
    progress("", len(names), len(names))
    return Examination(tuple(results))


def judged_run(run: Run, *, seed: int = 0) -> Result | None:
    """Judge a run that was trained on a probe; return None for other environments.

    Values are judged with the run's own discount. Raises the errors of loading its checkpoint.
    """
    rules: Any = run.config.env_config.rules()
    if not isinstance(rules, Probe):
        return None
    trained: Any = run._trained()
    gamma = float(getattr(getattr(trained, "settings", None), "gamma", GAMMA))
    return judge(rules, Learned(run.policies, values_of(trained)), seed=seed, gamma=gamma)


def _label(name: str) -> str:
    return f"P{int(name[7:9])}"


def _names(probes: Sequence[str] | None) -> list[str]:
    """Return the registry names of probes. Raises UnknownNameError."""
    labels = {_label(name): name for name in EXAMINED}
    chosen_names = []
    for text in EXAMINED if probes is None else probes:
        name = labels.get(text.strip().upper(), text.strip())
        if name not in EXAMINED:
            raise UnknownNameError.of("probe", text, labels)
        chosen_names.append(name)
    return list(dict.fromkeys(chosen_names))


_ANY = inspect.Parameter.VAR_POSITIONAL


def _learn(learner: Any) -> Learn:
    """Return the learn function for ``learner``."""
    function = learner
    if isinstance(function, str):
        if function.endswith(".py"):
            raise UnknownNameError(
                f"learner {function} is a file: add its function, {function}:learn"
            )
        function = (
            named_object(function, "learner") if is_named(function) else trainer_class(function)
        )
    if isinstance(function, type) and hasattr(function, "Settings"):
        return trained_by(function)
    if not callable(function):
        raise ValueError(
            f"learner {learner!r:.60} is not a function: pass learn(make_env, steps, seed)"
        )
    try:
        signature = inspect.signature(function)
    except ValueError:  # a C function without a signature
        signature = inspect.Signature([inspect.Parameter("given", _ANY)])
    try:
        signature.bind(None, 1, 0)
    except TypeError:
        parameters = [
            parameter.replace(annotation=parameter.empty)
            for parameter in signature.parameters.values()
        ]
        raise ValueError(
            f"learner {learner!s:.60} takes {inspect.Signature(parameters)}; pass "
            "learn(make_env, steps, seed)"
        ) from None
    learn: Learn = function
    return learn


def _examined(learn: Learn, name: str, seed: int, budget: float, limit: float | None) -> Result:
    probe: Any = PROBES[name](**KWARGS.get(name, {}))
    make_env = functools.partial(make, name, **KWARGS.get(name, {}))
    began = time.perf_counter()
    try:
        with _at_most(limit):
            learned = learn(make_env, max(1, round(probe.budget * budget)), seed)
    except (Exception, SystemExit) as error:  # becomes the result
        refused = isinstance(error, UnsupportedSpaceError)
        return Result(name, (), error_text(error), refused, time.perf_counter() - began)
    seconds = time.perf_counter() - began
    return replace(judge(probe, learned, seed=seed), seconds=seconds)


@contextlib.contextmanager
def _at_most(limit: float | None) -> Iterator[None]:
    """Raise TimeoutError in the block after ``limit`` seconds, if the system supports it."""
    import signal
    import threading

    main = threading.current_thread() is threading.main_thread()
    if limit is None or not main or not hasattr(signal, "SIGALRM"):
        yield
        return

    def stop(*_: Any) -> None:
        raise TimeoutError(f"not finished after the limit of {limit:g} s; raise limit")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


# --- Corral's own trainers -----------------------------------------------------------------------

SEPARATE = ("probe_p05_v0",)
"""Probes in which agents with a shared policy would have to learn an exclusive or."""

SMALL: dict[str, Any] = {
    "num_envs": 64,
    "n_steps": 8,
    "n_minibatches": 1,
    "n_epochs": 8,
    "batch_size": 1024,
    "learning_rate": 5e-3,
    "gamma": GAMMA,
    "gae_lambda": 0.95,
    "net_arch": (32,),
    "device": "cpu",
}
"""Settings with small networks, with which faultless trainers learn the probes in budget."""

ONE_STEP: dict[str, Any] = {"n_steps": 2, "num_envs": 32, "learning_rate": 0.01}
"""Shorter rollouts for algorithms with one optimizer step per rollout."""

LONG: dict[str, dict[str, Any]] = {
    "probe_p09_v0": {"n_steps": 4, "num_envs": 16},
    "probe_p10_v0": {"n_steps": 4, "num_envs": 16},
    "probe_p12_v0": {"n_steps": 9},
    "probe_p13_v0": {"n_steps": 4},
}
"""Rollouts of whole episodes, for algorithms with one optimizer step."""

OFF_POLICY: dict[str, Any] = {
    **{"train_freq": 1, "gradient_steps": 2, "batch_size": 256, "learning_starts": 320},
    **{"target_update_interval": 320, "log_interval": 10, "exploration_fraction": 0.5},
    "buffer_size": 4096,  # soon discards transitions with exploring opponents
}
"""Settings for algorithms with a replay buffer."""

ENOUGH = {
    **{"probe_p06_v0": 1 / 3, "probe_p09_v0": 0.5},
    **{"probe_p10_v0": 1 / 3, "probe_p14_v0": 1 / 3},
}
"""Shares of the budget in which corral's trainers learn these probes."""

REMEMBERING: dict[str, Any] = {"memory": 16, "n_steps": 20, "n_epochs": 4, "n_minibatches": 4}


def trained_by(trainer: str | type[Trainer], **settings: Any) -> Learn:
    """Return a ``learn`` function that trains with a corral trainer, without a run folder.

    The default settings are small networks that learn the probes in budget.
    """
    kind = trainer_class(trainer) if isinstance(trainer, str) else trainer
    field_names = {field.name for field in dataclasses.fields(kind.Settings)}

    def learn(make_env: Callable[[], Any], steps: int, seed: int) -> Learned:
        rules = rules_of(make_env)
        values = dict(SMALL)
        if "n_epochs" not in field_names:
            values |= {**ONE_STEP, **LONG.get(rules.name, {})}
        if "buffer_size" in field_names:
            values |= OFF_POLICY
        if rules.name == "probe_p14_v0" and "memory" in field_names:
            values |= REMEMBERING
        spaces = {str((rules.observation_space(a), rules.action_space(a))) for a in rules.agents}
        shared = len(spaces) == 1 and rules.name not in SEPARATE
        policies = {agent: "shared" if shared else agent for agent in rules.agents}
        learner: Any = kind(
            rules,
            make_settings(kind, {k: v for k, v in values.items() if k in field_names} | settings),
            seed=seed,
            policies=policies,
            policies_to_train=sorted(set(policies.values())),
            steps=round(steps * ENOUGH.get(rules.name, 1.0)),
        )
        try:
            for _ in learner.learn():
                pass
        finally:
            learner.close()
        return Learned(learner.policies, values_of(learner))

    return learn


def values_of(learner: Any) -> dict[str, Callable[..., Any]] | None:
    """Return the value function of each agent from a trainer's critic; None if unavailable."""
    kind = getattr(getattr(learner, "critic_input", None), "kind", "")
    if hasattr(learner, "values") and not hasattr(learner, "critic_input"):
        kind = "own"  # Stable-Baselines3 critics use the agent's own observation

    def ask(agent: str, observation: Any, state: Array | None) -> Any:
        rules = learner.rules
        # These critics see other agents' observations only through the state.
        views = rules.observe(rules.situations([0])) | {agent: take_tree(observation, None)}
        return learner.values(views, state)[agent]

    def own(agent: str) -> Callable[..., Any]:
        return lambda observation: ask(agent, observation, None)

    def central(agent: str) -> Callable[..., Any]:
        return lambda observation, state: ask(agent, observation, np.asarray(state)[None])

    makers = {"own": own, "state": central}.get(kind)
    if makers is None:
        return None
    return {agent: makers(agent) for agent in learner.rules.agents}
