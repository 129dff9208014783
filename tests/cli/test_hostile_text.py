"""Text from outside is plain on every screen: no markup, no raw control character, no flood."""

from __future__ import annotations

import functools
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corral.cli import output
from corral.data import load_trace
from corral.errors import CorralError, TraceError, UnknownNameError
from corral.extras import require
from corral.text import HIDDEN, one_line, pasted, shortened, visible
from support.command import ENVIRONMENT, run, within
from support.messages import shown

NODES = ("[/]", "[fe80::1]:9100", "[red]rot[/red]", ":smile:", "<script>&amp;'x'")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """A trace whose nodes are named like markup."""
    path = tmp_path / "load [bold].csv"
    rows = [f"{t},{node},{t % 3 + 2},3" for t in range(40) for node in NODES]
    path.write_text("\n".join(["time,node,arrivals,capacity", *rows]) + "\n", encoding="utf-8")
    return path


# --- Text ----------------------------------------------------------------------------------------


def test_control_characters_become_visible() -> None:
    assert visible("a\x1b[31m\r\x07\x85\u202e\u200b\udcff é\t\n") == (
        "a\\x1b[31m\\r\\x07\\x85\\u202e\\u200b\\udcff é\t\n"
    )
    assert one_line("two\nlines\t\x00") == "two\\nlines\\t\\x00"
    assert len(one_line("x" * 10**6)) < 300


def test_bytes_that_were_not_decoded_are_readable() -> None:
    name = os.fsencode("größe").decode("ascii", "surrogateescape")
    assert visible(name) == "größe"
    assert visible(repr(name)) == "'größe'"
    assert visible("\udcff\udce2\udc80\udcae") == "\\udcff\\udce2\\udc80\\udcae"
    assert visible("\udce2\udc80\udcae") == "\\u202e"


@pytest.mark.parametrize(
    ("name", "pasted_name"),
    [
        ("runs/a", "runs/a"),
        ("a b", "'a b'"),
        ("mk[best]", "'mk[best]'"),
        ("-x", "./-x"),
        ("- x@best", "'./- x@best'"),
    ],
)
def test_printed_commands_can_be_pasted(name: str, pasted_name: str) -> None:
    assert pasted(name) == pasted_name


def test_long_lines_lose_their_middle() -> None:
    text = "short\n" + "x" * 5_000 + "hint"
    cut = shortened(text, 300)
    assert cut.startswith("short\nxxx")
    assert cut.endswith("xxhint")
    shown(cut, "(4,704")
    assert len(cut) < 400
    assert shortened("short") == "short"


@pytest.mark.parametrize(
    "error",
    [
        CorralError("x" * 10**6 + " give less"),
        UnknownNameError.of("trace", "x" * 10**6, ["edge3", "edge8"]),
    ],
)
def test_errors_are_short_however_large_the_value(error: CorralError) -> None:
    assert len(str(error)) < 1_200
    assert str(error)[-9:] in ("give less", "e3, edge8")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


# --- Screens -------------------------------------------------------------------------------------


def test_tables_show_names_as_they_are(trace: Path, tmp_path: Path) -> None:
    text = within("trace", "show", trace)
    for node in ("[/]", "[fe80::1]:9100", "[red]rot[/red]", ":smile:"):
        assert node in text or node[:16] in text, node
    shown(within("trace", "check", trace), "load [bold].csv", 40, 5)
    out = tmp_path / "made [best]"
    printed = within("replay", trace, "--policies", "overflow,local", "--out", out)
    shown(printed, "load [bold]", "0:40", "made [best]/report.html")
    assert not HIDDEN.search(printed)


