"""Which fault a report is about, on which release, and what takes it out of that."""

from dataclasses import dataclass

from cacheproof.differential.errors import InputError
from cacheproof.differential.provision import releases
from cacheproof.differential.provision.cache import Report
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.provision.versions import parse
from cacheproof.differential.search.known import KnownFault
from cacheproof.differential.targets import mended
from cacheproof.differential.targets.named import TargetKind, named
from cacheproof.differential.texts import mends
from cacheproof.listed.facts import fault_called, product_of, trace_showing
from cacheproof.reference.releases import within
from cacheproof.reporting.patch import Patch, patch_between


@dataclass(frozen=True)
class ReportSubject:
    """A listed fault, and the target that it is reported on. `trace` is the kept one that shows it
    there, by name, where there is one."""

    fault: KnownFault
    target: str
    trace: str | None

    @property
    def release(self) -> str:
        """The version of the target."""
        return named(self.target).version

    @property
    def mended(self) -> str | None:
        """The target with the fault mended; None where it has no mend there."""
        is_vllms = named(self.target).kind in (TargetKind.RELEASE, TargetKind.ENGINE)
        if not is_vllms or self.fault.name not in mends.mended_in(self.release):
            return None
        return f"{self.target}{mended.MARK}:{self.fault.name}"

    def installed(self, report: Report) -> InstalledRelease:
        """The release of the target.

        Raises:
            SetupError: it cannot be provisioned.
        """
        is_engine = named(self.target).kind is TargetKind.ENGINE
        kind = releases.ENGINE if is_engine else releases.VLLM
        return releases.install(self.release, report=report, kind=kind)

    def installed_mended(self, report: Report) -> InstalledRelease:
        """The release with the fault mended.

        Raises:
            InputError: it has no mend there.
            SetupError: it cannot be provisioned.
        """
        return mended.tree_of(self.installed(report), (self.fault.name,), report=report)

    def patch(self, report: Report) -> Patch:
        """The patch from the release to the mended one."""
        text = mends.mends()[self.fault.name].for_release(self.release)
        assert text is not None
        paths = list(dict.fromkeys(edit.path for edit in text.edit))
        return patch_between(self.installed(report).tree, self.installed_mended(report).tree, paths)


def subject_called(name: str, release: str | None) -> ReportSubject:
    """What a report of the fault of that name is about: a release that has it, the newest one
    unless one is said.

    Raises:
        InputError: no listed fault has that name, or it was not seen in that release.
    """
    fault = fault_called(name)
    if (product := product_of(fault)) is not None:
        if release not in (None, named(product).version):
            raise InputError(
                f"--release {release}: {name} is a fault of {fault.product}; expected "
                f"{named(product).version}, or no --release"
            )
        return ReportSubject(fault, product, fault.traces[0] if fault.traces else None)
    has = within(fault.seen)
    if not has:
        raise InputError(f"{name}: no release was seen to have it; nothing can be reported")
    if release is not None and parse(release, "--release ") not in has:
        raise InputError(
            f"--release {release}: {name} was not seen there; expected one of {fault.seen}"
        )
    release = release or has[-1]
    trace, target = trace_showing(fault, release) or (None, f"vllm@{release}")
    return ReportSubject(fault, target, trace)
