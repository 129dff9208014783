"""Nim over a C library, through ctypes: its state is in C memory, which deepcopy does not copy.

``shared=False`` allocates a state for each environment, and Python holds its address as a number.
``shared=True`` has one state in a static variable of the library, as many old simulators do.
"""

from __future__ import annotations

import ctypes
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from gymnasium import spaces
from pettingzoo import AECEnv

SOURCE = r"""
#include <stdlib.h>
typedef struct { int heap[3]; unsigned chance; int turn; } nim;
static nim only;
static unsigned draw(nim *g) {
    g->chance = g->chance * 1103515245u + 12345u;
    return g->chance >> 16;
}
nim *nim_new(int shared) { return shared ? &only : calloc(1, sizeof(nim)); }
void nim_reset(nim *g, unsigned seed) {
    g->chance = seed; g->turn = 0;
    for (int i = 0; i < 3; i++) g->heap[i] = 4 + draw(g) % 4;
}
int nim_heap(nim *g, int i) { return g->heap[i]; }
/* Take count from a heap; by chance, one is put on another heap while it is early. */
int nim_take(nim *g, int i, int count) {
    g->heap[i] -= count;
    if (g->turn++ < 6 && draw(g) % 3 == 0 && g->heap[(i + 1) % 3] < 7) g->heap[(i + 1) % 3]++;
    return g->heap[0] + g->heap[1] + g->heap[2] == 0;
}
void nim_free(nim *g) { if (g != &only) free(g); }
"""

LARGEST = 3
"""Maximum number that is taken at once; action 3 heap + k - 1 takes k."""


def compiled(folder: Path) -> Path | None:
    """Return the compiled library; None without a C compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source, library = folder / "nim.c", folder / "nim.so"
    source.write_text(SOURCE, encoding="utf-8")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    return library


FOLDER = tempfile.TemporaryDirectory(prefix="nim_c")
"""Holds the library of this process."""


@functools.cache
def own_library() -> Path:
    library = compiled(Path(FOLDER.name))
    if library is None:
        raise RuntimeError("no C compiler (cc) on the path")
    return library


@functools.cache
def loaded(library: Path) -> Any:
    nim = ctypes.CDLL(str(library))
    nim.nim_new.restype = ctypes.c_void_p
    pointer, number = ctypes.c_void_p, ctypes.c_int
    nim.nim_reset.argtypes = [pointer, ctypes.c_uint]
    nim.nim_heap.argtypes = [pointer, number]
    nim.nim_take.argtypes = [pointer, number, number]
    return nim


class Nim(AECEnv[str, Any, int]):  # type: ignore[misc]  # PettingZoo ships no types
    """The player that takes the last stick earns 1, the other one -1."""

    metadata: ClassVar[dict[str, Any]] = {"name": "nim_c", "is_parallelizable": False}
    render_mode = None

    def __init__(self, library: Path | None = None, shared: bool = False) -> None:
        """``library`` is a result of ``compiled``; None: compile it, once per process."""
        self.library = library or own_library()
        self.address: int = loaded(self.library).nim_new(int(shared))
        self.possible_agents = ["first", "second"]
        self.seeds = np.random.default_rng()
        self._actions = spaces.Discrete(3 * LARGEST)
        heaps = spaces.Box(0, 8, (3,), np.int64)
        mask = spaces.Box(0, 1, (3 * LARGEST,), np.int8)
        self._space = spaces.Dict({"observation": heaps, "action_mask": mask})

    def observation_space(self, agent: str) -> spaces.Space[Any]:
        return self._space

    def action_space(self, agent: str) -> spaces.Space[Any]:
        return self._actions

    def heaps(self) -> list[int]:
        return [loaded(self.library).nim_heap(self.address, i) for i in range(3)]

    def observe(self, agent: str) -> Any:
        heaps = self.heaps()
        mask = [int(k <= heap) for heap in heaps for k in range(1, LARGEST + 1)]
        return {"observation": np.array(heaps), "action_mask": np.array(mask, np.int8)}

    def reset(self, seed: int | None = None, options: Any = None) -> None:
        if seed is not None:
            self.seeds = np.random.default_rng(seed)
        loaded(self.library).nim_reset(self.address, int(self.seeds.integers(2**31)))
        self.agents = list(self.possible_agents)
        self.rewards = dict.fromkeys(self.agents, 0.0)
        self._cumulative_rewards = dict.fromkeys(self.agents, 0.0)
        self.terminations = dict.fromkeys(self.agents, False)
        self.truncations = dict.fromkeys(self.agents, False)
        self.infos: dict[str, dict[str, Any]] = {agent: {} for agent in self.agents}
        self.agent_selection = self.agents[0]

    def step(self, action: int | None) -> None:
        mover = self.agent_selection
        if self.terminations[mover]:
            self._was_dead_step(action)
            return
        assert action is not None
        self._cumulative_rewards[mover] = 0.0
        self._clear_rewards()
        heap, count = divmod(int(action), LARGEST)
        if loaded(self.library).nim_take(self.address, heap, count + 1):
            self.rewards = {agent: 1.0 if agent == mover else -1.0 for agent in self.agents}
            self.terminations = dict.fromkeys(self.agents, True)
        self.agent_selection = self.agents[1 - self.agents.index(mover)]
        self._accumulate_rewards()
