"""What must hold: contracts over small immutable records. Imports nothing else of cacheproof."""
