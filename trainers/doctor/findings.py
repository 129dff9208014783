"""What is wrong with a run: findings, each with what was measured, expected, and to be done.

A rule is a function from ``Evidence`` of one policy to a finding, or None. Rules compare what was
seen with what must be so; none knows the name of an environment or a trainer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from corral.envs.core import Array
from corral.trainers.doctor.evidence import Evidence, PolicyEvidence

__all__ = ["RULES", "Finding", "findings"]


@dataclass(frozen=True)
class Finding:
    """One cause. ``certainty``: 3 it is so, 2 most likely, 1 worth a look."""

    cause: str  # a slug, such as "zero-advantages"
    title: str  # a sentence
    measured: str
    expected: str
    todo: str
    certainty: int
    policy: str = ""  # "" where it is about all


Rule = Callable[[PolicyEvidence, Evidence], Finding | None]


def findings(evidence: Evidence) -> list[Finding]:
    """Return all findings, the surest and those nearest to the root first."""
    found: list[Finding] = []
    for rule in RULES:
        for policy in evidence.policies.values():
            if (one := rule(policy, evidence)) is not None:
                found.append(one)
    order = {rule.__name__: at for at, rule in enumerate(RULES)}
    del order
    return sorted(found, key=lambda each: -each.certainty)  # stable: by the order of RULES


# --- What the environment said, and what was stored ----------------------------------------------


def stored_masks(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    said, kept = _joined(found.masks)
    acted = np.concatenate(found.acted) if found.acted else np.zeros((0, 0), bool)
    if not said.size:
        return None
    wrong = (said != kept).any(axis=-1) & acted
    if not wrong.any():
        return None
    return Finding(
        "mask-lost-in-rollout",
        "The rollout does not hold the masks that the environment gave.",
        f"{wrong.mean():.1%} of decisions were stored with another mask",
        "every mask as the environment gave it",
        "store observations[agent]['action_mask'] of the moment that is decided on, and hand it "
        "to sampling and to the loss alike",
        3,
        found.policy,
    )


def played_illegally(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if evidence.error_kind != "IllegalActionError":
        return None
    return Finding(
        "mask-ignored-in-play",
        "The team plays actions that the mask forbids.",
        evidence.error,
        "no illegal action",
        "sample from the masked distribution: logits of illegal actions are -inf before the "
        "softmax (corral.adapters.masked_distribution)",
        3,
        found.policy,
    )


def stored_obs(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    said, kept = _joined(found.obs)
    if not said.size:
        return None
    wrong = ~np.isclose(said, kept, atol=1e-5, equal_nan=True)
    if not wrong.any():
        return None
    late = all(len(s) > 1 and np.allclose(s[:-1], k[1:], atol=1e-5) for s, k in found.obs)
    columns = np.flatnonzero(wrong.any(axis=(0, 1)))
    return Finding(
        "observation-late" if late else "observation-changed",
        "The networks get the observation of the step before."
        if late
        else "The networks do not get what the environment shows.",
        "step t is decided on the observation of step t - 1"
        if late
        else f"{len(columns)} of {said.shape[-1]} columns differ from the environment's, in "
        f"{wrong.any(axis=-1).mean():.0%} of decisions",
        "the observation of the moment that is decided on",
        "store the observation before the action is chosen, and do not let a buffer be written "
        "over (copy arrays that an environment uses again)",
        3,
        found.policy,
    )


def stored_rewards(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    said, kept = _joined(found.rewards)
    if not said.size or np.allclose(said, kept, atol=1e-6):
        return None
    everybody = np.concatenate(found.everybody)  # [T, B, N]
    agents = evidence.trainer.rules.agents
    own = [agents.index(agent) for agent in found.agents]
    shape = (len(kept), everybody.shape[1], len(own))
    theirs = kept.reshape(shape)
    of = [
        f"{agents[mine]} is paid what {agents[other]} gets"
        for j, mine in enumerate(own)
        for other in range(len(agents))
        if other != mine
        and np.allclose(theirs[..., j], everybody[..., other], atol=1e-6)
        and np.ptp(theirs[..., j]) > 0
    ]
    mean = everybody.mean(axis=-1, keepdims=True)
    if not of and np.allclose(theirs, np.broadcast_to(mean, shape), atol=1e-6):
        of = ["each agent is paid the mean of all agents"]
    scale = _ratio(said, kept)
    if not of and scale is not None:
        of = [f"rewards are multiplied by {scale:.4g}"]
    return Finding(
        "reward-of-another" if of and scale is None else "reward-changed",
        "Agents learn from other rewards than the environment gives them.",
        "; ".join(of)
        or f"{np.mean(~np.isclose(said, kept, atol=1e-6)):.0%} of the stored rewards differ",
        "rewards[agent] of the environment, each for its own agent",
        "follow one reward from step() to the advantage; index by the agent's name, not by the "
        "order of a dict",
        3,
        found.policy,
    )


def _ratio(said: Array, kept: Array) -> float | None:
    """Return c where ``kept`` is c times ``said``; None: it is not."""
    at = np.abs(said) > 1e-9
    if not at.any():
        return None
    ratio = float(np.median(kept[at] / said[at]))
    return ratio if np.allclose(kept, ratio * said, rtol=1e-3, atol=1e-9) else None


def reported_returns(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if found is not next(iter(evidence.policies.values())):
        return None  # once
    wrong: dict[str, tuple[float, float]] = {}
    for said, told in evidence.returns:
        for agent, value in said.items():
            if abs(told.get(agent, np.nan) - value) > 1e-4 * max(1.0, abs(value)):
                wrong.setdefault(agent, (value, told.get(agent, np.nan)))
    if not wrong:
        return None
    agent, (value, reported) = next(iter(wrong.items()))
    return Finding(
        "returns-leak",
        "The returns that are reported are not those of the episodes.",
        f"{agent}: reported {reported:.4g}, the rewards of that episode sum to {value:.4g}",
        "the sum of each agent's own rewards, whatever the rollouts cut",
        "add up rewards by agent, and reset a sum when that environment's episode ends, not when "
        "a rollout does",
        3,
    )


# --- Ends and cuts -------------------------------------------------------------------------------


def ends(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """An end, a time limit and a reset, each taken for itself."""
    for given, terminated, truncated, final in zip(
        found.trajectories, found.terminated, found.truncated, found.final_value, strict=False
    ):
        if (terminated & ~given.ended).any() or (truncated & ~given.ended).any():
            return Finding(
                "end-ignored",
                "Episodes go on past their end: the next one's values are added to them.",
                f"{int(((terminated | truncated) & ~given.ended).sum())} ends are not marked",
                "advantages stop where an episode ends",
                "set done = terminated | truncated for the trace, and V(next) = 0 where terminated",
                3,
                found.policy,
            )
        if (np.abs(given.final_obs_value[terminated]) > 1e-6).any():
            return Finding(
                "end-taken-for-limit",
                "Ends by the rules are bootstrapped, as if a time limit had cut them.",
                f"V after a terminated step is {_mean(given.final_obs_value[terminated]):.4g}",
                "0 where terminated is True",
                "multiply V(next) by 1 - terminated (not by 1 - done)",
                3,
                found.policy,
            )
        cut = truncated & ~np.isnan(final)
        if not cut.any() or np.allclose(final[cut], 0.0, atol=1e-4):
            continue
        used = given.final_obs_value[cut]
        if np.allclose(used, final[cut], rtol=1e-2, atol=1e-2 * np.abs(final[cut]).max()):
            continue
        following = np.concatenate([given.value[1:], given.bootstrap_value[None]])[cut]
        zero = np.allclose(used, 0.0, atol=1e-6)
        reset = np.allclose(used, following, rtol=1e-3, atol=1e-4)
        title = (
            "A time limit is taken for an end: what would follow counts nothing."
            if zero
            else "Where a time limit cuts, the value of the next episode's first observation is used."
            if reset
            else "Where a time limit cuts, another value than that of the last observation is used."
        )
        return Finding(
            "limit-taken-for-end" if zero else "bootstraps-from-reset",
            title,
            f"V used there {_mean(used):.4g}, V of the last observations {_mean(final[cut]):.4g}",
            "V(final observation) where truncated",
            "bootstrap from the final observation (info['final_obs'], Finished.observations), which "
            "autoreset replaces by the first of the next episode",
            3,
            found.policy,
        )
    return None


# --- Advantages ----------------------------------------------------------------------------------


def zero_advantages(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    for given, learned in zip(found.trajectories, found.advantages, strict=False):
        valid = given.valid
        if not valid.any():
            continue
        # What one step more would tell: rewards and values that differ make advantages differ.
        raw = given.reward[valid] - given.value[valid]
        if np.std(learned.advantage[valid]) <= 1e-9 < 1e-6 < np.std(raw):
            return Finding(
                "zero-advantages",
                "All advantages are the same: the actor is told nothing.",
                f"advantages have a standard deviation of {np.std(learned.advantage[valid]):.3g}, "
                f"rewards less values one of {np.std(raw):.3g}",
                "advantages that vary as rewards and values do",
                "look at what makes advantages (RLlib: a module that is no ValueFunctionAPI gets "
                "none), at a normalization that divides by nothing, and at a mask of transitions "
                "that is all False",
                3,
                found.policy,
            )
    return None


def first_ratio(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if not found.log_ratio:
        return None
    worst = max(float(np.abs(np.expm1(each)).max(initial=0.0)) for each in found.log_ratio)
    if worst <= 1e-3:
        return None
    return Finding(
        "ratio-not-one",
        "Before the first step of an update, the policy is not the one that played.",
        f"probability ratios are off 1 by up to {worst:.3g}",
        "1 within 0.0001: the same weights, observations, masks and hidden states",
        "apply the stored mask in the loss as in play; compare observations, normalizers and "
        "hidden states of both",
        3,
        found.policy,
    )


def entropy_of_illegal(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    for told, own in found.entropy:
        if told > own + 1e-3 * max(1.0, own):
            return Finding(
                "mask-lost-in-entropy",
                "The entropy counts actions that are illegal.",
                f"entropy in the loss {told:.4g}, of the legal actions {own:.4g}",
                "entropy over legal actions alone",
                "take the entropy of the masked distribution; illegal actions count 0",
                3,
                found.policy,
            )
    return None


def entropy_wins(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if not found.entropy or not found.term_gradients:
        return None
    names = [name for name in found.term_gradients if "entropy" in name]
    others = [n for n in found.term_gradients if n not in names and "value" not in n]
    if not names or not others:
        return None
    bonus = max(abs(terms.get(name, 0.0)) for terms in found.terms for name in names)
    policy = max(abs(terms.get(name, 0.0)) for terms in found.terms for name in others)
    told, most = found.entropy[-1][0], found.most_entropy[-1]
    scale = float(
        np.std(
            np.concatenate(
                [
                    a.advantage[t.valid]
                    for t, a in zip(found.trajectories, found.advantages, strict=False)
                ]
            )
        )
    )
    if most > 0 and told >= 0.97 * most and bonus > 2.0 * max(scale, 1e-9) * most:
        return Finding(
            "entropy-too-large",
            "The bonus for entropy outweighs what advantages say: the policy stays random.",
            f"entropy {told:.3g} of at most {most:.3g}; its term in the loss is {bonus:.3g}, the "
            f"policy's {policy:.3g}",
            "a bonus that is small beside normalized advantages",
            "lower ent_coef, to 0.01 or less at first",
            2,
            found.policy,
        )
    return None


# --- Weights -------------------------------------------------------------------------------------


def no_gradient(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    learned = any(
        np.ptp(a.advantage[t.valid]) > 1e-9
        for t, a in zip(found.trajectories, found.advantages, strict=False)
        if t.valid.any()
    )
    if not learned or not found.gradients:
        return None
    dead = [name for name, size in found.gradients.items() if not size > 0]
    if not dead:
        return None
    some = ", ".join(dead[:3]) + (f" and {len(dead) - 3} more" if len(dead) > 3 else "")
    images = any(".cnn" in name for name in dead)
    return Finding(
        "no-gradient",
        "Part of the network gets no gradient"
        + (": images are not learned from." if images else "."),
        f"{len(dead)} of {len(found.gradients)} parameters: {some}",
        "a finite gradient that is not 0 in every parameter that is to learn",
        "look for detach(), no_grad(), a branch whose output is not used, or a loss that leaves "
        "the actor out",
        3,
        found.policy,
    )


def not_moved(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if not found.moved or any(size > 0 for size in found.moved.values()):
        return None
    rate = max(found.learning_rates, default=0.0)
    return Finding(
        "learning-rate-zero" if rate == 0 else "weights-fixed",
        "No weight moves" + (": the learning rate is 0." if rate == 0 else "."),
        f"largest change of a weight in {len(found.learning_rates)} updates: 0, learning rate "
        f"{rate:g}",
        "weights that move with every update",
        "look at learning_rate, its schedule (anneal ends at the steps that were planned: "
        "--stretch plans anew), and at which parameters the optimizer was given",
        3,
        found.policy,
    )


def ignored_fields(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if not found.ignored:
        return None
    return Finding(
        "observation-ignored",
        "Part of the observation varies, and changes nothing that the policy puts out.",
        ", ".join(found.ignored[:6]) + (" ..." if len(found.ignored) > 6 else ""),
        "every part that varies reaches the networks",
        "look at what the network concatenates, at the order of keys, and at scaling that rounds "
        "to 0",
        3,
        found.policy,
    )


# --- Greedy play, and after a reload -------------------------------------------------------------


def greedy_legal(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if not found.greedy_illegal:
        return None
    return Finding(
        "mask-lost-in-greedy",
        "Greedy play chooses illegal actions.",
        f"{found.greedy_illegal} illegal actions in play without sampling",
        "the likeliest legal action",
        "take the argmax of the masked logits",
        3,
        found.policy,
    )


def same_after_reload(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    if not found.reloaded_illegal and found.reloaded_differs <= 1e-5:
        return None
    mask = found.reloaded_illegal > found.greedy_illegal
    return Finding(
        "mask-lost-after-reload" if mask else "reload-differs",
        "After saving and loading, the policy plays illegal actions."
        if mask
        else "After saving and loading, the policy is another.",
        f"{found.reloaded_illegal} illegal actions"
        if mask
        else f"probabilities differ by up to {found.reloaded_differs:.3g}",
        "the same policy",
        "save everything that play depends on: weights, normalizers, buffers, the mask's place",
        3,
        found.policy,
    )


# --- Scales --------------------------------------------------------------------------------------


def unscaled_obs(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    _, kept = _joined(found.obs)
    if not kept.size:
        return None
    largest = np.abs(kept).max(axis=(0, 1))
    if not (largest > 30).any():
        return None
    return Finding(
        "observation-unscaled",
        "Observations are large numbers, beside which others vanish.",
        f"largest {largest.max():.4g}; {int((largest > 30).sum())} of {len(largest)} columns "
        "exceed 30",
        "numbers of about -1 to 1",
        "give finite bounds in the observation space (corral scales by them), or scale in the "
        "environment",
        2,
        found.policy,
    )


def tiny_rewards(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    said, _ = _joined(found.rewards)
    if not said.size:
        return None
    largest = float(np.abs(said).max())
    if not 0 < largest < 1e-4:
        return None
    return Finding(
        "reward-tiny",
        "Rewards are so small that they drown in rounding and in constants of the optimizer.",
        f"largest reward {largest:.3g}",
        "returns of about 1 to 100",
        "multiply rewards, or divide them by their typical size, in the environment",
        2,
        found.policy,
    )


def clipped_values(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    settings = evidence.trainer.settings
    clip = getattr(settings, "clip_range_vf", None)
    if clip is None or not found.targets:
        return None
    value, target, old = (np.concatenate(each) for each in zip(*found.targets, strict=True))
    far = np.abs(target - old) > 10 * clip
    if far.mean() <= 0.5:
        return None
    return Finding(
        "value-clipped",
        "Values may move so little in an update that they never reach their targets.",
        f"clip_range_vf {clip:g}; {far.mean():.0%} of targets lie more than 10 times that from "
        f"the value (median distance {np.median(np.abs(target - value)):.3g})",
        "a clip range of the size of the targets' spread (1, where values are normalized), or none",
        "leave clip_range_vf out, or raise it to 1",
        2,
        found.policy,
    )


# --- Who plays -----------------------------------------------------------------------------------


def same_views(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    said, _ = _joined(found.obs)
    width = said.shape[-1] if said.size else 0
    if width < 2:
        return None
    flat = said.reshape(-1, width)
    varies = np.flatnonzero(np.ptp(flat, axis=0) > 1e-6)
    if len(varies) < 2:
        return None
    twins = [
        (int(a), int(b))
        for at, a in enumerate(varies)
        for b in varies[at + 1 :]
        if np.array_equal(flat[:, a], flat[:, b])
    ]
    if not twins or len(twins) > width:
        return None
    return (
        None
        if not twins
        else Finding(
            "observation-repeated",
            "Parts of the observation are always equal: one may stand where another should.",
            f"columns {', '.join(f'{a} and {b}' for a, b in twins[:4])} are equal in "
            f"{len(flat):,} decisions",
            "each thing once",
            "look for two entries that are written under one key or index",
            1,
            found.policy,
        )
    )


def untold_identity(found: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Agents of one policy that is not told who plays, for whom the same moments differ."""
    settings = evidence.trainer.settings
    if len(found.agents) < 2 or getattr(settings, "agent_id", True):
        return None
    said, _ = _joined(found.obs)
    flat = said.reshape(len(said), -1, len(found.agents), said.shape[-1])  # [T, B, P, F]
    if not (np.ptp(flat, axis=2) < 1e-6).all(axis=-1).mean() > 0.02:
        return None  # what they observe tells them apart
    return Finding(
        "shared-without-identity",
        "Agents share one policy that is not told which of them it plays, and they observe the "
        "same.",
        f"{', '.join(found.agents)}: equal observations in "
        f"{(np.ptp(flat, axis=2) < 1e-6).all(axis=-1).mean():.0%} of steps",
        "an observation that tells who plays, or a policy each",
        "leave agent_id=True, or give policies='separate'",
        2,
        found.policy,
    )


def _joined(pairs: list[tuple[Array, Array]]) -> tuple[Array, Array]:
    if not pairs:
        return np.zeros((0, 0, 0)), np.zeros((0, 0, 0))
    return np.concatenate([a for a, _ in pairs]), np.concatenate([b for _, b in pairs])


def _mean(values: Array) -> float:
    return float(np.mean(values))


def _all() -> Iterator[Rule]:
    yield from (played_illegally, stored_masks, stored_obs, stored_rewards, ends, zero_advantages)
    yield from (first_ratio, entropy_of_illegal, no_gradient, not_moved, ignored_fields)
    yield from (greedy_legal, same_after_reload, reported_returns)
    yield from (clipped_values, entropy_wins, untold_identity, unscaled_obs, tiny_rewards)
    yield same_views


RULES: tuple[Rule, ...] = tuple(_all())
"""From the root outwards: what is wrong at the beginning makes what follows wrong."""
