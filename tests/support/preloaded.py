"""Imported once, before services are forked off: what every one of them would import or build for itself."""

import gc

import altair as alt  # noqa: F401
import psycopg  # noqa: F401

import lcb.cli.settings
import lcb.demo.visitors
import lcb.serve.server  # noqa: F401
from lcb.serve.pages.bundle import load_bundle
from lcb.serve.pages.specs import live_specs
from support.compile_once import compile_once

compile_once()
load_bundle()  # two seconds of CPU for the charts of the dashboard and the study
live_specs()
gc.freeze()  # no service goes through all this again when it collects
