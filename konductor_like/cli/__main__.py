"""``python -m konductor_like.cli``."""

import sys

from konductor_like.cli import main

sys.exit(main())
