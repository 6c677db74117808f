"""A test of the media hash: the two calls, or the one made twice, on the release's hasher."""

from cacheproof.differential.findings.finding import Finding
from cacheproof.differential.findings.standalone.template import OF_A_DIFFERENCE, render
from cacheproof.differential.media.programs import IMPORTS, arguments, kinds_in
from cacheproof.differential.traces.media_hash import Hash, MediaHashConfig

APART = ("MH-3", "MH-3a")
"""Contracts of two digests that must differ; by the others of that component two must be one."""


def standalone_test(finding: Finding) -> tuple[str | None, str]:
    """The file's text, or None and why there is none."""
    calls = [event.value for event in finding.events if isinstance(event, Hash)]
    config = finding.configuration.config
    if finding.parting is not None or not isinstance(config, MediaHashConfig):
        return None, OF_A_DIFFERENCE
    if len(calls) > 2:
        return None, "only two calls are compared, and it was not made so small"
    kinds = set().union(*map(kinds_in, calls))
    text = render(
        "media_hash.py.jinja",
        finding,
        imports=[line for kind, line in IMPORTS.items() if kind in kinds],
        has_media="media" in kinds,
        has_images="image" in kinds,
        algorithm=config.algorithm,
        one=arguments(calls[0]),
        other=arguments(calls[-1]),
        relation="!=" if finding.contract in APART else "==",
    )
    return text, ""
