"""Between schedules and lives in steps of one batch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infermax_opt.infermax.data.instance import Instance
from infermax_opt.infermax.data.schedule import Batch, Schedule, run_length
from infermax_opt.infermax.planners.lives._kernel import AWAY, DECODE, ENTER, IDLE
from infermax_opt.infermax.replay.state import State

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Lives = npt.NDArray[np.int8]

__all__ = ["lives_of", "written"]


def lives_of(instance: Instance, schedule: Schedule) -> Lives | None:
    """What each request does in each batch of a valid schedule; None where something enters in chunks."""
    import numpy as np

    state, present = State(instance), set[int]()
    lives = np.zeros((len(instance.requests), schedule.length), np.int8)
    t = 0
    for batch in schedule.batches:
        for name in batch.evict:
            state.set_cached(instance.index[name], 0)
        tokens = {instance.index[name]: some for name, some in batch.tokens.items()}
        for _ in range(batch.repeat):
            touched = present | tokens.keys()
            for i in touched:
                processed = tokens.get(i, int(batch.decode_all and state.decoding(i)))
                if processed == 0:
                    lives[i, t] = IDLE if state.cached[i] else AWAY
                    continue
                if processed != state.missing(i):
                    return None
                lives[i, t] = DECODE if state.decoding(i) else ENTER
                state.generated[i] += 1
                state.set_cached(i, 0 if state.finished(i) else state.cached[i] + processed)
            present = {i for i in touched if state.cached[i]}
            t += 1
    return lives


def written(instance: Instance, lives: Lives) -> Schedule:
    """The schedule of some lives."""
    import numpy as np

    requests = instance.requests
    ends = np.array([request.output_tokens for request in requests])
    made, active = np.zeros(len(requests), np.int64), np.zeros(len(requests), bool)
    batches = []
    for does in lives.T:
        evict = tuple(requests[i].id for i in np.flatnonzero(active & (does == AWAY)))
        decoding = does == DECODE
        everyone = bool(decoding.any()) and not bool((does == IDLE).any())
        tokens = {
            requests[i].id: requests[i].input_tokens + int(made[i]) for i in np.flatnonzero(does == ENTER)
        }
        if not everyone:
            tokens.update((requests[i].id, 1) for i in np.flatnonzero(decoding))
        if tokens or evict or everyone:
            batches.append(Batch(tokens, evict, None, everyone))
        made += decoding | (does == ENTER)
        active = (does != AWAY) & (made < ends)
    return Schedule(instance.name, run_length(batches))
