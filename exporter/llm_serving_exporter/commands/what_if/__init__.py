"""`ceiling --from-prometheus`: what a fleet did -> how near its engines come to their ceilings -> what another load or hardware needs."""
