"""Faults to plant in any connector of an external encoder cache, by name: canaries that a search
must find.

A fault changes one side of a kit's connector, as an instance; the class stays as it is.
"""

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

from ..by_name import breaks, by_name

if TYPE_CHECKING:
    from .engine import Kit, Rows


def nothing(kit: "Kit", root: Path) -> None:
    """No fault: the canary that must be reported missed."""


@breaks("EX-1")
def forgets_to_load(kit: "Kit", root: Path) -> None:
    """Every other load brings nothing."""
    load, turns = kit.worker.start_load_caches, [0]

    def load_sometimes(encoder_cache: "Rows", **kwargs: object) -> None:
        before = set(encoder_cache)
        load(encoder_cache, **kwargs)
        turns[0] += 1
        if turns[0] % 2:
            for name in set(encoder_cache) - before:
                del encoder_cache[name]

    kit.worker.start_load_caches = load_sometimes


@breaks("EX-4")
def serves_another_item(kit: "Kit", root: Path) -> None:
    """An item gets the rows that were saved before its own."""
    save = kit.worker.save_caches
    last: dict[str, object] = {}

    def save_the_one_before(encoder_cache: "Rows", mm_hash: str, **kwargs: object) -> None:
        save({mm_hash: last.get("rows", encoder_cache[mm_hash])}, mm_hash, **kwargs)
        last["rows"] = encoder_cache[mm_hash]

    kit.worker.save_caches = save_the_one_before


@breaks("EX-5")
def refuses_large_items(kit: "Kit", root: Path) -> None:
    """An item of many rows is refused with an exception."""
    save = kit.worker.save_caches

    def save_small(encoder_cache: "Rows", mm_hash: str, **kwargs: object) -> None:
        rows, *_ = kit.read(encoder_cache[mm_hash])
        assert len(rows) <= 2, f"{len(rows)} rows"
        save(encoder_cache, mm_hash, **kwargs)

    kit.worker.save_caches = save_small


@breaks("EX-6")
def keeps_everything(kit: "Kit", root: Path) -> None:
    """What is saved is written once more, to a file that nobody counts."""
    save, count = kit.worker.save_caches, [0]

    def save_twice(encoder_cache: "Rows", mm_hash: str, **kwargs: object) -> None:
        save(encoder_cache, mm_hash, **kwargs)
        count[0] += 1
        if root.exists():
            (root / f"copy {count[0]}").write_bytes(bytes(4096))

    kit.worker.save_caches = save_twice


@breaks("EX-7", event="new_weights")
def ignores_new_weights(kit: "Kit", root: Path) -> None:
    """A reset does nothing."""
    kit.scheduler.reset_cache = lambda: None


@breaks("EX-8")
def follows_paths(kit: "Kit", root: Path) -> None:
    """A file is written where an identifier leads."""
    save = kit.worker.save_caches

    def save_by_name(encoder_cache: "Rows", mm_hash: str, **kwargs: object) -> None:
        save(encoder_cache, mm_hash, **kwargs)
        path = root / mm_hash
        if ".." in path.parts and path.parent.is_dir():
            path.with_suffix(".named").write_bytes(b"")

    kit.worker.save_caches = save_by_name


@breaks("EX-9")
def leaves_drafts(kit: "Kit", root: Path) -> None:
    """Before an item is saved, a draft of it is begun, and removed when it has been."""
    save = kit.worker.save_caches

    def save_after_a_draft(encoder_cache: "Rows", mm_hash: str, **kwargs: object) -> None:
        if root.exists():
            (root / "draft").write_bytes(b"x")
        save(encoder_cache, mm_hash, **kwargs)
        (root / "draft").unlink(missing_ok=True)

    kit.worker.save_caches = save_after_a_draft


@breaks("EX-10")
def sees_its_own_alone(kit: "Kit", root: Path) -> None:
    """An engine has what it has saved itself, and nothing of others."""
    has, save, own = kit.scheduler.has_cache_item, kit.worker.save_caches, set()

    def save_own(encoder_cache: "Rows", mm_hash: str, **kwargs: object) -> None:
        own.add(mm_hash)
        save(encoder_cache, mm_hash, **kwargs)

    kit.worker.save_caches = save_own
    kit.scheduler.has_cache_item = lambda identifier: identifier in own and has(identifier)


@breaks("EX-11", event="reach")
def remembers_what_it_promised(kit: "Kit", root: Path) -> None:
    """What was there once is promised again, without a look."""
    has, seen = kit.scheduler.has_cache_item, set()

    def has_or_had(name: str) -> bool:
        if name in seen or has(name):
            seen.add(name)
            return True
        return False

    kit.scheduler.has_cache_item = has_or_had


@breaks("EX-12")
def promises_nothing(kit: "Kit", root: Path) -> None:
    """Nothing is ever promised."""
    kit.scheduler.has_cache_item = lambda name: False


@breaks("EX-2")
def reports_loads_early(kit: "Kit", root: Path) -> None:
    """A load is reported, and its pin given back, before it has begun."""
    scheduler, build = kit.scheduler, kit.scheduler.build_connector_meta

    def build_and_report(output: SimpleNamespace) -> object:
        metadata = build(output)
        scheduler.update_connector_output(kit.report(metadata))
        return metadata

    scheduler.build_connector_meta = build_and_report


def reports_saves_early(kit: "Kit", root: Path) -> None:
    """A save is reported with the plan of its step, though its copy ends later; in ECCPUConnector,
    which alone does not wait for its saves."""
    scheduler, build = kit.scheduler, kit.scheduler.build_connector_meta

    def build_and_report(output: SimpleNamespace) -> object:
        metadata = build(output)
        told = kit.report(metadata)
        told.ec_connector_worker_meta.completed_loads = []
        told.ec_connector_worker_meta.completed_saves = list(metadata.saves)
        scheduler.update_connector_output(told)
        return metadata

    scheduler.build_connector_meta = build_and_report


@breaks("EX-3")
def never_reports(kit: "Kit", root: Path) -> None:
    """No load and no save is ever reported."""
    kit.scheduler.update_connector_output = lambda output: None


CONNECTOR_FAULTS = by_name(
    nothing,
    forgets_to_load,
    reports_loads_early,
    reports_saves_early,
    never_reports,
    serves_another_item,
    refuses_large_items,
    keeps_everything,
    ignores_new_weights,
    follows_paths,
    leaves_drafts,
    sees_its_own_alone,
    remembers_what_it_promised,
    promises_nothing,
)
