// Autocast: while it is on, operators whose facts say so get their floating-point arguments in another dtype.
// Off, it costs a call one test of a global number.
#pragma once
#include "objects.h"

namespace wisp {

enum class CastPolicy : uint8_t { none, lower, full, widest, banned };  // lower precision; float32; the widest of the arguments

extern int autocast_users;  // threads in which autocast is on, counted once for the CPU and once for the GPU

// Whether it is on in this thread for the device that the running operator works on.
bool autocast_enabled();
// What an operator of this policy gets in this thread. `kept` holds the new tensors for the time of the call.
void cast_arguments(CastPolicy policy, PyObject** slots, int count, std::vector<Ref>& kept);

}  // namespace wisp
