"""The window of the human render mode: without a screen it opens, follows, closes and pickles."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import pytest

from corral.envs.render.window import Window
from corral.errors import CorralError, MissingExtraError

IMAGE = np.full((60, 80, 3), 200, dtype=np.uint8)


@pytest.fixture
def pygame(monkeypatch: pytest.MonkeyPatch) -> Any:
    """pygame without a screen, shut down afterwards."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    module = pytest.importorskip("pygame", reason="pygame-ce is not installed: corral[render]")
    yield module
    module.quit()


def test_a_window_opens_late_and_closes_twice(pygame: Any) -> None:
    window = Window("test", fps=0)
    assert not pygame.display.get_init()
    window.close()
    assert window.show(IMAGE)
    assert pygame.display.get_surface().get_size() == (80, 60)
    assert pygame.display.get_caption()[0] == "test"
    assert tuple(pygame.display.get_surface().get_at((3, 3)))[:3] == (200, 200, 200)
    window.close()
    window.close()
    assert not pygame.display.get_init()
    assert window.show(IMAGE)  # opens again


def test_a_window_follows_the_size_of_its_pictures(pygame: Any) -> None:
    window = Window("test", fps=0)
    window.show(IMAGE)
    window.show(IMAGE[:30])
    assert pygame.display.get_surface().get_size() == (80, 30)


def test_the_close_button_closes_for_good(pygame: Any) -> None:
    window = Window("test", fps=0)
    assert window.show(IMAGE)
    pygame.event.post(pygame.event.Event(pygame.QUIT))
    assert not window.show(IMAGE)
    assert not pygame.display.get_init()
    assert not window.show(IMAGE)
    assert not pygame.display.get_init()
    window.close()


def test_two_windows_take_turns(pygame: Any) -> None:
    first, second = Window("first", fps=0), Window("second", fps=0)
    assert first.show(IMAGE)
    assert second.show(IMAGE)
    first.close()
    assert pygame.display.get_caption()[0] == "second"
    assert first.show(IMAGE)
    assert second.show(IMAGE)


def test_a_window_keeps_its_pace(pygame: Any) -> None:
    window = Window("test", fps=50)
    window.show(IMAGE)
    before = pygame.time.get_ticks()
    for _ in range(6):
        window.show(IMAGE)
    assert pygame.time.get_ticks() - before >= 80


@pytest.mark.usefixtures("pygame")
def test_an_open_window_pickles_as_a_closed_one() -> None:
    window = Window("test", fps=0)
    window.show(IMAGE)
    copy = pickle.loads(pickle.dumps(window))
    assert copy.title == "test"
    copy.close()
    assert copy.show(IMAGE)


@pytest.mark.parametrize("image", [IMAGE.astype(float), IMAGE[..., 0], np.zeros((4, 4, 4), "u1")])
def test_a_window_refuses_what_is_no_picture(image: Any) -> None:
    with pytest.raises(ValueError, match="uint8"):
        Window("test", fps=0).show(image)


def test_without_a_display_the_error_names_rgb_array(
    pygame: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "no-such-driver")
    window = Window("test", fps=0)
    for _ in range(2):
        with pytest.raises(CorralError, match="rgb_array"):
            window.show(IMAGE)
    window.close()
    assert not pygame.display.get_init()


def test_without_pygame_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pygame", None)
    window = Window("test", fps=0)
    with pytest.raises(MissingExtraError, match=r"pygame.*'\.\[render\]"):
        window.show(IMAGE)
    window.close()
