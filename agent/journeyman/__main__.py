"""Lets `python -m journeyman` do what the `journeyman` command does."""

from journeyman.entry import main

main()
