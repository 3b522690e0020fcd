"""`python -m foretool` is the command `foretool`."""

import sys

# Python puts the working folder first. It may be a cloned repository, so no module is taken from there: all of ours and
# of our dependencies are found without it.
if not sys.flags.safe_path:
    sys.path.pop(0)

from foretool.server.cli import main

if __name__ == "__main__":
    main()
