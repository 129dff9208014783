"""``corral.bisect``: find the differences between two trainings that cost the learning.

    found = corral.bisect("runs/learns", "runs/does_not")
    print(found.verdict, found.causes)

Both sides are trained with new seeds until their scores differ significantly. Then mixtures are
trained: delta debugging (``search``) chooses them, a sequential test (``sequential``) classifies
each. A final test uses seeds that the search has not seen, so its p-value is not affected by the
search.
"""

from __future__ import annotations

import contextlib
import json
import math
import statistics
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from corral.adapters.sources import EnvLike
from corral.envs.arguments import nonnegative_int
from corral.envs.registry import Api
from corral.errors import ArgumentError, StudyError
from corral.files import append_to, read_text
from corral.lab.bisect.reading import MixedScripts, Named, Script, SideLike, side_of
from corral.lab.bisect.result import Bisection, Cause, Verdict
from corral.lab.bisect.search import smallest
from corral.lab.bisect.sequential import ALPHA, Boundary, better, rank_p
from corral.lab.bisect.sides import Difference
from corral.lab.bisect.training import FAILED, Mixable, MixedConfigs, seconds_per_step, shortened
from corral.progress import Progress, cell_progress
from corral.text import one_line
from corral.trainers.plan import begun
from corral.trainers.runs.run_config import RunConfig

__all__ = ["SECONDS", "Trainings", "bisect", "bisected"]

SECONDS = 300.0
"""Default CPU time of a bisection."""

TRAININGS = 60
"""Number of trainings that should fit into the CPU time; a search needs about so many."""

NEW_SEEDS, FRESH = 5, 1_000
"""Number and first of the seeds of the final test."""

FILE, MAX_BYTES = "trainings.jsonl", 2**26


class OutOfTime(Exception):
    """The CPU time has ended."""


class Trainings:
    """The scores of all trained mixtures, kept in a file, and the CPU time that is left."""

    def __init__(
        self, mixable: Mixable, seconds: float, folder: Path | None, about: str, progress: Progress
    ) -> None:
        """Read the trainings in ``folder``. Raises StudyError for a folder of another bisection."""
        self.mixable, self.budget, self.progress = mixable, seconds, progress
        self.rows: dict[tuple[str, int], dict[str, Any]] = {}
        self.file = None if folder is None else folder / FILE
        if self.file is None:
            return
        about = json.dumps([about, [vars(difference) for difference in mixable.differences]])
        try:
            lines = read_text(self.file, MAX_BYTES).splitlines()
        except FileNotFoundError:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            lines = [about]
            self._append(about)
        if lines[0] != about:
            raise StudyError(f"{self.file} belongs to another bisection; give another --out (out=)")
        for line in lines[1:]:
            try:
                row = json.loads(line)
            except ValueError:  # the last line of a killed process
                continue
            self.rows[row["bad"], row["seed"]] = row

    @property
    def cpu(self) -> float:
        """CPU seconds of all trainings, also of earlier calls."""
        return float(sum(row["cpu"] for row in self.rows.values()))

    def score(self, bad: Collection[Difference], seed: int) -> float:
        """Return the score of a mixture, FAILED if it does not fit. Raises OutOfTime."""
        score = self._row(bad, seed)["score"]
        return FAILED if score is None else float(score)

    def fits(self, bad: Collection[Difference]) -> bool:
        """Return whether a mixture can be trained. Raises OutOfTime."""
        return bool(self._row(bad, 0)["fits"])

    def _row(self, bad: Collection[Difference], seed: int) -> dict[str, Any]:
        """Return the row of a mixture, trained now or earlier."""
        chosen = [difference for difference in self.mixable.differences if difference in bad]
        key = ", ".join(map(str, chosen)), seed
        if key not in self.rows:
            if self.budget <= 0:
                raise OutOfTime
            self.progress(f"training with {len(chosen)} of BAD's values", len(self.rows), 0)
            began = time.process_time()
            score = self.mixable.score(chosen, seed)
            cpu = time.process_time() - began
            self.budget -= cpu
            row = {"bad": key[0], "seed": seed, "fits": score is not None, "cpu": round(cpu, 3)}
            row["score"] = None if score is None or not math.isfinite(score) else score
            self.rows[key] = row
            self._append(json.dumps(row))
        return self.rows[key]

    def _append(self, line: str) -> None:
        if self.file is not None:
            with append_to(self.file) as file:
                file.write(line + "\n")


