"""Answers that cannot be judged, two mistakes at once, results."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corral.errors import FileError, MissingExtraError
from corral.lab.course.judging import Finding, judge
from support.messages import refused

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        file = tmp_path / f"answer_{tmp_path.name}.py"
        file.write_text(text)
        return file

    return write


def finding_of(number: int, answer: Any, **options: Any) -> Finding:
    verdict = judge(number, answer, **options)
    assert verdict.status == "unusable"
    assert verdict.outcomes == verdict.mistakes == ()
    assert verdict.finding is not None
    return verdict.finding


SHAPED = "def shaped_rewards(rewards, potentials, terminated, gamma):\n"


@pytest.mark.parametrize(
    ("text", "name", "line", "code"),
    [
        ("x = 1\n", "no-function", None, ""),
        ("shaped_rewards = 3\n", "no-function", None, ""),
        ("x = 1\nx +\n", "not-imported", 2, "x +"),
        ("import numpy\nnumpy.nothing\n", "not-imported", 2, "numpy.nothing"),
        ("import no_such_package\n", "not-imported", 1, "import no_such_package"),
        ("import sys\nsys.exit(3)\n", "not-imported", 2, "sys.exit(3)"),
        (
            "\ndef shaped_rewards(rewards):\n    pass\n",
            "signature",
            2,
            "def shaped_rewards(rewards):",
        ),
        (SHAPED + "    return rewards[99]\n", "raised", 2, "return rewards[99]"),
        (SHAPED + "    return sum([], 1) + ''\n", "raised", 2, "return sum([], 1) + ''"),
        (SHAPED + "    exit()\n", "raised", 2, "exit()"),
        (SHAPED + "    pass\n", "wrong-type", 1, SHAPED.strip()),
        (SHAPED + "    return ['a', 'b']\n", "wrong-type", 1, SHAPED.strip()),
        (SHAPED + "    return [rewards, [1.0]]\n", "wrong-type", 1, SHAPED.strip()),
        (SHAPED + "    return {'agent': 1.0}\n", "wrong-type", 1, SHAPED.strip()),
        (SHAPED + "    return rewards[:-1]\n", "wrong-shape", 1, SHAPED.strip()),
        (SHAPED + "    return 1.0\n", "wrong-shape", 1, SHAPED.strip()),
    ],
)
def test_unusable_answers_have_a_finding(
    write: Write, text: str, name: str, line: int | None, code: str
) -> None:
    found = finding_of(12, write(text))
    assert (found.name, found.line, found.code) == (name, line, code)
    assert found.message


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("return 3", "wrong-type"),
        ("return {'explorer': 1.0}", "wrong-shape"),
        ("return dict.fromkeys(policies.values(), 'a')", "wrong-type"),
        ("return dict.fromkeys(policies.values(), [1, 2])", "wrong-shape"),
        ("return dict.fromkeys(policies.values())", "wrong-type"),
    ],
)
def test_a_dict_has_the_keys_and_values_that_are_asked_for(
    write: Write, body: str, name: str
) -> None:
    text = f"def policy_returns(rewards, policies, frozen):\n    {body}\n"
    assert finding_of(7, write(text)).name == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("class NewFields: pass", "wrong-type"),
        ("import corral\nclass NewFields(corral.Callback): pass", "wrong-shape"),
        ("import corral\nclass NewFields(corral.Callback):\n    def __init__(self, a): pass", None),
    ],
)
def test_callbacks_that_cannot_be_judged(write: Write, text: str, name: str | None) -> None:
    assert finding_of(9, write(text + "\n")).name == (name or "signature")


def test_an_episode_without_steps_gets_a_hint(write: Write) -> None:
    text = (
        "import corral\n"
        "class NewFields(corral.Callback):\n"
        "    def on_episode(self, session, episode):\n"
        "        return episode.info['new_field'].sum()\n"
    )
    found = finding_of(9, write(text))
    assert (found.name, found.line) == ("raised", 4)
    assert {"info", "returns", "length", "kpis"} <= set(re.findall(r"\w+", found.message))


@pytest.mark.parametrize(
    ("number", "text", "name"),
    [
        (8, "def make_actor(features, actions): return 3", "wrong-type"),
        (8, "import torch\nmake_actor = torch.nn.Linear", "signature"),
        (8, "import torch\nmake_actor = lambda f, a: torch.nn.Bilinear(f, a, 2)", "raised"),
        (11, "def snapshot(policy): return policy.state_dict()", "wrong-type"),
    ],
)
def test_networks_that_cannot_be_judged(write: Write, number: int, text: str, name: str) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    assert finding_of(number, write(text + "\n")).name == name


def test_a_network_may_take_its_sizes_from_the_first_batch(write: Write) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    text = (
        "import torch\n"
        "from torch import nn\n"
        "class Actor(nn.Module):\n"
        "    def __init__(self, actions):\n"
        "        super().__init__()\n"
        "        self.layers = nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(actions))\n"
        "    def forward(self, observation, mask):\n"
        "        return self.layers(observation).masked_fill(~mask, -1e9)\n"
        "def make_actor(features, actions):\n"
        "    return Actor(actions)\n"
    )
    assert judge(8, write(text)).status == "right"


def test_a_network_without_any_weight_is_wrong(write: Write) -> None:
    pytest.importorskip("torch", reason="needs the extra mappo")
    text = (
        "import torch\n"
        "class Actor(torch.nn.Module):\n"
        "    def forward(self, observation, mask):\n"
        "        return torch.zeros(mask.shape).masked_fill(~mask, -1e9)\n"
        "def make_actor(features, actions):\n"
        "    return Actor()\n"
    )
    verdict = judge(8, write(text))
    assert verdict.status == "wrong"
    shown = verdict.outcomes[0].given
    assert shown.keys() == {"mask", "probabilities"}
    assert "0.3333" in shown["probabilities"]


def test_an_answer_that_takes_too_long_is_stopped(write: Write) -> None:
    before = threading.active_count()
    found = finding_of(12, write(SHAPED + "    while True:\n        pass\n"), limit_s=1.0)
    assert found.name == "too-slow"
    assert found.line in (2, 3)
    for _ in range(1200):
        if threading.active_count() == before:
            return
        time.sleep(0.05)
    raise AssertionError("the answer still runs")


# --- Answers that can be judged ------------------------------------------------------------------


def test_a_function_is_judged_as_its_file_is() -> None:
    def shaped_rewards(rewards, potentials, terminated, gamma):  # type: ignore[no-untyped-def]
        return rewards + undefined  # type: ignore[name-defined] # noqa: F821

    found = finding_of(12, shaped_rewards)
    assert found.name == "raised"
    assert found.code.startswith("return rewards + undefined")


def test_an_answer_may_change_its_input_and_print(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (
        "    print('hello')\n"
        "    rewards += gamma * potentials[1:] - potentials[:-1]\n"
        "    rewards[-1] -= gamma * potentials[-1] * terminated\n"
        "    return rewards\n"
    )
    assert judge(12, write(SHAPED + text)).status == "right"
    printed = capsys.readouterr()
    assert "hello" in printed.err
    assert not printed.out


def test_an_answer_unlike_all_mistakes_resembles_none(write: Write) -> None:
    verdict = judge(12, write(SHAPED + "    return 0 * rewards - 7.5\n"))
    assert verdict.status == "wrong"
    assert verdict.mistakes == ()
    assert "-7.5" in verdict.outcomes[0].returned
    assert {"rewards", "potentials", "terminated", "gamma"} == verdict.outcomes[0].given.keys()


def test_numbers_that_are_not_finite_are_wrong(write: Write) -> None:
    verdict = judge(12, write(SHAPED + "    return rewards / (0 * rewards)\n"))
    assert verdict.status == "wrong"


def test_two_mistakes_at_once_are_both_named() -> None:
    def answer(  # type: ignore[no-untyped-def]
        rewards, terminated, truncated, values, final_values, gamma
    ):
        """Continue after terminations, and stop at truncations."""
        returns, later = np.zeros(len(rewards)), values[-1]
        for t in reversed(range(len(rewards))):
            later = final_values[t] if terminated[t] else 0 if truncated[t] else later
            later = returns[t] = rewards[t] + gamma * later
        return returns

    verdict = judge(3, answer)
    found = {mistake.name for mistake in verdict.mistakes}
    assert found == {"truncation-as-termination", "bootstrap-at-termination"}
    assert verdict.partly


def test_a_verdict_is_a_result(write: Write, tmp_path: Path) -> None:
    verdict = judge(12, write(SHAPED + "    return rewards + potentials[1:]\n"))
    assert verdict.to_dataframe()["right"].tolist() == [False] * 3
    values = verdict.to_json()
    assert values["status"] == "wrong"
    assert [each.keys() for each in values["mistakes"]] == [{"name", "explanation", "hint"}]
    assert set(verdict.write(tmp_path / "out")) == {"verdict.json", "verdict.csv"}


def test_wrong_numbers_and_files_are_refused(tmp_path: Path) -> None:
    for number in (0, 13):
        with refused(ValueError, number, 12):
            judge(number, tmp_path)
    for name in ("missing.py", "."):
        with refused(FileError, name):
            judge(1, name)


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with refused(MissingExtraError, "mappo", "8"):
        judge(8, lambda: None)
    assert judge(4, lambda *given: given[0]).status == "wrong"
    assert judge(12, lambda *given: given[0]).status == "wrong"
