"""Classes of a tree as its own interpreter has them, held against their text."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from cacheproof.differential.errors import InputError
from cacheproof.differential.targets import releases
from cacheproof.differential.targets.releases import Release

SCRIPT = Path(__file__).parent / "host" / "as_imported.py"
SCHEDULER = "vllm.v1.core.sched.scheduler"
SECONDS_MAX = 600


def refuse_changed(
    name: str, release: Release, module: str, text: str, classes: Sequence[str]
) -> None:
    """Refuse a tree in which what a scheduler imports changes these classes of a module, or what
    their text calls by a builtin's name.

    Args:
        name: the target's, for messages.
        release: the tree.
        module: its name.
        text: the module's.
        classes: that are looked at, with their bases.

    Raises:
        InputError: names what is not as the text says; or the tree cannot be imported.
    """
    command, environment = releases.host_command(release)
    asked = {"imports": [module, SCHEDULER], "module": module, "text": text, "classes": classes}
    try:
        done = subprocess.run(
            [*command, "-P", str(SCRIPT)],
            env=environment,
            input=json.dumps(asked),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS_MAX,
            check=True,
        )
        found = json.loads(done.stdout)
    except (subprocess.SubprocessError, ValueError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        raise InputError(
            f"--target {name}: {SCHEDULER} cannot be imported: {said[-1] if said else error}; "
            "expected a tree that runs"
        ) from error
    if found:
        raise InputError(
            f"--target {name}: {found[0]} is not what {module} says, once {SCHEDULER} is imported; "
            "expected a module whose classes nothing else changes"
        )
