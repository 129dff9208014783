"""Every result: a table, JSON values, and files that hold the same."""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

pytest.importorskip("torch", reason="needs the extra mappo")

import corral
from corral.adapters.seats import random_policy
from corral.envs import make_rules
from corral.envs.conformance import check_env
from corral.files import strict_json
from corral.lab.bisect.result import Bisection, Cause
from corral.lab.bisect.sides import Difference
from corral.lab.comparing.comparison import Comparison
from corral.lab.comparing.groups import Member
from corral.lab.course.judging import judge
from corral.lab.doctor.diagnose import Diagnosis
from corral.lab.doctor.examination.judging import Check, Examination
from corral.lab.doctor.examination.judging import Result as OfProbe
from corral.lab.doctor.findings.finding import Finding
from corral.lab.exploit.result import Exploit, SeatExploit
from corral.lab.listening.ear import Ear
from corral.lab.tuning.plan import Plan
from corral.lab.tuning.result import Study, Trial
from corral.lab.tuning.space import Space
from corral.loads.advise.advice import Advice
from corral.loads.from_rule.recommend import Recommendation
from corral.loads.ladder import ladder
from corral.loads.rehearsal import Rehearsal
from corral.results import Result, plain
from corral.trainers.base import find_trainer
from corral.trainers.cloning.agreement import Agreement, AgreementRow
from corral.trainers.evaluation.episodes import Interval
from corral.trainers.evaluation.scores import Evaluation, evaluate_players
from support.loads import days

NAN = float("nan")


def evaluation() -> Result:
    rules = make_rules("rps_v0")
    chance = {agent: random_policy(rules.action_space(agent)) for agent in rules.agents}
    return Evaluation("rps_v0", evaluate_players(rules, {"mine": chance}, episodes=2))


def comparison() -> Result:
    steps = np.array([0.0, 10.0])
    runs = tuple(Member(f"run{i}", i, 10, i / 2, steps, steps * i) for i in range(5))
    return Comparison("rps_v0", "return", {"a": runs, "b": runs[:2]})


def exploit() -> Result:
    own: dict[str, Any] = {"own_return": 0.0, "gain": 1.0, "gain_low": None, "frozen": {"b": -1.0}}
    row = SeatExploit("a", True, "best response", "", 1.0, None, None, **own, length=3.0)
    kwargs = {"size": 3, "rules": object}
    return Exploit("game", "mine", "sampled", ("a", "b"), [row], 0.0, env_kwargs=kwargs)


def study() -> Result:
    space = Space.of(find_trainer("mappo").kind, [], {"gamma": "0.9,0.99"}, {}, ())
    values = enumerate((1.0, NAN))
    trials = [Trial(i, {"gamma": 0.9}, "complete", {0: v}, {0: 9}, {0: Path()}) for i, v in values]
    return Study(Path(), Plan(("rps_v0",), space, 2, (0,), 1, 1), "return", ("a",), trials)


def diagnosis() -> Result:
    finding = Finding("no-signal", "No reward", "0", "some", "pay some", 2)
    parts: tuple[Any, ...] = (None, (finding,), (), (), {}, None, None, ("it",), ())
    return Diagnosis("runs/a", "mappo", *parts, NAN)


def examination() -> Result:
    checks = (Check("values", "V", "1.00", NAN, False), Check("actions", "best", "1", 1.0, True))
    return Examination((OfProbe("probe_p04_v0", checks), OfProbe("probe_p05_v0", (), "broke")))


def listened() -> Result:
    ear = Ear()
    mask = np.zeros((32, 2, 3), dtype=bool)  # it forbids every action
    ear.rollout(rewards=np.ones((32, 2)), terminated=mask[..., 0], mask=mask)
    return ear.report()


def agreement() -> Result:
    rows = [AgreementRow(agent, 9, 0.5, Interval(0.4, 0.6), None) for agent in ("a", "all")]
    return Agreement("perfect", 3, tuple(rows), None)


def advice() -> Advice:
    return corral.advise(days(3), train=False, rehearse=False, route="equal")


def rehearsal() -> Rehearsal:
    return corral.rehearse(days(1), ["local", "backlog=0.75/least"], queue=4)


def recheck() -> Result:
    folder = Path("advised")
    corral.advise(days(3), train=False, rehearse=False, route="equal", out=folder)
    later = days(2, seed=1)
    later = dataclasses.replace(later, times=later.times + 3 * 86_400)
    return corral.recheck(folder, later)


def bisection() -> Result:
    part = Difference("setting", "gamma", "0.99", "0.0")
    cause = Cause((part,), 0.004, 1.0, NAN, 5)
    counts: tuple[Any, ...] = (0.01, (1.0, 0.0), 4, 30, 9.0, None)
    return Bisection("good", "bad", "found", (part,), (cause,), (), True, *counts)


MADE: Mapping[str, Callable[[], Result]] = {
    "results.json": evaluation,
    "compare.json": comparison,
    "exploit.json": exploit,
    "bisect.json": bisection,
    "duels.json": lambda: corral.duel("copy-last", "beat-last", env="rps_v0", episodes=2),
    "trials.json": study,
    "check.json": lambda: check_env(lambda: object(), processes=False),
    "learnable.json": lambda: corral.learnable("rps_v0", seconds=0.5),
    "diagnosis.json": diagnosis,
    "examination.json": examination,
    "listen.json": listened,
    "agreement.json": agreement,
    "recheck.json": recheck,
    "recommendation.json": lambda: Recommendation("rule", "local/equal", None, "few", 3, 1),
    "advice.json": advice,
    "rehearsal.json": rehearsal,
    "ladder.json": lambda: ladder(days(4), route="equal"),
    "verdict.json": lambda: judge(12, lambda *values: values[0]),
}


@pytest.mark.parametrize("name", MADE)
def test_files_hold_what_the_result_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = MADE[name]()
    assert str(result) == result.text()
    table, values = result.to_dataframe(), result.to_json()
    assert isinstance(table, pd.DataFrame)
    assert len(table) > 0
    written = result.write(tmp_path / "new" / "folder")
    assert strict_json(written[name].read_text()) == json.loads(json.dumps(values)) == values
    assert {path.parent for path in written.values()} == {tmp_path / "new" / "folder"}
    if result.csv_file:
        with written[result.csv_file].open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert (len(rows), list(rows[0])) == (len(table), [*table.columns])


def test_the_representation_of_a_result_says_how_it_ended() -> None:
    unusable = judge(2, lambda *values: 1)
    assert unusable.finding is not None
    for result, parts in (
        (MADE["check.json"](), ("1 error, 0 warnings",)),
        (agreement(), ("50.0%", "9 decisions", "perfect")),
        (
            unusable,
            ("exercise 2", unusable.status, unusable.finding.name, unusable.finding.message),
        ),
        (judge(12, lambda *values: values[0]), ("exercise 12", "wrong", "0 of")),
    ):
        line = repr(result)
        assert "\n" not in line
        assert all(part.lower() in line.lower() for part in parts), line


def test_every_result_is_tried() -> None:
    files = [kind.json_file for kind in Result.__subclasses__()]
    assert sorted(files) == sorted(MADE)


def test_plain_values_are_what_json_knows() -> None:
    found = {1: np.float32(0.5), "a": (np.arange(2), {3}), "b": Path("x"), "c": NAN, "d": None}
    assert plain(found) == {"1": 0.5, "a": [[0, 1], [3]], "b": "x", "c": None, "d": None}
    assert plain({"on": np.bool_(True), "no": False}) == {"on": True, "no": False}
