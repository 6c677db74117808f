"""A release's two halves of the cache of processed media, in a host that is asked about them."""

from collections.abc import Sequence

import msgspec

from cacheproof.differential.provision import releases
from cacheproof.differential.provision.releases import InstalledRelease
from cacheproof.differential.targets.host.managers.halves import Found
from cacheproof.differential.targets.process import BATCH_SECONDS, HostTarget

HOST_MODULE = "host.managers.halves_release"
ONE_MODALITY = ("image",)
TWO_MODALITIES = ("image", "audio")


class _Lacking(msgspec.Struct, frozen=True):
    id: int
    lacking: list[str]


class _Whole(msgspec.Struct, frozen=True):
    id: int
    found: Found


_WHOLE = msgspec.json.Decoder(_Whole)
_LACKING = msgspec.json.Decoder(_Lacking)


class HalvesHost(HostTarget):
    """A host of a release whose halves are run on oracles."""

    def __init__(self, release: InstalledRelease) -> None:
        command, environment = releases.host_command(release)
        name = f"vllm@{release.version}"
        super().__init__(name, release.version, command, environment, module=HOST_MODULE)

    def explored(self, twin: str | None = None, modalities: Sequence[str] = ONE_MODALITY) -> Found:
        """What came of all scripts; of halves that a twin of `host/faults/halves.py` changes, or of
        messages whose items are of several modalities in turn.

        Raises:
            HarnessError: the host broke.
        """
        assert self.hello
        self._send({"do": "halves", "twin": twin, "modalities": modalities})
        found: Found = self._decode(_WHOLE, self._receive(BATCH_SECONDS)).found
        return found

    def lacking_after_modalities(self) -> list[str]:
        """Messages that the receiver cannot take, after one with items of two modalities. Nothing
        is lost or overtaken. Raises HarnessError when the host broke."""
        assert self.hello
        self._send({"do": "modalities"})
        lacking: list[str] = self._decode(_LACKING, self._receive(BATCH_SECONDS)).lacking
        return lacking
