"""Compare the policies and values of a learner with the known answers of a probe: ``judge``.

Policies and values of any framework can be judged; see ``Learned``. Without value functions, values
are not judged. Memory is not judged for policies without a state.
"""

from __future__ import annotations

import inspect
import sys
import textwrap
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from corral import results
from corral.envs.core import generator
from corral.envs.masks import OBSERVATION
from corral.envs.policy import Policy, PolicyLike, as_policy, count_rows, take_tree
from corral.envs.probes.base import Answer, Probe
from corral.errors import IllegalActionWarning
from corral.trainers.evaluation.episodes import play_episodes

__all__ = ["GAMMA", "Check", "Examination", "Learned", "Result", "judge"]

GAMMA = 0.9
"""The discount for judging values."""

SURE = 0.9
"""Probability of the best action above which it counts as learned."""

SURE_OF = {"probe_p06_v0": 0.6}
"""Lower probabilities for single probes.

In P6, only the mask of actions 0 and 1, one of 15, shows which of them is better, and a critic that
does not observe masks adds noise. Sound learners reach 0.8, those that lose masks 0.5.
"""

TURNED = 0.1
"""Probability of the best action below which the opposite counts as learned."""

DRAWS = 200
"""Number of sampled decisions per situation, for policies that return no probabilities."""

EPISODES = 256
"""Number of episodes for mean returns."""

RETURNS: dict[str, tuple[float, ...]] = {
    "probe_p06_v0": (34 / 15, 34 / 15),
    "probe_p07_v0": (1.0, 0.0),
    "probe_p10_v0": (2.0, 4.0),
    "probe_p11_v0": (1.0, 1.0),
    "probe_p14_v0": (1.0, 1.0),
}
"""Mean returns of learned play, for probes in which returns show more than single actions."""

REMEMBERED = ("probe_p14_v0",)
"""Probes that need memory: judged by their returns."""


# --- Results -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learned:
    """The trained policies and value functions of a learner.

    ``values[agent](observation)`` returns V of one observation. A function with two arguments also
    gets the global state (float32 [G]).
    """

    policies: Mapping[str, PolicyLike]
    values: Mapping[str, Callable[..., Any]] | None = None


@dataclass(frozen=True)
class Check:
    """One expected number of a probe, and the learner's number."""

    kind: str  # "values", "actions", "returns" or "masks"
    what: str  # a description
    expected: str  # such as "1.00", "at least 0.90"
    found: float | None  # None: not judged
    passed: bool | None  # None: not judged
    wrong: str = ""  # kind of failure: "opposite", "agent_0 low", "agent_0 high"


