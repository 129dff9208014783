"""Callbacks: each hook when it is due, on every trainer; a mistake in one damages no run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from support.messages import refused, shown

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.errors import CallbackError, UnknownNameError
from corral.trainers import load_run
from corral.trainers.driver import resume, train
from support.runs import ROLLOUT, everything, rows, small_run

MAPPO: dict[str, Any] = {
    "trainer": "mappo",
    **{"num_envs": 4, "n_steps": 16, "n_epochs": 1, "n_minibatches": 1, "net_arch": (16,)},
}


def arena(folder: Path, updates: int = 3, **given: Any) -> Any:
    """A run of mappo on arena_v0, whose episodes end within a rollout."""
    kwargs = {"max_cycles": 10}
    begin = partial(train, "arena_v0", steps=updates * ROLLOUT, out=folder, env_kwargs=kwargs)
    return begin(**{**MAPPO, **given})


class Diary(corral.Callback):
    """Notes what it is called with."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def on_start(self, session: Any) -> None:
        self.told.append(
            ("start", session.env_steps, (session.run.folder / "config.json").exists())
        )

    def on_rollout(self, session: Any, rollout: Any) -> None:
        self.told.append(("rollout", session.env_steps, rollout.reward.shape))

    def on_episode(self, session: Any, episode: Any) -> None:
        self.told.append(("episode", episode.length))

    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        self.told.append(("update", row["env_steps"]))

    def on_evaluation(self, session: Any, evaluation: Any) -> None:
        self.told.append(("evaluation", evaluation[0].episodes))

    def on_end(self, session: Any) -> None:
        self.told.append(("end", (session.run.folder / "checkpoints" / "latest").exists()))


def test_each_hook_is_called_when_it_is_due(tmp_path: Path) -> None:
    diary = Diary()
    run = arena(tmp_path / "run", callbacks=[diary])
    kinds = [each[0] for each in diary.told if each[0] != "episode"]
    assert kinds == ["start", *["rollout", "update"] * 3, "end"]
    assert diary.told[0] == ("start", 0, True)
    assert diary.told[1] == ("rollout", 0, (16, 4, 2))
    episodes = [each for each in diary.told if each[0] == "episode"]
    assert len(episodes) == int(rows(run)[-1]["episodes"]) == 4 * 4
    assert set(episodes) == {("episode", 10)}
    assert diary.told[-1] == ("end", True)


@pytest.mark.parametrize("trainer", ["mappo", "sb3_ppo"])
def test_who_only_looks_on_changes_nothing(tmp_path: Path, trainer: str) -> None:
    looking = {"callbacks": [Diary(), lambda row: None], "metrics": {"paid": lambda e: 1}}
    settings = MAPPO if trainer == "mappo" else {"trainer": trainer}
    settings = {**settings, "batch_size": 64} if trainer != "mappo" else settings
    begin = small_run if trainer != "mappo" else arena
    one, other = (
        begin(tmp_path / "one", **settings),
        begin(tmp_path / "other", **settings, **looking),
    )
    own, watched = everything(one), everything(other)
    assert own == {key: value for key, value in watched.items() if not key.startswith("episodes.")}
    plain = [{k: v for k, v in row.items() if not k.startswith("paid_")} for row in rows(other)]
    assert plain == rows(one)


def test_a_trainer_without_rollouts_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    diary = Diary()
    small_run(tmp_path / "run", updates=1, callbacks=[diary])
    shown(capsys.readouterr().err, "Diary", "on_rollout")
    assert [each[0] for each in diary.told] == ["start", "update", "end"]


def test_callbacks_have_many_forms(tmp_path: Path) -> None:
    (tmp_path / "mine_cb.py").write_text(
        "import corral\n"
        "class Adds(corral.Callback):\n"
        "    def on_update(self, session, row):\n"
        "        row['twice'] = 2 * row['env_steps']\n"
        "seen = []\n"
        "one = Adds()\n"
        "def note(row):\n"
        "    seen.append(row['twice'])\n"
    )
    where = f"{tmp_path / 'mine_cb.py'}"
    run = arena(tmp_path / "run", 2, callbacks=[f"{where}:Adds", f"{where}:note"])
    assert [row["twice"] for row in rows(run)] == ["128", "256"]
    import mine_cb  # type: ignore[import-not-found]

    assert mine_cb.seen == [128, 256]
    resume(run.folder, steps=3 * ROLLOUT, callbacks=[mine_cb.one])
    assert [row["twice"] for row in rows(run)] == ["128", "256", "384"]


class Misspelled(corral.Callback):
    def on_updates(self, session: Any, row: Any) -> None: ...


class Asks(corral.Callback):
    def __init__(self, what: str) -> None: ...


