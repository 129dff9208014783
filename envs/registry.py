"""Environments by name: the environments of corral, and third-party environments.

| text | environment |
|---|---|
| ``dfaas_v0``, ``corral/dfaas-v0`` | an environment of corral, by name or id |
| ``classic/connect_four-v3`` | an id of PettingZoo's registry (PettingZoo 1.27 or newer) |
| ``mpe2.simple_spread_v3`` | a module with ``parallel_env`` or ``env`` |
| ``my_package.games:make_game`` | a class or function of a module |
| ``my_file.py:MyEnv`` | a class or function of a file |
| ``CartPole-v1`` | an id of Gymnasium's registry: one agent |

Classes and functions may return environments of PettingZoo, of Gymnasium or of RLlib, see
``corral.envs.others``.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

import gymnasium
import pettingzoo

from corral.envs.arguments import known_arguments
from corral.envs.core import Rules
from corral.envs.others.single_agent import from_gymnasium, is_gymnasium_id, near_ids
from corral.errors import MissingExtraError, UnknownNameError, concise
from corral.named import named_object

if TYPE_CHECKING:
    from corral.envs import argument_types as types

__all__ = [
    *("ENVIRONMENTS", "PROBES", "REGISTERED"),
    "Api",
    "EnvSpec",
    "NamedEnv",
    "env_spec",
    "is_installed_id",
    "make",
    "make_rules",
    "register",
    "registered_name",
    "rules_class",
]

Api = Literal["parallel", "aec"]
"""PettingZoo's interfaces: "parallel" if all agents act at once, "aec" for one after the other."""


@dataclass(frozen=True)
class EnvSpec:
    """A registry entry: an environment in the module ``corral.envs.<name>``, or a probe."""

    name: str
    rules: str
    """Name of the class of its rules in that module."""
    simultaneous: bool
    summary: str
    zero_sum: bool = False
    """Whether it is a zero-sum game of two agents; evaluation then reports each agent."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Recommended settings, in addition to those of ``corral.trainers.kinds`` for its kind of game.
    A trainer uses the settings that it has."""

    @property
    def module(self) -> str:
        return "corral.envs.probes" if self.name in PROBES else f"corral.envs.{self.name}"

    @property
    def id(self) -> str:
        """Id in the registries of Gymnasium and PettingZoo: corral/dfaas-v0."""
        return "corral/" + "-v".join(self.name.rsplit("_v", 1))

    @property
    def ids(self) -> tuple[str, ...]:
        """The id, and the same id with dashes only: corral/two_step-v0, corral/two-step-v0."""
        return tuple(dict.fromkeys((self.id, self.id.replace("_", "-"))))


ENVIRONMENTS: dict[str, EnvSpec] = {
    spec.name: spec
    for spec in (
        EnvSpec(
            name="dfaas_v0",
            rules="DfaasRules",
            simultaneous=True,
            summary="N edge servers serve, queue or forward the requests of a load trace",
            # An action affects the rewards of this step and, through queues and reports, of the
            # next few steps. With a longer horizon, future load adds noise to every advantage,
            # although no action can change it: see "Discounting dfaas_v0" in benchmarks/LOG.md.
            # Random episodes do not show how long actions have effects, so that
            # ``corral.trainers.kinds`` cannot infer this setting.
            settings={"gamma": 0.5},
        ),
        EnvSpec(
            name="arena_v0",
            rules="ArenaRules",
            simultaneous=True,
            summary="an explorer visits new fields of a grid, a blocker tries to collide with it",
        ),
        EnvSpec(
            name="tictactoe_v0",
            rules="TicTacToeRules",
            simultaneous=False,
            summary="two players take turns: three in a row, or any m,n,k game",
            zero_sum=True,
        ),
        EnvSpec(
            name="rps_v0",
            rules="RpsRules",
            simultaneous=True,
            summary="repeated rock-paper-scissors against predictable opponents",
            zero_sum=True,
        ),
        EnvSpec(
            name="tiles_v0",
            rules="TilesRules",
            simultaneous=False,
            summary="one agent selects tiles of an image, one their resolution, under a budget",
        ),
        EnvSpec(
            name="two_step_v0",
            rules="TwoStepRules",
            simultaneous=True,
            summary="agent_0 chooses a matrix game, then both play: safe 7, or 8 with coordination",
        ),
    )
}