@dataclass(frozen=True)
class Result:
    """Result of one probe."""

    probe: str  # its name in the registry
    checks: tuple[Check, ...]
    error: str = ""  # exception of the learner, or the fault of its return value
    refused: bool = False  # True if it raised UnsupportedSpaceError
    seconds: float = 0.0  # training time

    @property
    def label(self) -> str:
        """Return "P4" for probe_p04_v0."""
        return f"P{int(self.probe[7:9])}"

    @property
    def passed(self) -> bool | None:
        """None if no check, or only legal play, could be judged."""
        if self.refused:
            return None
        if self.error or any(check.passed is False for check in self.checks):
            return False
        unjudged = any(check.passed is None for check in self.checks)
        judged = {check.kind for check in self.checks if check.passed}
        return True if judged - {"masks"} or (judged and not unjudged) else None

    def kinds(self, passed: bool) -> set[str]:
        """Return "P4 actions", "P4 values", ...: kinds of checks that all passed, or that failed.

        A kind counts as failed if one of its checks failed.
        """
        passed_by_kind: dict[str, bool] = {}
        for check in self.checks:
            if check.passed is not None:
                passed_by_kind[check.kind] = passed_by_kind.get(check.kind, True) and check.passed
        if self.error and not self.refused:
            passed_by_kind["error"] = False
        return {f"{self.label} {kind}" for kind, good in passed_by_kind.items() if good is passed}

    @property
    def symptoms(self) -> set[str]:
        """The failed kinds, also with details: "P4 actions opposite", "P9 values agent_0 low"."""
        names = set(self.kinds(False))
        failed = [check for check in self.checks if check.passed is False]
        for check in failed:
            failures = {c.wrong for c in failed if c.kind == check.kind and _who(c) == _who(check)}
            if check.wrong and len(failures) == 1:
                names.add(f"{self.label} {check.kind} {check.wrong}")
        return names

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values; NaN is null."""
        return {
            "probe": self.probe,
            "passed": self.passed,
            "refused": self.refused,
            "error": self.error,
            "seconds": round(self.seconds, 3),
            "checks": [
                {name: value for name, value in results.plain(check).items() if name != "wrong"}
                for check in self.checks
            ],
        }


def _who(check: Check) -> str:
    """Return the agent in ``wrong``, "" if it names none."""
    return check.wrong.rpartition(" ")[0]


@dataclass(frozen=True, repr=False)
class Examination(results.Result):
    """Results of all probes."""

    json_file, csv_file, indent = "examination.json", "examination.csv", 1

    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        """True if no probe failed and at least one was judged."""
        verdicts = {result.passed for result in self.results}
        return True in verdicts and False not in verdicts

    @property
    def failed(self) -> frozenset[str]:
        """The failed kinds of checks: "P4 actions", ..."""
        return frozenset().union(*(result.kinds(False) for result in self.results))

    @property
    def judged(self) -> frozenset[str]:
        """The passed and failed kinds of checks, named as in ``failed``."""
        return self.failed.union(*(result.kinds(True) for result in self.results))

    @property
    def symptoms(self) -> frozenset[str]:
        """The failed kinds with details: see ``Result.symptoms``."""
        return frozenset().union(*(result.symptoms for result in self.results))

    def text(self, width: int = 80, *, learner: str = "The learner") -> str:
        """Return the result in lines of at most ``width``, verdict first; ``learner`` is its
        name."""
        from corral.lab.doctor.examination.text import examination_text

        return examination_text(self, learner, width)

    def to_dataframe(self) -> pd.DataFrame:
        """Return one row per check: its probe, and the fields of ``Check``."""
        return pd.DataFrame(
            [
                {"probe": result.probe, **vars(check)}
                for result in self.results
                for check in result.checks
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the results, and the planted bugs with similar failures, as JSON values.

        The failures are those of a known bug only if a suspect is "exact".
        """
        from corral.lab.doctor.examination.patterns import suspects

        return {
            "passed": self.passed,
            "failed": sorted(self.failed),
            "suspects": [
                {
                    **results.plain(suspect),
                    "likeness": round(suspect.likeness, 3),
                    "exact": suspect.exact,
                }
                for suspect in suspects(self)
            ],
            "probes": [result.to_json() for result in self.results],
        }


# --- Judging one probe ---------------------------------------------------------------------------


def judge(
    probe: Probe,
    learned: Learned | Mapping[str, PolicyLike],
    *,
    seed: int = 0,
    gamma: float = GAMMA,
) -> Result:
    """Judge the learned policies and values of a probe with discount ``gamma``.

    Invalid policies or values give a result with an ``error``; nothing is raised.
    """
    checks: list[Check] = []
    try:
        policies, values = _parts(probe, learned)
        team = {agent: as_policy(policies[agent], agent, probe.agents) for agent in probe.agents}
        checks += _values(probe, values, gamma)
        if probe.name not in REMEMBERED:
            checks += _actions(probe, team, seed)
        checks += _played(probe, team, seed)
    except Exception as error:  # from the user's policies and values
        return Result(probe.name, tuple(checks), error_text(error))
    return Result(probe.name, tuple(checks))


