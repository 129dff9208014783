"""Load traces from tables: a column per node, a row per node and time, or a row per request.

``cells`` reads a file (``frame`` a DataFrame) into columns, ``numbers`` and ``times`` say what a
cell means, ``zones`` where on earth its time is, ``roles`` what each column is for, ``layout`` puts
it together as arrays over times and nodes, ``grid`` makes an even trace of them.
"""
