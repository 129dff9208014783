"""Rules about recorded actions, masks, log-probabilities and values."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.findings import signals
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.texts import finding_of
from corral.lab.listening.fed import WIDE, Seen, by_doctor
from corral.lab.listening.heard import Heard, Minibatch
from corral.lab.listening.minibatches import ONE, flat, ratio_of
from corral.lab.listening.rules_obs import parts_of

__all__ = [
    "always_greedy",
    "foreign_log_probs",
    "idle",
    "illegal",
    "late_masks",
    "likely_actions",
    "misleading_values",
    "never_allowed",
    "no_action",
    "one_action",
    "shifted_codes",
    "sure_from_start",
    "values_flat",
    "wrong_log_probs",
]


# --- Masks ---------------------------------------------------------------------------------------


def illegal(heard: Heard) -> Finding | None:
    """Report played actions that the recorded mask forbids."""
    wrong, played, before, after, checked = 0, 0, 0, 0, 0
    for part in parts_of(heard):
        actions, mask = part.actions, part.mask
        if actions is None or mask is None:
            continue
        ok = _allowed(mask, actions)
        bad = ~ok & part.valid & mask.any(axis=-1)
        wrong, played = wrong + int(bad.sum()), played + int(part.valid.sum())
        # A mask of another step: it allows all of these actions.
        inside = bad[1:-1] & part.within[:-1] & part.within[1:]
        checked += int(inside.sum())
        before += int((_allowed(mask[:-2], actions[1:-1]) & inside).sum())
        after += int((_allowed(mask[2:], actions[1:-1]) & inside).sum())
    if not wrong:
        return None
    measured = f"{wrong} of {played} decisions in training are illegal"
    for allowed, text in ((before, "previous"), (after, "next")):
        if checked >= 8 and allowed == checked:
            return Finding(
                "mask-lost-in-rollout",
                "The rollout does not contain the masks of its decisions.",
                f"{measured}, and the mask of the {text} step allows all of them",
                "every mask exactly as the environment returned it for the decision",
                "store the mask together with the observation of the decision, and copy arrays "
                "that the environment reuses",
                3,
                heard.policy,
            )
    return Finding(
        "mask-ignored-in-play",
        "The policy plays actions that the mask forbids.",
        measured,
        "no illegal action",
        "sample from the masked distribution: logits of illegal actions are -inf before the "
        "softmax (corral.adapters.masked_distribution)",
        3,
        heard.policy,
    )


def _allowed(mask: Array, actions: Array) -> Array:
    inside = (actions >= 0) & (actions < mask.shape[-1])
    at = np.clip(actions, 0, mask.shape[-1] - 1)
    ok: Array = np.take_along_axis(mask.astype(bool), at[..., None], axis=-1)[..., 0] & inside
    return ok


def no_action(heard: Heard) -> Finding | None:
    """Report masks that forbid every action."""
    empty = total = 0
    for part in parts_of(heard):
        if part.mask is not None:
            empty += int((~part.mask.any(axis=-1) & part.valid).sum())
            total += int(part.valid.sum())
    if not empty:
        return None
    return Finding(
        "mask-empty",
        "Masks forbid every action.",
        f"{empty} of {total} decisions",
        "at least one legal action in each decision",
        "check the mask in the environment; mark steps without a decision as not valid, or leave "
        "them out",
        3 if empty < 0.05 * total else 1,  # agents may wait for their turn
        heard.policy,
    )


def still_masks(heard: Heard) -> Finding | None:
    """Report masks that are equal in all copies, or in all steps of an episode.

    Other masks must be possible: they differ between steps, or between episodes.
    """
    for part in parts_of(heard):
        mask, obs = part.mask, part.obs
        if mask is None or obs is None or part.ended is None or len(mask) < 32:
            continue
        changes = (mask[1:] != mask[:-1]).any(axis=-1)
        moves = (obs[1:] != obs[:-1]).any(axis=-1)
        within, over = part.within, part.ended[:-1]
        apart = (obs != obs[:, :1]).any(axis=-1)[:, 1:]
        equal = not (mask != mask[:, :1]).any() and mask.shape[1] >= COPIES
        if equal and changes[within].mean() > 0.2 and apart.mean() > 0.5:
            measured = (
                f"the masks of all {mask.shape[1]} copies are equal in each of {len(mask)} steps, "
                f"while their observations differ in {apart.mean():.0%}"
            )
            return _still("mask-of-another", measured, 2, heard)
        if within.sum() < DECISIONS or not moves[within].mean() > 0.5 or over.sum() < 8:
            continue
        if not changes[within].any() and changes[over].mean() > 0.2:
            measured = (
                f"0 of {within.sum():,} masks differ from the one before in the same episode, "
                f"{changes[over].mean():.0%} after an end"
            )
            return _still("mask-constant", measured, 1, heard)
    return None


def late_masks(heard: Heard) -> Finding | None:
    """Report masks that follow from the observation before, and not from their own."""
    explained: list[Array] = []  # [2, A]: by the own observation, and by the one before
    for part in parts_of(heard):
        mask, obs = part.mask, part.obs
        if mask is None or obs is None or obs.shape[-1] > WIDE:
            return None
        inside = part.within
        rows = inside.sum()
        varied = mask[1:][inside].std(axis=0) > 0.1 if rows else np.zeros(0, bool)
        if rows < max(DECISIONS, 8 * obs.shape[-1]) or not varied.any():
            continue
        masks = np.where(varied, mask[1:][inside], np.nan)
        current, before = obs[1:][inside], obs[:-1][inside]
        explained.append(np.stack([_linear(part, masks) for part in (current, before)]))
    if not explained:
        return None
    current, before = np.mean(explained, axis=0)
    late = (before > 0.99) & (current < 0.9)
    if not late.any() or (current > 0.99).any():
        return None
    column = int(np.flatnonzero(late)[0])
    return Finding(
        "mask-late",
        "Masks belong to the observation of the step before.",
        f"the observation before explains {before[column]:.1%} of the variance of mask "
        f"[{column}], its own observation {current[column]:.0%}",
        "the mask of the state that the observation shows",
        "compute the mask after the step, from the new state; copy arrays that are reused",
        2,
        heard.policy,
    )


def _linear(obs: Array, masks: Array) -> Array:
    """Return the share of the variance of each mask column [A] that observations explain."""
    inputs = np.column_stack([obs, np.ones(len(obs))])
    targets = np.nan_to_num(masks.astype(np.float64))
    weights, *_ = np.linalg.lstsq(inputs, targets, rcond=None)
    total = np.maximum(targets.var(axis=0), 1e-12)
    share: Array = 1 - np.square(targets - inputs @ weights).mean(axis=0) / total
    return np.where(np.isnan(masks).any(axis=0), np.nan, share)


def _still(cause: str, measured: str, certainty: int, heard: Heard) -> Finding:
    return Finding(
        cause,
        "Masks do not follow the state of their own environment.",
        measured,
        "the mask of the copy's own current state",
        "compute the mask in each step, in the object that has the state; a function made in a "
        "loop sees the loop's last object",
        certainty,
        heard.policy,
    )


COPIES = 4
"""Number of copies from which equal masks are not a coincidence."""


def never_allowed(heard: Heard) -> Finding | None:
    """Report actions that no mask allows."""
    return by_doctor(signals.never_allowed, heard)


def shifted_codes(heard: Heard) -> Finding | None:
    """Report a first or last action that does nothing."""
    return by_doctor(signals.shifted_codes, heard)


# --- Actions -------------------------------------------------------------------------------------

DECISIONS = 256
"""Minimum number of decisions of rules about actions."""


def one_action(heard: Heard) -> Finding | None:
    """Report play with one and the same action from the start."""
    part = next(parts_of(heard), None)
    if part is None or part.actions is None:
        return None
    free = part.valid if part.mask is None else part.valid & (part.mask.sum(axis=-1) > 1)
    played = part.actions[free]
    if len(played) < DECISIONS or np.ptp(played) > 0:
        return None
    allowed = part.mask is None or part.mask[free].any(axis=0).sum() > 1
    if not allowed or not _chooses(heard):
        return None
    return Finding(
        "action-constant",
        "The policy plays one action only, from the first rollout on.",
        f"action {int(played[0])} in all of {len(played):,} decisions of the first rollout",
        "different actions: an untrained policy is nearly random",
        "sample actions in training (not argmax); look for large inputs or weights, which make a "
        "policy sure of one action, and for actions that are stored as 0",
        2,
        heard.policy,
    )


def _chooses(heard: Heard) -> bool:
    """Return False if the logits show that there is one action only."""
    logits = next((item.logits for item in heard.minibatches if item.logits is not None), None)
    return logits is None or logits.shape[-1] > 1


def always_greedy(heard: Heard) -> Finding | None:
    """Report play of the most probable action in every decision, though others are probable."""
    for batch in heard.minibatches:
        parts = _discrete(batch)
        if not batch.first or parts is None or len(parts[0]) < 32:
            continue
        actions, log_table = parts
        table = np.exp(log_table)
        # Chance of the most probable action in all rows, if actions were sampled.
        ordered = np.sort(table, axis=1)
        clear = ordered[:, -1] > ordered[:, -2] + 1e-4
        chance = float(log_table.max(axis=-1)[clear].sum())
        greedy = table[np.arange(len(actions)), actions] >= ordered[:, -1] - 1e-6
        if greedy.all() and chance < -20:
            return Finding(
                "play-greedy",
                "Training plays the most probable action instead of sampling: it never explores.",
                f"{len(actions)} decisions; sampled actions would all be the most probable ones "
                f"with a probability of {np.exp(chance):.1g}",
                "actions sampled from the policy",
                "use sample(), not argmax or mode, in training (TorchRL: ExplorationType.RANDOM; "
                "Stable-Baselines3: deterministic=False)",
                3,
                heard.policy,
            )
    return None


def likely_actions(heard: Heard) -> Finding | None:
    """Report discrete actions that are more probable than samples of the policy would be.

    For samples, the mean of -log pi(action) is the mean entropy.
    """
    surprise, entropies = [np.zeros(0)], [np.zeros(0)]
    for batch in heard.minibatches:
        new, entropy, ratio = flat(batch.new_log_probs), flat(batch.entropy), ratio_of(batch)
        if not batch.first or new is None or entropy is None or ratio is None:
            continue
        actions = batch.actions
        if actions is None or actions.dtype.kind not in "iu" or np.abs(ratio - 1).max() > ONE:
            continue
        if len(entropy) in (1, len(new)) and np.isfinite(entropy).all():
            surprise.append(-new)
            entropies.append(np.broadcast_to(entropy, new.shape))
    says, expected = np.concatenate(surprise), np.concatenate(entropies)
    # Of a policy that is nearly certain, a few rare actions make the mean.
    if len(says) < DECISIONS or not expected.mean() > 0.3:
        return None
    lead = float((expected - says).mean())
    if not lead > max(0.1 * expected.mean(), 5 * max(1.0, says.std()) / np.sqrt(len(says))):
        return None
    return Finding(
        "play-greedy",
        "Stored actions are more probable than samples of the policy: it hardly explores.",
        f"the mean of -log pi(action) is {says.mean():.3g} in {len(says):,} decisions, the mean "
        f"entropy of the policy {expected.mean():.3g}",
        "both equal, as for samples of the policy",
        "store and play sample(), not argmax or mode; compute log-probability and entropy from "
        "the same distribution",
        2,
        heard.policy,
    )


def sure_from_start(heard: Heard) -> Finding | None:
    """Report a policy that is nearly deterministic in the first minibatch of the training."""
    first = next((item for item in heard.minibatches if item.update == 1), None)
    if first is None or not first.first or first.entropy is None or first.actions is None:
        return None
    if first.actions.dtype.kind not in "iu" or np.size(first.entropy) == 0:
        return None
    if first.mask is not None:
        choices = float(np.mean(np.log(np.maximum(first.mask.sum(axis=-1), 1))))
    elif first.logits is not None:
        choices = float(np.log(first.logits.shape[-1]))
    else:
        choices = float(np.log(len(np.unique(first.actions))))
    entropy = float(np.mean(first.entropy))
    if choices < 0.1 or entropy > 0.15 * choices:
        return None
    return Finding(
        "policy-sure",
        "The policy is nearly deterministic before the first update: it hardly explores.",
        f"mean entropy {entropy:.2g} in the first minibatch; of equal probabilities {choices:.3g}",
        "an untrained policy close to equal probabilities, unless it was trained before",
        "start the last layer of the actor with small weights (gain 0.01); scale observations",
        1,
        heard.policy,
    )


def _discrete(batch: Minibatch) -> tuple[Array, Array] | None:
    """Return actions [R] and log-probabilities of all actions [R, A]; None if not discrete."""
    actions, logits = batch.actions, batch.logits
    if actions is None or logits is None or logits.ndim != 2 or logits.shape[1] < 2:
        return None
    actions = actions.reshape(len(actions), -1)
    if len(actions) != len(logits) or actions.shape[1] != 1:
        return None
    chosen = actions[:, 0].astype(int)
    if (chosen != actions[:, 0]).any() or chosen.min() < 0 or chosen.max() >= logits.shape[1]:
        return None
    table = logits.astype(np.float64)
    if batch.mask is not None and batch.mask.shape == table.shape:
        table = np.where(batch.mask.astype(bool), table, -np.inf)
    largest = table.max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        return None
    with np.errstate(divide="ignore"):
        total = np.log(np.exp(table - largest).sum(axis=1, keepdims=True))
    return chosen, table - largest - total


# --- Log-probabilities ---------------------------------------------------------------------------


def wrong_log_probs(heard: Heard) -> Finding | None:
    """Report log-probabilities of discrete actions that are positive or all 0."""
    for part in parts_of(heard):
        log_probs, actions = part.rollout.log_probs, part.actions
        if log_probs is None or actions is None or log_probs.shape != part.shape:
            continue
        free = part.valid if part.mask is None else part.valid & (part.mask.sum(axis=-1) > 1)
        numbers = log_probs[free]
        if len(numbers) < 32 or np.ptp(actions[free]) == 0:
            continue
        positive = float((numbers > 1e-4).mean())
        if positive:
            kind = "probabilities" if ((numbers >= 0) & (numbers <= 1)).all() else "numbers above 0"
            return _wrong(f"{positive:.0%} are positive: they look like {kind}", 3, heard)
        if not numbers.any() and part.rollout.update <= 1:  # later, a policy may be certain
            return _wrong(f"all {len(numbers):,} are 0, for different actions", 3, heard)
        if np.ptp(numbers) == 0 and len(numbers) >= DECISIONS and heard.updates > 4:
            uniform = np.isclose(np.exp(-numbers[0]), round(float(np.exp(-numbers[0]))), atol=1e-3)
            if not uniform:
                return _wrong(f"all {len(numbers):,} are {numbers[0]:.4g}", 2, heard)
    return None


def _wrong(measured: str, certainty: int, heard: Heard) -> Finding:
    return Finding(
        "log-probs-wrong",
        "Stored log-probabilities are not logarithms of probabilities.",
        measured,
        "log pi(action | observation), at most 0 for discrete actions",
        "store distribution.log_prob(action) of the distribution that played",
        certainty,
        heard.policy,
    )


def foreign_log_probs(heard: Heard) -> Finding | None:
    """Compare stored log-probabilities with the logits of an update's first minibatch."""
    for batch in heard.minibatches:
        parts = _discrete(batch)
        if not batch.first or parts is None or batch.log_probs is None:
            continue
        actions, table = parts
        stored = batch.log_probs.reshape(-1).astype(np.float64)
        if len(stored) != len(actions) or len(stored) < 32:
            continue
        expected = table[np.arange(len(actions)), actions]
        wrong: Array = np.abs(expected - stored) > 1e-3
        if wrong.mean() < 0.2:
            continue
        # The same table has them: the policy is the one that played, its actions are others.
        other = np.any(np.abs(table - stored[:, None]) <= 1e-4, axis=1)
        least = np.where(np.isfinite(table), table, np.inf).min(axis=1)
        spread: Array = table.max(axis=1) - least
        apart = spread[wrong] > 1e-2
        if other[wrong].mean() > 0.98 and apart.mean() > 0.5:
            measured = (
                f"{wrong.mean():.0%} of the stored log-probabilities are those of other actions at "
                "the same observations"
            )
            return finding_of("probability-of-another", measured, 3, heard.policy)
        same = np.abs(np.sort(expected) - np.sort(stored)).max() <= 1e-3
        if same and np.ptp(expected) > 1e-2:
            measured = f"{wrong.mean():.0%} of the stored log-probabilities are of other rows"
            return finding_of("probability-of-another", measured, 3, heard.policy)
    return None


