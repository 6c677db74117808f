"""`python -m cacheproof`."""

from cacheproof.cli import main

main()
