"""Known traps of TorchRL that a tensordict shows, with the page or issue of each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDictBase

from corral.lab.doctor.findings.finding import Finding

__all__ = ["TRAPS", "Targets", "Trap", "of_batch", "of_rollout", "plays_mode"]


@dataclass(frozen=True)
class Trap:
    """The texts of one trap; ``source`` is the page or issue that describes it."""

    cause: str
    title: str
    expected: str
    todo: str
    source: str


TRAPS: dict[str, Trap] = {
    "time-first": Trap(
        "advantage-elsewhere",
        "The value estimator takes the copies of the environment for steps in time.",
        "a tensordict [copies, time], or time_dim of the estimator",
        "transpose the tensordict, or pass time_dim to the estimator; its default is the axis "
        "named 'time', else the last one",
        "https://docs.pytorch.org/rl/0.14/reference/generated/torchrl.objectives.value.GAE.html",
    ),
    "rows-apart": Trap(
        "advantage-elsewhere",
        "The value estimator gets rows that do not follow each other in time.",
        "trajectories in order of time, as the collector returns them",
        "estimate advantages before the tensordict is flattened, shuffled or sampled from a replay "
        "buffer; keep [copies, time]",
        "https://github.com/pytorch/rl/issues/2659",
    ),
    "estimated-in-loss": Trap(
        "advantage-elsewhere",
        "The loss estimates advantages itself, from a minibatch of shuffled rows.",
        "the advantage in the tensordict of the loss",
        "call the estimator on the whole rollout before it is sampled; check the name of the "
        "advantage: loss.set_keys(advantage=...) and estimator.set_keys(advantage=...)",
        "https://docs.pytorch.org/rl/stable/reference/generated/torchrl.objectives.ClipPPOLoss.html",
    ),
    "no-terminated": Trap(
        "limit-taken-for-end",
        "The tensordict has no 'terminated': every end counts as a termination.",
        "('next', 'terminated') next to ('next', 'done')",
        "keep 'terminated' when keys are selected, and set it in the environment; the estimator "
        "takes 'done' if it is missing",
        "https://github.com/pytorch/rl/pull/1581",
    ),
    "reward-summed": Trap(
        "reward-running-total",
        "The value estimator takes the running sum of an episode for the reward of a step.",
        "the reward of a step alone; the estimator adds them up",
        "leave the reward key at 'reward'; RewardSum writes 'episode_reward' to show progress",
        "https://docs.pytorch.org/rl/stable/reference/generated/torchrl.envs.transforms.RewardSum.html",
    ),
    "plays-mode": Trap(
        "play-greedy",
        "Training plays the most likely action instead of sampling: it never explores.",
        "actions sampled from the policy",
        "collect under set_exploration_type(ExplorationType.RANDOM), or pass "
        "default_interaction_type=InteractionType.RANDOM to the actor",
        "https://github.com/pytorch/rl/issues/2175",
    ),
    "target-fixed": Trap(
        "target-network-fixed",
        "The target network never changes: values learn from the untrained network.",
        "a target network that follows the trained one",
        "make SoftUpdate(loss_module, eps=0.995) or HardUpdate, and call its step() after each "
        "optimizer step",
        "https://docs.pytorch.org/rl/stable/reference/generated/torchrl.objectives.SoftUpdate.html",
    ),
}
"""Name of a trap -> its texts."""


def _finding(name: str, measured: str, certainty: int, policy: str) -> Finding:
    trap = TRAPS[name]
    return Finding(
        trap.cause,
        trap.title,
        measured,
        trap.expected,
        f"{trap.todo} ({trap.source})",
        certainty,
        policy,
    )


ROWS = 32
"""Minimum number of rows with a next row in the same episode."""


def of_rollout(
    data: TensorDictBase, estimator: Any, time: int, obs_key: Any, policy: str
) -> Iterator[Finding]:
    """Yield the traps of a tensordict that a value estimator gets."""
    follows = _follows(data, obs_key, time)
    if follows is not None and follows < 0.5:
        other = {
            axis: share
            for axis in range(data.batch_dims)
            if axis != time and (share := _follows(data, obs_key, axis)) is not None
        }
        measured = f"{1 - follows:.0%} of next observations are not those of the next row"
        if any(share > 0.9 for share in other.values()):
            yield _finding("time-first", f"{measured} on axis {time}", 3, policy)
        else:
            yield _finding("rows-apart", measured, 3, policy)
    keys = estimator.tensor_keys
    paid = data.get(("next", "reward"), None)
    if keys.reward != "reward" and isinstance(paid, torch.Tensor):
        total = data.get(("next", keys.reward))
        if _sums_up(total, paid, data.get(("next", "done")), time):
            yield _finding("reward-summed", f"{keys.reward!r} adds up 'reward'", 3, policy)
    missing = data.get(("next", keys.terminated), None) is None
    truncated = data.get(("next", "truncated"), None)
    if missing and isinstance(truncated, torch.Tensor) and truncated.any():
        count = int(truncated.sum())
        yield _finding("no-terminated", f"{count} time limits in a rollout", 3, policy)


def _sums_up(total: torch.Tensor, paid: torch.Tensor, done: torch.Tensor, axis: int) -> bool:
    """Return True if ``total`` rises by ``paid`` in all steps within episodes."""
    length = total.shape[axis]
    if total.shape != paid.shape or done.shape != paid.shape or length < 2:
        return False
    before, after = total.narrow(axis, 0, length - 1), total.narrow(axis, 1, length - 1)
    rows = ~done.narrow(axis, 0, length - 1)
    off = (after - before - paid.narrow(axis, 1, length - 1)).abs()[rows]
    return len(off) >= ROWS and bool((off < 1e-4 * total.abs().max()).all())


def _follows(data: TensorDictBase, obs_key: Any, axis: int) -> float | None:
    """Return the share of rows that continue on an axis: the next observation is that of the next
    row. None with too few rows in the same episode, or without next observations."""
    nested = obs_key if isinstance(obs_key, tuple) else (obs_key,)
    obs, after = data.get(obs_key, None), data.get(("next", *nested), None)
    done = data.get(("next", "done"), None)
    if not all(isinstance(item, torch.Tensor) for item in (obs, after, done)):
        return None
    length = data.batch_size[axis]
    if length < 2 or obs.shape != after.shape:
        return None
    dims = data.batch_dims
    now = after.narrow(axis, 0, length - 1).flatten(dims)
    following = obs.narrow(axis, 1, length - 1).flatten(dims)
    open_rows = ~done.narrow(axis, 0, length - 1).flatten(dims).any(dim=-1)
    same = (now == following).all(dim=-1) if now.ndim > dims else now == following
    if open_rows.sum() < ROWS or bool((now.flatten()[:1] == now.flatten()).all()):
        return None
    return float(same[open_rows].float().mean())


def of_batch(data: TensorDictBase, loss: Any, obs_key: Any, policy: str) -> Iterator[Finding]:
    """Yield the traps of a tensordict that a loss gets."""
    keys = vars(loss.tensor_keys)
    if "advantage" not in keys or data.batch_dims != 1:
        return
    if data.get(keys["advantage"], None) is None:
        follows = _follows(data, obs_key, 0)
        if follows is not None and follows < 0.5:
            measured = (
                f"no {keys['advantage']!r} in the tensordict; {1 - follows:.0%} of its rows are "
                "not followed by their next observation"
            )
            yield _finding("estimated-in-loss", measured, 3, policy)


def plays_mode(actions: Any, distribution: Any, policy: str) -> Iterator[Finding]:
    """Yield the trap of continuous actions that are all the mode of their distribution."""
    try:
        mode = distribution.deterministic_sample
    except AttributeError:  # of another kind
        return
    if not isinstance(mode, torch.Tensor) or not isinstance(actions, torch.Tensor):
        return
    if not actions.is_floating_point() or mode.shape != actions.shape or len(actions) < ROWS:
        return
    if len(torch.unique(mode.round(decimals=4))) < mode.numel() / 2:
        return  # at the bounds, samples equal the mode
    if torch.allclose(mode, actions, atol=1e-5):
        yield _finding("plays-mode", f"all {len(actions)} actions are the mode", 3, policy)


# --- Target networks -----------------------------------------------------------------------------

CALLS = {False: 200, True: 500}
"""Calls of a loss after which a target network must have changed: without and with an updater."""


class Targets:
    """Compares the target parameters of a loss with those at its first calls."""

    def __init__(self, loss: Any) -> None:
        self.calls = 0
        self.trained, self.target = _sums(loss, target=False), _sums(loss, target=True)

    def seen(self, loss: Any, policy: str) -> Iterator[Finding]:
        """Count a call; yield target parameters that are still those of the beginning."""
        self.calls += 1
        updated = any(vars(loss).get("_has_update_associated", {}).values())
        if self.calls != CALLS[updated] or not self.target:
            return
        trained, target = _sums(loss, target=False), _sums(loss, target=True)
        # Without a delay, the targets are the trained parameters themselves.
        if trained == self.trained or target != self.target:
            return
        measured = f"{len(target)} target parameters, unchanged in {self.calls} calls of the loss"
        yield _finding("target-fixed", measured, 2 if updated else 3, policy)


def _sums(loss: Any, target: bool) -> list[float]:
    """Return sums of the trained or of the target parameters of value networks."""
    names = ("value_network", "qvalue_network", "critic_network")
    sums = []
    for name in names:
        params = getattr(loss, f"target_{name}_params" if target else f"{name}_params", None)
        if params is not None:
            sums += [float(item.detach().double().sum()) for item in params.values(True, True)]
    return sums