# --- Values --------------------------------------------------------------------------------------


def values_flat(heard: Heard) -> Finding | None:
    """Report values that are not finite, or equal for all observations after training began."""
    parts = list(parts_of(heard))
    for part in parts:
        values = part.rollout.values
        if values is not None and not np.isfinite(values[part.valid]).all():
            return finding_of("diverged", "values in a rollout are not finite", 3, heard.policy)
    for part in parts[-1:]:
        values, obs = part.rollout.values, part.obs
        if values is None or obs is None or heard.updates < EARLY or part.valid.sum() < DECISIONS:
            continue
        numbers, rows = values[part.valid], obs[part.valid]
        if np.ptp(numbers) > 1e-6 * max(1.0, float(np.abs(numbers).max())) or not np.ptp(rows):
            continue
        if len(np.unique(rows[:256], axis=0)) < 32:
            continue
        return Finding(
            "values-constant",
            "The critic gives all observations the same value.",
            f"value {numbers[0]:.4g} in {len(numbers):,} decisions, after {heard.updates} updates",
            "values that differ between observations",
            "check that the critic gets observations and gradients; look for dead units and for "
            "values that are stored as 0",
            2,
            heard.policy,
        )
    return None


EARLY = 8
"""Updates before values can be judged."""


def misleading_values(heard: Heard) -> Finding | None:
    """Report values that explain less than a constant, late in training."""
    if heard.updates < 2 * EARLY:
        return None
    shares, clear = [], True
    for part in list(parts_of(heard))[-3:]:
        values, targets = part.rollout.values, part.rollout.returns
        if values is None or targets is None or values.shape != targets.shape:
            continue
        target, value = targets[part.valid], values[part.valid]
        if np.std(target) > 1e-6 * max(1.0, float(np.abs(target).max())):
            clear &= bool(np.std(target) > 0.1 * np.sqrt(np.square(target).mean()))
            shares.append(1.0 - float(np.var(target - value) / np.var(target)))
    if len(shares) < 2 or not max(shares) < -0.5:
        return None
    measured = f"explained variance {min(shares):.2f} to {max(shares):.2f} in the latest rollouts"
    certainty = 2 if clear and max(shares) < -2 else 1
    return finding_of("critic-misleads", measured, certainty, heard.policy)


