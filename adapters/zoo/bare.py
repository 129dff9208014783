"""Third-party environments below the wrappers of PettingZoo that only check their caller.

PettingZoo wraps its games in up to three classes that check each call again: the order of calls,
the action space, and the mask. Callers of ``bare`` check this themselves. Each attribute passes
all wrappers, so they take more time than most games.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from pettingzoo import AECEnv
from pettingzoo.utils.conversions import aec_to_parallel_wrapper, parallel_to_aec_wrapper
from pettingzoo.utils.wrappers import (
    AssertOutOfBoundsWrapper,
    BaseWrapper,
    CaptureStdoutWrapper,
    ClipOutOfBoundsWrapper,
    OrderEnforcingWrapper,
    TerminateIllegalWrapper,
)

__all__ = ["ObservedOnce", "bare"]

CHECKS: dict[type, set[str]] = {
    BaseWrapper: {"env"},
    OrderEnforcingWrapper: {"env", "_has_reset", "_has_updated"},
    AssertOutOfBoundsWrapper: {"env"},
    ClipOutOfBoundsWrapper: {"env"},
    CaptureStdoutWrapper: {"env", "render_mode"},  # changes only ``render``
}
"""Wrappers that change nothing if actions are in the action space, with their attributes. An object
with further attributes, such as a replaced ``step``, is not skipped."""

MASK_CHECKS = {
    TerminateIllegalWrapper: {"env", "_illegal_value", "_prev_obs", "_prev_info", "_terminated"}
}
"""Wrappers that change nothing if ``observation["action_mask"]`` allows the action."""

CONVERSION = {"aec_env", "possible_agents", "metadata", "render_mode", "state_space", "agents"}
"""Attributes of ``aec_to_parallel_wrapper``."""


class ObservedOnce(aec_to_parallel_wrapper):  # type: ignore[misc]  # PettingZoo ships no types
    """PettingZoo's conversion without its observations before each move, which nothing reads.

    Only for environments in which ``observe`` changes nothing: those of MPE2.
    """

    @staticmethod
    def fits(env: Any) -> bool:
        """Return True for an environment of MPE2 itself, without wrappers and replaced methods."""
        kind = type(env)
        return (
            kind.__name__ == "raw_env"
            and kind.__module__.partition(".")[0] == "mpe2"
            and not vars(env).keys() & {"observe", "state", "step"}
        )

    def step(self, actions: Any) -> Any:
        env, rewards = self.aec_env, defaultdict[str, float](int)
        for agent in env.agents:
            env.step(actions[agent])
            for name in env.agents:
                rewards[name] += env.rewards[name]
        ends = dict(env.terminations), dict(env.truncations), dict(env.infos)
        observations = {agent: env.observe(agent) for agent in env.agents}
        while env.agents and (
            env.terminations[env.agent_selection] or env.truncations[env.agent_selection]
        ):
            env.step(None)
        self.agents = env.agents
        return observations, rewards, *ends


def bare(env: Any, masked: bool) -> Any:
    """Return an environment to step in place of ``env``, which plays the same episodes.

    ``reset`` and ``render`` of ``env`` must be called, not those of the result. Actions must be in
    the action space and, if ``masked``, allowed by the mask in the mover's last observation.
    Subclasses of PettingZoo's wrappers are not skipped, nor anything below them.
    """
    if type(env) is aec_to_parallel_wrapper:
        # Masks may change between the moves of a step, so that only the wrapper can check them.
        inner = bare(env.aec_env, masked=False)
        if vars(env).keys() <= CONVERSION and hasattr(inner, "render_mode"):
            if ObservedOnce.fits(inner):
                return ObservedOnce(inner)
            if inner is not env.aec_env:
                return aec_to_parallel_wrapper(inner)
        return env
    skipped = {**CHECKS, **MASK_CHECKS} if masked else CHECKS
    inner = env
    while type(inner) in skipped and vars(inner).keys() <= skipped[type(inner)]:
        inner = inner.env
    # A wrapper replaces the environment's ``last`` by PettingZoo's.
    usual = (AECEnv.last, parallel_to_aec_wrapper.last)
    return inner if isinstance(inner, AECEnv) and type(inner).last in usual else env
