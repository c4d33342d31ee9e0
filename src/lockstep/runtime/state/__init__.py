"""All that a resume needs: written whole or not at all, verified before it is read."""