def error_text(error: BaseException) -> str:
    """Return an exception in one line, with its location in the learner's own files."""
    text = " ".join(str(error).split())
    name = type(error).__name__
    if text and (isinstance(error, _Misfit) or type(error).__module__.startswith("corral.")):
        return text
    message = f"{name}: {text}" if text else name
    place = _own_place(error)
    return (
        f"{textwrap.shorten(message, MAX_MESSAGE, placeholder=' ...')} ({place})"
        if place
        else message
    )


MAX_MESSAGE = 160
"""Maximum length of an exception's message; some libraries write pages."""


def _own_place(error: BaseException) -> str:
    """Return the innermost location in the user's own code, such as "my_file.py:31", or ""."""
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        module = str(frame.f_globals.get("__name__", ""))
        foreign = module.partition(".")[0] in ("corral", *sys.stdlib_module_names)
        if path.suffix == ".py" and not foreign and "site-packages" not in path.parts:
            place = f"{path.name}:{line}"
    return place


class _Misfit(ValueError):
    """The return value of a learner is invalid."""


def _parts(probe: Probe, learned: Any) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """Return policies and values. Raises _Misfit if they are invalid."""
    parts = learned if isinstance(learned, Learned) else Learned(learned)
    if learned is None:
        raise _Misfit(
            f"learn returned None; return a mapping from each of {', '.join(probe.agents)} to its "
            "policy, or Learned(policies, values)"
        )
    for part, mapping in (("policies", parts.policies), ("values", parts.values)):
        if not isinstance(mapping, Mapping) and not (part == "values" and mapping is None):
            raise _Misfit(
                f"learn returned {part} of type {type(mapping).__name__}; return a mapping from "
                "each "
                "of"
                f" {', '.join(probe.agents)}, or Learned(policies, values)"
            )
    missing = [agent for agent in probe.agents if agent not in parts.policies]
    if missing:
        raise _Misfit(
            f"no policy for {', '.join(missing)}; return one for each of {', '.join(probe.agents)}"
        )
    for agent, value in (parts.values or {}).items():
        if not callable(value):
            raise _Misfit(
                f"values[{agent!r}] is of type {type(value).__name__}; return a function of one "
                "observation"
            )
    return parts.policies, parts.values


def _values(
    probe: Probe, values: Mapping[str, Callable[..., Any]] | None, gamma: float
) -> Iterator[Check]:
    answer = probe.answer(gamma)
    observed, states = probe.observe(answer.state), probe.global_state(answer.state)
    for k, i in np.argwhere(~np.isnan(answer.value)):
        agent, tolerance, expected = probe.agents[i], probe.tolerance[i], answer.value[k, i]
        title = f"V of {agent}" + (f", situation {k}" if len(answer.value) > 1 else "")
        expected_text = f"{expected:.2f} ± {tolerance:g}"
        value = None if values is None else values.get(agent)
        if value is None or not (_takes_state(value) or _is_shown(answer, observed[agent], i)):
            yield Check("values", title, expected_text, None, None)
            continue
        observation = take_tree(observed[agent], k)
        result = value(observation, states[k]) if _takes_state(value) else value(observation)
        number = _number(agent, result)
        right = [expected] if answer.masked is None else [expected, answer.masked[k, i]]
        good = any(abs(number - item) <= tolerance for item in right)  # NaN fails
        wrong = "" if good else f"{agent} {'low' if number < expected else 'high'}"
        yield Check("values", title, expected_text, number, good, wrong)


def _number(agent: str, result: Any) -> float:
    """Convert the result of a value function to a float. Raises _Misfit if it is not one number."""
    if hasattr(result, "detach"):  # a torch tensor, perhaps with a gradient
        result = result.detach().cpu()
    try:
        (number,) = np.asarray(result, dtype=np.float64).reshape(-1)
    except (TypeError, ValueError):
        raise _Misfit(f"values[{agent!r}] returned {result!r:.60}; return one number") from None
    return float(number)


