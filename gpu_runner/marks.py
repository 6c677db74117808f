"""Marks that stand in a text where a medium belongs: `<image>`, `<video>`, `<audio>`."""

import re

MARK = re.compile("<(image|video|audio)>")
