"""Arguments of the environments by name, for type checkers: ``corral.make("arena_v0", width=5)``.

Each class repeats the signature of the environment's rules, because the types of keywords cannot be
derived from a signature. A test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypedDict

from corral.data import Trace
from corral.envs.dfaas_v0.rows import Section

Arena: TypeAlias = Literal["arena_v0", "corral/arena-v0"]
Dfaas: TypeAlias = Literal["dfaas_v0", "corral/dfaas-v0"]
Rps: TypeAlias = Literal["rps_v0", "corral/rps-v0"]
TicTacToe: TypeAlias = Literal["tictactoe_v0", "corral/tictactoe-v0"]
Tiles: TypeAlias = Literal["tiles_v0", "corral/tiles-v0"]
TwoStep: TypeAlias = Literal["two_step_v0", "corral/two_step-v0", "corral/two-step-v0"]
Name: TypeAlias = Arena | Dfaas | Rps | TicTacToe | Tiles | TwoStep

Illegal: TypeAlias = Literal["penalise", "raise"]


class Untyped:
    """Type of values that only Any fits, as in the call ``make("arena_v0", **json.load(file))``."""


class WrongArgument:
    """Type of a call with a name of the suite and an argument of another name or static type. It
    has no attribute.

    Without an overload of its own, such a call would fit the overload for any text, and type
    checkers would accept it. At run time the call raises an error.
    """


class CommonArgs(TypedDict, total=False):
    """Arguments of all environments, for a name that is one of several."""

    max_cycles: int
    illegal: Illegal


class ArenaArgs(TypedDict, total=False):
    width: int
    height: int
    max_cycles: int
    observation: Literal["positions", "visited"]
    planes: bool
    walls: Literal["bump", "mask"]
    illegal: Illegal


class DfaasArgs(TypedDict, total=False):
    trace: str | Path | Trace
    max_cycles: int
    rows: Section | None
    start: int | Literal["random"]
    load_scale: float | None
    capacity_scale: float | None
    max_level: int
    amount: str | Sequence[int]
    queue: int
    forward_cost: float
    wait_cost: float
    route: str | None
    second_offer: bool
    link_limit: int | None
    neighbours: Mapping[str, Sequence[str]] | None
    reward: Literal["own", "team"]
    capacity: int | str | None
    capacity_rows: Section | None
    illegal: Illegal
    augment: Mapping[str, float] | str | None
    keep_flow: bool
    report_delay: int
    reward_fn: Callable[..., Any] | str | None
    observation: Literal["every", "summary", "neighborhood"]
    arrivals: Literal["known", "unknown"]
    last_counts: int | None
    daily_mean: bool | Sequence[Sequence[float]]
    residual: str | None
    offsets: int | None
    beyond: Literal["rule", "clip"] | None


class RpsArgs(TypedDict, total=False):
    rounds: int
    max_cycles: int | None
    illegal: Illegal


class TicTacToeArgs(TypedDict, total=False):
    size: int | tuple[int, int]
    line: int
    max_cycles: int | None
    illegal: Illegal


class TilesArgs(TypedDict, total=False):
    templates: Any
    levels: int
    budget: int | None
    noise: float
    value_cost: float
    confidence: float
    max_cycles: int
    illegal: Illegal


class TwoStepArgs(TypedDict, total=False):
    max_cycles: int | None
    illegal: Illegal
