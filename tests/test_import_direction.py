"""Imports follow the arrows of the design, checked on the source text of every module."""

import ast
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MAY_IMPORT = {
    "spec": set(),
    "reference": {"spec"},
    "gpu_runner": {"spec", "reference"},
    "proofs": {"spec", "reference"},
    "differential": {"spec", "reference", "gpu_runner"},
    "cacheproof": {"spec", "reference", "gpu_runner", "proofs", "differential"},
}
ROOMS = {
    "media": set(),
    "traces": {"media"},
    "variants": set(),
    "targets": {"traces"},
    "generators": {"media", "traces"},
    "lanes": {"generators", "traces"},
    "judges": {"media", "traces", "targets"},
    "findings": {"judges", "media", "targets", "traces"},
    "search": {"findings", "judges", "lanes", "targets", "traces", "variants"},
    "recording": {"targets"},
    "audit": {"judges", "recording", "targets", "traces"},
    "serving": {"judges", "recording", "targets"},
}
"""The folders of differential/, each with those that it may import; beside them errors and files,
which all may."""
OF_PROOFS = {
    "values": set(),
    "reading": {"values"},
    "rules": {"values"},
    "deciding": {"reading", "rules", "values"},
    "gate": {"deciding", "reading", "values"},
    "subjects": {"deciding", "reading", "rules", "values"},
    "checking": {"deciding", "reading", "rules", "subjects", "values"},
}
"""The folders of proofs/symbolic/ likewise; `aside`, `evidence` and `texts` beside them import all,
and no folder imports them."""
SYMBOLIC = "proofs/symbolic/"
TEXT = "proofs/text/"
FOR_ALL_ROOMS = {"depths", "errors", "files"}
"""`depths` names modules of all rooms, and imports them when it is asked for one."""
TARGETS = "differential/targets/"
HOST = "differential/targets/host/"
RECORDING = "differential/recording/"
TEXTS = (
    "cacheproof.differential.errors",
    "cacheproof.differential.targets.known_texts",
    "cacheproof.differential.targets.modelled",
    "cacheproof.differential.targets.texts",
    "cacheproof.differential.targets.told",
    "cacheproof.reference.releases",
    "cacheproof.spec.versions",
)
"""What reads which text of vLLM an engine runs."""
HOST_MAY_IMPORT = (
    sys.stdlib_module_names
    | {"vllm", "torch", "transformers", "triton", "numpy", "PIL", "msgspec"}
    | {"host"}
)
"""vLLM and what it always brings along; "host": run as a folder."""
PLUG_IN = "gpu_runner/encoder_connector/vllm_connector.py"
"""What vLLM imports, as a class of its own base."""
STAND_IN = f"{HOST}kv_cache_stand_in.py"
OF_SERVERS = {f"{HOST}connector_store.py": "redis", f"{HOST}lmcache_server.py": "lmcache"}
"""Asks a server, or is one, in the place of an engine that has the client."""
"""Imported for plug-ins that build on the reference, and so where it is importable, alone."""


PACKAGES = ("cacheproof", "cacheproof.differential", "cacheproof.differential.targets")
"""What is imported from these is a module itself."""


def imported_modules(path: str, tree: ast.Module) -> list[tuple[ast.AST, str]]:
    """Every module that the file at `path` names in an import, absolute, with the node."""
    package = ["cacheproof", *Path(path).parent.parts]
    if package[1:2] == ["cacheproof"]:
        del package[1]
    found: list[tuple[ast.AST, str]] = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [(node, alias.name) for alias in names]
            case ast.ImportFrom(module=module, names=names, level=level):
                base = package[: len(package) - level + 1] if level else []
                stem = ".".join([*base, *([module] if module else [])])
                if stem in PACKAGES:
                    found += [(node, f"{stem}.{alias.name}") for alias in names]
                else:
                    found.append((node, stem))
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                found.append((node, name))
    return found


def complaint(path: str, module: str) -> str | None:
    """Why the file at `path` may not import `module`, or None if it may."""
    top, _, rest = module.partition(".")
    home = Path(path).parts[0]
    if top in MAY_IMPORT and top != "cacheproof":
        return f"bare name of a linked folder; write cacheproof.{module}"
    if path.startswith(HOST):
        if top == OF_SERVERS.get(path):
            return None
        if path == STAND_IN and module.startswith("cacheproof.reference"):
            return None
        if top == "cacheproof":
            inside = f"{module.removeprefix('cacheproof.').replace('.', '/')}/".startswith(HOST)
            return None if inside else "the host runs where cacheproof is not installed"
        if top not in HOST_MAY_IMPORT:
            return "the host has the standard library, vLLM and what vLLM needs"
        return None
    if top == "vllm" and not path.startswith((TARGETS, RECORDING)) and path != PLUG_IN:
        return f"only {TARGETS}, {RECORDING} and {PLUG_IN} know that vLLM exists"
    if is_loaded_by_engines(path) and not is_light(module):
        return "an engine loads it: the standard library, msgspec, vLLM and what hosts have"
    if path.startswith(TEXT) and not f"{rest.replace('.', '/')}/".startswith(TEXT):
        return None if top in sys.stdlib_module_names else "both provers read texts by it"
    if top == "cacheproof":
        folder = rest.partition(".")[0]
        owner = folder if folder in MAY_IMPORT else "cacheproof"
        if owner != home and owner not in MAY_IMPORT[home]:
            return f"{home} may import {sorted(MAY_IMPORT[home]) or 'nothing of ours'}"
        if owner == home == "differential":
            return complaint_of_room(path, rest)
        if path.startswith(SYMBOLIC) and rest.startswith("proofs.symbolic"):
            return complaint_of_proofs(path, rest)
    return None


