"""An adapter, a proposer and a policy in a package of their own."""