def bisect(
    good: SideLike,
    bad: SideLike,
    env: EnvLike | None = None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    api: Api | None = None,
    trainer: Any = None,
    model: Any = None,
    steps: int | None = None,
    seconds: float = SECONDS,
    out: str | Path | None = None,
    progress: Progress = cell_progress,
) -> Bisection:
    """Find the smallest set of differences between two trainings that costs the learning.

    Args:
        good: the side that learns: see ``corral.lab.bisect.reading``.
        bad: the side that does not learn.
        env: environment of records, and of runs in a third-party environment.
        env_kwargs: arguments of ``env``.
        api: "parallel" or "aec", for an environment with both.
        trainer: custom trainer of runs and files that have one; a pair: of ``good`` and ``bad``.
        model: custom network of those that have one; a pair: of ``good`` and ``bad``.
        steps: env steps of each training. Default: those of ``good``, or fewer, so that about 60
            trainings fit into ``seconds``.
        seconds: CPU time of the trainings of this call. The folder keeps those of earlier calls.
        out: folder that keeps the trained mixtures, to continue a bisection; default: none.
        progress: called with a label, the number of trainings so far, and 0.

    Raises the errors of ``load_run``, ``read_config`` and ``train``; ArgumentError for a script
    and a side of another kind; StudyError if ``out`` belongs to another bisection.
    """
    if not seconds > 0:
        raise ValueError(f"seconds={seconds}: pass a number above 0")
    sides = []
    for i, side in enumerate((good, bad)):
        custom = [code[i] if isinstance(code, tuple) else code for code in (trainer, model)]
        sides.append(side_of(side, Named(env, env_kwargs, api, *custom)))
    labels = [
        one_line(side) if isinstance(side, str | Path) else text
        for side, text in ((good, "GOOD"), (bad, "BAD"))
    ]
    folder = None if out is None else Path(out)
    first, second = sides
    if isinstance(first, Script) and isinstance(second, Script):
        if steps is not None:
            raise ArgumentError(f"steps={steps}: put the length of a script into its SETTINGS")
        scripts = MixedScripts(first, second)
        trainings = Trainings(scripts, seconds, folder, "script", progress)
        return bisected(trainings, labels[0], labels[1], None)
    if isinstance(first, Script) or isinstance(second, Script):
        raise ArgumentError(
            f"{labels[0]}, {labels[1]}: a script can be compared with a script only"
        )
    return bisected_configs(first, second, labels, steps, seconds, folder, progress)


def bisected_configs(
    good: RunConfig,
    bad: RunConfig,
    labels: Collection[str],
    steps: int | None,
    seconds: float,
    folder: Path | None,
    progress: Progress,
) -> Bisection:
    """Bisect two configurations; see ``bisect``."""
    first, second = labels
    if steps is None:
        steps = _stored_steps(folder) or _affordable(good, seconds)
    steps = nonnegative_int("steps", steps, least=1)
    mixed = MixedConfigs(good, bad, steps)
    trainings = Trainings(mixed, seconds, folder, str(steps), progress)
    return bisected(trainings, first, second, steps)


def _stored_steps(folder: Path | None) -> int | None:
    """Return the steps of the bisection in a folder; None: no such bisection."""
    try:
        line = read_text(folder / FILE, MAX_BYTES).partition("\n")[0] if folder else ""
        return int(json.loads(line)[0])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _affordable(good: RunConfig, seconds: float) -> int:
    """Return the steps of the good side, or as many as fit TRAININGS times into ``seconds``."""
    learner = begun(shortened(good, 1.0, good.seed))
    try:
        fits = seconds / TRAININGS / seconds_per_step(learner, seconds / TRAININGS)
    finally:
        learner.close()
    return min(good.steps, max(learner.rollout_steps, int(fits)))


