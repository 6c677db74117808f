"""The command line, killed when one of its jobs ends: before it is in the store, or right after.

    python killed_campaign.py before|after NUMBER campaign ...

NUMBER counts the jobs that end in this process, from 1.
"""

import os
import signal
import sys
from itertools import count
from typing import Any

from cacheproof import cli
from cacheproof.differential.search.campaigns.store import Store


def main() -> None:
    _, when, number, *arguments = sys.argv
    finish = Store.finish
    numbers = count(1)

    def finish_and_die(store: Store, *ended: Any) -> Any:
        is_last = next(numbers) == int(number)
        if is_last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        finished = finish(store, *ended)
        if is_last:
            os.kill(os.getpid(), signal.SIGKILL)
        return finished

    Store.finish = finish_and_die  # type: ignore[method-assign]
    sys.argv = ["cacheproof", *arguments]
    cli.main()


if __name__ == "__main__":
    main()
