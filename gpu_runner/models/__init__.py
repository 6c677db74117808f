"""Models: transformers' own modules, cut where a runner comes in between encoder and decoder."""
