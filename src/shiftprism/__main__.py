"""`python -m shiftprism` is `shiftprism`."""

from shiftprism.cli import main

if __name__ == "__main__":
    main()
