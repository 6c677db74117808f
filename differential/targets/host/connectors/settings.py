"""The store of a trace, in the words of cacheproof's connector."""

from pathlib import Path

from ..protocol import Event, Illegal
from .store import ANSWER_SECONDS, LMCACHE_SERVER, PAUSE_SECONDS, SERVER


def settings_of(config: Event, weights: int, root: Path) -> Event:
    """The connector's settings. Raises Illegal for a store that the connector does not know."""
    if config["store"] in ("remote", LMCACHE_SERVER):
        raise Illegal("the connector has no remote folder, and is no client of LMCache's server")
    settings: Event = {"weights": str(weights)}
    if config["store"] == SERVER:
        if config["capacity"] is not None:
            raise Illegal("a server measures its room itself: a capacity says nothing to it")
        return settings | {
            "remote_url": config["url"],
            "remote_timeout": ANSWER_SECONDS,
            "remote_pause": PAUSE_SECONDS,
        }
    for tier in config["store"].split(" and "):
        settings[f"{tier}_path"] = str(root / tier)
        settings[f"{tier}_bytes"] = config["capacity"] or 1 << 30
    return settings
