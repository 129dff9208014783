"""The environments of the suite by name, here and in PettingZoo's own registry."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import pettingzoo

from corral.envs.arguments import known_arguments
from corral.envs.core import Rules
from corral.errors import UnknownNameError

__all__ = [
    "ENVIRONMENTS",
    "EnvSpec",
    "make",
    "make_rules",
    "register_with_pettingzoo",
    "rules_class",
]


@dataclass(frozen=True)
class EnvSpec:
    """Where an environment is found: ``corral.envs.<name>``, and the class of its rules there."""

    name: str
    rules: str
    simultaneous: bool
    summary: str

    @property
    def module(self) -> str:
        return f"corral.envs.{self.name}"


ENVIRONMENTS: dict[str, EnvSpec] = {
    spec.name: spec
    for spec in (
        EnvSpec(
            name="dfaas_v0",
            rules="DfaasRules",
            simultaneous=True,
            summary="N edge servers serve, queue or forward the requests of a load trace",
        ),
    )
}


def _load(name: str, attribute: str) -> Any:
    return getattr(importlib.import_module(ENVIRONMENTS[name].module), attribute)


def _spec(name: str) -> EnvSpec:
    if name not in ENVIRONMENTS:
        raise UnknownNameError.of("environment", name, ENVIRONMENTS)
    return ENVIRONMENTS[name]


def rules_class(name: str) -> type:
    """The class of a registered environment's rules; its signature holds the arguments."""
    found: type = _load(name, _spec(name).rules)
    return found


def make_rules(name: str, **kwargs: Any) -> Rules[Any]:
    """The rules of a registered environment, as ``Batch`` and the trainers run them."""
    build = rules_class(name)
    known_arguments(build, kwargs)
    rules: Rules[Any] = build(**kwargs)
    return rules


def make(name: str, **kwargs: Any) -> Any:
    """A registered environment for PettingZoo users.

    A ParallelEnv where all agents act at once, else an AECEnv. ``kwargs`` go to the environment.
    Raises UnknownNameError, with the nearest known name.
    """
    return _load(name, "parallel_env" if _spec(name).simultaneous else "env")(**kwargs)


def register_with_pettingzoo() -> None:
    """Enter all as ``corral/<name>-v<N>`` in PettingZoo's registry, where it has one."""
    if not hasattr(pettingzoo, "register"):  # before 1.27
        return
    for spec in ENVIRONMENTS.values():
        for kind, function in (("aec", "env"), ("parallel", "parallel_env")):
            known = getattr(pettingzoo, f"{kind}_registry")
            identity = "corral/" + "-v".join(spec.name.rsplit("_v", 1))  # its spelling: dfaas-v0
            if identity not in known and (kind == "aec" or spec.simultaneous):
                pettingzoo.register(kind, identity, entry_point=f"{spec.module}:{function}")
