"""docs/how-to/recording.md names every record, every field and every setting."""

import re
from pathlib import Path
from typing import get_args

import msgspec

from cacheproof.differential.recording import plugin
from cacheproof.differential.recording.blocks import HEAD, MAGIC, MARK
from cacheproof.differential.recording.messages import AnyMessage

PAGE = (Path(__file__).parents[3] / "docs" / "how-to" / "recording.md").read_text()


def test_every_record_has_a_row_with_its_fields_in_order():
    rows = dict(re.findall(r"^\| `(\w)` \| \w+[^|]* \| ([\w, ]+) \|$", PAGE, re.MULTILINE))
    assert rows == {
        kind.__struct_config__.tag: ", ".join(one.name for one in msgspec.structs.fields(kind))
        for kind in get_args(AnyMessage)
    }


def test_every_setting_is_named():
    for setting in (plugin.FOLDER, plugin.PLAIN, plugin.LIMITS, plugin.KV):
        assert f"`{setting}=" in PAGE


def test_the_head_of_a_block_is_as_it_is_described():
    assert f"`{MAGIC.decode().strip()}`" in PAGE
    assert f"head of {HEAD.size} bytes" in PAGE
    assert f"`{MARK.hex(' ').upper()}`" in PAGE