def _takes_state(value: Callable[..., Any]) -> bool:
    """Return True if a value function takes the global state as a second argument."""
    parameters = inspect.signature(value).parameters.values()
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return (
        len(
            [
                parameter
                for parameter in parameters
                if parameter.kind in places and parameter.default is parameter.empty
            ]
        )
        > 1
    )


def _is_shown(answer: Answer, observation: Any, i: int) -> bool:
    """Return True if the observation of agent ``i`` determines its values."""
    features = np.asarray(observation[OBSERVATION]).reshape(len(answer.value), -1)
    equal = (features[:, None] == features[None]).all(axis=-1)  # [K, K]
    value = answer.value[:, i]
    different = np.abs(value[:, None] - value[None]) > 1e-9  # NaN: no expected value
    return not (equal & different).any()


def _actions(probe: Probe, team: Mapping[str, Policy], seed: int) -> Iterator[Check]:
    answer, sure = probe.answer(), SURE_OF.get(probe.name, SURE)
    observed, acting = probe.observe(answer.state), probe.acting(answer.state)
    for i, agent in enumerate(probe.agents):
        for k in np.flatnonzero((answer.best[:, i] >= 0) & acting[:, i]):
            best = int(answer.best[k, i])
            chance = _chance(team[agent], take_tree(observed[agent], np.array([k])), best, seed)
            title = f"{agent} plays {best}"
            if len(answer.best) > 1:
                title += f", situation {k}"
            wrong = "opposite" if chance <= TURNED else ""
            yield Check("actions", title, f"at least {sure:.2f}", chance, chance >= sure, wrong)


def _chance(policy: Policy, observation: Any, action: int, seed: int) -> float:
    """Return the probability of ``action`` for an observation [1, ...].

    If the policy returns no probabilities, return the frequency in sampled decisions.
    """
    rng = generator(seed, "policy")
    decision = policy.act(observation, policy.initial_state(1), rng, deterministic=False)
    probabilities = decision.extra.get("probabilities")
    if probabilities is not None:
        return float(np.asarray(probabilities)[0, action])
    rows = take_tree(observation, np.zeros(DRAWS, dtype=np.int64))
    assert count_rows(rows) == DRAWS
    drawn = policy.act(rows, policy.initial_state(DRAWS), rng, deterministic=False).action
    return float(np.mean(np.asarray(drawn).reshape(DRAWS) == action))


def _played(probe: Probe, team: Mapping[str, Policy], seed: int) -> Iterator[Check]:
    """Play episodes; check illegal actions, and the returns that the probe fixes."""
    # Count illegal actions instead of raising at the first.
    settings = {name: value for name, value in vars(probe).items() if name in ("cue", "replies")}
    rules = type(probe)(**settings, illegal="penalise")
    for how, deterministic in (("sampled", False), ("greedy", True)):
        greedy = dict.fromkeys(probe.agents, deterministic)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IllegalActionWarning)
            played, illegal = play_episodes(rules, team, greedy, episodes=EPISODES, seed=seed)
        count = int(illegal.sum())
        yield Check("masks", f"illegal actions, {how}", "0", float(count), count == 0, how)
        if deterministic:
            return
        # Allows for action probabilities of 0.9 and more, and for the random situations.
        spread = 0.25 if probe.name == "probe_p06_v0" else 0.2
        for i, expected in enumerate(RETURNS.get(probe.name, ())):
            agent, expected_text = probe.agents[i], f"{expected:.2f} ± {spread:g}"
            if probe.name in REMEMBERED and team[agent].initial_state(1) is None:
                yield Check("returns", f"return of {agent}", expected_text, None, None)
                continue
            mean = float(played.returns[:, i].mean())
            good = bool(abs(mean - expected) <= spread)
            yield Check("returns", f"return of {agent}", expected_text, mean, good)
