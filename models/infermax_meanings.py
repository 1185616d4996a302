"""What the columns of the InferMax formulations are, in the words of an instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from infermax_opt.infermax.data.instance import Instance

__all__ = ["column_meaning"]

#: Of columns of a request i (and a number k) and a batch j.
OF_REQUESTS: Mapping[str, str] = {
    "I": "tokens that {i} must have cached for its next token, after batch {j}",
    "m": "tokens of {i} cached after batch {j}",
    "c": "tokens of {i} processed in batch {j}",
    "g": "1 if {i} generates a token in batch {j}",
    "e": "1 if {i} is evicted at the start of batch {j}",
    "d": "1 if {i} is in decode before batch {j}",
    "cz": "1 if {i} is in batch {j}",
    "mz": "1 if {i} has tokens cached after batch {j}",
    "dg": "1 if {i} decodes in batch {j}",
    "h": "1 if {i} has its first token after batch {j}",
    "f": "1 if {i} is finished after batch {j}",
    "t": "1 if {i} has {k} tokens or more after batch {j}",
    "v": "1 if {i} has {k} tokens or more cached after batch {j}",
    "r": "cached tokens that the decode of {i} in batch {j} reads",
    "q": "cached tokens that a decode of {i} would read in batch {j}, if a refill did not stand in for it",
    "w": "prefill attention work of {i} in batch {j}",
    "y": "ticks of batch {j} and of the wait before it, if {i} is unfinished",
    "x": "ticks of batch {j} and of the wait before it, in one phase of {i}: before or after its first token",
    "blocks": "KV blocks of {i} after batch {j}",
    "fill": "1 if a prefill of {i} is under way after batch {j}",
    "sh": "1 if a refill of {i} that stopped one token short ends in batch {j}, as a decode",
}
#: Of columns of a batch j.
OF_BATCHES: Mapping[str, str] = {
    "u": "1 if batch {j} is used",
    "ad": "1 if batch {j} decodes",
    "ap": "1 if batch {j} prefills",
    "nu": "ticks of batch {j} without attention",
    "start": "tick at which batch {j} starts",
    "end": "tick at which batch {j} ends",
}


def column_meaning(instance: Instance, variable: str, index: Sequence[int]) -> str:
    """What a column of a request and a batch, or of a batch alone, is.

    Parameters
    ----------
    instance : Instance
    variable : str
        Its name in the formulation.
    index : sequence of int
        The batch is the last one.
    """
    if variable in OF_BATCHES:
        return OF_BATCHES[variable].format(j=index[-1])
    request = instance.requests[index[0]].id
    return OF_REQUESTS[variable].format(i=request, k=index[1], j=index[-1])
