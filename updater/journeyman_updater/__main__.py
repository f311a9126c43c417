"""`python -m journeyman_updater`."""

import sys

from journeyman_updater.cli import main

sys.exit(main())
