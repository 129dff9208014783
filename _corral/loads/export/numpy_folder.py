"""``run.export("numpy")``: a folder that decides with NumPy only.

| file | |
|---|---|
| ``policy.py`` | ``Decider``: the source of the modules in ``PARTS``, unchanged |
| ``about.json`` | observations, actions, and the structure of the networks |
| ``weights.npz`` | the weights, float32 |
| ``manifest.json`` | size and SHA-256 of each file, checked by ``Decider``: see ``manifest`` |

The rules exist only once: policy.py is assembled here from the source that corral itself runs.
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
"""The whole module."""

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
    f"{DFAAS}.residual": WHOLE,
    f"{DFAAS}.features": {
        "SUMMARIES": (),
        "RANKS": (),
        "LARGEST": (),
        "HALFWAY": (),
        "BY_CAPACITY": (),
        "MANY": (),
        "OwnLoad": (),
        "KNOWN": (),
        "Every": ("space",),
        "Summary": ("space",),
        "Neighborhood": (),
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
        "MAX_MANIFEST": (),
        "MAX_TEXT": (),
        "MAX_WEIGHTS": (),
        "MAX_VALUES": (),
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
"""Module -> definitions copied into policy.py -> omitted methods."""

NAMESPACES = (f"{DFAAS}.routes", f"{DFAAS}.splits")
"""Modules that are used by qualified names, as in ``routes.fill``."""

CHECKED = 300
"""Number of random observations for checking a new folder."""

GIVEN = """\
    forwards = decider.decide(nodes, previous, state)

``nodes``: name -> arrivals, capacity and queue (default 0) of this step; ``previous``: name ->
spare and lost at the end of the last step, None at the start. Returns name -> other -> requests.
"""
GIVEN_BEFORE = """\
    plans = decider.decide(nodes, previous, state{time})

``nodes``: name -> last_arrivals (the count of the last step, or a list, newest first), capacity and
queue (default 0) of this step; ``previous``: name -> spare and lost at the end of the last step,
None at the start. Returns name -> plan: keep, share, most, caps, route, order.
"""

HEADER = '''"""Decide which node forwards how many requests to which node, with NumPy only: {kind}.

    from policy import Decider

    decider = Decider()
    state = decider.start()  # once; then at every step:
{usage}The nodes: {nodes}.
``decider.by_rule("overflow/capacity")`` returns a decider for the same nodes by a rule.