def is_loaded_by_engines(path: str) -> bool:
    """Whether an engine that is recorded loads it."""
    name = f"cacheproof.{path.removesuffix('.py').replace('/', '.')}"
    return path.startswith(RECORDING) or name in TEXTS


def is_light(module: str) -> bool:
    """Whether an engine that is recorded may load a module."""
    ours = (
        "cacheproof.differential.recording",
        "cacheproof.differential.targets.host",
        "cacheproof.differential.targets.after_import",
        *TEXTS,
    )
    top = module.partition(".")[0]
    return module.startswith(ours) or top in {*sys.stdlib_module_names, "msgspec", "vllm"}


def complaint_of_room(path: str, rest: str) -> str | None:
    """Why a module of differential/ may not import cacheproof.`rest`, or None if it may."""
    room, imported = Path(path).parts[1], [*rest.split("."), ""][1]
    if room not in ROOMS:
        return None if imported in {"", *FOR_ALL_ROOMS} else "what all rooms import, imports none"
    if imported in {room, *FOR_ALL_ROOMS, *ROOMS[room]}:
        return None
    return f"{room} may import {sorted(ROOMS[room]) or 'no other room'}"


def complaint_of_proofs(path: str, rest: str) -> str | None:
    """Why a module of proofs/symbolic/ may not import cacheproof.`rest`, or None if it may."""
    room, imported = Path(path).parts[2], [*rest.split("."), ""][2]
    if room not in OF_PROOFS or imported in {room, *OF_PROOFS[room]}:
        return None
    return f"{room} may import {sorted(OF_PROOFS[room]) or 'no other room'}"


def violations(path: str, source: str) -> list[str]:
    tree = ast.parse(source)
    found = []
    for node, module in imported_modules(path, tree):
        reason = complaint(path, module)
        if reason:
            found.append(f"{path}:{node.lineno} imports {module}: {reason}")
    return found


def modules() -> list[str]:
    return sorted(
        path.relative_to(ROOT).as_posix()
        for folder in MAY_IMPORT
        for path in (ROOT / folder).rglob("*.py")
    )


@pytest.mark.parametrize("path", modules())
def test_imports_point_one_way(path: str) -> None:
    assert violations(path, (ROOT / path).read_text()) == []


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("spec/ghost.py", "import cacheproof.reference.request"),
        ("spec/ghost.py", "from cacheproof.reference import request"),
        ("spec/ghost.py", "from cacheproof import reference"),
        ("spec/ghost.py", "from ..reference import request"),
        ("spec/ghost.py", "from .. import reference"),
        ("spec/ghost.py", "import cacheproof"),
        ("spec/ghost.py", "from cacheproof.errors import UsageError"),
        ("spec/ghost.py", "def f():\n    import cacheproof.differential"),
        ("spec/ghost.py", "import importlib\nimportlib.import_module('cacheproof.reference')"),
        ("reference/request.py", "from cacheproof.gpu_runner import store"),
        ("reference/request.py", "from cacheproof.differential.traces.trace import Trace"),
        ("gpu_runner/store.py", "from cacheproof.proofs import goals"),
        ("differential/recording/engine.py", "from cacheproof.differential.targets import pip"),
        ("differential/recording/engine.py", "import rich"),
        ("proofs/goals.py", "from cacheproof.gpu_runner import store"),
        ("proofs/symbolic/values/state.py", "from cacheproof.proofs.symbolic.rules import rules"),
        ("proofs/symbolic/gate/gate.py", "from cacheproof.proofs.symbolic.checking import twins"),
        ("proofs/text/bindings.py", "import cacheproof.proofs.keys.gate"),
        ("proofs/text/bindings.py", "from cacheproof.proofs.symbolic.reading import source"),
        ("proofs/symbolic/checking/twins.py", "import cacheproof.proofs.symbolic.evidence"),
        ("proofs/goals.py", "from cacheproof import cli"),
        ("proofs/goals.py", "from cacheproof.differential.judges import manager"),
        ("proofs/goals.py", "def f():\n    from cacheproof.differential.targets import resolve"),
        ("gpu_runner/store.py", "from cacheproof.differential.targets.base import Target"),
        ("differential/judges/manager.py", "from cacheproof.proofs import goals"),
        ("differential/judges/manager.py", "from cacheproof.differential import search"),
        ("differential/judges/manager.py", "from cacheproof.differential.search.known import load"),
        ("differential/findings/finding.py", "from cacheproof.differential.search import campaign"),
        ("differential/files.py", "from cacheproof.differential.traces.trace import Trace"),
        ("differential/targets/base.py", "from cacheproof.differential.judges import manager"),
        ("differential/judges/manager.py", "from cacheproof.cli import main"),
        ("differential/judges/manager.py", "import vllm.v1.core"),
        ("cacheproof/cli.py", "from vllm import LLM"),
        ("cacheproof/cli.py", "import spec"),
        ("differential/judges/manager.py", "from reference.request import Request"),
        ("differential/targets/host/recorder.py", "from ..process import Host"),
        ("differential/targets/host/recorder.py", "from cacheproof.spec import records"),
        ("differential/targets/host/recorder.py", "from cacheproof.reference import request"),
        ("differential/targets/host/kv_cache_stand_in.py", "import cacheproof.spec.records"),
        ("differential/targets/host/recorder.py", "import hypothesis"),
        ("differential/targets/host/lmcache_server.py", "import redis"),
        ("differential/targets/host/recorder.py", "import lmcache.v1.server"),
    ],
)
def test_a_forbidden_import_is_flagged(path: str, statement: str) -> None:
    assert len(violations(path, statement)) == 1


