"""What a claim of the paper looks like on the page, and how numbers are written there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

__all__ = ["MODELS", "Claim", "StaleTextError", "both", "percent", "summary", "times"]

#: The cost models that every claim is tested under, in the order in which numbers are given.
MODELS = ("paper", "a100")


class StaleTextError(RuntimeError):
    """The tables no longer support what the page says in words."""


@dataclass(frozen=True)
class Claim:
    """One claim of the paper and what became of it.

    Parameters
    ----------
    title, section : str
    paper : str
        What the paper says, in our words.
    measured : sequence of str
        What the tables say; one item each.
    verdict : {"agree", "partly", "disagree", "not testable"}
    why : str
    relies_on : sequence of bool
        Facts read off the tables that the words rest on.

    Raises
    ------
    StaleTextError
        If one of the facts is not true: then the words have to be written again.
    """

    title: str
    section: str
    paper: str
    measured: Sequence[str]
    verdict: str
    why: str
    relies_on: Sequence[bool] = ()

    def __post_init__(self) -> None:
        for number, fact in enumerate(self.relies_on, 1):
            if not fact:
                raise StaleTextError(f"claim {self.title!r}: fact {number} is not true of the tables")

    def text(self, number: int, heading: str = "###") -> str:
        """The claim as a part of the page.

        Parameters
        ----------
        number : int
        heading : str
            Marks of its heading.
        """
        measured = "\n".join(f"  - {line}" for line in self.measured)
        return (
            f"{heading} {number}. {self.title}\n\n"
            f"- **Paper** ({self.section}): {self.paper}\n"
            f"- **Measured**:\n{measured}\n"
            f"- **{self.verdict.capitalize()}.** {self.why}\n"
        )


def summary(claims: Sequence[Claim], where: str = "section") -> str:
    """The part of the page that tells all claims in short; `where` heads the column of their sections."""
    lines = ["## In short", "", f"| | claim | {where} | verdict |", "| ---: | --- | --- | --- |"]
    lines += [f"| {n} | {c.title} | {c.section} | {c.verdict} |" for n, c in enumerate(claims, 1)]
    return "\n".join(lines) + "\n"


def both(value: Callable[[str], str]) -> str:
    """A number under both cost models, as in "1.2x / 1.3x"."""
    return " / ".join(value(model) for model in MODELS)


def times(value: float) -> str:
    """A factor."""
    return f"{value:,.0f}x" if value >= 100 else f"{value:.2f}x"


def percent(share: float) -> str:
    """A share of one, in percent."""
    return f"{100 * share:.1f} %"
