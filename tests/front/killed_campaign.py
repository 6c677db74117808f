"""The command line, killed when one of its jobs ends: before it is in the store, or right after.

    python killed_campaign.py before|after NUMBER campaign ...

NUMBER counts the jobs that end in this process, from 1.
"""

import os
import signal
import sys
from collections.abc import Sequence
from itertools import count

from cacheproof import cli
from cacheproof.differential.search.campaigns.store import CampaignStore, EndedJob


def main() -> None:
    _, when, number, *arguments = sys.argv
    finish = CampaignStore.finish
    numbers = count(1)

    def finish_and_die(
        store: CampaignStore, runner: str, some: Sequence[EndedJob], now: float
    ) -> None:
        for one in some:
            is_last = next(numbers) == int(number)
            if is_last and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            finish(store, runner, [one], now)
            if is_last:
                os.kill(os.getpid(), signal.SIGKILL)

    CampaignStore.finish = finish_and_die  # type: ignore[method-assign]
    sys.argv = ["cacheproof", *arguments]
    cli.main()


if __name__ == "__main__":
    main()
