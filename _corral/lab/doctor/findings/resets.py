"""A finding about seeds: all episodes of an environment start alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from corral.envs.conformance.generators import fixed_generators
from corral.envs.conformance.report import fingerprint
from corral.lab.doctor.findings.finding import Finding

__all__ = ["fixed_seed"]

SEEDS = range(8)


def fixed_seed(make: Callable[[], Any]) -> Finding | None:
    """Report a reset that starts all episodes alike, because it puts a generator into one state.

    ``make`` returns a PettingZoo environment.
    """
    env = make()
    try:
        starts = {fingerprint(_start(env, seed)) for seed in SEEDS}
        fixed = fixed_generators(env) if len(starts) == 1 else ()
    finally:
        env.close()
    if not fixed:
        return None
    return Finding(
        "seed-fixed",
        "Every episode starts alike: reset ignores the seed.",
        f"the first observations of {len(SEEDS)} seeds are equal, and reset puts "
        f"{' and '.join(fixed)} into the same state for every seed",
        "a start that differs from episode to episode",
        "create the generator from the argument of reset: if seed is not None: self.rng = "
        "np.random.default_rng(seed); look for a fixed seed in reset()",
        2,
    )


def _start(env: Any, seed: int) -> Any:
    """Return the observations after a reset, of the parallel or the AEC interface."""
    answer = env.reset(seed=seed)
    return answer[0] if answer is not None else env.last()[0]
