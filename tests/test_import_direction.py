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
HOUSES: dict[str, dict[str, set[str]]] = {
    "reference": {
        "encoder_connector": set(),
        "scheduler": {
            "block_hash", "block_pool", "encoder_cache", "kv_cache_manager", "kv_cache_specs",
            "request", "scheduled_request", "semantics",
        },
        "semantics": {"releases"},
    },
    "gpu_runner": {
        "encoder_connector": set(),
        "models": {
            "adapters", "cross_attention", "devices", "kv_store", "paged_attention", "requests",
            "rotary", "video_pruning", "windowed_attention",
        },
    },
    "differential": {
        "media": set(),
        "traces": {"media"},
        "variants": set(),
        "targets/host": set(),
        "provision": {"targets/host"},
        "texts": {"targets/host", "traces"},
        "targets": {"provision", "targets/host", "texts", "traces"},
        "generators": {"media", "traces"},
        "lanes": {"generators", "traces"},
        "judges": {"media", "targets", "targets/host", "texts", "traces"},
        "findings": {
            "judges", "media", "provision", "targets", "targets/host", "texts", "traces",
        },
        "search": {
            "findings", "judges", "lanes", "provision", "targets", "targets/host", "texts",
            "traces", "variants",
        },
        "recording": {"targets", "targets/host", "texts"},
        "audit": {"judges", "recording", "targets", "targets/host", "traces"},
        "serving": {"judges", "provision", "recording"},
    },
    "differential/findings": {
        "shrinking": set(),
        "standalone": {"finding"},
        "timeline": {"finding", "leading", "letters", "short_names", "views"},
        "views": set(),
    },
    "differential/search": {
        "campaigns": {
            "canary", "corpus", "job_runner", "known", "noting", "seeded", "verdict", "work",
        },
        "explore": {"attribution", "canary", "gallery", "known"},
        "gallery": set(),
    },
    "differential/targets": {"host": set()},
    "differential/targets/host": {
        "vllm_objects": set(),
        "scheduler": {"explorer", "protocol", "release_calls", "session", "vllm_objects"},
        "connectors": {"by_name", "child", "package", "protocol", "session", "vllm_objects"},
        "faults": {
            "by_name", "media_inputs", "package", "protocol", "scheduler", "stale_tables",
            "vllm_objects",
        },
        "managers": {
            "explorer", "faults", "package", "protocol", "release_calls", "scheduler", "session",
            "vllm_objects",
        },
        "engine": {
            "by_name", "faults", "managers", "media_inputs", "package", "protocol", "scheduler",
            "session", "vllm_objects",
        },
    },
    "differential/targets/host/faults": {"engine": set(), "runner": set()},
    "proofs": {
        "text": set(),
        "crosshair": set(),
        "witness": {"crosshair"},
        "keys": {"text"},
        "symbolic": {"crosshair", "logic", "text", "witness"},
        "conformance": {"crosshair", "logic", "symbolic", "witness"},
    },
    "proofs/symbolic": {
        "values": set(),
        "reading": {"values"},
        "rules": {"values"},
        "deciding": {"reading", "rules", "values"},
        "gate": {"deciding", "reading", "values"},
        "subjects": {"deciding", "reading", "rules", "values"},
        "checking": {"deciding", "reading", "rules", "subjects", "values"},
    },
    "cacheproof": {
        "formats": set(),
        "work": set(),
        "output": {"formats", "work"},
        "listed": {"output"},
        "tables": {"listed", "output"},
        "simulation": {"output"},
        "board": {"formats", "output"},
        "assessing": {"listed", "output"},
        "audit": {"formats", "listed", "output"},
        "serving": {"audit", "output", "work"},
        "proving": {"formats", "output", "work"},
        "search": {"formats", "output", "proving", "work"},
        "explore": {"output", "search", "work"},
        "campaign": {"board", "output", "search", "tables", "work"},
        "replay": {"audit", "listed", "output", "search", "work"},
        "review": {"formats", "listed", "output", "proving", "search", "work"},
        "reporting": {"assessing", "listed", "output", "replay", "review", "work"},
        "commands": {
            "assessing", "audit", "board", "campaign", "explore", "formats", "listed", "output",
            "proving", "replay", "reporting", "review", "search", "serving", "simulation",
            "tables", "work",
        },
    },
}  # fmt: skip
"""A house is a folder with folders in it, its rooms, each with the rooms and the modules beside
rooms that it may import. The modules beside them may import any room."""
FOR_ALL_ROOMS = {"differential": {"depths", "errors", "files"}, "cacheproof": {"__version__"}}
"""`depths` names modules of all rooms, and imports them when it is asked for one."""
TEXT = "proofs/text/"
TARGETS = "differential/targets/"
HOST = "differential/targets/host/"
RECORDING = "differential/recording/"
TEXTS = (
    "cacheproof.differential.errors",
    "cacheproof.differential.texts.known_texts",
    "cacheproof.differential.texts.modelled",
    "cacheproof.differential.texts.texts",
    "cacheproof.differential.texts.told",
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
FOR_TYPES = ("cacheproof.gpu_runner", "cacheproof.reference")
"""What the host may import for types alone, which is never run: there it drives what is ours."""
PLUG_IN = "gpu_runner/encoder_connector/vllm_connector.py"
"""What vLLM imports, as a class of its own base."""
STAND_IN = f"{HOST}managers/kv_cache_stand_in.py"
OF_SERVERS = {
    f"{HOST}connectors/store.py": "redis",
    f"{HOST}connectors/lmcache_server.py": "lmcache",
}
"""Asks a server, or is one, in the place of an engine that has the client."""
"""Imported for plug-ins that build on the reference, and so where it is importable, alone."""


PACKAGES = {
    "cacheproof",
    "cacheproof.differential.texts",
    *(f"cacheproof.{house.replace('/', '.')}" for house in HOUSES if house != "cacheproof"),
}
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


def for_types_alone(tree: ast.Module) -> set[ast.AST]:
    """The imports of a module that only a type checker follows."""
    return {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for statement in node.body
        for inner in ast.walk(statement)
    }


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
            if not f"{place_of(module)}/".startswith(HOST):
                return "the host runs where cacheproof is not installed"
            return complaint_of_rooms(path, place_of(module))
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
        return complaint_of_rooms(path, place_of(module))
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


def complaint_of_rooms(path: str, other: str) -> str | None:
    """Why a module at `path` may not import one at `other`, by the houses in which both are."""
    for house, rooms in HOUSES.items():
        if not (path.startswith(f"{house}/") and f"{other}/".startswith(f"{house}/")):
            continue
        home, imported = (room_in(house, one) for one in (path.removesuffix(".py"), other))
        allowed = {home, *rooms.get(home, ()), *FOR_ALL_ROOMS.get(house, ())}
        if home in rooms and imported not in allowed:
            return f"{home} may import {sorted(rooms[home]) or 'no other room'}"
        if home in FOR_ALL_ROOMS.get(house, ()) and imported not in FOR_ALL_ROOMS[house]:
            return "what all rooms import, imports none"
    return None


def place_of(module: str) -> str:
    """Where a module of ours is, in the houses: the path without its suffix."""
    inside = module.removeprefix("cacheproof.").replace(".", "/")
    return inside if inside.partition("/")[0] in MAY_IMPORT else module.replace(".", "/")


def room_in(house: str, path: str) -> str:
    """The room of a house that a path leads into, or what lies beside its rooms."""
    inside = path.removeprefix(house).removeprefix("/")
    rooms = [room for room in HOUSES[house] if f"{inside}/".startswith(f"{room}/")]
    return max(rooms, key=len, default=inside.partition("/")[0])


def violations(path: str, source: str) -> list[str]:
    tree = ast.parse(source)
    found = []
    typed = for_types_alone(tree) if path.startswith(HOST) else set()
    for node, module in imported_modules(path, tree):
        if node in typed and module.startswith(FOR_TYPES):
            continue
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
        ("differential/recording/engine.py", "from cacheproof.differential.provision import pip"),
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
        ("differential/findings/finding.py", "from cacheproof.differential.search import seeded"),
        ("differential/files.py", "from cacheproof.differential.traces.trace import Trace"),
        ("differential/targets/base.py", "from cacheproof.differential.judges import manager"),
        ("differential/judges/manager.py", "from cacheproof.cli import main"),
        ("differential/judges/manager.py", "import vllm.v1.core"),
        ("cacheproof/cli.py", "from vllm import LLM"),
        ("cacheproof/work/plan.py", "from cacheproof.output.console import CommandOutput"),
        ("cacheproof/search/verdict.py", "from cacheproof.review import run"),
        ("differential/search/gallery/scheduler.py", "import cacheproof.differential.search.work"),
        ("differential/findings/views/manager.py", "import cacheproof.differential.findings.faces"),
        ("differential/provision/pip.py", "from cacheproof.differential.targets import process"),
        ("differential/targets/host/scheduler/told.py", "from ..managers import kv_cache"),
        ("reference/semantics/change.py", "from cacheproof.reference.scheduler import waiting"),
        ("gpu_runner/models/llava.py", "from cacheproof.gpu_runner.engine import Engine"),
        ("proofs/witness/pool.py", "from cacheproof.proofs.symbolic import evidence"),
        ("cacheproof/cli.py", "import spec"),
        ("differential/judges/manager.py", "from reference.request import Request"),
        ("differential/targets/host/scheduler/recorder.py", "from ...process import Host"),
        ("differential/targets/host/scheduler/recorder.py", "from cacheproof.spec import records"),
        (
            "differential/targets/host/scheduler/recorder.py",
            "from cacheproof.reference import request",
        ),
        (
            "differential/targets/host/managers/kv_cache_stand_in.py",
            "import cacheproof.spec.records",
        ),
        (
            "differential/targets/host/scheduler/recorder.py",
            "if TYPE_CHECKING:\n    from cacheproof.differential.traces.trace import Trace",
        ),
        ("differential/targets/host/scheduler/recorder.py", "import hypothesis"),
        ("differential/targets/host/connectors/lmcache_server.py", "import redis"),
        ("differential/targets/host/scheduler/recorder.py", "import lmcache.v1.server"),
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
        ("differential/targets/host/scheduler/recorder.py", "from ..protocol import FLAGS"),
        ("differential/targets/host/scheduler/recorder.py", "import vllm.v1.core"),
        (
            "differential/targets/host/faults/runner/fault.py",
            "if TYPE_CHECKING:\n    from cacheproof.gpu_runner.runner import Runner",
        ),
        ("differential/recording/settings.py", "import vllm"),
        ("differential/recording/ledger.py", "from cacheproof.differential.targets.host import x"),
        (
            "differential/targets/host/managers/kv_cache_stand_in.py",
            "from cacheproof.reference import request",
        ),
        ("cacheproof/cli.py", "from cacheproof.errors import UsageError"),
        ("cacheproof/cli.py", "from cacheproof.differential.search import seeded"),
        ("cacheproof/proving/own_run.py", "from cacheproof.proofs.keys import scopes"),
    ],
)
def test_an_allowed_import_is_not_flagged(path: str, statement: str) -> None:
    assert violations(path, statement) == []


