"""Pictures that answer: controls, a probe, a figure updated in place.

Nothing here computes; every widget names the plain call that shows the same without controls.
"""
