"""What can go wrong that is no finding: each ends a command with one line and its own exit code."""


class CacheproofError(Exception):
    """Base of the errors that a command prints as one line."""

    exit_code = 2


class InputError(CacheproofError):
    """What the user gave is malformed: says what, where, what was expected and what to do."""


class SetupError(CacheproofError):
    """The environment cannot do it: no network, disk full, a release that does not exist."""


class HarnessError(CacheproofError):
    """A host crashed, hung or printed junk. Never a finding, never silence."""

    exit_code = 3