PROBES: dict[str, EnvSpec] = {
    spec.name: spec
    for spec in (
        EnvSpec(f"probe_p{number:02}_v0", rules, number not in (12, 13), summary)
        for number, rules, summary in (
            (1, "ConstantReward", "a constant reward per agent"),
            (2, "ShownReward", "the observation shows the reward"),
            (3, "LaterReward", "the reward comes one step later"),
            (4, "WhoPlays", "equal observations, different tasks"),
            (5, "BitOrOpposite", "the observation shows the best action"),
            (6, "FifteenMasks", "all 15 masks of four actions"),
            (7, "Credit", "one agent's action pays the other"),
            (8, "OtherSees", "only the other agent sees the reward"),
            (9, "CutOrEnd", "truncation and termination"),
            (10, "Death", "agents that terminate early"),
            (11, "UnlikeAgents", "agents with different spaces"),
            (12, "ReplyPays", "turn-based: the reply brings the reward"),
            (13, "EarlyGift", "turn-based: reward before the first move"),
            (14, "Memory", "a cue to remember"),
            (15, "Accounts", "rewards 1, 10 and 100"),
            (16, "OneLegal", "one legal action"),
            (17, "EqualAdvantages", "all advantages are equal"),
            (18, "RockPaperScissors", "rock-paper-scissors, one step"),
        )
    )
}
"""Tiny environments with known exact answers; not in PettingZoo's registry."""

REGISTERED = {**ENVIRONMENTS, **PROBES}
"""All environments of corral that can be made by name."""


# --- Environments of corral ----------------------------------------------------------------------


def registered_name(text: str) -> str | None:
    """Return the name of the registered environment with this name or id; otherwise None."""
    name = text.removeprefix("corral/").replace("-", "_")
    return name if name in REGISTERED else None


def env_spec(name: str) -> EnvSpec:
    """Return the registry entry of a name or id. Raises UnknownNameError with the nearest name."""
    if (registered := registered_name(name)) is None:
        named = name.replace("_v", "-v")
        if ids := [id for id in _pettingzoo_ids() if id.partition("/")[2] == named]:
            raise UnknownNameError(f"no environment named {name!r}; did you mean {ids[0]!r}?")
        if name.isidentifier() and importlib.util.find_spec(name) is not None:
            raise UnknownNameError(
                f"no environment named {name!r}; for a module give module:function, such as "
                f"{name}:parallel_env"
            )
        if name[:1].isupper() and (ids := near_ids(name)):  # Gymnasium ids start with a capital
            raise UnknownNameError(f"no environment named {name!r}; did you mean {ids[0]!r}?")
        near = PROBES if "probe" in name else ENVIRONMENTS
        raise UnknownNameError.of("environment", name, near)
    return REGISTERED[registered]


def _load(name: str, attribute: str) -> Any:
    return getattr(importlib.import_module(REGISTERED[name].module), attribute)


def rules_class(name: str) -> type:
    """Return the class of an environment's rules; its signature holds the arguments."""
    spec = env_spec(name)
    rules: type = _load(spec.name, spec.rules)
    return rules


def make_rules(name: str, **kwargs: Any) -> Rules[Any]:
    """Make the rules of a registered environment, for ``Batch`` and the trainers."""
    build = rules_class(name)
    known_arguments(build, kwargs)
    rules: Rules[Any] = build(**kwargs)
    return rules


@overload
def make(
    name: types.Arena,
    *,
    api: Api | None = None,
    render_mode: str | None = None,
    **kwargs: Unpack[types.ArenaArgs],
) -> Any: ...


@overload
def make(
    name: types.Dfaas,
    *,
    api: Api | None = None,
    render_mode: str | None = None,
    **kwargs: Unpack[types.DfaasArgs],
) -> Any: ...


@overload
def make(
    name: types.Rps,
    *,
    api: Api | None = None,
    render_mode: str | None = None,
    **kwargs: Unpack[types.RpsArgs],
) -> Any: ...


@overload
def make(
    name: types.TicTacToe,
    *,
    api: Api | None = None,
    render_mode: str | None = None,
    **kwargs: Unpack[types.TicTacToeArgs],
) -> Any: ...


@overload
def make(
    name: types.Tiles,
    *,
    api: Api | None = None,
    render_mode: str | None = None,
    **kwargs: Unpack[types.TilesArgs],
) -> Any: ...


@overload
def make(
    name: types.TwoStep,
    *,
    api: Api | None = None,
    render_mode: str | None = None,
    **kwargs: Unpack[types.TwoStepArgs],
) -> Any: ...


@overload
def make(
    name: types.Name,
    *,
    api: Api | None = None,
    render_mode: str | None = None,
    **kwargs: Unpack[types.CommonArgs],
) -> Any: ...


@overload
def make(name: types.Name, *, api: Api | None = None, **kwargs: types.Untyped) -> Any: ...