IMPORTED = re.compile(r"\bfrom ((?:cacheproof|host)(?:\.\w+)*) import (\w+)")


def gone(text: str) -> list[str]:
    """The modules that strings of a text name, and that are not there: imports do not see them."""
    strings = (node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    names = [
        name
        for value in strings
        if isinstance(value, str)
        for name in (
            *re.findall(r"^(?:host|(?:cacheproof|differential)\.\w+)(?:\.[a-z_]\w*)+$", value),
            *(".".join(pair) for pair in IMPORTED.findall(value)),
        )
    ]
    return [name for name in names if not is_there(name)]


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    place = place_of(name) if name.startswith("cacheproof") else name.replace(".", "/")
    if place.startswith("host/"):
        place = HOST + place.removeprefix("host/")
    path = ROOT / place
    while path != ROOT:
        inside = (ROOT / place).relative_to(path).parts
        if path.is_dir() and not inside:
            return True
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return not inside or bool(re.search(rf"\b{inside[0]}\b", file.read_text()))
        path = path.parent
    return False


SCRIPTS = sorted(
    path.relative_to(ROOT).as_posix()
    for folder in ("benchmarks", "tests", "setup")
    for path in (ROOT / folder).rglob("*.py")
    if path.name != Path(__file__).name
)


def test_a_module_that_is_gone_is_found_in_strings() -> None:
    assert gone('MODULE = "host.gone"') == ["host.gone"]
    assert gone('MODULE = "host.protocol"') == []
    assert gone('CODE = "from cacheproof.spec import gone"') == ["cacheproof.spec.gone"]


def test_a_module_that_is_named_in_a_string_is_there() -> None:
    found = {path: gone((ROOT / path).read_text()) for path in (*modules(), *SCRIPTS)}
    assert {path: names for path, names in found.items() if names} == {}


PAGE = (ROOT / "docs" / "explain" / "architecture.md").read_text()


def test_the_page_of_the_architecture_names_what_is_there() -> None:
    named = re.findall(r"\b(?:differential|docs|tests)/[\w/-]+(?:\.\w+)?", PAGE)
    assert len(named) > 40
    assert [one for one in named if not (ROOT / one).exists()] == []


@pytest.mark.parametrize(
    "house", ["differential", "differential/targets/host", "proofs/symbolic", "cacheproof"]
)
def test_the_page_of_the_architecture_has_every_room_and_what_it_may_import(house: str) -> None:
    found = re.findall(
        rf"^\| `{house}/((?:targets/)?\w+)/` \| \D.* \| ?([\w/, ]*) ?\|$", PAGE, re.MULTILINE
    )
    shown = {room: {one.strip() for one in cell.split(",") if one.strip()} for room, cell in found}
    rooms = HOUSES[house]
    assert shown == {room: others & rooms.keys() for room, others in rooms.items()}


def folders_in(folder: Path) -> list[Path]:
    """Folders of ours in a folder; links of the package lead to houses of their own."""
    inside = (one for one in folder.iterdir() if one.is_dir() and not one.is_symlink())
    return sorted(one for one in inside if any(one.glob("*.py")))


def test_every_folder_with_folders_is_a_house_and_each_of_these_a_room() -> None:
    todo, found = [ROOT / folder for folder in MAY_IMPORT], {}
    for folder in todo:
        inside = folders_in(folder)
        todo += inside
        if inside:
            found[folder.relative_to(ROOT).as_posix()] = {one.name for one in inside}
    assert found == {
        house: {room for room in rooms if "/" not in room} for house, rooms in HOUSES.items()
    }


def test_the_page_of_the_architecture_counts_rooms_arrows_and_floors() -> None:
    rows = re.findall(r"^\| `([\w/]+)/` \| (\d+) \| (\d+) \| (\d+) \|$", PAGE, re.MULTILINE)
    shown = {house: tuple(map(int, numbers)) for house, *numbers in rows}
    assert shown == {house: counted(rooms) for house, rooms in HOUSES.items()}


def counted(rooms: dict[str, set[str]]) -> tuple[int, int, int]:
    """Rooms, arrows between them, and floors: the rooms of the longest chain of arrows."""

    def floors(room: str) -> int:
        return 1 + max((floors(other) for other in rooms[room] & rooms.keys()), default=0)

    arrows = sum(len(others & rooms.keys()) for others in rooms.values())
    return len(rooms), arrows, max(map(floors, rooms))


@pytest.mark.parametrize("house", HOUSES)
def test_every_arrow_is_one_of_an_import(house: str) -> None:
    used: dict[str, set[str]] = {room: set() for room in HOUSES[house]}
    for path in modules():
        if path.startswith(f"{house}/") and (home := room_in(house, path)) in used:
            tree = ast.parse((ROOT / path).read_text())
            for _, name in imported_modules(path, tree):
                other = place_of(name)
                if other.startswith(f"{house}/"):
                    used[home].add(room_in(house, other))
    allowed = FOR_ALL_ROOMS.get(house, set())
    assert {room: others - allowed - {room} for room, others in used.items()} == HOUSES[house]


@pytest.mark.parametrize("house", HOUSES)
def test_no_arrows_lead_round_in_a_circle(house: str) -> None:
    assert circle_in(HOUSES[house]) == []


def test_a_circle_is_found() -> None:
    assert circle_in({"one": {"two"}, "two": {"three"}, "three": {"one"}}) == [
        "one",
        "three",
        "two",
    ]


def circle_in(rooms: dict[str, set[str]]) -> list[str]:
    """Rooms that are left when those that import none of the rest are taken out, one by one."""
    left = dict(rooms)
    while lowest := [room for room, others in left.items() if not others & left.keys()]:
        for room in lowest:
            del left[room]
    return sorted(left)


def test_tests_of_differential_lie_in_a_folder_of_the_same_name() -> None:
    tests = ROOT / "tests" / "differential"
    assert {path.parent.name for path in tests.glob("*/test_*.py")} <= HOUSES["differential"].keys()
    beside = {path.stem.removeprefix("test_") for path in tests.glob("test_*.py")}
    assert beside <= FOR_ALL_ROOMS["differential"]
