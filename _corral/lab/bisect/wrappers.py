"""Wrappers of Gymnasium and PettingZoo: take single ones out, and count the base's rewards."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Ledger", "Rewrapped", "chain", "is_custom"]

LIBRARIES = ("gymnasium", "pettingzoo", "corral", "supersuit")


def chain(env: Any) -> list[Any]:
    """Return an environment and the environments inside it, outermost first."""
    envs = [env]
    while "env" in vars(envs[-1]):
        envs.append(envs[-1].env)
    return envs


def is_custom(kind: type) -> bool:
    """Return whether a wrapper's class is not from a library."""
    return kind.__module__.partition(".")[0] not in LIBRARIES


@dataclass(frozen=True)
class Rewrapped:
    """Makes an environment without the wrappers of some class names.

    With ``ledger``, the returns of its first episodes are appended to that list. They are sums of
    rewards of the innermost environment, which wrappers cannot change.
    """

    make: Callable[[], Any]
    without: frozenset[str] = frozenset()
    ledger: list[float] | None = None

    def __call__(self, render_mode: str | None = None) -> Any:
        envs = chain(self.make())
        kept = [e for e in envs[:-1] if type(e).__name__ not in self.without] + envs[-1:]
        if self.ledger is not None:
            kept[-1] = Ledger(kept[-1], self.ledger)
        for outer, inner in itertools.pairwise(kept):
            outer.env = inner
        return kept[0]


class Ledger:
    """An environment that notes the return of its first episode, over all agents."""

    def __init__(self, env: Any, returns: list[float]) -> None:
        self.env, self.returns = env, returns
        self.at: int | None = None  # index in ``returns``; None: no step yet
        self.over = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def reset(self, **options: Any) -> Any:
        self.over = self.over or self.at is not None
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        result = self.env.step(action)
        _, rewards, terminated, truncated, *_ = result
        if self.at is None:
            self.at = len(self.returns)
            self.returns.append(0.0)
        if not self.over:
            parallel = isinstance(rewards, dict)
            self.returns[self.at] += sum(rewards.values()) if parallel else float(rewards)
            ends = [terminated, truncated]
            if parallel:
                ends = [all(terminated[a] or truncated[a] for a in rewards)]
            self.over = any(ends)
        return result
