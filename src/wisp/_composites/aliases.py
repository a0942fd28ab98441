"""Second names of operators: functions, methods and in-place methods alike."""

ALIASES = {
    "absolute": "abs", "negative": "neg", "multiply": "mul", "divide": "div", "subtract": "sub", "true_divide": "div",
    "arccos": "acos", "arcsin": "asin", "arctan": "atan", "arctan2": "atan2", "arccosh": "acosh", "arcsinh": "asinh",
    "arctanh": "atanh", "fix": "trunc", "greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
    "not_equal": "ne", "concat": "cat", "concatenate": "cat", "spmm": "mm", "dsmm": "mm",
}
