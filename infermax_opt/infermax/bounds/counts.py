"""Lower bounds on the number of batches.

A token of request i generated when n tokens exist already needs held(I_i + n) KV after its
batch, and a request generates at most one token per batch.  So the generated tokens are items of
these sizes, packed into batches of capacity M, R_max items and C tokens each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infermax_opt.infermax.bounds.sizes import Sizes
from infermax_opt.infermax.bounds.spacing import spaced_batches
from infermax_opt.infermax.data.instance import Instance, RequestType

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

__all__ = ["BatchCounts", "blocks_of", "blocks_upto", "count_batches", "count_batches_of"]

#: Largest KV size (in blocks) for which the sizes are tabulated.
MAX_TABLE = 20_000_000


@dataclass(frozen=True)
class BatchCounts:
    """Proved lower bounds on numbers of batches.

    Attributes
    ----------
    total : dict of str to int
        Bounds on all batches, by argument.
    prefill : int
        Batches that hold a prefilling request.
    decode : int
        Batches that hold a decoding request (0 where refills could replace every decode step).
    cuts : dict of str to int
        For ``KV area`` the k of its bound L2, for ``KV slots`` its x, both in blocks; for ``KV spacing`` its
        x in parts of `SCALE`.
    """

    total: dict[str, int]
    prefill: int
    decode: int
    cuts: dict[str, int]


def count_batches(instance: Instance, kinds: Sequence[RequestType]) -> BatchCounts:
    """Bound the batches needed to serve the requests of `kinds`, all there from the start."""
    return count_batches_of(instance, Sizes.of(kinds))


def count_batches_of(instance: Instance, sizes: Sizes) -> BatchCounts:
    """Bound the batches needed to serve requests of these lengths, all there from the start.

    Notes
    -----
    ``longest request``: the prompt of request i takes ceil(I/min(P, C)) batches, and every later
    token one more.

    ``prefill tail``: for any o, the prompts of the requests with O >= o take
    ceil(sum I / min(P, C)) batches; the one whose first token comes last still needs o - 1 more.

    ``token budget``: every schedule processes at least I + O - 1 tokens of each request, C per
    batch.  ``running limit``: at most R_max requests generate a token in one batch.

    ``KV area``: generated tokens as items of a bin packing problem with capacity M, by the bound
    L2 of Martello and Toth (1990): for 0 <= k <= M/2, items above M - k fill a bin each, those
    above M/2 need a bin each, and items between k and M/2 fill at most what those leave.

    ``KV slots``: for any x, a batch generates at most M/x tokens whose KV takes x or more.

    ``KV spacing``: without preemption, `spaced_batches`, where all requests are equal.

    ``separate phases``: without hybrid batching and without preemption, first tokens come from
    prefill batches and all others from decode batches, and no batch is both.
    """
    system, policy = instance.system, instance.policy
    budget = system.prefill_budget
    i, o, count = sizes
    prompts, outputs, requests = int((i * count).sum()), int((o * count).sum()), int(count.sum())
    prefill = -(-prompts // budget)
    if not policy.chunked_prefill:
        prefill = max(prefill, int(count[2 * i > budget].sum()))
    decode = 0
    if not policy.preemption:
        decode = max(int(o.max()) - 1, -(-(outputs - requests) // system.max_batch_tokens))
    (area, cut), (slots, least) = _area(instance, sizes)
    cuts = {"KV area": cut, "KV slots": least}
    total = {
        "longest request": int((-(-i // budget) + o - 1).max()),
        "prefill tail": _tail(sizes, budget),
        "token budget": -(-(prompts + outputs - requests) // system.max_batch_tokens),
        "KV area": area,
        "KV slots": slots,
    }
    if system.max_running is not None:
        total["running limit"] = -(-outputs // system.max_running)
    if not policy.preemption and sizes.are_equal:
        alike = int(i[0]), int(o[0]), requests
        total["KV spacing"], cuts["KV spacing"] = spaced_batches(*alike, system.kv_capacity, budget)
    if not policy.preemption and not policy.hybrid_batching:
        total["separate phases"] = prefill + decode
    return BatchCounts(total, prefill, decode, cuts)


def _tail(sizes: Sizes, budget: int) -> int:
    longest = (-sizes.outputs).argsort(kind="stable")
    prompts = (sizes.inputs * sizes.counts)[longest].cumsum()
    return int((-(-prompts // budget) + sizes.outputs[longest] - 1).max())


def _area(instance: Instance, sizes: Sizes) -> tuple[tuple[int, int], tuple[int, int]]:
    """L2 over the KV sizes of all generated tokens, in blocks, and its k; slots and their x."""
    block = instance.system.block_size
    capacity = instance.system.kv_capacity // block
    i, o, count = sizes
    top = int((-(-(i + o - 1) // block)).max())
    volume = blocks_of(sizes, block)
    items = int((o * count).sum())
    if top > MAX_TABLE or max(volume, items * capacity) >= 2**62:
        # Too much for a table, or for its 64-bit sums: the volume alone.
        return (-(-volume // capacity), 0), (-(-items // capacity), 1)
    table = _histogram(sizes, block, top)
    return _martello_toth(table, capacity), _slots(table, capacity)


def blocks_upto(last: Any, block: int) -> Any:
    """Sum of ceil(x / block) for x = 1..last, a number or a column of them."""
    full, rest = last // block, last % block
    return block * full * (full + 1) // 2 + rest * (full + 1)


def blocks_of(sizes: Sizes, block: int) -> int:
    """Blocks that all requests hold when they generate a token, summed over their tokens."""
    before = sizes.inputs - 1
    each = blocks_upto(before + sizes.outputs, block) - blocks_upto(before, block)
    return int((each * sizes.counts).sum())


def _histogram(sizes: Sizes, block: int, top: int) -> npt.NDArray[np.int64]:
    """Number of generated tokens per KV size in blocks (index 0 unused)."""
    import numpy as np

    i, o, count = (column.astype(np.int64) for column in sizes)
    steps = np.zeros(top * block + 2, dtype=np.int64)
    np.add.at(steps, i, count)
    np.add.at(steps, i + o, -count)
    per_size = np.cumsum(steps)[1 : top * block + 1]
    blocks = per_size.reshape(top, block).sum(axis=1)
    return np.concatenate([np.zeros(1, dtype=np.int64), blocks])


def _slots(table: npt.NDArray[np.int64], capacity: int) -> tuple[int, int]:
    """Most batches over all x, and that x: of the x with the same number of slots, the least one."""
    import numpy as np

    most = np.cumsum(table[::-1])[::-1]  # tokens of x blocks or more
    x = np.arange(1, len(table), dtype=np.int64)
    batches = -(-most[1:] // (capacity // x))
    best = int(batches.argmax())
    return int(batches[best]), best + 1


def _martello_toth(table: npt.NDArray[np.int64], capacity: int) -> tuple[int, int]:
    import numpy as np

    top = len(table) - 1
    number = np.cumsum(table)
    volume = np.cumsum(table * np.arange(top + 1, dtype=np.int64))

    def upto(values: npt.NDArray[np.int64], size: Any) -> Any:
        return values[np.clip(size, 0, top)]

    half = capacity // 2
    k = np.arange(0, half + 1 if half <= top else top + 1, dtype=np.int64)
    big = number[-1] - upto(number, half)  # items above M/2
    big_volume = volume[-1] - upto(volume, half)
    huge = number[-1] - upto(number, capacity - k)  # items above M - k
    huge_volume = volume[-1] - upto(volume, capacity - k)
    large = big - huge
    room = large * capacity - (big_volume - huge_volume)
    small = upto(volume, half) - upto(volume, k - 1)  # items in [k, M/2]
    excess = -((room - small) // capacity)  # ceil((small - room) / M)
    bounds = big + np.maximum(excess, 0)
    best = int(bounds.argmax())
    return int(bounds[best]), best
