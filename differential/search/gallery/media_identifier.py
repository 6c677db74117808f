"""Front ends that name the items of requests with a fault."""

from cacheproof.differential.search.gallery.variant import Variant, namer_with, namer_without
from cacheproof.differential.targets.host.faults import media_identifier as faults

VARIANTS: tuple[Variant, ...] = (
    namer_without(
        "identifier-numbers",
        "Where no cache asks for digests, items are named by numbers that begin anew (as in vLLM).",
        "media.digests_uncached",
    ),
    namer_without(
        "identifier-numbers-of-all-servers",
        "The same, and all servers of an engine give the same numbers (as in vLLM 0.17).",
        "media.digests_uncached",
        "media.numbers_servers",
    ),
    namer_without(
        "identifier-request-ids",
        "The same, and a request's id is a part of the name (as before vLLM 0.17.0).",
        "media.digests_uncached",
        "media.numbers_requests",
    ),
    namer_without(
        "identifier-whatever-the-count",
        "A picture has one name, however many its request has (as before vLLM 0.33.0).",
        "media.digests_counts",
    ),
    namer_without(
        "identifier-without-settings",
        "Engines of other settings give an item one name (as in vLLM).",
        "media.digests_settings",
    ),
    namer_without(
        "identifier-replaces-ids",
        "Clients' ids are replaced where no cache asks for digests (as before vLLM 0.30.0).",
        "media.digests_uncached",
        "media.keeps_user_ids",
    ),
    namer_without(
        "identifier-ids-as-digests",
        "A client's id may be the digest of another's item (as in vLLM).",
        "media.separates_user_ids",
    ),
    namer_without(
        "identifier-adapters-run-on",
        "The name of an adapter runs into a client's id (as in vLLM).",
        "media.measures_adapter_names",
    ),
    namer_without(
        "identifier-without-adapters",
        "An item has one identifier under all adapters (as before vLLM 0.14.0).",
        "media.measures_adapter_names",
        "media.identifies_adapters",
    ),
    namer_without(
        "identifier-sounds-without-data",
        "A sound that comes by its id alone is refused (as before vLLM 0.30.0).",
        "media.takes_sounds_by_id",
    ),
    namer_with(faults.forgets_adapters),
    namer_with(faults.forgets_options),
    namer_with(faults.names_by_place),
    namer_with(faults.names_by_request),
    namer_with(faults.takes_ids_as_they_are),
    namer_with(faults.counts_items),
    namer_with(faults.refuses_now_and_then),
)
