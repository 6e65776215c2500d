"""`python -m polyhal`, if the console script is not on the path."""

from polyhal.cli import main

if __name__ == "__main__":
    main()