# --- Effects of actions --------------------------------------------------------------------------

RESAMPLES, ENOUGH = 99, 19
"""Permutations; after ``ENOUGH`` of them without a larger effect, actions have one."""

FEWEST = 1000
"""Minimum number of decisions of this test."""


def idle(heard: Heard) -> Finding | None:
    """Report actions that neither rewards nor next observations depend on.

    A permutation test: actions are exchanged between decisions with similar observations.
    """
    measured = []
    for part in list(parts_of(heard))[:2]:
        tested = _independent(part)
        if tested is None:
            return None
        measured.append(tested)
    if not measured:
        return None
    return Finding(
        "actions-idle",
        "Neither rewards nor next observations depend on the actions.",
        "; ".join(measured),
        "actions that change something",
        "look for code that replaces actions before step(), and for actions of another agent or "
        "copy; effects after several steps, or on a part that is not observed, do not show here",
        1,
        heard.policy,
    )


def _independent(part: Seen) -> str | None:
    """Describe the test of one rollout if actions show no effect; None otherwise."""
    actions, obs, rewards = part.actions, part.obs, part.rollout.rewards
    if actions is None or obs is None or rewards is None or obs.shape[-1] > WIDE:
        return None
    if len(obs) < 3 or part.mask is not None:
        return None
    if part.ended is None or rewards.shape != part.shape:
        return None
    rows = part.valid[:-1]
    played = actions[:-1][rows]
    counts = np.unique(played, return_counts=True)[1]
    if len(played) < FEWEST or not 2 <= len(counts) <= 16 or counts.min() < 32:
        return None
    within = part.within
    outcome = np.concatenate(
        [
            np.where(within[..., None], np.diff(obs, axis=0), 0.0),
            rewards[:-1, :, None],
            np.where(within, rewards[1:], 0.0)[..., None],
            part.ended[:-1, :, None],
            (part.ended[1:] & within)[..., None],
        ],
        axis=-1,
    )[rows]
    spread = outcome.std(axis=0)
    if not np.isfinite(spread).all() or not (spread > 1e-9).any():
        return None
    cells = _cells(obs[:-1][rows])
    outcome = _without(outcome[:, spread > 1e-9], cells)
    if not outcome.shape[1]:
        return None
    rng = np.random.default_rng(0)
    observed = _effect(outcome, played, cells)
    order = np.argsort(cells, kind="stable")
    mixed, effects = np.empty_like(played), []
    for count in range(1, RESAMPLES + 1):
        mixed[order] = played[np.argsort(cells + rng.random(len(cells)))]
        effects.append(_effect(outcome, mixed, cells))
        if count in (ENOUGH, RESAMPLES):
            p_value = _p_value(observed, np.array(effects))
            if p_value < 0.1:
                return None
    return f"permuted actions predict them as well (p = {p_value:.2f}, {len(played):,} decisions)"


