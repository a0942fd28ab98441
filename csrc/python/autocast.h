// Autocast: while it is on, operators marked from Python get their floating-point arguments in another dtype.
// Off, it costs a call one test of a global number.
#pragma once
#include "objects.h"

namespace wisp {

enum class CastPolicy : uint8_t { none, lower, full, widest };  // lower precision; float32; the widest of the arguments

extern int autocast_users;  // threads in which autocast is on

// What an operator of this policy gets in this thread. `kept` holds the new tensors for the time of the call.
void cast_arguments(CastPolicy policy, PyObject** slots, int count, std::vector<Ref>& kept);
// Marks an operator ("nn.functional.linear"); unknown names are passed over.
void mark_autocast(const std::string& path, CastPolicy policy);

}  // namespace wisp
