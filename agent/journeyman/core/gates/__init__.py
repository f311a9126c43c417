"""Admission gates: from readings to a verdict, all of it pure.

`signals` derives what rules look at, `rules` says what is bad, `machine` adds time to it, `verdict` puts
the gates together, `admission` and `ladder` act on that.  Sensors, clocks and files are left to others.
"""