def _p_value(observed: Array, permuted: Array) -> float:
    """Return the share of permutations [P, F] with an effect as large as the observed one [F].

    Each column counts in units of its own spread: rare events have large effects by chance.
    """
    both = np.concatenate([observed[None], permuted])
    largest = ((both - both.mean(axis=0)) / np.maximum(both.std(axis=0), 1e-12)).max(axis=1)
    return float((largest >= largest[0]).mean())


def _cells(obs: Array) -> Array:
    """Return a group of similar observations for each row: int [R], at most 64 groups."""
    different, groups = np.unique(obs, axis=0, return_inverse=True)
    if len(different) <= 64:
        return groups.reshape(-1)
    varied = np.flatnonzero(obs.std(axis=0) > 1e-9)[:4]
    above = (obs[:, varied] > np.median(obs[:, varied], axis=0)).astype(int)
    cells: Array = above @ (2 ** np.arange(len(varied)))
    return cells


def _without(outcome: Array, cells: Array) -> Array:
    """Return outcomes [R, F] minus their means in each group, in units of their spread."""
    counts = np.bincount(cells).astype(float)
    result = outcome.astype(np.float64)
    for column in range(outcome.shape[1]):
        means = np.bincount(cells, result[:, column]) / np.maximum(counts, 1)
        result[:, column] -= means[cells]
    spread = result.std(axis=0)
    kept: Array = result[:, spread > 1e-9] / spread[spread > 1e-9]
    return kept


def _effect(outcome: Array, actions: Array, cells: Array) -> Array:
    """Return the share of variance of each outcome [F] that actions explain within cells."""
    groups = np.unique(cells * (int(actions.max()) + 1) + actions, return_inverse=True)[1]
    counts = np.bincount(groups).astype(float)
    between = np.zeros(outcome.shape[1])
    for column in range(outcome.shape[1]):
        sums = np.bincount(groups, outcome[:, column])
        between[column] = float((sums**2 / counts).sum())
    return between / len(outcome)
