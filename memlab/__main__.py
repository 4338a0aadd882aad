"""`memlab` on the command line."""

import sys

from memlab._cli import main

if __name__ == "__main__":
    sys.exit(main())
