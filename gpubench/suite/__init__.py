"""Suite, parameters, case, trial and measurement as plain data, and the loading of suite files.

All other rooms use these classes. Imports no other room, and never torch.
"""
