"""Values of command-line options that several commands take."""

from __future__ import annotations

__all__ = ["TRACE_FORMATS"]

#: Layouts of traces, by name, as `infermax_opt.files.traces` reads them.
TRACE_FORMATS = ("azure", "burstgpt", "mooncake", "splitwise", "vidur")
