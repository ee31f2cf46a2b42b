"""`python -m sesame`."""

from sesame.cli import main

if __name__ == "__main__":
    main()
