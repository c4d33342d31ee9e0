"""Fails before it has done anything: a constant of the module cannot be computed."""

import torch

FEATURES = int("six")


def main() -> None:
    print(torch.nn.Linear(FEATURES, 1))


if __name__ == "__main__":
    main()
