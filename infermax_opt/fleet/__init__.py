"""The wing of fleets: how many machines a trace needs to keep its service levels, with a proof."""
