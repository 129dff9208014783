"""What a critic sees of a rollout.

| critic | its vector |
|---|---|
| "own" | the own observation |
| "state" | the global state, and the own observation |
| "observations" | the observations of all agents, in the order of their policies |
| "observations+actions" | those, and what the others do in this step; 0 for who does not act |

Besides, which of its policy's agents it is; and the images of those observations.
"""

from __future__ import annotations

import numpy as np

from corral.envs.core import Array
from corral.trainers.on_policy.buffer import Rollout, Seat
from corral.trainers.on_policy.learner import CriticInput

__all__ = ["critic_parts", "critic_sees"]


def critic_sees(seat: Seat, seats: list[Seat], kind: str, features: int) -> CriticInput:
    """The size of it for an agent of ``seat``; ``features`` are those of the global state."""
    own = seat.layout
    if kind in ("own", "state"):
        state = features if kind == "state" else 0
        return state + own.width + seat.identities, own.images, own.scales
    layouts = [(each.layout, each.actions) for each in seats for _ in each.agents]
    width = seat.identities + sum(layout.width for layout, _ in layouts)
    if kind == "observations+actions":
        width += sum(actions.encoded for _, actions in layouts)
    images = tuple(image for layout, _ in layouts for image in layout.images)
    return width, images, tuple(s for layout, _ in layouts for s in layout.scales)


def critic_parts(
    rollout: Rollout, i: int, kind: str, *, own_action: bool = False, final: bool = False
) -> list[Array]:
    """What the critic of seat ``i`` sees, by ``kind``: a vector and images.

    Of all moments of a rollout, [T + 1, B, P, ...], or of the ``final`` ones, [E, P, ...].
    """
    state = np.concatenate(rollout.final_state) if final else rollout.state
    vectors, images = [], []
    for track, finals in zip(rollout.tracks, rollout.finals, strict=True):
        seen = finals if final else [track]
        vectors.append(np.concatenate([each.vector for each in seen]))
        images.append(
            [np.concatenate(pair) for pair in zip(*(e.images for e in seen), strict=True)]
        )
    own, seats = rollout.tracks[i].seat, [track.seat for track in rollout.tracks]
    if kind == "own":
        parts = [vectors[i], *images[i]]
    elif kind == "state":
        shape = (*vectors[i].shape[:-1], state.shape[-1])
        wide = np.broadcast_to(state[..., None, :], shape)
        parts = [np.concatenate([wide, vectors[i]], axis=-1), *images[i]]
    else:
        width = own.layout.width
        everyone = [
            v[..., : seat.layout.width].reshape(*state.shape[:-1], -1)
            for v, seat in zip(vectors, seats, strict=True)
        ]
        both = np.concatenate(everyone, axis=-1)[..., None, :]  # [*L, 1, sum of F]
        columns = [np.broadcast_to(both, (*vectors[i].shape[:-1], both.shape[-1]))]
        if kind == "observations+actions":
            columns.append(actions_shown(rollout, i, own_action, final))
        columns.append(vectors[i][..., width:])
        parts = [np.concatenate(columns, axis=-1)]
        for seat, pictures in zip(seats, images, strict=True):
            for j in range(len(seat.agents)):
                for picture in pictures:
                    one = picture[..., j, None, :, :, :]
                    shape = (*one.shape[:-4], len(own.agents), *one.shape[-3:])
                    parts.append(np.ascontiguousarray(np.broadcast_to(one, shape)))
    return parts


def actions_shown(rollout: Rollout, i: int, own_action: bool, final: bool) -> Array:
    """Everybody's actions for the critic of seat ``i``, its own left out: [*L, P, columns]."""
    own, each, agents = rollout.tracks[i].seat, [], []
    for k, track in enumerate(rollout.tracks):
        seat = track.seat
        if final:
            action = np.concatenate(rollout.final_action[k])
            acts = np.concatenate(rollout.final_acts[k])
        else:
            action = np.concatenate([track.action, track.next_action[None]])
            acting = np.concatenate([rollout.acted, rollout.acting[None]])
            acts = acting[..., seat.columns]
        shown = seat.actions.encode(action.reshape(acts.size, *seat.actions.shape))
        shown = shown.reshape(*acts.shape, -1) * acts[..., None]
        each.append(shown.reshape(*acts.shape[:-1], -1))
        agents += [agent for agent in seat.agents for _ in range(seat.actions.encoded)]
    everyone = np.concatenate(each, axis=-1).astype(np.float32)
    parts = np.repeat(everyone[..., None, :], len(own.agents), axis=-2)
    if not own_action:
        for j, agent in enumerate(own.agents):
            parts[..., j, np.array(agents) == agent] = 0.0
    return parts
