"""The processor time of a command and of all that it starts."""

import sys
from types import ModuleType

BUSY = (
    "import subprocess, sys, time\n"
    "end = time.process_time() + 0.4\n"
    "while time.process_time() < end: pass\n"
    "if sys.argv[1:]: subprocess.run([sys.executable, *sys.argv[1:]])\n"
    "print('found: it', file=sys.stderr, flush=True)\n"
    "time.sleep(0.3)\n"
)


def test_what_a_command_starts_is_counted(script: ModuleType) -> None:
    alone = script.Measured([sys.executable, "-c", BUSY], None)
    with_child = script.Measured([sys.executable, "-c", BUSY, "-c", BUSY], None)
    assert alone.code == with_child.code == 0
    assert 0.3 < alone.processor < with_child.processor


def test_a_command_is_ended_with_a_line(script: ModuleType) -> None:
    never = BUSY.replace("0.3", "3600")
    assert script.Measured([sys.executable, "-c", never], "found:").code == -15
