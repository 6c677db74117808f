"""Has a server recorded: a folder on its search path with what pip would put beside its vLLM."""

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from cacheproof.differential.recording import plugin

_PACKAGE = Path(__file__).parents[2]
_METADATA = "Metadata-Version: 2.1\nName: cacheproof\nVersion: {version}\n"
_ENTRY_POINTS = """[vllm.general_plugins]
cacheproof_operations = cacheproof.differential.targets.host.engine.operations:register_missing
cacheproof_record = cacheproof.differential.recording.plugin:register
"""
"""The first is for a server of a release's source archive, which has no compiled parts."""


def installed(folder: Path) -> Path:
    """A folder in `folder` from which vLLM takes cacheproof for installed, recorder and all."""
    site = folder / "site"
    own = version("cacheproof")
    information = site / f"cacheproof-{own}.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(_METADATA.format(version=own))
    (information / "entry_points.txt").write_text(_ENTRY_POINTS)
    (site / "cacheproof").symlink_to(_PACKAGE)
    return site


def variables(records: Path) -> Mapping[str, str]:
    """What the environment of an engine has that is recorded there."""
    return {plugin.FOLDER: str(records)}
