"""The checkup of the whole chain, from the kernel log to the taint: facts in, links out. Pure."""
