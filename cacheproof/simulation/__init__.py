"""The reference scheduler alone, over synthetic traffic: what sizes of the encoder cache do."""
