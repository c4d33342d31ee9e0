"""Is not Python: a bracket is never closed."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
