"""A release with listed faults mended: what it still breaks tells a fault whose cause is no flag of
the reference."""

from cacheproof.differential.provision import releases
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.targets.base import Target
from cacheproof.differential.targets.mended import MARK
from cacheproof.differential.targets.named import TargetKind
from cacheproof.differential.targets.process import HostTarget
from cacheproof.differential.targets.resolve import engine_of, host_of
from cacheproof.differential.texts import mends


class Mending:
    """An installed release, or an engine, with a fault or two mended at a time beside those that
    are `mended` already; each in a host that is started when it is asked for. `near` is a target
    with the release's own text."""

    def __init__(
        self,
        release: InstalledRelease,
        kind: releases.Kind = releases.VLLM,
        mended: tuple[str, ...] = (),
        near: HostTarget | None = None,
    ) -> None:
        self._release = release
        self._kind = kind
        self._mended = mended
        self._near = near
        self._hosts: dict[frozenset[str], HostTarget] = {}

    def can_mend(self, fault: str, kind: str | None) -> bool:
        """Whether a fault has a mend for the release that takes that kind of break away, or any
        where that is None."""
        mend = mends.mends().get(fault)
        if mend is None or kind in mend.leaves:
            return False
        return mend.for_release(self._release.version) is not None

    def without(self, *faults: str) -> Target:
        """The release without faults that can be mended in it.

        Raises:
            InputError: the release's text is not the one that the mend edits.
        """
        key = frozenset(faults)
        if key not in self._hosts:
            begin = engine_of if self._kind == releases.ENGINE else host_of
            kind = TargetKind.ENGINE if self._kind == releases.ENGINE else TargetKind.RELEASE
            gone = tuple(sorted({*self._mended, *faults}))
            name = f"{kind.value}@{self._release.version}{MARK}:{','.join(gone)}"
            host = begin(self._release, name, mended=gone, report=lambda line: None)
            if self._near is not None:
                host.fork_near(self._near, mends.modules_of(gone, self._release.version))
            self._hosts[key] = host
        return self._hosts[key]

    def close(self) -> None:
        """End its hosts; the next question starts them anew."""
        for host in self._hosts.values():
            host.close()
