"""The entry point that a bundle has to name; `uv run` starts the command `foretool` beside it."""

from foretool.server.cli import main

if __name__ == "__main__":
    main()
