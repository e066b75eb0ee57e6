"""``python -m tests.chaos [--schedules N] [--from SEED] [--seconds N]`` runs many schedules.

``--seed N`` shortens one that breaks and prints it; ``--trace N`` prints the whole of one.
"""

import sys

from tests.chaos.run import main

sys.exit(main(sys.argv[1:]))
