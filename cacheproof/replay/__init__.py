"""What is done with one finding: replayed, made smaller, and dated by bisection."""
