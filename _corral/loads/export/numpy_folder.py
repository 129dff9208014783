"""``run.export("numpy")``: a folder that decides with NumPy alone.

| file | |
|---|---|
| ``policy.py`` | ``Decider``: the source of the modules in ``PARTS``, as they stand in corral |
| ``about.json`` | how nodes see and choose, and what the networks are made of |
| ``weights.npz`` | the weights, float32 |
| ``manifest.json`` | size and SHA-256 of each file, which ``Decider`` checks: see ``manifest`` |

Nothing of the rules is written twice: policy.py is put together here, out of the source that corral
itself runs.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

import corral
from corral.envs.core import Array
from corral.envs.masks import greedy, masked
from corral.errors import RunError
from corral.files import write_file
from corral.loads.export.core import NodeDecider
from corral.loads.export.manifest import encode_arrays
from corral.loads.export.standalone import (
    ABOUT,
    POLICY,
    WEIGHTS,
    NetworkActor,
    check_about,
    shapes_of,
)

__all__ = ["export_numpy", "network_actor", "odd_actions", "source"]

DFAAS, EXPORT = "corral.envs.dfaas_v0", "corral.loads.export"

WHOLE: dict[str, tuple[str, ...]] = {}
"""All of a module."""

PARTS: dict[str, dict[str, tuple[str, ...]]] = {
    "corral.envs.masks": {"greedy": ()},
    f"{DFAAS}.amounts": {
        "LARGEST_MASK": (),
        "Levels": ("said",),
        "Amounts": ("said",),
        "Shares": ("said",),
        "Keeps": ("said",),
        "Choices": (),
    },
    f"{DFAAS}.routes": WHOLE,
    f"{DFAAS}.splits": WHOLE,
    f"{DFAAS}.network": {"Network": ("forward", "_take_turns", "_offer")},
    f"{DFAAS}.load": {"Recorded": ("begin",)},
    f"{DFAAS}.past": {"late_reports": (), "keep_reports": ()},
    f"{DFAAS}.features": {
        "RANKS": (),
        "LARGEST": (),
        "BY_CAPACITY": (),
        "MANY": (),
        "OwnLoad": (),
        "KNOWN": (),
        "Every": ("space",),
        "Summary": ("space",),
        "scaled_reports": (),
        "ranked": (),
        "_ranked_among_all": (),
        "step_keys": (),
        "drawn_pairs": (),
        "Deciding": (),
    },
    f"{DFAAS}.plans": {"KEEP_ALL": (), "Plans": ("of",), "shared": ()},
    f"{DFAAS}.plain_rules": WHOLE,
    f"{EXPORT}.inputs": WHOLE,
    f"{EXPORT}.manifest": {
        "MANIFEST": (),
        "EXPORT_FORMAT": (),
        "MOST_MANIFEST": (),
        "MOST_TEXT": (),
        "MOST_WEIGHTS": (),
        "MOST_VALUES": (),
        "ExportError": (),
        "encode_entries": (),
        "read_export": (),
        "_read": (),
        "decode_json": (),
        "_refuse_constant": (),
        "decode_arrays": (),
        "_array": (),
    },
    f"{EXPORT}.plan_values": WHOLE,
    f"{EXPORT}.core": WHOLE,
    f"{EXPORT}.standalone": WHOLE,
}
"""Module -> what policy.py has of it -> methods that it does without."""

NAMESPACES = (f"{DFAAS}.routes", f"{DFAAS}.splits")
"""Modules that others name parts of, as in ``routes.fill``."""

CHECKED = 300
"""Random observations that a new folder is checked with."""

GIVEN = """\
    forwards = decider.decide(nodes, previous, state)

``nodes``: name -> arrivals, capacity and queue (default 0) of this step; ``previous``: name ->
spare and lost, as the last step ended, None at the start. The answer is name -> other -> requests.
"""
GIVEN_BEFORE = """\
    plans = decider.decide(nodes, previous, state{time})

``nodes``: name -> last_arrivals (the count of the last step, or a list, newest first), capacity and
queue (default 0) of this step; ``previous``: name -> spare and lost, as the last step ended, None
at the start. The answer is name -> plan: keep, share, most, caps, route, order.
"""

HEADER = '''"""Who forwards how many requests to whom, with NumPy alone: {what}.

    from policy import Decider

    decider = Decider()
    state = decider.start()  # once; then at every step:
{given}The nodes: {nodes}.
``decider.by_rule("overflow/capacity")`` decides for them by a rule.

