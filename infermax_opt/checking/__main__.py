"""``python -m infermax_opt.checking``: the command `infermax-opt-check`."""

import sys

from infermax_opt.checking.main import main

if __name__ == "__main__":
    sys.exit(main())
