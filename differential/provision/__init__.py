"""What is installed: releases, engines and connectors, their trees, environments and locks."""
