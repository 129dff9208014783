"""The README is true: its snippets run, its links lead somewhere, its table is the demo's."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import statistics
from pathlib import Path

import pytest

from support import forked

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
ADVISE = (ROOT / "docs" / "advise.md").read_text(encoding="utf-8")
FIGURES = (ROOT / "docs" / "figures.md").read_text(encoding="utf-8")


def run(command: list[str], folder: Path, ends: tuple[int, ...] = (0,)) -> str:
    done = forked.run(command, folder=folder, timeout=1500)
    assert done.returncode in ends, done.stdout + done.stderr
    return done.stdout


PAGES = (
    "README.md",
    "docs/advise.md",
    "docs/algorithms.md",
    "docs/callbacks.md",
    "docs/cloning.md",
    "docs/coming_from.md",
    "docs/comparing.md",
    "docs/environments.md",
    "docs/episodes.md",
    "docs/evaluation.md",
    "docs/from_rule.md",
    "docs/greedy_and_sampled.md",
    "docs/it_does_not_learn.md",
    "docs/libraries.md",
    "docs/networks.md",
    "docs/policies.md",
    "docs/rehearsal.md",
    "docs/self_play.md",
    "docs/training.md",
    "docs/tuning.md",
)
BLOCK = re.compile(r"^```(python|console|toml)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)


LONG = {
    "README",
    "advise",
    "algorithms",
    "callbacks",
    "cloning",
    "coming_from",
    "comparing",
    "evaluation",
    "from_rule",
    "it_does_not_learn",
    "networks",
    "self_play",
    "training",
    "tuning",
}
"""Pages whose snippets take half a minute and more."""

ELSEWHERE = (
    *("listen_rllib.py", "listen_torchrl.py", "listen_tianshou.py"),  # in tests/frameworks
    *("listen_sb3.py", "listen_corral.py", "listen_loop.py"),  # in test_listen.py
)
"""Blocks that other tests run."""

OF_CLASSES = re.compile(r"^\$ corral .*(forwarding|tutorial|multi_agent_arena|nim_c|runs/nim)\b")
"""Lines of docs/it_does_not_learn.md that test_it_does_not_learn.py runs, in full length."""

LONGEST = 8_192
"""Env steps. What a page trains for longer needs them to learn, and not to run."""

MINUTES = 0.05
"""What bounds a training in minutes waits no longer than that."""


def shortened(page: str) -> str:
    """Return the page with no training of more than LONGEST env steps or MINUTES, but those that go
    on or must have learned, and with checks of one second."""

    def fewer(match: re.Match[str]) -> str:
        return match[1] + str(min(int(match[2].replace("_", "")), LONGEST))

    page = re.sub(r"^\$ corral check .*", r"\g<0> --seconds 1", page, flags=re.MULTILINE)
    page = re.sub(r"--minutes [\d.]+", f"--minutes {MINUTES}", page)

    def kept(line: str) -> bool:
        return "--resume" in line

    lines = page.splitlines(keepends=True)
    pattern = r"((?:--steps |\bsteps=))([\d_]+)"
    return "".join(each if kept(each) else re.sub(pattern, fewer, each) for each in lines)


def test_only_long_trainings_are_shortened() -> None:
    long, short = "$ corral train --steps 150000 --seed 1\n", "train(steps=4_096)\n"
    assert shortened(long + short) == long.replace("150000", "8192") + "train(steps=4096)\n"
    assert shortened("$ corral advise a --minutes 5\n") == "$ corral advise a --minutes 0.05\n"
    assert shortened("$ corral check a.py:A\n") == "$ corral check a.py:A --seconds 1\n"
    assert shortened("$ corral train --resume run --steps 16384\n").endswith(" 16384\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [pytest.param(p, marks=[pytest.mark.slow] if Path(p).stem in LONG else []) for p in PAGES],
)
def test_every_snippet_runs_in_the_order_of_the_page(page: str, tmp_path: Path) -> None:
    blocks = BLOCK.findall(shortened((ROOT / page).read_text(encoding="utf-8")))
    assert len(blocks) >= 2
    for folder in ("networks", "environments"):
        shutil.copytree(ROOT / "docs" / folder, tmp_path / "docs" / folder)
    for language, block in blocks:
        if language == "python":
            if named := re.match(r"# (\w+\.py)\n", block):
                if named[1] in ELSEWHERE:
                    continue
                (tmp_path / named[1]).write_text(block)
            run(["-c", block], tmp_path)
            continue
        if language == "toml":  # its first line is its name
            (tmp_path / block.splitlines()[0].removeprefix("# ")).write_text(block)
            continue
        for line in block.splitlines():
            assert line.startswith("$ corral ")
            if page == "docs/it_does_not_learn.md" and OF_CLASSES.match(line):
                continue
            # A shortened training has not learned, and corral doctor then ends with 1.
            ends = (0, 1) if line.startswith("$ corral doctor ") else (0,)
            run(["-m", *shlex.split(line[2:])], tmp_path, ends)


def test_examples_of_algorithms_have_the_lines_that_the_page_says() -> None:
    page = (ROOT / "docs" / "algorithms.md").read_text(encoding="utf-8")
    said = [int(lines) for lines in re.findall(r"\b(\d+) lines\b", page)]
    blocks = [block for language, block in BLOCK.findall(page) if language == "python"]
    files = [block.splitlines()[1:] for block in blocks if block.startswith("# my_")]
    assert [len(lines) for lines in files] == said
    assert len(said) == 4
    assert max(said[1:]) <= 15  # a statistic, a gradient rule, an optimizer


def test_a_newcomer_can_read_it_at_one_go() -> None:
    assert len(README.splitlines()) <= 180


def demo_commands(folder: Path) -> list[list[str]]:
    """The commands of ``make demo``, with ``folder`` for its own."""
    makefile = (ROOT / "Makefile").read_text()
    recipe = re.search(r"^demo:.*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE)
    assert recipe is not None
    lines = [line for line in recipe.group(1).splitlines() if "/corral " in line]
    return [line.split("corral ", 1)[1].replace("runs/demo", str(folder)).split() for line in lines]


def shown_table() -> list[str]:
    return shown_lines(ADVISE)


def shown_lines(page: str) -> list[str]:
    shown = re.search(r"<!-- demo -->\n```(?:text)?\n(.*?)```", page, flags=re.DOTALL)
    assert shown is not None
    return [line.rstrip() for line in shown.group(1).splitlines()]


def test_the_readme_shows_a_part_of_the_demo() -> None:
    lines = [line for line in shown_lines(README) if line and line != "..."]
    assert len(lines) >= 5
    assert all(line in shown_table() for line in lines)


LEARNED = "team"


def cells(line: str) -> list[str]:
    """The cells of a row of a table, the policy first."""
    return re.split(r" {2,}", line.strip())


def policies_in(lines: list[str]) -> dict[str, list[str]]:
    """The figures of each policy: cost and loss a day, its saving and the interval."""
    first = next(i for i, line in enumerate(lines) if line.startswith("policy")) + 1
    rows = [cells(line) for line in lines[first : lines.index("", first)]]
    return {row[0]: row[2:] for row in rows}


def test_the_costs_of_the_table_are_what_a_rehearsal_prints(tmp_path: Path) -> None:
    """To the request; the learned team may differ between processors, see the slow test."""
    make, advise = demo_commands(tmp_path)
    run(["-m", "corral", *make], tmp_path)
    shown = policies_in(shown_table())
    names = [name for name in shown if name != LEARNED]
    assert len(names) == 3
    game = [*advise[1 : advise.index("--steps")], "--seed", "1"]
    more = ["--policies", ",".join(names), "--rows", f"{25 * 288}:", "--no-parts"]
    command = ["-m", "corral", "rehearse", *game, *more, "--out", str(tmp_path / "report")]
    run(command, tmp_path)
    kept = json.loads((tmp_path / "report" / "rehearsal.json").read_text())
    found = {row["policy"]: row["cost"]["mean"] for row in kept["policies"]}
    for name in names:
        assert shown[name][0] == f"{found[name]:,.0f}", name


@pytest.mark.slow
def test_the_demo_prints_the_screen(tmp_path: Path) -> None:
    commands = demo_commands(tmp_path / "run")
    assert [command[0] for command in commands] == ["trace", "advise"]
    (tmp_path / "run").parent.mkdir(exist_ok=True)
    *_, printed = [run(["-m", "corral", *command], tmp_path) for command in commands]
    lines = [line.rstrip() for line in printed.splitlines()]
    mine, shown = policies_in(lines), policies_in(shown_table())
    assert mine.keys() == shown.keys()
    for policy, figures in shown.items():
        if policy == LEARNED:  # it may differ between processors
            cost, told = (float(row[0].replace(",", "")) for row in (mine[policy], figures))
            assert cost == pytest.approx(told, rel=0.02)
        else:
            assert mine[policy] == figures
    first = shown_table().index("")
    assert lines[:first] == shown_table()[:first]


LINKED = sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("page", ["README.md", *LINKED, "CONTRIBUTING.md", "data/README.md"])
def test_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    for target in targets:
        assert ((ROOT / page).parent / target).exists(), target


def test_the_names_of_the_two_commands_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in ("demo", "test"):
        assert f"make {target}" in README
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_the_figures_are_those_of_the_benchmarks() -> None:
    results = ROOT / "benchmarks" / "results"
    stepping = json.loads((results / "stepping.json").read_text())["ratios"]
    arena = json.loads((results / "arena_stepping.json").read_text())["ratios"]
    columns = json.loads((results / "sb3_vec_envs.json").read_text())["ratios"]
    year = json.loads((results / "replay_year.json").read_text())["seconds"]
    for row, figure in (
        ("random legal actions, 64 copies", stepping["Batch over SuperSuit, 64 copies"]),
        ("the same with 1024 copies", stepping["Batch over SuperSuit, 1024 copies"]),
        ("arena_v0, Batch over", arena["Batch, 64 copies, over SuperSuit, 64 copies"]),
        ("arena_v0, Batch of 1024", arena["Batch, 1024 copies, over SuperSuit, 64 copies"]),
        ("the same over SuperSuit, 64 copies", columns["Batch over vectorize, cpus=0"]),
        ("13 policies, with the optimum", year["replay"]),
    ):
        line = next(line for line in FIGURES.splitlines() if row in line)
        assert re.search(rf"\| {figure:.0f} (times|s)", line), (line, figure)


def test_the_figures_of_learning_are_those_of_the_benchmarks() -> None:
    results = ROOT / "benchmarks" / "results"
    game = json.loads((results / "default_game.json").read_text())["edge3"]
    shares = [100 * found["greedy"] for found in game.values()]
    assert len(shares) == 16
    assert f"| {min(shares):.2f} to {max(shares):.2f} % |" in FIGURES
    arena = json.loads((results / "arena_learning.json").read_text())["mappo, median"]
    steps, seconds = arena["marks"]["20.9"]
    assert f"| {steps:,.0f} env steps, {seconds:.1f} s |" in FIGURES
    times = json.loads((results / "sb3_training_time.json").read_text())["sb3_ppo"]
    assert times["same_weights"]
    assert f"| {times['ratio']:.1f} times as fast |" in FIGURES
    rows = json.loads((results / "hard_setting.json").read_text())["rows"]
    costs = {row["policy"]: 100 * row["cost"] for row in rows}
    learned = [costs[row["policy"]] for row in rows if row["mode"] == "greedy"]
    best = min(costs[row["policy"]] for row in rows if not row["mode"] and row["low"] is not None)
    assert len(learned) == 3
    assert f"| {min(learned):.2f} to {max(learned):.2f} |" in FIGURES
    assert f"| {best:.2f}; {costs['optimum']:.2f} |" in FIGURES
    rows = json.loads((results / "hard_days.json").read_text())["rows"]
    costs = {row["policy"]: 100 * row["cost"] for row in rows}
    learned = [cost for name, cost in costs.items() if re.fullmatch(r"mappo \d, greedy", name)]
    best = min(costs[row["policy"]] for row in rows if not row["mode"] and row["low"] is not None)
    assert len(learned) == 5
    assert f"| {min(learned):.2f} to {max(learned):.2f} |" in FIGURES
    assert f"| {best:.2f}; {costs['optimum']:.2f} |" in FIGURES


def test_the_speed_of_the_learner_is_the_benchmarks() -> None:
    found = json.loads((ROOT / "benchmarks" / "results" / "learner_speed.json").read_text())
    example = statistics.median(
        found["ratios"]["tanh, entropy bonus"]["env steps/s, mappo / example"]
    )
    loop = found["ratios"]["relu, no entropy bonus"]["seconds of learning, mappo / bare loop"]
    said = " ".join(FIGURES.split())
    assert f"mappo makes {example:.2f} times the example's env steps/s" in said
    assert f"its updates take {statistics.median(loop):.2f} times as long" in said


def test_the_table_of_frameworks_is_the_benchmarks() -> None:
    """Seconds and env steps/s of each framework, and that none of them played an illegal action."""
    found = json.loads((ROOT / "benchmarks" / "results" / "frameworks.json").read_text())
    shown = FIGURES.split("<!-- frameworks -->\n")[1].split("\n\n")[0].splitlines()[2:]
    known = {"CleanRL-style loop": "cleanrl", "OpenSpiel, through Shimmy": None}
    rows = {}
    for line in shown:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = known.get(cells[0], cells[0].lower())
        if name is not None and cells[-2:] != ["", ""]:
            rows[name] = cells
    assert len(rows) >= 6
    for name, cells in rows.items():
        measured = found[name]
        assert cells[-3] == str(measured["illegal_actions"]) == "0", name
        assert cells[-2] == f"{measured['env_steps_per_s']:,}", name
        beaten = measured["beats_random"]
        assert cells[-1] == (f"{measured['seconds']:.0f}" if beaten else "not in 50,000 steps"), (
            name
        )
