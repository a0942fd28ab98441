// Calls whose result goes into a tensor that the caller has: out= and in-place forms.
#pragma once
#include "signature.h"

namespace wisp {

// `slots` are the arguments without `out`; the slot behind them is free for the callable's Out.
PyObject* call_with_out(const std::string& name, const Overload& o, PyObject** slots, PyObject* out);
PyObject* call_inplace(const std::string& name, const Overload& o, PyObject** slots);

}  // namespace wisp
