"""Settings: one field makes the check, the words and the bounds; shared words mean the same."""

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from corral.trainers.on_policy.settings import (
    A2CSettings,
    IPPOSettings,
    MAPPOSettings,
    PGSettings,
    PPOKLSettings,
)
from corral.trainers.rllib.settings import RLlibPPOSettings
from corral.trainers.sb3.settings import SB3Settings
from corral.trainers.settings import (
    SHARED,
    about,
    check_settings,
    limits,
    make_settings,
    setting,
    type_of,
)
from support.messages import refused

PPO = (IPPOSettings, MAPPOSettings, SB3Settings, RLlibPPOSettings)
EVERY = (*PPO, PPOKLSettings, A2CSettings, PGSettings)


@dataclass(frozen=True)
class Small:
    count: int = setting(3, "Number of parts.", least=2, unit="parts")
    share: float = setting(0.5, "Share of them.", least=0, below=1)
    bound: float | None = setting(None, "Bound on it.", above=0)
    gamma: float = setting(0.9)
    kind: str = setting("a", "Kind of part.", choices=("a", "b"))
    flag: bool | None = setting(None, "Whether it is so.")
    sizes: tuple[int, ...] = setting((4,), "Sizes of the parts.", least=1)

    def __post_init__(self) -> None:
        check_settings(self)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"count": 1}, ("count=1", 2)),
        ({"count": 2.0}, ("count=2.0", 2)),
        ({"count": True}, ("count=True", 2)),
        ({"share": 1}, ("share=1", "0 to below 1")),
        ({"share": -0.5}, ("share=-0.5", "0 to below 1")),
        ({"share": float("nan")}, ("share=nan", "finite", "0 to below 1")),
        ({"share": True}, ("share=True", "finite", "0 to below 1")),
        ({"share": None}, ("share=None", "finite", "0 to below 1")),
        ({"bound": 0}, ("bound=0", "above 0", None)),
        ({"bound": -1}, ("bound=-1", "above 0", None)),
        ({"gamma": 1.01}, ("gamma=1.01", "0 to 1")),
        ({"gamma": "high"}, ("gamma='high'", "finite", "0 to 1")),
        ({"kind": "c"}, ("kind='c'", "'a'", "'b'")),
        ({"flag": 1}, ("flag=1", True, False)),
        ({"sizes": 4}, ("sizes=4", "tuple")),
        ({"sizes": (4, 0)}, ("sizes=0", 1)),
    ],
)
def test_values_out_of_range_are_named(given: dict[str, Any], values: tuple[Any, ...]) -> None:
    with refused(ValueError, *values):
        Small(**given)


def test_bounds_themselves_are_allowed_where_they_are_inside() -> None:
    made = Small(count=2, share=0, bound=0.1, gamma=1, kind="b", flag=True, sizes=())
    assert (made.count, made.share, made.gamma, made.sizes) == (2, 0, 1, ())
    assert Small(bound=None, flag=None) == Small()


def test_settings_of_json() -> None:
    trainer = SimpleNamespace(Settings=Small)
    assert make_settings(trainer, {"sizes": [1, 2]}).sizes == (1, 2)
    with refused(TypeError, "'counts'", "'count'"):
        make_settings(trainer, {"counts": 4})


def test_types_that_are_no_texts_are_checked_too() -> None:
    """As in a module without ``from __future__ import annotations``."""
    fields_of = [("count", int, setting(3, "Number.", least=2))]
    fields_of.append(("rate", float | str, setting(0.5, "Rate.", least=0)))  # type: ignore[arg-type]
    made = make_dataclass("Own", fields_of, namespace={"__post_init__": check_settings})
    assert made(rate="linear:2").rate == "linear:2"
    assert [type_of(field) for field in fields(made)] == ["int", "float | str"]
    with refused(ValueError, "count=1", 2):
        made(count=1)
    with pytest.raises(ValueError, match="rate='high'"):
        made(rate="high")


def test_limits_in_words() -> None:
    words = {field.name: limits(field) for field in fields(Small)}
    assert words == {
        "count": "2 or more parts",
        "share": "0 to below 1",
        "bound": "above 0",
        "gamma": "0 to 1",
        "kind": "one of a, b",
        "flag": "",
        "sizes": "1 or more",
    }


@pytest.mark.parametrize("settings", EVERY)
def test_every_setting_says_what_it_is(settings: Any) -> None:
    assert settings() == settings(**vars(settings()))
    for field in fields(settings):
        words = about(field)
        assert words["help"][0].isupper(), field.name
        assert words["help"].endswith("."), field.name
        numbers = str(field.type).split(" | ")[0] in ("int", "float", "tuple[int, ...]")
        assert bool(limits(field)) == (numbers or words["choices"] is not None), field.name


def test_one_word_means_the_same_in_every_trainer() -> None:
    for name in ("n_epochs", "learning_rate", "gamma", "gae_lambda", "clip_range", "net_arch"):
        for settings in PPO:
            field = next(field for field in fields(settings) if field.name == name)
            assert about(field) is SHARED[name]