Written by corral {version}, whose source the parts below are. Do not edit: export again.
"""

from __future__ import annotations

{imports}

Array = np.ndarray
Caps = DfaasState = Load = Trace = object


class UnknownNameError(ValueError):
    """A name that means nothing here."""

    @classmethod
    def of(cls, what, name, known):
        return cls(f"no {{what}} named {{name!r}}; known: {{', '.join(known)}}")


class ArgumentError(ValueError):
    """An argument out of its range."""


def read_file(path, most):
    """Return all bytes of a regular file, ``most`` or fewer. Raises OSError."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags)  # a named pipe would block without O_NONBLOCK
    try:
        about = os.fstat(handle)
        if not stat.S_ISREG(about.st_mode) or about.st_size > most:
            text = f"is not a regular file, or has more than {{most:,}} bytes"
            raise OSError(errno.EINVAL, text, str(path))
        with open(handle, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(handle)
'''

HEADER_IMPORTS = {"import errno", "import os", "import stat"}


def export_numpy(run: Any, folder: Path) -> list[Path]:
    """Write the folder of a run, or of a recommendation, into an empty one.

    Raises RunError for what has no networks of plain layers, and where the copies in NumPy choose
    otherwise than the policies.
    """
    decider = run.decider
    networks: list[dict[str, Any]] = []
    weights: dict[str, Any] = {}
    if "rule" not in decider.about:
        networks, weights = _networks(decider)
        odd = odd_actions(decider, NetworkActor(networks, weights), CHECKED)
        if odd:
            raise RunError(
                f"{run.name}: its networks in NumPy choose otherwise in {odd} of {CHECKED}"
            )
    about = {**decider.about, "team": decider.team, "networks": networks}
    try:
        check_about(about)
        shapes_of(networks)
    except ValueError as error:
        raise RunError(f"{run.name} is too large for an export: {error}") from error
    files = {
        POLICY: source(run.name, decider).encode(),
        ABOUT: (json.dumps(about, indent=1, allow_nan=False) + "\n").encode(),
        WEIGHTS: encode_arrays(weights),
    }
    return [write_file(folder / name, data) for name, data in files.items()]


def network_actor(decider: Any) -> NetworkActor:
    """Return the networks of a ``Decider`` in NumPy. Raises RunError where it cannot."""
    return NetworkActor(*_networks(decider))


def odd_actions(
    decider: Any, actor: NetworkActor, observations: int, *, tolerance: float = 1e-5, seed: int = 0
) -> int:
    """Return how many of so many random observations ``actor`` and the policies of a ``Decider``
    answer by other actions, where the two best logits differ by more than ``tolerance``.

    Features, masks and hidden states are uniformly random.
    """
    rng = np.random.default_rng(seed)
    moments, nodes = -(-observations // len(decider.nodes)), len(decider.nodes)
    space, masks_of = decider.features.space(), decider.actions.masks()
    features = rng.uniform(0, space.high.flat[0], (moments, nodes, decider.features.size))
    features = features.astype(np.float32)
    masks = masks_of[rng.integers(len(masks_of), size=(moments, nodes))]
    hidden = [
        rng.uniform(-1, 1, (moments, len(part.rows), part.memory)).astype(np.float32)
        for part in actor.parts
    ]
    before: list[Any] = [None] * nodes
    for part, state in zip(actor.parts, hidden, strict=True):
        for place, row in enumerate(part.rows.tolist() if part.memory else ()):
            before[row] = state[:, place]
    logits = np.stack(
        [actor.logits(features[m], [h[m] for h in hidden])[0] for m in range(moments)]
    )
    legal = np.where(masks != 0, logits, -np.inf)  # [moments, N, A]
    second, best = np.sort(legal, axis=-1)[..., -2:].transpose(2, 0, 1)
    ours = greedy(logits, masks)
    found = [
        policy.act(masked(features[:, i], masks[:, i]), before[i], deterministic=True).action
        for i, policy in enumerate(decider.actor.policies)
    ]
    return int(((ours != np.stack(found, axis=1)) & (best - second > tolerance)).sum())


# --- Source --------------------------------------------------------------------------------------


def source(name: str, decider: NodeDecider) -> str:
    """Return the text of policy.py."""
    shown = ", ".join(decider.nodes[:8]) + (", ..." if len(decider.nodes) > 8 else "")
    what = f"the rule {decider.about['rule']}" if "rule" in decider.about else "a trained team"
    texts, imports = [], {*HEADER_IMPORTS}
    for module, parts in PARTS.items():
        text = inspect.getsource(importlib.import_module(module))
        found = dict(_parts(text, parts))
        missing = parts.keys() - found.keys()
        assert not missing, f"{module} has no {missing}"
        texts += [f"# --- {module} ".ljust(100, "-"), *found.values()]
        if module in NAMESPACES:
            members = ", ".join(f"{name}={name}" for name in found)
            texts.append(f"{module.rpartition('.')[2]} = SimpleNamespace({members})")
        imports |= _imports(text, "\n".join(found.values()))
    given = GIVEN
    if decider.arrivals == "unknown":
        time = "" if decider.daily_mean is None else ', time="2026-03-01T12:05:00Z"'
        given = GIVEN_BEFORE.format(time=time)
    header = HEADER.format(
        what=what,
        given=given,
        nodes=_plain(shown),
        version=corral.__version__,
        imports="\n".join(sorted(imports)),
    )
    return "\n\n\n".join([header.rstrip(), *texts]) + "\n"


def _imports(text: str, kept: str) -> set[str]:
    """Return those imports of a module, of NumPy and of Python itself, that its ``kept`` parts
    use."""
    used = {node.id for node in ast.walk(ast.parse(kept)) if isinstance(node, ast.Name)}
    found = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for each in node.names:
                place = node.module or "" if isinstance(node, ast.ImportFrom) else each.name
                known = place.partition(".")[0] in {"numpy", *sys.stdlib_module_names}
                if known and (each.asname or each.name) in used:
                    alone = ast.ImportFrom(place, [each], 0)
                    plain = isinstance(node, ast.Import)
                    found.add(ast.unparse(ast.Import([each]) if plain else alone))
    return found


def _parts(text: str, wanted: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Yield name and source of the ``wanted`` classes, functions and constants of a module, without
    the methods named beside them; of all of them if ``wanted`` is WHOLE."""
    lines = text.splitlines()
    for node in ast.parse(text).body:
        name: Any = getattr(node, "name", None)
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            name = getattr(names[0], "id", None)
        if name not in wanted and (wanted is not WHOLE or name in (None, "__all__")):
            continue
        dropped = {
            number
            for part in getattr(node, "body", ())
            if getattr(part, "name", None) in wanted.get(name, ())
            for number in range(_first(part), _end(part) + 1)
        }
        kept = range(_first(node), _end(node) + 1)
        yield name, "\n".join(lines[n - 1] for n in kept if n not in dropped).rstrip()


def _first(node: Any) -> int:
    """Return the first line of a definition, its decorators among them."""
    found = [node.lineno, *(each.lineno for each in getattr(node, "decorator_list", ()))]
    return int(min(found))


def _end(node: Any) -> int:
    return int(node.end_lineno)


def _plain(text: str) -> str:
    """Return a text that ends no docstring."""
    return text.replace("\\", "/").replace('"', "'")


# --- Networks ------------------------------------------------------------------------------------


def _networks(decider: Any) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """Return what ``NetworkActor`` takes, one network for all nodes that share it."""
    from corral.loads.export.layers import layers_of

    groups: dict[int, list[int]] = {}
    found = [
        layers_of(agent, policy, decider.features.size)
        for agent, policy in zip(decider.actor.agents, decider.actor.policies, strict=True)
    ]
    for row, each in enumerate(found):
        groups.setdefault(id(each.network), []).append(row)
    networks: list[dict[str, Any]] = []
    weights: dict[str, Array] = {}
    for i, rows in enumerate(groups.values()):
        first = found[rows[0]]
        networks.append({"nodes": rows, **first.about})
        arrays = {"input": np.stack([found[row].input for row in rows]), **first.arrays}
        weights |= {f"{i}.{name}": np.ascontiguousarray(array) for name, array in arrays.items()}
    return networks, weights
