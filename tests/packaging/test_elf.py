"""A wheel built here runs on another distribution's Python, and does not meddle with the libraries around it."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from packaging_of.compiled import COMPILED_FOR_RELEASE, MODULES, exported, imported, needed
