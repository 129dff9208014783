"""Listen to an in-house trainer of corral."""

from __future__ import annotations

from typing import Any

from corral.lab.doctor.evidence.learning import logits_of
from corral.lab.listening.ear import Ear
from corral.trainers.observers import Observer
from corral.trainers.on_policy.records import (
    Advantages,
    Losses,
    Minibatch,
    Outputs,
    Trajectories,
)
from corral.trainers.on_policy.trainer import OnPolicyTrainer
from corral.trainers.runs.run import Run
from corral.trainers.session import Session

__all__ = ["listen_corral"]


def listen_corral(trainer: Any, ear: Ear) -> None:
    """Let ``ear`` hear a trainer, or the trainer of a session; call it before training.

    Raises TypeError for a finished run, and for trainers that are not in-house.
    """
    if isinstance(trainer, Session):
        trainer = trainer.learner
    if isinstance(trainer, Run):
        raise TypeError(
            f"{trainer.name} is a finished run: corral.diagnose(run) examines it. To hear a "
            "training: with corral.session(...) as session: ear = corral.listen(session)"
        )
    if not isinstance(trainer, OnPolicyTrainer):
        raise TypeError(
            f"listen hears the in-house trainers (mappo, ippo, ...), not {type(trainer).__name__}; "
            "train, then call corral.diagnose(run)"
        )
    settings = vars(trainer.settings)
    for learner in trainer.learners.values():
        if learner.trained:
            ear.policy(
                learner.group.policy,
                learner,
                gamma=settings.get("gamma"),
                gae_lambda=settings.get("gae_lambda"),
            )
    trainer.observe(_Listener(ear))


class _Listener(Observer):
    """Passes the data of an observer on."""

    def __init__(self, ear: Ear) -> None:
        self.ear = ear
        self.rollouts: Any = None

    def on_rollout(self, rollout: Any) -> None:
        self.rollouts = rollout

    def on_advantages(
        self, learner: Any, trajectories: Trajectories, advantages: Advantages
    ) -> None:
        group, rollout = learner.group, self.rollouts
        terminated = group.own(rollout.terminated)
        buffer = next(item for item in rollout.groups if item.group is group)
        steps, columns = trajectories.reward.shape
        width, masks = group.layout.width, group.actions.masks
        action = buffer.action[:steps]
        self.ear.rollout(
            policy=group.policy,
            obs=buffer.vector[:steps, ..., :width].reshape(steps, columns, width)
            if width
            else None,
            actions=action.reshape(steps, columns, *action.shape[3:]),
            mask=buffer.mask[:steps].reshape(steps, columns, masks) if masks else None,
            rewards=trajectories.reward,
            terminated=terminated,
            truncated=trajectories.ended & ~terminated,
            values=trajectories.value,
            final_values=trajectories.final_obs_value,
            last_values=trajectories.bootstrap_value,
            log_probs=buffer.log_prob[:steps].reshape(steps, columns),
            advantages=advantages.advantage,
            returns=advantages.value_target,
            valid=trajectories.valid,
        )

    def on_minibatch(
        self, learner: Any, minibatch: Minibatch, outputs: Outputs, losses: Losses
    ) -> None:
        if not self.ear.attends(learner.group.policy):
            return
        logits = logits_of(outputs.distribution)
        self.ear.batch(
            policy=learner.group.policy,
            actions=minibatch.action,
            mask=minibatch.mask if minibatch.mask.shape[-1] else None,
            log_probs=minibatch.log_prob,
            new_log_probs=outputs.log_prob,
            logits=logits if logits is not None and logits.ndim == 2 else None,
            entropy=outputs.entropy,
            values=outputs.value,
            advantages=minibatch.advantage,
            returns=minibatch.value_target,
            **{name: term.detach() for name, term in losses.terms.items()},
        )
