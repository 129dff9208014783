"""Whatever stands for an environment: names, ids, modules, functions, environments, rules."""

from __future__ import annotations

import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pettingzoo
import pytest
from pettingzoo.utils import BaseParallelWrapper

import corral
from corral.adapters import zoo_rules
from corral.adapters.sources import resolve, rules_of
from corral.adapters.zoo.batch import ZooRules
from corral.envs import arena_v0, tictactoe_v0
from corral.envs.registry import NamedEnv
from corral.errors import UnknownNameError
from support import zoo_envs
from support.messages import refused
from support.steady_rules import SteadyRules
from support.zoo_envs import RingEnv

needs_registry = pytest.mark.skipif(
    not hasattr(pettingzoo, "register"), reason="PettingZoo before 1.27 has no registry"
)


class Half(BaseParallelWrapper[Any, Any, Any]):
    """Pays half."""

    def step(self, actions: Any) -> Any:
        observations, rewards, *rest = self.env.step(actions)
        return observations, {agent: value / 2 for agent, value in rewards.items()}, *rest


def small_arena(width: int = 3) -> Any:
    return arena_v0.parallel_env(width=width, height=2)


def test_environments_of_corral_come_as_their_name() -> None:
    width = {"width": 3}
    for env, kwargs in (
        ("arena_v0", width),
        ("corral/arena-v0", width),
        ("corral.envs.arena_v0", width),
        ("corral.envs.arena_v0:env", width),
        (arena_v0, width),
        (arena_v0.parallel_env, width),
        (arena_v0.raw_env, width),
        (arena_v0.parallel_env(width=3), {}),
        (corral.make("corral/arena-v0", api="aec", width=3), {}),
        (lambda: arena_v0.env(width=3), {}),
    ):
        source = resolve(env, kwargs)
        assert (source.name, source.env_kwargs, source.rules) == ("arena_v0", width, None)
        assert rules_of(env, kwargs).width == 3  # type: ignore[attr-defined]
    assert resolve(small_arena, {"width": 4}).env_kwargs == {"width": 4, "height": 2}
    assert resolve(tictactoe_v0.env()).name == "tictactoe_v0"
    assert resolve(corral.make("probe_p03_v0")).name == "probe_p03_v0"


def test_a_wrapper_makes_it_another_game() -> None:
    """What it changes must be played: the array code knows nothing of it."""
    for env in (Half(small_arena()), lambda: Half(small_arena())):
        rules = rules_of(env)
        assert isinstance(rules, ZooRules)
        assert rules.name == "wrapped_arena_v0"
        batch, plain = rules.make_batch(2, 5), small_arena()
        batch.reset()
        plain.reset(seed=5)
        assert batch.num_envs == 2
    # The environment is the pattern of copies, and is left as it was.
    env = Half(small_arena())
    batch = rules_of(env).make_batch(3, 0)  # type: ignore[attr-defined]
    batch.reset()
    paid = batch.step(batch.sample_actions(np.random.default_rng(0))).reward
    assert np.isfinite(paid).all()
    assert env.agents == []


@needs_registry
def test_environments_of_others_come_by_id() -> None:
    pytest.importorskip("pygame", reason="PettingZoo's classic games need it")
    source = resolve("classic/tictactoe-v3")
    assert (source.name, source.text) == ("tictactoe_v3", "classic/tictactoe-v3")
    assert source.rules is not None
    assert not source.rules.simultaneous
    parallel, aec = resolve("classic/rps-v2"), resolve("classic/rps-v2", api="aec")
    assert parallel.rules is not None
    assert aec.rules is not None
    assert (parallel.rules.simultaneous, aec.rules.simultaneous) == (True, False)
    assert (parallel.api, aec.api) == (None, "aec")
    with refused(UnknownNameError, "'classic/tictacto-v3'", "'classic/tictactoe-v3'"):
        resolve("classic/tictacto-v3")
    with refused(UnknownNameError, "'tictactoe_v3'", "'classic/tictactoe-v3'"):
        resolve("tictactoe_v3")
    with refused(UnknownNameError, "classic/tictactoe-v3", "aec"):
        resolve("classic/tictactoe-v3", api="parallel")


