"""kill -9 at 50 moments of an evaluation: `python -m tests.attacks.kills`; options as in `tests.evaluate.kill_test`.

The rows of the killed run, which was started again each time, must be those of one that ran through, byte for byte.
"""

from __future__ import annotations

import sys

from tests.evaluate.kill_test import main

_PLANNED = ["--scenes", "480", "--kills", "50"]  # 60 parts: a kill comes after one of them on average

if __name__ == "__main__":
    sys.argv[1:1] = _PLANNED
    main()
