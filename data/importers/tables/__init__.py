"""Load traces from tables: a column per node, a row per node and time, or a row per request.

``cells`` reads a file into columns, ``frame`` a DataFrame. ``numbers`` and ``times`` parse cells,
and ``zones`` converts local times to UTC. ``roles`` assigns a role to each column. ``sheets``
arranges one file as arrays over times and nodes. ``grid`` builds an even trace from the sheets.
"""
