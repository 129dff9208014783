"""Files of a run's pool, and selection of the best checkpoint by duels.

``RUN/pool/shared@20000.safetensors`` contains the actor of a snapshot. Checkpoints also contain the
whole pool, so a run can be resumed without these files. A file that is changed or deleted during
training is reported at the next snapshot; resuming the run writes it again.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from corral.envs.policy import Policy
from corral.errors import CheckpointError, PoolError
from corral.files import read_file, reason, require_no_links, sha256, write_file
from corral.text import visible
from corral.trainers.callbacks.protocol import BeforeSave, again
from corral.trainers.evaluation.validate import validation_seed
from corral.trainers.evaluation.zero_sum import is_constant_sum
from corral.trainers.runs.run import Run
from corral.trainers.selfplay.cast import Cast, Snapshot
from corral.trainers.selfplay.matches import points_against

__all__ = ["FOLDER", "PoolKeeper"]

FOLDER = "pool"
BEST = "best"
MAX_BYTES = 2**33
"""Maximum size of a snapshot file."""

MAX_DUELLED = 5
"""Maximum number of snapshots in the duels of a checkpoint, evenly spread over the pool."""

SHARE = 0.03
"""Env steps of these duels, as a share of the env steps since the previous checkpoint. Duels use
fewer environments, so a step takes longer than in training: about 5 % of the time."""


class PoolKeeper(BeforeSave):
    """Keeps the files of a pool up to date, and compares checkpoints by duels."""

    order = -1
    columns = ("pool_size",)

    def __init__(self, casting: Cast) -> None:
        self.casting = casting
        self._known: dict[str, str] = {}  # file -> digest, for all written files
        self._compared = -1  # env steps of the last comparison
        self._saved = 0  # env steps of the previous checkpoint
        self._points: dict[str, float] = {}  # of the best against snapshots, by env steps
        self._points_of = (-1, 0)  # env steps of that best checkpoint, and episodes per duel

    # --- Files -----------------------------------------------------------------------------------

    def on_start(self, session: Any) -> None:
        """Write the current pool; a resumed run restores changed files."""
        folder = session.run.folder / FOLDER
        self._saved = session.env_steps
        if session.env_steps:
            for snapshot in self._snapshots():
                self._write(folder, snapshot)
            self._remove(folder)

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        """Write new snapshots. Raises PoolError if a written file has changed."""
        if any(_file(one) not in self._known for one in self._snapshots()):
            self.write(session)

    def write(self, session: Any) -> None:
        """Write new snapshots to the run's folder, and remove the files of removed snapshots."""
        folder = session.run.folder / FOLDER
        for name, digest in self._known.items():
            if (fault := _fault(folder / name, digest)) is not None:
                raise PoolError(
                    f"{folder / name}: {fault} during training. The last checkpoint contains the "
                    f"original. Resume from it with: {again(session)}"
                )
        for snapshot in self._snapshots():
            if _file(snapshot) not in self._known:
                self._write(folder, snapshot)
        self._remove(folder)

    def _snapshots(self) -> Iterator[Snapshot]:
        for frozen in self.casting.frozen.values():
            yield from frozen.snapshots

    def _write(self, folder: Path, snapshot: Snapshot) -> None:
        path = folder / _file(snapshot)
        try:
            if _fault(path, snapshot.digest) is not None:
                write_file(path, snapshot.encoded(), folder=folder.parent)
        except OSError as error:
            raise PoolError(f"{path}: cannot be written: {reason(error)}") from error
        self._known[path.name] = snapshot.digest

    def _remove(self, folder: Path) -> None:
        """Remove the files of snapshots that are no longer in the pool; keep all other files."""
        current = {_file(snapshot) for snapshot in self._snapshots()}
        pattern = re.compile(rf"({'|'.join(self.casting.frozen)})@\d{{1,12}}\.safetensors")
        try:
            require_no_links(folder, folder.parent)
        except OSError as error:
            raise PoolError(f"{folder}: {reason(error)}") from error
        for path in folder.iterdir() if folder.is_dir() else ():
            if pattern.fullmatch(path.name) and path.name not in current and path.is_file():
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise PoolError(f"{path}: cannot be removed: {reason(error)}") from error
        self._known = {name: self._known[name] for name in self._known.keys() & current}

    # --- The best --------------------------------------------------------------------------------

    def before_save(self, session: Any) -> None:
        """Compare the current policies with the best checkpoint, by duels."""
        statistics, pool = session.statistics, self.casting.pool
        since, self._saved = session.env_steps - self._saved, session.env_steps
        if not pool.best or session.env_steps in (0, self._compared):
            return
        rules = session.config.env_config.rules()
        returns = [list(episode.returns.values()) for episode in statistics.recent]
        if not is_constant_sum(rules, np.array(returns).reshape(len(returns), len(rules.agents))):
            return  # returns are comparable without duels
        self._compared = session.env_steps
        best = self._best(session)
        opponents = self._teams(session.policies)
        lengths = [episode.length for episode in statistics.recent]
        episodes = self._episodes(since, len(opponents), float(np.mean(lengths or [1])))
        plan: dict[str, Any] = {
            "seats": self.casting.seats,
            "episodes": episodes,
            "seed": validation_seed(),
        }
        current = points_against(rules, session.policies, opponents, **plan)
        games = episodes * len(self.casting.seats)
        pool_games = f"{games * len(opponents)} games against {len(opponents)} of its snapshots"
        won = "share of points won against the snapshots"
        points = float(np.mean(list(current.values())))
        if best is None:
            self._points_of, self._points = (session.env_steps, episodes), current
            statistics.duelled(True, f"duels, {pool_games}; {won}", points)
            return
        at = int(statistics.best_by["env_steps"])
        reference = self._points_of_best(at, opponents, rules, best, **plan)
        (direct,) = points_against(rules, session.policies, {BEST: best}, **plan).values()
        ahead = sum(current.values()) - sum(reference.values())
        ahead += 2 * (direct - self._even(rules, best, plan))
        # Bound of the standard error: the standard deviation of a game's points is at most 1/2.
        error = math.sqrt((0.5 * len(opponents) + 1.0) / games)
        if better := ahead > -error:
            self._points_of, self._points = (session.env_steps, episodes), current
        compared = f"duels, {pool_games} and {games} against the previous best; {won}"
        statistics.duelled(better, compared, points)

    def _best(self, session: Any) -> Mapping[str, Policy] | None:
        """Return the team of the best checkpoint; None if no duel selected it, or it is damaged."""
        if not (session.statistics.best_by or {}).get("duels"):
            return None
        try:
            return Run(session.run.folder, session.config, BEST).policies
        except CheckpointError as error:  # do not lose the current policies, too
            print(
                f"corral: {visible(f'{error}. The current policies become the best checkpoint')}",
                file=sys.stderr,
            )
            return None

    def _even(self, rules: Any, best: Any, plan: Mapping[str, Any]) -> float:
        """Return the points of the best checkpoint against itself."""
        if set(plan["seats"]) == set(rules.agents):
            return 0.5
        if BEST not in self._points:  # it may play the better seats
            self._points |= points_against(rules, best, {BEST: best}, **plan)
        return self._points[BEST]

    def _episodes(self, since: int, opponents: int, length: float) -> int:
        """Return the number of episodes per duel and seat: ``Pool.best``, or fewer, but 2 or more.

        It is reduced until all duels, of ``length`` steps per episode, take about SHARE of the
        ``since`` env steps.
        """
        duels = (opponents + 2) * len(self.casting.seats)  # current policies, best
        episodes = self.casting.pool.best
        while episodes > 3 and episodes * duels * length > SHARE * since:
            episodes //= 2
        return episodes

    def _points_of_best(
        self, env_steps: int, opponents: Mapping[str, Any], rules: Any, best: Any, **plan: Any
    ) -> dict[str, float]:
        """Return the points of the best checkpoint, of ``env_steps``, against ``opponents``.

        Neither side changes, so each pair plays only once."""
        key = env_steps, plan["episodes"]
        if self._points_of != key:
            self._points_of, self._points = key, {}
        new = {name: team for name, team in opponents.items() if name not in self._points}
        self._points |= points_against(rules, best, new, **plan)
        return {name: self._points[name] for name in opponents}

    def _teams(self, now: Mapping[str, Policy]) -> dict[str, Mapping[str, Policy]]:
        """Return up to ``MAX_DUELLED`` teams of snapshots with equal env steps, by env steps."""
        frozen = self.casting.frozen
        times = [one.env_steps for one in next(iter(frozen.values())).snapshots if one.drawn]
        chosen = np.unique(np.linspace(0, len(times) - 1, MAX_DUELLED).round().astype(int))
        teams: dict[str, Mapping[str, Policy]] = {}
        for at in chosen.tolist():
            team = dict(now)
            for agent, name in self.casting.policy_of.items():
                places = [one.env_steps for one in frozen[name].snapshots]
                team[agent] = frozen[name].policy(places.index(times[at]), agent)
            teams[str(times[at])] = team
        return teams


def _file(snapshot: Snapshot) -> str:
    return f"{snapshot.name}.safetensors"


def _fault(path: Path, digest: str) -> str | None:
    """Return the fault of a snapshot file; None if it is valid."""
    try:
        data = read_file(path, MAX_BYTES, folder=path.parent.parent)
        return None if sha256(data) == digest else "it was changed"
    except FileNotFoundError:
        return "it was deleted"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
