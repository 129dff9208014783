"""The good and the bad side of a bisection, the differences between them, and mixtures of both.

A side is the complete configuration of a training. A mixture takes the values of some differences
from the bad side, and all others from the good side.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from corral.adapters.sources import rules_of
from corral.adapters.zoo.batch import ZooRules
from corral.envs.core import Rules
from corral.envs.others.convert import EnvFactory
from corral.envs.registry import NamedEnv
from corral.lab.bisect.wrappers import Rewrapped, chain, is_custom
from corral.text import dotted_name, one_line
from corral.trainers.arguments import Policies, have_equal_spaces, policy_of_each
from corral.trainers.base import Trainer, trainer_class
from corral.trainers.kinds import defaults_for
from corral.trainers.runs.env_config import EnvConfig
from corral.trainers.runs.run_config import RunConfig
from corral.trainers.settings import make_settings

__all__ = ["Difference", "Pair", "stock_of"]

Key = tuple[str, str]
"""Part and name of a value: ("setting", "gamma"), ("algorithm", "loss")."""

ABSENT = "absent"

DATA = ("rows", "held_out", "validation")
"""Arguments that divide the data of an environment; they depend on each other."""


@dataclass(frozen=True)
class Difference:
    """A value that differs between the sides, as text."""

    part: str  # "setting", "algorithm", "network", "wrapper", "argument", "policies", ...
    name: str
    good: str
    bad: str

    def __str__(self) -> str:
        return f"{self.part} {self.name}".rstrip()


class Pair:
    """Two configurations, their differences, and their mixtures."""

    def __init__(self, good: RunConfig, bad: RunConfig) -> None:
        self.good, self.bad = good, bad
        values = [dict(_values(config)) for config in (good, bad)]
        self._values = [
            self._of_kinds(*values),
            self._of_kinds(*values[::-1]),
        ]

    def _of_kinds(self, values: dict[Key, Any], other: Mapping[Key, Any]) -> dict[Key, Any]:
        """Return ``values`` without those that follow from another value."""
        drop = set()
        if values["trainer", "class"] is not other["trainer", "class"] and not (
            values["algorithm", "record"] and other["algorithm", "record"]
        ):
            drop |= {key for key in values if key[0] == "algorithm"}
        drop |= {key for key in values if key[0] == "setting" and key not in other}
        if _environment(self.good.env_config) != _environment(self.bad.env_config):
            drop |= {key for key in values if key[0] in ("argument", "data")}
        drop.add(("algorithm", "record"))
        return {key: value for key, value in values.items() if key not in drop}

    @cached_property
    def wrappers(self) -> tuple[str, ...] | None:
        """Names of the wrappers that one side has in addition; None: the sides differ otherwise."""
        chains = [self._chain(config) for config in (self.good, self.bad)]
        shorter, longer = sorted(chains, key=len)
        if not shorter or shorter[-1] is not longer[-1]:
            return None
        rest = iter(longer)
        if not all(any(kind is other for other in rest) for kind in shorter):
            return None
        return tuple(kind.__name__ for kind in longer if kind not in shorter)

    @staticmethod
    def _chain(config: RunConfig) -> list[type]:
        rules = config.env_config.own_rules
        return [type(env) for env in chain(rules.make_env())] if isinstance(rules, ZooRules) else []

    @cached_property
    def _keys(self) -> dict[Key, tuple[Any, Any]]:
        """The keys that differ, with their values on the good and the bad side."""
        good, bad = self._values
        keys = {
            key: (good.get(key, ABSENT), bad.get(key, ABSENT))
            for key in {**good, **bad}
            if not _same(good.get(key, ABSENT), bad.get(key, ABSENT))
        }
        if ("environment", "") in keys and self.wrappers is not None:
            del keys["environment", ""]
            longer_is_good = len(self._chain(self.good)) > len(self._chain(self.bad))
            for name in self.wrappers:
                used = ("used", ABSENT) if longer_is_good else (ABSENT, "used")
                keys["wrapper", name] = used
        return keys

    @cached_property
    def differences(self) -> tuple[Difference, ...]:
        """The differences, in a fixed order: values of the same part are neighbors."""
        return tuple(
            Difference(*key, *(_text(value) for value in values))
            for key, values in self._keys.items()
        )

    # --- Mixtures --------------------------------------------------------------------------------

    def mixed(self, bad: Collection[Difference]) -> RunConfig:
        """Return the good configuration with the values of the bad side for some differences."""
        chosen = {(difference.part, difference.name) for difference in bad}

        def pick(part: str, name: str) -> Any:
            key = part, name
            side = self._values[key in chosen]
            return side.get(key, self._values[key not in chosen].get(key))

        cls = self._trainer(pick)
        sharing = pick("policies", "sharing")
        trained = pick("policies", "trained")
        env_config, opponents = self._env_config(chosen), pick("opponents", "")
        return dataclasses.replace(
            self.good,
            env_config=env_config,
            trainer=cls.name,
            own_trainer=cls,
            trainer_source=None,
            settings=self._settings(cls, chosen),
            settings_of=pick("settings", "of policies"),
            policies={**sharing, **opponents["names"]},
            policies_to_train=tuple(
                dict.fromkeys(
                    policy
                    for agent, policy in sharing.items()
                    if trained in (None, ()) or agent in trained
                )
            ),
            opponents=opponents["opponents"],
            opponent_runs=opponents["runs"],
            self_play=pick("self-play", ""),
            init=pick("init", ""),
            own_model=pick("network", ""),
            steps=pick("length", "steps"),
            horizon=round(pick("length", "steps") * pick("length", "annealed share")),
        )

    def judge(self, bad: Collection[Difference]) -> Rules[Any]:
        """Return the rules that score a mixture: its wrappers around the good environment."""
        wrappers = {(d.part, d.name) for d in bad if d.part == "wrapper"}
        rules, mixed = self._env_config(wrappers).rules(), self.mixed(bad).env_config.rules()
        spaces = [
            [(r.observation_space(a), r.action_space(a)) for a in r.agents] for r in (rules, mixed)
        ]
        return rules if spaces[0] == spaces[1] else mixed

    def _trainer(self, pick: Callable[..., Any]) -> type[Trainer]:
        from corral.lab.bisect import records  # needs torch

        base = pick("trainer", "class")
        sides = [config.trainer_class() for config in (self.good, self.bad)]
        if ("algorithm", "loss") not in self._values[0]:  # another kind of trainer
            return next(cls for cls in sides if records.base_of(cls) is base)
        fields = {name: pick("algorithm", name) for name in records.FIELDS}
        for cls in sides:
            if records.base_of(cls) is base and all(
                _same(value, vars(cls.algorithm)[name]) for name, value in fields.items()
            ):
                return cls
        return records.mixture_of(base, fields)

    def _settings(self, cls: Any, chosen: Collection[Key]) -> dict[str, Any]:
        sides = (self.good.settings, self.bad.settings)
        settings = {}
        for field in dataclasses.fields(cls.Settings):
            first, second = sides if ("setting", field.name) not in chosen else sides[::-1]
            if field.name in {**first, **second}:
                settings[field.name] = first.get(field.name, second.get(field.name))
        return dict(vars(make_settings(cls, settings)))

    def _env_config(self, chosen: Collection[Key]) -> EnvConfig:
        config = self.good.env_config
        if ("environment", "") in chosen:
            return self.bad.env_config
        names = [key[1] for key in chosen if key[0] == "argument"]
        if names or ("data", "rows") in chosen:
            bad = self.bad.env_config
            kwargs = {
                **config.env_kwargs,
                **{n: bad.env_kwargs[n] for n in names if n in bad.env_kwargs},
            }
            kwargs = {n: v for n, v in kwargs.items() if n not in names or n in bad.env_kwargs}
            if ("data", "rows") in chosen:
                kwargs["rows"] = bad.env_kwargs.get("rows")
                config = dataclasses.replace(
                    config, held_out=bad.held_out, validation=bad.validation
                )
            rules: Any = config.own_rules
            if isinstance(rules, ZooRules):
                rules = rules_of(_maker_with(rules.make_env, kwargs))
            config = dataclasses.replace(config, env_kwargs=kwargs, own_rules=rules)
        if not any(key[0] == "wrapper" for key in self._keys):
            return config
        good = len(self._chain(self.good)) > len(self._chain(self.bad))
        longer: Any = (self.good if good else self.bad).env_config.own_rules
        assert isinstance(longer, ZooRules)
        assert self.wrappers is not None
        dropped = {name for name in self.wrappers if (("wrapper", name) in chosen) is good}
        rules = dataclasses.replace(longer, make_env=Rewrapped(longer.make_env, frozenset(dropped)))
        return dataclasses.replace(config, own_rules=rules)


# --- Values of a side ----------------------------------------------------------------------------


def _values(config: RunConfig) -> Iterator[tuple[Key, Any]]:
    """Yield all values that define a training, except for its seed."""
    from corral.lab.bisect import records  # needs torch

    cls = config.trainer_class()
    record = records.record_of(cls)
    yield ("trainer", "class"), records.base_of(cls)
    yield ("algorithm", "record"), record is not None
    for name in records.FIELDS if record is not None else ():
        yield ("algorithm", name), vars(record)[name]
    yield ("network", ""), config.own_model
    learners = [agent for agent in config.policies if agent not in config.opponents]
    yield ("policies", "sharing"), {agent: config.policies[agent] for agent in learners}
    trained = tuple(a for a in learners if config.policies[a] in config.policies_to_train)
    yield ("policies", "trained"), None if trained == tuple(learners) else trained
    # A run's settings are read from JSON, which has lists for tuples.
    for name, value in vars(make_settings(cls, config.settings)).items():
        yield ("setting", name), value
    yield ("settings", "of policies"), config.settings_of
    names = {agent: config.policies[agent] for agent in config.opponents}
    opponents = {"opponents": config.opponents, "names": names, "runs": config.opponent_runs}
    yield ("opponents", ""), opponents
    yield ("self-play", ""), config.self_play
    yield ("init", ""), config.init
    yield ("length", "steps"), config.steps
    yield ("length", "annealed share"), config.horizon / config.steps
    env = config.env_config
    yield ("environment", ""), _environment(env)
    for name, value in env.env_kwargs.items():
        if name not in DATA:
            yield ("argument", name), value
    data = {name: env.env_kwargs.get(name) for name in DATA[:1]}
    yield ("data", "rows"), (data, env.held_out, env.validation)


def _environment(config: EnvConfig) -> Any:
    """Return the identity of an environment, without its arguments."""
    rules: Any = config.own_rules
    if not isinstance(rules, ZooRules):
        return config.env
    make = rules.make_env
    if isinstance(make, NamedEnv):
        return make.text, make.api
    return make.make if isinstance(make, EnvFactory) else make


def _maker_with(make: Any, kwargs: Mapping[str, Any]) -> Any:
    """Return a function that makes an environment with other arguments."""
    if isinstance(make, NamedEnv):
        return dataclasses.replace(make, env_kwargs=kwargs)
    return dataclasses.replace(make, kwargs=kwargs)


def _same(first: Any, second: Any) -> bool:
    if first is second:
        return True
    try:
        return bool(first == second)
    except ValueError:  # arrays
        return repr(first) == repr(second)


def _text(value: Any) -> str:
    if isinstance(value, type) or callable(value):
        return one_line(dotted_name(value))
    name = vars(value).get("name") if dataclasses.is_dataclass(value) else None
    return one_line(value if name is None else name)


# --- Corral's own parts --------------------------------------------------------------------------


def stock_of(config: RunConfig) -> RunConfig:
    """Return the configuration with corral's own parts in place of the user's.

    These are: the most similar algorithm of corral with its default settings for the environment,
    the default network and policies, all policies trained, and no custom wrappers. The
    environment, its arguments and the opponents stay.
    """
    from corral.lab.bisect import records  # needs torch

    env_config = config.env_config
    rules: Any = env_config.rules()
    if isinstance(rules, ZooRules):
        kinds = [type(env) for env in chain(rules.make_env())[:-1]]
        if custom := frozenset(kind.__name__ for kind in kinds if is_custom(kind)):
            rules = rules_of(Rewrapped(rules.make_env, custom))
            env_config = dataclasses.replace(env_config, own_rules=rules)
    cls = config.trainer_class()
    record = records.record_of(cls)
    name = str(config.trainer)
    if record is not None:
        like = [
            sum(_same(vars(record)[f], vars(stock)[f]) for f in records.FIELDS)
            for stock in records.STOCK
        ]
        name = records.STOCK[like.index(max(like))].name
    kind: Any = trainer_class(name)
    defaults = defaults_for(rules, kind, config.seed)
    learners = [agent for agent in config.policies if agent not in config.opponents]
    default: Policies = "shared" if have_equal_spaces(rules, learners) else "separate"
    sharing = policy_of_each(defaults.policies or default, learners)
    return dataclasses.replace(
        config,
        env_config=env_config,
        trainer=name,
        own_trainer=None,
        trainer_source=None,
        settings=dict(vars(make_settings(kind, defaults.settings))),
        settings_of={},
        policies={**config.policies, **sharing},
        policies_to_train=tuple(dict.fromkeys(sharing.values())),
        own_model=None,
        init=None,
        horizon=config.steps,
    )
