"""The training loop: a run, row by row.

with corral.session("arena_v0", steps=100_000, seed=1) as session:
    for row in session: ...
"""

from __future__ import annotations

import contextlib
import copy
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from corral.envs.core import Array
from corral.envs.episode_stats import Episode
from corral.envs.policy import Policy
from corral.errors import CheckpointError, CorralError
from corral.hints import no_attribute
from corral.progress import in_notebook, is_quiet
from corral.text import visible
from corral.trainers.base import StepwiseTrainer, Trainer, Update
from corral.trainers.callbacks.listeners import Listeners, RolloutObserver
from corral.trainers.callbacks.protocol import again, name_of
from corral.trainers.callbacks.sinks import Row, past_rows
from corral.trainers.content import Content
from corral.trainers.evaluation.validate import Validation, validate
from corral.trainers.evaluation.zero_sum import is_zero_sum
from corral.trainers.runs.checkpoint import complete_save
from corral.trainers.runs.log import Bar, Statistics
from corral.trainers.runs.run import CHECKPOINTS, MODE, PROGRESS, Run
from corral.trainers.runs.run_config import RunConfig
from corral.trainers.runs.signals import stop_signals

__all__ = ["Session", "say", "statistics_of"]

CHECKPOINTS_PER_RUN = 10

FEW = 10
"""A plan with fewer updates is reported when training starts."""

PLAYED = 0.02
"""Maximum env steps of greedy and sampled play at the end of training, as a share of the env steps
of the run. Random play adds half as much, if the gap is large."""

COMPARED = (12, 40)
"""Minimum and maximum number of episodes of this comparison."""

SLOW_S = 1.0
"""Duration of an update in seconds above which its end is kept in memory as a fallback save."""


INSTEAD = {
    "train learn fit update training_step": "a session trains while it is iterated: for row in "
    "session: ..., or next(session) for one update"
}
"""Attributes that a session does not have, and what to use instead."""


