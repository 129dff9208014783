"""Tests of the published comparison's references."""

from __future__ import annotations

from importlib import import_module

import pytest


@pytest.mark.parametrize("game", ["arena", "arena_visited"])
def test_the_arena_is_compared_with_its_reference_players(
    game: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    games = import_module("published_games")
    monkeypatch.setattr(games, "EPISODES", 4)
    found = games.GAMES[game].references()
    assert found["nearest/still"]["value"] == pytest.approx(88.5)
    assert found["random"]["value"] < found["nearest/chase"]["value"]
