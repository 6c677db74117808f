"""What one would post upstream about a listed fault: `cacheproof report NAME`."""
