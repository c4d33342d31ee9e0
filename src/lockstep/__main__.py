"""`python -m lockstep` is `lockstep`; `torchrun -m lockstep train` starts a rank this way."""

from lockstep.cli import main

if __name__ == "__main__":
    main()
