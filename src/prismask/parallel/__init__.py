"""Sharing tasks out: in this process, to several on this machine, or to a Dask cluster."""
