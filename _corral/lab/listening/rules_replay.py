"""Rules about minibatches of transitions with values of actions, as in Q-learning.

Such loops give minibatches alone. Their targets are r + gamma * (1 - terminated) * next value.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.heard import Heard, Minibatch
from corral.lab.listening.minibatches import ROWS, close, flat, vary

__all__ = ["RULES"]

BATCHES = 4
"""Minibatches in which a fault must show."""


def transitions(heard: Heard) -> Iterator[Minibatch]:
    """Yield minibatches without a policy, [R] each."""
    for item in heard.minibatches:
        actor = (item.new_log_probs, item.log_probs, item.advantages, item.entropy)
        if all(part is None for part in actor):
            yield item


def valued(heard: Heard) -> Iterator[Minibatch]:
    """Yield minibatches of transitions with values and their targets."""
    for item in transitions(heard):
        if item.values is None or item.returns is None:
            continue
        if item.values.size == item.returns.size >= ROWS:
            yield item


def bootstrapped(item: Minibatch) -> tuple[Array, Array] | None:
    """Return target minus reward [R], and terminated [R]; None if they are not known."""
    targets, rewards = flat(item.returns), flat(item.rewards)
    if targets is None or rewards is None or item.terminated is None:
        return None
    terminated = item.terminated.reshape(-1)
    if not len(targets) == len(rewards) == len(terminated):
        return None
    return targets - rewards, terminated


# --- Rows ----------------------------------------------------------------------------------------


def unfilled(heard: Heard) -> Finding | None:
    """Report rows of zeros among rows with data: a buffer is read before it is full."""
    empty, filled, actions = 0, 0, []
    for item in transitions(heard):
        rewards = flat(item.rewards)
        if not isinstance(item.obs, np.ndarray) or item.actions is None or rewards is None:
            continue
        zero = ~item.obs.reshape(len(item.obs), -1).any(axis=1)
        chosen = item.actions.reshape(len(item.obs), -1)
        if chosen[zero].any() or rewards[zero].any():
            return None  # observations of 0 in data
        empty, filled = empty + int(zero.sum()), filled + int((~zero).sum())
        actions.append(chosen[~zero])
    if not actions or empty < 64 or filled < 16 or empty < 0.2 * (empty + filled):
        return None
    if not (np.concatenate(actions) != 0).any(axis=1).mean() > 0.3:
        return None
    return Finding(
        "rows-unfilled",
        "Minibatches contain rows that were never filled.",
        f"{empty:,} of {empty + filled:,} rows are 0 in observation, action and reward",
        "rows of decisions that were played",
        "draw indices below the number of stored transitions, not below the buffer's capacity",
        2,
        heard.policy,
    )


def next_is_same(heard: Heard) -> Finding | None:
    """Report next observations that equal the observations of the decisions."""
    same, count, rows = 0, 0, []
    for item in transitions(heard):
        if not isinstance(item.obs, np.ndarray) or not isinstance(item.next_obs, np.ndarray):
            continue
        if item.obs.shape != item.next_obs.shape:
            return None
        rows.append(item.obs)
        differ = (item.obs != item.next_obs).reshape(len(item.obs), -1).any(axis=1)
        same, count = same + int((~differ).sum()), count + len(differ)
    if count < 128 or same < count or not any((part != rows[0][:1]).any() for part in rows):
        return None
    measured = f"obs and next_obs are equal in all {count:,} rows, and differ between rows"
    return finding_of("observation-late", measured, 3, heard.policy)


# --- Targets -------------------------------------------------------------------------------------


def targets_at_ends(heard: Heard) -> Finding | None:
    """Report targets of terminated decisions that contain more than the reward."""
    rewards, targets = [np.zeros(0)], [np.zeros(0)]
    for item in valued(heard):
        parts = bootstrapped(item)
        if parts is None:
            continue
        rest, terminated = parts
        paid = flat(item.rewards)
        assert paid is not None
        rewards.append(paid[terminated])
        targets.append((paid + rest)[terminated])
    paid, target = np.concatenate(rewards), np.concatenate(targets)
    if len(paid) < 2 * ROWS:
        return None
    # Equal rewards must have equal targets, also if the loop scales or clips rewards.
    spreads = [np.ptp(target[paid == value]) for value in np.unique(paid)]
    if max(spreads) <= 1e-3 * max(1e-9, float(np.abs(target).max())):
        return None
    if np.unique(paid).size > len(paid) // 4:  # few equal rewards
        return None
    measured = (
        f"targets of {len(paid)} terminated decisions exceed their rewards by "
        f"{(target - paid).min():.3g} to {(target - paid).max():.3g}"
    )
    return finding_of("end-taken-for-limit", measured, 2, heard.policy)


def one_next_value(heard: Heard) -> Finding | None:
    """Report targets with one and the same next value for all rows of a minibatch."""
    shared = []
    for item in valued(heard):
        parts = bootstrapped(item)
        values = flat(item.values)
        if parts is None or values is None:
            continue
        rest, terminated = parts
        rows = rest[~terminated]
        if len(rows) < ROWS:
            continue
        if np.ptp(rows) > 1e-5 * np.abs(rows).max():
            return None
        if abs(rows[0]) > 1e-4 and vary(values[~terminated]):
            shared.append(float(rows[0]))
    if len(shared) < BATCHES or np.ptp(shared) <= 1e-4 * max(map(abs, shared)):
        return None
    measured = (
        f"in each of {len(shared)} minibatches, target minus reward is one number for all rows "
        f"that do not terminate, such as {shared[0]:.3g} and {shared[-1]:.3g}"
    )
    return finding_of("targets-shuffled", measured, 3, heard.policy)


def other_next_values(heard: Heard) -> Finding | None:
    """Report next values that enter the targets of other rows."""
    for item in valued(heard):
        parts, after = bootstrapped(item), flat(item.next_values)
        if parts is None or after is None or len(after) != len(parts[0]):
            continue
        rows = ~parts[1]
        rest, after = parts[0][rows], after[rows]
        if len(rest) < 2 * ROWS or not vary(rest) or not vary(after):
            continue
        scale = rest.std() / after.std()
        if np.abs(rest - scale * after).max() < 1e-3 * rest.std():
            continue
        if np.abs(np.sort(rest) - scale * np.sort(after)).max() < 1e-3 * rest.std():
            measured = f"the next values of {len(rest)} rows enter the targets of other rows"
            return finding_of("targets-shuffled", measured, 3, heard.policy)
    return None


def same_targets(heard: Heard) -> Finding | None:
    """Report transitions that come again much later with the same target, though values moved."""
    if not heard.counted or heard.updates < SPAN // UPDATE:
        return None
    early: dict[bytes, tuple[float, float]] = {}
    moved, values, first, last = [], [], 0, 0
    for item in valued(heard):
        parts, value = bootstrapped(item), flat(item.values)
        if parts is None or value is None or item.actions is None or item.rewards is None:
            continue
        if not isinstance(item.obs, np.ndarray):
            continue
        rest, terminated = parts
        first = first or item.update
        for row in np.flatnonzero(~terminated & (rest != 0)):
            columns = (item.obs[row], item.actions[row], item.rewards[row])
            key = b"".join(np.asarray(part).tobytes() for part in columns)
            if item.update - first <= NEAR:
                early.setdefault(key, (rest[row], value[row]))
            elif (item.update - first) * UPDATE >= SPAN and key in early:
                moved.append(abs(rest[row] - early[key][0]))
                values.append(abs(value[row] - early[key][1]))
                last = item.update
    if len(moved) < ROWS or max(moved) > 1e-5 * max(1e-3, *(abs(r) for r, _ in early.values())):
        return None
    if np.median(values) < 1e-2:
        return None
    return Finding(
        "target-network-fixed",
        "The target network never changes: targets are those of its first weights.",
        f"{len(moved)} transitions have the same target about {(last - first) * UPDATE:,} steps "
        f"later; their values moved by {np.median(values):.3g}",
        "a target network that follows the network",
        "copy the network's weights to the target network every few hundred steps: "
        "target.load_state_dict(net.state_dict())",
        2,
        heard.policy,
    )


NEAR, UPDATE, SPAN = 4, 32, 900
"""First updates with early targets; minibatches of an update; minibatches between both."""


# --- Values --------------------------------------------------------------------------------------


def of_another_action(heard: Heard) -> Finding | None:
    """Report a loss with the highest value of an observation instead of that of the action."""
    wrong = rows = 0
    for item in valued(heard):
        table, values = item.action_values, flat(item.values)
        if table is None or values is None or len(table) != len(values) or item.actions is None:
            continue
        if item.gradients is None or item.gradients.values is None:
            continue
        actions = item.actions.reshape(-1)
        if len(actions) != len(values) or table.shape[1] < 2 or not _codes(actions, table):
            continue
        taken = table[np.arange(len(values)), actions.astype(int)]
        highest = table.max(axis=1)
        if close(values, taken):
            return None
        if close(values, highest):
            wrong += int((highest - taken > 1e-4).sum())
            rows += len(values)
    if not rows or wrong < 2 * ROWS:
        return None
    return Finding(
        "values-of-another-action",
        "The loss moves the highest value, not the value of the action that was taken.",
        f"{wrong} of {rows} values in the loss belong to other actions",
        "Q(observation, action) of the row's own action",
        "gather the value of the action: q.gather(1, actions[:, None])",
        3,
        heard.policy,
    )


def random_play(heard: Heard) -> Finding | None:
    """Report actions that do not prefer high values, in the latest minibatches."""
    if not heard.counted or heard.updates < SPAN // UPDATE:
        return None
    greedy, rows, expected = 0, 0, 0.0
    for item in valued(heard):
        table = item.action_values
        if item.update < heard.updates // 2 or table is None or item.actions is None:
            continue
        actions = item.actions.reshape(-1)
        if len(actions) != len(table) or table.shape[1] < 2 or not _codes(actions, table):
            continue
        if np.median(np.ptp(table, axis=1)) < 1e-3:
            return None
        greedy += int((table.argmax(axis=1) == actions).sum())
        rows += len(actions)
        expected = 1 / table.shape[1]
    if rows < 256 or greedy / rows > expected + 3 * np.sqrt(expected * (1 - expected) / rows):
        return None
    return Finding(
        "play-random",
        "Play ignores the values: actions are random until the end.",
        f"{greedy} of {rows} actions of the latest minibatches have the highest value; "
        f"random play: {expected:.0%}",
        "more and more actions with the highest value",
        "check the exploration rate (epsilon) in each step, its schedule, and the network that "
        "plays; a buffer of old decisions also looks like this",
        1,
        heard.policy,
    )


def _codes(actions: Array, table: Array) -> bool:
    whole = (actions == actions.astype(int)).all()
    return bool(whole and actions.min() >= 0 and actions.max() < table.shape[1])


def one_sided(heard: Heard) -> Finding | None:
    """Report values that end at 0, while targets lie beyond."""
    pairs = [
        (flat(item.values), flat(item.returns))
        for item in heard.minibatches
        if item.values is not None and item.returns is not None
        and item.values.size == item.returns.size
    ]  # fmt: skip
    if not pairs:
        return None
    values, targets = (np.concatenate(part) for part in zip(*pairs, strict=True))
    if len(values) < 256 or not np.isfinite(targets).all():
        return None
    for sign, text in ((1, "at least"), (-1, "at most")):
        ends, beyond = np.mean(values == 0), np.mean(sign * targets < -0.01 * targets.std())
        if (sign * values >= 0).all() and 0.05 < ends < 1 and beyond > 0.02:
            return Finding(
                "values-one-sided",
                "Values end at 0, and targets lie beyond: an activation follows the last layer.",
                f"all {len(values):,} values are {text} 0, {ends:.0%} exactly 0; {beyond:.0%} of "
                f"the targets are {'below' if sign > 0 else 'above'}",
                "values of any sign",
                "remove ReLU or clamp after the layer that makes the values",
                3,
                heard.policy,
            )
    return None


RULES = (
    unfilled,
    next_is_same,
    of_another_action,
    one_next_value,
    other_next_values,
    targets_at_ends,
    same_targets,
    one_sided,
    random_play,
)
