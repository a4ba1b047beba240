"""Transformations of Tile IR that let two engines of a multiprocessor work at once; docs/architecture.md, "Scheduling"."""

from tilec.passes.schedule.run import Scheduled as Scheduled
from tilec.passes.schedule.run import schedule as schedule
