"""The marketing adapter: pages, ads and e-mail, judged on people. Importing this imports nothing heavy."""
