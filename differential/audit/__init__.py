"""Records of engines that ran, judged by the contracts that speak of them."""