Written by corral {version} from its own source. Do not edit: export again.
"""

from __future__ import annotations

{imports}

Array = np.ndarray
Caps = DfaasState = Load = Trace = object


class UnknownNameError(ValueError):
    """An unknown name."""

    @classmethod
    def of(cls, what, name, known):
        return cls(f"no {{what}} named {{name!r}}; known: {{', '.join(known)}}")


class ArgumentError(ValueError):
    """An argument is out of range."""


def read_file(path, most):
    """Return all bytes of a regular file of at most ``most`` bytes. Raises OSError."""
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

    Raises RunError for networks with unsupported layers, and if the NumPy copies choose other
    actions than the policies.
    """
    decider = run.decider
    networks: list[dict[str, Any]] = []
    weights: dict[str, Any] = {}
    if "rule" not in decider.about:
        networks, weights = _networks(decider)
        odd = odd_actions(decider, NetworkActor(networks, weights), CHECKED)
        if odd:
            raise RunError(
                f"{run.name}: its networks in NumPy choose other actions in {odd} of {CHECKED} "
                "observations"
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
    """Return the networks of a ``Decider`` in NumPy. Raises RunError for unsupported networks."""
    return NetworkActor(*_networks(decider))


def odd_actions(
    decider: Any, actor: NetworkActor, observations: int, *, tolerance: float = 1e-5, seed: int = 0
) -> int:
    """Return the number of random observations for which ``actor`` and the policies of a
    ``Decider`` choose different actions, and the two best logits differ by more than ``tolerance``.

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
    numpy_actions = greedy(logits, masks)
    policy_actions = [
        policy.act(masked(features[:, i], masks[:, i]), before[i], deterministic=True).action
        for i, policy in enumerate(decider.actor.policies)
    ]
    return int(
        ((numpy_actions != np.stack(policy_actions, axis=1)) & (best - second > tolerance)).sum()
    )


# --- Source --------------------------------------------------------------------------------------


def source(name: str, decider: NodeDecider) -> str:
    """Return the text of policy.py."""
    shown = ", ".join(decider.nodes[:8]) + (", ..." if len(decider.nodes) > 8 else "")
    kind = f"the rule {decider.about['rule']}" if "rule" in decider.about else "a trained team"
    texts, imports = [], {*HEADER_IMPORTS}
    for module, parts in PARTS.items():
        text = inspect.getsource(importlib.import_module(module))
        definitions = dict(_parts(text, parts))
        missing = parts.keys() - definitions.keys()
        assert not missing, f"{module} has no {missing}"
        texts += [f"# --- {module} ".ljust(100, "-"), *definitions.values()]
        if module in NAMESPACES:
            members = ", ".join(f"{name}={name}" for name in definitions)
            texts.append(f"{module.rpartition('.')[2]} = SimpleNamespace({members})")
        imports |= _imports(text, "\n".join(definitions.values()))
    usage = GIVEN
    if decider.arrivals == "unknown":
        time = "" if decider.daily_mean is None else ', time="2026-03-01T12:05:00Z"'
        usage = GIVEN_BEFORE.format(time=time)
    header = HEADER.format(
        kind=kind,
        usage=usage,
        nodes=_plain(shown),
        version=corral.__version__,
        imports="\n".join(sorted(imports)),
    )
    return "\n\n\n".join([header.rstrip(), *texts]) + "\n"


def _imports(text: str, kept: str) -> set[str]:
    """Return the imports of NumPy and of the standard library that the ``kept`` parts of a module
    use."""
    used = {node.id for node in ast.walk(ast.parse(kept)) if isinstance(node, ast.Name)}
    statements = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                place = node.module or "" if isinstance(node, ast.ImportFrom) else alias.name
                is_available = place.partition(".")[0] in {"numpy", *sys.stdlib_module_names}
                if is_available and (alias.asname or alias.name) in used:
                    from_import = ast.ImportFrom(place, [alias], 0)
                    is_import = isinstance(node, ast.Import)
                    statements.add(ast.unparse(ast.Import([alias]) if is_import else from_import))
    return statements


def _parts(text: str, wanted: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
    """Yield name and source of the ``wanted`` classes, functions and constants of a module, without
    the methods listed for them; of all of them if ``wanted`` is WHOLE."""
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
    """Return the first line of a definition, including its decorators."""
    lines = [node.lineno, *(decorator.lineno for decorator in getattr(node, "decorator_list", ()))]
    return int(min(lines))


def _end(node: Any) -> int:
    return int(node.end_lineno)


def _plain(text: str) -> str:
    """Return a text that cannot end a docstring."""
    return text.replace("\\", "/").replace('"', "'")


# --- Networks ------------------------------------------------------------------------------------


def _networks(decider: Any) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """Return the arguments of ``NetworkActor``, with one network for all nodes that share it."""
    from corral.loads.export.layers import layers_of

    groups: dict[int, list[int]] = {}
    layers = [
        layers_of(agent, policy, decider.features.size)
        for agent, policy in zip(decider.actor.agents, decider.actor.policies, strict=True)
    ]
    for row, node_layers in enumerate(layers):
        groups.setdefault(id(node_layers.network), []).append(row)
    networks: list[dict[str, Any]] = []
    weights: dict[str, Array] = {}
    for i, rows in enumerate(groups.values()):
        first = layers[rows[0]]
        networks.append({"nodes": rows, **first.about})
        arrays = {"input": np.stack([layers[row].input for row in rows]), **first.arrays}
        weights |= {f"{i}.{name}": np.ascontiguousarray(array) for name, array in arrays.items()}
    return networks, weights
