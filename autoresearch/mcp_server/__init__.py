"""The program as tools of a coding agent, over the Model Context Protocol: the agent acts, the loop decides."""
