"""What the system says of processes."""

from pathlib import Path


def parent_of(pid: int) -> int:
    """The process id of a process's parent."""
    status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(status[1])
