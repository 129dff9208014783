"""The pool of a run on disk, and its best checkpoint by duels.

``RUN/pool/shared@20000.safetensors`` holds a snapshot's actor. Checkpoints hold the whole pool
besides, so that a run goes on whatever happens to these files; what was changed or deleted while
training goes on is said at the next snapshot, and written anew when the run goes on.
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
MOST_BYTES = 2**33
"""Of a snapshot's file."""

MOST_DUELLED = 5
"""Snapshots that a checkpoint duels with, evenly spread over the pool."""

SHARE = 0.03
"""Env steps of those duels, of the env steps since the checkpoint before. Played in fewer
environments each takes longer than one of training, so that it is about 5 % of the time."""


class PoolKeeper(BeforeSave):
    """Keeps a pool's files as the casting has them, and compares checkpoints by duels."""

    order = -1
    columns = ("pool_size",)

    def __init__(self, casting: Cast) -> None:
        self.casting = casting
        self._known: dict[str, str] = {}  # file -> digest, of those that were written
        self._compared = -1  # env steps of the last comparison
        self._saved = 0  # env steps of the checkpoint before
        self._points: dict[str, float] = {}  # of the best against snapshots, by their env steps
        self._points_of = (-1, 0)  # env steps of the best that these are of, and episodes of each

    # --- Files -----------------------------------------------------------------------------------

    def on_start(self, session: Any) -> None:
        """Write the pool as it is; what a run that goes on finds otherwise is put right."""
        folder = session.run.folder / FOLDER
        self._saved = session.env_steps
        if session.env_steps:
            for each in self._snapshots():
                self._write(folder, each)
            self._remove(folder)

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        """Write new snapshots. Raises PoolError where one that was written is not as it was."""
        if any(_file(each) not in self._known for each in self._snapshots()):
            self.write(session)

    def write(self, session: Any) -> None:
        """Write snapshots that are new, and remove those that are gone, into the run's folder."""
        folder = session.run.folder / FOLDER
        for name, digest in self._known.items():
            if (fault := _fault(folder / name, digest)) is not None:
                raise PoolError(
                    f"{folder / name}: {fault} while training went on. The last checkpoint holds "
                    f"what it was; go on from there with: {again(session)}"
                )
        for each in self._snapshots():
            if _file(each) not in self._known:
                self._write(folder, each)
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
        """Remove the files of snapshots that are the pool's no more; all others stay."""
        there = {_file(each) for each in self._snapshots()}
        own = re.compile(rf"({'|'.join(self.casting.frozen)})@\d{{1,12}}\.safetensors")
        try:
            require_no_links(folder, folder.parent)
        except OSError as error:
            raise PoolError(f"{folder}: {reason(error)}") from error
        for path in folder.iterdir() if folder.is_dir() else ():
            if own.fullmatch(path.name) and path.name not in there and path.is_file():
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise PoolError(f"{path}: cannot be removed: {reason(error)}") from error
        self._known = {name: self._known[name] for name in self._known.keys() & there}

    # --- The best --------------------------------------------------------------------------------

    def before_save(self, session: Any) -> None:
        """Compare this moment with the best checkpoint, by duels with the pool and each other."""
        statistics, pool = session.statistics, self.casting.pool
        since, self._saved = session.env_steps - self._saved, session.env_steps
        if not pool.best or session.env_steps in (0, self._compared):
            return
        rules = session.config.env_config.rules()
        returns = [list(each.returns.values()) for each in statistics.recent]
        if not is_constant_sum(rules, np.array(returns).reshape(len(returns), len(rules.agents))):
            return  # returns can be compared as they are
        self._compared = session.env_steps
        best = self._best(session)
        others = self._teams(session.policies)
        lengths = [episode.length for episode in statistics.recent]
        episodes = self._episodes(since, len(others), float(np.mean(lengths or [1])))
        plan: dict[str, Any] = {
            "seats": self.casting.seats,
            "episodes": episodes,
            "seed": validation_seed(),
        }
        own = points_against(rules, session.policies, others, **plan)
        games = episodes * len(self.casting.seats)
        with_pool = f"{games * len(others)} games with {len(others)} of its pool"
        won = "share of the points won of the pool"
        points = float(np.mean(list(own.values())))
        if best is None:
            self._points_of, self._points = (session.env_steps, episodes), own
            statistics.duelled(True, f"duels, {with_pool}; {won}", points)
            return
        at = int(statistics.best_by["env_steps"])
        theirs = self._points_of_best(at, others, rules, best, **plan)
        (direct,) = points_against(rules, session.policies, {BEST: best}, **plan).values()
        ahead = sum(own.values()) - sum(theirs.values())
        ahead += 2 * (direct - self._even(rules, best, plan))
        # Chance alone moves that by at most so much: a game's points have a deviation of 1/2.
        error = math.sqrt((0.5 * len(others) + 1.0) / games)
        if better := ahead > -error:
            self._points_of, self._points = (session.env_steps, episodes), own
        compared = f"duels, {with_pool} and {games} with the best before; {won}"
        statistics.duelled(better, compared, points)

    def _best(self, session: Any) -> Mapping[str, Policy] | None:
        """Return the team of the best checkpoint; None: none is, by duels, or it is damaged."""
        if not (session.statistics.best_by or {}).get("duels"):
            return None
        try:
            return Run(session.run.folder, session.config, BEST).policies
        except CheckpointError as error:  # no reason to lose this moment, too
            print(f"corral: {visible(f'{error}; this moment is the best now')}", file=sys.stderr)
            return None

    def _even(self, rules: Any, best: Any, plan: Mapping[str, Any]) -> float:
        """Return the points that the best checkpoint wins of itself."""
        if set(plan["seats"]) == set(rules.agents):
            return 0.5
        if BEST not in self._points:  # it may sit in the better seats
            self._points |= points_against(rules, best, {BEST: best}, **plan)
        return self._points[BEST]

    def _episodes(self, since: int, others: int, length: float) -> int:
        """Return how many episodes each duel has in each seat: ``Pool.best``, or so few that all of
        them, of ``length`` steps each, take about SHARE of the env steps ``since`` then; 2 or more.
        """
        duels = (others + 2) * len(self.casting.seats)  # of this moment, and one or two of the best
        found = self.casting.pool.best
        while found > 3 and found * duels * length > SHARE * since:
            found //= 2
        return found

    def _points_of_best(
        self, env_steps: int, others: Mapping[str, Any], rules: Any, best: Any, **plan: Any
    ) -> dict[str, float]:
        """Return the points of the best checkpoint, of ``env_steps``, against ``others``: neither
        changes, so that each pair plays once."""
        of = env_steps, plan["episodes"]
        if self._points_of != of:
            self._points_of, self._points = of, {}
        new = {name: team for name, team in others.items() if name not in self._points}
        self._points |= points_against(rules, best, new, **plan)
        return {name: self._points[name] for name in others}

    def _teams(self, now: Mapping[str, Policy]) -> dict[str, Mapping[str, Policy]]:
        """Return teams of snapshots of one moment, by its env steps, at most ``MOST_DUELLED``."""
        frozen = self.casting.frozen
        times = [each.env_steps for each in next(iter(frozen.values())).snapshots if each.drawn]
        chosen = np.unique(np.linspace(0, len(times) - 1, MOST_DUELLED).round().astype(int))
        teams: dict[str, Mapping[str, Policy]] = {}
        for at in chosen.tolist():
            team = dict(now)
            for agent, name in self.casting.policy_of.items():
                places = [each.env_steps for each in frozen[name].snapshots]
                team[agent] = frozen[name].policy(places.index(times[at]), agent)
            teams[str(times[at])] = team
        return teams


def _file(snapshot: Snapshot) -> str:
    return f"{snapshot.name}.safetensors"


def _fault(path: Path, digest: str) -> str | None:
    """Return what is wrong with a snapshot's file; None: nothing."""
    try:
        data = read_file(path, MOST_BYTES, folder=path.parent.parent)
        return None if sha256(data) == digest else "it was changed"
    except FileNotFoundError:
        return "it was deleted"
    except OSError as error:
        return f"it cannot be read ({error.strerror})"
