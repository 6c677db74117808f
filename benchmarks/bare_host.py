"""Times a release's own manager, or caches of processed media, under the same driver, without
recorder, records and pipe.

Runs in the release's interpreter. The first line of standard input holds traces as JSON; each
further line asks for one pass over them, which is answered with the CPU seconds that it took.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent / "differential" / "targets"))

from host import release, session
from host.managers import front_end_release
from host.managers import manager as manager_depth
from vllm.v1.core import encoder_cache_manager

NOTHING_SHOWN = [([], 0), ([], 0)]


class NoRecorder:
    """Stands in for the recorder and leaves the manager as it is."""

    def __init__(self, manager: Any, *, shows_sizes: bool = True) -> None:
        self.manager = manager


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    manager_depth.Recorder = NoRecorder
    protocol = release.ManagersHost().protocol
    traces = json.loads(sys.stdin.readline())
    session.calm_collector()
    for _ in sys.stdin:
        started = time.process_time()
        for trace in traces:
            header = trace["header"]
            if header["depth"] == "front_end":
                driver: Any = front_end_release.front_end_session(header, None)
                driver._caches.state = lambda: NOTHING_SHOWN
            else:
                manager = encoder_cache_manager.EncoderCacheManager(header["config"]["capacity"])
                driver = manager_depth.ManagerSession(header, manager, protocol)
            for event in trace["events"]:
                driver.apply(event)
        answers.write(f"{time.process_time() - started}\n")
        answers.flush()


if __name__ == "__main__":
    main()