def bisected(trainings: Trainings, good: str, bad: str, steps: int | None) -> Bisection:
    """Return the result of the search with ``trainings``."""
    search = _Search(trainings)
    with contextlib.suppress(OutOfTime):
        search.run()
        search.note = ""
    return Bisection(
        good,
        bad,
        search.verdict,
        trainings.mixable.differences,
        tuple(search.causes),
        search.ordered(search.suspects) if search.verdict == "undecided" else (),
        search.rest_learns,
        search.p,
        search.medians,
        search.seeds,
        len(trainings.rows),
        trainings.cpu,
        steps,
        " ".join(search.notes()),
    )


class _Search:
    """Compares the sides, searches the causes, and tests each of them on new seeds."""

    def __init__(self, trainings: Trainings) -> None:
        self.trainings = trainings
        self.all = frozenset(trainings.mixable.differences)
        self.verdict: Verdict = "undecided"
        self.causes: list[Cause] = []
        self.suspects = self.all  # the smallest mixture known to be like the bad side
        self.rest_learns: bool | None = None
        self.p: float | None = None
        self.medians: tuple[float, float] | None = None
        self.seeds = 0
        self.why = ""  # why the search ended early
        self.misfits: list[str] = []
        self.unclear: list[str] = []
        self.note = "The CPU time ended: give more --seconds; --out keeps the trainings."
        self._bad: dict[frozenset[Difference], bool] = {self.all: True, frozenset(): False}

    def run(self) -> None:
        """Search until every remaining difference is harmless. Raises OutOfTime."""
        if not self.all:
            self.verdict = "equal"
            return
        score = self.trainings.score
        differ, self.p, self.seeds = better(
            lambda seed: score((), seed), lambda seed: score(self.all, seed)
        )
        first, second = ([score(side, s) for s in range(self.seeds)] for side in ((), self.all))
        self.medians = statistics.median(first), statistics.median(second)
        if not differ:
            self.verdict = "no difference"
            return
        self.boundary = Boundary.between(first, second)
        rest = self.all
        while rest and not self.rest_learns:
            self.suspects = rest
            cause = smallest(self.ordered(rest), self.fails)
            if cause is None:
                self.why = "The tests of mixtures contradict each other."
                break
            self.suspects = cause
            if not self._confirmed(cause):
                self.why = "The remaining differences are not significant on new seeds."
                break
            rest -= cause
            self.rest_learns = not rest or not self.fails(rest)

    def _confirmed(self, cause: frozenset[Difference]) -> bool:
        """Test a cause on new seeds, and keep it if it is significant."""
        seeds = range(FRESH, FRESH + NEW_SEEDS)
        good, bad = ([self.trainings.score(side, s) for s in seeds] for side in ((), cause))
        p = rank_p(good, bad)
        if p <= ALPHA:
            differences = self.ordered(cause)
            first, second = statistics.median(good), statistics.median(bad)
            self.causes.append(Cause(differences, p, first, second, NEW_SEEDS))
            self.verdict, self.rest_learns = "found", None
        return p <= ALPHA

    def ordered(self, chosen: Collection[Difference]) -> tuple[Difference, ...]:
        """Return differences in the order of the pair."""
        return tuple(d for d in self.trainings.mixable.differences if d in chosen)

    def fails(self, chosen: frozenset[Difference]) -> bool:
        """Return whether a mixture is like the bad side; False if that is undecided."""
        if chosen not in self._bad:
            names = " with ".join(map(str, self.ordered(chosen)))
            bad: bool | None = False
            if self.trainings.fits(chosen):
                bad = self.boundary.is_bad(lambda seed: self.trainings.score(chosen, seed))
                self.unclear += [names] * (bad is None)
            else:
                self.misfits.append(names)
            self._bad[chosen] = bool(bad)
            if bad and chosen < self.suspects:
                self.suspects = chosen
        return self._bad[chosen]

    def notes(self) -> Iterator[str]:
        """Yield sentences about the limits of the result."""
        if self.note:
            yield self.note
        elif self.why:
            yield f"{self.why} Give more --steps, and another --out."
        if self.misfits:
            yield f"Not trained, because the parts do not fit: {'; '.join(self.misfits)}."
        if self.unclear:
            yield f"Between both sides: {'; '.join(self.unclear)}."
