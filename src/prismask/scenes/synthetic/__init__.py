"""Drawn scenes: one to look at (`demo_scene`) and endless cheap ones (`random_scene`)."""

from prismask.scenes.synthetic.demo import demo_scene as demo_scene
from prismask.scenes.synthetic.demo import random_scene as random_scene
