"""`python -m foretool` is the command `foretool`."""

from foretool.server.cli import main

if __name__ == "__main__":
    main()
