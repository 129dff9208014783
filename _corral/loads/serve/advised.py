"""What a folder of ``corral advise`` says that is to be served. docs/advise.md lists its keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from corral.errors import RunError
from corral.files import strict_json

__all__ = ["ADVICE", "Advised", "advised"]

ADVICE = "advice.json"
FORMAT = 1


@dataclass(frozen=True)
class Advised:
    """The verdict of an advice."""

    run: Literal["team", "rule"]
    rule: str  # the best one
    team: Path | None  # its folder, where it is there
    nodes: tuple[str, ...]
    settings: Mapping[str, Any]  # arguments of dfaas_v0

    def about(self) -> dict[str, Any]:
        """Return of the nodes as much as a rule asks for, as ``about_rules`` tells it of a run."""
        from corral.envs.dfaas_v0.network import adjacency

        agents = [f"node_{i}" for i in range(len(self.nodes))]
        links = adjacency(agents, self.nodes, self.settings.get("neighbours"))
        return {
            "nodes": list(self.nodes),
            "links": links.astype(int).tolist(),
            "route": self.rule.partition("/")[2],
            "queue": self.settings.get("queue", 0),
            "report_delay": self.settings.get("report_delay", 1),
            "arrivals": self.settings.get("arrivals", "known"),
            "link_limit": self.settings.get("link_limit"),
            "observation": "every",
            "load_scale": 1.0,
            "capacity_scale": 1.0,
        }


def advised(folder: Path) -> Advised:
    """Read the verdict. Raises RunError where it is damaged."""
    path = folder / ADVICE
    try:
        found = strict_json(path.read_text(encoding="utf-8"))
        if found["format"] != FORMAT:
            raise ValueError(f"format {found['format']}, not {FORMAT}")
        run, rule, team = found["run"], found["rule"]["rule"], found["team"]
        nodes, settings = tuple(found["trace"]["nodes"]), dict(found["settings"])
        places = () if team is None else (folder / "team", Path(team["folder"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunError(f"{path} cannot be read ({type(error).__name__}: {error})") from error
    place = next((each for each in places if each.is_dir()), None)
    return Advised(run, rule, place, nodes, settings)
