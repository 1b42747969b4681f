"""`python -m hubbub`: the command line."""

from hubbub.cli import main

main()
