"""The texts of causes: symptom, expectation and remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from corral.lab.doctor.findings.finding import Finding

__all__ = ["finding_of", "strongest"]

MOVES = "updates that change every trainable weight and the policy"

CURRENT_VIEW = "the observation of the deciding agent at the current step"

LIMIT = "V(final observation) if truncated, 0 if terminated"
BOOTSTRAP = (
    "bootstrap from the final observation (info['final_obs']), which autoreset replaces with the "
    "first observation of the next episode"
)

TEXTS: dict[str, tuple[str, str, str]] = {
    # --- Updates without effect: the links from the advantages to the policy ----------------------
    "policy-loss-cut": (
        "Advantages do not reach the actor.",
        "a policy loss that follows the advantages",
        "look for detach(), item() or no_grad() on log-probabilities, a factor or a normalization "
        "that sets advantages to 0, and a missing ValueFunctionAPI (RLlib)",
    ),
    "no-gradient": (
        "Part of the network gets no gradient.",
        MOVES,
        "look for advantages that are all equal, detach(), no_grad(), frozen parameters, a branch "
        "with an unused output, and a loss without the actor",
    ),
    "frozen-weights": (
        "Part of the network is frozen.",
        MOVES,
        "remove requires_grad_(False), unless the frozen part is pretrained",
    ),
    "policy-untrained": (
        "Some policies are not trained: their agents play with fixed weights.",
        MOVES,
        "leave policies_to_train out, or add these policies, unless they are fixed on purpose",
    ),
    "decisions-left-out": (
        "Training leaves out decisions.",
        "every decision with an outcome, in every minibatch",
        "check the mask of valid decisions, which must be True if an agent acted; look for indices "
        "and masks that select rows in the loss",
    ),
    "gradient-clipped-away": (
        "Gradient clipping reduces the gradients to almost 0.",
        MOVES,
        "raise max_grad_norm to 0.5 or more",
    ),
    "learning-rate-zero": (
        "The learning rate is 0 before training ends: these env steps teach nothing.",
        MOVES,
        "check learning_rate and its schedule, which should reach 0 only at the planned number of "
        "steps (learning_rate='linear:3e-3'); --stretch extends the plan",
    ),
    "weights-fixed": (
        "Weights do not change: the optimizer does not have them, or its steps are too small.",
        MOVES,
        "pass all trainable parameters to the optimizer, and check learning_rate",
    ),
    "weights-put-back": (
        "Each update changes the policy and then restores the old one: nothing is learned.",
        MOVES,
        "look for old weights that are copied back after an update: a target network, an "
        "average of weights or a loaded checkpoint",
    ),
    "policy-unchanged": (
        "Updates do not change the policy.",
        MOVES,
        "raise learning_rate; check max_grad_norm, target_kl, the parameters in the optimizer, "
        "and the scale of gradients and advantages",
    ),
    "same-rewards": (
        "Rewards and returns are equal in all updates: the policy has nothing to learn from.",
        "returns that depend on the actions",
        "check the environment: corral check ENV --learnable; if rewards are rare, use more "
        "env steps per update",
    ),
    # --- Observations of another agent or step ----------------------------------------------------
    "observation-late": (
        "Agents get the observation of an earlier step.",
        CURRENT_VIEW,
        "compute the observation after the state is updated, and store it before choosing the "
        "action; copy arrays that the environment reuses; look for a wrapper that returns an old "
        "observation",
    ),
    "actions-late": (
        "Actions change nothing in the next observation and reward, only in those one step later.",
        "an action that changes the next observation, unless the delay is part of the task",
        "look for a step() or a wrapper that plays the action of the step before, or returns the "
        "observation from before the update; if the delay is meant, show the pending action in the "
        "observation",
    ),
    "observation-of-another": (
        "Agents get another agent's observation.",
        CURRENT_VIEW,
        "index observations by agent name, not by the order of a list; look for a loop variable "
        "that is not used",
    ),
    "observation-changed": (
        "The networks do not get the environment's observation.",
        CURRENT_VIEW,
        "store the observation before choosing the action, index by agent name, and copy arrays "
        "that the environment reuses; keep a normalization if it is deliberate",
    ),
    "identity-changed": (
        "The policy gets the wrong agent id.",
        "the id of the deciding agent",
        "look for an id that is overwritten, or written in another order of agents",
    ),
    "observation-constant": (
        "The observation never changes within an episode.",
        CURRENT_VIEW,
        "look for an observation that is made at reset and never updated, an array that is never "
        "written, or a wrapper that returns an old observation",
    ),
    "shared-without-identity": (
        "Agents share one policy without an agent id, and their observations are equal.",
        "an observation that identifies the agent, or separate policies",
        "keep agent_id=True, or pass policies='separate'",
    ),
    "observation-repeated": (
        "Columns of the observation are always equal: one may hold the wrong value.",
        "no column that duplicates another",
        "look for two observation entries that are written with the same key or index",
    ),
    "observation-blank": (
        "Parts of the observation are always 0.",
        "values that vary, or no column",
        "check whether these columns should hold a value: look for a field that is never written "
        "or that a wrapper overwrites",
    ),
    "actions-permuted": (
        "An agent's actions take the place of another agent's.",
        "every agent plays its own action, and is stored with it",
        "assign actions by agent name, not by the order of a list or dict",
    ),
    "actions-changed": (
        "The environment gets other actions than the ones stored for learning.",
        "stored actions equal to played actions, agent by agent",
        "store the actions that are played, after clipping or repair",
    ),
    "probability-of-another": (
        "Stored probabilities do not belong to the actions stored with them.",
        "log pi(action | observation, mask) of the stored action, from the policy that played",
        "store the action and log-probability of one sample of one agent, from the masked "
        "distribution",
    ),
    "mask-lies": (
        "The environment punishes actions that its own mask allows.",
        "a mask that is 0 for exactly the actions that count as illegal",
        "compute the mask and the rules in one function; in a wrapper, pass on the mask of the "
        "current step",
    ),
    "reward-of-another": (
        "An agent gets the reward of another agent's action.",
        "the reward of the agent's own action, unless the game's rules differ",
        "assign rewards by agent name, not by the order of a list or dict; check wrappers first",
    ),
    # --- Credit, and the ends of episodes --------------------------------------------------------
    "advantage-elsewhere": (
        "A reward is not credited to the decision that earned it.",
        "the advantage of the decision just before the reward rises most",
        "iterate over the rollout from its end: reversed(range(T)); keep time on the first axis, "
        "[T, C]; look for shuffled or reshaped arrays, and advantages that are all equal",
    ),
    "advantages-mixed": (
        "A reward changes advantages in other copies of the environment.",
        "advantages that depend on their own episode",
        "normalize over all decisions of a rollout, not over the copies of one step; look for "
        "reshaped arrays: they are [T, C]",
    ),
    "end-ignored": (
        "Episode ends are ignored: the next episode enters the advantages.",
        "advantages stop at the end of an episode",
        "cut the trace at done = terminated | truncated, and set V(next) = 0 if terminated",
    ),
    "end-taken-for-limit": (
        "Terminated steps are bootstrapped as if a time limit had ended the episode.",
        "a next value of 0 if terminated is True",
        "multiply V(next) by 1 - terminated (not by 1 - done)",
    ),
    "limit-taken-for-end": (
        "A time limit is treated as a termination: the value after it counts as 0.",
        LIMIT,
        BOOTSTRAP,
    ),
    "bootstraps-from-reset": (
        "Truncated steps bootstrap from the next episode's first observation.",
        LIMIT,
        BOOTSTRAP,
    ),
    "limit-value": (
        "Truncated steps do not bootstrap from the value of the final observation.",
        LIMIT,
        BOOTSTRAP,
    ),
    # --- Advantages in the loss ------------------------------------------------------------------
    "advantage-unsigned": (
        "Advantages have lost their sign: bad actions become likelier, too.",
        "a negative advantage makes its action less likely",
        "look for abs(), a square or a norm of advantages",
    ),
    "advantage-sign": (
        "Good actions become less likely: the advantage, or the loss, has the wrong sign.",
        "a larger reward raises the advantage, which makes its action likelier",
        "advantage = return - value; the loss is minimized: it must contain -ratio * advantage or "
        "-log_prob * advantage; ratio = exp(new log_prob - old)",
    ),
    "advantage-shuffled": (
        "Advantages act on other decisions than their own.",
        "row r of the advantages belongs to row r of the log-probabilities",
        "draw one permutation and index all arrays of a minibatch with it; look for shapes [R, 1] "
        "and [R], which broadcast to [R, R]",
    ),
    # --- Values in the loss ----------------------------------------------------------------------
    "critic-untaught": (
        "The critic is not trained: the loss has no gradient for the values.",
        "a gradient that leads every value to its own target",
        "add value_loss(minibatch, outputs, settings) to the loss terms, without detach()",
    ),
    "value-clipped": (
        "Values cannot follow their targets, or the targets cannot follow the rewards.",
        "a gradient that leads every value to its own target, from any distance",
        "omit clip_range_vf, or raise it and huber_delta to the spread of the targets; do not "
        "clamp losses or targets; scale the rewards or normalize the values",
    ),
    "critic-sign": (
        "The value loss moves values away from their targets.",
        "a gradient that leads every value to its own target",
        "the loss is minimized: it must contain +(value - target) ** 2",
    ),
    "targets-shuffled": (
        "Values learn the targets of other decisions.",
        "row r of the targets belongs to row r of the values",
        "draw one permutation and index all arrays of a minibatch with it; compare shapes: [R, 1] "
        "minus [R] gives [R, R]",
    ),
    "targets-follow-values": (
        "Value targets contain the value that they should correct.",
        "targets made of rewards and later values",
        "value target = advantage + value, with the advantage as it was before any normalization "
        "or clipping",
    ),
    "targets-changed": (
        "The value loss moves values to numbers other than their targets.",
        "no gradient for a value that equals its target",
        "do not clamp, scale or shift targets in the loss: they already use the critic's scale",
    ),
    "critic-misleads": (
        "The critic explains less variance than a constant.",
        "an explained variance above 0, and rising",
        "check the scale of returns, the order of values and targets, and the critic's learning "
        "rate and input",
    ),
    # --- Masks and entropy in the loss -----------------------------------------------------------
    "mask-lost-in-ratio": (
        "The possible actions in the loss are not the legal ones: it lost the masks.",
        "the same legal actions in play and in the loss, and a ratio of 1 before the first step",
        "store the masks with the decisions and apply them to the logits in the loss",
    ),
    "mask-lost-in-entropy": (
        "The entropy in the loss is not the entropy of the legal actions.",
        "a constant multiple of the entropy over legal actions",
        "use the entropy of the masked distribution; illegal actions contribute 0",
    ),
    # --- The size of an update -------------------------------------------------------------------
    "diverged": (
        "Training diverges: numbers overflow or become NaN.",
        "finite losses, weights and outputs",
        "lower learning_rate, and check the scale of rewards and observations",
    ),
    "updates-too-large": (
        "Updates change the policy so much that they discard the earlier learning.",
        "a KL divergence of about 0.001 to 0.1, less than half of the decisions clipped",
        "divide learning_rate by 10, use fewer epochs, or set target_kl=0.02; check that the loss "
        "uses the log-probabilities of the played actions",
    ),
    "old-log-prob-recomputed": (
        "The loss compares the policy with itself, not with the one that played: updates are "
        "unbounded.",
        "ratio = exp(log_prob - log_prob when the action was played)",
        "store log-probabilities in the rollout and keep them until the next rollout; or use each "
        "rollout for one epoch only",
    ),
    "ratio-wrong-in-loss": (
        "The loss clips decisions before the first optimizer step: its ratio is not 1.",
        "a ratio of 1 before the first step, and a gradient for every decision",
        "compute log-probabilities in the loss like outputs.log_prob: over legal actions only "
        "(-inf for illegal ones, not 0), minus the old ones of the same actions",
    ),
    "clip-too-tight": (
        "The clip range is so small that each update ends after its first step.",
        "a clip range of 0.1 to 0.3",
        "raise clip_range",
    ),
}
"""Cause -> symptom, expectation and remedy."""


def finding_of(cause: str, measured: str, certainty: int, policy: str = "") -> Finding:
    """Return the finding of one measurement of a cause in ``TEXTS``."""
    title, expected, todo = TEXTS[cause]
    return Finding(cause, title, measured, expected, todo, certainty, policy)


def strongest(findings: Iterable[Finding | None]) -> Finding | None:
    """Return the most certain finding, the first of equals, with the measurements of all.

    Measurements of another cause are introduced by its name.
    """
    present = [finding for finding in findings if finding is not None]
    if not present:
        return None
    first = max(present, key=lambda finding: finding.certainty)
    rest = [
        item.measured if item.cause == first.cause else f"also {item.cause}: {item.measured}"
        for item in present
        if item is not first
    ]
    return replace(first, measured="; ".join([first.measured, *rest]))
