"""Measured batches: what was measured, whichever file it came from.

A sample is a batch with the seconds that it, or a part of it, took.  The parts are the terms of the cost
model: a "batch" is all of it, "dense" all but attention, "attention" attention alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

from infermax_opt.core.errors import InputError
from infermax_opt.infermax.data.cost import Attention, BatchFeatures

__all__ = ["FORMATS", "PARTS", "REGIONS", "BatchSamples", "Sample", "region"]

#: What a sample's seconds are of.
PARTS = ("batch", "dense", "attention")
#: Layouts of files, as reports name them.
FORMATS = {
    "batches": "rows of whole batches",
    "kernels": "kernel tables of vLLM",
    "vidur": "Vidur's profile of operators",
    "aiconfigurator": "batches of aiconfigurator-core",
}
#: Kinds of batches by what they hold.
REGIONS = ("pure decode", "pure prefill", "mixed")


class Sample(NamedTuple):
    """A batch, and the seconds that it or a part of it took.

    Attributes
    ----------
    tokens, decodes, decode_kv, prefills : int
        As in `BatchFeatures`.
    square, exact : int
        Attention work of the prefills, counted either way, in token pairs.
    prefill_kv : int
        As in `BatchFeatures`.
    seconds : Fraction
    """

    tokens: int
    decodes: int
    decode_kv: int
    prefills: int
    square: int
    exact: int
    prefill_kv: int
    seconds: Fraction

    def features(self, attention: Attention) -> BatchFeatures:
        """What the cost model needs to know of the batch."""
        work = self.exact if attention is Attention.EXACT else self.square
        return BatchFeatures(self.tokens, self.decodes, self.decode_kv, self.prefills, work, self.prefill_kv)


def region(sample: Sample) -> str:
    """Which of `REGIONS` a batch is in."""
    if sample.decodes and sample.prefills:
        return "mixed"
    return "pure decode" if sample.decodes else "pure prefill"


@dataclass(frozen=True)
class BatchSamples:
    """All that a file, or a folder, holds.

    Attributes
    ----------
    path : str
    form : str
        Key of `FORMATS`.
    parts : mapping of str to tuple of Sample
        What the model is fitted to, by key of `PARTS`; those without samples have no key.
    batches : tuple of Sample
        Whole batches, on which errors are counted: the samples themselves, or those composed of measured
        parts.
    notes : tuple of str
        What was left out, and what was assumed.
    kernel_time_only : bool
        Whether the times know nothing of the CPU.
    """

    path: str
    form: str
    parts: Mapping[str, tuple[Sample, ...]]
    batches: tuple[Sample, ...]
    notes: tuple[str, ...]
    kernel_time_only: bool

    @property
    def title(self) -> str:
        """The file or the folder without where it lies; what is no file whole."""
        return self.path if self.form == "aiconfigurator" else os.path.basename(self.path)

    def composed(self) -> BatchSamples:
        """The same with the whole batches that were composed of measured parts, in place of these.

        Raises
        ------
        InputError
            If there are none.
        """
        if "batch" in self.parts or not self.batches:
            what = (
                "whole batches already" if self.batches else "no attention, without which there is no batch"
            )
            raise InputError(f"holds {what}: nothing can be composed", field="composed", source=self.path)
        return replace(self, parts={"batch": self.batches})

    def rows(self) -> Iterator[tuple[str, Sample]]:
        """All samples with the part that each is of."""
        for part in PARTS:
            for sample in self.parts.get(part, ()):
                yield part, sample
