from .small import Small as Small