def test_a_report_escapes_names(trace: Path, tmp_path: Path) -> None:
    hostile = trace.with_name("<img src=x onerror=alert(1)>&\"'.csv")
    trace.rename(hostile)
    within("replay", hostile, "--policies", "overflow", "--out", tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    shown(page, "&lt;img src=x onerror=alert(1)&gt;&amp;")
    for raw in ("<img", "&'x'", "\u202e"):
        assert raw not in page, raw
    assert page.count("<script") == page.count("</script>") == 2  # its own, and its numbers


def test_a_run_in_a_folder_named_like_markup(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    folder = tmp_path / "mk[best] \x1b[31m"
    small = ("--num-envs", "1", "--n-steps", "32", "--n-minibatches", "1", "--steps", "32")
    printed = within("train", "arena_v0", "--out", folder, "--max-cycles", "8", *small)
    shown(printed, "mk[best] \\x1b[31m", f"corral evaluate '{tmp_path}/mk[best] ")
    assert "\x1b" not in printed
    for words in (
        ("evaluate", folder, "--episodes", "1"),
        ("watch", folder, "--ansi", "--steps", "1"),
    ):
        printed = within(*words)
        assert "mk[best]" in printed or words[0] == "watch"
        assert "\x1b" not in printed


GAME = """
from support.zoo_envs import SleepyEnv

class Named(SleepyEnv):
    metadata = {"name": "[/][red]named\\x1b[31m", "is_parallelizable": True}

    def __init__(self, agents=("[/]\\x1b[31ma", "b\\nb\\u202e")):
        super().__init__(0.0)
        self.possible_agents = list(agents)

    def reset(self, seed=None, options=None):
        self.left = 5
        return super().reset(seed, options)

    def step(self, actions):
        obs, rewards, ends, cuts, _ = super().step(actions)
        self.left -= 1
        cuts = dict.fromkeys(cuts, self.left == 0)
        self.agents = self.agents if self.left else []
        return obs, rewards, ends, cuts, {agent: {} for agent in obs}
"""


def test_agents_of_third_party_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    (tmp_path / "hostile_game.py").write_text(GAME)
    monkeypatch.syspath_prepend(tmp_path)
    where, folder = "hostile_game:Named", tmp_path / "run"
    small = ("--num-envs", "1", "--n-steps", "32", "--n-minibatches", "1", "--steps", "32")
    printed = within("train", where, "--trainer", "mappo", "--out", folder, *small)
    printed += within("evaluate", folder, "--env", where, "--episodes", "1")
    printed += within("check", where, "--no-processes", "--seconds", "0.5", code=None)
    assert "[/][red]named\\x1b[31m" in printed
    assert not HIDDEN.search(printed), ascii(printed)


HOSTILE = "[/][red]\x1b[31m\x07\r\u202e"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        *(["envs", HOSTILE], ["trainers", HOSTILE], ["train", HOSTILE], ["evaluate", HOSTILE]),
        *(["replay", HOSTILE], ["watch", HOSTILE], ["check", HOSTILE], [HOSTILE]),
        *(["trace", "show", HOSTILE], ["trace", "check", HOSTILE], ["trace", HOSTILE]),
        *(["replay", "edge3", "--rows", HOSTILE], ["replay", "edge3", "--window", HOSTILE]),
        *(["replay", "edge3", "--policies", HOSTILE], ["replay", "edge3", f"--{HOSTILE}", "1"]),
        *(["train", "arena_v0", f"--{HOSTILE}", "1"], ["train", "arena_v0", "--gamma", HOSTILE]),
        *(["train", "arena_v0", HOSTILE], ["train", "arena_v0", "--steps", HOSTILE]),
        *(["train", "--resume", HOSTILE], ["check", f"{HOSTILE}:{HOSTILE}"]),
        *(["watch", "arena_v0", "--policies", HOSTILE], ["watch", "arena_v0", "--walls", HOSTILE]),
        ["trace", "import", "series", HOSTILE, "--out", "x.csv"],
    ],
    ids=lambda words: ascii(" ".join(words)).replace("\\", ""),
)
def test_words_of_the_command_line_come_back_as_plain_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    monkeypatch.chdir(tmp_path)
    code = 1 if words[:2] == ["trace", "check"] else 2
    printed = within(*words, code=code)
    assert not HIDDEN.search(printed), ascii(printed)
    if words[-1] not in ("1", "x.csv"):
        assert "[/][red]\\x1b[31m\\x07\\r\\u202e" in printed
    large = [word.replace(HOSTILE, HOSTILE * 30_000) for word in words]
    assert len(within(*large, code=code)) < 12_000


def test_a_giant_cell_of_a_trace(tmp_path: Path) -> None:
    path = tmp_path / "load.csv"
    path.write_text("time,node,arrivals\n0,a," + "9x" * 400_000 + "\n")
    with pytest.raises(TraceError) as caught:
        load_trace(path)
    assert len(str(caught.value)) < 2_000
    assert len(within("trace", "show", path, code=2)) < 2_000


def test_the_hint_of_a_missing_extra_is_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = functools.partial(require, extra="optimum", purpose="bound a replay")
    monkeypatch.setattr("corral.data.load_trace", missing)
    printed = within("trace", "show", "no_such_module", code=2)
    shown(printed, "pip install '.[optimum]'")


def test_a_bar_says_what_goes_on_as_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    screen = output.Screen(force_terminal=True, width=100, color_system=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "err", screen)
        with output.progress_bar() as show:
            show("[/] \x1b]0;title\x07 [red]x", 1, 2)
    seen = capsys.readouterr().out
    shown(seen, "[/] \\x1b]0;title\\x07 [red]x")
    assert "\x07" not in seen


def test_a_log_with_colors_has_no_bar(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as the kernel of a notebook does
    monkeypatch.setattr(output, "err", output.Screen(stderr=True))
    with output.progress_bar() as show:
        show("playing", 1, 2)
    assert capsys.readouterr().err == ""


# --- Encodings -----------------------------------------------------------------------------------

ASCII: dict[str, Any] = {**ENVIRONMENT, "LC_ALL": "C", "PYTHONUTF8": "0"}


def in_ascii(*words: str | Path, errors: str = "strict") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "corral", *map(str, words)],
        capture_output=True,
        env={**ASCII, "PYTHONIOENCODING": f"ascii:{errors}"},
        timeout=600,
    )
    printed = done.stdout + done.stderr
    assert done.returncode in (0, 2), printed
    assert b"EncodeError" not in printed, printed
    return printed.decode("ascii")


@pytest.mark.slow
def test_terminals_that_know_ascii_alone(tmp_path: Path) -> None:
    assert "dfaas_v0" in in_ascii("envs")
    assert "argument" in in_ascii("envs", "dfaas_v0")
    assert re.search(r"milan .*[.:=+*#@-]{20}", in_ascii("trace", "show", "edge3"))
    words = ("--policies", "overflow", "--rows", "0:30", "--out", tmp_path / "näher")
    assert "naher" in in_ascii("replay", "edge3", *words)
    shown(in_ascii("envs", os.fsdecode("hä".encode())), "'ha'")


@pytest.mark.slow
def test_train_and_evaluate_in_ascii(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra sb3")
    small = ("--num-envs", "1", "--n-steps", "32", "--n-minibatches", "1", "--steps", "32")
    folder = tmp_path / "lauf"
    shown(in_ascii("train", "arena_v0", "--out", folder, "--max-cycles", "8", *small), 32)
    assert "return" in in_ascii("evaluate", folder, "--episodes", "1")


def test_names_of_files_that_are_no_utf8(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")
    assert "\\udcff.csv" in run("trace", "show", path, code=2)
