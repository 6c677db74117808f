"""`cacheproof simulate`: the reference scheduler over synthetic traffic, by encoder cache size."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TypeVar

from rich.table import Table

from cacheproof.differential.errors import InputError
from cacheproof.differential.provision.versions import parse
from cacheproof.differential.search.verdict import HOLDS, INTERRUPTED
from cacheproof.output.conclusion import Conclusion
from cacheproof.output.console import CommandOutput, require_writable, write_file
from cacheproof.reference.releases import MODELLED, NEWEST
from cacheproof.simulation import verdict as simulated
from cacheproof.simulation.page import page
from cacheproof.simulation.result import Point, Simulation, point
from cacheproof.simulation.run import BadSetting, SimulationSetting, run
from cacheproof.simulation.traffic import TRAFFICS, SimulatedTraffic

_Kind = TypeVar("_Kind")


def simulate(
    output: CommandOutput,
    asked: SimulationSetting,
    traffic: Iterable[str],
    sizes: Sequence[int],
    requests: int,
    seed: int,
    row_bytes: int,
    html: str | None,
) -> int:
    """Serve each kind of traffic with each of the sizes, in rows of the encoder cache, and print
    what became of it. Returns the exit code.

    Raises:
        InputError: no such traffic or release, or a setting in which no request can go on.
    """
    if html is not None:
        require_writable("--html", html)
    kinds = [named("--traffic", name, TRAFFICS) for name in dict.fromkeys(traffic)]
    release = asked.release
    if parse(release, "--release ") not in MODELLED:
        raise InputError(
            f"--release {release}: not modelled; expected one of {MODELLED[0]} to {NEWEST}"
        )
    settings = [(kind, replace(asked, encoder_cache_size=size)) for kind in kinds for size in sizes]
    try:
        for kind, setting in settings:
            setting.budgets(kind)
        points, is_interrupted = _runs(output, settings, requests, seed, row_bytes)
    except BadSetting as reason:
        raise InputError(f"simulate: {reason}") from None
    for line in dict.fromkeys(_raised(settings)):
        output.line(line)
    if points:
        output.report.print(_outcomes(points))
        output.line("")
        output.report.print(_costs(points))
    found = Simulation(
        release, requests, seed, row_bytes, {kind.name: kind.says for kind in kinds}, points
    )
    left = len(settings) - len(points)
    verdict = simulated.of_simulated(release, requests, points, left, html, sizes=len(sizes))
    facts = {"setting": asdict(asked), **asdict(found), "interrupted": is_interrupted}
    code = INTERRUPTED if is_interrupted else HOLDS
    output.tell(Conclusion(code, verdict, facts))
    if html is not None:
        write_file("--html", html, page(found, verdict.sentence, is_whole=not left))
    return code


def named(option: str, name: str, table: Mapping[str, _Kind]) -> _Kind:
    """What a table has under a name. Raises InputError where it has nothing."""
    try:
        return table[name]
    except KeyError:
        raise InputError(f"{option} {name}: expected one of {', '.join(table)}") from None


def _runs(
    output: CommandOutput,
    settings: Sequence[tuple[SimulatedTraffic, SimulationSetting]],
    num_requests: int,
    seed: int,
    row_bytes: int,
) -> tuple[list[Point], bool]:
    """The points of settings, none of which a release refuses; and whether somebody wanted no more
    of them.

    Raises:
        BadSetting: in one of them no request can go on.
    """
    points: list[Point] = []
    with output.live("serving requests") as live:
        advance = live.counter(num_requests * len(settings))
        try:
            for traffic, setting in settings:
                figures = run(traffic, setting, num_requests, seed, advance)
                compute_budget, cache_size = setting.budgets(traffic)
                points.append(point(traffic.name, cache_size, compute_budget, figures, row_bytes))
        except KeyboardInterrupt:
            return points, True
    return points, False


def _raised(settings: Iterable[tuple[SimulatedTraffic, SimulationSetting]]) -> Iterator[str]:
    """A sentence for each budget that was too small for the largest item of the traffic."""
    for traffic, setting in settings:
        compute_budget, cache_size = setting.budgets(traffic)
        for option, asked, got in (
            ("--encoder-budget", setting.encoder_compute_budget, compute_budget),
            ("--encoder-cache", setting.encoder_cache_size, cache_size),
        ):
            if got > asked:
                yield f"{traffic.name}: {option} {asked} is raised to {got} rows, the largest item"


def _outcomes(points: Iterable[Point]) -> Table:
    """What became of the items."""
    result = _table("hit rate", "covered", "hits", "encodes", "re-encodes")
    for one in points:
        figures = one.figures
        counts = figures.covered, figures.hits, figures.encodes, figures.re_encodes
        result.add_row(*_named_cells(one), f"{one.hit_rate:.3f}", *map("{:,}".format, counts))
    return result


def _costs(points: Iterable[Point]) -> Table:
    """What it took: stalls of each request, steps, rows and bytes."""
    result = _table("stalls: budget", "cache", "steps", "mean rows", "peak", "MiB")
    for one in points:
        figures = one.figures
        result.add_row(
            *_named_cells(one),
            f"{figures.budget_stalls / figures.requests:.2f}",
            f"{figures.space_stalls / figures.requests:.2f}",
            f"{figures.steps:,}",
            f"{one.resident_mean:,.0f}",
            f"{figures.resident_peak:,}",
            f"{one.peak_bytes / (1 << 20):,.1f}",
        )
    return result


def _table(*titles: str) -> Table:
    result = Table("traffic", box=None, pad_edge=False)
    for title in ("rows kept", *titles):
        result.add_column(title, justify="right")
    return result


def _named_cells(one: Point) -> tuple[str, str]:
    """Which run a row of a table is about."""
    return one.traffic, f"{one.encoder_cache:,}"
