"""The questions of an audit, what bears on each, and what was not looked at."""

from dataclasses import dataclass

from cacheproof.differential.provision.versions import order
from cacheproof.reference.releases import NEWEST

ENGINES = ("0.20.0", NEWEST)
"""The oldest and the newest release of which whole engines were run."""


@dataclass(frozen=True)
class AuditQuestion:
    """One question.

    Attributes:
        id: its name in the list of faults.
        purpose: what is audited.
        text: the question, to which a fault answers yes.
        claim: what holds where the answer is yes.
        contracts: contracts whose proofs bear on it.
        depths: depths of the searches that bear on it.
        by_design: what vLLM does on purpose, and a reader might take for a fault; or nothing.
        not_looked_at: what bears on it and was not looked at.
    """

    id: str
    purpose: str
    text: str
    claim: str
    contracts: tuple[str, ...]
    depths: tuple[str, ...]
    by_design: str
    not_looked_at: tuple[str, ...]


QUESTIONS = (
    AuditQuestion(
        "media",
        "isolation",
        "Can one user's picture, video or sound reach another's answer?",
        "one user's media can reach another's answer",
        ("MH-3", "ID-1", "BK-1", "BK-3"),
        ("media_hash", "block_hash", "front_end"),
        "Requests that give one `uuid` share its item, whoever sends them. vLLM documents that. "
        "`cache_salt` does not keep them apart (docs/how-to/serving.md). KV that was "
        "computed from a "
        "picture belongs to the question about KV.",
        ("the processors of models beside the six that are run", "several workers of one engine"),
    ),
    AuditQuestion(
        "prompt",
        "isolation",
        "Can what one user asks reach another's answer?",
        "what one user asks can reach another's answer",
        (),
        ("scheduler",),
        "KV that was computed from a prompt belongs to the question about KV.",
        ("logs, metrics and traces of a server", "what a model repeats of its own prompt"),
    ),
    AuditQuestion(
        "kv",
        "isolation",
        "Can an answer be computed over KV of other input, or KV that nobody computed?",
        "an answer can be computed over KV of other input",
        ("BK-1", "BK-2", "BK-3"),
        ("block_hash", "kv_cache", "scheduler"),
        "Requests that begin alike share KV blocks. Who measures time can tell; another "
        "`cache_salt` for each user keeps them apart.",
        (
            "state-space groups (Mamba)",
            "the kernels that read KV blocks",
            "KV connectors themselves: what they load is played",
        ),
    ),
    AuditQuestion(
        "stop",
        "availability",
        "Can one user stop the engine?",
        "one user can stop the engine",
        ("EC-9", "EC-13", "EC-16", "ED-3", "ED-4"),
        ("manager", "kv_cache", "scheduler"),
        "",
        ("crashes of kernels, drivers and media decoders", "requests that the front end refuses"),
    ),
    AuditQuestion(
        "stall",
        "availability",
        "Can a request wait for ever, or an engine never come to rest?",
        "a request can wait for ever",
        ("EC-10", "EC-12", "EC-14", "EC-15"),
        ("scheduler", "front_end"),
        "",
        ("how long a request waits that does not wait for ever", "rate limits and time-outs"),
    ),
    AuditQuestion(
        "memory",
        "memory",
        "Can memory outgrow what was set aside?",
        "memory can outgrow what was set aside",
        ("EC-1", "EC-2", "EC-3", "EC-5", "ED-1", "ED-2", "ED-3", "ED-5"),
        ("manager", "scheduler"),
        "",
        (
            "memory of the front end, of decoders and of the encoder while it runs",
            "fragmentation of a GPU's memory",
        ),
    ),
)
PURPOSES = tuple(dict.fromkeys(one.purpose for one in QUESTIONS))
NEVER = (
    "several hosts, and engines of several GPUs",
    "plug-ins beside those that are named here",
)


def not_looked_at(question: AuditQuestion, release: str) -> list[str]:
    """What the answer to a question about a release did not look at."""
    first, last = ENGINES
    if order(first) <= order(release) <= order(last):
        engines = "workers on a GPU: this release's engine ran on a CPU, with tiny models"
    else:
        engines = (
            "this release's worker and server (engines that ran: "
            f"{first} to {last}, on a CPU, with tiny models)"
        )
    return [engines, *question.not_looked_at, *NEVER]
