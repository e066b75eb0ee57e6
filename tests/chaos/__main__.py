"""``python -m tests.chaos [--schedules N] [--from SEED] [--seconds N]`` runs many schedules.

``--seed N`` runs one, made as short as it still breaks something; ``--trace N`` shows all of it as it is.
"""

import sys

from tests.chaos.run import main

sys.exit(main(sys.argv[1:]))
