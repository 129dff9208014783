"""A replay in a terminal: learned rows stand out."""

from __future__ import annotations

import io
import re

from rich.console import Console
from rich.table import Table

from corral.envs.dfaas_v0 import DfaasRules
from corral.envs.dfaas_v0.baselines import baseline_team
from corral.loads.replay import replay
from corral.loads.text import score_tables


def shown(tables: list[Table], *, terminal: bool) -> str:
    file = io.StringIO()
    colors = "standard" if terminal else None
    console = Console(file=file, force_terminal=terminal, width=80, color_system=colors)
    for table in tables:
        console.print(table)
    return file.getvalue()


def test_learned_rows_stand_out_in_every_table_of_a_terminal() -> None:
    team = baseline_team("margin", DfaasRules("edge3", rows=(0, 600)))
    tables = list(score_tables(replay("edge3", {"mine": team, "local": "local"}, rows=(0, 600))))
    assert len(tables) == 4
    printed = [line.strip() for line in shown(tables, terminal=True).splitlines()]
    for name, bold in (("mine", True), ("local", False), ("optimum", False)):
        lines = [line for line in printed if re.sub(r"\x1b\[[\d;]*m", "", line).startswith(name)]
        assert lines, printed
        assert {"\x1b[1;32m" in line for line in lines} == {bold}, name


def test_a_file_gets_the_same_words_without_colors() -> None:
    team = baseline_team("margin", DfaasRules("edge3", rows=(0, 600)))
    tables = list(score_tables(replay("edge3", {"mine": team, "local": "local"}, rows=(0, 600))))
    assert "\x1b" not in shown(tables, terminal=False)