@overload
def make(name: types.Name, *, api: Api | None = None, **kwargs: Any) -> types.WrongArgument: ...


@overload
def make(name: str | Callable[..., Any], *, api: Api | None = None, **kwargs: Any) -> Any: ...


@concise
def make(name: str | Callable[..., Any], *ids: str, api: Api | None = None, **kwargs: Any) -> Any:
    """Make an environment for PettingZoo users: a ParallelEnv or an AECEnv.

    Args:
        name: a name, an id, a module, module:function or file.py:function, see the table of this
            module; or a class, or a function that makes an environment.
        ids: not supported. Replace ``pettingzoo.make("parallel", id)`` by ``corral.make(id,
            api="parallel")``.
        api: "parallel" or "aec". Default: parallel if all agents act at once, otherwise aec.
        kwargs: arguments of the environment. Type checkers know those of the environments of
            corral. After a wrong argument they report the first use of the result, which has the
            type ``WrongArgument``.

    Raises UnknownNameError, with the nearest known name. Raises ValueError for an ``api`` that the
    environment does not have.
    """
    if ids:
        if name in ("parallel", "aec"):
            raise ValueError(f"corral.make({name!r}, {ids[0]!r}): pass {ids[0]!r}, api={name!r}")
        raise ValueError(
            f"corral.make({name!r}, {ids[0]!r}): pass arguments of the environment by name, such "
            "as max_cycles=100"
        )
    if not isinstance(name, str):
        from corral.envs.others.convert import (
            EnvFactory,  # only needed for third-party environments
        )

        return EnvFactory(name, kwargs)()
    if registered_name(name) is None and NamedEnv.is_one(name):
        return NamedEnv(name, kwargs, api)()
    spec = env_spec(name)
    if api == "parallel" and not spec.simultaneous:
        raise ValueError(f'{spec.name} is played in turns; give api="aec", or leave api out')
    _check_api(api)
    aec = api == "aec" or not spec.simultaneous
    build = _load(spec.name, "env" if aec else "parallel_env")
    return build(spec.name, **kwargs) if spec.name in PROBES else build(**kwargs)


def _check_api(api: str | None) -> None:
    if api not in (None, "parallel", "aec"):
        raise ValueError(f'api={api!r}: give "parallel" or "aec"')


# --- Third-party environments --------------------------------------------------------------------


