"""Suite, parameters, case, trial and measurement as plain data, and the loading of suite files.

All other packages except `rows`, `data` and `show` use these classes. Imports no other package, and never torch.
"""
