"""Which tests run: by default those that are not `full`; with `--slice K/N` one part in N."""

import re
from collections import Counter
from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slice",
        metavar="K/N",
        help="every N-th of the tests, from the K-th on: N slices have each test once",
    )


def pytest_configure(config: pytest.Config) -> None:
    slice_of(config)


def slice_of(config: pytest.Config) -> slice:
    """The places of the tests that are wanted.

    Raises:
        pytest.UsageError: what `--slice` says is no slice.
    """
    text = config.getoption("--slice")
    if text is None:
        return slice(None)
    found = re.fullmatch(r"([0-9]+)/([0-9]+)", text)
    first, step = map(int, found.groups()) if found else (0, 0)
    if not 1 <= first <= step:
        raise pytest.UsageError(f"--slice {text!r}: expected K/N with K from 1 to N, such as 2/7")
    return slice(first - 1, None, step)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Make what a `sample` leaves out `full` before pytest selects by marks; slice what is left."""
    seen: Counter[str] = Counter()
    for item in items:
        if sample := item.get_closest_marker("sample"):
            test, _, _ = item.nodeid.partition("[")
            if seen[test] % sample.args[0]:
                item.add_marker("full")
            seen[test] += 1
    yield
    everything = {*items}
    items[:] = items[slice_of(config)]
    if dropped := everything - {*items}:
        config.hook.pytest_deselected(items=[*dropped])