class Session:
    """A run in training; iterating yields a row of progress.csv after each update.

    A context manager. Inside it the run's folder is locked. Ctrl-C waits for the end of the current
    update, but at most two seconds; a longer update is discarded and replayed on resuming. Progress
    is saved when the block is left, also early, and in between as in ``corral.train``.
    ``corral.train`` is a session that runs to its end, with an identical run as its result.
    """

    run: Run

    def __init__(
        self,
        config: RunConfig,
        learner: Trainer,
        place: contextlib.AbstractContextManager[Path],
        listeners: Listeners,
        checkpoint_every: int | None = None,
        progress: bool | None = None,
        messages: Sequence[str] = (),
    ) -> None:
        """Store the arguments. ``place`` provides the folder: a new one, or that of a resumed run,
        see ``load``. ``messages`` are printed when training starts."""
        self.config, self.learner, self.listeners = config, learner, listeners
        self.statistics = statistics_of(config)
        self.row: Row = {}  # the latest
        self._place, self._progress, self._messages = place, progress, messages
        self._every = checkpoint_every or max(1, config.steps // CHECKPOINTS_PER_RUN)
        self._reason: str | None = None
        self.is_sound = (
            True  # False while the trainer's state is inconsistent and must not be saved
        )
        self._entered, self._ended, self._new = False, False, True
        self._updates: Iterator[Update] | None = None
        self._sampled: tuple[list[Episode], dict[str, float]] | None = None
        # Env steps, content and statistics at the end of the last slow update
        self._snapshot: tuple[int, Content, dict[str, Any]] | None = None
        self._after = 0.0  # seconds spent on callbacks, saving etc. after the last row
        listeners.attach(learner, config.trainer)

    # --- State -----------------------------------------------------------------------------------

    @property
    def env_steps(self) -> int:
        """Env steps since the start of the run."""
        return self.learner.env_steps

    @property
    def steps(self) -> int:
        """Planned env steps of the run."""
        return self.config.steps

    @property
    def policies(self) -> Mapping[str, Policy]:
        """agent -> its current policy."""
        return self.learner.policies

    @property
    def moment(self) -> str:
        """The current update as text, for errors."""
        if not self.statistics.updates:
            return "before the first update"
        return f"at update {self.statistics.updates} ({self.env_steps:,} env steps)"

    @property
    def over(self) -> bool:
        """True if training is to end: all steps are played, or a stop was requested."""
        return self._played or self._ending

    @property
    def rows(self) -> list[dict[str, float | None]]:
        """The rows of progress.csv so far, column -> number."""
        rows = past_rows(self.run.folder / PROGRESS, self.statistics.updates)
        return [{k: float(v) if v else None for k, v in row.items()} for row in rows]

    # --- Training --------------------------------------------------------------------------------

    def __enter__(self) -> Session:
        with contextlib.ExitStack() as stack:
            self.run = Run(stack.enter_context(self._place), self.config)
            if self._new:
                self.config.write(self.run.folder)
                for line in filter(None, self._messages):
                    say(self.run.folder, line)
            stack.callback(self.learner.close)
            self._stop = stack.enter_context(stop_signals())
            watched = sys.stderr.isatty() or in_notebook()
            shown = watched if self._progress is None else self._progress
            self._bar = Bar(self.steps, visible=shown and not is_quiet())
            stack.callback(self._bar.close)
            self._begun = self._saved = self.env_steps
            self._report_rollouts()
            stack.push(self._close)
            if self._new and self.config.init is not None:
                # other trainers were rejected earlier
                assert isinstance(self.learner, StepwiseTrainer)
                self.learner.begin()
                self.save()  # the initial weights are stored only here; resuming needs them
            self.listeners.begin(self)
            self._stack = stack.pop_all()
        self._entered = True
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._entered, self._ended = False, True
        try:
            self._end(error)
        except BaseException as exit_error:
            self._stack.__exit__(type(exit_error), exit_error, exit_error.__traceback__)
            raise
        self._stack.__exit__(kind, error, trace)

    def __iter__(self) -> Iterator[Row]:
        return self

    def __next__(self) -> Row:
        self._require_entered()
        clock = time.perf_counter() - self._after
        if self._ending:
            raise StopIteration
        if self._updates is None:
            self._updates = self.learner.learn(self.steps)
        self.is_sound = False
        update = next(self._updates, None)
        if update is None:
            self.is_sound = True
            raise StopIteration
        return self._take(update, time.perf_counter() - clock)

    def finish(self) -> Run:
        """Train to the end and return the run."""
        for _ in self:
            pass
        return self.run

    def save(self) -> None:
        """Save a checkpoint of the current state; the best checkpoint is kept in addition."""
        self.listeners.before_save(self)
        content, better = self._content(), self.statistics.improved()
        self.run.save_checkpoint(self.env_steps, content, self.statistics.save(), best=better)
        self._drop_outdated()

    def _drop_outdated(self) -> None:
        """Delete the mode of play, and a clone's agreement with its teacher, after a checkpoint of
        other weights. A resumed run that saves nothing keeps them."""
        if self.env_steps > self._begun:
            (self.run.folder / "agreement.json").unlink(missing_ok=True)
            (self.run.folder / MODE).unlink(missing_ok=True)

    def load(self, run: Run, *, stretch: bool = False) -> None:
        """Restore the latest checkpoint; with ``stretch`` its ``horizon`` may differ."""
        content = run.content("latest", but=("horizon",) if stretch else ())
        self.learner.load(content)
        try:
            self.statistics.load(content.documents["progress"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{run.folder}: the checkpoint is damaged: {error!r}") from error
        best = (self.statistics.best_by or {}).get("env_steps") == self.learner.env_steps
        complete_save(run.folder / CHECKPOINTS, keep=run.config.keep, best=best)
        unseen = self.listeners.metrics.load(content.arrays.get("episodes", {}))
        if not self.learner.resumes_exactly:
            say(run.folder, "environments without a saved state start new episodes")
        elif unseen:
            say(run.folder, "metrics include only episodes that start from here on")

    def keep_folder(self) -> None:
        """Keep config.json unchanged: the folder belongs to an earlier run."""
        self._new = False

    def stop(self, why: str) -> None:
        """End training after the current update. The run is saved with ``why`` as the reason."""
        self._reason = self._reason or str(why)

    def evaluate(self, episodes: int | None = None, *, deterministic: bool = True) -> Validation:
        """Evaluate the current policies on validation data, which training and the final evaluation
        do not use.

        Every call uses the same windows or episodes: see ``corral.trainers.evaluation.validate``.
        ``deterministic``: greedy play, else actions are sampled. The call does not affect training.
        """
        result = validate(
            self.config.env_config,
            self.policies,
            episodes=episodes,
            deterministic=deterministic,
            learners=self.config.learners,
        )
        self.listeners.call("on_evaluation", self, result)
        return result

    # --- Step by step, with in-house trainers ----------------------------------------------------

    def sample(self) -> Any:
        """Play a rollout and return it, a ``corral.trainers.on_policy.buffer.RolloutBuffer``.

        Ctrl-C ends the block here. Raises TypeError if the trainer does not support it.
        """
        learner = self._stepwise("sample()")
        if self._stop.is_set():
            raise KeyboardInterrupt
        if self._sampled is not None or self.over:
            why = "training is over" if self.over else "call update(rollout) first"
            raise ValueError(f"sample(): {why}; see session.over")
        self.is_sound = False
        learner.check()
        learner.begin()
        self._sampled = learner.collect()
        self.is_sound = True
        learner.show_rollout()
        return learner.rollout

    def update(self, rollout: Any) -> dict[str, float]:
        """Learn from a rollout of ``sample``, with its arrays possibly changed; return the metrics.

        Sets ``row`` and calls callbacks, sinks and checkpoints as an iteration does.
        """
        learner = self._stepwise("update(rollout)")
        if self._sampled is None or rollout is not learner.rollout:
            raise ValueError("update(rollout): pass the latest rollout of sample(), only once")
        (episodes, seconds), self._sampled = self._sampled, None
        self.is_sound = False
        update = learner.learn_from(episodes, seconds)
        self._take(update, sum(update.seconds.values()))
        return dict(update.metrics)

    def weights(self) -> dict[str, Array]:
        """Return copies of all weights, by name "<policy>.<name>", and of the value scales."""
        return dict(self._stepwise("weights()").weights())

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Replace the weights, in the format of ``weights()``; optimizers keep their state.

        Raises CheckpointError if names, shapes or dtypes differ, and NonFiniteError. The weights
        are unchanged after an error.
        """
        learner = self._stepwise("set_weights()")
        if not isinstance(weights, Mapping):
            raise TypeError(f"set_weights({weights!r:.40}): pass the format that weights() returns")
        learner.set_weights(weights)

    # --- Internals -------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # type checkers report unknown attributes themselves

        def __getattr__(self, name: str) -> Any:
            return no_attribute(self, name, INSTEAD)

    @property
    def _played(self) -> bool:
        size = self.learner.rollout_steps
        return self.env_steps > 0 and self.env_steps + size > self.steps

    @property
    def _ending(self) -> bool:
        return self._stop.is_set() or (self._reason is not None and self.env_steps > self._begun)

    def _require_entered(self) -> None:
        if self._ended:
            raise RuntimeError("this session has ended; continue with corral.resume_session")
        if not self._entered:
            raise RuntimeError(
                "use the session in a with block: with corral.session(...) as session: ..."
            )

    def _stepwise(self, call: str) -> StepwiseTrainer:
        self._require_entered()
        if not isinstance(self.learner, StepwiseTrainer):
            part = "weights" if "weights" in call else "rollouts"
            raise TypeError(
                f"{call}: trainer {self.config.trainer} does not give access to its {part}; "
                "use an in-house trainer (mappo, ippo, a2c, ...)"
            )
        return self.learner

    def _take(self, update: Update, seconds: float) -> Row:
        """Process an update: row, callbacks, sinks, checkpoint."""
        done = int(self.row.get("env_steps") or self._begun)
        row = self.row = self.statistics.row(update, update.env_steps - done, seconds)
        after = time.perf_counter()
        histograms: dict[str, Array] = {}
        try:
            columns, histograms = self.listeners.read(self, row)
            row |= columns
            for episode in update.episodes if self.listeners.who("on_episode") else ():
                self.listeners.call("on_episode", self, episode)
            self.listeners.call("on_update", self, row)
        finally:  # write the row even if a callback raises
            self.listeners.write(self, row, histograms)
        self._bar.show(row, self.statistics.headline)
        self.statistics.stopped = self._reason
        due = self.env_steps // self._every > self._saved // self._every
        if due or self._ending or self.statistics.better_validated:
            self._save()
        self._snapshot = None
        if seconds > SLOW_S and self._saved != self.env_steps:
            snapshot = self.env_steps, self._content(), self.statistics.save()
            # training changes the original arrays in place
            self._snapshot = copy.deepcopy(snapshot)
        self._after = time.perf_counter() - after
        return row

    def _save(self) -> None:
        self.save()
        self._saved = self.env_steps

    def _content(self) -> Content:
        content = self.learner.save()
        if self.learner.resumes_exactly and (episodes := self.listeners.metrics.save()):
            return Content(content.documents, {**content.arrays, "episodes": episodes})
        return content

    def _close(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        """Close the listeners; their errors must not hide an earlier error."""
        faults = self.listeners.end(self)
        if faults and error is None:
            raise faults[0]
        for fault in faults:
            say(self.run.folder, str(fault))

    def _end(self, error: BaseException | None) -> None:
        """Save unsaved progress and report the end. Raises SystemExit or KeyboardInterrupt after a
        signal."""
        self._stop.end_grace()
        recorded = self.statistics.stopped == self._reason or self.env_steps == self._begun
        self.statistics.stopped = self._reason
        if self.is_sound and not (recorded and self._saved == self.env_steps):
            try:
                self._save()
            except CheckpointError as failed:
                if error is None:
                    raise
                say(self.run.folder, str(failed))
        elif not self.is_sound and self._stop.is_set() and self._snapshot is not None:
            self._saved, content, statistics = self._snapshot
            self.run.save_checkpoint(self._saved, content, statistics, best=False)
            self._drop_outdated()
        if error is not None and not self._stop.is_set():
            if isinstance(error, CorralError) and self._saved > self._begun:
                say(self.run.folder, f"saved at {self._saved:,} env steps")
            return
        self._report_end()
        if not self._stop.is_set():
            self._record_mode()
        if self._stop.number == signal.SIGTERM:
            raise SystemExit(128 + self._stop.number)
        if self._stop.is_set():
            raise KeyboardInterrupt
        self.run.__dict__.pop("policies", None)  # drop policies loaded from an earlier checkpoint

    def _report_end(self) -> None:
        folder, done = self.run.folder, self.env_steps if self.is_sound else self._saved
        if not done and self._stop.is_set():
            say(folder, "stopped during the first update: nothing was saved")
            return
        resume_hint = "" if self._played else f"Resume with: {self._again()}"
        status = f"stopped at {done:,} of {self.steps:,} env steps, and saved"
        if not self.is_sound:
            status += "; the current update was discarded"
        if self._stop.is_set():
            say(folder, f"{status}. {resume_hint}".strip())
        elif self._reason is not None:
            say(folder, f"{status}: {self._reason}. {resume_hint}".strip())
        elif self._updates is not None and done == self._begun:
            played, remainder = f"its {done:,}", ""
            if done < self.steps:
                played, remainder = f"{done:,} of its {self.steps:,}", ", and no whole rollout fits"
            hint = "pass a larger --steps (steps=) to continue"
            say(folder, f"has already played {played} env steps{remainder}; {hint}")

    def _again(self) -> str:
        """Return the command that resumes the run, and in a notebook the call."""
        command = again(self, stops=self._stop.is_set())
        return f'{command}, or corral.resume("{self.run.folder}")' if in_notebook() else command

    def _record_mode(self) -> None:
        """Compare greedy and sampled play, and write down which plays better.

        The cost depends on env steps, not on time, so equal runs get equal records. Short runs are
        not compared.
        """
        longest = max((episode.length for episode in self.statistics.recent), default=0)
        minimum, maximum = COMPARED
        affordable = int(PLAYED * self.env_steps) // max(1, 2 * longest)
        if not longest or affordable < minimum:
            return
        from corral.trainers.evaluation.greedy import measured_mode  # late: not for short runs

        try:
            record = measured_mode(
                self.config, self.policies, steps=longest, episodes=min(affordable, maximum)
            )
        except Exception as error:  # for example a simulator that starts only once
            say(self.run.folder, f"greedy and sampled play were not compared: {error!r:.200}")
            return
        if record is not None:
            record.write(self.run.folder)
            if record.mode == "sampled":
                say(
                    self.run.folder,
                    f"plays with sampled actions: {record.sampled:.3g} against "
                    f"{record.greedy:.3g} greedily, in the same {record.episodes} episodes",
                )
                if (self.statistics.best_by or {}).get("mode") == "greedy":
                    say(
                        self.run.folder,
                        "RUN@best plays greedily, as in the evaluations that selected it; pass "
                        "callbacks=[Evaluate(every, deterministic=False)] to select it by sampled "
                        "play",
                    )

    def _report_rollouts(self) -> None:
        """Print the number of env steps if whole rollouts change it, and list callbacks with an
        ``on_rollout`` that is never called."""
        folder, learner, steps = self.run.folder, self.learner, self.steps
        waiting = self.listeners.who("on_rollout")
        if waiting and learner.observe(RolloutObserver(self)) is None:
            names = ", ".join(map(name_of, waiting))
            say(
                folder,
                f"{names}: on_rollout is not called; only in-house trainers support it",
            )
        size = learner.rollout_steps
        count = max(1, steps // size)
        if not learner.env_steps:
            self._report_plan(size, count)
        if count * size == steps or count * size <= learner.env_steps:
            return
        whole = f"whole rollouts of {size:,} ({learner.rollout_of})"
        say(folder, f"plays {count * size:,} env steps instead of {steps:,}, in {whole}")

    def _report_plan(self, size: int, count: int) -> None:
        """Print if rollouts of ``size`` env steps are longer than the interval between snapshots,
        if an in-house trainer plans fewer than FEW updates, and if the entropy weight rises from
        0; ``count`` is the planned number of updates."""
        folder, settings = self.run.folder, self.config.settings
        if settings.get("ent_coef") == 0 and (end := settings.get("ent_coef_end")):
            say(folder, f"the entropy weight rises from 0 to {end:g}; to lower it, set --ent-coef")
        every = (self.config.self_play or {}).get("every", size)
        if every < size:
            say(
                folder,
                f"--self-play every={every:,}: a rollout has {size:,} env steps, so snapshots "
                f"are {size:,} env steps apart; lower --num-envs or --n-steps (num_envs=, "
                "n_steps=)",
            )
        if count < FEW and isinstance(self.learner, StepwiseTrainer):
            updates = "1 update" if count == 1 else f"{count} updates"
            say(
                folder,
                f"only {updates} of {size:,} env steps; lower --num-envs or --n-steps (num_envs=, "
                "n_steps=), or raise --steps (steps=)",
            )


def statistics_of(config: RunConfig) -> Statistics:
    """Return the statistics of a run before training."""
    idle = [agent for agent in config.policies if agent not in config.learners]
    self_play = not idle and is_zero_sum(config.env_config.rules())
    best_by = config.trainer_class().capabilities.best_by
    pool = config.self_play is not None
    return Statistics(config.policies, idle, self_play=self_play, best_by=best_by, pool=pool)


def say(folder: Path, message: str) -> None:
    """Print a message about a run on stderr."""
    print(f"corral: {visible(f'{folder}: {message}')}", file=sys.stderr)