def test_environments_of_others_come_by_function_module_and_rules() -> None:
    text = f"{RingEnv.__module__}:RingEnv"
    for env in (RingEnv, text, zoo_rules(RingEnv)):
        source = resolve(env)
        assert (source.name, source.text) == (RingEnv().metadata["name"], text)
    assert resolve(lambda: RingEnv()).text is None
    assert resolve(RingEnv()).text is None
    module = ModuleType("support.zoo_envs")
    module.__dict__.update(vars(zoo_envs), parallel_env=RingEnv)
    sys.modules["support.ring_v0"] = module
    assert resolve("support.ring_v0").name == source.name
    with refused(UnknownNameError, "support.steady_rules", "parallel_env", "module:function"):
        resolve("support.steady_rules")
    with refused(
        UnknownNameError, "'no_such_module'", "module:function", "classic/connect_four-v3"
    ):
        resolve("no_such_module:env")
    with refused(UnknownNameError, "corral.envs.arena_v0", "'ent'", "'env'"):
        resolve("corral.envs.arena_v0:ent")
    with refused(UnknownNameError, "corral.envs.arena_v0:__doc__", "str"):
        NamedEnv("corral.envs.arena_v0:__doc__").find()
    with refused(ValueError, "support.zoo_envs:RingEnv", "'sides'"):
        resolve(text, {"sides": 3})


def test_rules_of_ones_own_are_taken_as_they_are() -> None:
    rules = SteadyRules()
    assert resolve(rules).rules is rules
    with refused(ValueError, "env_kwargs={'size': 3}", "support.steady_rules.SteadyRules"):
        resolve(rules, {"size": 3})
    with refused(ValueError, "env_kwargs={'size': 3}", "support.zoo_envs.RingEnv"):
        resolve(RingEnv(), {"size": 3})


@pytest.mark.parametrize("what", [3, {"a": 1}, None, np.zeros(3)])
def test_anything_else_is_refused(what: Any) -> None:
    with refused(TypeError, type(what).__name__):
        resolve(what)


def test_an_interface_is_for_environments_that_have_both() -> None:
    with refused(ValueError, "api='aec'", "arena_v0", "corral.make"):
        resolve("arena_v0", api="aec")
    with refused(ValueError, "api='aec'", "support.zoo_envs.RingEnv"):
        resolve(RingEnv, api="aec")
    with refused(ValueError, "api='turns'", '"parallel" or "aec"'):
        corral.make("arena_v0", api="turns")  # type: ignore[arg-type]
    with refused(ValueError, "tictactoe_v0", 'api="aec"'):
        corral.make("tictactoe_v0", api="parallel")
    assert isinstance(corral.make("arena_v0", api="aec"), pettingzoo.AECEnv)


def test_an_environment_that_cannot_be_copied_says_so() -> None:
    class Stubborn(RingEnv):
        def __deepcopy__(self, memo: Any) -> Any:
            raise RuntimeError("no")

    with refused(TypeError, "ring_v0", "RuntimeError: no", "function"):
        resolve(Stubborn())


@needs_registry
def test_importing_corral_alone_registers_everything() -> None:
    """Yet it imports no environment: they are entered as strings."""
    code = (
        "import sys, corral, gymnasium, pettingzoo\n"
        "loaded = [name for name in sys.modules if name.startswith('corral.envs.')]\n"
        "assert not any('_v' in name for name in loaded), loaded\n"
        "heavy = {'torch', 'pandas', 'corral.adapters', 'corral.envs.conformance', 'pygame'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
        "gymnasium.register_envs(corral)\n"
        "env = gymnasium.make('corral/arena-v0', max_cycles=500)\n"
        "env.reset(seed=0)\n"
        "steps = 1\n"
        "while not any(env.step(env.unwrapped.action_masks().argmax())[2:4]): steps += 1\n"
        "assert steps == 500, steps\n"
        "pettingzoo.make('parallel', 'corral/dfaas-v0').reset(seed=0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
