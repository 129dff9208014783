"""Any learner of any framework, examined on the probes, whose answers are known exactly.

    def learn(make_env, steps, seed):
        env = make_env()            # a PettingZoo environment: parallel; AEC where in turns
        ...                         # train for ``steps`` env steps with discount 0.9
        return {"agent_0": policy, "agent_1": policy}     # or Learned(policies, values)

    examination = examine(learn)
    print(examination.passed, examination.suspects())

Policies are whatever ``corral.envs.policy.as_policy`` takes. What asks for values is "not judged"
where none are given.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corral.envs import probes
from corral.envs.core import Array, generator
from corral.envs.masks import OBSERVATION
from corral.envs.policy import Policy, PolicyLike, as_policy, count_rows, take_tree
from corral.envs.probes.base import Answer, Probe
from corral.envs.registry import make, make_rules
from corral.errors import ActionError, IllegalActionError
from corral.trainers.base import Trainer, trainer_class
from corral.trainers.evaluation.episodes import play_episodes
from corral.trainers.settings import make_settings

__all__ = ["EXAMINED", "GAMMA", "Check", "Examination", "Learned", "Result", "examine", "judge"]

GAMMA = 0.9
"""The discount that values are judged by."""

SURE = 0.9
"""Probability of the best action from which on an action counts as learned."""

DRAWS = 200
"""Decisions that are drawn in each situation, of a policy that tells no probabilities."""

EPISODES = 256
"""Episodes that returns are means of."""

RETURNS: dict[str, tuple[float, ...]] = {
    "probe_p06_v0": (34 / 15, 34 / 15),
    "probe_p07_v0": (1.0, 0.0),
    "probe_p10_v0": (2.0, 4.0),
    "probe_p11_v0": (1.0, 1.0),
    "probe_p14_v0": (1.0, 1.0),
}
"""Mean returns of learned play, where they tell more than single actions."""

EXAMINED = tuple(f"probe_p{number:02}_v0" for number in range(1, 15))
"""The probes that any learner can be examined on; the others are about what is inside of one."""


# --- What is found -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learned:
    """What a learner has learned.

    ``values[agent](observation)`` returns V of one observation, or of a batch of them; a function
    of two arguments is given the global state (float32 [G]) as the second.
    """

    policies: Mapping[str, PolicyLike]
    values: Mapping[str, Callable[..., Any]] | None = None


@dataclass(frozen=True)
class Check:
    """One number that a probe fixes, and what was found instead."""

    kind: str  # "values", "actions", "returns" or "masks"
    what: str  # in words
    expected: str  # such as "1.00", "at least 0.90"
    found: float | None  # None: not judged
    passed: bool | None  # None: not judged


@dataclass(frozen=True)
class Result:
    """What came out of one probe. ``error`` is what the learner raised, "" where it did not."""

    probe: str  # its name in the registry
    checks: tuple[Check, ...]
    error: str = ""

    @property
    def label(self) -> str:
        """ "P4" of probe_p04_v0."""
        return f"P{int(self.probe[7:9])}"

    @property
    def passed(self) -> bool | None:
        """None where nothing could be judged."""
        if self.error:
            return False
        judged = [check.passed for check in self.checks if check.passed is not None]
        return all(judged) if judged else None

    def kinds(self, passed: bool) -> set[str]:
        """Return "P4 actions", "P4 values", ...: the kinds of checks of which all passed, or of
        which one failed."""
        found: dict[str, bool] = {}
        for check in self.checks:
            if check.passed is not None:
                found[check.kind] = found.get(check.kind, True) and check.passed
        if self.error:
            found = dict.fromkeys(found or {"actions": False}, False)
        return {f"{self.label} {kind}" for kind, good in found.items() if good is passed}


@dataclass(frozen=True)
class Examination:
    """The results of all probes."""

    results: tuple[Result, ...]

    @property
    def passed(self) -> bool:
        """True where no probe failed."""
        return all(result.passed is not False for result in self.results)

    @property
    def failed(self) -> frozenset[str]:
        """ "P4 actions", ...: what failed."""
        return frozenset().union(*(result.kinds(False) for result in self.results))

    @property
    def judged(self) -> frozenset[str]:
        """What passed or failed."""
        return self.failed.union(*(result.kinds(True) for result in self.results))


# --- Judging one probe ---------------------------------------------------------------------------


def judge(probe: Probe, learned: Learned, *, seed: int = 0) -> Result:
    """Return what ``learned`` makes of a probe, beside what must come out."""
    agents = probe.agents
    missing = [agent for agent in agents if agent not in learned.policies]
    if missing:
        raise ValueError(
            f"{probe.name}: no policy for {', '.join(missing)}; give one for each of "
            f"{', '.join(agents)}"
        )
    team = {agent: as_policy(learned.policies[agent], agent, agents) for agent in agents}
    checks: list[Check] = []
    try:
        checks += _values(probe, learned.values)
        if probe.name != "probe_p14_v0":  # what is right there, memory alone tells
            checks += _actions(probe, team, seed)
        checks += _played(probe, team, seed)
    except (ActionError, IllegalActionError) as error:
        return Result(probe.name, tuple(checks), str(error))
    return Result(probe.name, tuple(checks))


def _values(probe: Probe, values: Mapping[str, Callable[..., Any]] | None) -> Iterator[Check]:
    answer = probe.answer(GAMMA)
    observed, states = probe.observe(answer.state), probe.global_state(answer.state)
    for k, i in np.argwhere(~np.isnan(answer.value)):
        agent, tolerance, expected = probe.agents[i], probe.tolerance[i], answer.value[k, i]
        what = f"V of {agent}" + (f", situation {k}" if len(answer.value) > 1 else "")
        said = f"{expected:.2f} ± {tolerance:g}"
        value = None if values is None else values.get(agent)
        if value is None or not (_takes_state(value) or _is_shown(answer, observed[agent], i)):
            yield Check("values", what, said, None, None)
            continue
        observation = take_tree(observed[agent], k)
        told = value(observation, states[k]) if _takes_state(value) else value(observation)
        found = float(np.asarray(told, dtype=np.float64).reshape(-1)[0])
        yield Check("values", what, said, found, bool(abs(found - expected) <= tolerance))


def _takes_state(value: Callable[..., Any]) -> bool:
    """Return whether a function of values wants the global state, as a second argument."""
    given = inspect.signature(value).parameters.values()
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return len([each for each in given if each.kind in places and each.default is each.empty]) > 1


def _is_shown(answer: Answer, observation: Any, i: int) -> bool:
    """Return whether what agent ``i`` observes tells its values: equal views, equal values."""
    features = np.asarray(observation[OBSERVATION]).reshape(len(answer.value), -1)
    equal = (features[:, None] == features[None]).all(axis=-1)  # [K, K]
    value = answer.value[:, i]
    apart = np.abs(value[:, None] - value[None]) > 1e-9  # NaN: nothing is said
    return not (equal & apart).any()


def _actions(probe: Probe, team: Mapping[str, Policy], seed: int) -> Iterator[Check]:
    answer = probe.answer(GAMMA)
    observed, acting = probe.observe(answer.state), probe.acting(answer.state)
    for i, agent in enumerate(probe.agents):
        for k in np.flatnonzero((answer.best[:, i] >= 0) & acting[:, i]):
            best = int(answer.best[k, i])
            chance = _chance(team[agent], take_tree(observed[agent], np.array([k])), best, seed)
            what = f"{agent} plays {best}"
            if len(answer.best) > 1:
                what += f", situation {k}"
            yield Check("actions", what, f"at least {SURE:.2f}", chance, bool(chance >= SURE))


def _chance(policy: Policy, observation: Any, action: int, seed: int) -> float:
    """Return the probability of ``action`` for an observation [1, ...]; of a policy that tells
    none, how often it is drawn."""
    rng = generator(seed, "policy")
    decision = policy.act(observation, policy.initial_state(1), rng, deterministic=False)
    told = decision.extra.get("probabilities")
    if told is not None:
        return float(np.asarray(told)[0, action])
    rows = take_tree(observation, np.zeros(DRAWS, dtype=np.int64))
    assert count_rows(rows) == DRAWS
    drawn = policy.act(rows, policy.initial_state(DRAWS), rng, deterministic=False).action
    return float(np.mean(np.asarray(drawn).reshape(DRAWS) == action))


def _played(probe: Probe, team: Mapping[str, Policy], seed: int) -> Iterator[Check]:
    """Play sampled episodes: illegal actions, and returns where the probe fixes them."""
    # Counted, not raised: all of them are to be seen.
    rules = probes.PROBES[probe.name](illegal="penalise")
    greedy = dict.fromkeys(probe.agents, False)
    played, illegal = play_episodes(rules, team, greedy, episodes=EPISODES, seed=seed)
    count = int(illegal.sum())
    yield Check("masks", "illegal actions played", "0", float(count), count == 0)
    for i, expected in enumerate(RETURNS.get(probe.name, ())):
        found = float(played.returns[:, i].mean())
        # Actions of 0.9 and more, and the draw of the situations.
        spread = 0.25 if probe.name == "probe_p06_v0" else 0.2
        good = bool(abs(found - expected) <= spread)
        what = f"return of {probe.agents[i]}"
        yield Check("returns", what, f"{expected:.2f} ± {spread:g}", found, good)


# --- All of them ---------------------------------------------------------------------------------

Learn = Callable[[Callable[[], Any], int, int], "Learned | Mapping[str, PolicyLike]"]


def examine(
    learn: Learn,
    names: Sequence[str] = EXAMINED,
    *,
    seed: int = 0,
    budget: float = 1.0,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Examination:
    """Let ``learn(make_env, steps, seed)`` learn each probe, and judge what comes out.

    An exception of the learner is kept as the result of that probe. ``budget`` multiplies the env
    steps that the probes allow. Raises UnknownNameError for a name that is no probe.
    """
    results = []
    for done, name in enumerate(names):
        progress(name, done, len(names))
        if name not in probes.PROBES:
            make(name)  # says which names there are
        results.append(_examined(learn, probes.PROBES[name](illegal="raise"), seed, budget))
    progress("", len(names), len(names))
    return Examination(tuple(results))


def _examined(learn: Learn, probe: Probe, seed: int, budget: float) -> Result:
    make_env = functools.partial(make, probe.name)
    try:
        found = learn(make_env, max(1, round(probe.budget * budget)), seed)
    except Exception as error:  # it is what is examined
        return Result(probe.name, (), f"{type(error).__name__}: {error}")
    learned = found if isinstance(found, Learned) else Learned(found)
    return judge(probe, learned, seed=seed)


def trained_by(trainer: str | type[Trainer], **settings: Any) -> Learn:
    """Return a ``learn`` that trains by a trainer of corral, without a folder.

    Settings left out are those of small networks that learn the probes in their budgets.
    """
    kind = trainer_class(trainer) if isinstance(trainer, str) else trainer
    known = {each.name for each in dataclasses.fields(kind.Settings)}
    small = {name: value for name, value in SMALL.items() if name in known}

    def learn(make_env: Any, steps: int, seed: int) -> Learned:
        rules = make_rules(make_env.args[0], illegal="raise")
        alike = len({str(rules.observation_space(agent)) for agent in rules.agents}) == 1
        shared = alike and rules.name not in SEPARATE
        policies = {agent: "shared" if shared else agent for agent in rules.agents}
        learner: Any = kind(
            rules,
            make_settings(kind, {**small, **settings}),
            seed=seed,
            policies=policies,
            policies_to_train=sorted(set(policies.values())),
            steps=steps,
        )
        try:
            for _ in learner.learn():
                pass
        finally:
            learner.close()
        told = getattr(getattr(learner, "critic_input", None), "kind", "") in ("own", "state")
        values = {agent: _ValueOf(learner, agent) for agent in rules.agents}
        return Learned(learner.policies, values if told else None)

    return learn


SEPARATE = ("probe_p05_v0",)
"""Agents that share a policy have an exclusive or to learn there."""

SMALL: dict[str, Any] = {
    "num_envs": 64,
    "n_steps": 8,
    "n_minibatches": 1,
    "n_epochs": 8,
    "learning_rate": 5e-3,
    "gamma": GAMMA,
    "gae_lambda": 0.95,
    "net_arch": (32,),
    "device": "cpu",
}


@dataclass(frozen=True)
class _ValueOf:
    """V of an agent by the critic of an in-house trainer."""

    learner: Any
    agent: str

    def __call__(self, observation: Any, state: Array) -> Any:
        rules = self.learner.rules
        # What the others observe is no part of these critics but through the state.
        views = rules.observe(rules.situations([0])) | {self.agent: take_tree(observation, None)}
        return self.learner.values(views, state[None])[self.agent]


def labels(kinds: Iterable[str]) -> list[str]:
    """Return "P4, P5" of "P4 actions", "P5 actions", "P5 values", in their order."""
    return sorted({kind.split()[0] for kind in kinds}, key=lambda label: int(label[1:]))
