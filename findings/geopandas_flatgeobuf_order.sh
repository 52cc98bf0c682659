#!/usr/bin/env bash
# geopandas 1.2.0 with pyogrio 0.13.0 (GDAL 3.12.4): `to_file("a.fgb")` writes the rows of FlatGeobuf in the order of
# its spatial index, without a warning, so labels, predictions or splits that are kept beside the file by row number
# belong to other rows. GeoPackage, GeoJSON and Shapefile keep the order. Cure: `to_file(path, SPATIAL_INDEX="NO")`,
# or a column with the row number.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q geopandas==1.2.0 pyogrio==0.13.0 shapely numpy==2.4.6
cd "$folder"
"$folder/venv/bin/python" -W ignore - <<'PYTHON'
import geopandas
import numpy as np
import pyogrio
import shapely

print("geopandas", geopandas.__version__, "pyogrio", pyogrio.__version__, "GDAL", pyogrio.__gdal_version__)
points = shapely.points(np.random.default_rng(0).random((8, 2)))
frame = geopandas.GeoDataFrame({"row": range(8)}, geometry=points, crs=4326)
found = {}
for name in ("gpkg", "geojson", "shp", "fgb"):
    frame.to_file(f"a.{name}")
    found[name] = geopandas.read_file(f"a.{name}")["row"].tolist()
    print(name, found[name])
frame.to_file("b.fgb", SPATIAL_INDEX="NO")
plain = geopandas.read_file("b.fgb")["row"].tolist()
print("fgb without the index", plain)
rows = list(range(8))
assert found["gpkg"] == found["geojson"] == found["shp"] == plain == rows
assert found["fgb"] != rows and sorted(found["fgb"]) == rows, "it has changed"
PYTHON
