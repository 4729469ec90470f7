"""A fleet of simulated engines that obey the roofline, with GPUs, faults and their own counts. What is modelled: docs/simulator.md."""
