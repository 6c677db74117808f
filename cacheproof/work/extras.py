"""Libraries that some commands need and not every installation has."""

import shlex
import sys
from importlib.metadata import requires


def install_line(extra: str) -> str:
    """The command that adds what an extra brings to this interpreter. It names the libraries, not
    cacheproof: no package index has that."""
    marker = f'extra == "{extra}"'
    lines = [one.partition(";") for one in requires("cacheproof") or ()]
    libraries = [library.strip() for library, _, when in lines if marker in when]
    return shlex.join([sys.executable, "-m", "pip", "install", *libraries])
