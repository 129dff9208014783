"""A window that shows pictures of any environment: the ``human`` render mode."""

from __future__ import annotations

import os
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from corral.errors import CorralError
from corral.extras import require

__all__ = ["Window"]


class Window:
    """Shows uint8 RGB arrays [H, W, 3] at ``fps`` pictures per second (0: no limit).

    The window opens at the first ``show``. After the user has closed it, ``show`` does nothing and
    returns False. pygame-ce (extra ``[render]``) has one window per process. The ``Window`` object
    that was shown last owns it.
    """

    _shown: ClassVar[Window | None] = None  # owner of pygame's window

    def __init__(self, title: str, fps: float) -> None:
        self.title = title
        self.fps = fps
        self._pygame: Any = None  # the module, once the window is open
        self._screen: Any = None
        self._clock: Any = None
        self._dismissed = False  # the user closed it

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for copies and pickles: they have a separate window, not yet open."""
        return {**Window(self.title, self.fps).__dict__, "_dismissed": self._dismissed}

    def show(self, image: npt.NDArray[np.uint8]) -> bool:
        """Show ``image`` and wait until the next picture is due.

        Returns False if the user closed the window. Raises ValueError if ``image`` is not uint8 [H,
        W, 3], and CorralError without a display.
        """
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise ValueError(
                f"the picture is {image.dtype} of shape {image.shape}; give uint8 of shape "
                "(height, width, 3)"
            )
        if self._dismissed:
            return False
        size = (image.shape[1], image.shape[0])
        if self._pygame is None:
            self._open()
        pygame = self._pygame
        owned = Window._shown is self and pygame.display.get_surface() is not None
        if not owned or self._screen.get_size() != size:
            self._screen = _screen(pygame, size)
            pygame.display.set_caption(self.title)
            Window._shown = self
        surface = pygame.image.frombuffer(np.ascontiguousarray(image).tobytes(), size, "RGB")
        self._screen.blit(surface, (0, 0))
        pygame.display.flip()
        if self.fps > 0:
            self._clock.tick(self.fps)
        if any(event.type == pygame.QUIT for event in pygame.event.get()):
            self._dismissed = True
            self.close()
        return not self._dismissed

    def close(self) -> None:
        """Close the window if it is open; a later ``show`` opens it again."""
        if self._pygame is None:
            return
        if Window._shown is self:
            self._pygame.display.quit()
            Window._shown = None
        self._pygame = self._screen = self._clock = None

    def _open(self) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        pygame: Any = require("pygame", extra="render", purpose="open a window")
        self._pygame = pygame
        self._clock = pygame.time.Clock()


def _screen(pygame: Any, size: tuple[int, int]) -> Any:
    try:
        if not pygame.display.get_init():
            pygame.display.init()
        return pygame.display.set_mode(size)
    except pygame.error as error:
        raise CorralError(
            f"cannot open a window ({error}); on a machine without a display use "
            "render_mode='rgb_array'"
        ) from error
