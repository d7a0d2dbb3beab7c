"""The pure core of the tiered KV cache: hashes, blocks, prefix index, tiers, eviction."""