@dataclass(frozen=True)
class NamedEnv:
    """Makes the third-party environment that ``text`` names, as a PettingZoo environment.

    ``text`` is an id of PettingZoo's or Gymnasium's registry, a module, module:function or
    file.py:function, see the table of this module. If it offers both interfaces of PettingZoo, the
    parallel one is made by default; ``api`` selects the interface. A NamedEnv can be pickled,
    whatever environment it makes.
    """

    text: str
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    api: Api | None = None

    @staticmethod
    def is_one(text: str) -> bool:
        """Return True if the text may name a third-party environment.

        It may if it contains a slash, colon or dot, or is an id of Gymnasium.
        """
        marked = re.search(r"[/:.]", text) is not None or is_gymnasium_id(text)
        return marked and not text.startswith("corral/")

    def __str__(self) -> str:
        return self.text

    def __call__(self, render_mode: str | None = None) -> Any:
        """Make one environment. Raises the errors of ``find`` and of the environment.

        Raises ValueError for arguments that the environment does not have.
        """
        from corral.envs.others.convert import (
            EnvFactory,  # only needed for third-party environments
        )

        make = self.find()
        try:
            return EnvFactory(make, self.env_kwargs)(render_mode)
        except TypeError as error:
            if re.search(r"unexpected keyword argument|required .*argument", str(error)):
                raise ValueError(f"{self.text}: {error}") from error
            raise

    def find(self) -> Callable[..., Any]:
        """Return the function that makes the environment.

        Raises UnknownNameError, MissingExtraError.
        """
        _check_api(self.api)
        if is_gymnasium_id(self.text):
            return functools.partial(from_gymnasium, self.text)
        of_module = ":" in self.text or self.text.endswith(".py") or "/" not in self.text
        function = self._of_module() if of_module else self._of_registry()
        if not callable(function):
            raise UnknownNameError(
                f"{self.text} is a {type(function).__name__}; name a function or class"
            )
        return function

    def _of_registry(self) -> Callable[..., Any]:
        apis = (self.api,) if self.api else ("parallel", "aec")
        api = next((api for api in apis if self.text in _pettingzoo_ids([api])), None)
        if api is None:
            if not hasattr(pettingzoo, "register"):
                raise UnknownNameError(
                    f"{self.text}: ids need pettingzoo 1.27 or newer; give module:function instead"
                )
            if self.text in _pettingzoo_ids():
                has = "aec" if self.api == "parallel" else "parallel"
                raise UnknownNameError(f"{self.text} has no api {self.api!r}; give api={has!r}")
            kind = f"{self.api} environment" if self.api else "environment"
            raise UnknownNameError.of(f"{kind} of PettingZoo", self.text, _pettingzoo_ids(apis))

        def make_registered(**kwargs: Any) -> Any:
            try:
                return pettingzoo.make(api, self.text, **kwargs)
            except Exception as error:
                if type(error).__name__ != "FailedToImport":  # PettingZoo's own
                    raise
                family = self.text.partition("/")[0]
                why = f"{self.text}: {error.__cause__ or error}"
                raise MissingExtraError(f"{why}; run pip install 'pettingzoo[{family}]'") from error

        return make_registered

    def _of_module(self) -> Any:
        path, _, name = self.text.rpartition(":")
        if not name or not path:
            return self._of_whole_module(path or name)
        try:
            return named_object(self.text, "environment")
        except UnknownNameError as error:
            if is_gymnasium_id(name):  # Gymnasium's form module:id; the module registers the id
                return functools.partial(from_gymnasium, name)
            if str(error).startswith("environment:"):  # the module exists, the name does not
                raise
            suggestion = "" if "did you mean" in str(error) else f"; {OTHERWISE}"
            raise UnknownNameError(f"{error}{suggestion}") from error

    def _of_whole_module(self, path: str) -> Any:
        """Return the function of a module that makes an environment, named as in PettingZoo."""
        if path.endswith(".py"):
            raise UnknownNameError(
                f"{path}: give {path}:NAME, with a class or function of the file"
            )
        try:
            imported: Any = importlib.import_module(path)
        except ImportError as error:
            if getattr(error, "name", None) not in (path, path.partition(".")[0]):
                raise  # an import inside the module failed
            module, dot, name = path.rpartition(".")
            is_part = dot and importlib.util.find_spec(module.partition(".")[0])
            suggestion = f"did you mean {module}:{name}?" if is_part else OTHERWISE
            raise UnknownNameError(f"{self.text}: {error}; {suggestion}") from error
        names = {"parallel": ["parallel_env"], "aec": ["env"]}
        candidates = names[self.api] if self.api else ["parallel_env", "env"]
        for name in candidates:
            if hasattr(imported, name):
                return getattr(imported, name)
        raise UnknownNameError(f"{path} has no {' or '.join(candidates)}; give module:function")


OTHERWISE = "give module:function, or an id such as classic/connect_four-v3"


def is_installed_id(text: Any) -> bool:
    """Return True for an id in the tables of PettingZoo or Gymnasium as they are installed.

    The id of another library's module (``module:id``) is none, because it names code to import.
    """
    if not isinstance(text, str) or ":" in text:
        return False
    return is_gymnasium_id(text) or text in _pettingzoo_ids()


def _pettingzoo_ids(apis: Iterable[str] = ("parallel", "aec")) -> set[str]:
    """Return the ids of PettingZoo's registries without corral's ids."""
    ids = {id for api in apis for id in getattr(pettingzoo, f"{api}_registry", {})}
    return {id for id in ids if not id.startswith("corral/")}


# --- Registries of other libraries ---------------------------------------------------------------


def register() -> None:
    """Register all environments in Gymnasium and PettingZoo under their ids.

    Entry points are strings, so that nothing is imported before an environment is made. In
    Gymnasium an environment has one agent, see ``corral.adapters.SeatEnv``. ``make_vec`` makes one
    column per agent; for games in turns it makes Gymnasium's vector of SeatEnvs.
    """
    vector = "corral.adapters.gymnasium.vector:BatchVectorEnv"
    for name, spec in REGISTERED.items():
        for id in spec.ids:
            if id not in gymnasium.registry:
                gymnasium.register(
                    id,
                    entry_point="corral.adapters.gymnasium.seat:SeatEnv",
                    vector_entry_point=vector if spec.simultaneous else None,
                    kwargs={"env": name},
                )
    if not hasattr(pettingzoo, "register"):  # before 1.27
        return
    for spec in ENVIRONMENTS.values():
        for api, function in (("aec", "env"), ("parallel", "parallel_env")):
            registry = getattr(pettingzoo, f"{api}_registry")
            for id in spec.ids:
                if id not in registry and (api == "aec" or spec.simultaneous):
                    pettingzoo.register(api, id, entry_point=f"{spec.module}:{function}")


register()