@pytest.mark.parametrize(
    ("given", "error", "named"),
    [
        (3, TypeError, ("callbacks=3", "callbacks=[MyCallback()]")),
        ([3], TypeError, (3, "int", "corral.Callback")),
        ([Misspelled()], TypeError, ("on_updates", "'on_update'")),
        ([Asks], TypeError, ("Asks.__init__()", "'what'")),
        ([dict], TypeError, ("<class 'dict'>", "corral.Callback")),
        (["nothing.py:f"], UnknownNameError, ("nothing.py",)),
    ],
)
def test_what_is_no_callback_is_refused_before_a_folder_is_made(
    tmp_path: Path, given: Any, error: type[Exception], named: tuple[object, ...]
) -> None:
    with refused(error, *named):
        arena(tmp_path / "run", callbacks=given)
    assert list(tmp_path.iterdir()) == []


# --- Mistakes ------------------------------------------------------------------------------------


class Fails(corral.Callback):
    """Raises in a hook, from the second update on."""

    def __init__(self, hook: str) -> None:
        self.hook = hook

    def fail(self, session: Any) -> None:
        raise KeyError("blokked")

    def on_rollout(self, session: Any, rollout: Any) -> None:
        if self.hook == "on_rollout" and session.statistics.updates:
            self.fail(session)

    def on_episode(self, session: Any, episode: Any) -> None:
        if self.hook == "on_episode" and session.statistics.updates == 2:
            self.fail(session)

    def on_update(self, session: Any, row: Any) -> None:
        if self.hook == "on_update" and session.statistics.updates == 2:
            self.fail(session)
        session.evaluate(episodes=1)

    def on_evaluation(self, session: Any, evaluation: Any) -> None:
        if self.hook == "on_evaluation" and session.statistics.updates == 2:
            self.fail(session)


@pytest.mark.parametrize("hook", ["on_rollout", "on_episode", "on_update", "on_evaluation"])
def test_a_callback_that_raises_is_named_and_the_run_goes_on_later(
    tmp_path: Path, hook: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    number, steps = (1, 64) if hook == "on_rollout" else (2, 128)
    named = ("Fails", hook, number, steps, "KeyError", "'blokked'", "test_callbacks.py")
    with refused(CallbackError, *named, f"corral train --resume {folder}") as failed:
        arena(folder, 3, callbacks=[Fails(hook)], checkpoint_every=10**6)
    assert isinstance(failed.value.__cause__, KeyError)
    if hook == "on_rollout":  # within an update, whose rollout is lost
        resume(folder)
        assert len(rows(folder)) == 3
        return
    shown(capsys.readouterr().err, steps)
    assert len(rows(folder)) == number
    resume(folder)
    whole = arena(tmp_path / "whole", 3)
    assert everything(folder) == everything(whole)
    assert rows(folder) == rows(whole)


def test_an_error_before_the_first_update_leaves_no_folder(tmp_path: Path) -> None:
    class Early(corral.Callback):
        def on_start(self, session: Any) -> None:
            raise OSError("no such place")

    with refused(CallbackError, Early.__qualname__, "on_start", "OSError"):
        arena(tmp_path / "run", callbacks=[Early()])
    assert list(tmp_path.iterdir()) == []


def test_an_error_at_the_end_is_raised_and_hides_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Late(corral.Callback):
        def on_end(self, session: Any) -> None:
            raise OSError("no such place")

    with refused(CallbackError, Late.__qualname__, "on_end", 3):
        arena(tmp_path / "run", callbacks=[Late()])
    assert len(rows(tmp_path / "run")) == 3
    with refused(CallbackError, "Fails", "on_update"):
        arena(tmp_path / "other", callbacks=[Fails("on_update"), Late()])
    assert "callback " in capsys.readouterr().err


def test_a_row_takes_numbers_alone(tmp_path: Path) -> None:
    class Words(corral.Callback):
        def on_update(self, session: Any, row: dict[str, Any]) -> None:
            row["said"] = "hello"

    with refused(CallbackError, Words.__qualname__, "on_update", "'said'", "'hello'"):
        arena(tmp_path / "run", callbacks=[Words()])
    assert "said" not in rows(tmp_path / "run")[0]


# --- Stopping ------------------------------------------------------------------------------------


class Enough(corral.Callback):
    def on_update(self, session: Any, row: dict[str, Any]) -> None:
        if row["updates"] == 2:
            session.stop("it is late")


def test_a_callback_ends_training_and_the_run_remembers_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    run = arena(folder, 4, callbacks=[Enough()])
    shown(
        capsys.readouterr().err, folder, 128, 256, "it is late", f"corral train --resume {folder}"
    )
    assert len(rows(run)) == 2
    assert run.stopped == load_run(folder).stopped == "it is late"
    again = resume(folder)  # without the callback, which is asked for again
    assert again.stopped is None
    whole = arena(tmp_path / "whole", 4)
    assert everything(again) == everything(whole)
    assert whole.stopped is None
