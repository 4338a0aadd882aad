"""`memlab` on the command line."""

import sys

from memlab._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
