"""For tests of pipelines: a clock that jumps, checks of the contracts of transformations, pipelines and sources, a
check for leaks.

>>> from asyncdata.testing import check_transform
>>> check_transform(lambda ds: ds.map(lambda x: x * 2).skip(1), lambda items: [x * 2 for x in items][1:])
"""

from __future__ import annotations

from asyncdata.testing.checks import check_resumes, check_transform
from asyncdata.testing.clock import virtual_time
from asyncdata.testing.leaks import leaves_nothing
from asyncdata.testing.sources import SourceDriver, check_source

__all__ = ("SourceDriver", "check_resumes", "check_source", "check_transform", "leaves_nothing", "virtual_time")