@pytest.mark.parametrize(
    ("path", "statement"),
    [
        ("spec/ghost.py", "import collections"),
        ("spec/ghost.py", "from cacheproof.spec.records import Entry"),
        ("spec/ghost.py", "from .records import Entry"),
        ("reference/request.py", "from cacheproof.spec import records"),
        ("differential/judges/manager.py", "from cacheproof.reference import request"),
        ("proofs/goals.py", "from cacheproof.spec.evidence import Evidence"),
        ("proofs/symbolic/rules/rules.py", "from cacheproof.proofs.symbolic.values import state"),
        ("proofs/symbolic/evidence.py", "from cacheproof.proofs.symbolic.checking import twins"),
        ("differential/search/explore/job.py", "from cacheproof.spec.evidence import Evidence"),
        ("differential/search/explore/job.py", "from cacheproof.differential.search import canary"),
        ("differential/targets/spec.py", "from cacheproof.differential.targets import process"),
        ("differential/targets/host/recorder.py", "from .protocol import FLAGS"),
        ("differential/targets/host/recorder.py", "import vllm.v1.core"),
        ("differential/recording/settings.py", "import vllm"),
        ("differential/recording/ledger.py", "from cacheproof.differential.targets.host import x"),
        (
            "differential/targets/host/kv_cache_stand_in.py",
            "from cacheproof.reference import request",
        ),
        ("cacheproof/cli.py", "from cacheproof.errors import UsageError"),
        ("cacheproof/cli.py", "from cacheproof.differential.search import campaign"),
        ("cacheproof/own_run.py", "from cacheproof.proofs.keys import scopes"),
    ],
)
def test_an_allowed_import_is_not_flagged(path: str, statement: str) -> None:
    assert violations(path, statement) == []


PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_the_page_of_the_architecture_names_what_is_there() -> None:
    named = re.findall(r"\b(?:differential|docs|tests)/[\w/-]+(?:\.\w+)?", PAGE)
    assert len(named) > 40
    assert [one for one in named if not (ROOT / one).exists()] == []


def test_the_page_of_the_architecture_has_every_folder_and_what_it_may_import() -> None:
    rows = re.findall(r"^\| `differential/(\w+)/` \| .* \| ?([\w ,]*) ?\|$", PAGE, re.MULTILINE)
    shown = {room: {one.strip() for one in cell.split(",") if one.strip()} for room, cell in rows}
    assert shown == ROOMS
    folders = {path.parent.name for path in (ROOT / "differential").glob("*/__init__.py")}
    assert folders == ROOMS.keys()


def test_the_page_of_the_architecture_has_every_room_of_proofs() -> None:
    rows = re.findall(r"^\| `proofs/symbolic/(\w+)/` \| .* \| ?([\w ,]*) ?\|$", PAGE, re.MULTILINE)
    shown = {room: {one.strip() for one in cell.split(",") if one.strip()} for room, cell in rows}
    assert shown == OF_PROOFS
    assert {path.parent.name for path in (ROOT / SYMBOLIC).glob("*/*.py")} == OF_PROOFS.keys()


def test_tests_of_differential_lie_in_a_folder_of_the_same_name() -> None:
    tests = ROOT / "tests" / "differential"
    assert {path.parent.name for path in tests.glob("*/test_*.py")} <= ROOMS.keys()
    beside = {path.stem.removeprefix("test_") for path in tests.glob("test_*.py")}
    assert beside <= FOR_ALL_ROOMS
