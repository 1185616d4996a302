"""What a checker reads at most."""

from __future__ import annotations

#: Most bytes of a file, after decompression, unless told otherwise.
MAX_BYTES = 256 * 2**20
#: Most values in a file, counted by commas and opening brackets; archived certificates hold 720,000.
MAX_VALUES = 10**7
#: Most requests of an instance.
MAX_REQUESTS = 10**6
#: Most characters of the names of all requests.
MAX_NAMES = 2**28
#: Most affine pieces or prefill levels of a cost model.
MAX_RATES = 10**5
#: Numbers of a certificate that are not read digit by digit are below this.
MAX_INTEGER = 2**256
