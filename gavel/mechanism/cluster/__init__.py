"""The cluster: states of nodes, placement of gangs, ephemeral resources, instructions to the backend."""
