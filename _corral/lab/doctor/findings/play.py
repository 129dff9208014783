"""Findings about play under masks: in training, in greedy play and after a reload."""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array
from corral.lab.doctor.evidence.record import Evidence, PolicyEvidence
from corral.lab.doctor.findings.finding import Finding
from corral.lab.doctor.findings.stored import first_policy
from corral.lab.doctor.findings.texts import finding_of

__all__ = [
    "greedy_legal",
    "mask_lies",
    "played_illegally",
    "plays_as_it_learns",
    "same_after_reload",
]


def played_illegally(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report actions that the mask forbids and that training plays."""
    illegal, played = _illegal(record)
    if not illegal.any():
        if evidence.error_kind != "IllegalActionError" or not first_policy(record, evidence):
            return None
        measured = evidence.error
    else:
        measured = f"{illegal.sum()} of {played} decisions in training are illegal"
    return Finding(
        "mask-ignored-in-play",
        "The policy plays actions that the mask forbids.",
        measured,
        "no illegal action",
        "sample from the masked distribution: logits of illegal actions are -inf before the "
        "softmax (corral.adapters.masked_distribution)",
        3,
        record.policy,
    )


def _illegal(record: PolicyEvidence) -> tuple[Array, int]:
    """Return a mask of illegal played actions, bool [T, B, P], and the number of played actions.

    Only single discrete choices are counted.
    """
    parts, played = [np.zeros((0, 0, len(record.agents)), bool)], 0
    for (actions, _), (masks, _), acted in zip(
        record.playing.played, record.masks, record.acted, strict=False
    ):
        steps, shape = len(actions), actions.shape[:3]
        if actions.ndim != 3 or actions.dtype.kind not in "iu" or not masks.shape[-1]:
            continue
        legal = masks[:steps].reshape(*shape, -1)
        inside = np.clip(actions, 0, legal.shape[-1] - 1)
        ok = np.take_along_axis(legal, inside[..., None], axis=-1)[..., 0]
        who = acted[:steps].reshape(shape)
        parts = [part for part in parts if part.size] + [~ok & who]
        played += int(who.sum())
    return np.concatenate(parts), played


def mask_lies(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report actions that the environment counts as illegal although its mask allows them."""
    counted = evidence.env.illegal
    agents = evidence.trainer.rules.agents
    if counted is None:
        return None
    illegal, played = _illegal(record)
    columns = [agents.index(agent) for agent in record.agents]
    forbidden = illegal.reshape(-1, len(columns)).sum(axis=0)
    more = counted[columns] - forbidden
    if not played or not (more > 0).any():
        return None
    of = _permuted(record, counted[columns])
    measured = of or "; ".join(
        f"{agent}: {int(counted[k]):,} actions count as illegal, its mask forbids "
        f"{int(forbidden[j]):,} of them"
        for j, (agent, k) in enumerate(zip(record.agents, columns, strict=True))
        if more[j] > 0
    )
    return finding_of("actions-permuted" if of else "mask-lies", measured, 3, record.policy)


def _permuted(record: PolicyEvidence, counted: Array) -> str:
    """Describe the permutation of agents that explains the illegal actions; "" if there is none."""
    agents = len(record.agents)
    for k in range(1, agents):
        expected = np.zeros(agents)
        for (actions, _), (masks, _), acted in zip(
            record.playing.played, record.masks, record.acted, strict=False
        ):
            shape = actions.shape[:3]
            legal = masks[: len(actions)].reshape(*shape, -1)
            other = np.roll(actions, k, axis=2)
            ok = np.take_along_axis(legal, other[..., None], axis=-1)[..., 0]
            expected += (~ok & acted[: len(actions)].reshape(shape)).sum(axis=(0, 1))
        if np.array_equal(expected, counted):
            return (
                f"the number of illegal actions is exactly that of {record.agents[k % agents]} "
                f"playing the actions of {record.agents[0]}"
            )
    return ""


# --- Evaluation ----------------------------------------------------------------------------------


def greedy_legal(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report illegal actions in play outside of training."""
    greedy, sampled = record.greedy_illegal, record.playing.sampled_illegal
    if not greedy and not sampled:
        return None
    return Finding(
        "mask-lost-in-greedy",
        "Greedy play chooses illegal actions."
        if greedy
        else "Play outside of training chooses illegal actions.",
        f"{greedy} illegal actions in greedy play, {sampled} in sampled play, of "
        f"{record.playing.steps} decisions each",
        "only legal actions",
        "take the argmax of the masked logits",
        3,
        record.policy,
    )


def plays_as_it_learns(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a policy in evaluation that differs from the trained actor."""
    if record.playing.play_differs <= 1e-4:
        return None
    return Finding(
        "play-differs",
        "The policy in evaluation differs from the trained one.",
        f"probabilities differ by up to {record.playing.play_differs:.3g} at the same observations",
        "the same probabilities",
        "use the same inputs as in training: normalization, agent id, order of columns, mask",
        3,
        record.policy,
    )


def same_after_reload(record: PolicyEvidence, evidence: Evidence) -> Finding | None:
    """Report a policy that changes when it is saved and loaded."""
    if record.reloaded_illegal <= record.greedy_illegal and record.reloaded_differs <= 1e-5:
        return None
    mask = record.reloaded_illegal > record.greedy_illegal
    return Finding(
        "mask-lost-after-reload" if mask else "reload-differs",
        "After saving and loading, the policy plays illegal actions."
        if mask
        else "After saving and loading, the policy is different.",
        f"{record.reloaded_illegal} illegal actions of {record.playing.steps} in greedy play, "
        f"{record.greedy_illegal} before"
        if mask
        else f"probabilities differ by up to {record.reloaded_differs:.3g}",
        "the same policy",
        "save everything that affects play: weights, normalizers, buffers and the use of the mask",
        3,
        record.policy,
    )
