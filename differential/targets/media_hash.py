"""Media hashers as targets: hosts that hash described calls and do nothing else.

A release before 0.10 can be run in no other way. The reference runs in a release's environment,
where the libraries of arrays, tensors and images are those that the release uses.
"""

from cacheproof.differential.targets import releases
from cacheproof.differential.targets.cache import Report
from cacheproof.differential.targets.process import HostTarget

LANE = "host.media_hash_lane"
REFERENCE_SETTING = "CACHEPROOF_REFERENCE"
NEWEST = "0.33.0"


class MediaHashTarget(HostTarget):
    """The media hasher of `release`; or, with `semantics` (a release or "ideal"), the reference in
    that release's environment.

    Raises:
        InputError, SetupError: as `releases.install`.
    """

    def __init__(
        self, release: str = NEWEST, *, semantics: str | None = None, report: Report = print
    ) -> None:
        command, environment = releases.host_command(releases.install(release, report=report))
        if semantics is None:
            super().__init__(f"vllm@{release}", release, command, environment)
        else:
            settings = {**environment, REFERENCE_SETTING: semantics}
            super().__init__(f"reference as {semantics}", None, command, settings)
        self._command.append(LANE)
